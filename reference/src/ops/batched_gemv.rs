//! `batched_gemv`: a matrix of GGML blocks times up to 16 vectors.
//!
//! `y[m, n] = sum over k of w[n, k] * x[m, k]`: row m of y is [`gemv`](super::gemv) of row m of x,
//! in every bit. `x` is f32 `[M, K]` or blocks `u8[M, K / values, bytes]`, y is f32 `[M, N]`; M is at
//! most 16, beyond which products are for `gemm`.

use super::gemv::{Activations, Gemv, sources};
use super::{Inputs, Operation, SignatureError};
use crate::accumulate::Accumulation;
use crate::block::BlockFormat;
use crate::format::F32;
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most vectors.
pub const MAX_VECTORS: usize = 16;

/// A matrix of GGML blocks times up to 16 vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchedGemv {
    /// Format of the weights.
    pub weights: BlockFormat,
    /// What the activations are.
    pub activations: Activations,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
}

impl BatchedGemv {
    /// What each row of the result is.
    #[must_use]
    pub fn of_row(&self) -> Gemv {
        let Self { weights, activations, accumulate } = self.clone();
        Gemv { weights, activations, accumulate }
    }
}

impl Operation for BatchedGemv {
    const INPUTS: &'static [&'static str] = Gemv::INPUTS;

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        match self.of_row().check(inputs)? {
            (n, &[m]) if m <= MAX_VECTORS => Ok(vec![TensorType::new(F32, [m, n])]),
            (_, &[m]) => Err(inputs
                .shape_error(1, format!("at most {MAX_VECTORS} vectors, and not {m}; more are for gemm"))),
            _ => Err(inputs.shape_error(1, "vectors in one dimension: [M, ..]".to_owned())),
        }
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let ty = TensorType::new(F32, [inputs[1].shape()[0], inputs[0].shape()[0]]);
        Ok(vec![Tensor::from_bytes(ty, self.of_row().products(inputs, path))?])
    }

    fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
        self.of_row().input_blocks(input)
    }

    fn has_fast_path(&self) -> bool {
        self.of_row().has_loop()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        let n = inputs[0].shape()[0];
        self.accumulate.is_none().then(|| self.of_row().exact_value(inputs, index / n, index % n).to_f64())
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let n = inputs[0].shape()[0];
        sources(inputs, index / n, inputs[1].shape()[0], index % n)
    }
}
