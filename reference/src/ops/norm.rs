//! What `rms_norm` and `layer_norm` have in common: formats, sums, rows, and how rows are judged.

use super::activation::{check_format, encode, floats, number, rounded};
use super::gemm::Bits32;
use super::row::{self, LANES};
use super::{Inputs, SignatureError};
use crate::fast::{Row, Simd, rows};
use crate::format::Format;
use crate::interval::{Interval, Steps};
use crate::{DType, Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;

/// Results that are narrowed in one go.
const CHUNK: usize = 1 << 12;

/// Formats of x, of the vectors beside it, and of the result.
#[derive(Clone, Copy)]
pub(super) struct Formats {
    pub(super) from: Format,
    pub(super) weight: Option<Format>,
    pub(super) bias: Option<Format>,
    pub(super) to: Format,
}

impl Formats {
    /// Names of the inputs.
    pub(super) fn names(self) -> Vec<&'static str> {
        let vectors = [("weight", self.weight), ("bias", self.bias)];
        let given = vectors.into_iter().filter_map(|(name, format)| format.map(|_| name));
        ["x"].into_iter().chain(given).collect()
    }

    /// Position of the weight and of the bias among the inputs.
    fn positions(self) -> [Option<usize>; 2] {
        let bias = self.bias.map(|_| 1 + usize::from(self.weight.is_some()));
        [self.weight.map(|_| 1), bias]
    }

    /// Requires x `[.., n]` and vectors `[n]`.
    pub(super) fn signature(
        self,
        inputs: &Inputs<'_>,
        eps: Bits32,
    ) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(self.names().len())?;
        let fields =
            [("from", Some(self.from)), ("weight", self.weight), ("bias", self.bias), ("to", Some(self.to))];
        for (field, format) in fields {
            format.map_or(Ok(()), |format| check_format(inputs, field, format))?;
        }
        if !(0.0..=f32::MAX).contains(&eps.0) {
            return Err(inputs.parameter_error("eps", format!("is {}, expected a number from 0", eps.0)));
        }
        let shape = inputs.dtype(0, self.from)?;
        let Some(&n) = shape.last() else {
            return Err(inputs.shape_error(0, "[.., n]".to_owned()));
        };
        for (format, position) in [self.weight, self.bias].into_iter().zip(self.positions()) {
            if let (Some(format), Some(position)) = (format, position) {
                inputs.exactly(position, format, &[&[n]])?;
            }
        }
        Ok(vec![TensorType::new(self.to, shape)])
    }

    /// The element itself and those of the vectors; the rest of its row goes without saying.
    pub(super) fn sources(self, inputs: &[Tensor], index: usize) -> Vec<(usize, usize)> {
        let column = index % length(&inputs[0]);
        let vectors = self.positions().into_iter().flatten().map(|position| (position, column));
        [(0, index)].into_iter().chain(vectors).collect()
    }

    /// The vectors as numbers.
    pub(super) fn vectors(self, inputs: &[Tensor]) -> [Option<Vec<f32>>; 2] {
        let of = |format: Option<Format>, position: Option<usize>| {
            let (format, vector) = (format?, &inputs[position?]);
            Some((0..vector.len()).map(|i| number(vector, format, i)).collect())
        };
        let [weight, bias] = self.positions();
        [of(self.weight, weight), of(self.bias, bias)]
    }

    /// What `definition` gives of each row, or `fast`, its twin on SIMD registers.
    pub(super) fn evaluate(
        self,
        inputs: &[Tensor],
        path: Path,
        definition: impl Fn(&[f32]) -> Vec<f32> + Sync,
        fast: impl Row,
    ) -> Result<Vec<Tensor>, TensorError> {
        let x = &inputs[0];
        let ty = TensorType::new(self.to, x.shape());
        let n = length(x);
        if let Path::Simd(simd) = path {
            return Ok(vec![self.fast(x, n, simd, ty, fast)?]);
        }
        if x.is_empty() {
            return Ok(vec![Tensor::from_codes(ty, &[])?]);
        }
        let of_row = |row: usize| -> Vec<u64> {
            let y = definition(&self.row(x, row));
            y.into_iter().map(|y| rounded(self.to, y)).collect()
        };
        let count = x.len() / n;
        let codes: Vec<u64> = if path == Path::Definition {
            (0..count).flat_map(of_row).collect()
        } else {
            (0..count).into_par_iter().flat_map_iter(of_row).collect()
        };
        Ok(vec![Tensor::from_codes(ty, &codes)?])
    }

    fn fast(
        self,
        x: &Tensor,
        n: usize,
        simd: Simd,
        ty: TensorType,
        function: impl Row,
    ) -> Result<Tensor, TensorError> {
        let x = floats(simd, self.from, &x.packed());
        let mut y = vec![0.0; x.len()];
        rows(simd, function, &x, n, &mut y);
        let width = DType::from(self.to).bytes();
        let mut bytes = vec![0; y.len() * width];
        bytes.par_chunks_mut(CHUNK * width).zip(y.par_chunks_mut(CHUNK)).for_each(|(out, y)| {
            y.iter_mut().filter(|y| y.is_nan()).for_each(|y| *y = f32::from_bits(0x7fff_ffff));
            encode(simd, self.to, y, out);
        });
        Tensor::from_bytes(ty, bytes)
    }

    /// A row as numbers.
    fn row(self, x: &Tensor, row: usize) -> Vec<f32> {
        let n = length(x);
        (row * n..(row + 1) * n).map(|i| number(x, self.from, i)).collect()
    }

    /// Enclosures by the definition over intervals of each row: `of_row` gives those of its
    /// elements by their columns. Where the canonical result is NaN, a row or a vector's element
    /// not finite, or the definition over intervals says nothing, the canonical result is right.
    pub(super) fn enclosure<R: Fn(usize) -> Interval>(
        self,
        inputs: &[Tensor],
        positions: &[usize],
        canonical: impl Fn(&[f32]) -> Vec<f32> + Sync,
        of_row: impl Fn(&[f32]) -> Option<R> + Sync,
    ) -> Vec<Interval> {
        let n = length(&inputs[0]);
        let [weight, bias] = self.vectors(inputs);
        let is_finite = |vector: &Option<Vec<f32>>, column: usize| {
            vector.as_ref().is_none_or(|vector| vector[column].is_finite())
        };
        let same_row = |a: &usize, b: &usize| a / n == b / n;
        let by_row: Vec<_> = positions.chunk_by(same_row).collect();
        let of_positions = |positions: &&[usize]| -> Vec<Interval> {
            let x = self.row(&inputs[0], positions[0] / n);
            let real = if x.iter().all(|x| x.is_finite()) { of_row(&x) } else { None };
            let canonical = canonical(&x);
            let element = |&position: &usize| {
                let column = position % n;
                let own = Interval::from(canonical[column]);
                let is_number = own.is_number() && is_finite(&weight, column) && is_finite(&bias, column);
                let real = real.as_ref().filter(|_| is_number);
                real.map(|real| real(column)).filter(|real| real.is_number()).unwrap_or(own)
            };
            positions.iter().map(element).collect()
        };
        by_row.par_iter().flat_map_iter(of_positions).collect()
    }
}

/// Elements of a row.
fn length(x: &Tensor) -> usize {
    x.shape().last().copied().unwrap_or(1)
}

/// Adds `term`, or its square, to a lane whose rounding error so far is `error`: Kahan's sum.
///
/// An error that is not finite counts as none, so that a sum that overflows is infinite.
#[inline(always)]
fn add_compensated(lane: &mut f32, error: &mut f32, term: f32, square: bool) {
    let y = if square { term.mul_add(term, -*error) } else { term - *error };
    let sum = *lane + y;
    let left = (sum - *lane) - y;
    *error = if left.abs() <= f32::MAX { left } else { 0.0 };
    *lane = sum;
}

/// The sum of the terms, or of their squares, in the order of `row`; `compensated`: with Kahan's
/// sum in each lane.
pub(super) fn sum(terms: &[f32], square: bool, compensated: bool) -> f32 {
    match (square, compensated) {
        (false, false) => row::sum(terms),
        (true, false) => row::sum_of_squares(terms),
        (_, true) => {
            let (mut lanes, mut errors) = ([0.0; LANES], [0.0; LANES]);
            for (i, &term) in terms.iter().enumerate() {
                add_compensated(&mut lanes[i % LANES], &mut errors[i % LANES], term, square);
            }
            row::tree(lanes)
        }
    }
}

/// The same of `x - mean`, in loops that are vectorised.
#[inline(always)]
pub(super) fn fast_sum(terms: &[f32], mean: f32, square: bool, compensated: bool) -> f32 {
    let (mut lanes, mut errors) = ([0.0; LANES], [0.0; LANES]);
    let (whole, rest) = terms.as_chunks::<LANES>();
    for terms in whole {
        add_all(&mut lanes, &mut errors, terms, mean, square, compensated);
    }
    add_all(&mut lanes, &mut errors, rest, mean, square, compensated);
    let mut half = LANES / 2;
    while half > 0 {
        let (lower, upper) = lanes.split_at_mut(half);
        for i in 0..half {
            lower[i] += upper[i];
        }
        half /= 2;
    }
    lanes[0]
}

/// Adds a term to each of the first lanes.
#[inline(always)]
fn add_all(
    lanes: &mut [f32; LANES],
    errors: &mut [f32; LANES],
    terms: &[f32],
    mean: f32,
    square: bool,
    compensated: bool,
) {
    let count = terms.len();
    let (lanes, errors) = (&mut lanes[..count], &mut errors[..count]);
    for i in 0..count {
        let term = terms[i] - mean;
        if compensated {
            add_compensated(&mut lanes[i], &mut errors[i], term, square);
        } else {
            lanes[i] = if square { term.mul_add(term, lanes[i]) } else { lanes[i] + term };
        }
    }
}

/// Roundings that each term of a sum of n goes through at most: in any order; or compensated, two and
/// a tree over up to 2^16 lanes.
pub(super) fn roundings(n: usize, compensated: bool) -> f64 {
    if compensated { (n as f64).min(20.0) } else { n as f64 }
}

/// `1 / sqrt(x)`: an implementation may be 2 ulp off, what CUDA documents of its `rsqrtf`.
pub(super) fn rsqrt(x: Interval, steps: Steps) -> Interval {
    (Interval::from(1.0) / x.sqrt()).rounded(steps, 4.0)
}

/// `x * r * weight + bias`, with either product first.
pub(super) fn scaled(
    x: Interval,
    r: Interval,
    weight: Option<f32>,
    bias: Option<f32>,
    steps: Steps,
) -> Interval {
    let plain = (x * r).rounded(steps, 1.0);
    let product = match weight.map(Interval::from) {
        None => plain,
        Some(weight) => {
            let first = (plain * weight).rounded(steps, 1.0);
            let other = (x * (r * weight).rounded(steps, 1.0)).rounded(steps, 1.0);
            // What is special one way only says nothing of the other.
            if other.is_number() { first.hull(other) } else { first }
        }
    };
    bias.map_or(product, |bias| (product + bias.into()).rounded(steps, 1.0))
}
