//! `prefill_linear`: activations times a matrix of GGML blocks, as engines multiply a prompt.
//!
//! `y[m, n] = sum over k of x[m, k] * w[n, k]` with `w` the `u8[N, K / values, bytes]` of blocks that
//! [`BlockFormat`] defines, x f32 `[M, K]` and y f32 `[M, N]`. `route` says which steps make it, each an
//! operation of its own with its own rounding:
//!
//! | route | steps |
//! |---|---|
//! | `dequantized` | `dequantize` w to f32; `gemm` of f32 |
//! | `f16` | `dequantize` w to f16, as `conversion` says; `cast` x to f16, overflow to infinity; `gemm` of f16 into f32 |
//! | `fp8_via_f16` | `dequantize` w to f32; `absmax` and `device_scaled_cast` to E4M3FN of w and of x; `gemm` into f16 with the `dequant` of w as a scale (alpha in device memory); `scaled_decode` by the `dequant` of x |
//! | `fp8` | the same with both scales in `gemm`, into f32 |
//! | `fused` | those of `dequantized`, for Q4_K, in one kernel without temporary values |
//! | `f16_tiles` | those of `f16`, in one kernel that decodes a tile at a time for the tensor core |
//!
//! So `fused` has the bits of `dequantized` in the same order of accumulation, and `f16_tiles` those of
//! `f16`.
//!
//! With `pad`, rows of zeros are added to x up to a multiple of 16, and the rows of y for them dropped.
//! They change nothing: a zero does not raise an absmax, and rows do not meet in a product.
//!
//! What is right depends on `accumulate`, as in [`gemm`](super::gemm), whose order it is: left out, the
//! product is the exact one of that step's operands, rounded once to that step's output, and the
//! steps after it follow on that; it judges any implementation by a criterion with a bound.
//!
//! In `fp8_via_f16` a sum beyond 65504, scaled by the weights' factor alone, is infinite in f16 and stays
//! so, though y itself may be far from f32's range. That is what the route gives; reports say so.
//!
//! Errors: K that is no multiple of a block's values; w and x of different K; `fused` of another
//! format than Q4_K; parameters of other routes.
//!
//! Source: the prefill paths of engines that read GGUF files; the steps are defined by their own files.

use super::dequantize::BlockConversion;
use super::gemv::{Activations, Gemv, sources};
use super::{Absmax, Cast, Dequantize, DeviceScaledCast, Gemm, GemmScale, ScaledDecode};
use super::{Inputs, Op, Operation, SignatureError};
use crate::accumulate::Accumulation;
use crate::block::BlockFormat;
use crate::fast::Plan;
use crate::format::{E4M3FN, F16, F32, Format, Policy, Value};
use crate::program::{Program, Step, fitting};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What M is padded to a multiple of.
pub const PADDED_ROWS: usize = 16;

/// Activations times a matrix of GGML blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefillLinear {
    /// Format of the weights.
    pub weights: BlockFormat,
    /// Which steps make the product.
    pub route: Route,
    /// Rows of zeros are added to x up to a multiple of 16.
    #[serde(default)]
    pub pad: bool,
    /// `f16` and `f16_tiles`: how often a weight is rounded.
    #[serde(default)]
    pub conversion: BlockConversion,
    /// FP8: sums may stay in the tensor core's short accumulator over all of K.
    #[serde(default)]
    pub fast_accumulation: bool,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
}

/// Which steps make a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Weights to f32, then a product of f32.
    Dequantized,
    /// Weights and activations to f16, then a product of f16 into f32.
    F16,
    /// Weights and activations to E4M3FN, a product into f16, then its scale.
    Fp8ViaF16,
    /// Weights and activations to E4M3FN, then a product with both scales into f32.
    Fp8,
    /// Blocks decoded inside of a product of f32.
    Fused,
    /// Blocks decoded to tiles of f16 inside of a product of a tensor core.
    F16Tiles,
}

impl Route {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Dequantized, Self::F16, Self::Fp8ViaF16, Self::Fp8, Self::Fused, Self::F16Tiles];

    /// Format of the operands of the product.
    #[must_use]
    pub const fn operands(self) -> Format {
        match self {
            Self::Dequantized | Self::Fused => F32,
            Self::F16 | Self::F16Tiles => F16,
            Self::Fp8ViaF16 | Self::Fp8 => E4M3FN,
        }
    }

    /// Whether blocks are decoded inside of the product.
    #[must_use]
    pub const fn decodes_inside(self) -> bool {
        matches!(self, Self::Fused | Self::F16Tiles)
    }
}

/// What there is when the product comes.
struct BeforeProduct {
    /// The values that it is of.
    operands: Vec<usize>,
    /// All values; `None` for those that are made later.
    values: Vec<Option<Tensor>>,
    /// The steps that follow on it.
    after: Vec<Step>,
}

impl PrefillLinear {
    /// The exact product, not padded.
    #[must_use]
    pub fn new(weights: BlockFormat, route: Route) -> Self {
        Self {
            weights,
            route,
            pad: false,
            conversion: BlockConversion::default(),
            fast_accumulation: false,
            accumulate: None,
        }
    }

    /// The product among the steps: of x, transposed w, and scales.
    #[must_use]
    pub fn gemm(&self) -> Gemm {
        let (operands, scale) = (self.route.operands(), GemmScale::Tensor);
        let (out, scale_a, scale_b) = match self.route {
            Route::Fp8ViaF16 => (F16, GemmScale::None, scale),
            Route::Fp8 => (F32, scale, scale),
            _ => (F32, GemmScale::None, GemmScale::None),
        };
        Gemm {
            transpose_b: true,
            scale_a,
            scale_b,
            fast_accumulation: self.fast_accumulation,
            accumulate: self.accumulate.clone(),
            ..Gemm::new(operands, operands, out)
        }
    }

    /// The product among the steps with its inputs for these w and x, without padding.
    ///
    /// # Panics
    /// If the inputs do not fit the signature.
    pub fn product(&self, inputs: &[Tensor], path: Path) -> Result<(Gemm, Vec<Tensor>), TensorError> {
        let BeforeProduct { operands, values, .. } = self.before_product(inputs, path)?;
        let made = |&value: &usize| values[value].clone().expect("steps stand after what they read");
        Ok((self.gemm(), operands.iter().map(made).collect()))
    }

    /// The scale that the product's result is multiplied by after it, where there is one.
    ///
    /// # Panics
    /// If the inputs do not fit the signature.
    pub fn scale_after(&self, inputs: &[Tensor], path: Path) -> Result<Option<f32>, TensorError> {
        let BeforeProduct { after, values, .. } = self.before_product(inputs, path)?;
        let scale = after.iter().find_map(|step| match step {
            Step::Call { op: Op::ScaledDecode(_), inputs, .. } => {
                Some(values[inputs[1]].as_ref().expect("x is scaled before the product"))
            }
            _ => None,
        });
        Ok(scale.map(|scale| f32::from_bits(scale.code(0) as u32)))
    }

    /// Runs the steps without padding as far as the product.
    fn before_product(&self, inputs: &[Tensor], path: Path) -> Result<BeforeProduct, TensorError> {
        let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
        let program = fitting(Self { pad: false, ..self.clone() }.steps(&types))?;
        let product = program.steps().iter().enumerate().find_map(|(at, step)| match step {
            Step::Call { op: Op::Gemm(_), inputs, .. } => Some((at, inputs.clone())),
            _ => None,
        });
        let (at, operands) = product.expect("every route has a product");
        let values = program.values(inputs, path, at)?;
        Ok(BeforeProduct { operands, values, after: program.steps()[at + 1..].to_vec() })
    }

    /// The steps for inputs that [`Self::check`] accepts.
    fn steps(&self, types: &[TensorType]) -> Result<Program, SignatureError> {
        let mut program = Program::new(types);
        let rows = types[1].shape.first().copied().unwrap_or(0);
        let padded = if self.pad { rows.next_multiple_of(PADDED_ROWS) } else { rows };
        let (w, x) = (0, program.rows(1, padded));
        let weights = |to| Dequantize { from: self.weights, to, conversion: self.conversion };
        let y = match self.route {
            Route::Dequantized | Route::Fused => {
                let w = program.one(weights(F32), &[w])?;
                program.one(self.gemm(), &[x, w])?
            }
            Route::F16 | Route::F16Tiles => {
                let w = program.one(weights(F16), &[w])?;
                let x = program.one(Cast::new(F32, F16).with_policy(Policy::IEEE), &[x])?;
                program.one(self.gemm(), &[x, w])?
            }
            Route::Fp8ViaF16 | Route::Fp8 => {
                let w = program.one(weights(F32), &[w])?;
                let [w, w_dequant] = scaled(&mut program, w)?;
                let [x, x_dequant] = scaled(&mut program, x)?;
                if self.route == Route::Fp8 {
                    program.one(self.gemm(), &[x, w, x_dequant, w_dequant])?
                } else {
                    let d = program.one(self.gemm(), &[x, w, w_dequant])?;
                    let decode = ScaledDecode { from: F16, granularity: Default::default() };
                    program.one(decode, &[d, x_dequant])?
                }
            }
        };
        let y = program.rows(y, rows);
        Ok(program.returning(&[y]))
    }

    fn check(&self, inputs: &Inputs<'_>) -> Result<(), SignatureError> {
        let is_f16 = self.route.operands() == F16;
        if self.conversion != BlockConversion::default() && !is_f16 {
            return Err(inputs.parameter_error("conversion", "is for weights that become f16"));
        }
        if self.fast_accumulation && self.route.operands() != E4M3FN {
            return Err(inputs.parameter_error("fast_accumulation", "is for products of FP8"));
        }
        if self.route == Route::Fused && self.weights != BlockFormat::Q4K {
            let why = format!("is q4_K with route `fused`, and not {}", self.weights);
            return Err(inputs.parameter_error("weights", why));
        }
        let blocks =
            Gemv { accumulate: self.accumulate.clone(), ..Gemv::new(self.weights, Activations::F32) };
        match blocks.check(inputs)? {
            (_, &[_]) => Ok(()),
            _ => Err(inputs.shape_error(1, "rows in one dimension: [M, K]".to_owned())),
        }
    }
}

/// The codes of a tensor by its absmax, and what they are multiplied by to read them.
fn scaled(program: &mut Program, x: usize) -> Result<[usize; 2], SignatureError> {
    let granularity = Default::default();
    let a = program.one(Absmax { from: F32, nan: Default::default(), granularity }, &[x])?;
    let made = program.call(DeviceScaledCast::new(F32, E4M3FN), &[x, a])?;
    Ok([made[0], made[1]])
}

impl Operation for PrefillLinear {
    const INPUTS: &'static [&'static str] = &["w", "x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        self.check(inputs)?;
        Ok(self.steps(inputs.types())?.output_types())
    }

    fn program(&self, inputs: &Inputs<'_>) -> Result<Option<Program>, SignatureError> {
        self.check(inputs)?;
        self.steps(inputs.types()).map(Some)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
        fitting(self.steps(&types))?.evaluate(inputs, path)
    }

    fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
        (input == 0).then_some(self.weights)
    }

    fn has_fast_path(&self) -> bool {
        self.accumulate.as_ref().is_none_or(Plan::exists)
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let n = inputs[0].shape()[0];
        sources(inputs, index / n, inputs[1].shape()[0], index % n)
    }

    fn notes(&self, inputs: &[Tensor], _: usize) -> Vec<(usize, String)> {
        if self.route != Route::Fp8ViaF16 {
            return Vec::new();
        }
        let path = Path::fastest();
        let Ok((gemm, operands)) = self.product(inputs, path) else { return Vec::new() };
        let Ok(d) = Operation::evaluate(&gemm, &operands, path) else { return Vec::new() };
        let note = |(i, code)| {
            // First the code: exact sums take long, and infinite codes are few.
            if !matches!(F16.decode(code), Value::Infinite { .. }) {
                return None;
            }
            let exact = gemm.exact_value(&operands, i);
            matches!(exact.value(), Value::Finite { .. }).then(|| {
                let exact = exact.to_f64();
                let text = "the sum in f16 overflows: exactly it is";
                (i, format!("{text} {exact:e}, and 65504 is the largest f16"))
            })
        };
        d[0].codes().enumerate().filter_map(note).collect()
    }
}
