//! `relu`: `y = max(x, 0)`.
//!
//! NaN stays NaN; -0 and every negative number give +0. A bound lets -0 be -0.

use super::activation::{Elementwise, activation};
use crate::fast::Function;
use crate::interval::{Interval, Steps};

activation! {
    /// The rectified linear unit.
    Relu("x")
}

impl Function<1> for Relu {
    #[inline(always)]
    fn of(self, [x]: [f32; 1]) -> f32 {
        if x <= 0.0 { 0.0 } else { x }
    }
}

impl Elementwise<1> for Relu {
    fn real(self, [x]: [Interval; 1], _: Steps) -> Interval {
        if x.low == 0.0 && x.high == 0.0 { Interval { low: x.low, high: 0.0 } } else { x.max(0.0.into()) }
    }
}
