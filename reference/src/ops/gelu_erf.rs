//! `gelu_erf`: `y = x * normal_cdf(x)`, `normal_cdf(x) = (1 + erf(x / sqrt(2))) / 2`.
//!
//! Canonical: the product with [`math::normal_cdf`], whose relative error is small where it is
//! tiny. -Inf gives -0, -0 gives -0.
//!
//! A bound asks for the same: `1 + erf` in f32 is off by up to 2^-24 there, which is all of the
//! result below about -5.5.
//!
//! Source: Hendrycks, Gimpel, "Gaussian error linear units" (2016).

use super::activation::{Elementwise, activation};
use crate::fast::Function;
use crate::interval::{Interval, Steps};
use crate::math;

activation! {
    /// The Gaussian error linear unit.
    GeluErf("x")
}

impl Function<1> for GeluErf {
    #[inline(always)]
    fn of(self, [x]: [f32; 1]) -> f32 {
        let x = math::maximum(x, f32::MIN);
        x * math::normal_cdf(x)
    }
}

impl Elementwise<1> for GeluErf {
    fn real(self, [x]: [Interval; 1], steps: Steps) -> Interval {
        // Where x is negative, erfc of a rounded argument is off by twice its square times as much;
        // 7 ulp besides.
        let argument = (-x.low).max(0.0);
        let cdf = x.normal_cdf().rounded(steps, 14.0 + 2.0 * argument * argument);
        (x * cdf).rounded(steps, 1.0)
    }
}
