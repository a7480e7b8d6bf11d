//! `log_softmax`: `y[j] = (s[j] - max) - log(sum_j e^(s[j] - max))`, `s[j] = scale * x[j]`.
//!
//! Shapes, masks, NaN and the order of the sum are those of [`softmax`](super::softmax). A masked
//! element's result is -Inf, and so are all of a row that is fully masked, or NaN.
//!
//! Canonical, in f32: [`math::log`] of the sum, then two subtractions in the order written.

use super::softmax::{Causal, FullyMasked, Row, Rows, row_sources, softmax_operation, softmax_parameters};
use super::{Bits32, Inputs, Operation, SignatureError};
use crate::format::Format;
use crate::interval::{Interval, Steps, U};
use crate::{Path, Tensor, TensorError, TensorType, math};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

softmax_parameters! {
    /// The logarithm of softmax.
    LogSoftmax
}

impl LogSoftmax {
    fn results(row: &Row) -> Vec<f32> {
        let log = math::log(row.sum);
        row.s.iter().map(|s| (s - row.max) - log).collect()
    }

    fn real(difference: Interval, _: Interval, sum: Interval, steps: Steps) -> Interval {
        // Or as s - (max + log), each rounded, where the magnitudes are those of the difference.
        let most = Interval { low: f64::NEG_INFINITY, high: 8.0 * U };
        (difference - sum.log(steps)).rounded(steps, 1.0).within(most)
    }
}

softmax_operation!(LogSoftmax, f32::NEG_INFINITY);
