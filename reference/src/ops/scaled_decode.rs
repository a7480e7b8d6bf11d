//! `scaled_decode`: decode, then multiply by a scale read from memory.
//!
//! `y[i] = f32(f32(x[i]) * s)`, NaN canonical. Inputs: codes `x` of format `from`,
//! `s` (f32; shape by `granularity`). Output: f32 of the shape of `x`.

use super::encoding::{Granularity, check_f32_source, f32_at, f32_bits, scaled_sources};
use super::{Inputs, Operation, SignatureError};
use crate::format::{F32, Format};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Decode, then multiply by a scale read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaledDecode {
    /// Format of the codes; any but f64.
    pub from: Format,
    /// How many elements share a scale.
    #[serde(default)]
    pub granularity: Granularity,
}

impl ScaledDecode {
    fn scale_index(&self, inputs: &[Tensor], i: usize) -> usize {
        self.granularity.scale_index(inputs[0].shape(), i)
    }
}

impl Operation for ScaledDecode {
    const INPUTS: &'static [&'static str] = &["x", "s"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(2)?;
        check_f32_source(inputs, self.from)?;
        let shape = inputs.dtype(0, self.from)?;
        self.granularity.check(inputs, 0, 1)?;
        Ok(vec![TensorType::new(F32, shape)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let y = Tensor::from_fn(TensorType::new(F32, inputs[0].shape()), path, |i| {
            f32_bits(f32_at(&inputs[0], self.from, i) * f32_at(&inputs[1], F32, self.scale_index(inputs, i)))
        })?;
        Ok(vec![y])
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        // A product of two f32 has at most 48 significant bits: exact in f64.
        let scale = f32_at(&inputs[1], F32, self.scale_index(inputs, index));
        Some(f64::from(f32_at(&inputs[0], self.from, index)) * f64::from(scale))
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        scaled_sources(inputs, self.granularity, index)
    }
}
