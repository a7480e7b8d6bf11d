//! Shrinking: fewer elements, then default parameters, then fewer bits set, over and
//! over until nothing simpler is left to try.

use super::sample::{Parts, Sample};
use super::target::Scope;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{Granularity, Op};
use proptest::strategy::ValueTree;
use std::fmt;

/// A sample on its way to the simplest one that fails.
pub(super) struct Shrinking<'a> {
    scope: &'a Scope,
    /// The simplest that is known to fail.
    best: Sample,
    /// `best` with an edit, being tried.
    candidate: Option<Sample>,
    edits: std::vec::IntoIter<Edit>,
    /// Whether an edit of this round was of use.
    progress: bool,
}

/// Most samples that shrinking tries.
const MAX_TRIES: usize = 20_000;

/// The simplest sample that fails, from the tree of one that does.
pub(super) fn shrink(mut tree: impl ValueTree<Value = Sample>, fails: impl Fn(&Sample) -> bool) -> Sample {
    let mut simplest = tree.current();
    let mut more = tree.simplify();
    for _ in 0..MAX_TRIES {
        if !more {
            break;
        }
        let candidate = tree.current();
        more = if fails(&candidate) {
            simplest = candidate;
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    simplest
}

/// A way to make a sample simpler.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    /// Leave out groups.
    DropGroups { from: usize, count: usize },
    /// Leave out elements of every group.
    DropColumns { from: usize, count: usize },
    /// As few dimensions as the operation allows.
    Flatten,
    /// A parameter at its default.
    Parameter(String),
    /// An element as zero.
    Zero(usize),
    /// A bit of an element cleared.
    ClearBit(usize, u64),
    /// A scale of 1.
    UnitScale(usize),
    /// A bit of a scale cleared.
    ClearScaleBit(usize, u64),
    /// A random word of zero.
    NoRandom(usize),
    /// A bit of a random word cleared.
    ClearRandomBit(usize, u64),
}

impl<'a> Shrinking<'a> {
    pub(super) fn new(scope: &'a Scope, sample: Sample) -> Self {
        let edits = edits(&sample).into_iter();
        Self { scope, best: sample, candidate: None, edits, progress: false }
    }

    /// On to the next edit that changes something.
    fn advance(&mut self) -> bool {
        loop {
            let Some(edit) = self.edits.next() else {
                if !std::mem::take(&mut self.progress) {
                    return false;
                }
                self.edits = edits(&self.best).into_iter();
                continue;
            };
            let candidate = edit.apply(&self.best).filter(|sample| {
                *sample != self.best
                    && (sample.op == self.best.op || self.scope.allows(&sample.op))
                    && sample.fits()
            });
            if candidate.is_some() {
                self.candidate = candidate;
                return true;
            }
        }
    }
}

impl fmt::Debug for Shrinking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shrinking").field("best", &self.best).finish_non_exhaustive()
    }
}

impl ValueTree for Shrinking<'_> {
    type Value = Sample;

    fn current(&self) -> Sample {
        self.candidate.as_ref().unwrap_or(&self.best).clone()
    }

    fn simplify(&mut self) -> bool {
        if let Some(candidate) = self.candidate.take() {
            self.best = candidate;
            self.progress = true;
        }
        self.advance()
    }

    fn complicate(&mut self) -> bool {
        self.candidate.take().is_some() && self.advance()
    }
}

fn edits(sample: &Sample) -> Vec<Edit> {
    let parts = Parts::of(&sample.op);
    let groups = parts.groups(&sample.shape);
    let extent = sample.x.len().checked_div(groups).unwrap_or(0);
    let mut edits: Vec<_> = chunks(groups).map(|(from, count)| Edit::DropGroups { from, count }).collect();
    edits.extend(chunks(extent).map(|(from, count)| Edit::DropColumns { from, count }));
    edits.push(Edit::Flatten);
    edits.extend(parameters(&sample.op).into_iter().map(Edit::Parameter));
    for (i, &code) in sample.scales.iter().enumerate().filter(|&(_, &code)| code != ONE) {
        edits.push(Edit::UnitScale(i));
        edits.extend(bits(code, F32.sign_bit()).map(|bit| Edit::ClearScaleBit(i, bit)));
    }
    let sign = parts.from.map_or(0, |from| from.sign_bit());
    for (i, &code) in sample.x.iter().enumerate().filter(|&(_, &code)| code != 0) {
        edits.push(Edit::Zero(i));
        edits.extend(bits(code, sign).map(|bit| Edit::ClearBit(i, bit)));
    }
    for (i, &code) in sample.random.iter().enumerate().filter(|&(_, &code)| code != 0) {
        edits.push(Edit::NoRandom(i));
        edits.extend(bits(code, 0).map(|bit| Edit::ClearRandomBit(i, bit)));
    }
    edits
}

/// A scale of 1.
const ONE: u64 = 0x3f80_0000;

/// Pieces to leave out of `n`: halves, then smaller ones down to single elements, the
/// last first, so that what is left keeps its place.
fn chunks(n: usize) -> impl Iterator<Item = (usize, usize)> {
    let sizes = std::iter::successors(Some(n / 2), |size| Some(size / 2)).take_while(|&size| size > 0);
    sizes.flat_map(move |size| (0..n.div_ceil(size)).rev().map(move |i| (i * size, size)))
}

/// The set bits of a code: its sign first, then the lowest.
fn bits(code: u64, sign: u64) -> impl Iterator<Item = u64> {
    let others = (0..u64::BITS).map(|bit| 1 << bit).filter(move |&bit| bit != sign);
    [sign].into_iter().chain(others).filter(move |&bit| code & bit != 0)
}

/// Names of an operation's parameters.
fn parameters(op: &Op) -> Vec<String> {
    let written = serde_json::to_value(op).unwrap_or_default();
    written[op.name()].as_object().map_or_else(Vec::new, |fields| fields.keys().cloned().collect())
}

/// The operation with a parameter at its default, where it has one.
fn at_default(op: &Op, parameter: &str) -> Option<Op> {
    let mut written = serde_json::to_value(op).ok()?;
    written[op.name()].as_object_mut()?.remove(parameter);
    serde_json::from_value(written).ok()
}

impl Edit {
    /// The simpler sample; `None` where the edit does not apply.
    fn apply(&self, sample: &Sample) -> Option<Sample> {
        match *self {
            Self::DropGroups { from, count } => {
                keep(sample, |group, _| !(from..from + count).contains(&group))
            }
            Self::DropColumns { from, count } => {
                keep(sample, |_, column| !(from..from + count).contains(&column))
            }
            Self::Flatten => keep(sample, |_, _| true),
            Self::Parameter(ref name) => {
                let op = at_default(&sample.op, name)?;
                let parts = Parts::of(&op);
                let random = if parts.stochastic { sample.random.clone() } else { Vec::new() };
                let scales = sample.scales.clone();
                Some(Sample { op, shape: sample.shape.clone(), x: sample.x.clone(), scales, random })
            }
            Self::Zero(i) => with_x(sample, i, |_| 0),
            Self::ClearBit(i, bit) => with_x(sample, i, |code| code & !bit),
            Self::UnitScale(i) => with_scale(sample, i, |_| ONE),
            Self::ClearScaleBit(i, bit) => {
                with_scale(sample, i, |code| if code == ONE { code } else { code & !bit })
            }
            Self::NoRandom(i) => with_random(sample, i, |_| 0),
            Self::ClearRandomBit(i, bit) => with_random(sample, i, |word| word & !bit),
        }
    }
}

fn with_x(sample: &Sample, i: usize, change: impl Fn(u64) -> u64) -> Option<Sample> {
    let mut sample = sample.clone();
    changed(sample.x.get_mut(i)?, change)?;
    Some(sample)
}

fn with_scale(sample: &Sample, i: usize, change: impl Fn(u64) -> u64) -> Option<Sample> {
    let mut sample = sample.clone();
    changed(sample.scales.get_mut(i)?, change)?;
    Some(sample)
}

fn with_random(sample: &Sample, i: usize, change: impl Fn(u64) -> u64) -> Option<Sample> {
    let mut sample = sample.clone();
    changed(sample.random.get_mut(i)?, change)?;
    Some(sample)
}

fn changed(code: &mut u64, change: impl Fn(u64) -> u64) -> Option<()> {
    let before = std::mem::replace(code, change(*code));
    (*code != before).then_some(())
}

/// The sample with some of its groups and of the elements of each, in as few dimensions
/// as its operation allows. Never without any element.
fn keep(sample: &Sample, keeps: impl Fn(usize, usize) -> bool) -> Option<Sample> {
    let parts = Parts::of(&sample.op);
    let groups = parts.groups(&sample.shape);
    let extent = sample.x.len().checked_div(groups).filter(|&extent| extent > 0)?;
    // Dropping columns drops them from every group, so the first of each is telling.
    let kept_groups: Vec<_> =
        (0..groups).filter(|&group| (0..extent).any(|column| keeps(group, column))).collect();
    let first = *kept_groups.first()?;
    let columns: Vec<_> = (0..extent).filter(|&column| keeps(first, column)).collect();
    if matches!(parts.granularity, Granularity::Block(_)) && columns.len() != extent {
        return None;
    }
    let select = |codes: &[u64]| -> Vec<u64> {
        let of_group = |&group: &usize| columns.iter().map(move |column| group * extent + column);
        kept_groups.iter().flat_map(of_group).filter_map(|i| codes.get(i).copied()).collect()
    };
    let shape = match parts.granularity {
        Granularity::Tensor => vec![columns.len()],
        Granularity::Row => vec![kept_groups.len(), columns.len()],
        Granularity::Block(n) => vec![1, kept_groups.len() * n],
    };
    let scales = kept_groups.iter().filter_map(|&group| sample.scales.get(group).copied()).collect();
    Some(Sample {
        op: sample.op.clone(),
        shape,
        x: select(&sample.x),
        scales,
        random: select(&sample.random),
    })
}
