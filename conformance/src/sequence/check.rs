//! What is required of a sequence: that each step can be taken, and that what it gives is one
//! thing alone.

use super::order::{Order, Uses};
use super::{
    AllocateSpec, CallSpec, CheckSpec, Failed, Sequence, Site, StepSpec, WaitSpec, WriteSpec, calls, flat,
    walk_rounds,
};
use crate::case::Criterion;
use crate::load::LoadError;
use crate::locate::Step;
use crate::source::{check_criterion, check_product};
use plumbline_reference::TensorType;
use plumbline_reference::backend::Layout;
use plumbline_reference::ops::Op;
use std::collections::BTreeMap;

/// Steps that a sequence may take, with those of repeats and of graphs as often as they are done.
const MOST_STEPS: u64 = 1_000_000;
/// Streams that a sequence may have.
const MOST_STREAMS: u32 = 16;

pub(super) fn check(sequence: &Sequence) -> Result<(), LoadError> {
    let (spec, place) = (&sequence.spec, &sequence.place);
    let failed = |Failed { site, why }: Failed| place.error(Some(&spec.name), &site.path, &why);
    let steps = |why: &str| place.error(Some(&spec.name), &[Step::Key("steps".into())], why);
    if self::steps(&spec.steps) > MOST_STEPS {
        return Err(steps(&format!(
            "more than {MOST_STEPS} steps with their repetitions; repeat fewer times"
        )));
    }
    let mut checker = Checker { sequence, buffers: BTreeMap::new(), graphs: BTreeMap::new(), serial: 0 };
    let mut state = State::default();
    // What a round leaves behind depends on its last step with each buffer, so a second round
    // finds all that a later one would.
    walk_rounds(&spec.steps, 2, &mut |site, step| {
        checker.take(&mut state, site, step).map_err(|why| Failed { site: site.clone(), why })
    })
    .map_err(failed)?;
    if !state.has_check {
        return Err(steps("nothing is compared; add a step `check`"));
    }
    Ok(())
}

/// How many steps are taken.
pub(super) fn steps(steps: &[StepSpec]) -> u64 {
    count(steps, &graph_sizes(steps))
}

/// Steps of each graph: of several with one name, of the longest.
fn graph_sizes(steps: &[StepSpec]) -> BTreeMap<&str, u64> {
    let mut sizes = BTreeMap::new();
    for step in flat(steps) {
        if let StepSpec::Capture(capture) = step {
            let size: &mut u64 = sizes.entry(&*capture.graph).or_default();
            *size = (*size).max(capture.steps.len() as u64);
        }
    }
    sizes
}

/// How many steps are taken, with those of repeats and of graphs as often as they are done.
fn count(steps: &[StepSpec], graphs: &BTreeMap<&str, u64>) -> u64 {
    let of = |step: &StepSpec| match step {
        StepSpec::Repeat(repeat) => u64::from(repeat.times).saturating_mul(count(&repeat.steps, graphs)),
        StepSpec::Replay(replay) => {
            let size = graphs.get(&*replay.graph).copied().unwrap_or(0);
            u64::from(replay.times).saturating_mul(size)
        }
        StepSpec::Capture(capture) => capture.steps.len() as u64,
        _ => 0,
    };
    steps.iter().fold(0, |sum, step| sum.saturating_add(of(step)).saturating_add(1))
}

#[derive(Default)]
struct State {
    order: Order,
    has_check: bool,
}

/// What is known of a buffer.
enum Known<'s> {
    Allocated {
        /// Which of all allocations.
        serial: u64,
        uses: Uses,
        contents: Contents<'s>,
    },
    Freed {
        /// Whether nothing was put into its memory since.
        is_vacant: bool,
    },
}

#[derive(Clone, Copy)]
enum Contents<'s> {
    Unknown,
    Written,
    Computed {
        op: &'s Op,
        /// Whether all inputs were written, and none computed.
        from_written: bool,
    },
}

/// A graph and which allocations it holds.
struct Recorded<'s> {
    work: &'s [StepSpec],
    holds: Vec<(&'s str, u64)>,
}

struct Checker<'s> {
    sequence: &'s Sequence,
    buffers: BTreeMap<&'s str, Known<'s>>,
    graphs: BTreeMap<&'s str, Recorded<'s>>,
    serial: u64,
}

impl<'s> Checker<'s> {
    fn take(&mut self, state: &mut State, site: &Site, step: &'s StepSpec) -> Result<(), String> {
        match step {
            StepSpec::Allocate(AllocateSpec::Anywhere(names)) => {
                names.as_slice().iter().try_for_each(|name| self.allocate(name))
            }
            StepSpec::Allocate(AllocateSpec::At(at)) => self.allocate_at(&at.buffer, &at.at),
            StepSpec::Free(names) => {
                for name in names.as_slice() {
                    let Known::Allocated { uses, .. } = self.allocated(name)? else { continue };
                    state.order.wait_for(uses);
                    self.buffers.insert(name, Known::Freed { is_vacant: true });
                }
                Ok(())
            }
            StepSpec::Write(write) => {
                self.allocated(&write.buffer)?;
                self.check_write(write)?;
                state.order.queue(0);
                self.wrote(state, write, 0)?;
                // It is done before anything else is queued.
                state.order.wait(Some(0));
                Ok(())
            }
            StepSpec::Call(call) => {
                check_stream(call.stream)?;
                self.check_call(call)?;
                state.order.queue(call.stream);
                self.called(state, call, call.stream)
            }
            StepSpec::Capture(capture) => {
                let mut holds = Vec::new();
                for (index, step) in capture.steps.iter().enumerate() {
                    let inside = || site.inside("capture", index).path();
                    let names: Vec<&'s String> = match step {
                        StepSpec::Call(call) if call.stream != 0 => {
                            return Err(format!("{}: a graph gets its stream from `replay`", inside()));
                        }
                        StepSpec::Call(call) => {
                            self.check_call(call).map_err(|why| format!("{}: {why}", inside()))?;
                            call.inputs.iter().chain(&call.outputs).collect()
                        }
                        StepSpec::Write(write) => {
                            self.allocated(&write.buffer)?;
                            self.check_write(write).map_err(|why| format!("{}: {why}", inside()))?;
                            vec![&write.buffer]
                        }
                        _ => return Err(format!("{}: a graph has steps `call` and `write` alone", inside())),
                    };
                    for name in names {
                        if let Known::Allocated { serial, .. } = self.allocated(name)? {
                            holds.push((name.as_str(), *serial));
                        }
                    }
                }
                if holds.is_empty() {
                    return Err(format!("graph `{}` has no work; give it steps", capture.graph));
                }
                self.graphs.insert(&capture.graph, Recorded { work: &capture.steps, holds });
                Ok(())
            }
            StepSpec::Replay(replay) => {
                check_stream(replay.stream)?;
                let name = &replay.graph;
                let graph = self.graphs.get(&**name);
                let graph = graph.ok_or_else(|| {
                    format!("graph `{name}` is not captured yet; put a step `capture` before this")
                })?;
                for (buffer, held) in &graph.holds {
                    match self.buffers.get(buffer) {
                        Some(Known::Allocated { serial, .. }) if serial == held => (),
                        _ => {
                            return Err(format!(
                                "graph `{name}` holds the address that `{buffer}` had before it was freed; capture \
                                 it anew"
                            ));
                        }
                    }
                }
                if replay.times == 0 {
                    return Err("times: is at least 1".to_owned());
                }
                let work = graph.work;
                // A second time shows what the first leaves behind.
                for step in (0..replay.times.min(2)).flat_map(|_| work) {
                    state.order.queue(replay.stream);
                    match step {
                        StepSpec::Call(call) => self.called(state, call, replay.stream)?,
                        StepSpec::Write(write) => self.wrote(state, write, replay.stream)?,
                        _ => (),
                    }
                }
                Ok(())
            }
            StepSpec::Wait(wait) => {
                let stream = match *wait {
                    WaitSpec::Stream(stream) => Some(stream),
                    WaitSpec::All(_) => None,
                };
                stream.map_or(Ok(()), check_stream)?;
                state.order.wait(stream);
                Ok(())
            }
            StepSpec::Order([from, to]) => {
                [*from, *to].into_iter().try_for_each(check_stream)?;
                if from == to {
                    return Err("work on one stream is in order; name two streams".to_owned());
                }
                state.order.order(*from, *to);
                Ok(())
            }
            StepSpec::Check(check) => {
                state.has_check = true;
                self.check(state, check)
            }
            StepSpec::Repeat(repeat) => {
                if repeat.times == 0 {
                    return Err("times: is at least 1".to_owned());
                }
                if repeat.steps.is_empty() {
                    return Err("there is nothing to repeat; give it steps".to_owned());
                }
                Ok(())
            }
        }
    }

    fn type_of(&self, name: &str) -> Result<&'s TensorType, String> {
        self.sequence.types.get(name).ok_or_else(|| {
            let known: Vec<_> = self.sequence.types.keys().map(String::as_str).collect();
            format!("no buffer `{name}`; `buffers` has {}", known.join(", "))
        })
    }

    fn allocated(&mut self, name: &str) -> Result<&mut Known<'s>, String> {
        self.type_of(name)?;
        match self.buffers.get_mut(name) {
            Some(known @ Known::Allocated { .. }) => Ok(known),
            Some(Known::Freed { .. }) => Err(format!("`{name}` is freed; allocate it again before this")),
            None => Err(format!("`{name}` has no memory yet; put `allocate: {name}` before this")),
        }
    }

    fn allocate(&mut self, name: &'s str) -> Result<(), String> {
        self.type_of(name)?;
        if let Some(Known::Allocated { .. }) = self.buffers.get(name) {
            return Err(format!("`{name}` is allocated already; free it first"));
        }
        for known in self.buffers.values_mut() {
            if let Known::Freed { is_vacant } = known {
                *is_vacant = false;
            }
        }
        self.serial += 1;
        let new =
            Known::Allocated { serial: self.serial, uses: Uses::default(), contents: Contents::Unknown };
        self.buffers.insert(name, new);
        Ok(())
    }

    fn allocate_at(&mut self, name: &'s str, at: &'s str) -> Result<(), String> {
        let (ty, before) = (self.type_of(name)?, self.type_of(at)?);
        match self.buffers.get(at) {
            Some(Known::Freed { is_vacant: true }) => (),
            Some(Known::Freed { is_vacant: false }) => {
                return Err(format!(
                    "at: after `{at}` was freed, another allocation may have taken its memory; put this before \
                     it"
                ));
            }
            _ => return Err(format!("at: `{at}` still has its memory, or never had; free it before this")),
        }
        let bytes = |ty: &TensorType| Layout::contiguous(ty.clone()).span().unwrap_or(usize::MAX);
        if bytes(ty) > bytes(before) {
            return Err(format!(
                "at: {ty} does not fit in the memory of `{at}`, {before}; it may be smaller, not larger"
            ));
        }
        self.allocate(name)
    }

    fn check_write(&self, write: &WriteSpec) -> Result<(), String> {
        match (&write.bits, &write.generate) {
            (Some(_), Some(_)) | (None, None) => Err("needs exactly one of `bits` and `generate`".to_owned()),
            (Some(_), None) if write.seed.is_some() => Err("`seed` goes with `generate`".to_owned()),
            (Some(bits), None) => crate::source::literal_of(self.type_of(&write.buffer)?, bits).map(drop),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Requires a call's buffers to have memory and the types of the operation.
    fn check_call(&mut self, call: &'s CallSpec) -> Result<(), String> {
        for name in call.inputs.iter().chain(&call.outputs) {
            self.allocated(name)?;
        }
        let types = |names: &[String]| -> Result<Vec<_>, String> {
            names.iter().map(|name| self.type_of(name).cloned()).collect()
        };
        let (inputs, outputs) = (types(&call.inputs)?, types(&call.outputs)?);
        let expected = call.op.signature(&inputs).map_err(|error| format!("op: {error}"))?;
        if expected != outputs {
            let list =
                |types: &[TensorType]| types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ");
            let (given, gives) = (list(&outputs), list(&expected));
            return Err(format!("outputs: hold {given}, and {} gives {gives}", call.op.name()));
        }
        for (i, name) in call.inputs.iter().enumerate() {
            let known = self.sequence.spec.buffers.get(name).and_then(|buffer| buffer.blocks);
            if let (Some(known), Some(taken)) = (known, call.op.input_blocks(i))
                && known != taken
            {
                let op = call.op.name();
                return Err(format!("inputs: `{name}` has blocks of {known}, and {op} takes {taken} here"));
            }
        }
        let twice = call.outputs.iter().enumerate().find(|(i, name)| call.outputs[..*i].contains(name));
        twice.map_or(Ok(()), |(_, name)| Err(format!("outputs: `{name}` is written twice")))
    }

    /// Values that are put into a buffer by the host, or by a graph.
    fn wrote(&mut self, state: &mut State, write: &'s WriteSpec, stream: u32) -> Result<(), String> {
        let Known::Allocated { uses, contents, .. } = self.allocated(&write.buffer)? else { return Ok(()) };
        *contents = Contents::Written;
        let race = state.order.write(uses, stream);
        race.map_or(Ok(()), |other| Err(unordered(&write.buffer, other, stream)))
    }

    fn called(&mut self, state: &mut State, call: &'s CallSpec, stream: u32) -> Result<(), String> {
        let mut from_written = true;
        for name in &call.inputs {
            let Known::Allocated { uses, contents, .. } = self.allocated(name)? else { continue };
            match contents {
                Contents::Unknown => return Err(unwritten(name)),
                Contents::Written => (),
                Contents::Computed { .. } => from_written = false,
            }
            if let Some(other) = state.order.read(uses, stream) {
                return Err(unordered(name, other, stream));
            }
        }
        for name in &call.outputs {
            let Known::Allocated { uses, contents, .. } = self.allocated(name)? else { continue };
            *contents = Contents::Computed { op: &call.op, from_written };
            if let Some(other) = state.order.write(uses, stream) {
                return Err(unordered(name, other, stream));
            }
        }
        Ok(())
    }

    fn check(&mut self, state: &mut State, check: &'s CheckSpec) -> Result<(), String> {
        let ty = self.type_of(&check.buffer)?;
        for name in [&check.buffer].into_iter().chain(&check.equals) {
            if let Known::Allocated { uses, contents, .. } = self.allocated(name)? {
                if matches!(contents, Contents::Unknown) {
                    return Err(unwritten(name));
                }
                state.order.wait_for(uses);
            }
        }
        check_criterion(check.judge).map_err(|why| format!("judge: {why}"))?;
        if let Some(other) = &check.equals {
            return match self.type_of(other)? {
                _ if check.judge != Criterion::BitExact => {
                    Err("judge: `equals` compares bit for bit; leave out `judge`".to_owned())
                }
                _ if *other == check.buffer => Err("equals: a buffer equals itself; name another".to_owned()),
                own if own != ty => Err(format!("equals: `{other}` is {own}, `{}` is {ty}", check.buffer)),
                _ => Ok(()),
            };
        }
        if check.judge == Criterion::BitExact {
            return Ok(());
        }
        match self.allocated(&check.buffer)? {
            Known::Allocated { contents: Contents::Computed { op, from_written }, .. } => {
                check_product(op, check.judge).map_err(|why| format!("judge: {why}"))?;
                if *from_written {
                    return Ok(());
                }
                Err("judge: the inputs of the call that gave this were computed, so what is right within a \
                     tolerance is not known; check it `bit_exact`, or write its inputs"
                    .to_owned())
            }
            _ => Err("judge: what was written is there bit for bit; leave out `judge`".to_owned()),
        }
    }
}

fn check_stream(stream: u32) -> Result<(), String> {
    if stream < MOST_STREAMS {
        return Ok(());
    }
    Err(format!("stream {stream}: there are at most {MOST_STREAMS} streams, from 0"))
}

fn unwritten(name: &str) -> String {
    format!("nothing was put into `{name}` yet; write it, or have a call write it, before this")
}

fn unordered(name: &str, other: u32, stream: u32) -> String {
    if other == stream {
        return format!("`{name}` is used on stream {stream} out of order");
    }
    format!(
        "`{name}` is also used on stream {other}, and nothing says which comes first; put `order: [{other}, {stream}]` \
         or `wait: {other}` before this"
    )
}

/// The first call that reads a buffer, and as which input.
pub(super) fn reader<'s>(sequence: &'s Sequence, buffer: &str) -> Option<(&'s CallSpec, usize)> {
    calls(&sequence.spec.steps)
        .find_map(|call| Some((call, call.inputs.iter().position(|name| name == buffer)?)))
}
