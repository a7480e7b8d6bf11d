//! `scaled_cast`: encode of a scaled value.
//!
//! `y[i] = encode(f32(x[i] op s))`: the product (or quotient, see `scale_op`) is
//! rounded to f32 first, then encoded. Inputs `x`, `s` (f32; shape by
//! `granularity`), and `random` with stochastic rounding. A NaN that reaches the
//! encoding is positive, whatever its source.

use super::encoding::{
    Granularity, ScaleOp, arithmetic, check_f32_source, check_random, converted, encoding_parameters, f32_at,
    random_bits, scaled_sources,
};
use super::{Inputs, Operation, SignatureError};
use crate::fast::Conversion;
use crate::format::{F32, Format};
use crate::{Path, Tensor, TensorError, TensorType};

encoding_parameters! {
    /// Encode of a scaled value.
    pub struct ScaledCast {
        /// Format of the source; any but f64.
        from,
        /// Format of the result.
        to: Format,
        /// How many elements share a scale.
        granularity: Granularity,
        /// Multiply, divide, or multiply by the reciprocal.
        scale_op: ScaleOp,
    }
}

impl ScaledCast {
    fn conversion(&self) -> Option<Conversion> {
        Conversion::scaled(self.from, self.to, &self.policy())
    }

    fn scaled(&self, inputs: &[Tensor], i: usize) -> f32 {
        let scale = f32_at(&inputs[1], F32, self.granularity.scale_index(inputs[0].shape(), i));
        self.scale_op.apply(f32_at(&inputs[0], self.from, i), scale)
    }
}

impl Operation for ScaledCast {
    const INPUTS: &'static [&'static str] = &["x", "s", "random"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        check_f32_source(inputs, self.from)?;
        check_random(inputs, 2, self.rounding)?;
        let shape = inputs.dtype(0, self.from)?;
        self.granularity.check(inputs, 0, 1)?;
        Ok(vec![TensorType::new(self.to, shape)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let policy = self.policy();
        let ty = TensorType::new(self.to, inputs[0].shape());
        if let (Path::Simd(simd), Some(conversion)) = (path, self.conversion()) {
            let scale = self.scale_op.scale(self.granularity, &inputs[0], &inputs[1]);
            return Ok(vec![converted(&conversion, simd, inputs, Some(&scale), ty)?]);
        }
        let y = Tensor::from_fn(ty, path, |i| {
            self.to.encode(arithmetic(self.scaled(inputs, i)), &policy, random_bits(inputs, &policy, i))
        })?;
        Ok(vec![y])
    }

    fn has_fast_path(&self) -> bool {
        self.conversion().is_some()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        Some(self.scaled(inputs, index).into())
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        scaled_sources(inputs, self.granularity, index)
    }
}
