//! The steps on a backend, side by side with the shadow machine.

use super::shadow::{Held, Made, Shadow};
use super::{AllocateSpec, CallSpec, CheckSpec, Sequence, Site, StepSpec, WaitSpec, key, walk};
use crate::attempt::{Attempt, Output, context, panic_text};
use crate::case::{Criterion, NanJudge};
use crate::judge::{Checked, OutputVerdict, judge};
use crate::memory::{MemoryFault, POISON, out_of_bounds};
use crate::setup::Subject;
use crate::source::{Expected, Values};
use crate::vacuity::{REMEDY, answers, doubt};
use crate::verdict::Outcome;
use plumbline_reference::backend::{Buffer, Graph, Launch, Layout, Stream, Unsupported, Work};
use plumbline_reference::format::F32;
use plumbline_reference::ops::{Absmax, Op};
use plumbline_reference::{Backend, BackendError, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Takes the steps of a sequence on a backend, half as often as a single call is made and at least
/// twice, each time over other poison, and judges what they give. Where it `proves`, each check must also
/// show that it can fail.
pub(crate) fn attempt(
    subject: &Subject,
    sequence: &Sequence,
    variant: &str,
    run_seed: u64,
    proves: bool,
) -> Attempt {
    let mut judged = Judged { proves, ..Judged::default() };
    // A foreign backend may panic; that is its verdict, not the end of the run.
    let run = AssertUnwindSafe(|| run(subject, sequence, variant, run_seed, &mut judged));
    let stopped = match catch_unwind(run) {
        Ok(Ok(())) => None,
        Ok(Err(stopped)) => Some(stopped),
        Err(panic) => Some(Stopped::Panicked(format!("panicked: {}", panic_text(&*panic)))),
    };
    let Judged { outputs, memory, how, doubts, .. } = judged;
    let outputs: Vec<_> = outputs.into_values().collect();
    let right = memory.is_empty() && outputs.iter().all(|output| output.ok);
    let outcome = if right { Outcome::Pass } else { Outcome::Fail };
    let attempt = Attempt { outcome, outputs, memory, message: None, how, given: Vec::new(), lost: false };
    match stopped {
        None if right && !doubts.is_empty() => {
            let message = Some(format!("{}; {REMEDY}", doubts.join("; ")));
            Attempt { outcome: Outcome::Mistrusted, message, ..attempt }
        }
        None => attempt,
        Some(Stopped::Harness(why)) => Attempt { outcome: Outcome::Error, message: Some(why), ..attempt },
        Some(Stopped::Panicked(why)) => Attempt { outcome: Outcome::Crashed, message: Some(why), ..attempt },
        Some(Stopped::Backend(site, error)) => {
            let place = site.map_or("after the last step".to_owned(), |site| site.to_string());
            let (message, lost) = (format!("{place}: {error}"), matches!(error, BackendError::Lost { .. }));
            let outcome = match error {
                // What was found before it stays found.
                BackendError::Unsupported(_) if !right => Outcome::Fail,
                BackendError::Unsupported(_) => Outcome::Unsupported,
                _ => Outcome::Crashed,
            };
            Attempt { outcome, message: Some(message), lost, ..attempt }
        }
    }
}

/// What came of the steps.
#[derive(Default)]
struct Judged {
    /// What each check says: of all its rounds and runs the first that failed, or the last. In
    /// the order of the steps.
    outputs: BTreeMap<Vec<usize>, OutputVerdict>,
    memory: Vec<MemoryFault>,
    how: BTreeMap<String, String>,
    proves: bool,
    /// Checks that accept wrong contents, and which.
    doubts: Vec<String>,
}

/// Why there are no further steps.
enum Stopped {
    /// At a step, or after the last.
    Backend(Option<Box<Site>>, BackendError),
    Panicked(String),
    Harness(String),
}

fn run(
    subject: &Subject,
    sequence: &Sequence,
    variant: &str,
    run_seed: u64,
    judged: &mut Judged,
) -> Result<(), Stopped> {
    let chosen = sequence.chosen(subject, variant);
    for op in sequence.operations() {
        let with = &chosen[&key(op)].0;
        if with != variant {
            judged.how.insert(format!("variant of {}", op.name()), with.clone());
        }
    }
    let mut shadow = Shadow::new(sequence, run_seed);
    for run in 0..(subject.contract.runs / 2).max(2) {
        shadow.begin();
        let mut machine = Machine {
            subject,
            backend: &*subject.backend,
            sequence,
            chosen: &chosen,
            poison: POISON[run as usize % POISON.len()],
            looks_at_freed: run % 2 == 1,
            graphs: BTreeMap::new(),
            buffers: BTreeMap::new(),
            freed: BTreeMap::new(),
            judged,
        };
        walk(&sequence.spec.steps, &mut |site, step| {
            machine.before(&shadow, site, step)?;
            shadow
                .take(site, step)
                .map_err(|failed| Stopped::Harness(format!("{}: {}", failed.site, failed.why)))?;
            machine.take(&mut shadow, site, step)
        })?;
        machine.finish(&shadow).map_err(|error| Stopped::Backend(None, error))?;
    }
    Ok(())
}

/// Work that is to be recorded, with what it needs until it is.
enum Recorded<'m> {
    Call { op: &'m Op, variant: &'m str, inputs: Vec<&'m Buffer>, outputs: Vec<&'m Buffer> },
    Write { buffer: &'m Buffer, bytes: Vec<u8> },
}

impl Recorded<'_> {
    fn work(&self) -> Work<'_> {
        match self {
            Self::Call { op, variant, inputs, outputs } => {
                Work::Launch(Launch { op, variant, inputs, outputs, stream: Stream::default() })
            }
            Self::Write { buffer, bytes } => Work::Upload { buffer, bytes },
        }
    }
}

struct Machine<'b, 's, 'j> {
    subject: &'b Subject,
    backend: &'b dyn Backend,
    sequence: &'s Sequence,
    chosen: &'j BTreeMap<String, (String, Option<String>)>,
    poison: u8,
    /// Whether buffers are looked at before they are freed. That waits for the work on them, which is
    /// for freeing to do: so only in every second run, the first of them over poison that is not 0.
    looks_at_freed: bool,
    /// Each with the buffers that it holds. They go before the buffers.
    graphs: BTreeMap<&'s str, (Box<dyn Graph + 'b>, Vec<&'s str>)>,
    buffers: BTreeMap<&'s str, Buffer>,
    /// Where freed buffers were, if that is known.
    freed: BTreeMap<&'s str, Option<u64>>,
    judged: &'j mut Judged,
}

impl<'b, 's> Machine<'b, 's, '_> {
    /// Looks at what is about to be freed, while the shadow still has it.
    fn before(&mut self, shadow: &Shadow<'s>, site: &Site, step: &StepSpec) -> Result<(), Stopped> {
        let StepSpec::Free(names) = step else { return Ok(()) };
        if !self.looks_at_freed {
            return Ok(());
        }
        let left = names.as_slice().iter().try_for_each(|name| self.leave(shadow, name));
        left.map_err(|error| Stopped::Backend(Some(Box::new(site.clone())), error))
    }

    fn take(&mut self, shadow: &mut Shadow<'s>, site: &Site, step: &'s StepSpec) -> Result<(), Stopped> {
        let stopped = |error: BackendError| Stopped::Backend(Some(Box::new(site.clone())), error);
        match step {
            StepSpec::Allocate(AllocateSpec::Anywhere(names)) => {
                names.as_slice().iter().try_for_each(|name| self.allocate(name)).map_err(stopped)
            }
            StepSpec::Allocate(AllocateSpec::At(at)) => {
                self.allocate(&at.buffer).map_err(stopped)?;
                let before = self.freed.get(&*at.at).copied().flatten();
                let now = self.buffers.get(&*at.buffer).and_then(|buffer| self.backend.address(buffer));
                let is_same = before.zip(now).map(|(before, now)| before == now);
                let said = match is_same {
                    Some(true) => "that of",
                    Some(false) => "not that of",
                    None => "perhaps that of",
                };
                let how = &mut self.judged.how;
                how.insert(format!("memory of {}", at.buffer), format!("{said} {}", at.at));
                Ok(())
            }
            StepSpec::Free(names) => {
                for name in names.as_slice() {
                    self.graphs.retain(|_, (_, holds)| !holds.contains(&&**name));
                    if let Some(buffer) = self.buffers.remove(&**name) {
                        self.freed.insert(name, self.backend.address(&buffer));
                    }
                }
                Ok(())
            }
            StepSpec::Write(write) => {
                let values = shadow.values(site, write).map_err(Stopped::Harness)?;
                let (buffer, bytes) = self.filled(&write.buffer, &values).map_err(stopped)?;
                self.backend.upload(buffer, &bytes).map_err(stopped)
            }
            StepSpec::Call(call) => {
                let variant = self.variant(call).map_err(stopped)?;
                let (inputs, outputs) = self.operands(call).map_err(stopped)?;
                let (op, stream) = (&call.op, Stream(call.stream));
                let launch = Launch { op, variant, inputs: &inputs, outputs: &outputs, stream };
                self.backend.launch(launch).map_err(stopped)
            }
            StepSpec::Capture(capture) => {
                let (graph, holds) = self.capture(shadow, site, &capture.steps)?;
                self.graphs.insert(&capture.graph, (graph, holds));
                Ok(())
            }
            StepSpec::Replay(replay) => {
                let Some((graph, _)) = self.graphs.get(&*replay.graph) else { return Ok(()) };
                let stream = Stream(replay.stream);
                (0..replay.times).try_for_each(|_| graph.replay_on(stream)).map_err(stopped)
            }
            StepSpec::Wait(WaitSpec::Stream(stream)) => {
                self.backend.wait(Some(Stream(*stream))).map_err(stopped)
            }
            StepSpec::Wait(WaitSpec::All(_)) => self.backend.wait(None).map_err(stopped),
            StepSpec::Order([from, to]) => self.backend.order(Stream(*from), Stream(*to)).map_err(stopped),
            StepSpec::Check(check) => self.check(shadow, site, check).map_err(stopped),
            StepSpec::Repeat(_) => Ok(()),
        }
    }

    fn buffer(&self, name: &str) -> Result<&Buffer, BackendError> {
        let absent = || BackendError::Failed { call: name.to_owned(), why: "is not allocated".to_owned() };
        self.buffers.get(name).ok_or_else(absent)
    }

    fn allocate(&mut self, name: &'s str) -> Result<(), BackendError> {
        let ty = self.sequence.types[name].clone();
        let layout =
            Layout { guard: self.subject.contract.guard, poison: self.poison, ..Layout::contiguous(ty) };
        let buffer = self.backend.alloc(&layout)?;
        self.buffers.insert(name, buffer);
        Ok(())
    }

    /// A buffer and its bytes with a tensor in them.
    fn filled(&self, name: &str, tensor: &Tensor) -> Result<(&Buffer, Vec<u8>), BackendError> {
        let buffer = self.buffer(name)?;
        let layout = buffer.layout();
        let mut bytes = vec![layout.poison; layout.total()?];
        layout.scatter(tensor, &mut bytes);
        Ok((buffer, bytes))
    }

    fn operands(&self, call: &CallSpec) -> Result<(Vec<&Buffer>, Vec<&Buffer>), BackendError> {
        let all = |names: &[String]| names.iter().map(|name| self.buffer(name)).collect::<Result<_, _>>();
        Ok((all(&call.inputs)?, all(&call.outputs)?))
    }

    fn variant(&self, call: &CallSpec) -> Result<&str, BackendError> {
        let (with, without) = &self.chosen[&key(&call.op)];
        if call.workspace {
            return Ok(with);
        }
        let absent = || Unsupported(format!("{} uses no workspace that it can do without", call.op.name()));
        Ok(without.as_ref().ok_or_else(absent)?)
    }

    fn capture(
        &self,
        shadow: &mut Shadow<'s>,
        site: &Site,
        steps: &'s [StepSpec],
    ) -> Result<(Box<dyn Graph + 'b>, Vec<&'s str>), Stopped> {
        let stopped = |error| Stopped::Backend(Some(Box::new(site.clone())), error);
        let (mut holds, mut recorded) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            match step {
                StepSpec::Call(call) => {
                    holds.extend(call.inputs.iter().chain(&call.outputs).map(String::as_str));
                    let (inputs, outputs) = self.operands(call).map_err(stopped)?;
                    let variant = self.variant(call).map_err(stopped)?;
                    recorded.push(Recorded::Call { op: &call.op, variant, inputs, outputs });
                }
                StepSpec::Write(write) => {
                    holds.push(&write.buffer);
                    let values = shadow.values(&site.inside("capture", index), write);
                    let values = values.map_err(Stopped::Harness)?;
                    let (buffer, bytes) = self.filled(&write.buffer, &values).map_err(stopped)?;
                    recorded.push(Recorded::Write { buffer, bytes });
                }
                _ => (),
            }
        }
        let work: Vec<_> = recorded.iter().map(Recorded::work).collect();
        Ok((self.backend.record(&work).map_err(stopped)?, holds))
    }

    /// Compares what a buffer holds with what it should.
    fn check(&mut self, shadow: &Shadow<'s>, site: &Site, check: &CheckSpec) -> Result<(), BackendError> {
        let actual = self.download(&check.buffer)?;
        let held = shadow.held(&check.buffer);
        let none = Op::from(Absmax { from: F32, nan: Default::default(), granularity: Default::default() });
        let made = held.and_then(|held| held.made.as_ref());
        // What is right may have notes, and these are of the inputs too.
        let inputs: Vec<_> =
            made.map_or(Vec::new(), |made| made.inputs.iter().map(|input| Tensor::clone(input)).collect());
        let (op, output) = made.map_or((&none, 0), |Made { op, output, .. }| (*op, *output));
        let (values, nan) = match &check.equals {
            Some(other) => (Values::Dense(self.download(other)?), Some(NanJudge::Bits)),
            None if check.judge.is_of_products() => (Values::Derived, None),
            None => {
                let Some(held) = held else { return Ok(()) };
                (Values::Dense((*held.tensor).clone()), None)
            }
        };
        let expected = Expected {
            ty: actual.ty().clone(),
            values,
            criterion: if check.equals.is_some() { Criterion::BitExact } else { check.judge },
            nan,
            computed: made.is_some() && check.equals.is_none(),
        };
        let device = self.backend.device();
        let context = context(self.subject, op, &inputs, &device);
        let verdict = judge(context, output, &expected, &actual);
        // What the first round shows holds for all.
        if self.judged.proves && verdict.ok && !self.judged.outputs.contains_key(&site.indices()) {
            let what = format!("buffer {} at {site}", check.buffer);
            let answers = answers(context, output, &expected, &Output::Whole(actual), None);
            self.judged.doubts.extend(doubt(&what, output, &answers, &[]));
        }
        let checked = Checked { buffer: check.buffer.clone(), step: site.to_string() };
        let verdict = OutputVerdict { check: Some(checked), ..verdict };
        self.judged.add(site, verdict);
        Ok(())
    }

    /// What a buffer holds. What lies around it must be as it was.
    fn download(&mut self, name: &str) -> Result<Tensor, BackendError> {
        let buffer = self.buffer(name)?;
        let bytes = self.backend.download(buffer)?;
        let fault = out_of_bounds(&label(name), buffer, &bytes)?;
        let tensor = buffer.layout().gather(&bytes)?.to_contiguous();
        self.judged.fault(fault);
        Ok(tensor)
    }

    /// Looks at a buffer for the last time: what was written by the host and by no call must still be
    /// there.
    fn leave(&mut self, shadow: &Shadow<'s>, name: &str) -> Result<(), BackendError> {
        let now = self.download(name)?;
        let Some(Held { tensor, made: None }) = shadow.held(name) else { return Ok(()) };
        if now != **tensor {
            let changed = (0..tensor.len()).find(|&index| now.code(index) != tensor.code(index));
            let fault = changed.map(|index| MemoryFault::InputChanged { tensor: label(name), index });
            self.judged.fault(fault);
        }
        Ok(())
    }

    fn finish(mut self, shadow: &Shadow<'s>) -> Result<(), BackendError> {
        self.graphs.clear();
        let names: Vec<_> = self.buffers.keys().copied().collect();
        names.into_iter().try_for_each(|name| self.leave(shadow, name))
    }
}

fn label(name: &str) -> String {
    format!("buffer {name}")
}

impl Judged {
    fn fault(&mut self, fault: Option<MemoryFault>) {
        self.memory.extend(fault.filter(|fault| !self.memory.contains(fault)));
    }

    fn add(&mut self, site: &Site, verdict: OutputVerdict) {
        let kept = match self.outputs.remove(&site.indices()) {
            Some(before) if !before.ok => before,
            // All that was compared here.
            Some(before) if verdict.ok => {
                OutputVerdict { elements: before.elements + verdict.elements, ..verdict }
            }
            _ => verdict,
        };
        self.outputs.insert(site.indices(), kept);
    }
}

#[cfg(test)]
mod tests;
