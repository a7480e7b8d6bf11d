//! `decode`: every code to a wider format.
//!
//! `y[i]` is the value of `x[i]` in format `to`. Exact wherever `to` holds the
//! value; otherwise rounded once to nearest even, an overflow to infinity. NaN
//! becomes the canonical NaN of `to`; infinities and the sign of zero are kept.

use super::encoding::converted;
use super::{Inputs, Operation, SignatureError};
use crate::fast::Conversion;
use crate::format::{BF16, F16, F32, F64, Format, Policy};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every code to a wider format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decode {
    /// Format of the codes.
    pub from: Format,
    /// Format of the result: f16, bf16, f32 or f64.
    pub to: Format,
}

impl Decode {
    fn conversion(&self) -> Option<Conversion> {
        Conversion::decode(self.from, self.to)
    }
}

impl Operation for Decode {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(1)?;
        if ![F16, BF16, F32, F64].contains(&self.to) {
            return Err(
                inputs.parameter_error("to", format!("is {}, expected f16, bf16, f32 or f64", self.to))
            );
        }
        let shape = inputs.dtype(0, self.from)?;
        Ok(vec![TensorType::new(self.to, shape)])
    }

    fn pointwise(&self) -> Option<(Format, Format)> {
        Some((self.from, self.to))
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let x = &inputs[0];
        let ty = TensorType::new(self.to, x.shape());
        if let (Path::Simd(simd), Some(conversion)) = (path, self.conversion()) {
            return Ok(vec![converted(&conversion, simd, inputs, None, ty)?]);
        }
        let y = Tensor::from_fn(ty, path, |i| self.to.encode(self.from.decode(x.code(i)), &Policy::IEEE, 0))?;
        Ok(vec![y])
    }

    fn has_fast_path(&self) -> bool {
        self.conversion().is_some()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        Some(self.from.to_f64(inputs[0].code(index)))
    }
}
