//! `softmax`: `y[j] = e^(s[j] - max) / sum_j e^(s[j] - max)`, `s[j] = scale * x[j]`, over each row.
//!
//! - `x` is `[.., n]`, f32, f16 or bf16, and so is `y`, of the same shape; a row is the last
//!   dimension.
//! - `causal`: of `x` `[.., q, n]`, row `i` sees elements `j <= i + offset`. Others are masked:
//!   they are not read, and their result is +0.
//! - A row that sees nothing but -Inf, or nothing at all, is `fully_masked`: zeros or NaN.
//! - A NaN or +Inf that a row sees makes all of its unmasked results NaN.
//!
//! Canonical, in f32: `s = x * scale`; the largest s; `e = exp(s - max)`, with [`math::exp`];
//! the sum of all e of the row in the order of 256 lanes (element `j` to lane `j mod 256`,
//! ascending, then halves of the lanes); `e / sum`; one rounding to the output's format.
//!
//! Errors name the input or parameter: `causal` of less than two dimensions, other formats.
//!
//! Source: the definition that subtracts the largest is that of PyTorch's `softmax` and ONNX's
//! `Softmax`.

use super::activation::{check_format, number, rounded};
use super::{Bits32, Inputs, Operation, SignatureError, row};
use crate::fast::{Function, map};
use crate::format::Format;
use crate::interval::{Interval, Steps, U};
use crate::{Path, Tensor, TensorError, TensorType, math};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the two softmax operations have as parameters.
macro_rules! softmax_parameters {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $Name {
            /// Format of the input: f32, f16 or bf16.
            pub from: Format,
            /// Format of the output: f32, f16 or bf16.
            pub to: Format,
            /// Factor of every element.
            #[serde(default = "Bits32::one")]
            pub scale: Bits32,
            /// Which elements a row sees; left out: all.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub causal: Option<Causal>,
            /// The result of a row that sees nothing.
            #[serde(default)]
            pub fully_masked: FullyMasked,
        }

        impl $Name {
            /// Of all elements as they are.
            #[must_use]
            pub fn new(from: Format, to: Format) -> Self {
                Self { from, to, scale: Bits32::one(), causal: None, fully_masked: FullyMasked::default() }
            }

            fn rows(&self) -> Rows {
                let Self { from, to, scale, causal, fully_masked } = *self;
                Rows::new([from, to], scale.0, causal, fully_masked)
            }
        }
    };
}
pub(super) use softmax_parameters;

softmax_parameters! {
    /// Exponentials over their sum, row by row.
    Softmax
}

/// A causal mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Causal {
    /// Row `i` sees elements `j <= i + offset`.
    pub offset: i64,
}

/// The result of a row that sees nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FullyMasked {
    /// Zeros: -Inf of `log_softmax`.
    #[default]
    Zeros,
    /// NaN, as the formula gives.
    Nan,
}

/// The largest f32.
const MAX: f64 = f32::MAX as f64;

/// The rows of a softmax and what is done with them.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    from: Format,
    to: Format,
    scale: f32,
    causal: Option<Causal>,
    fully_masked: FullyMasked,
}

/// The exponential of a difference, in f32.
#[derive(Clone, Copy)]
pub(super) struct ExpMinus(pub(super) f32);

impl Function<1> for ExpMinus {
    #[inline(always)]
    fn of(self, [s]: [f32; 1]) -> f32 {
        math::exp(s - self.0)
    }
}

/// The exponentials of `s - max`.
pub(super) fn exponentials(s: &[f32], max: f32, path: Path) -> Vec<f32> {
    let function = ExpMinus(max);
    if let Path::Simd(simd) = path {
        let mut e = vec![0.0; s.len()];
        map(simd, function, [s], &mut e);
        return e;
    }
    s.iter().map(|&s| function.of([s])).collect()
}

/// The larger; NaN where one is.
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// A row that sees something.
pub(super) struct Row {
    /// The scaled elements that it sees.
    pub(super) s: Vec<f32>,
    /// The largest.
    pub(super) max: f32,
    /// The exponentials.
    pub(super) e: Vec<f32>,
    /// Their sum.
    pub(super) sum: f32,
}

impl Rows {
    pub(super) fn new(
        [from, to]: [Format; 2],
        scale: f32,
        causal: Option<Causal>,
        fully_masked: FullyMasked,
    ) -> Self {
        Self { from, to, scale, causal, fully_masked }
    }

    pub(super) fn signature(self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(1)?;
        check_format(inputs, "from", self.from)?;
        check_format(inputs, "to", self.to)?;
        let shape = inputs.dtype(0, self.from)?;
        let least = if self.causal.is_some() { 2 } else { 1 };
        if shape.len() < least {
            let expected = if least == 2 { "[.., q, n], as it is causal" } else { "[.., n]" };
            return Err(inputs.shape_error(0, expected.to_owned()));
        }
        Ok(vec![TensorType::new(self.to, shape)])
    }

    /// How many elements a row sees: the first ones.
    fn seen(self, shape: &[usize], row: usize) -> usize {
        let n = shape[shape.len() - 1];
        match self.causal {
            None => n,
            Some(Causal { offset }) => {
                let i = (row % shape[shape.len() - 2]) as i128;
                (i + i128::from(offset) + 1).clamp(0, n as i128) as usize
            }
        }
    }

    /// What is computed of a row; `None` where it sees nothing but -Inf.
    fn row(self, x: &Tensor, row: usize, path: Path) -> Option<Row> {
        let n = x.shape()[x.shape().len() - 1];
        let seen = 0..self.seen(x.shape(), row);
        let s: Vec<_> = seen.map(|j| number(x, self.from, row * n + j) * self.scale).collect();
        let max = s.iter().copied().fold(f32::NEG_INFINITY, larger);
        if max == f32::NEG_INFINITY {
            return None;
        }
        let e = exponentials(&s, max, path);
        let sum = row::sum(&e);
        Some(Row { s, max, e, sum })
    }

    /// The results of a row in f32; `masked` is that of an element that it does not see.
    fn results(
        self,
        x: &Tensor,
        row: usize,
        path: Path,
        masked: f32,
        of: impl Fn(&Row) -> Vec<f32>,
    ) -> Vec<f32> {
        let n = x.shape()[x.shape().len() - 1];
        match self.row(x, row, path) {
            Some(row) => {
                let mut y = of(&row);
                y.resize(n, masked);
                y
            }
            None if self.fully_masked == FullyMasked::Nan => vec![f32::NAN; n],
            None => vec![masked; n],
        }
    }

    pub(super) fn evaluate(
        self,
        x: &Tensor,
        path: Path,
        masked: f32,
        of: impl Fn(&Row) -> Vec<f32> + Sync,
    ) -> Result<Vec<Tensor>, TensorError> {
        let n = x.shape()[x.shape().len() - 1];
        let rows = x.len().checked_div(n).unwrap_or(0);
        let codes = |row: usize| {
            self.results(x, row, path, masked, &of)
                .into_iter()
                .map(|y| rounded(self.to, y))
                .collect::<Vec<_>>()
        };
        let codes: Vec<_> = match path {
            Path::Definition => (0..rows).flat_map(codes).collect(),
            Path::Parallel | Path::Simd(_) => (0..rows).into_par_iter().flat_map_iter(codes).collect(),
        };
        Ok(vec![Tensor::from_codes(TensorType::new(self.to, x.shape()), &codes)?])
    }

    /// Intervals of the elements at ascending positions, from those of each row: of `s - max`,
    /// their exponentials, and the sum.
    pub(super) fn enclosure(
        self,
        x: &Tensor,
        positions: &[usize],
        steps: Steps,
        masked: f32,
        of: impl Fn(&Row) -> Vec<f32> + Sync,
        real: impl Fn(Interval, Interval, Interval) -> Interval + Sync,
    ) -> Vec<Interval> {
        let n = x.shape()[x.shape().len() - 1];
        let row = |positions: &[usize]| -> Vec<Interval> {
            let row = positions[0] / n;
            let seen = self.seen(x.shape(), row);
            let s: Vec<_> = (0..seen).map(|j| number(x, self.from, row * n + j)).collect();
            let product = |s: f32| f64::from(s) * f64::from(self.scale);
            let max = s.iter().copied().reduce(if self.scale > 0.0 { f32::max } else { f32::min });
            let max = max.unwrap_or(f32::NEG_INFINITY);
            // A product of -Inf adds nothing; one that overflows is no number of f32.
            let is_special = |&s: &f32| {
                let product = product(s);
                product.is_nan() || product > MAX || product < -MAX && s.is_finite()
            };
            if s.iter().any(is_special) || product(max) < -MAX || seen == 0 || self.scale == 0.0 {
                let canonical = self.results(x, row, Path::Definition, masked, &of);
                return positions.iter().map(|&i| canonical[i % n].into()).collect();
            }
            // Both products may be rounded, or the difference of the elements multiplied.
            let roundoff = if self.scale == 1.0 || steps == Steps::Real { 0.0 } else { U };
            let difference = |&s: &f32| {
                let exact = (Interval::from(s) - max.into()) * self.scale.into();
                let error = roundoff * (product(s).abs() + product(max).abs());
                s.is_finite().then(|| exact.widened(error).rounded(steps, 1.0))
            };
            let d: Vec<_> = s.iter().map(difference).collect();
            let exp = |d: &Option<Interval>| d.map_or(0.0.into(), |d| d.exp(steps));
            let e: Vec<_> = d.iter().map(exp).collect();
            let sum = Interval::sum(&e, steps);
            let element = |&i: &usize| match d.get(i % n) {
                Some(Some(d)) => real(*d, e[i % n], sum),
                _ => masked.into(),
            };
            positions.iter().map(element).collect()
        };
        let rows: Vec<_> = positions.chunk_by(|a, b| a / n == b / n).collect();
        rows.into_par_iter().flat_map_iter(row).collect()
    }
}

/// Elements that reports show of a row: the first of those that an element is made from.
const SHOWN: usize = 4;

/// The element itself and the first ones of its row.
pub(super) fn row_sources(x: &Tensor, index: usize) -> Vec<(usize, usize)> {
    let n = x.shape()[x.shape().len() - 1];
    let first = index / n * n;
    let others = (first..first + n).filter(|&i| i != index).take(SHOWN);
    std::iter::once(index).chain(others).map(|i| (0, i)).collect()
}

/// What the two operations do alike.
macro_rules! softmax_operation {
    ($Name:ident, $masked:expr) => {
        impl Operation for $Name {
            const INPUTS: &'static [&'static str] = &["x"];

            fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
                self.rows().signature(inputs)
            }

            fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
                self.rows().evaluate(&inputs[0], path, $masked, Self::results)
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
                let real = |difference, e, sum| Self::real(difference, e, sum, steps);
                Some(self.rows().enclosure(&inputs[0], positions, steps, $masked, Self::results, real))
            }

            fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
                row_sources(&inputs[0], index)
            }
        }
    };
}
pub(super) use softmax_operation;

impl Softmax {
    fn results(row: &Row) -> Vec<f32> {
        row.e.iter().map(|e| e / row.sum).collect()
    }

    fn real(_: Interval, e: Interval, sum: Interval, steps: Steps) -> Interval {
        // Or by the reciprocal of the sum. No part is more than the whole, but for roundings.
        let part = Interval { low: 0.0, high: 1.0 + 8.0 * U };
        (e / sum).rounded(steps, 2.0).within(part)
    }
}

softmax_operation!(Softmax, 0.0);
