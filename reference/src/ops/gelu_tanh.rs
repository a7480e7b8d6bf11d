//! `gelu_tanh`: `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
//!
//! That is `x * sigmoid(z)` with `z = x * (a + b x^2)`, `a = 2 sqrt(2 / pi)`,
//! `b = 0.044715 a`, which keeps its accuracy where `1 + tanh` is tiny. Canonical:
//! `z = x * fma(b, x * x, a)` with a and b as the nearest f32, then as `silu`. -Inf gives -0, -0
//! gives -0.
//!
//! A bound asks for a small relative error there: `1 + tanh` in f32 is off by up to 2^-24, which a
//! bound refuses from about -2.5 on.
//!
//! Source: Hendrycks, Gimpel, "Gaussian error linear units" (2016).

use super::activation::{Elementwise, activation, times_sigmoid, times_sigmoid_real};
use crate::fast::Function;
use crate::interval::{Interval, Steps};

activation! {
    /// The tanh approximation of the Gaussian error linear unit.
    GeluTanh("x")
}

/// `2 sqrt(2 / pi)`.
pub const LINEAR: f32 = 1.595_769_2;
/// `0.044715` times that.
pub const CUBIC: f32 = 0.071_354_814;

impl Function<1> for GeluTanh {
    #[inline(always)]
    fn of(self, [x]: [f32; 1]) -> f32 {
        times_sigmoid(x, x * CUBIC.mul_add(x * x, LINEAR))
    }
}

impl Elementwise<1> for GeluTanh {
    fn real(self, [x]: [Interval; 1], steps: Steps) -> Interval {
        let a = Interval::at(1.595_769_121_605_730_7, |x| x, f64::EPSILON);
        let b = Interval::at(0.044_715, |x| x, f64::EPSILON) * a;
        // Constants, x^2 or x^3, their product, the sum, and the product with x or a: as written
        // here, or with a outside.
        let square = (x * x).rounded(steps, 2.0);
        let z = (x * (a + (b * square).rounded(steps, 2.0)).rounded(steps, 2.0)).rounded(steps, 2.0);
        times_sigmoid_real(x, z, steps)
    }
}
