//! Sequences: cases whose faults only show across calls.
//!
//! A sequence is a list of steps on named buffers. It is checked when it is loaded, so that every
//! sequence that runs has one right result: no buffer is used that has no memory or no contents,
//! and no two streams use one without an order between them. Then a *shadow machine* takes the
//! steps with the reference, in their order, while a backend takes them with its own memory,
//! streams and graphs; where a step says `check`, both must hold the same.
//!
//! - `spec`: what a file says.
//! - `check`: what is required of it.
//! - `order`: which work is known to be done before which.
//! - `shadow`: the steps on the reference.
//! - `device`: the steps on a backend.

mod check;
mod device;
mod order;
mod shadow;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{
    All, AllocateSpec, AtSpec, BufferSpec, CallSpec, CaptureSpec, CheckSpec, Names, RepeatSpec, ReplaySpec,
    SequenceSpec, StepSpec, WaitSpec, WriteSpec,
};

pub(crate) use device::attempt;

use crate::case::TensorSpec;
use crate::load::LoadError;
use crate::locate::Step;
use crate::setup::Subject;
use crate::source::{Place, shape_in_elements};
use plumbline_reference::TensorType;
use plumbline_reference::backend::{Layout, Unsupported};
use plumbline_reference::ops::Op;
use shadow::Shadow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One sequence: named and checked.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Name with the file's: `sequences/weights/overwritten/q4_K`.
    pub name: String,
    /// What the file says, matrix values filled in.
    pub spec: SequenceSpec,
    pub(crate) place: Place,
    line: usize,
    types: BTreeMap<String, TensorType>,
    needs: Needs,
}

/// What a backend must have to take the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    streams: u32,
    graphs: bool,
    without_workspace: bool,
}

impl Sequence {
    pub(crate) fn new(
        name: String,
        spec: SequenceSpec,
        place: Place,
        line: usize,
    ) -> Result<Self, LoadError> {
        let mut types = BTreeMap::new();
        let mut bytes = 0;
        for (buffer, of) in &spec.buffers {
            let failed = |why: String| {
                place.error(Some(&spec.name), &[Step::Key("buffers".into()), Step::Key(buffer.clone())], &why)
            };
            let ty = type_of(of).map_err(failed)?;
            bytes += ty.elements().map_err(|error| failed(error.to_string()))? * ty.dtype.bytes();
            types.insert(buffer.clone(), ty);
        }
        if bytes > crate::source::MAX_CASE_BYTES {
            let (limit, fields) = (crate::source::MAX_CASE_BYTES >> 30, [Step::Key("buffers".into())]);
            let why = format!(
                "the buffers have {bytes} bytes together, more than {limit} GiB, the most of a sequence; make them \
                 smaller"
            );
            return Err(place.error(Some(&spec.name), &fields, &why));
        }
        let mut sequence = Self { name, spec, place, line, types, needs: Needs::default() };
        check::check(&sequence)?;
        sequence.needs = sequence.needed();
        Ok(sequence)
    }

    /// File and line of the sequence.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}:{}", self.place.file.display(), self.line)
    }

    /// The operations of its calls, each once, in the order in which they stand.
    #[must_use]
    pub fn operations(&self) -> Vec<&Op> {
        let mut operations = Vec::new();
        for call in calls(&self.spec.steps) {
            if !operations.contains(&&call.op) {
                operations.push(&call.op);
            }
        }
        operations
    }

    /// About what the sequence costs to take: bytes, once for each step.
    pub(crate) fn cost(&self) -> u64 {
        let bytes = self.types.values().map(|ty| Layout::contiguous(ty.clone()).span().unwrap_or(0) as u64);
        bytes.sum::<u64>().saturating_mul(check::steps(&self.spec.steps))
    }

    /// Takes the steps with the reference alone, so that what cannot be made shows.
    pub fn rehearse(&self, run_seed: u64) -> Result<(), LoadError> {
        let mut shadow = Shadow::new(self, run_seed);
        walk(&self.spec.steps, &mut |site, step| shadow.take(site, step))
            .map_err(|failed| self.place.error(Some(&self.spec.name), &failed.site.path, &failed.why))
    }

    /// The ways in which a backend takes the steps: its variants of all the operations. An
    /// operation that does not have a variant is done in its usual way.
    pub fn variants(&self, subject: &Subject) -> Result<Vec<String>, Unsupported> {
        let backend = &*subject.backend;
        let Needs { streams, graphs, without_workspace } = self.needs;
        for op in self.operations() {
            backend.supports(op)?;
        }
        let why = if !backend.stepwise() {
            "has no memory that lasts from call to call".to_owned()
        } else if backend.streams() < streams {
            format!("has {} streams, {streams} are needed", backend.streams())
        } else if graphs && !backend.has_graphs() {
            "cannot record calls as a graph".to_owned()
        } else {
            let (mut variants, mut seen) = (Vec::new(), BTreeSet::new());
            let mut why = "has no variant of the operations".to_owned();
            for variant in self.operations().into_iter().flat_map(|op| backend.variants(op)) {
                let chosen = self.chosen(subject, &variant);
                if without_workspace && !chosen.values().any(|(_, without)| without.is_some()) {
                    why = "uses no workspace that it can do without".to_owned();
                } else if seen.insert(chosen.into_values().map(|(with, _)| with).collect::<Vec<_>>()) {
                    variants.push(variant);
                }
            }
            if !variants.is_empty() {
                return Ok(variants);
            }
            why
        };
        Err(Unsupported(why))
    }

    /// The operations, each with the variants in which it is done.
    pub(crate) fn ways(&self, subject: &Subject, variant: &str) -> Vec<(&Op, String)> {
        let mut chosen = self.chosen(subject, variant);
        let of = |op| {
            let (with, without) = chosen.remove(&key(op)).unwrap_or_default();
            [Some(with), without].into_iter().flatten().map(move |variant| (op, variant))
        };
        self.operations().into_iter().flat_map(of).collect()
    }

    /// How each operation is done under a variant, and how without a workspace.
    fn chosen(&self, subject: &Subject, variant: &str) -> BTreeMap<String, (String, Option<String>)> {
        let backend = &*subject.backend;
        let of = |op: &Op| {
            let known = backend.variants(op);
            let usual = known.first().cloned().unwrap_or_default();
            let with = if known.iter().any(|own| own == variant) { variant.to_owned() } else { usual };
            let without = backend.without_workspace(op, &with);
            (key(op), (with, without))
        };
        self.operations().into_iter().map(of).collect()
    }

    fn needed(&self) -> Needs {
        let (mut needs, mut last) = (Needs::default(), 0);
        for step in flat(&self.spec.steps) {
            match step {
                StepSpec::Call(call) => {
                    last = last.max(call.stream);
                    needs.without_workspace |= !call.workspace;
                }
                StepSpec::Capture(_) => needs.graphs = true,
                StepSpec::Replay(replay) => last = last.max(replay.stream),
                StepSpec::Wait(WaitSpec::Stream(stream)) => last = last.max(*stream),
                StepSpec::Order([from, to]) => last = last.max(*from).max(*to),
                _ => (),
            }
        }
        Needs { streams: last + 1, ..needs }
    }
}

/// An operation as a key.
fn key(op: &Op) -> String {
    serde_json::to_string(op).unwrap_or_default()
}

fn type_of(spec: &BufferSpec) -> Result<TensorType, String> {
    let BufferSpec { dtype, shape, blocks } = spec.clone();
    let spec = TensorSpec {
        dtype,
        shape: Some(shape),
        blocks,
        bits: None,
        file: None,
        tensor: None,
        rows: None,
        generate: None,
        seed: None,
        lanes: None,
        strides: None,
    };
    let shape = shape_in_elements(&spec)?.unwrap_or_default();
    let ty = TensorType::new(dtype, shape);
    crate::source::check_size(&ty)?;
    Ok(ty)
}

/// A list of steps and those inside them.
fn flat(steps: &[StepSpec]) -> Vec<&StepSpec> {
    steps.iter().flat_map(|step| [vec![step], flat(inner_of(step))].concat()).collect()
}

fn inner_of(step: &StepSpec) -> &[StepSpec] {
    match step {
        StepSpec::Capture(capture) => &capture.steps,
        StepSpec::Repeat(repeat) => &repeat.steps,
        _ => &[],
    }
}

fn calls(steps: &[StepSpec]) -> impl Iterator<Item = &CallSpec> {
    flat(steps).into_iter().filter_map(|step| match step {
        StepSpec::Call(call) => Some(call),
        _ => None,
    })
}

/// Where a step stands, and in which round of the repeats around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    path: Vec<Step>,
    /// The round, from 1, and how many there are.
    rounds: Vec<(u32, u32)>,
}

impl Site {
    /// A step inside this one.
    fn inside(&self, kind: &str, index: usize) -> Self {
        let inside = [Step::Key(kind.to_owned()), Step::Key("steps".to_owned()), Step::Index(index)];
        Self { path: self.path.iter().cloned().chain(inside).collect(), rounds: self.rounds.clone() }
    }

    /// The indices along the path, which order as the steps do.
    fn indices(&self) -> Vec<usize> {
        let index = |step: &Step| match step {
            Step::Index(index) => Some(*index),
            Step::Key(_) => None,
        };
        self.path.iter().filter_map(index).collect()
    }

    /// The path alone: `steps[3].repeat.steps[1]`.
    pub(crate) fn path(&self) -> String {
        self.path.iter().fold(String::new(), |text, step| match step {
            Step::Index(index) => format!("{text}[{index}]"),
            Step::Key(key) if text.is_empty() => key.clone(),
            Step::Key(key) => format!("{text}.{key}"),
        })
    }
}

/// `steps[3].repeat.steps[1] in round 917 of 1000`.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())?;
        self.rounds.iter().try_for_each(|(round, of)| write!(f, " in round {round} of {of}"))
    }
}

/// A step that cannot be taken, and why.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) site: Site,
    pub(crate) why: String,
}

/// Takes steps in the order in which they happen, each repeat and then its steps as often as they are
/// repeated.
fn walk<'s, E>(
    steps: &'s [StepSpec],
    take: &mut impl FnMut(&Site, &'s StepSpec) -> Result<(), E>,
) -> Result<(), E> {
    walk_rounds(steps, u32::MAX, take)
}

/// The same with no more than so many rounds of each repeat.
fn walk_rounds<'s, E>(
    steps: &'s [StepSpec],
    most: u32,
    take: &mut impl FnMut(&Site, &'s StepSpec) -> Result<(), E>,
) -> Result<(), E> {
    for (index, step) in steps.iter().enumerate() {
        let path = vec![Step::Key("steps".to_owned()), Step::Index(index)];
        walk_step(Site { path, rounds: Vec::new() }, step, most, take)?;
    }
    Ok(())
}

fn walk_step<'s, E>(
    site: Site,
    step: &'s StepSpec,
    most: u32,
    take: &mut impl FnMut(&Site, &'s StepSpec) -> Result<(), E>,
) -> Result<(), E> {
    take(&site, step)?;
    let StepSpec::Repeat(repeat) = step else { return Ok(()) };
    for round in 1..=repeat.times.min(most) {
        for (index, step) in repeat.steps.iter().enumerate() {
            let mut inside = site.inside("repeat", index);
            inside.rounds.push((round, repeat.times));
            walk_step(inside, step, most, take)?;
        }
    }
    Ok(())
}
