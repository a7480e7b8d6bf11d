//! The shadow machine: the steps with the reference, on tensors of the host, in the order in
//! which they stand. A sequence that passed its checks has no two steps whose order is left
//! open, so streams and waiting change nothing here.

use super::check::reader;
use super::{AllocateSpec, CallSpec, Failed, Sequence, Site, StepSpec, WriteSpec};
use crate::generate::{Request, generate};
use crate::seed;
use crate::source::literal_of;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{Absmax, Op};
use plumbline_reference::{Path, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a buffer holds, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Held<'s> {
    pub(super) tensor: Arc<Tensor>,
    pub(super) made: Option<Made<'s>>,
}

/// The call that computed something.
#[derive(Clone, Debug)]
pub(super) struct Made<'s> {
    pub(super) op: &'s Op,
    pub(super) inputs: Arc<[Arc<Tensor>]>,
    pub(super) output: usize,
}

/// Inputs of a call and what it gives.
type Evaluated = (Arc<[Arc<Tensor>]>, Vec<Arc<Tensor>>);

pub(super) struct Shadow<'s> {
    sequence: &'s Sequence,
    seed: u64,
    buffers: BTreeMap<&'s str, Held<'s>>,
    graphs: BTreeMap<&'s str, Vec<Work<'s>>>,
    /// What was written at each step, which is the same in every round.
    written: HashMap<String, Arc<Tensor>>,
    /// The last inputs of each call and its outputs: most repeats have the same.
    evaluated: HashMap<*const CallSpec, Evaluated>,
}

/// Recorded work.
#[derive(Clone)]
enum Work<'s> {
    Call(&'s CallSpec),
    Write(&'s str, Arc<Tensor>),
}

impl<'s> Shadow<'s> {
    pub(super) fn new(sequence: &'s Sequence, run_seed: u64) -> Self {
        Self {
            sequence,
            seed: seed::of_case(&sequence.name, run_seed),
            buffers: BTreeMap::new(),
            graphs: BTreeMap::new(),
            written: HashMap::new(),
            evaluated: HashMap::new(),
        }
    }

    /// Before the first step again.
    pub(super) fn begin(&mut self) {
        self.buffers.clear();
        self.graphs.clear();
    }

    /// What a buffer holds, if anything was put into it.
    pub(super) fn held(&self, buffer: &str) -> Option<&Held<'s>> {
        self.buffers.get(buffer)
    }

    pub(super) fn take(&mut self, site: &Site, step: &'s StepSpec) -> Result<(), Failed> {
        let failed = |why| Failed { site: site.clone(), why };
        match step {
            StepSpec::Allocate(AllocateSpec::Anywhere(names)) | StepSpec::Free(names) => {
                for name in names.as_slice() {
                    self.buffers.remove(&**name);
                }
            }
            StepSpec::Allocate(AllocateSpec::At(at)) => {
                self.buffers.remove(&*at.buffer);
            }
            StepSpec::Write(write) => {
                let tensor = self.values(site, write).map_err(failed)?;
                self.buffers.insert(&write.buffer, Held { tensor, made: None });
            }
            StepSpec::Call(call) => self.call(call).map_err(failed)?,
            StepSpec::Capture(capture) => {
                let mut graph = Vec::new();
                for (index, step) in capture.steps.iter().enumerate() {
                    let site = site.inside("capture", index);
                    match step {
                        StepSpec::Call(call) => graph.push(Work::Call(call)),
                        StepSpec::Write(write) => {
                            let values = self.values(&site, write);
                            let values = values.map_err(|why| Failed { site, why })?;
                            graph.push(Work::Write(&write.buffer, values));
                        }
                        _ => (),
                    }
                }
                self.graphs.insert(&capture.graph, graph);
            }
            StepSpec::Replay(replay) => {
                let graph = self.graphs.get(&*replay.graph).cloned().unwrap_or_default();
                for work in (0..replay.times).flat_map(|_| &graph) {
                    match work {
                        Work::Call(call) => self.call(call).map_err(failed)?,
                        Work::Write(buffer, tensor) => {
                            self.buffers.insert(buffer, Held { tensor: tensor.clone(), made: None });
                        }
                    }
                }
            }
            StepSpec::Wait(_) | StepSpec::Order(_) | StepSpec::Check(_) | StepSpec::Repeat(_) => (),
        }
        Ok(())
    }

    /// What a step puts into its buffer.
    pub(super) fn values(&mut self, site: &Site, write: &'s WriteSpec) -> Result<Arc<Tensor>, String> {
        let path = site.path();
        if let Some(values) = self.written.get(&path) {
            return Ok(values.clone());
        }
        let ty = &self.sequence.types[&write.buffer];
        let values = match (&write.bits, &write.generate) {
            (Some(bits), _) => literal_of(ty, bits)?,
            (None, Some(class)) => {
                // A buffer that no call reads is given what any input of numbers would hold.
                let none =
                    Op::from(Absmax { from: F32, nan: Default::default(), granularity: Default::default() });
                let (op, input) = match reader(self.sequence, &write.buffer) {
                    Some((call, input)) => (&call.op, input),
                    None => (&none, 0),
                };
                let request = Request {
                    class,
                    dtype: ty.dtype,
                    shape: Some(&ty.shape),
                    blocks: self.sequence.spec.buffers[&write.buffer].blocks,
                    lanes: 1,
                    seed: write.seed.unwrap_or_else(|| seed::mix(self.seed, seed::hash(&path))),
                    op,
                    input,
                    others: &[],
                };
                generate(&request).map_err(|error| format!("generate: {error}"))?
            }
            (None, None) => return Err("needs exactly one of `bits` and `generate`".to_owned()),
        };
        if values.ty() != ty {
            return Err(format!("generate: gives {}, `{}` is {ty}", values.ty(), write.buffer));
        }
        let values = Arc::new(values);
        self.written.insert(path, values.clone());
        Ok(values)
    }

    fn call(&mut self, call: &'s CallSpec) -> Result<(), String> {
        let held = |name: &String| {
            let held = self.buffers.get(&**name).map(|held| held.tensor.clone());
            held.ok_or_else(|| format!("nothing was put into `{name}`"))
        };
        let inputs = call.inputs.iter().map(held).collect::<Result<Vec<_>, _>>()?;
        let same = |before: &Arc<[Arc<Tensor>]>| {
            before.iter().zip(&inputs).all(|(before, input)| Arc::ptr_eq(before, input))
        };
        let last = self.evaluated.get(&std::ptr::from_ref(call)).filter(|(before, _)| same(before));
        let (inputs, outputs) = match last {
            Some(last) => last.clone(),
            None => {
                let given: Vec<_> = inputs.iter().map(|input| Tensor::clone(input)).collect();
                let outputs =
                    call.op.evaluate(&given, Path::Definition).map_err(|error| error.to_string())?;
                let made: Evaluated = (inputs.into(), outputs.into_iter().map(Arc::new).collect());
                self.evaluated.insert(call, made.clone());
                made
            }
        };
        for (output, (name, tensor)) in call.outputs.iter().zip(outputs).enumerate() {
            let made = Some(Made { op: &call.op, inputs: inputs.clone(), output });
            self.buffers.insert(name, Held { tensor, made });
        }
        Ok(())
    }
}
