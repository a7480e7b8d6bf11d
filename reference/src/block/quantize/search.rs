//! Searches for a group's scale: least squares over a few candidates.
//!
//! Formulas and edges are in the documentation of the [module above](super).

use super::extreme;

/// Below this a group counts as zeros.
pub(super) const NEGLIGIBLE: f32 = 1e-15;

/// The nearest integer, ties to even, up to 2^22 - 1 in magnitude; 0 for NaN.
pub(super) fn nearest(x: f32) -> i32 {
    const LIMIT: f32 = 4_194_303.0;
    x.round_ties_even().clamp(-LIMIT, LIMIT) as i32
}

/// The sums of which least squares are made: `sum w x q` and `sum w q q`.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) xq: f32,
    pub(super) qq: f32,
}

/// Their terms for a value whose weight is its square; products from left to right.
fn terms(x: f32, q: f32) -> Sums {
    let w = x * x;
    Sums { xq: w * x * q, qq: w * q * q }
}

impl Sums {
    fn plus(self, terms: Self) -> Self {
        Self { xq: self.xq + terms.xq, qq: self.qq + terms.qq }
    }

    fn minus(self, terms: Self) -> Self {
        Self { xq: self.xq - terms.xq, qq: self.qq - terms.qq }
    }

    /// The scale at which `sum w (x - scale q)^2` is least.
    fn scale(self) -> f32 {
        self.xq / self.qq
    }
}

/// The best of some candidates, all of which are inverse scales: `quant` says what x times one
/// becomes, `terms` what that adds to the sums. Returns the scale, and the candidate.
pub(super) fn best_inverse(
    x: &[f32],
    quant: impl Fn(f32) -> f32,
    terms: impl Fn(f32, f32) -> Sums,
    first: f32,
    others: impl Iterator<Item = f32>,
) -> (f32, f32) {
    let sums =
        |inverse: f32| x.iter().fold(Sums::default(), |sums, &x| sums.plus(terms(x, quant(inverse * x))));
    let start = sums(first);
    let (mut scale, mut chosen) = (if start.qq == 0.0 { 0.0 } else { start.scale() }, first);
    let mut best = scale * start.xq;
    for inverse in others {
        let sums = sums(inverse);
        if sums.qq > 0.0 && sums.xq * sums.xq > best * sums.qq {
            (scale, chosen) = (sums.scale(), inverse);
            best = scale * sums.xq;
        }
    }
    (scale, chosen)
}

/// A scale for integers from -n to n - 1, and the integers: symmetric.
pub(super) fn symmetric(x: &[f32], n: i32, quants: &mut [i32]) -> f32 {
    let max = extreme(x);
    if max.abs() < NEGLIGIBLE {
        quants.fill(-n);
        return 0.0;
    }
    let quant = |x: f32| nearest(x).clamp(-n, n - 1);
    let steps = (-9..=9).filter(|&i| i != 0);
    let others = steps.map(|i| -(n as f32 + 0.1 * i as f32) / max);
    let (scale, inverse) = best_inverse(x, |x| quant(x) as f32, terms, -n as f32 / max, others);
    for (q, x) in quants.iter_mut().zip(x) {
        *q = quant(inverse * x);
    }
    scale
}

/// A scale for integers from -n to n - 1, and the integers: one at a time.
pub(super) fn one_at_a_time(x: &[f32], n: i32, quants: &mut [i32]) -> f32 {
    let max = extreme(x);
    if max.abs() < NEGLIGIBLE {
        quants.fill(-n);
        return 0.0;
    }
    let quant = |x: f32| nearest(x).clamp(-n, n - 1);
    let inverse = -n as f32 / max;
    for (q, x) in quants.iter_mut().zip(x) {
        *q = quant(inverse * x);
    }
    let pairs = x.iter().zip(&*quants);
    let mut sums = pairs.fold(Sums::default(), |sums, (&x, &q)| sums.plus(terms(x, q as f32)));
    for _ in 0..5 {
        let mut changed = false;
        for (q, &x) in quants.iter_mut().zip(x) {
            let rest = sums.minus(terms(x, *q as f32));
            let better = quant(x * rest.qq / rest.xq);
            let new = rest.plus(terms(x, better as f32));
            let is_better = new.qq > 0.0 && new.xq * new.xq * sums.qq > sums.xq * sums.xq * new.qq;
            if rest.xq > 0.0 && better != *q && is_better {
                (*q, sums, changed) = (better, new, true);
            }
        }
        if !changed {
            break;
        }
    }
    if sums.qq > 0.0 { sums.scale() } else { 0.0 }
}

/// How a scale and a min are searched for.
pub(super) struct WithMin {
    /// Integers go from 0 to this.
    pub(super) n: u8,
    /// Candidates are `((first + step * i) + n) / (max - min)`, i from 0 to `steps`.
    pub(super) first: f32,
    pub(super) step: f32,
    pub(super) steps: u8,
    /// Errors count by their squares, else by their magnitudes.
    pub(super) squares: bool,
}

impl WithMin {
    /// Scale and min at which `scale * q + min` is near x, and the integers.
    pub(super) fn search(&self, x: &[f32], weights: &[f32], quants: &mut [i32]) -> (f32, f32) {
        let smallest = x.iter().fold(x[0], |min, &x| if x < min { x } else { min });
        let largest = x.iter().fold(x[0], |max, &x| if x > max { x } else { max });
        let mut min = if smallest > 0.0 { 0.0 } else { smallest };
        if largest == min {
            quants.fill(0);
            return (0.0, min);
        }
        let n = f32::from(self.n);
        let totals = totals(x, weights);
        let quants_of = |inverse: f32, min: f32, quants: &mut [i32]| {
            for (q, x) in quants.iter_mut().zip(x) {
                *q = nearest(inverse * (x - min)).clamp(0, self.n.into());
            }
        };
        let error = |scale: f32, min: f32, quants: &[i32]| {
            x.iter().zip(weights).zip(quants).fold(0.0, |sum, ((x, w), &q)| {
                let difference = scale * q as f32 + min - x;
                sum + w * if self.squares { difference * difference } else { difference.abs() }
            })
        };
        let inverse = n / (largest - min);
        let mut scale = 1.0 / inverse;
        quants_of(inverse, min, quants);
        let mut least = error(scale, min, quants);
        let mut candidate = quants.to_vec();
        for i in 0..=self.steps {
            let inverse = (self.first + self.step * f32::from(i) + n) / (largest - min);
            quants_of(inverse, min, &mut candidate);
            let Some((new_scale, new_min)) = least_squares(x, weights, totals, &candidate) else { continue };
            let new_error = error(new_scale, new_min, &candidate);
            if new_error < least {
                (least, scale, min) = (new_error, new_scale, new_min);
                quants.copy_from_slice(&candidate);
            }
        }
        (scale, min)
    }
}

/// `sum w` and `sum w x`; each begins as its first term.
fn totals(x: &[f32], weights: &[f32]) -> (f32, f32) {
    let first = (weights[0], weights[0] * x[0]);
    x.iter().zip(weights).skip(1).fold(first, |(sum_w, sum_x), (x, w)| (sum_w + w, sum_x + w * x))
}

/// Scale and min of least squares for given integers; `None` unless D > 0.
fn least_squares(
    x: &[f32],
    weights: &[f32],
    (sum_w, sum_x): (f32, f32),
    quants: &[i32],
) -> Option<(f32, f32)> {
    let (mut sum_q, mut sum_qq, mut sum_qx) = (0.0, 0.0, 0.0);
    for ((x, w), &q) in x.iter().zip(weights).zip(quants) {
        let q = q as f32;
        sum_q += w * q;
        sum_qq += w * q * q;
        sum_qx += w * q * x;
    }
    let determinant = sum_w * sum_qq - sum_q * sum_q;
    let scale = (sum_w * sum_qx - sum_x * sum_q) / determinant;
    let min = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
    let found = if min > 0.0 { (sum_qx / sum_qq, 0.0) } else { (scale, min) };
    (determinant > 0.0).then_some(found)
}
