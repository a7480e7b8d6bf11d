//! `mx_quantize`: blocks of narrow floats that share a scale.
//!
//! Of `x [..., K]` every run of 32 elements (16 for NVFP4) of a row is a block. With `a` its
//! largest magnitude, what is NaN or infinite counting by `non_finite`:
//!
//! - E8M0 scales: `scale = 2^e` with `e` from `a` by `scale_rule`, held to -127 at least, and
//!   `codes[i] = encode(x[i] * 2^-e)`: the real quotient is exact and rounded once.
//! - NVFP4, with `t` the tensor's scale: `scale = encode((a / 6) / t)` and `f = scale * t`, each step
//!   rounded to f32, the scale to nearest even and saturated at 448; `codes[i] = encode(x[i] / f)`, or
//!   `encode(x[i] * (1 / f))` by `element_op`, each step rounded to f32. A factor `1 / f` that
//!   would be infinite is the largest f32 of its sign. Where `f` is 0 (of a block of zeros, or one so
//!   small that its scale underflows) the factor is 0: every element is a zero of its own sign
//!   (of the other where `f` is -0).
//!
//! A block of zeros has scale code 0 and zeros with their signs: 2^-127 as E8M0, and as UE4M3 the
//! number 0, if `t` is positive and finite. A block whose scale is too small for the format has code 0
//! too; under E8M0 its elements may still be more than 0.
//!
//! No `t` is refused. By `a / 6` in f32, which is 0 up to `a` = 3 * 2^-149, a finite block is:
//!
//! | t | `a / 6` is 0 | `a / 6` is above 0 |
//! |---|---|---|
//! | 0 | NaN: 0 / 0 | scale 448, `f` = 0: zeros of their own signs |
//! | -0 | NaN | scale 0, `f` = -0: zeros of the other signs |
//! | below 0, finite | scale 0, `f` = -0: zeros of the other signs | the same, since no scale is below 0 |
//! | Inf, -Inf | scale 0, but `f` = 0 * Inf: elements NaN | the same |
//! | NaN | NaN | NaN |
//!
//! An infinite `a`, which `saturate` makes, is above 0; over an infinite `t` it is NaN. Where `f` is
//! infinite, 448 times a large `t`, finite elements are zeros.
//!
//! A NaN scale makes every element of its block the code that encoding a NaN gives, the largest
//! finite value where the format has no NaN. Under any other scale NaN and infinities are encoded as
//! they are, by `nan` and `infinities`.
//!
//! Inputs `x` (f32, f16, bf16), `tensor_scale` (f32, `[]` or `[1]`; NVFP4 alone), and `random` with
//! stochastic rounding of elements. Outputs `codes [..., K]`, or `u8 [..., K / 2]` if `packed`,
//! and `scales [..., K / block]`. K that is no multiple of the block is an error.
//!
//! Sources: OCP MX 1.0, 6.3, for the quotient, for elements beyond the largest value, which keep
//! their sign and saturate, and for the rule `floor`; a NaN scale
//! makes the block NaN, and what a conversion does with NaN and infinities is left open there. torchao
//! and microxcaling give such a block a NaN scale; NVIDIA's kernels for NVFP4 give a block whose
//! scale is 0 the factor 0.

use super::encoding::{arithmetic, check_random, encoding_parameters, f32_at, random_bits};
use super::{Inputs, Operation, SignatureError};
use crate::block::mx::{self, Layout, MxFormat, ScaleRule};
use crate::format::{BF16, E8M0, F16, F32, Policy, Rounding, Value};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

encoding_parameters! {
    /// Blocks of narrow floats that share a scale.
    pub struct MxQuantize {
        /// Format of the source: f32, f16 or bf16.
        from,
        /// Format of the blocks.
        format: MxFormat,
        /// How a scale follows from the largest magnitude; for E8M0 scales.
        scale_rule: ScaleRule,
        /// What NaN and infinities do to their block.
        non_finite: NonFinite,
        /// How an element is scaled; for NVFP4.
        element_op: MxElementOp,
        /// Two codes per byte, the even index in the low nibble; for E2M1.
        packed: bool,
    }
}

/// What NaN and infinities do to their block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// The scale is NaN (E8M0 0xff, UE4M3 0x7f).
    #[default]
    NanScale,
    /// They count as absent: the scale is that of the finite elements.
    PerElement,
    /// A NaN counts as absent, an infinity as the largest magnitude: the scale is the largest
    /// (E8M0 0xfe, UE4M3 0x7e).
    Saturate,
}

/// How an element of NVFP4 is scaled: two operations that round differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MxElementOp {
    /// `x / f`, as torchao.
    #[default]
    Divide,
    /// `x * (1 / f)`, the reciprocal rounded to f32 first, as NVIDIA's kernels (which approximate
    /// it).
    Reciprocal,
}

impl MxQuantize {
    fn layout(&self) -> Layout {
        self.format.layout()
    }

    /// The largest magnitude of a block, NaN for one whose scale is to be NaN.
    fn amax(&self, x: &Tensor, block: usize) -> f32 {
        let extent = self.layout().block;
        let mut max = 0f32;
        for i in block * extent..(block + 1) * extent {
            let magnitude = f32_at(x, self.from, i).abs();
            match self.non_finite {
                NonFinite::NanScale if !magnitude.is_finite() => return f32::NAN,
                NonFinite::PerElement if !magnitude.is_finite() => {}
                NonFinite::Saturate if magnitude.is_nan() => {}
                _ => max = max.max(magnitude),
            }
        }
        max
    }

    /// The code of the scale of a block whose largest magnitude is `a`.
    fn scale(&self, a: f32, tensor_scale: f32) -> u64 {
        let Layout { element, scale, .. } = self.layout();
        if scale == E8M0 {
            return self.scale_rule.scale(a, element);
        }
        let largest = element.to_f64(element.max_finite()) as f32;
        scale.encode(arithmetic(a / largest / tensor_scale), &Policy::default(), 0)
    }

    /// What is encoded in place of `x` under a scale: the exact quotient, or what f32 makes of it.
    fn scaled(&self, x: Value, scale: u64, tensor_scale: f32) -> Value {
        let format = self.layout().scale;
        match (format.decode(scale), x) {
            (Value::Nan { .. }, _) => Value::Nan { negative: false },
            (_, Value::Nan { .. } | Value::Infinite { .. }) => x,
            (Value::Finite { exponent: e, .. }, Value::Finite { negative, significand, exponent })
                if format == E8M0 =>
            {
                Value::Finite { negative, significand, exponent: exponent - e }
            }
            (scale, x) => {
                // Both are exact in f32.
                let (scale, x) = (scale.to_f64() as f32, x.to_f64() as f32);
                let factor = scale * tensor_scale;
                arithmetic(match self.element_op {
                    _ if factor == 0.0 => x * factor,
                    MxElementOp::Divide => x / factor,
                    MxElementOp::Reciprocal => x * (1.0 / factor).clamp(f32::MIN, f32::MAX),
                })
            }
        }
    }

    fn scaled_at(&self, inputs: &[Tensor], scale: u64, i: usize) -> Value {
        self.scaled(self.from.decode(inputs[0].code(i)), scale, tensor_scale(inputs, self.format, 1))
    }
}

/// The tensor's scale, input `at`; 1 for formats that have none.
pub(super) fn tensor_scale(inputs: &[Tensor], format: MxFormat, at: usize) -> f32 {
    if format.layout().tensor_scale { f32_at(&inputs[at], F32, 0) } else { 1.0 }
}

/// Requires input `at` to be the tensor's scale, where the format has one.
pub(super) fn check_tensor_scale(
    inputs: &Inputs<'_>,
    format: MxFormat,
    at: usize,
) -> Result<(), SignatureError> {
    if format.layout().tensor_scale { inputs.exactly(at, F32, &[&[], &[1]]) } else { Ok(()) }
}

/// Refuses `packed` for elements that are no nibbles.
pub(super) fn check_packed(
    inputs: &Inputs<'_>,
    format: MxFormat,
    packed: bool,
) -> Result<(), SignatureError> {
    if !packed || format.layout().packs() {
        return Ok(());
    }
    let element = format.layout().element;
    Err(inputs.parameter_error("packed", format!("two codes of {element} do not fit into a byte")))
}

/// `shape` with its last extent `k`.
pub(super) fn with_last(shape: &[usize], k: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    shape
}

impl Operation for MxQuantize {
    const INPUTS: &'static [&'static str] = &["x", "tensor_scale", "random"];

    fn input_names(&self) -> Vec<&'static str> {
        let has_one = self.layout().tensor_scale;
        Self::INPUTS.iter().copied().filter(|name| has_one || *name != "tensor_scale").collect()
    }

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        let Layout { element, scale, block, tensor_scale } = self.layout();
        if ![F32, F16, BF16].contains(&self.from) {
            return Err(inputs.parameter_error("from", format!("is {}, not f32, f16 or bf16", self.from)));
        }
        if tensor_scale && self.scale_rule != ScaleRule::default() {
            let why = "is for scales that are powers of two; nvfp4 has one way to make its own";
            return Err(inputs.parameter_error("scale_rule", why));
        }
        if !tensor_scale && self.element_op != MxElementOp::default() {
            let why = "is for nvfp4; by a power of two the quotient is exact";
            return Err(inputs.parameter_error("element_op", why));
        }
        check_packed(inputs, self.format, self.packed)?;
        check_random(inputs, 1 + usize::from(tensor_scale), self.rounding)?;
        let shape = inputs.dtype(0, self.from)?;
        check_tensor_scale(inputs, self.format, 1)?;
        let k = shape.last().copied().filter(|k| k % block == 0);
        let k = k.ok_or_else(|| inputs.shape_error(0, format!("[..., K] with K a multiple of {block}")))?;
        let codes = with_last(shape, if self.packed { k / 2 } else { k });
        let scales = with_last(shape, k / block);
        Ok(vec![TensorType::new(mx::dtype(element, self.packed), codes), TensorType::new(scale, scales)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let Layout { element, scale, block, .. } = self.layout();
        let (x, policy) = (&inputs[0], self.policy());
        let tensor_scale = tensor_scale(inputs, self.format, 1);
        let k = x.shape().last().copied().unwrap_or_default();
        let scales = TensorType::new(scale, with_last(x.shape(), k / block));
        let scales = Tensor::from_fn(scales, path, |block| self.scale(self.amax(x, block), tensor_scale))?;
        let code = |i| {
            let scaled = self.scaled_at(inputs, scales.code(i / block), i);
            element.encode(scaled, &policy, random_bits(inputs, &policy, i))
        };
        let ty = |k| TensorType::new(mx::dtype(element, self.packed), with_last(x.shape(), k));
        let codes = if self.packed {
            Tensor::from_fn(ty(k / 2), path, |i| mx::packed(code(2 * i), code(2 * i + 1)))?
        } else {
            Tensor::from_fn(ty(k), path, code)?
        };
        Ok(vec![codes, scales])
    }

    fn exact(&self, inputs: &[Tensor], output: usize, index: usize) -> Option<f64> {
        if output != 0 || self.packed {
            return None;
        }
        let a = self.amax(&inputs[0], index / self.layout().block);
        let scale = self.scale(a, tensor_scale(inputs, self.format, 1));
        Some(self.scaled_at(inputs, scale, index).to_f64())
    }

    fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
        let Layout { block, tensor_scale, .. } = self.layout();
        let elements = match (output, self.packed) {
            (1, _) => index * block..(index + 1) * block,
            (_, true) => 2 * index..2 * index + 2,
            _ => index..index + 1,
        };
        let random = (output == 0 && self.rounding == Rounding::Stochastic).then(|| inputs.len() - 1);
        let words = random.into_iter().flat_map(|input| elements.clone().map(move |i| (input, i)));
        let scale = tensor_scale.then_some((1, 0));
        elements.clone().map(|i| (0, i)).chain(scale).chain(words).collect()
    }
}
