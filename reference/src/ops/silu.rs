//! `silu`: `y = x * sigmoid(x)`, `sigmoid(z) = 1 / (1 + e^-z)`; also called swish.
//!
//! Canonical: `e = exp(-abs(x))`, `(x < 0 ? x * e : x) * (1 / (1 + e))`, so that nothing overflows and
//! small results keep their accuracy. -Inf gives -0, -0 gives -0.
//!
//! Source: Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units for neural network function
//! approximation in reinforcement learning" (2017).

use super::activation::{Elementwise, activation, times_sigmoid, times_sigmoid_real};
use crate::fast::Function;
use crate::interval::{Interval, Steps};

activation! {
    /// The sigmoid linear unit.
    Silu("x")
}

impl Function<1> for Silu {
    #[inline(always)]
    fn of(self, [x]: [f32; 1]) -> f32 {
        times_sigmoid(x, x)
    }
}

impl Elementwise<1> for Silu {
    fn real(self, [x]: [Interval; 1], steps: Steps) -> Interval {
        times_sigmoid_real(x, x, steps)
    }
}
