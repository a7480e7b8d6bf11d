//! Products with an activation.
//!
//! The product with its bias, t, is off by no more than a `gemm` may be, and rounded to f32. y is right if it
//! is among the values that the activation has there, each of its steps widened by what f32 arithmetic
//! may make of it. Where t is no finite number, y is the activation of it.

use super::bound::{self, ulp};
use super::sample::Sample;
use super::{Judged, Product, of_elements};
use crate::case::Criterion;
use crate::product::Hints;
use crate::seed::{hash, mix};
use plumbline_reference::Tensor;
use plumbline_reference::format::{F32, Value};
use plumbline_reference::interval::{Interval, Steps};
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
            let got_value = F32.decode(got);
            let is_finite = matches!(exact.value(), Value::Finite { .. });
            let (ok, ratio) = if !is_finite {
                let may_be_nan = F32.decode(right).is_nan() || !error.is_finite();
                (right == got || may_be_nan && got_value.is_nan(), None)
            } else if !error.is_finite() {
                (true, None)
            } else {
                // Without an error the sum is the nearest f32.
                let t = if error == 0.0 {
                    Interval::from(F32.to_f64(t))
                } else {
                    let (sum, reach) = (exact.to_f64(), error + ulp(F32, exact.to_f64_up() + error) / 2.0);
                    Interval { low: (sum - reach).next_down(), high: (sum + reach).next_up() }
                };
                self.accepts(t, got_value.to_f64())
            };
            bound::Judged { position, right, got, ok, ratio, unbounded: is_finite && !error.is_finite() }
        });
        of_elements(judged.collect(), sample.guarantee())
    }

    fn activated(&self, t: u64) -> u64 {
        let y = self.op.activation.of(f32::from_bits(t as u32));
        if y.is_nan() { 0x7fff_ffff } else { y.to_bits().into() }
    }

    /// Whether `y` is a value of the activation somewhere in t, and its error over the bound.
    fn accepts(&self, t: Interval, y: f64) -> (bool, Option<f64>) {
        let right = self.op.activation.real(t.in_f32(), Steps::F32);
        if !right.is_number() {
            return (y.is_nan(), None);
        }
        // total_cmp tells -0 from +0.
        let ok = right.low.total_cmp(&y).is_le() && y.total_cmp(&right.high).is_le();
        if y.is_nan() || !right.radius().is_finite() {
            return (ok && !y.is_nan(), None);
        }
        let distance = (y - right.middle()).abs();
        let ratio = if distance == 0.0 { 0.0 } else { distance / right.radius() };
        // The middle is rounded.
        (ok, Some(if ok { ratio.min(1.0) } else { ratio.max(1.0f64.next_up()) }))
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

    fn ok(op: &GemmFused, inputs: &[Tensor], y: &Tensor) -> bool {
        let op = op.clone().into();
        FusedProduct::of(&op, inputs).unwrap().judge(None, y).wrong.is_empty()
    }

    #[test]
    fn results_are_activations_of_some_sum_within_the_bound() {
        // One third of each operand: the exact sum is not an f32.
        let inputs = [
            numbers(&[2, 4], |i| (i as f32 - 3.5) / 3.0),
            numbers(&[4, 3], |i| (i as f32 + 0.5) / 7.0),
            numbers(&[3], |i| i as f32 - 1.0),
        ];
        for &activation in FusedActivation::ALL {
            let exact = GemmFused::new(F32, F32, activation);
            for order in [Accumulation::Fma, Accumulation::MultiplyAdd, Accumulation::Pairwise] {
                let op = Op::from(GemmFused { accumulate: Some(order), ..exact.clone() });
                let y = op.evaluate(&inputs, Path::Definition).unwrap().remove(0);
                assert!(ok(&exact, &inputs, &y), "{activation:?}");
                for (i, right) in y.codes().enumerate() {
                    let right = f32::from_bits(right as u32);
                    for wrong in [right * 1.001 + 1e-3, right - 1e-3, -right - 1.0, f32::NAN, f32::INFINITY] {
                        let code = |at| if at == i { wrong.to_bits().into() } else { y.code(at) };
                        let y = Tensor::from_fn(y.ty().clone(), Path::Definition, code).unwrap();
                        assert!(!ok(&exact, &inputs, &y), "{activation:?} {wrong} at {i}");
                    }
                }
            }
            // Each other activation differs somewhere.
            for &other in FusedActivation::ALL.iter().filter(|&&other| other != activation) {
                let y =
                    Op::from(GemmFused::new(F32, F32, other)).evaluate(&inputs, Path::Definition).unwrap();
                assert!(!ok(&exact, &inputs, &y[0]), "{other:?} for {activation:?}");
            }
        }
    }

    #[test]
    fn a_zero_of_relu_is_positive() {
        let inputs = [numbers(&[1, 1], |_| -1.0), numbers(&[1, 1], |_| 1.0), numbers(&[1], |_| 0.5)];
        let op = GemmFused::new(F32, F32, FusedActivation::Relu);
        for (y, right) in [(0.0, true), (-0.0, false), (f32::NAN, false), (-0.5, false), (1e-45, false)] {
            assert_eq!(ok(&op, &inputs, &numbers(&[1, 1], |_| y)), right, "{y}");
        }
    }
}
