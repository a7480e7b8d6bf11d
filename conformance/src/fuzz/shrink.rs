//! Shrinking: fewer elements, then default parameters, then fewer bits set, over and
//! over until nothing simpler is left to try.

use super::sample::{Parts, Sample, types};
use super::target::Scope;
use super::{blocks, layers, mx, product};
use plumbline_reference::DType;
use plumbline_reference::ops::{Granularity, Op};
use proptest::strategy::ValueTree;
use std::fmt;
use std::time::{Duration, Instant};

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

/// How long shrinking goes on at most: each try that hangs takes its time to be given up.
const MAX_TIME: Duration = Duration::from_secs(300);

/// The simplest sample that fails, from the tree of one that does; it failed last.
pub(super) fn shrink(
    mut tree: impl ValueTree<Value = Sample>,
    mut fails: impl FnMut(&Sample) -> bool,
) -> Sample {
    let mut simplest = tree.current();
    let mut more = tree.simplify();
    let start = Instant::now();
    for _ in 0..MAX_TRIES {
        if !more || start.elapsed() > MAX_TIME {
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
    /// A product, blocks or a layer without some rows, columns, depth, batch, tiles or heads.
    DropSlices { dimension: usize, from: usize, count: usize },
    /// A product in a simpler order of accumulation, the n-th of those there are.
    Accumulation(usize),
    /// Elements of an input as they are at their simplest.
    Simplest { input: usize, from: usize, count: usize },
    /// A bit of an element cleared.
    ClearBit { input: usize, i: usize, bit: u64 },
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
    let mut edits = Vec::new();
    let has_extents = product::inputs(&sample.op).is_some()
        || blocks::is_of_blocks(&sample.op)
        || layers::is_of_layers(&sample.op);
    if has_extents {
        for (dimension, &extent) in sample.shape.iter().enumerate() {
            edits.extend(chunks(extent).map(|(from, count)| Edit::DropSlices { dimension, from, count }));
        }
    } else {
        let parts = Parts::of(&sample.op);
        let groups = parts.groups(&sample.shape);
        let extent = sample.shape.iter().product::<usize>().checked_div(groups).unwrap_or(0);
        edits.extend(chunks(groups).map(|(from, count)| Edit::DropGroups { from, count }));
        edits.extend(chunks(extent).map(|(from, count)| Edit::DropColumns { from, count }));
    }
    edits.push(Edit::Flatten);
    edits.extend(parameters(&sample.op).into_iter().map(Edit::Parameter));
    edits.extend((0..simpler(&sample.op).len()).map(Edit::Accumulation));
    for (input, (ty, codes)) in types(&sample.op, &sample.shape).iter().zip(&sample.codes).enumerate() {
        let sign = match ty.dtype {
            DType::Float(format) => format.sign_bit(),
            _ => 0,
        };
        let simplest = simplest(&sample.op, input);
        edits.extend(chunks(codes.len()).map(|(from, count)| Edit::Simplest { input, from, count }));
        for (i, &code) in codes.iter().enumerate().filter(|&(_, &code)| code != simplest) {
            edits.push(Edit::Simplest { input, from: i, count: 1 });
            edits.extend(bits(code, sign).map(|bit| Edit::ClearBit { input, i, bit }));
        }
    }
    edits
}

/// The operation in simpler orders of accumulation.
fn simpler(op: &Op) -> Vec<Op> {
    [product::simpler(op), blocks::simpler(op)].concat()
}

/// The simplest element of an input: 1 for scales, otherwise 0.
fn simplest(op: &Op, input: usize) -> u64 {
    if let Some(inputs) = mx::inputs(op) {
        return inputs.get(input).map_or(0, |input| input.simplest());
    }
    let is_scale = match product::inputs(op) {
        Some(inputs) => inputs.get(input).is_some_and(product::Input::is_scale),
        None => Parts::of(op).scaled && input == 1,
    };
    if is_scale { ONE } else { 0 }
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
            Self::Parameter(ref name) => with_op(sample, at_default(&sample.op, name)?),
            Self::DropSlices { dimension, from, count } => {
                let keeps = |i| !(from..from + count).contains(&i);
                if blocks::is_of_blocks(&sample.op) {
                    return blocks::keep(sample, dimension, keeps);
                }
                if layers::is_of_layers(&sample.op) {
                    return layers::keep(sample, dimension, keeps);
                }
                product::keep(sample, dimension, keeps)
            }
            Self::Accumulation(i) => {
                let op = simpler(&sample.op).into_iter().nth(i)?;
                Some(Sample { op, ..sample.clone() })
            }
            Self::Simplest { input, from, count } => {
                let simplest = simplest(&sample.op, input);
                let mut sample = sample.clone();
                let codes = sample.codes.get_mut(input)?;
                let end = codes.len().min(from + count);
                codes.get_mut(from..end)?.fill(simplest);
                Some(sample)
            }
            Self::ClearBit { input, i, bit } => {
                let simplest = simplest(&sample.op, input);
                let mut sample = sample.clone();
                let code = sample.codes.get_mut(input)?.get_mut(i)?;
                *code = if *code == simplest { simplest } else { *code & !bit };
                Some(sample)
            }
        }
    }
}

/// The sample with other parameters, whose inputs it has.
fn with_op(sample: &Sample, op: Op) -> Option<Sample> {
    if product::inputs(&op).is_some() {
        return product::with_op(sample, op);
    }
    if blocks::is_of_blocks(&op) {
        return blocks::with_op(sample, op);
    }
    if layers::is_of_layers(&op) {
        return layers::with_op(sample, op);
    }
    let count = types(&op, &sample.shape).len();
    Some(Sample { op, shape: sample.shape.clone(), codes: sample.codes.get(..count)?.to_vec() })
}

/// The sample with some of its groups and of the elements of each, in as few dimensions
/// as its operation allows. Never without any element.
fn keep(sample: &Sample, keeps: impl Fn(usize, usize) -> bool) -> Option<Sample> {
    if product::inputs(&sample.op).is_some() {
        return product::flat(sample);
    }
    if mx::inputs(&sample.op).is_some() {
        return mx::keep(sample, |block| keeps(block, 0));
    }
    if blocks::is_of_blocks(&sample.op) || layers::is_of_layers(&sample.op) {
        return None;
    }
    let parts = Parts::of(&sample.op);
    let groups = parts.groups(&sample.shape);
    let extent = sample.codes.first()?.len().checked_div(groups).filter(|&extent| extent > 0)?;
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
    let of_groups = |scales: &[u64]| kept_groups.iter().filter_map(|&i| scales.get(i).copied()).collect();
    let codes = sample.codes.iter().enumerate();
    let codes = codes.map(|(i, codes)| if parts.scaled && i == 1 { of_groups(codes) } else { select(codes) });
    Some(Sample { op: sample.op.clone(), shape, codes: codes.collect() })
}
