//! Judging by the definition over intervals: an element is right where it is the rounding of a
//! number that an implementation may reach.

use crate::product::{Judged, Wrong};
use crate::seed::{hash, mix};
use plumbline_reference::Tensor;
use plumbline_reference::format::{Format, Policy, Value};
use plumbline_reference::interval::{Interval, Steps};
use plumbline_reference::ops::Op;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Terms up to which every element is judged.
const WHOLE: usize = 1 << 26;
/// Rows that are drawn from an output with more.
const ROWS: usize = 192;

/// Judges an output whose operation has enclosures.
pub(crate) fn judge(op: &Op, inputs: &[Tensor], output: usize, actual: &Tensor) -> Judged {
    let Some(format) = actual.dtype().format() else {
        return Judged {
            impossible: Some(format!("{} has no numbers", actual.dtype())),
            ..Judged::default()
        };
    };
    if actual.is_empty() {
        return Judged::of_nothing();
    }
    let sample = Sample::of(op, inputs, actual.shape());
    let enclosures = |steps| op.enclosure(inputs, output, &sample.positions, steps);
    let (Some(reached), Some(exact)) = (enclosures(Steps::F32), enclosures(Steps::Real)) else {
        let why = format!("{} has no bound with these parameters", op.name());
        return Judged { impossible: Some(why), ..Judged::default() };
    };
    let mut judged = Judged { bit_exact: true, guarantee: sample.guarantee, ..Judged::default() };
    judged.elements = sample.positions.len();
    for ((&position, reached), exact) in sample.positions.iter().zip(&reached).zip(&exact) {
        let got = actual.code(position);
        let right = encoded(format, exact.middle());
        judged.bit_exact &= got == right;
        let (ok, ratio) = accepts(format, got, *reached, exact.middle());
        if !ok {
            judged.wrong.push(Wrong { position, right, got });
        }
        if let Some(ratio) = ratio {
            judged.max_error_over_bound = Some(judged.max_error_over_bound.unwrap_or(0.0).max(ratio));
        }
    }
    // What is known of every element finds what a sample misses.
    if judged.elements < actual.len()
        && let Some(limits) = op.limits(inputs, output)
    {
        let outside = (0..actual.len()).into_par_iter().filter(|&position| {
            let limit = limits[position];
            !limit.radius().is_infinite() && !accepts(format, actual.code(position), limit, limit.middle()).0
        });
        let known: BTreeSet<_> = judged.wrong.iter().map(|wrong| wrong.position).collect();
        let outside: Vec<_> = outside.filter(|position| !known.contains(position)).collect();
        let exact = op.enclosure(inputs, output, &outside[..outside.len().min(16)], Steps::Real);
        for (i, &position) in outside.iter().enumerate() {
            let middle = exact.as_ref().and_then(|exact| exact.get(i)).copied().unwrap_or(limits[position]);
            let right = encoded(format, middle.middle());
            judged.wrong.push(Wrong { position, right, got: actual.code(position) });
        }
        judged.guarantee += "; all others within the limits of their inputs";
    }
    judged
}

fn encoded(format: Format, x: f64) -> u64 {
    format.encode(Value::from(x), &Policy::IEEE, 0)
}

/// Whether `got` is the rounding of a number in the interval, and its distance from the exact
/// value over the farthest that is right.
fn accepts(format: Format, got: u64, reached: Interval, exact: f64) -> (bool, Option<f64>) {
    let value = format.decode(got);
    if !reached.is_number() || value.is_nan() {
        return (!reached.is_number() && value.is_nan(), None);
    }
    let (low, high) = (encoded(format, reached.low), encoded(format, reached.high));
    let ok = (format.ordinal(low)..=format.ordinal(high)).contains(&format.ordinal(got));
    let farthest =
        [low, high].map(|code| (format.to_f64(code) - exact).abs()).into_iter().fold(0.0, f64::max);
    let distance = (value.to_f64() - exact).abs();
    let ratio = if distance == 0.0 { 0.0 } else { distance / farthest };
    (ok, (distance.is_finite() && farthest.is_finite()).then_some(ratio))
}

/// The elements that are judged.
struct Sample {
    /// Row-major positions, ascending.
    positions: Vec<usize>,
    guarantee: String,
}

impl Sample {
    /// All elements where they are cheap; else those of the first and last rows, of rows at the
    /// borders of tiles, and of rows drawn uniformly.
    fn of(op: &Op, inputs: &[Tensor], shape: &[usize]) -> Self {
        let elements: usize = shape.iter().product();
        let length = shape.last().copied().unwrap_or(1);
        let rows = elements / length;
        if elements.saturating_mul(op.terms(inputs)) <= WHOLE || rows <= ROWS {
            return Self {
                positions: (0..elements).collect(),
                guarantee: format!("all {elements} elements judged"),
            };
        }
        // The same rows for every backend, others for other inputs.
        let seed = inputs[0].codes().take(16).fold(hash("rows"), mix);
        let borders =
            [1, 8, 16, 32, 64, 128, 256].into_iter().flat_map(|tile| [tile - 1, tile, rows - tile.min(rows)]);
        let drawn = (0..ROWS as u64).map(|i| (mix(seed, i) % rows as u64) as usize);
        let chosen: BTreeSet<_> = borders.filter(|&row| row < rows).chain(drawn).collect();
        let share = 1.0 - 0.001f64.powf(1.0 / ROWS as f64);
        let guarantee = format!(
            "all elements of {} of {rows} rows judged, {ROWS} of them drawn uniformly: a fault of {:.1}% of the rows \
             is found with 99.9%",
            chosen.len(),
            100.0 * share,
        );
        Self {
            positions: chosen.iter().flat_map(|row| row * length..(row + 1) * length).collect(),
            guarantee,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accepts;
    use plumbline_reference::format::{BF16, F32};
    use plumbline_reference::interval::Interval;

    const fn interval(low: f64, high: f64) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn right_are_the_roundings_of_numbers_inside() {
        let code = |x: f32| u64::from(x.to_bits());
        let near = interval(1.0, 1.0 + 1e-7);
        for (x, right) in [(1.0, true), (1.0 + f32::EPSILON, true), (1.0 - f32::EPSILON, false), (1.1, false)]
        {
            assert_eq!(accepts(F32, code(x), near, 1.0).0, right, "{x}");
        }
        assert!(!accepts(F32, code(f32::NAN), near, 1.0).0);
        assert!(!accepts(F32, code(f32::NAN), interval(f64::NEG_INFINITY, f64::INFINITY), 1.0).0);
        // The sign of zero counts, and an infinity only where it may be reached.
        assert!(!accepts(F32, code(0.0), interval(-1e-3, -0.0), -1e-4).0);
        assert!(accepts(F32, code(-0.0), interval(-1e-3, -0.0), -1e-4).0);
        assert!(accepts(F32, code(f32::INFINITY), interval(1.0, f64::INFINITY), 2.0).0);
        assert!(!accepts(F32, code(f32::INFINITY), interval(1.0, 3e38), 2.0).0);
        // Special values are right alone.
        assert!(accepts(F32, code(f32::NAN), interval(f64::NAN, f64::NAN), f64::NAN).0);
        assert!(!accepts(F32, code(0.0), interval(f64::NAN, f64::NAN), f64::NAN).0);
        assert!(!accepts(F32, code(f32::MAX), interval(f64::INFINITY, f64::INFINITY), f64::INFINITY).0);
        // One rounding to bf16, of any number inside.
        assert!(accepts(BF16, 0x3f80, interval(1.0, 1.003), 1.001).0);
        assert!(!accepts(BF16, 0x3f81, interval(1.0, 1.003), 1.001).0);
        assert_eq!(accepts(F32, code(1.5), interval(1.0, 2.0), 1.25).1, Some(0.25 / 0.75));
    }
}
