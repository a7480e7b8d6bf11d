//! Masked inputs: `+BIG` at i, `-BIG` at j, units at other products.
//!
//! From where the first of the two is added to where they cancel, the sum is so large that
//! units vanish in it. The output counts the others: those added after i and j have met.
//! Source: FPRev, arXiv:2411.00442.

use super::ProbeError;
use super::target::{Extents, Target, exponents, nearest, power};
use plumbline_reference::format::{F16, Format};

/// A sum of up to as many units as a stretch holds is below `2^-ABSORBED` of `BIG`: f32, and
/// aligned sums of up to 26 fraction bits, lose it.
const ABSORBED: i32 = 26;

/// What stands at a k.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Zero,
    Unit,
    Big { negative: bool },
}

/// Which operand holds the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Rows of a; b is all ones.
    Rows,
    /// Columns of b; a is all ones.
    Columns,
    /// Both, so that magnitudes multiply: every mask has a row and a column.
    Both,
}

/// The masks that suit formats and extents.
pub(super) struct Masks<'a> {
    target: &'a Target<'a>,
    side: Side,
    /// Exponents of BIG and the unit in a and b.
    big: [i32; 2],
    unit: [i32; 2],
    /// So many products have units at once, the others are zero.
    stretch: usize,
}

/// In how large a sum do i and j meet? Only the products that have units, i and j among them,
/// are counted.
pub(super) struct Question<'q> {
    pub(super) pair: (usize, usize),
    pub(super) units: &'q [usize],
}

/// A mask: where BIG and -BIG are, and where units are unless there is one of them.
type Mask<'q> = (Option<(usize, usize)>, &'q [usize]);

impl<'a> Masks<'a> {
    /// The masks that need the fewest calls. Magnitudes stay in the range of f16, which an
    /// accumulator may be.
    pub(super) fn new(target: &'a Target<'a>) -> Result<Self, ProbeError> {
        let k = target.extents().k;
        let ranges = target.factors().map(range);
        let (high, low) = range(F16);
        // The largest number of units that the output tells from its neighbours.
        let counted = 1 << (target.gemm().out.fraction_bits + 1).min(20);
        let choice = |side: Side| {
            let [a, b] = match side {
                Side::Rows => [ranges[0], (0, 0)],
                Side::Columns => [(0, 0), ranges[1]],
                Side::Both => ranges,
            };
            let (big, unit) = (share([a.0, b.0], high), share([a.1, b.1], low));
            let room = (big[0] + big[1]) - (unit[0] + unit[1]) - ABSORBED;
            let stretch = if room < 0 { 0 } else { (1usize << room.min(20)).min(counted).min(k) };
            Self { target, side, big, unit, stretch }
        };
        let all = [Side::Rows, Side::Columns, Side::Both].map(choice);
        let best = all.into_iter().rev().max_by_key(|masks| masks.at_once() * masks.stretch);
        best.filter(|masks| masks.stretch > 0).ok_or_else(|| {
            let [a, b] = target.factors();
            ProbeError::Operation(format!("no value of {a} times one of {b} is lost beside another"))
        })
    }

    /// How many masks one call takes.
    fn at_once(&self) -> usize {
        let Extents { m, n, .. } = self.target.extents();
        match self.side {
            Side::Rows => m,
            Side::Columns => n,
            Side::Both => m.min(n),
        }
    }

    /// Requires that every unit counts once where nothing is masked.
    pub(super) fn check(&self) -> Result<(), ProbeError> {
        let all: Vec<_> = (0..self.target.extents().k).collect();
        let masks: Vec<_> = all.chunks(self.stretch).map(|units| (None, units)).collect();
        let (counted, of) = (self.counts(&masks)?.iter().sum(), all.len());
        if counted == of { Ok(()) } else { Err(ProbeError::Count { counted, of }) }
    }

    /// The answers: how many products the smallest sum has that i and j are both part of.
    pub(super) fn meetings(&self, questions: &[Question<'_>]) -> Result<Vec<usize>, ProbeError> {
        let stretches = |question: &Question<'_>| question.units.len().div_ceil(self.stretch);
        let masks: Vec<_> = questions
            .iter()
            .flat_map(|it| it.units.chunks(self.stretch).map(|units| (Some(it.pair), units)))
            .collect();
        let mut counts = self.counts(&masks)?.into_iter();
        let met = |question: &Question<'_>| {
            question.units.len() - counts.by_ref().take(stretches(question)).sum::<usize>()
        };
        Ok(questions.iter().map(met).collect())
    }

    fn marks(&self, (pair, units): Mask<'_>) -> Vec<Mark> {
        let mut marks = vec![Mark::Zero; self.target.extents().k];
        units.iter().for_each(|&k| marks[k] = Mark::Unit);
        if let Some((i, j)) = pair {
            marks[i] = Mark::Big { negative: false };
            marks[j] = Mark::Big { negative: true };
        }
        marks
    }

    /// The factor of an operand for a mark. Signs and zeros stand in one operand only.
    fn factor(&self, operand: usize, mark: Mark) -> f64 {
        let is_second = operand == 1 && self.side == Side::Both;
        match mark {
            Mark::Zero if is_second => power(self.unit[operand]),
            Mark::Zero => 0.0,
            Mark::Unit => power(self.unit[operand]),
            Mark::Big { negative } if negative && !is_second => -power(self.big[operand]),
            Mark::Big { .. } => power(self.big[operand]),
        }
    }

    /// The units that count under each mask.
    fn counts(&self, masks: &[Mask<'_>]) -> Result<Vec<usize>, ProbeError> {
        let Extents { m, n, .. } = self.target.extents();
        let gemm = self.target.gemm();
        let mut counts = Vec::with_capacity(masks.len());
        for masks in masks.chunks(self.at_once()) {
            let marks: Vec<_> = masks.iter().map(|&mask| self.marks(mask)).collect();
            let code = |operand: usize, format: Format, index: usize, k: usize| {
                let is_constant = self.side == [Side::Columns, Side::Rows][operand];
                let value = match marks.get(index) {
                    _ if is_constant => 1.0,
                    Some(marks) => self.factor(operand, marks[k]),
                    None => 0.0,
                };
                nearest(format, value)
            };
            let inputs =
                self.target.inputs(|m, k| code(0, gemm.a, m, k), |k, n| code(1, gemm.b, n, k), |_, _| 0.0)?;
            let y = self.target.run(&inputs)?;
            let at = |(row, column): (usize, usize)| gemm.out.to_f64(y.code(row * n + column));
            for (i, &mask) in masks.iter().enumerate() {
                let outputs: Vec<_> = match self.side {
                    Side::Rows => (0..n).map(|column| (i, column)).collect(),
                    Side::Columns => (0..m).map(|row| (row, i)).collect(),
                    Side::Both => vec![(i, i)],
                };
                let value = at(outputs[0]);
                counts.push(self.count(mask, value)?);
                if let Some(other) = outputs.iter().position(|&output| at(output) != value) {
                    return Err(ProbeError::Uneven { pair: mask.0, other });
                }
            }
        }
        Ok(counts)
    }

    fn count(&self, (pair, units): Mask<'_>, value: f64) -> Result<usize, ProbeError> {
        let count = value / power(self.unit[0] + self.unit[1]);
        let is_count = (0.0..=units.len() as f64).contains(&count) && count.fract() == 0.0;
        if is_count { Ok(count as usize) } else { Err(ProbeError::NotACount { pair, count }) }
    }
}

/// The largest and the least exponent of a factor; of wide formats no more than needed.
fn range(format: Format) -> (i32, i32) {
    let (high, _, low) = exponents(format);
    (high.min(30), low.max(-30))
}

/// An exponent of a product as near to the limit as the most that its factors have allows, in
/// shares as equal as these allow.
fn share(most: [i32; 2], limit: i32) -> [i32; 2] {
    let sign = limit.signum();
    let [a, b] = most.map(|exponent| exponent * sign);
    let sum = (limit * sign).min(a + b);
    let first = (sum - sum / 2).min(a).max(sum - b);
    [first, sum - first].map(|exponent| exponent * sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_shared() {
        assert_eq!(share([15, 15], 15), [8, 7]);
        assert_eq!(share([15, 0], 15), [15, 0]);
        assert_eq!(share([-9, -16], -24), [-9, -15]);
        assert_eq!(share([-9, -9], -24), [-9, -9]);
        assert_eq!(share([0, -30], -24), [0, -24]);
    }
}
