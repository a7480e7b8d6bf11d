//! `device_scaled_cast`: encode scaled by an absmax read from memory.
//!
//! With `m` the largest finite value of `to` (448 for E4M3FN) and `a` the absmax:
//! `q = m / a`, `y[i] = encode(x[i] * q)`, `dequant = a / m`, each step rounded to
//! f32. With `scale_op: divide`, `y[i] = encode(x[i] / dequant)` instead, and with
//! `reciprocal`, `y[i] = encode(x[i] * (1 / dequant))`.
//!
//! At the edges: `a = 0` (either sign) counts as 1. Where `m / a` would overflow
//! (`a` up to 448 * 2^-128, about 1.3166e-36, for 448) `q` is the largest f32 of
//! that sign and `dequant` is `1 / q`, so that a round trip still inverts; a plain
//! kernel's `a / m` there is `tiny: quotient`. The factor `1 / dequant` of
//! `reciprocal` is held to the largest f32 in the same way: `dequant` is there as
//! small as 2^-128, whose reciprocal is no f32. `a` infinite or NaN goes by
//! `special`.
//!
//! Inputs `x`, `a` (f32; shape by `granularity`), and `random` with stochastic
//! rounding. Outputs: codes, and `dequant` of the shape of `a`, NaN canonical.

use super::encoding::{
    Granularity, ScaleOp, arithmetic, check_f32_source, check_random, converted, encoding_parameters, f32_at,
    f32_bits, random_bits, scaled_sources,
};
use super::{Inputs, Operation, SignatureError};
use crate::fast::{Conversion, Scale};
use crate::format::{F32, Format};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

encoding_parameters! {
    /// Encode scaled by an absmax read from memory.
    pub struct DeviceScaledCast {
        /// Format of the source; any but f64.
        from,
        /// Format of the codes.
        to: Format,
        /// How many elements share an absmax.
        granularity: Granularity,
        /// `x * q`, or `x / dequant`, or `x * (1 / dequant)`.
        scale_op: ScaleOp,
        /// `dequant` where `q` is clamped.
        tiny: Tiny,
        /// An infinite or NaN absmax.
        special: Special,
    }
}

/// `dequant` where `m / a` overflows and `q` is clamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tiny {
    /// `1 / q`: the round trip inverts.
    #[default]
    Reciprocal,
    /// `a / m`, as a plain kernel gives. It may be 0, and `divide` divides by it.
    Quotient,
}

/// What an infinite or NaN absmax does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Special {
    /// IEEE arithmetic: infinity gives `q = 0` and `dequant` infinite, NaN gives NaN.
    #[default]
    Propagate,
    /// Counts as 1, as zero does.
    Unit,
}

impl DeviceScaledCast {
    /// `(q, dequant)` for an absmax.
    #[must_use]
    pub fn factors(&self, a: f32) -> (f32, f32) {
        // The largest finite value of a format with f32's exponents or fewer is exact.
        let max = self.to.to_f64(self.to.max_finite()) as f32;
        let a = match self.special {
            Special::Unit if !a.is_finite() => 1.0,
            _ if a == 0.0 => 1.0,
            _ => a,
        };
        let q = max / a;
        let invert = q.is_infinite() && self.tiny == Tiny::Reciprocal;
        (clamp(q), if invert { 1.0 / clamp(q) } else { a / max })
    }

    fn conversion(&self) -> Option<Conversion> {
        Conversion::scaled(self.from, self.to, &self.policy())
    }

    /// What each element is multiplied by, or divided, for an absmax.
    fn factor(&self, a: f32) -> f32 {
        let (q, dequant) = self.factors(a);
        match self.scale_op {
            ScaleOp::Multiply => q,
            ScaleOp::Divide => dequant,
            ScaleOp::Reciprocal => clamp(1.0 / dequant),
        }
    }

    fn scale(&self, inputs: &[Tensor]) -> Scale {
        let factors = inputs[1].codes().map(|a| self.factor(f32::from_bits(a as u32))).collect();
        let divide = self.scale_op == ScaleOp::Divide;
        Scale { divide, factors, extent: self.granularity.extent(inputs[0].shape()) }
    }

    fn scaled(&self, inputs: &[Tensor], i: usize) -> f32 {
        let a = f32_at(&inputs[1], F32, self.granularity.scale_index(inputs[0].shape(), i));
        let (q, dequant) = self.factors(a);
        let x = f32_at(&inputs[0], self.from, i);
        match self.scale_op {
            ScaleOp::Multiply => x * q,
            ScaleOp::Divide => x / dequant,
            ScaleOp::Reciprocal => x * clamp(1.0 / dequant),
        }
    }
}

/// An infinite factor becomes the largest f32 of its sign.
fn clamp(factor: f32) -> f32 {
    if factor.is_infinite() { f32::MAX.copysign(factor) } else { factor }
}

impl Operation for DeviceScaledCast {
    const INPUTS: &'static [&'static str] = &["x", "a", "random"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        check_f32_source(inputs, self.from)?;
        if self.to.max_exponent() > F32.max_exponent() {
            return Err(
                inputs.parameter_error("to", format!("is {}, whose largest value is no f32", self.to))
            );
        }
        check_random(inputs, 2, self.rounding)?;
        let shape = inputs.dtype(0, self.from)?;
        self.granularity.check(inputs, 0, 1)?;
        Ok(vec![TensorType::new(self.to, shape), TensorType::new(F32, inputs.shape(1))])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let policy = self.policy();
        let ty = TensorType::new(self.to, inputs[0].shape());
        let codes = match (path, self.conversion()) {
            (Path::Simd(simd), Some(conversion)) => {
                converted(&conversion, simd, inputs, Some(&self.scale(inputs)), ty)?
            }
            _ => Tensor::from_fn(ty, path, |i| {
                self.to.encode(arithmetic(self.scaled(inputs, i)), &policy, random_bits(inputs, &policy, i))
            })?,
        };
        let dequant = Tensor::from_fn(inputs[1].ty().clone(), path, |i| {
            f32_bits(self.factors(f32_at(&inputs[1], F32, i)).1)
        })?;
        Ok(vec![codes, dequant])
    }

    fn has_fast_path(&self) -> bool {
        self.conversion().is_some()
    }

    fn exact(&self, inputs: &[Tensor], output: usize, index: usize) -> Option<f64> {
        (output == 0).then(|| self.scaled(inputs, index).into())
    }

    fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
        if output == 1 {
            return vec![(1, index)];
        }
        scaled_sources(inputs, self.granularity, index)
    }
}
