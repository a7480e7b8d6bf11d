//! `gemm_fused`: a matrix product with bias and activation.
//!
//! `y[m, n] = act(sum over k of a[m, k] * b[k, n] + bias[n])` with a `[M, K]`, b `[K, N]` and bias f32 `[N]`,
//! y f32 `[M, N]`, as three steps, each rounded to f32:
//!
//! 1. `v`: the product, in the order of accumulation `accumulate`;
//! 2. `t = v + bias[n]`;
//! 3. `y = act(t)`, NaN canonical.
//!
//! One kernel that does all three gives the same bits as three. Without `accumulate`, t is the exact sum of
//! products and bias, rounded once; it judges any implementation by a criterion with a bound.
//!
//! | activation | `act(t)` |
//! |---|---|
//! | `none` | t |
//! | `relu` | t where t is above 0, NaN where it is NaN, else +0 |
//!
//! The bias has one element per column of y, never one per row: any other length is an error, as are
//! a and b of different K.
//!
//! Source: the epilogues `BIAS` and `RELU_BIAS` of cuBLASLt, with its rows and columns as ours.

use super::gemm::{Gemm, OPERANDS};
use super::{Inputs, Operation, SignatureError};
use crate::accumulate::Accumulation;
use crate::fast::Plan;
use crate::format::{F32, Format};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A matrix product with bias and activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GemmFused {
    /// Format of a.
    pub a: Format,
    /// Format of b.
    pub b: Format,
    /// What follows on the bias.
    pub activation: FusedActivation,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
}

/// An activation after a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FusedActivation {
    /// None.
    None,
    /// `max(t, 0)`; NaN stays NaN.
    Relu,
}

impl FusedActivation {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::None, Self::Relu];

    /// The activation of an f32. A NaN gives some NaN.
    #[must_use]
    pub fn of(self, t: f32) -> f32 {
        match self {
            Self::None => t,
            Self::Relu if t > 0.0 || t.is_nan() => t,
            Self::Relu => 0.0,
        }
    }
}

impl GemmFused {
    /// The exact product.
    #[must_use]
    pub fn new(a: Format, b: Format, activation: FusedActivation) -> Self {
        Self { a, b, activation, accumulate: None }
    }

    /// The product with its bias: the first two steps.
    #[must_use]
    pub fn gemm(&self) -> Gemm {
        Gemm { bias: Some(F32), accumulate: self.accumulate.clone(), ..Gemm::new(self.a, self.b, F32) }
    }
}

impl Operation for GemmFused {
    const INPUTS: &'static [&'static str] = &["a", "b", "bias"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        for (field, format) in [("a", self.a), ("b", self.b)] {
            if !OPERANDS.contains(&format) {
                let names = OPERANDS.map(|format| format.name).join(", ");
                return Err(inputs.parameter_error(field, format!("{format} is none of {names}")));
            }
        }
        if let Some(accumulate) = &self.accumulate {
            accumulate.check().map_err(|why| inputs.parameter_error("accumulate", why))?;
        }
        inputs.count(3)?;
        let &[m, k] = inputs.dtype(0, self.a)? else {
            return Err(inputs.shape_error(0, "[M, K]".to_owned()));
        };
        let &[own_k, n] = inputs.dtype(1, self.b)? else {
            return Err(inputs.shape_error(1, format!("[{k}, N]")));
        };
        if own_k != k {
            return Err(inputs.shape_error(1, format!("[{k}, N]")));
        }
        if *inputs.dtype(2, F32)? != [n] {
            return Err(inputs.shape_error(2, format!("[{n}], one element per column of y")));
        }
        Ok(vec![TensorType::new(F32, [m, n])])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let t = self.gemm().evaluate(inputs, path)?.remove(0);
        if self.activation == FusedActivation::None {
            return Ok(vec![t]);
        }
        let y = Tensor::from_fn(t.ty().clone(), path, |i| {
            let y = self.activation.of(f32::from_bits(t.code(i) as u32));
            if y.is_nan() { 0x7fff_ffff } else { y.to_bits().into() }
        })?;
        Ok(vec![y])
    }

    fn has_fast_path(&self) -> bool {
        self.accumulate.as_ref().is_none_or(Plan::exists)
    }

    fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
        self.gemm().sources(inputs, output, index)
    }
}
