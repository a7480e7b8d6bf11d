//! `rms_norm`: `y = x / sqrt(mean(x^2) + eps) * weight`, row by row.
//!
//! x is `[.., n]`, the optional weight `[n]` (left out: 1), y like x. x, weight and y are f32, f16
//! or bf16, each of its own; all arithmetic is in f32. `eps`, inside the root, is the bits of an
//! f32 from 0. n and the number of rows may be 0.
//!
//! Canonical, each step rounded to nearest even:
//! 1. the sum of squares: 256 lanes, element i in lane `i mod 256`, each addition an fma,
//!    ascending; then upper halves of the lanes are added to lower ones. `compensated`: each lane is
//!    Kahan's sum (`y = fma(x, x, -c)`, `t = sum + y`, `c = (t - sum) - y`, which counts as 0 where it
//!    is not finite), what is left of it dropped at the end;
//! 2. `r = 1 / sqrt(sum / n + eps)`, with a rounding after each operation;
//! 3. `y = (x * r) * weight`, then one rounding to the output's format, overflow to infinity.
//!
//! NaN in a row makes all of it NaN. Where the sum overflows, from magnitudes of 2^64 on, or by an
//! infinity, r is 0: finite elements give zeros of their sign, infinite ones NaN. A row of zeros
//! gives zeros of their sign, but NaN where `eps` is 0. NaN is the canonical one.
//!
//! The bound holds for f32 sums in any order (`compensated`: Kahan's), a root that is 2 ulp off,
//! the products of step 3 in either order, and for implementations that keep squares from
//! overflowing. An implementation that rounds `x * r` to a narrow format before the weight does
//! something else.
//!
//! Errors name x if it has no dimensions, a weight that is not `[n]`, formats other than the three,
//! and an `eps` that is negative, infinite or NaN.
//!
//! Source: Zhang, Sennrich, "Root mean square layer normalization" (2019), with the eps of
//! Llama's implementation.

use super::gemm::Bits32;
use super::norm::{Formats, fast_sum, roundings, rsqrt, scaled, sum};
use super::{Inputs, Operation, SignatureError};
use crate::fast::Row;
use crate::format::Format;
use crate::interval::{Interval, Steps};
use crate::{Path, Tensor, TensorError, TensorType, math};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows divided by the root of their mean square.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Format of the input: f32, f16 or bf16.
    pub from: Format,
    /// Format of the weight, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Format>,
    /// Format of the output.
    pub to: Format,
    /// What is added to the mean square, inside the root.
    pub eps: Bits32,
    /// Whether sums are Kahan's.
    #[serde(default)]
    pub compensated: bool,
}

impl RmsNorm {
    fn formats(&self) -> Formats {
        Formats { from: self.from, weight: self.weight, bias: None, to: self.to }
    }

    /// `1 / sqrt(mean(x^2) + eps)`.
    fn reciprocal(&self, x: &[f32]) -> f32 {
        math::rsqrt(sum(x, true, self.compensated) / x.len() as f32 + self.eps.0)
    }

    fn canonical(&self, x: &[f32], weight: Option<&[f32]>) -> Vec<f32> {
        let r = self.reciprocal(x);
        let element = |(i, x): (usize, &f32)| {
            let y = x * r;
            weight.map_or(y, |weight| y * weight[i])
        };
        x.iter().enumerate().map(element).collect()
    }

    /// The definition over intervals: the elements of a row by their columns.
    fn real(&self, x: &[f32], weight: Option<&[f32]>, steps: Steps) -> impl Fn(usize) -> Interval + use<> {
        let (x, weight) = (x.to_vec(), weight.map(<[f32]>::to_vec));
        let n = x.len() as f64;
        // Squares of f32 are exact in f64.
        let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let sum = Interval::at(squares, |x| x, n * f64::EPSILON);
        let sum = sum.rounded(steps, roundings(x.len(), self.compensated) + 1.0);
        let mean = (sum / n.into()).rounded(steps, 2.0);
        let r = rsqrt((mean + self.eps.0.into()).rounded(steps, 1.0), steps);
        move |i| scaled(x[i].into(), r, weight.as_ref().map(|weight| weight[i]), None, steps)
    }
}

/// The same in loops that are vectorised.
#[derive(Clone, Copy)]
struct Fast<'a> {
    op: RmsNorm,
    weight: Option<&'a [f32]>,
}

impl Row for Fast<'_> {
    #[inline(always)]
    fn of(self, x: &[f32], y: &mut [f32]) {
        let sum = fast_sum(x, 0.0, true, self.op.compensated);
        let r = math::rsqrt(sum / x.len() as f32 + self.op.eps.0);
        let y = &mut y[..x.len()];
        match self.weight {
            Some(weight) => {
                let weight = &weight[..x.len()];
                for i in 0..x.len() {
                    y[i] = x[i] * r * weight[i];
                }
            }
            None => {
                for i in 0..x.len() {
                    y[i] = x[i] * r;
                }
            }
        }
    }
}

impl Operation for RmsNorm {
    const INPUTS: &'static [&'static str] = &["x", "weight"];

    fn input_names(&self) -> Vec<&'static str> {
        self.formats().names()
    }

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        self.formats().signature(inputs, self.eps)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let [weight, _] = self.formats().vectors(inputs);
        let weight = weight.as_deref();
        let definition = |x: &[f32]| self.canonical(x, weight);
        self.formats().evaluate(inputs, path, definition, Fast { op: *self, weight })
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
        let [weight, _] = self.formats().vectors(inputs);
        let weight = weight.as_deref();
        let canonical = |x: &[f32]| self.canonical(x, weight);
        let real = |x: &[f32]| Some(self.real(x, weight, steps));
        Some(self.formats().enclosure(inputs, positions, canonical, real))
    }

    fn terms(&self, _: &[Tensor]) -> usize {
        2
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        self.formats().sources(inputs, index)
    }
}
