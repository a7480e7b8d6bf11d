//! `cast`: elementwise encode.
//!
//! `y[i] = encode(x[i])`, from the bits of the source directly, rounded once.
//! Inputs `x` of format `from` and any shape; with stochastic rounding also
//! `random`, u32 of the same shape. Output: codes of format `to`, same shape.

use super::encoding::{check_random, converted, encoding_parameters, random_bits};
use super::{Inputs, Operation, SignatureError};
use crate::fast::Conversion;
use crate::format::{Format, Rounding};
use crate::{Path, Tensor, TensorError, TensorType};

encoding_parameters! {
    /// Elementwise encode.
    ///
    /// ```
    /// use plumbline_reference::{Path, Tensor, TensorType, format::{E4M3FN, F32}, ops::{Cast, Op}};
    /// let x = Tensor::from_codes(TensorType::new(F32, [2]), &[0x43e8_0000, 0x43e8_0001])?;
    /// let y = Op::from(Cast::new(F32, E4M3FN)).evaluate(&[x], Path::Definition)?;
    /// assert_eq!(y[0].bytes(), [0x7e, 0x7e]); // 464 is the tie above 448
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Cast {
        /// Format of the source.
        from,
        /// Format of the result.
        to: Format,
    }
}

impl Cast {
    fn conversion(&self) -> Option<Conversion> {
        Conversion::cast(self.from, self.to, &self.policy())
    }
}

impl Operation for Cast {
    const INPUTS: &'static [&'static str] = &["x", "random"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        check_random(inputs, 1, self.rounding)?;
        let shape = inputs.dtype(0, self.from)?;
        Ok(vec![TensorType::new(self.to, shape)])
    }

    fn pointwise(&self) -> Option<(Format, Format)> {
        (self.rounding != Rounding::Stochastic).then_some((self.from, self.to))
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let (x, policy) = (&inputs[0], self.policy());
        let ty = TensorType::new(self.to, x.shape());
        if let (Path::Simd(simd), Some(conversion)) = (path, self.conversion()) {
            return Ok(vec![converted(&conversion, simd, inputs, None, ty)?]);
        }
        let y = Tensor::from_fn(ty, path, |i| {
            self.to.encode(self.from.decode(x.code(i)), &policy, random_bits(inputs, &policy, i))
        })?;
        Ok(vec![y])
    }

    fn has_fast_path(&self) -> bool {
        self.conversion().is_some()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        Some(self.from.to_f64(inputs[0].code(index)))
    }
}
