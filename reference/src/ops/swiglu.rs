//! `swiglu`: `y = silu(gate) * up`.
//!
//! Canonical: [`silu`](super::silu) of the gate in f32, times up, rounded. -Inf as gate gives -0
//! times up.
//!
//! Source: Shazeer, "GLU variants improve transformer" (2020).

use super::activation::{Elementwise, activation, times_sigmoid, times_sigmoid_real};
use crate::fast::Function;
use crate::interval::{Interval, Steps};

activation! {
    /// The gated linear unit with SiLU.
    Swiglu("gate", "up")
}

impl Function<2> for Swiglu {
    #[inline(always)]
    fn of(self, [gate, up]: [f32; 2]) -> f32 {
        times_sigmoid(gate, gate) * up
    }
}

impl Elementwise<2> for Swiglu {
    fn real(self, [gate, up]: [Interval; 2], steps: Steps) -> Interval {
        (times_sigmoid_real(gate, gate, steps) * up).rounded(steps, 1.0)
    }
}
