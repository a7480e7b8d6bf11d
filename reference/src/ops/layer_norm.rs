//! `layer_norm`: `y = (x - mean) / sqrt(variance + eps) * weight + bias`, row by row.
//!
//! The variance is `mean((x - mean)^2)`. x is `[.., n]`, the optional weight (left out: 1) and bias
//! (left out: 0) `[n]`, y like x; all are f32, f16 or bf16, each of its own, and all arithmetic is
//! in f32. `eps`, inside the root, is the bits of an f32 from 0. n and the number of rows may be 0.
//!
//! Canonical, in two passes, each step rounded to nearest even:
//! 1. `mean = sum(x) / n`: 256 lanes, element i in lane `i mod 256`, ascending; then upper halves of the
//!    lanes are added to lower ones. `compensated`: each lane is Kahan's sum, as in `rms_norm`;
//! 2. `d = x - mean`; the variance is the sum of squares of d in the same order, each addition an
//!    fma, over n;
//! 3. `r = 1 / sqrt(variance + eps)`, with a rounding after each operation;
//! 4. `y = (d * r) * weight + bias`, a rounding after each, then one to the output's format, overflow to
//!    infinity.
//!
//! NaN or an infinity in a row makes all of it NaN. Where the sum of squares overflows, r is 0 and
//! y is the bias; where the sum does, y is NaN. A row whose elements are all the mean gives the bias,
//! but NaN where `eps` is 0. NaN is the canonical one.
//!
//! The bound holds for f32 implementations that sum in any order, in two passes or by Welford's
//! updates: a mean that is off by e adds `e^2` to the variance of two passes, and up to `3 e` times
//! the standard deviation to Welford's. `mean(x^2) - mean^2`, in one pass, is wrong where the mean is
//! large beside the standard deviation, and is outside of it there. `compensated`: two passes whose
//! sums are Kahan's.
//!
//! Errors are those of `rms_norm`, and of a bias that is not `[n]`.
//!
//! Source: Ba, Kiros, Hinton, "Layer normalization" (2016). Error of Welford's updates: Chan,
//! Lewis, "Computing standard deviations: accuracy" (1979).

use super::gemm::Bits32;
use super::norm::{Formats, fast_sum, roundings, rsqrt, scaled, sum};
use super::{Inputs, Operation, SignatureError};
use crate::exact::Exact;
use crate::fast::Row;
use crate::format::{Format, Value};
use crate::interval::{Interval, Steps};
use crate::{Path, Tensor, TensorError, TensorType, math};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows with mean 0 and variance 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Format of the input: f32, f16 or bf16.
    pub from: Format,
    /// Format of the weight, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Format>,
    /// Format of the bias, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Format>,
    /// Format of the output.
    pub to: Format,
    /// What is added to the variance, inside the root.
    pub eps: Bits32,
    /// Whether sums are Kahan's.
    #[serde(default)]
    pub compensated: bool,
}

/// Weight and bias.
type Vectors<'a> = [Option<&'a [f32]>; 2];

impl LayerNorm {
    fn formats(&self) -> Formats {
        Formats { from: self.from, weight: self.weight, bias: self.bias, to: self.to }
    }

    fn canonical(&self, x: &[f32], [weight, bias]: Vectors<'_>) -> Vec<f32> {
        let n = x.len() as f32;
        let mean = sum(x, false, self.compensated) / n;
        let differences: Vec<_> = x.iter().map(|x| x - mean).collect();
        let variance = sum(&differences, true, self.compensated) / n;
        let r = math::rsqrt(variance + self.eps.0);
        let element = |(i, d): (usize, &f32)| {
            let y = d * r;
            let y = weight.map_or(y, |weight| y * weight[i]);
            bias.map_or(y, |bias| y + bias[i])
        };
        differences.iter().enumerate().map(element).collect()
    }

    /// The definition over intervals: the elements of a row by their columns. `None` where the sum
    /// may overflow, or all is 0 / 0.
    fn real(
        &self,
        x: &[f32],
        vectors: Vectors<'_>,
        steps: Steps,
    ) -> Option<impl Fn(usize) -> Interval + use<>> {
        let n = x.len() as f64;
        let relative = |x: f64, error: f64| Interval::at(x, |x| x, error * f64::EPSILON);
        let (differences, squares) = differences(x);
        let variance = relative(squares, n + 8.0) / n.into();
        // Of the mean: that of the sum, in any order or by updates, and of the division.
        let count = roundings(x.len(), self.compensated) + if self.compensated { 4.0 } else { 32.0 };
        let magnitude: f64 = x.iter().map(|x| f64::from(x.abs())).sum();
        let overflows = Interval::from(magnitude).rounded(Steps::F32, count).high.is_infinite();
        if overflows || squares == 0.0 && self.eps.0 == 0.0 {
            return None;
        }
        let mean_magnitude = magnitude / n;
        let error =
            (Interval::from(mean_magnitude).rounded(steps, count).high - mean_magnitude) * (1.0 + 1e-9);
        let deviation = variance.high.sqrt();
        let of_updates = if self.compensated { 0.0 } else { 3.0 * error * deviation };
        let variance = Interval {
            low: (variance.low - of_updates).max(0.0),
            high: variance.high + of_updates + error * error,
        };
        let variance = variance.rounded(steps, count);
        // The sum of squares may overflow before it is divided.
        let overflows = Interval::from(squares).rounded(steps, count + 8.0).high.is_infinite();
        let variance = if overflows { Interval { high: f64::INFINITY, ..variance } } else { variance };
        let r = rsqrt((variance + self.eps.0.into()).rounded(steps, 1.0), steps);
        let vectors = vectors.map(|vector| vector.map(<[f32]>::to_vec));
        Some(move |i: usize| {
            let [weight, bias] = vectors.each_ref().map(|vector| vector.as_ref().map(|vector| vector[i]));
            // Or `x * r - mean * r`, whose two roundings the mean's error covers.
            let d = match steps {
                Steps::Real => differences[i],
                Steps::F32 => either_zero(differences[i]).widened(error).rounded(steps, 2.0),
            };
            scaled(d, r, weight, bias, steps)
        })
    }
}

/// A difference of zero may have either sign.
fn either_zero(d: Interval) -> Interval {
    if d.low == 0.0 && d.high == 0.0 { Interval { low: -0.0, high: 0.0 } } else { d }
}

/// `x - mean(x)` of each element, within 2^-51 of itself and 2^-100 of the mean, and the sum of their
/// squares.
fn differences(x: &[f32]) -> (Vec<Interval>, f64) {
    let n = x.len() as f64;
    let (one, minus_one) = (Value::from(1f32), Value::from(-1f32));
    let mut sum = Exact::default();
    for &x in x {
        sum.add_product(x.into(), one);
    }
    // Sum and mean as sums of two f64.
    let high = sum.to_f64();
    let mut rest = sum.clone();
    rest.add_product(high.into(), minus_one);
    let mean = high / n;
    let mean_rest = ((-mean).mul_add(n, high) + rest.to_f64()) / n;
    let of_element = |&x: &f32| {
        let own = f64::from(x);
        // d + error is own - mean, exactly.
        let d = own - mean;
        let part = d - own;
        let error = (own - (d - part)) - (mean + part);
        let d = d + (error - mean_rest);
        if d != 0.0 {
            return d;
        }
        let mut difference = sum.times(minus_one);
        difference.add_product(x.into(), n.into());
        // A zero has the sign of x - 0 where x is one.
        let d = difference.to_f64() / n;
        if d == 0.0 && x == 0.0 { own } else { d }
    };
    let differences: Vec<f64> = x.iter().map(of_element).collect();
    let squares = differences.iter().map(|d| d * d).sum();
    let absolute = mean.abs() * 2f64.powi(-100);
    let interval = |&d: &f64| {
        let own = Interval::at(d, |d| d, 8.0 * f64::EPSILON);
        if d == 0.0 { own } else { own.widened(absolute) }
    };
    (differences.iter().map(interval).collect(), squares)
}

/// The same in loops that are vectorised.
#[derive(Clone, Copy)]
struct Fast<'a> {
    op: LayerNorm,
    vectors: Vectors<'a>,
}

impl Row for Fast<'_> {
    #[inline(always)]
    fn of(self, x: &[f32], y: &mut [f32]) {
        let n = x.len() as f32;
        let mean = fast_sum(x, 0.0, false, self.op.compensated) / n;
        let variance = fast_sum(x, mean, true, self.op.compensated) / n;
        let r = math::rsqrt(variance + self.op.eps.0);
        let y = &mut y[..x.len()];
        for i in 0..x.len() {
            y[i] = (x[i] - mean) * r;
        }
        if let Some(weight) = self.vectors[0] {
            let weight = &weight[..x.len()];
            for i in 0..x.len() {
                y[i] *= weight[i];
            }
        }
        if let Some(bias) = self.vectors[1] {
            let bias = &bias[..x.len()];
            for i in 0..x.len() {
                y[i] += bias[i];
            }
        }
    }
}

impl Operation for LayerNorm {
    const INPUTS: &'static [&'static str] = &["x", "weight", "bias"];

    fn input_names(&self) -> Vec<&'static str> {
        self.formats().names()
    }

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        self.formats().signature(inputs, self.eps)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let vectors = self.formats().vectors(inputs);
        let vectors = vectors.each_ref().map(Option::as_deref);
        let definition = |x: &[f32]| self.canonical(x, vectors);
        self.formats().evaluate(inputs, path, definition, Fast { op: *self, vectors })
    }

    fn has_fast_path(&self) -> bool {
        true
    }

    fn has_enclosure(&self) -> bool {
        true
    }

    fn enclosure(
        &self,
        inputs: &[Tensor],
        _: usize,
        positions: &[usize],
        steps: Steps,
    ) -> Option<Vec<Interval>> {
        let vectors = self.formats().vectors(inputs);
        let vectors = vectors.each_ref().map(Option::as_deref);
        let canonical = |x: &[f32]| self.canonical(x, vectors);
        let real = |x: &[f32]| self.real(x, vectors, steps);
        Some(self.formats().enclosure(inputs, positions, canonical, real))
    }

    fn terms(&self, _: &[Tensor]) -> usize {
        // Differences are exact sums.
        16
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        self.formats().sources(inputs, index)
    }
}
