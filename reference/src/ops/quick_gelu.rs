//! `quick_gelu`: `y = x * sigmoid(1.702 x)`.
//!
//! Canonical: as `silu` with `z = x * 1.702` rounded to f32, 1.702 as the nearest f32. -Inf gives
//! -0, -0 gives -0.
//!
//! Source: Hendrycks, Gimpel, "Gaussian error linear units" (2016).

use super::activation::{Elementwise, activation, times_sigmoid, times_sigmoid_real};
use crate::fast::Function;
use crate::interval::{Interval, Steps};

activation! {
    /// The sigmoid approximation of the Gaussian error linear unit.
    QuickGelu("x")
}

/// The factor in the exponent.
pub const FACTOR: f32 = 1.702;

impl Function<1> for QuickGelu {
    #[inline(always)]
    fn of(self, [x]: [f32; 1]) -> f32 {
        times_sigmoid(x, x * FACTOR)
    }
}

impl Elementwise<1> for QuickGelu {
    fn real(self, [x]: [Interval; 1], steps: Steps) -> Interval {
        // The factor and the product are rounded.
        let z = (x * Interval::at(1.702, |x| x, f64::EPSILON)).rounded(steps, 2.0);
        times_sigmoid_real(x, z, steps)
    }
}
