//! Products of a prefill by their steps.
//!
//! What comes before the product is deterministic: weights and activations have certain codes, whoever
//! makes them. So the product is judged as a `gemm` of those operands, by its own bound, or by its models.
//!
//! Where a multiplication follows on a result D in f16, y is `f32(D) * s`, one IEEE operation: y is
//! right if some D gives it that is within the product's bound, which includes half an ulp of f16.
//! Of several, where the multiplication makes them one, the nearest to the exact sum counts. An
//! infinite D, of a sum that may overflow, gives an infinite y.

use super::bound::{self, accepts};
use super::models::Hints;
use super::sample::Sample;
use super::{Judged, Product, of_elements};
use crate::case::Criterion;
use crate::seed::{hash, mix};
use plumbline_reference::format::{F16, F32, Value};
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::ops::{Gemm, Op, Route};
use plumbline_reference::{Path, Tensor, TensorError};

/// A product with its operands as its steps make them.
pub(crate) struct PrefillProduct {
    gemm: Gemm,
    operands: Vec<Tensor>,
    /// What its result in f16 is multiplied by.
    scale: Option<f32>,
}

impl PrefillProduct {
    /// `None` for other operations. The error is one of memory.
    pub(crate) fn of(op: &Op, inputs: &[Tensor]) -> Result<Option<Self>, TensorError> {
        let Op::PrefillLinear(linear) = op else { return Ok(None) };
        if linear.route == Route::Fused {
            return Ok(None);
        }
        let path = Path::fastest();
        let (gemm, operands) = linear.product(inputs, path)?;
        let scale = linear.scale_after(inputs, path)?;
        Ok(Some(Self { gemm, operands, scale }))
    }

    /// By a criterion of products.
    pub(crate) fn judge(
        &self,
        criterion: Criterion,
        architecture: Option<&str>,
        hints: &Hints,
        actual: &Tensor,
    ) -> Judged {
        let Some(scale) = self.scale else {
            let product = Product { gemm: &self.gemm, inputs: &self.operands, architecture, hints };
            return product.judge(criterion, actual);
        };
        if actual.is_empty() {
            return Judged::of_nothing();
        }
        let Geometry { batch, m, n, k, .. } = Geometry::of(&self.gemm, &self.operands);
        // The same positions for every backend, others for other inputs.
        let seed = self.operands[0].codes().take(16).fold(hash("sample"), mix);
        let sample = Sample::of([batch, m, n, k], seed);
        let scaled = |d: u64| scaled(d, scale);
        let elements = bound::errors(&self.gemm, &self.operands, &sample, architecture);
        let judged = elements.into_iter().map(|bound::Element { position, exact, error, right: d }| {
            let (right, got) = (scaled(d), actual.code(position));
            let is_finite = matches!(exact.value(), Value::Finite { .. });
            let (ok, ratio) = if right == got {
                (true, is_finite.then_some(0.0))
            } else if F32.decode(right).is_nan() || F32.decode(got).is_nan() {
                let may_be_nan = F32.decode(right).is_nan() || !error.is_finite();
                (may_be_nan && F32.decode(got).is_nan(), None)
            } else {
                match nearest(d, scaled, got) {
                    Some(candidate) => accepts(F16, d, candidate, &exact, error),
                    None => (!error.is_finite(), None),
                }
            };
            bound::Judged { position, right, got, ok, ratio, unbounded: is_finite && !error.is_finite() }
        });
        of_elements(judged.collect(), sample.guarantee())
    }
}

/// `f32(d) * scale`, NaN canonical.
fn scaled(d: u64, scale: f32) -> u64 {
    let y = F16.to_f64(d) as f32 * scale;
    if y.is_nan() { 0x7fff_ffff } else { y.to_bits().into() }
}

/// The f16 nearest to `d` that gives `got`, if one does. What is given rises with d, or is one of two
/// zeros: a scale is not negative.
fn nearest(d: u64, scaled: impl Fn(u64) -> u64, got: u64) -> Option<u64> {
    // Every f16 but NaN in ascending order, -0 before +0.
    let infinity = F16.infinity()? as i64;
    let code = |rank: i64| if rank < 0 { (-1 - rank) as u64 | F16.sign_bit() } else { rank as u64 };
    let rank_of = |code: u64| {
        let magnitude = (code & !F16.sign_bit()) as i64;
        if code & F16.sign_bit() == 0 { magnitude } else { -1 - magnitude }
    };
    // As numbers that order as the bits do, -0 below +0.
    let order = |bits: u64| {
        let bits = bits as u32;
        if bits >> 31 == 0 { i64::from(bits) } else { -1 - i64::from(bits & 0x7fff_ffff) }
    };
    let first_with = |is_enough: &dyn Fn(i64) -> bool| {
        let (mut low, mut high) = (-1 - infinity, infinity + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_enough(middle) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let target = order(got);
    let first = first_with(&|rank| order(scaled(code(rank))) >= target);
    let end = first_with(&|rank| order(scaled(code(rank))) > target);
    (first < end).then(|| code(rank_of(d).clamp(first, end - 1)))
}

#[cfg(test)]
mod tests;
