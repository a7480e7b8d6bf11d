//! Products with an activation.
//!
//! The product with its bias, t, is judged as a `gemm`, by its own bound. An activation that never falls
//! gives y from some t: y is right if one of these is within the bound, and the nearest to the exact t
//! counts.

use super::bound::{self, accepts};
use super::sample::Sample;
use super::{Judged, Product, of_elements};
use crate::case::Criterion;
use crate::product::Hints;
use crate::seed::{hash, mix};
use plumbline_reference::Tensor;
use plumbline_reference::format::{F32, Value};
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::ops::{FusedActivation, GemmFused, Op};

/// A product with its activation.
pub(crate) struct FusedProduct<'a> {
    op: &'a GemmFused,
    inputs: &'a [Tensor],
}

impl<'a> FusedProduct<'a> {
    /// `None` for other operations.
    pub(crate) fn of(op: &'a Op, inputs: &'a [Tensor]) -> Option<Self> {
        match op {
            Op::GemmFused(op) => Some(Self { op, inputs }),
            _ => None,
        }
    }

    /// By the bound.
    pub(crate) fn judge(&self, architecture: Option<&str>, actual: &Tensor) -> Judged {
        let gemm = self.op.gemm();
        if self.op.activation == FusedActivation::None {
            let hints = Hints::default();
            let product = Product { gemm: &gemm, inputs: self.inputs, architecture, hints: &hints };
            return product.judge(Criterion::Bound, actual);
        }
        if actual.is_empty() {
            return Judged::of_nothing();
        }
        let Geometry { batch, m, n, k, .. } = Geometry::of(&gemm, self.inputs);
        // The same positions for every backend, others for other inputs.
        let seed = self.inputs[0].codes().take(16).fold(hash("sample"), mix);
        let sample = Sample::of([batch, m, n, k], seed);
        let elements = bound::errors(&gemm, self.inputs, &sample, architecture).into_iter();
        let judged = elements.map(|bound::Element { position, exact, right: t, error }| {
            let (right, got) = (self.activated(t), actual.code(position));
            let (ok, ratio) = match self.nearest(t, got) {
                Some(t_of_got) => accepts(F32, t, t_of_got, &exact, error),
                None => (F32.decode(t).is_nan() && F32.decode(got).is_nan(), None),
            };
            let is_finite = matches!(exact.value(), Value::Finite { .. });
            bound::Judged { position, right, got, ok, ratio, unbounded: is_finite && !error.is_finite() }
        });
        of_elements(judged.collect(), sample.guarantee())
    }

    fn activated(&self, t: u64) -> u64 {
        let y = self.op.activation.of(f32::from_bits(t as u32));
        if y.is_nan() { 0x7fff_ffff } else { y.to_bits().into() }
    }

    /// The t nearest to the right one that gives `got`, if any does.
    fn nearest(&self, t: u64, got: u64) -> Option<u64> {
        let at_most_zero = |t: u64| f32::from_bits(t as u32) <= 0.0;
        match self.op.activation {
            FusedActivation::None => Some(got),
            FusedActivation::Relu if got == 0 => Some(if at_most_zero(t) { t } else { 0 }),
            FusedActivation::Relu => (f32::from_bits(got as u32) > 0.0).then_some(got),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::accumulate::Accumulation;
    use plumbline_reference::{Path, TensorType};

    fn numbers(shape: &[usize], of: impl Fn(usize) -> f32 + Sync) -> Tensor {
        Tensor::from_fn(TensorType::new(F32, shape), Path::Definition, |i| of(i).to_bits().into()).unwrap()
    }

    fn ok(inputs: &[Tensor], y: &Tensor) -> bool {
        let op = GemmFused::new(F32, F32, FusedActivation::Relu).into();
        FusedProduct::of(&op, inputs).unwrap().judge(None, y).wrong.is_empty()
    }

    #[test]
    fn results_of_relu_are_those_of_some_sum_within_the_bound() {
        // One third of each operand: the exact sum is not an f32.
        let inputs = [
            numbers(&[2, 4], |i| (i as f32 - 3.5) / 3.0),
            numbers(&[4, 3], |i| (i as f32 + 0.5) / 7.0),
            numbers(&[3], |i| i as f32 - 1.0),
        ];
        let fma = GemmFused {
            accumulate: Some(Accumulation::Fma),
            ..GemmFused::new(F32, F32, FusedActivation::Relu)
        };
        let y = Op::from(fma).evaluate(&inputs, Path::Definition).unwrap().remove(0);
        let zeros = y.codes().filter(|&code| code == 0).count();
        assert!((1..5).contains(&zeros), "{y:?}");
        assert!(ok(&inputs, &y));
        for (i, right) in y.codes().enumerate() {
            let wrong: &[f32] =
                if right == 0 { &[1e-3, -0.0, -1.0, f32::NAN] } else { &[0.0, -0.0, -1.0, f32::NAN] };
            let off = f32::from_bits(right as u32) * 1.001;
            for &wrong in wrong.iter().chain((right != 0).then_some(&off)) {
                let code = |at| if at == i { wrong.to_bits().into() } else { y.code(at) };
                let y = Tensor::from_fn(y.ty().clone(), Path::Definition, code).unwrap();
                assert!(!ok(&inputs, &y), "{wrong} at {i}");
            }
        }
    }
}
