//! `classify`: class and sign of every code.
//!
//! `y[i]` is one byte: 1 NaN, 2 infinite, 4 zero, 8 subnormal, 16 normal, plus 128
//! where the sign bit is set (of NaN and zero too). Classes as in IEEE 754-2019,
//! 5.7.2, with quiet and signalling NaN as one.

use super::{Inputs, Operation, SignatureError};
use crate::format::Format;
use crate::{DType, Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Class and sign of every code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Classify {
    /// Format of the codes.
    pub format: Format,
}

impl Classify {
    /// The bit that is set for a negative sign.
    pub const NEGATIVE: u8 = 128;
}

impl Operation for Classify {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(1)?;
        let shape = inputs.dtype(0, self.format)?;
        Ok(vec![TensorType::new(DType::U8, shape)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let x = &inputs[0];
        let y = Tensor::from_fn(TensorType::new(DType::U8, x.shape()), path, |i| {
            let code = x.code(i);
            let sign = if self.format.decode(code).is_negative() { Self::NEGATIVE } else { 0 };
            (self.format.classify(code) as u8 | sign).into()
        })?;
        Ok(vec![y])
    }
}
