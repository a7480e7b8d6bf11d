//! The inside of an engine: queues of work that is done late, on memory with addresses.

use super::EngineFault;
use super::arena::{Arena, Operand, Stamp};
use super::caches::{Built, Conversions, Kernels, Role, role};
use plumbline_reference::backend::{BackendError, Buffer, Launch, Stream, Unsupported, Work};
use plumbline_reference::ops::{Gemm, Op};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// How many streams there are.
pub(super) const STREAMS: usize = 2;
/// Bytes of the smallest scratch memory.
const SCRATCH: usize = 16 << 10;
/// The call that goes wrong of many alike.
const ODD_CALL: u64 = 613;

#[derive(Default)]
pub(super) struct Runtime {
    fault: Option<EngineFault>,
    pub(super) arena: Arena,
    streams: [VecDeque<Item>; STREAMS],
    /// How much was ever queued.
    queued: u64,
    /// Events that have happened.
    happened: HashSet<u64>,
    conversions: Conversions,
    kernels: Kernels,
    scratch: Option<Arc<Scratch>>,
    /// Scratch memory that became too small, until nothing uses it.
    retired: Vec<Arc<Scratch>>,
    /// Memory of the host that copies are read from.
    staging: Vec<u8>,
    /// How often each call was made.
    calls: HashMap<(Vec<u64>, String), u64>,
    /// Accumulators that were cleared.
    cleared: HashSet<(u64, u64)>,
}

/// Work on a stream.
struct Item {
    /// How much was queued before, on any stream.
    ticket: u64,
    task: Task,
}

#[derive(Clone)]
pub(super) enum Task {
    Kernel(Kernel),
    Copy(Copy),
    /// Makes an event happen.
    Signal(u64),
    /// Waits for an event.
    Await(u64),
}

/// A call.
#[derive(Clone)]
pub(super) struct Kernel {
    built: Arc<Built>,
    inputs: Vec<Input>,
    outputs: Vec<Operand>,
    /// Where activations are converted to.
    scratch: Address,
    has_workspace: bool,
}

#[derive(Clone)]
enum Input {
    Memory(Operand),
    /// What was there when the call was recorded.
    Baked(Arc<Tensor>),
}

/// Scratch memory, which is freed when nothing holds it any more.
struct Scratch {
    address: u64,
    len: usize,
}

#[derive(Clone)]
enum Address {
    Held(Arc<Scratch>),
    Bare(u64),
}

/// A copy from the host.
#[derive(Clone)]
pub(super) struct Copy {
    to: u64,
    from: Source,
}

#[derive(Clone)]
enum Source {
    Own(Arc<[u8]>),
    /// So many bytes of whatever the staging memory holds by then.
    Staging(usize),
}

impl Runtime {
    pub(super) fn new(fault: Option<EngineFault>) -> Self {
        Self { fault, ..Self::default() }
    }

    fn has(&self, fault: EngineFault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn queue(&mut self, stream: Stream, task: Task) -> Result<(), BackendError> {
        let absent = || Unsupported(format!("has {STREAMS} streams, from 0"));
        let queue = self.streams.get_mut(stream.0 as usize).ok_or_else(absent)?;
        queue.push_back(Item { ticket: self.queued, task });
        self.queued += 1;
        Ok(())
    }

    /// Makes later work on streams wait for what is queued on one.
    pub(super) fn signal(&mut self, from: Stream, to: &[Stream]) -> Result<(), BackendError> {
        let event = self.queued;
        self.queue(from, Task::Signal(event))?;
        to.iter().try_for_each(|&to| self.queue(to, Task::Await(event)))
    }

    pub(super) fn order(&mut self, from: Stream, to: Stream) -> Result<(), BackendError> {
        if self.has(EngineFault::MissingStreamOrder) {
            return Ok(());
        }
        self.signal(from, &[to])
    }

    pub(super) fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.staging = bytes.to_vec();
        let task = Task::Copy(Copy { to, from: Source::Own(bytes.into()) });
        self.queue(Stream(0), task)?;
        self.signal(Stream(0), &(1..STREAMS as u32).map(Stream).collect::<Vec<_>>())
    }

    /// The work of a call, to be queued.
    pub(super) fn kernel(&mut self, launch: Launch<'_>, has_workspace: bool) -> Result<Task, BackendError> {
        launch.check()?;
        let operands = |buffers: &[&Buffer]| {
            buffers.iter().map(|buffer| super::operand(buffer)).collect::<Result<Vec<_>, _>>()
        };
        let (inputs, outputs) = (operands(launch.inputs)?, operands(launch.outputs)?);
        let types: Vec<TensorType> =
            inputs.iter().chain(&outputs).map(|operand| operand.layout.ty.clone()).collect();
        let built = self.kernels.get(launch.op, &types, self.fault);
        let converted = (0..inputs.len()).find(|&i| role(&built.op, i) == Role::Activations);
        let bytes = converted.map_or(Ok(0), |i| inputs[i].layout.ty.elements())?;
        let bytes = bytes * converted.map_or(0, |i| inputs[i].layout.ty.dtype.bytes());
        let scratch = Address::Held(self.scratch(bytes));
        let inputs = inputs.into_iter().map(Input::Memory).collect();
        Ok(Task::Kernel(Kernel { built, inputs, outputs, scratch, has_workspace }))
    }

    /// The tasks of a graph.
    pub(super) fn record(&mut self, work: &[Work<'_>]) -> Result<Vec<Task>, BackendError> {
        let mut tasks = Vec::new();
        for work in work {
            tasks.push(match *work {
                Work::Launch(launch) => {
                    let has_workspace = super::has_workspace(launch.op, launch.variant)?;
                    let task = self.kernel(launch, has_workspace)?;
                    self.recorded(task)?
                }
                Work::Upload { buffer, bytes } => {
                    super::check_size(buffer, bytes)?;
                    self.staging = bytes.to_vec();
                    let from = if self.has(EngineFault::GoneHostSource) {
                        Source::Staging(bytes.len())
                    } else {
                        Source::Own(bytes.into())
                    };
                    Task::Copy(Copy { to: super::operand(buffer)?.address, from })
                }
            });
        }
        Ok(tasks)
    }

    /// What a graph keeps of a call.
    fn recorded(&mut self, task: Task) -> Result<Task, BackendError> {
        let Task::Kernel(mut kernel) = task else { return Ok(task) };
        if let (true, Address::Held(scratch)) = (self.has(EngineFault::ScratchGrowth), &kernel.scratch) {
            kernel.scratch = Address::Bare(scratch.address);
        }
        if self.has(EngineFault::GraphBakesInputs) {
            self.drain()?;
            for input in &mut kernel.inputs {
                if let Input::Memory(operand) = input {
                    *input = Input::Baked(Arc::new(self.arena.read(operand)?));
                }
            }
        }
        Ok(Task::Kernel(kernel))
    }

    /// Scratch memory of at least so many bytes.
    fn scratch(&mut self, bytes: usize) -> Arc<Scratch> {
        if let Some(scratch) = self.scratch.as_ref().filter(|scratch| scratch.len >= bytes) {
            return scratch.clone();
        }
        let len = bytes.next_power_of_two().max(SCRATCH);
        let scratch = Arc::new(Scratch { address: self.arena.allocate(len), len });
        self.retired.extend(self.scratch.replace(scratch.clone()));
        scratch
    }

    pub(super) fn allocate(&mut self, bytes: usize, poison: u8) -> u64 {
        let arena = &mut self.arena;
        self.retired.retain(|scratch| {
            let is_held = Arc::strong_count(scratch) > 1;
            if !is_held {
                arena.free(scratch.address);
            }
            is_held
        });
        let address = self.arena.allocate(bytes);
        self.arena.bytes_mut(address, bytes).fill(poison);
        address
    }

    /// Does the work on a stream, or on all.
    pub(super) fn wait(&mut self, stream: Option<Stream>) -> Result<(), BackendError> {
        let Some(stream) = stream else { return self.drain() };
        let index = stream.0 as usize;
        while self.streams.get(index).is_some_and(|queue| !queue.is_empty()) {
            self.step(index)?;
        }
        Ok(())
    }

    /// Does all work, first that of the stream whose last work was queued last, wherever nothing
    /// forbids it: an order that was not asked for is not kept by chance.
    pub(super) fn drain(&mut self) -> Result<(), BackendError> {
        loop {
            let ready = self.streams.iter().enumerate().filter_map(|(i, queue)| {
                let is_ready = match queue.front()?.task {
                    Task::Await(event) => self.happened.contains(&event),
                    _ => true,
                };
                is_ready.then_some((i, queue.back()?.ticket))
            });
            let Some((index, _)) = ready.max_by_key(|&(_, ticket)| ticket) else { return Ok(()) };
            self.step(index)?;
        }
    }

    /// Does the next work of a stream, and before that what it waits for.
    fn step(&mut self, index: usize) -> Result<(), BackendError> {
        let Some(item) = self.streams[index].pop_front() else { return Ok(()) };
        match item.task {
            Task::Signal(event) => {
                self.happened.insert(event);
                Ok(())
            }
            Task::Await(event) => {
                let signals = |queue: &VecDeque<Item>| {
                    queue.iter().any(|item| matches!(item.task, Task::Signal(own) if own == event))
                };
                while !self.happened.contains(&event) {
                    let Some(other) = self.streams.iter().position(signals) else { break };
                    self.step(other)?;
                }
                Ok(())
            }
            Task::Copy(Copy { to, from }) => {
                match from {
                    Source::Own(bytes) => self.arena.bytes_mut(to, bytes.len()).copy_from_slice(&bytes),
                    Source::Staging(len) => {
                        let target = self.arena.bytes_mut(to, len);
                        let there = len.min(self.staging.len());
                        target[..there].copy_from_slice(&self.staging[..there]);
                    }
                }
                Ok(())
            }
            Task::Kernel(kernel) => self.execute(&kernel),
        }
    }

    fn execute(&mut self, kernel: &Kernel) -> Result<(), BackendError> {
        let Built { op, bias } = &*kernel.built;
        let mut inputs = Vec::with_capacity(kernel.inputs.len());
        for (i, input) in kernel.inputs.iter().enumerate() {
            let role = role(op, i);
            let tensor = match input {
                Input::Baked(tensor) => tensor.clone(),
                Input::Memory(operand) => self.conversions.read(&self.arena, role, operand, self.fault)?,
            };
            let tensor = match (i, bias) {
                (2, Some(len)) => first_elements(&tensor, *len)?,
                _ => Tensor::clone(&tensor),
            };
            inputs.push(if role == Role::Activations {
                self.converted(&kernel.scratch, tensor)?
            } else {
                tensor
            });
        }
        let computed = match op {
            Op::Gemm(gemm) if !kernel.has_workspace && self.has(EngineFault::WorkspaceDependent) => {
                reversed(gemm, &inputs)?
            }
            _ => inputs,
        };
        let mut outputs = op.evaluate(&computed, Path::fastest())?;
        if let (Op::Absmax(_), true) = (op, self.has(EngineFault::AbsmaxNotCleared)) {
            self.accumulate(&kernel.outputs[0], &mut outputs[0])?;
        }
        if self.has(EngineFault::NondeterministicRepeat) && self.is_odd(kernel) {
            outputs[0] = with_first_flipped(&outputs[0])?;
        }
        for (operand, output) in kernel.outputs.iter().zip(&outputs) {
            self.arena.write(operand, output)?;
        }
        Ok(())
    }

    /// Activations by way of the scratch memory, which one kernel writes and the next reads.
    fn converted(&mut self, scratch: &Address, tensor: Tensor) -> Result<Tensor, TensorError> {
        let address = match scratch {
            Address::Held(scratch) => scratch.address,
            Address::Bare(address) => *address,
        };
        let bytes = tensor.packed();
        self.arena.bytes_mut(address, bytes.len()).copy_from_slice(&bytes);
        Tensor::from_bytes(tensor.ty().clone(), self.arena.bytes(address, bytes.len()).to_vec())
    }

    /// The maximum with what the accumulator holds, unless this is its first use.
    fn accumulate(&mut self, operand: &Operand, output: &mut Tensor) -> Result<(), TensorError> {
        let Some(Stamp { serial, .. }) = self.arena.stamp(operand.address) else { return Ok(()) };
        if self.cleared.insert((operand.address, serial)) {
            return Ok(());
        }
        let before = self.arena.read(operand)?;
        // Magnitudes order as their bits do, NaN last.
        let code = |i: usize| before.code(i).max(output.code(i));
        *output = Tensor::from_fn(output.ty().clone(), Path::Definition, code)?;
        Ok(())
    }

    /// Whether this is the one of many calls alike.
    fn is_odd(&mut self, kernel: &Kernel) -> bool {
        let address = |operand: &Operand| operand.address;
        let inputs = kernel.inputs.iter().map(|input| match input {
            Input::Memory(operand) => operand.address,
            Input::Baked(_) => 0,
        });
        let addresses = inputs.chain(kernel.outputs.iter().map(address)).collect();
        let count = self.calls.entry((addresses, kernel.built.op.name().to_owned())).or_default();
        *count += 1;
        *count == ODD_CALL
    }
}

/// Operands whose sums run the other way.
fn reversed(gemm: &Gemm, inputs: &[Tensor]) -> Result<Vec<Tensor>, TensorError> {
    let mut inputs = inputs.to_vec();
    for (i, along_last) in [!gemm.transpose_a, gemm.transpose_b].into_iter().enumerate() {
        let tensor = &inputs[i];
        let &[.., rows, columns] = tensor.shape() else { continue };
        let code = |element: usize| {
            let (row, column) = (element / columns, element % columns);
            let (batch, inside) = (row / rows, row % rows);
            let (inside, column) =
                if along_last { (inside, columns - 1 - column) } else { (rows - 1 - inside, column) };
            tensor.code((batch * rows + inside) * columns + column)
        };
        inputs[i] = Tensor::from_fn(tensor.ty().clone(), Path::Definition, code)?;
    }
    Ok(inputs)
}

/// The first elements, and zeros.
fn first_elements(tensor: &Tensor, len: usize) -> Result<Tensor, TensorError> {
    let code = |i: usize| if i < len { tensor.code(i) } else { 0 };
    Tensor::from_fn(tensor.ty().clone(), Path::Definition, code)
}

/// One bit off in its first element.
fn with_first_flipped(tensor: &Tensor) -> Result<Tensor, TensorError> {
    let code = |i: usize| tensor.code(i) ^ u64::from(i == 0);
    Tensor::from_fn(tensor.ty().clone(), Path::Definition, code)
}
