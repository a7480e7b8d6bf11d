//! `gemm`: a matrix product.
//!
//! `y = scale_out * (alpha * scale_a * scale_b * (op(a) * op(b)) + beta * c + bias)`
//!
//! - `a` is `[M, K]`, or `[K, M]` with `transpose_a`; `b` is `[K, N]`, or `[N, K]` with
//!   `transpose_b`; all may have a batch in front. `c` and `y` are `[M, N]`, `bias` is `[N]`.
//! - Scales are f32, of shape `[]` or `[1]`, or one per row of `op(a)` (`[M]`) and column of `op(b)`
//!   (`[N]`). `alpha` and `beta` are f32 bits. Where `beta` is zero, `c` is not read.
//! - M, N, K and the batch may be 0; an empty sum is `+0`.
//!
//! What is right depends on `accumulate`:
//!
//! - left out: the **exact** value of the formula on the operands as they are, rounded once
//!   to the output. It judges any implementation, by a criterion with a bound. Zero is
//!   `+0` but for the sign that alpha and scales give it.
//! - given: the bits that this order of accumulation gives. `operands` says what a and b are
//!   converted to first. The result of the accumulation goes through the **epilogue**, in f32:
//!   1. `f = (alpha * scale_a) * scale_b`, each product rounded to nearest even;
//!   2. `t = f * acc`, or with a `beta` that is not zero `t = fma(f, acc, beta * c)`;
//!   3. `t = t + bias` and `t = t * scale_out` where there are such;
//!   4. one rounding to the output's format.
//!
//!   That is what cuBLASLt's kernels for sm_90 do (measured); [`EpilogueOrder`] has others.
//!
//! Outputs of 8 bits saturate, infinite results included; others overflow to infinity. NaN is the
//! canonical one.
//! `compute` and `fast_accumulation` do not change the exact value: they say what arithmetic
//! is asked of an implementation, and so how far it may be off.
//!
//! Errors name the input whose shape or format does not fit, or the parameter: formats that are
//! no operands or outputs, a beta without c, conversions without an order of accumulation.
//!
//! Source: the formula is that of BLAS `gemm` with the scales of cuBLASLt's FP8 products; orders
//! and epilogues are measured, see [`Accumulation`].

mod epilogue;
mod exact;
mod fast;
mod geometry;
mod short;

pub use geometry::Geometry;

use super::{Inputs, Operation, SignatureError};
use crate::accumulate::{Accumulation, Operand};
use crate::fast::Plan;
use crate::format::{BF16, E4M3FN, E5M2, F16, F32, F64, Format, Policy, Rounding, TF32, Value};
use crate::{Path, Tensor, TensorError, TensorType};
use epilogue::{Epilogue, to_f32};
use fast::Fast;
pub(super) use fast::widened;
use rayon::prelude::*;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// A matrix product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gemm {
    /// Format of a.
    pub a: Format,
    /// Format of b.
    pub b: Format,
    /// Format of the result.
    pub out: Format,
    /// a is stored as `[K, M]`.
    #[serde(default)]
    pub transpose_a: bool,
    /// b is stored as `[N, K]`.
    #[serde(default)]
    pub transpose_b: bool,
    /// What an implementation computes in.
    #[serde(default)]
    pub compute: Compute,
    /// FP8 only: sums may stay in the tensor core's short accumulator over all of K.
    #[serde(default)]
    pub fast_accumulation: bool,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
    /// With `accumulate`: what the operands are converted to first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
    /// With `accumulate`: the order of the steps after it.
    #[serde(default)]
    pub epilogue: EpilogueOrder,
    /// Factor of the product.
    #[serde(default = "Bits32::one")]
    pub alpha: Bits32,
    /// Factor of c.
    #[serde(default)]
    pub beta: Bits32,
    /// Format of the input c, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c: Option<Format>,
    /// Whether there is a scale of a.
    #[serde(default)]
    pub scale_a: GemmScale,
    /// Whether there is a scale of b.
    #[serde(default)]
    pub scale_b: GemmScale,
    /// Whether there is a scale of the output.
    #[serde(default)]
    pub scale_out: bool,
    /// Format of the input bias, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Format>,
}

/// What an implementation computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// Products exact or rounded to f32, sums in f32; tensor cores for operands of 16 and 8
    /// bits.
    #[default]
    F32,
    /// f32 operands rounded to TF32.
    Tf32,
    /// f16 operands with f16 sums.
    F16,
}

impl Compute {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::F16];
}

/// Whether there is a scale, and for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GemmScale {
    /// There is none.
    #[default]
    None,
    /// One.
    Tensor,
    /// One per row of `op(a)`, or column of `op(b)`.
    Row,
}

/// In which order the epilogue multiplies and adds; all of them measured in kernels of cuBLAS
/// and cuBLASLt on an H200.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EpilogueOrder {
    /// `fma(f, acc, beta * c)`, then the bias.
    #[default]
    FusedProduct,
    /// `fma(beta, c, f * acc)`, then the bias: after the reduction of split-K.
    FusedAddend,
    /// `fma(f, acc, bias)` where there is no c; else as `fused_product`.
    FusedBias,
    /// `f * acc` rounded to the output's format, then c added in f32 and rounded again:
    /// beta is 1.
    RoundedProduct,
}

/// A conversion of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operands {
    /// The format.
    pub to: Format,
    /// How they are rounded to it.
    #[serde(default)]
    pub rounding: Rounding,
}

/// An f32 parameter, written as its bits in hex: `"0x3f800000"`.
#[derive(Clone, Copy, Default)]
pub struct Bits32(pub f32);

impl Bits32 {
    pub(super) fn one() -> Self {
        Self(1.0)
    }
}

impl PartialEq for Bits32 {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl fmt::Debug for Bits32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:08x})", self.0, self.0.to_bits())
    }
}

impl Serialize for Bits32 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("0x{:08x}", self.0.to_bits()))
    }
}

impl<'de> Deserialize<'de> for Bits32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bits = crate::DType::from(F32).parse_hex(&text).map_err(de::Error::custom)?;
        Ok(Self(f32::from_bits(bits as u32)))
    }
}

impl JsonSchema for Bits32 {
    fn schema_name() -> Cow<'static, str> {
        "Bits32".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^0x[0-9a-fA-F]{8}$" })
    }
}

/// Formats of operands.
pub const OPERANDS: [Format; 6] = [F32, TF32, F16, BF16, E4M3FN, E5M2];

impl Gemm {
    /// A plain product of row-major operands into that output.
    #[must_use]
    pub fn new(a: Format, b: Format, out: Format) -> Self {
        Self {
            a,
            b,
            out,
            transpose_a: false,
            transpose_b: false,
            compute: Compute::F32,
            fast_accumulation: false,
            accumulate: None,
            operands: None,
            epilogue: EpilogueOrder::default(),
            alpha: Bits32::one(),
            beta: Bits32::default(),
            c: None,
            scale_a: GemmScale::None,
            scale_b: GemmScale::None,
            scale_out: false,
            bias: None,
        }
    }

    /// The same with another order of accumulation.
    #[must_use]
    pub fn accumulated(&self, operands: Option<Operands>, accumulate: Accumulation) -> Self {
        Self { accumulate: Some(accumulate), operands, ..self.clone() }
    }

    /// Whether c counts.
    #[must_use]
    pub fn reads_c(&self) -> bool {
        self.c.is_some() && self.beta.0 != 0.0
    }

    /// Position of an input among those given.
    fn position(&self, name: &str) -> Option<usize> {
        self.input_names().iter().position(|own| *own == name)
    }

    /// The input of that name, if these parameters have it.
    #[must_use]
    pub fn input<'a>(&self, inputs: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
        self.position(name).map(|i| &inputs[i])
    }

    /// How the output is rounded.
    #[must_use]
    pub fn policy(&self) -> Policy {
        if self.out.storage_bits == 8 { Policy::default() } else { Policy::IEEE }
    }

    /// The output elements at these row-major positions. On SIMD registers each is a product
    /// of its own, of one row and one column.
    ///
    /// # Panics
    /// If the inputs do not fit the signature or a position is outside the output.
    #[must_use]
    pub fn at(&self, inputs: &[Tensor], positions: &[usize], path: Path) -> Vec<u64> {
        if positions.is_empty() {
            return Vec::new();
        }
        if let Path::Simd(simd) = path
            && let Some(elements) = Fast::new(self, inputs, simd).at(positions)
        {
            return elements;
        }
        let geometry = Geometry::of(self, inputs);
        match &self.accumulate {
            None => {
                let exact = |&position: &usize| {
                    let value = exact::value(self, inputs, &geometry, position).value();
                    self.out.encode(value, &self.policy(), 0)
                };
                positions.par_iter().map(exact).collect()
            }
            Some(accumulate) => {
                let epilogue = Epilogue::of(self, inputs, &geometry);
                let element = |&position: &usize| {
                    let (a, b) =
                        (self.row(inputs, &geometry, position), self.column(inputs, &geometry, position));
                    let sum = accumulate.format().decode(accumulate.dot(&a, &b));
                    epilogue.apply(to_f32(sum), position)
                };
                positions.par_iter().map(element).collect()
            }
        }
    }

    /// The exact value of an output element before it is rounded.
    ///
    /// # Panics
    /// If the inputs do not fit the signature or the position is outside the output.
    #[must_use]
    pub fn exact_value(&self, inputs: &[Tensor], position: usize) -> crate::Exact {
        exact::value(self, inputs, &Geometry::of(self, inputs), position)
    }

    /// The operands of an output element, converted as `operands` says.
    fn row(&self, inputs: &[Tensor], geometry: &Geometry, position: usize) -> Vec<Operand> {
        (0..geometry.k).map(|k| self.operand(self.a, inputs[0].code(geometry.a(position, k)))).collect()
    }

    fn column(&self, inputs: &[Tensor], geometry: &Geometry, position: usize) -> Vec<Operand> {
        (0..geometry.k).map(|k| self.operand(self.b, inputs[1].code(geometry.b(position, k)))).collect()
    }

    fn operand(&self, format: Format, code: u64) -> Operand {
        match self.operands {
            None => Operand::of(format, code),
            Some(Operands { to, rounding }) => {
                let policy = Policy { rounding, ..Policy::IEEE };
                Operand::of(to, to.encode(format.decode(code), &policy, 0))
            }
        }
    }

    fn check(&self, inputs: &Inputs<'_>) -> Result<(), SignatureError> {
        for (field, format) in [("a", self.a), ("b", self.b)] {
            if !OPERANDS.contains(&format) {
                let names = OPERANDS.map(|format| format.name).join(", ");
                return Err(inputs.parameter_error(field, format!("{} is none of {names}", format.name)));
            }
        }
        for (field, format) in [("out", Some(self.out)), ("c", self.c), ("bias", self.bias)] {
            let outputs = [F32, F16, BF16, E4M3FN, E5M2];
            if format.is_some_and(|format| !outputs.contains(&format)) {
                let names = outputs.map(|format| format.name).join(", ");
                return Err(inputs.parameter_error(field, format!("is none of {names}")));
            }
        }
        if self.beta.0 != 0.0 && self.c.is_none() {
            return Err(inputs.parameter_error("beta", "is not zero, and there is no input c to multiply"));
        }
        if self.operands.is_some() && self.accumulate.is_none() {
            return Err(inputs.parameter_error("operands", "goes with `accumulate`"));
        }
        let is_converted_to_f64 = self.operands.is_some_and(|operands| operands.to == F64);
        if is_converted_to_f64 || self.operands.is_some_and(|it| it.rounding == Rounding::Stochastic) {
            return Err(
                inputs.parameter_error("operands", "are converted to any format but f64, and not at random")
            );
        }
        let f32s = [self.a, self.b].iter().all(|format| [F32, TF32].contains(format));
        if self.compute == Compute::Tf32 && !f32s {
            return Err(inputs.parameter_error("compute", "tf32 is for operands in f32"));
        }
        if self.compute == Compute::F16 && [self.a, self.b] != [F16, F16] {
            return Err(inputs.parameter_error("compute", "f16 is for operands in f16"));
        }
        if let Some(accumulate) = &self.accumulate {
            accumulate.check().map_err(|why| inputs.parameter_error("accumulate", why))?;
        }
        Ok(())
    }
}

impl Operation for Gemm {
    const INPUTS: &'static [&'static str] = &["a", "b", "c", "scale_a", "scale_b", "scale_out", "bias"];

    fn input_names(&self) -> Vec<&'static str> {
        let is_there = [
            true,
            true,
            self.c.is_some(),
            self.scale_a != GemmScale::None,
            self.scale_b != GemmScale::None,
            self.scale_out,
            self.bias.is_some(),
        ];
        Self::INPUTS.iter().zip(is_there).filter_map(|(&name, is_there)| is_there.then_some(name)).collect()
    }

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        self.check(inputs)?;
        inputs.count(self.input_names().len())?;
        let (a, b) = (inputs.dtype(0, self.a)?, inputs.dtype(1, self.b)?);
        let flipped = |shape: &[usize], transpose: bool| match *shape {
            [rows, columns] => Some((None, if transpose { (columns, rows) } else { (rows, columns) })),
            [batch, rows, columns] => {
                Some((Some(batch), if transpose { (columns, rows) } else { (rows, columns) }))
            }
            _ => None,
        };
        let expected = |transpose, names: [&str; 2]| {
            let [first, second] = if transpose { [names[1], names[0]] } else { names };
            format!("[{first}, {second}], or with a batch in front")
        };
        let Some((batch, (m, k))) = flipped(a, self.transpose_a) else {
            return Err(inputs.shape_error(0, expected(self.transpose_a, ["M", "K"])));
        };
        let Some((own_batch, (own_k, n))) = flipped(b, self.transpose_b) else {
            return Err(inputs.shape_error(1, expected(self.transpose_b, ["K", "N"])));
        };
        if own_batch != batch || own_k != k {
            let batch = batch.map_or_else(String::new, |batch| format!("{batch}, "));
            let shape =
                if self.transpose_b { format!("[{batch}N, {k}]") } else { format!("[{batch}{k}, N]") };
            return Err(inputs.shape_error(1, shape));
        }
        let shape: Vec<_> = batch.into_iter().chain([m, n]).collect();
        let scale = |scale: GemmScale, name: &str, extent: usize| match (scale, self.position(name)) {
            (GemmScale::Tensor, Some(i)) => inputs.exactly(i, F32, &[&[], &[1]]),
            (GemmScale::Row, Some(i)) => inputs.exactly(i, F32, &[&[extent]]),
            _ => Ok(()),
        };
        scale(self.scale_a, "scale_a", m)?;
        scale(self.scale_b, "scale_b", n)?;
        if let (Some(c), Some(i)) = (self.c, self.position("c")) {
            inputs.exactly(i, c, &[&shape])?;
        }
        if let Some(i) = self.position("scale_out") {
            inputs.exactly(i, F32, &[&[], &[1]])?;
        }
        if let (Some(bias), Some(i)) = (self.bias, self.position("bias")) {
            inputs.exactly(i, bias, &[&[n]])?;
        }
        Ok(vec![TensorType::new(self.out, shape)])
    }

    fn has_fast_path(&self) -> bool {
        self.accumulate.as_ref().is_none_or(Plan::exists)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let geometry = Geometry::of(self, inputs);
        let ty = TensorType::new(self.out, geometry.output_shape());
        // Without outputs other extents may be anything.
        if ty.elements()? == 0 {
            return Ok(vec![Tensor::from_bytes(ty, Vec::new())?]);
        }
        if let Path::Simd(simd) = path
            && let Some(y) = Fast::new(self, inputs, simd).evaluate()?
        {
            return Ok(vec![y]);
        }
        let Some(accumulate) = &self.accumulate else {
            let y = Tensor::from_fn(ty, path, |i| {
                self.out.encode(exact::value(self, inputs, &geometry, i).value(), &self.policy(), 0)
            })?;
            return Ok(vec![y]);
        };
        let epilogue = Epilogue::of(self, inputs, &geometry);
        // Every row and column once, as they take part in many elements.
        let (rows, columns) = (geometry.batch * geometry.m, geometry.batch * geometry.n);
        let rows: Vec<_> =
            (0..rows).map(|row| self.row(inputs, &geometry, geometry.first_of_row(row))).collect();
        let columns: Vec<_> = (0..columns)
            .map(|column| self.column(inputs, &geometry, geometry.first_of_column(column)))
            .collect();
        let y = Tensor::from_fn(ty, path, |i| {
            let (batch, m, n) = geometry.coordinates(i);
            let (a, b) = (&rows[batch * geometry.m + m], &columns[batch * geometry.n + n]);
            epilogue.apply(to_f32(accumulate.format().decode(accumulate.dot(a, b))), i)
        })?;
        Ok(vec![y])
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let geometry = Geometry::of(self, inputs);
        let (_, m, n) = geometry.coordinates(index);
        // The first products stand for all of them.
        let products =
            (0..geometry.k.min(4)).flat_map(|k| [(0, geometry.a(index, k)), (1, geometry.b(index, k))]);
        let others = self.input_names().into_iter().enumerate().skip(2).map(|(i, name)| match name {
            "c" => (i, index),
            "scale_a" if self.scale_a == GemmScale::Row => (i, m),
            "scale_b" if self.scale_b == GemmScale::Row => (i, n),
            "bias" => (i, n),
            _ => (i, 0),
        });
        products.chain(others).collect()
    }
}

/// The value of an element of an input of one value or several.
fn scale_at(tensor: Option<&Tensor>, scale: GemmScale, index: usize) -> Value {
    match (tensor, scale) {
        (Some(tensor), GemmScale::Row) => F32.decode(tensor.code(index)),
        (Some(tensor), GemmScale::Tensor) => F32.decode(tensor.code(0)),
        _ => Value::from(1f32),
    }
}
