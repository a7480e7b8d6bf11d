//! `format_info`: constants of a format.
//!
//! No inputs; one f64 tensor of shape `[5]`: the largest finite value, the least
//! finite value, the smallest positive normal number, the smallest positive
//! number, and epsilon (the distance from 1 to the next value, `2^-fraction_bits`).

use super::{Inputs, Operation, SignatureError};
use crate::format::{F64, Format};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Constants of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormatInfo {
    /// The format.
    pub format: Format,
}

impl Operation for FormatInfo {
    const INPUTS: &'static [&'static str] = &[];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(0)?;
        Ok(vec![TensorType::new(F64, [5])])
    }

    fn evaluate(&self, _: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let f = self.format;
        let epsilon = 2f64.powi(-(f.fraction_bits as i32));
        let value = |code| f.to_f64(code).to_bits();
        let constants = [
            value(f.max_finite()),
            value(f.lowest()),
            value(f.min_normal()),
            value(f.min_positive()),
            epsilon.to_bits(),
        ];
        Ok(vec![Tensor::from_fn(TensorType::new(F64, [5]), path, |i| constants[i])?])
    }
}
