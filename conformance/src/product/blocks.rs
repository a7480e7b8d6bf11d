//! A-priori bounds of products of GGML blocks, element by element.
//!
//! Weights are `d * s * q + m * min`, quants q less their format's offset o: `q = p - o` with p as
//! it is stored. Activations x are f32, or `d8 * q8`. With
//!
//! ```text
//! A = sum over k of (d * s * (p + o) + m * min) * x, every factor by its magnitude,
//! ```
//!
//! `abs(y - exact) <= g(T + 6) * A + half an ulp of y`, `g(n) = n * u / (1 - n * u)`, u = 2^-24.
//!
//! - T counts what is added: a product for each k, one more for its min and one for its offset,
//!   where they are not 0. In any order, an addend goes through at most T - 1 additions, whether
//!   blocks are decoded first, or `d * (sum of s * sum of p * x - o * sum of x)` and
//!   `m * sum of min * sum of x` are added up separately.
//! - 6 counts other roundings on the way of an addend, at most one each: the product of the factors
//!   (`d8 * d`, or d and the scale), that with the scale or the quant, x where it is decoded, the
//!   conversion of an integer sum, its product with the factors, and one of the min.
//! - Products that underflow are off by 2^-150, times what they are multiplied by later: that many
//!   for each k, 8 times the product of the factors' magnitudes, each counted as 1 at least.
//!
//! What is not promised, and not judged: sums for which the magnitudes of that last product add up
//! to 2^127, since partial products may leave the range of f32. Addends that are 0 count here: where
//! d is 0, `d * (sum of p * x)` is NaN if the sum leaves the range. Nor is anything promised of those
//! that flush subnormal numbers to zero, factors or products: they may be beyond the bound. Of NaN and
//! infinities only what is the same however products are grouped: a NaN among the factors or
//! activations of an element gives NaN; an infinity gives NaN or the exact infinity, and where the exact
//! value is NaN no finite number. (Zero times infinity is NaN for those who decode first, and not for
//! those who add up integers first.) The sum of products that are all -0 has either sign, by where it
//! begins.
//!
//! The sums that Q8_1 and Q8_K store are no part of this: they are never read.

use super::bound::{self, accepts};
use super::sample::Sample;
use super::{Judged, of_elements};
use crate::seed::{hash, mix};
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::block::{BlockFormat, Unpacked};
use plumbline_reference::format::{F32, Policy, Value};
use plumbline_reference::ops::{Activations, Dispatch, Gemv, Op, Operation, PrefillLinear, Route};
use plumbline_reference::{DType, Path, Tensor, TensorType};
use rayon::prelude::*;
use std::borrow::Cow;

/// Unit roundoff of f32, to nearest.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// Roundings on the way of an addend besides additions.
const OTHERS: f64 = 6.0;
/// Products of an addend that may underflow.
const UNDERFLOWS: f64 = 8.0;

/// A product of blocks with one vector or several.
pub(crate) struct BlockProduct<'a> {
    gemv: Gemv,
    inputs: &'a [Tensor],
    /// Vectors.
    m: usize,
}

impl<'a> BlockProduct<'a> {
    /// `None` for other operations.
    pub(crate) fn of(op: &Op, inputs: &'a [Tensor]) -> Option<Self> {
        match op {
            Op::Gemv(gemv) => Some(Self { gemv: gemv.clone(), inputs, m: 1 }),
            Op::BatchedGemv(batched) => {
                Some(Self { gemv: batched.of_row(), inputs, m: *inputs.get(1)?.shape().first()? })
            }
            // Whether blocks are decoded first, or within sums, the bound is one: it is the larger of
            // those of both products that `dispatch` chooses from.
            Op::PrefillLinear(PrefillLinear { weights, route: Route::Fused, .. })
            | Op::Dispatch(Dispatch { weights, route: Route::Dequantized | Route::Fused, .. }) => {
                let gemv = Gemv::new(*weights, Activations::F32);
                Some(Self { gemv, inputs, m: *inputs.get(1)?.shape().first()? })
            }
            _ => None,
        }
    }

    /// By the bound.
    pub(crate) fn judge(&self, actual: &Tensor) -> Judged {
        if actual.is_empty() {
            return Judged::of_nothing();
        }
        let n = self.inputs[0].shape()[0];
        let weights = Rows::of(&self.inputs[0], self.gemv.weights, n);
        let vectors = Rows::of(&self.inputs[1], self.gemv.activations.blocks(), self.m);
        let k = weights.bytes_per_row / self.gemv.weights.bytes() * self.gemv.weights.values();
        // The same positions for every backend, others for other inputs.
        let seed = self.inputs[0].codes().take(16).fold(hash("sample"), mix);
        let sample = Sample::of([1, self.m, n, k], seed);
        let element = |&position: &usize| {
            let (m, n) = (position / n, position % n);
            let exact = self.gemv.exact_value(self.inputs, m, n);
            let right = F32.encode(exact.value(), &Policy::IEEE, 0);
            let got = actual.code(position);
            let judged = |ok, ratio, unbounded| bound::Judged { position, right, got, ok, ratio, unbounded };
            match error((self.gemv.weights, &weights.blocks(n)), &vectors.row(m)) {
                Error::Nan => (judged(F32.decode(got).is_nan(), None, false), false),
                Error::NotFinite => {
                    let ok = match F32.decode(got) {
                        Value::Nan { .. } => true,
                        Value::Infinite { .. } => exact.value().is_nan() || got == right,
                        Value::Finite { .. } => false,
                    };
                    (judged(ok, None, false), true)
                }
                // Products that are all -0 have a sum of either sign, by where it begins.
                Error::Within(error) if error == 0.0 && got == right ^ F32.sign_bit() => (
                    judged(self.added_in_pairs(weights.bytes(n), vectors.bytes(m)) == Some(got), None, false),
                    false,
                ),
                Error::Within(error) => {
                    let (ok, ratio) = accepts(F32, right, got, &exact, error);
                    (judged(ok, ratio, !error.is_finite()), false)
                }
            }
        };
        let (judged, not_finite): (Vec<_>, Vec<_>) = sample.positions.par_iter().map(element).unzip();
        let mut guarantee = sample.guarantee();
        let infinite = not_finite.into_iter().filter(|&is| is).count();
        if infinite > 0 {
            guarantee +=
                &format!("; {infinite} with an infinite factor, which must be NaN or the right infinity");
        }
        of_elements(judged, guarantee)
    }
}

impl BlockProduct<'_> {
    /// The product of a row and a vector, without a zero at its beginning.
    fn added_in_pairs(&self, row: &[u8], vector: &[u8]) -> Option<u64> {
        let blocks = |format: BlockFormat, bytes: &[u8], rows: &[usize]| {
            let shape: Vec<_> =
                rows.iter().copied().chain([bytes.len() / format.bytes(), format.bytes()]).collect();
            Tensor::from_bytes(TensorType::new(DType::U8, shape), bytes.to_vec())
        };
        let x = match self.gemv.activations.blocks() {
            Some(format) => blocks(format, vector, &[]),
            None => Tensor::from_bytes(TensorType::new(F32, [vector.len() / 4]), vector.to_vec()),
        };
        let inputs = [blocks(self.gemv.weights, row, &[1]).ok()?, x.ok()?];
        let op = Gemv { accumulate: Some(Accumulation::Pairwise), ..self.gemv.clone() };
        Some(op.evaluate(&inputs, Path::Definition).ok()?.first()?.code(0))
    }
}

/// Rows of a tensor, in a format.
struct Rows<'a, F> {
    format: F,
    bytes: Cow<'a, [u8]>,
    bytes_per_row: usize,
}

impl<'a, F> Rows<'a, F> {
    fn of(tensor: &'a Tensor, format: F, rows: usize) -> Self {
        let bytes = tensor.packed();
        Self { format, bytes_per_row: bytes.len().checked_div(rows).unwrap_or(0), bytes }
    }

    fn bytes(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.bytes_per_row..][..self.bytes_per_row]
    }
}

impl Rows<'_, BlockFormat> {
    fn blocks(&self, row: usize) -> Vec<Unpacked> {
        unpacked(self.format, self.bytes(row))
    }
}

/// `None` stands for f32.
impl Rows<'_, Option<BlockFormat>> {
    fn row(&self, row: usize) -> Row {
        let bytes = self.bytes(row);
        match self.format {
            None => {
                let numbers = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes).into());
                Row::Numbers(numbers.collect())
            }
            Some(format) => Row::Blocks(format, unpacked(format, bytes)),
        }
    }
}

fn unpacked(format: BlockFormat, bytes: &[u8]) -> Vec<Unpacked> {
    bytes.chunks_exact(format.bytes()).map(|block| format.unpack(block)).collect()
}

/// A row of activations taken apart.
enum Row {
    Numbers(Vec<f64>),
    Blocks(BlockFormat, Vec<Unpacked>),
}

impl Row {
    /// The factors that are real numbers.
    fn reals(&self) -> Vec<f64> {
        match self {
            Self::Numbers(numbers) => numbers.clone(),
            Self::Blocks(_, blocks) => factors(blocks).collect(),
        }
    }
}

/// The factors of blocks.
fn factors(blocks: &[Unpacked]) -> impl Iterator<Item = f64> {
    blocks.iter().flat_map(|block| [block.d, block.m.unwrap_or(0.0)])
}

/// What is subtracted from a stored quant.
const fn offset(format: BlockFormat) -> f64 {
    match format {
        BlockFormat::Q4_0 => 8.0,
        BlockFormat::Q5_0 => 16.0,
        BlockFormat::Q3K => 4.0,
        BlockFormat::Q6K => 32.0,
        BlockFormat::Tq1_0 | BlockFormat::Tq2_0 => 1.0,
        _ => 0.0,
    }
}

/// How far a product may be off before it is rounded.
enum Error {
    /// It must be NaN.
    Nan,
    /// It must be NaN or the exact infinity, or of no number where the exact value is NaN.
    NotFinite,
    /// Infinite where sums may leave f32's range.
    Within(f64),
}

fn error((format, blocks): (BlockFormat, &[Unpacked]), x: &Row) -> Error {
    let reals: Vec<_> = factors(blocks).chain(x.reals()).collect();
    if reals.iter().any(|real| real.is_nan()) {
        return Error::Nan;
    }
    if reals.iter().any(|real| real.is_infinite()) {
        return Error::NotFinite;
    }
    let offset = offset(format);
    let (mut addends, mut sum, mut reach, mut range) = (0u32, 0.0, 0.0, 0.0);
    for k in 0..blocks.len() * format.values() {
        let (block, j) = (&blocks[k / format.values()], k % format.values());
        let group = j / block.group;
        // Magnitudes, and the same of factors below 1 counted as 1.
        let activation = match x {
            Row::Numbers(x) => [x[k], 1.0],
            Row::Blocks(format, x) => {
                let block = &x[k / format.values()];
                [block.d, block.quants[k % format.values()].into()]
            }
        };
        let stored = f64::from(block.quants[j]) + offset;
        let scale = f64::from(block.scales[group]);
        let min = [block.m.unwrap_or(0.0), block.mins[group].into()];
        let product = |factors: &[f64]| factors.iter().chain(&activation).fold(1.0, |all, x| all * x.abs());
        let reaching =
            |factors: &[f64]| factors.iter().chain(&activation).fold(1.0, |all, x| all * x.abs().max(1.0));
        for (factors, is_there) in [
            (&[block.d, scale, stored][..], true),
            (&[block.d, scale, offset], offset != 0.0),
            (&min, block.m.is_some()),
        ] {
            if !is_there {
                continue;
            }
            let (magnitude, reaching) = (product(factors), reaching(factors));
            range += reaching;
            if magnitude != 0.0 {
                addends += 1;
                sum += magnitude;
                reach += reaching;
            }
        }
    }
    let n = (f64::from(addends) + OTHERS) * U;
    if range >= 2f64.powi(127) || n >= 0.5 {
        return Error::Within(f64::INFINITY);
    }
    if addends == 0 {
        return Error::Within(0.0);
    }
    let underflow = UNDERFLOWS * 2f64.powi(-150) * reach;
    // This arithmetic is f64's, whose own roundings the slack is for.
    Error::Within((n / (1.0 - n) * sum + underflow) * (1.0 + 2f64.powi(-30)))
}

#[cfg(test)]
mod tests;
