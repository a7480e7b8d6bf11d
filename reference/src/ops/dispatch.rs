//! `dispatch`: activations times a matrix of GGML blocks, by one product for few rows and another for
//! many.
//!
//! `y[m, n] = sum over k of x[m, k] * w[n, k]` as in [`prefill_linear`](super::prefill_linear). With M the
//! rows of x:
//!
//! - `M < threshold`: [`batched_gemv`](super::batched_gemv) with f32 activations, in the order
//!   `gemv`;
//! - `M > threshold`: [`prefill_linear`](super::prefill_linear) by `route`, with `pad`, in the order `gemm`;
//! - `M = threshold`: the one that `at_threshold` names.
//!
//! All elements are made by the same one. An order left out makes its product exact, rounded once.
//!
//! With both left out, and a route that multiplies in f32 (`dequantized`, `fused`), both products are of the
//! same exact numbers: either is within its bound around the same sum, and so both within the larger of
//! the two. By that `bound` judges any implementation. The other routes round weights and activations
//! before they multiply, so that their sum is another one, which no joint bound is around; they are
//! judged by an order, bit for bit.
//!
//! Errors: a threshold above 16, the most vectors of `batched_gemv`; those of the two products.

use super::gemv::{Activations, sources};
use super::prefill_linear::{PrefillLinear, Route};
use super::{BatchedGemv, Inputs, Op, Operation, SignatureError};
use crate::accumulate::Accumulation;
use crate::block::BlockFormat;
use crate::ops::batched_gemv::MAX_VECTORS;
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Activations times a matrix of GGML blocks, by one product for few rows and another for many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// Format of the weights.
    pub weights: BlockFormat,
    /// Rows of x up to which the product is `batched_gemv`.
    pub threshold: usize,
    /// The product of exactly that many rows.
    pub at_threshold: Product,
    /// The steps of the product of more rows.
    pub route: Route,
    /// More rows are padded to a multiple of 16.
    #[serde(default)]
    pub pad: bool,
    /// The order of accumulation of few rows; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemv: Option<Accumulation>,
    /// The order of accumulation of more rows; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemm: Option<Accumulation>,
}

/// A kind of product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Matrix times vectors: `batched_gemv`.
    Gemv,
    /// Matrix times matrix: `prefill_linear`.
    Gemm,
}

impl Dispatch {
    /// Exact products.
    #[must_use]
    pub fn new(weights: BlockFormat, threshold: usize, at_threshold: Product, route: Route) -> Self {
        Self { weights, threshold, at_threshold, route, pad: false, gemv: None, gemm: None }
    }

    /// Which product that many rows take.
    #[must_use]
    pub fn choice(&self, rows: usize) -> Product {
        match rows.cmp(&self.threshold) {
            std::cmp::Ordering::Less => Product::Gemv,
            std::cmp::Ordering::Equal => self.at_threshold,
            std::cmp::Ordering::Greater => Product::Gemm,
        }
    }

    /// The operation of few rows.
    #[must_use]
    pub fn of_few(&self) -> BatchedGemv {
        let (weights, accumulate) = (self.weights, self.gemv.clone());
        BatchedGemv { weights, activations: Activations::F32, accumulate }
    }

    /// The operation of more rows.
    #[must_use]
    pub fn of_many(&self) -> PrefillLinear {
        let (pad, accumulate) = (self.pad, self.gemm.clone());
        PrefillLinear { pad, accumulate, ..PrefillLinear::new(self.weights, self.route) }
    }

    /// The operation of that many rows.
    #[must_use]
    pub fn chosen(&self, rows: usize) -> Op {
        match self.choice(rows) {
            Product::Gemv => self.of_few().into(),
            Product::Gemm => self.of_many().into(),
        }
    }
}

impl Operation for Dispatch {
    const INPUTS: &'static [&'static str] = PrefillLinear::INPUTS;

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        if self.threshold > MAX_VECTORS {
            let why = format!("is at most {MAX_VECTORS}, the most vectors of batched_gemv");
            return Err(inputs.parameter_error("threshold", why));
        }
        // Both, so that parameters make sense or not whatever the number of rows.
        for (field, order) in [("gemv", &self.gemv), ("gemm", &self.gemm)] {
            let checked = order.as_ref().map_or(Ok(()), Accumulation::check);
            checked.map_err(|why| inputs.parameter_error(field, why))?;
        }
        self.of_many().signature(inputs)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        self.chosen(inputs[1].shape()[0]).compute(inputs, path)
    }

    fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
        self.of_many().input_blocks(input)
    }

    fn has_fast_path(&self) -> bool {
        self.of_few().has_fast_path() || self.of_many().has_fast_path()
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let n = inputs[0].shape()[0];
        sources(inputs, index / n, inputs[1].shape()[0], index % n)
    }

    fn notes(&self, inputs: &[Tensor], output: usize) -> Vec<(usize, String)> {
        self.chosen(inputs[1].shape()[0]).notes(inputs, output)
    }
}
