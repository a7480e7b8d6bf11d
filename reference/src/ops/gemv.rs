//! `gemv`: a matrix of GGML blocks times a vector.
//!
//! `y[n] = sum over k of w[n, k] * x[k]` with `w` the `u8[N, K / values, bytes]` of blocks that
//! [`BlockFormat`] defines, and y f32 `[N]`. `x` is f32 `[K]`, or blocks of 8-bit integers: Q8_0, Q8_1
//! or Q8_K, `u8[K / values, bytes]`, whose values are `d * q`. The stored sums of Q8_1 and Q8_K are
//! never read, so that large activations, whose sum is beyond f16, give finite results.
//!
//! What is right depends on `accumulate`:
//!
//! - left out: the **exact** sum of the real products, rounded once. It judges any implementation, by
//!   a criterion with a bound. An empty or zero sum is `+0`.
//! - given: the bits that this order gives, in f32.
//!   - With f32 activations the products are those of `w[n, k]` rounded to f32, as `dequantize` gives
//!     it, and `x[k]`, in ascending k.
//!   - With 8-bit activations, 32 values at a time make one product, or two where the weights have
//!     mins. Integer sums come first, then
//!     1. `(d8 * d) * isum` with `isum = sum over groups of scale * sum of quant * q8`,
//!     2. `(d8 * m) * imin` with `imin = sum over groups of min * sum of q8`,
//!
//!     where `d8 * d` and `d8 * m` are rounded to f32 (exact for factors in f16) and the integers are
//!     at most 2^24 in magnitude. These products, in ascending k, the second after the first, are
//!     what `accumulate` adds up; both of 32 values are neighbours, so a run of interleaved parts
//!     that keeps them together has 2.
//!
//! The order of this project's kernels is [`warp_order`]: a warp has a row, lane l the values k with
//! `k % 32 = l`, or every 32nd run of 32 values; it adds by `fma` in ascending order, and the lanes
//! are added in halves (`__shfl_xor_sync` by 16, 8, 4, 2, 1).
//!
//! With Q4_K weights and f32 activations this is the operation that engines call `q4k_matvec`.
//!
//! Errors: K that is no multiple of both blocks' values is refused, never cut off; weights and
//! activations of different K; shapes that are no blocks.
//!
//! Source: the sums of ggml's `ggml_vec_dot_*`; the orders are this project's own.

use super::dequantize::blocks;
use super::{Inputs, Operation, SignatureError};
use crate::accumulate::{Accumulation, Operand, Reduce, Split, Sum};
use crate::block::{BlockFormat, Unpacked};
use crate::fast::Vectors;
use crate::format::{F32, Policy, Value};
use crate::{DType, Exact, Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A matrix of GGML blocks times a vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gemv {
    /// Format of the weights.
    pub weights: BlockFormat,
    /// What the activations are.
    pub activations: Activations,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
}

/// What activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// f32.
    F32,
    /// Blocks of Q8_0.
    Q8_0,
    /// Blocks of Q8_1.
    Q8_1,
    /// Blocks of Q8_K.
    #[serde(rename = "q8_K")]
    Q8K,
}

impl Activations {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::F32, Self::Q8_0, Self::Q8_1, Self::Q8K];

    /// The format of the blocks, if they are blocks.
    #[must_use]
    pub const fn blocks(self) -> Option<BlockFormat> {
        match self {
            Self::F32 => None,
            Self::Q8_0 => Some(BlockFormat::Q8_0),
            Self::Q8_1 => Some(BlockFormat::Q8_1),
            Self::Q8K => Some(BlockFormat::Q8K),
        }
    }
}

/// Values whose integer products are added first.
pub const RUN: usize = 32;
/// Lanes of a warp.
pub const LANES: usize = 32;

/// The order of this project's kernels.
#[must_use]
pub fn warp_order(weights: BlockFormat, activations: Activations) -> Accumulation {
    let run = if activations != Activations::F32 && weights.has_mins() { 2 } else { 1 };
    let lanes = Sum::new(Split::Interleaved { parts: LANES, run }, Accumulation::Fma);
    Accumulation::Sum(Box::new(Sum { reduce: Reduce::Halves, ..lanes }))
}

impl Gemv {
    /// The exact product.
    #[must_use]
    pub fn new(weights: BlockFormat, activations: Activations) -> Self {
        Self { weights, activations, accumulate: None }
    }

    /// Checks weights `[N, ..]` and activations `[outer.., ..]`; returns N and the activations'
    /// outer dimensions.
    pub(super) fn check<'a>(&self, inputs: &Inputs<'a>) -> Result<(usize, &'a [usize]), SignatureError> {
        inputs.count(2)?;
        if let Some(accumulate) = &self.accumulate {
            accumulate.check().map_err(|why| inputs.parameter_error("accumulate", why))?;
        }
        let (outer, k) = blocks(inputs, 0, self.weights)?;
        let &[n] = outer else {
            let (values, bytes) = (self.weights.values(), self.weights.bytes());
            return Err(
                inputs.shape_error(0, format!("[N, K / {values}, {bytes}], blocks of {}", self.weights))
            );
        };
        let (outer, given) = match self.activations.blocks() {
            Some(format) => blocks(inputs, 1, format)?,
            None => match inputs.dtype(1, F32)? {
                [outer @ .., k] => (outer, *k),
                [] => return Err(inputs.shape_error(1, format!("[{k}], the K of w"))),
            },
        };
        if given == k {
            return Ok((n, outer));
        }
        let mut multiples = vec![self.weights];
        multiples.extend(self.activations.blocks());
        multiples.retain(|format| given % format.values() != 0 || k % format.values() != 0);
        let why = multiples.first().map_or_else(String::new, |format| {
            format!("; K must be a multiple of {}, the values of a block of {format}", format.values())
        });
        Err(inputs.shape_error(1, format!("K = {k}, that of w, and not {given}{why}")))
    }

    /// The output element of a row of weights and a vector, both taken apart.
    fn element(&self, w: &[Unpacked], x: &Vector) -> u64 {
        match (&self.accumulate, x) {
            (None, x) => F32.encode(exact(self.weights, w, x).value(), &Policy::IEEE, 0),
            (Some(accumulate), Vector::Numbers(x)) => {
                let w = values(self.weights, w).map(|w| Operand::of(F32, single(w))).collect::<Vec<_>>();
                in_f32(accumulate, &w, x)
            }
            (Some(accumulate), Vector::Blocks(format, x)) => {
                let (factors, integers): (Vec<_>, Vec<_>) =
                    integer_products(self.weights, w, *format, x).into_iter().unzip();
                in_f32(accumulate, &factors, &integers)
            }
        }
    }

    /// The products of all rows with all vectors: `y[m, n]`.
    pub(super) fn products(&self, inputs: &[Tensor], path: Path) -> Vec<u8> {
        let (n, m) = (inputs[0].shape()[0], self.vectors(&inputs[1]));
        if n * m == 0 {
            // Without a look at vectors, which may be long.
            return Vec::new();
        }
        let w = inputs[0].packed();
        let x = inputs[1].packed();
        let row_bytes = w.len().checked_div(n).unwrap_or(0);
        let vector_bytes = x.len().checked_div(m).unwrap_or(0);
        if let (true, Path::Simd(simd)) = (self.has_loop(), path) {
            let vectors = Vectors { x: &x, count: m };
            let row = |i: usize| vectors.times(simd, self.weights, &w[i * row_bytes..][..row_bytes]);
            let columns: Vec<_> = (0..n).into_par_iter().map(row).collect();
            return interleaved(m, &columns, |sum| if sum.is_nan() { NAN } else { sum.to_bits() });
        }
        let vector = |i: usize| Vector::of(self.activations, &x[i * vector_bytes..][..vector_bytes]);
        let vectors: Vec<_> = (0..m).map(vector).collect();
        let row = |i: usize| -> Vec<u64> {
            let bytes = &w[i * row_bytes..][..row_bytes];
            let row: Vec<_> =
                bytes.chunks_exact(self.weights.bytes()).map(|block| self.weights.unpack(block)).collect();
            vectors.iter().map(|x| self.element(&row, x)).collect()
        };
        let columns: Vec<_> = match path {
            Path::Definition => (0..n).map(row).collect(),
            Path::Parallel | Path::Simd(_) => (0..n).into_par_iter().map(row).collect(),
        };
        interleaved(m, &columns, |code| code as u32)
    }

    /// Whether there is a loop for these parameters.
    pub(super) fn has_loop(&self) -> bool {
        self.activations == Activations::F32
            && self.accumulate == Some(warp_order(self.weights, self.activations))
    }

    /// How many vectors there are.
    fn vectors(&self, x: &Tensor) -> usize {
        let inner = if self.activations.blocks().is_some() { 2 } else { 1 };
        x.shape()[..x.shape().len() - inner].iter().product()
    }

    /// The exact value of output element `[m, n]` before it is rounded.
    ///
    /// # Panics
    /// If the inputs do not fit the signature or there is no such element.
    #[must_use]
    pub fn exact_value(&self, inputs: &[Tensor], m: usize, n: usize) -> Exact {
        let (w, x) = self.operands(inputs, m, n);
        exact(self.weights, &w, &x)
    }

    /// A row of weights and a vector.
    fn operands(&self, inputs: &[Tensor], m: usize, n: usize) -> (Vec<Unpacked>, Vector) {
        let part = |tensor: &Tensor, parts: usize, i: usize| {
            let packed = tensor.packed();
            let bytes = packed.len() / parts;
            packed[i * bytes..][..bytes].to_vec()
        };
        let w = part(&inputs[0], inputs[0].shape()[0], n);
        let x = part(&inputs[1], self.vectors(&inputs[1]), m);
        let w = w.chunks_exact(self.weights.bytes()).map(|block| self.weights.unpack(block)).collect();
        (w, Vector::of(self.activations, &x))
    }
}

/// The canonical NaN.
const NAN: u32 = 0x7fff_ffff;

/// The elements `[m, n]` of columns, in bytes.
fn interleaved<T: Copy>(m: usize, columns: &[Vec<T>], bits: impl Fn(T) -> u32 + Copy) -> Vec<u8> {
    (0..m).flat_map(|i| columns.iter().flat_map(move |column| bits(column[i]).to_le_bytes())).collect()
}

/// A vector of activations.
enum Vector {
    /// Numbers.
    Numbers(Vec<Operand>),
    /// Blocks of integers with a factor each.
    Blocks(BlockFormat, Vec<Unpacked>),
}

impl Vector {
    fn of(activations: Activations, bytes: &[u8]) -> Self {
        match activations.blocks() {
            None => {
                let code =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
                Self::Numbers(bytes.chunks_exact(4).map(|bytes| Operand::of(F32, code(bytes))).collect())
            }
            Some(format) => {
                let blocks = bytes.chunks_exact(format.bytes()).map(|block| format.unpack(block));
                Self::Blocks(format, blocks.collect())
            }
        }
    }
}

/// The values of blocks.
fn values(format: BlockFormat, blocks: &[Unpacked]) -> impl Iterator<Item = f64> {
    blocks.iter().flat_map(move |block| (0..format.values()).map(|j| block.value(j)))
}

/// The exact sum.
fn exact(weights: BlockFormat, w: &[Unpacked], x: &Vector) -> Exact {
    let mut sum = Exact::default();
    // An accumulator begins at +0, so products of -0 leave it there.
    sum.add_product(Value::from(0f32), Value::from(0f32));
    let w = values(weights, w).map(Value::from);
    match x {
        Vector::Numbers(x) => w.zip(x).for_each(|(w, x)| sum.add_product(w, x.term.value)),
        Vector::Blocks(format, x) => {
            w.zip(values(*format, x)).for_each(|(w, x)| sum.add_product(w, Value::from(x)));
        }
    }
    sum
}

/// The products of every [`RUN`] values: f32 factors and integers.
fn integer_products(
    weights: BlockFormat,
    w: &[Unpacked],
    activations: BlockFormat,
    x: &[Unpacked],
) -> Vec<(Operand, Operand)> {
    let (per_w, per_x) = (weights.values() / RUN, activations.values() / RUN);
    let runs = w.len() * per_w;
    let product = |a: f64, b: f64, integer: i32| {
        let factor = Operand::of(F32, single(a * b));
        (factor, Operand::of(F32, single(f64::from(integer))))
    };
    let mut products = Vec::with_capacity(2 * runs);
    for run in 0..runs {
        let (w, x) = (&w[run / per_w], &x[run / per_x]);
        let (first, first_x) = (run % per_w * RUN, run % per_x * RUN);
        let (mut isum, mut imin) = (0, 0);
        for j in 0..RUN {
            let (quant, q8) = (i32::from(w.quants[first + j]), i32::from(x.quants[first_x + j]));
            let group = (first + j) / w.group;
            isum += i32::from(w.scales[group]) * quant * q8;
            imin += i32::from(w.mins[group]) * q8;
        }
        products.push(product(x.d, w.d, isum));
        products.extend(w.m.map(|m| product(x.d, m, imin)));
    }
    products
}

/// The f32 nearest to a number.
fn single(value: f64) -> u64 {
    F32.encode(Value::from(value), &Policy::IEEE, 0)
}

/// The f32 that an order of accumulation gives.
fn in_f32(accumulate: &Accumulation, a: &[Operand], b: &[Operand]) -> u64 {
    let sum = accumulate.format().decode(accumulate.dot(a, b));
    F32.encode(sum, &Policy::IEEE, 0)
}

impl Operation for Gemv {
    const INPUTS: &'static [&'static str] = &["w", "x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        let (n, outer) = self.check(inputs)?;
        if outer.is_empty() {
            return Ok(vec![TensorType::new(F32, [n])]);
        }
        Err(inputs.shape_error(1, "one vector; several are for batched_gemv".to_owned()))
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let ty = TensorType::new(F32, &inputs[0].shape()[..1]);
        Ok(vec![Tensor::from_bytes(ty, self.products(inputs, path))?])
    }

    fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
        if input == 0 { Some(self.weights) } else { self.activations.blocks() }
    }

    fn has_fast_path(&self) -> bool {
        self.has_loop()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        // What is rounded is an exact sum only where no order is given.
        self.accumulate.is_none().then(|| self.exact_value(inputs, 0, index).to_f64())
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        sources(inputs, 0, 1, index)
    }
}

/// Elements of a row of weights and of a vector: their first block, or four numbers, stand for all.
pub(super) fn sources(inputs: &[Tensor], m: usize, vectors: usize, n: usize) -> Vec<(usize, usize)> {
    let rows = [(0, n, inputs[0].shape()[0]), (1, m, vectors)];
    let first = |(i, row, rows): (usize, usize, usize)| {
        let (tensor, len) = (&inputs[i], inputs[i].len() / rows);
        let count = match tensor.shape() {
            [.., bytes] if tensor.dtype() == DType::U8 => *bytes,
            _ => 4,
        };
        (row * len..row * len + len.min(count)).map(move |at| (i, at))
    };
    rows.into_iter().flat_map(first).collect()
}
