//! `mx_dequantize`: blocks of narrow floats back to wide ones.
//!
//! `y[i] = codes[i] * scales[i / block]`, an exact product rounded once to `to` as IEEE 754
//! converts: a product beyond the largest value is infinite, subnormal results are kept. For NVFP4
//! with the tensor's scale `t`, by `order`: `(code * scale) * t`, where the first product is
//! exact, or `code * (scale * t)`, where the inner one is rounded to f32. The last product is rounded once to `to`
//! (`output: direct`), or to f32 and then to `to` (`via_f32`); without a tensor's scale the product is
//! exact in f32 or overflows, so that both are the same.
//!
//! E8M0 0xff and UE4M3 0x7f are NaN and make the block NaN; E8M0 0 is 2^-127. NaN is canonical; an
//! infinite E5M2 keeps its sign.
//!
//! Inputs `codes [..., K]`, or `u8 [..., K / 2]` if `packed`, `scales [..., K / block]`, and
//! `tensor_scale` (f32, `[]` or `[1]`; NVFP4 alone). Output `[..., K]`. K that is no multiple of the
//! block is an error.
//!
//! Sources: OCP MX 1.0, 5.4.1; `scales_first` is torchao's order, `codes_first` that of a tensor's
//! scale applied to finished blocks, as in a product's alpha.

use super::mx_quantize::{check_packed, check_tensor_scale, tensor_scale, with_last};
use super::{Inputs, Operation, SignatureError};
use crate::block::mx::{self, Layout, MxFormat};
use crate::format::{BF16, F16, F32, Format, Policy, Value};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Blocks of narrow floats back to wide ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MxDequantize {
    /// Format of the blocks.
    pub format: MxFormat,
    /// Format of the result: f32, f16 or bf16.
    pub to: Format,
    /// Whether a byte has two codes, the even index in the low nibble; for E2M1.
    #[serde(default)]
    pub packed: bool,
    /// Which product comes first; for NVFP4.
    #[serde(default)]
    pub order: MxOrder,
    /// How the last product is rounded to `to`.
    #[serde(default)]
    pub output: MxOutput,
}

/// Which product of NVFP4's dequantization comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MxOrder {
    /// `(code * scale) * t`: one rounding.
    #[default]
    CodesFirst,
    /// `code * f32(scale * t)`: two.
    ScalesFirst,
}

/// How a product is rounded to the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MxOutput {
    /// Once.
    #[default]
    Direct,
    /// To f32 first.
    ViaF32,
}

impl MxDequantize {
    /// With every other parameter at its default.
    #[must_use]
    pub fn new(format: MxFormat, to: Format) -> Self {
        Self { format, to, packed: false, order: MxOrder::default(), output: MxOutput::default() }
    }

    /// The exact last product.
    fn product(&self, code: u64, scale: u64, tensor_scale: f32) -> Value {
        let Layout { element, scale: format, tensor_scale: has_tensor_scale, .. } = self.format.layout();
        if has_tensor_scale {
            // No product has more than 2 + 4 + 24 significant bits: f64 is exact.
            let (code, scale, t) = (element.to_f64(code), format.to_f64(scale), f64::from(tensor_scale));
            let product = match self.order {
                MxOrder::CodesFirst => code * scale * t,
                MxOrder::ScalesFirst => code * f64::from((scale * t) as f32),
            };
            return if product.is_nan() { Value::Nan { negative: false } } else { product.into() };
        }
        match (element.decode(code), format.decode(scale)) {
            (Value::Finite { negative, significand, exponent }, Value::Finite { exponent: e, .. }) => {
                Value::Finite { negative, significand, exponent: exponent + e }
            }
            (infinite @ Value::Infinite { .. }, Value::Finite { .. }) => infinite,
            _ => Value::Nan { negative: false },
        }
    }

    fn product_at(&self, inputs: &[Tensor], i: usize) -> Value {
        let scale = inputs[1].code(i / self.format.layout().block);
        self.product(mx::code(&inputs[0], self.packed, i), scale, tensor_scale(inputs, self.format, 2))
    }

    fn rounded(&self, product: Value) -> u64 {
        let product = match self.output {
            MxOutput::Direct => product,
            MxOutput::ViaF32 => F32.decode(F32.encode(product, &Policy::IEEE, 0)),
        };
        self.to.encode(product, &Policy::IEEE, 0)
    }
}

impl Operation for MxDequantize {
    const INPUTS: &'static [&'static str] = &["codes", "scales", "tensor_scale"];

    fn input_names(&self) -> Vec<&'static str> {
        Self::INPUTS[..2 + usize::from(self.format.layout().tensor_scale)].to_vec()
    }

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        let Layout { element, scale, block, tensor_scale } = self.format.layout();
        if ![F32, F16, BF16].contains(&self.to) {
            return Err(inputs.parameter_error("to", format!("is {}, not f32, f16 or bf16", self.to)));
        }
        if !tensor_scale && self.order != MxOrder::default() {
            return Err(inputs.parameter_error("order", "is for nvfp4, which has two scales"));
        }
        check_packed(inputs, self.format, self.packed)?;
        inputs.count(2 + usize::from(tensor_scale))?;
        let shape = inputs.dtype(0, mx::dtype(element, self.packed))?;
        let per_unit = 1 + usize::from(self.packed);
        let units = shape.last().copied().filter(|units| units % (block / per_unit) == 0);
        let units = units.ok_or_else(|| {
            let unit = if self.packed { "[..., K / 2]" } else { "[..., K]" };
            inputs.shape_error(0, format!("{unit} with K a multiple of {block}"))
        })?;
        inputs.exactly(1, scale, &[&with_last(shape, units / (block / per_unit))])?;
        check_tensor_scale(inputs, self.format, 2)?;
        let k = units
            .checked_mul(per_unit)
            .ok_or_else(|| TensorError::TooLarge { dtype: self.to.into(), shape: shape.to_vec() })?;
        Ok(vec![TensorType::new(self.to, with_last(shape, k))])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let units = inputs[0].shape().last().copied().unwrap_or_default();
        let k = units * (1 + usize::from(self.packed));
        let ty = TensorType::new(self.to, with_last(inputs[0].shape(), k));
        Ok(vec![Tensor::from_fn(ty, path, |i| self.rounded(self.product_at(inputs, i)))?])
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        Some(self.product_at(inputs, index).to_f64())
    }

    fn sources(&self, _: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let Layout { block, tensor_scale, .. } = self.format.layout();
        let code = if self.packed { index / 2 } else { index };
        [(0, code), (1, index / block)].into_iter().chain(tensor_scale.then_some((2, 0))).collect()
    }
}
