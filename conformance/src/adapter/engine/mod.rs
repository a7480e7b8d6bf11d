//! A small model of an inference engine's runtime.
//!
//! It computes with the reference, and does around that what engines do: memory comes from an
//! arena whose addresses are used again; work is queued on streams and done when somebody waits
//! for it, what was queued last first wherever nothing forbids it; weights and activations are
//! kept converted; kernels are kept with their parameters built in; scratch memory grows; graphs
//! hold addresses; copies are read from staging memory of the host. All of it is simulated, in
//! one thread and always in the same way.
//!
//! It is right, and each of these parts can be given the fault that engines have there, so that
//! sequences can be shown to find it: see [`EngineFault`].

mod arena;
mod caches;
mod runtime;
#[cfg(test)]
mod tests;

use crate::adapter::scalar::check_variant;
use arena::Operand;
use plumbline_reference::Cpu;
use plumbline_reference::backend::{
    Backend, BackendError, Buffer, Device, Graph, Launch, Layout, Stream, Unsupported, Work,
};
use plumbline_reference::ops::Op;
use runtime::{Runtime, STREAMS, Task};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

/// What an engine does wrong across calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFault {
    /// Converted weights are found by their address alone.
    StaleWeightCache,
    /// Converted activations are used again though the buffer was overwritten in place.
    StaleActivationCache,
    /// A kernel is found by its shapes alone, with the parameters of its first call built in.
    BakedConstant,
    /// A graph holds the address of scratch memory that was freed when it grew.
    ScratchGrowth,
    /// A graph computes from what its inputs held when it was recorded.
    GraphBakesInputs,
    /// Without a workspace sums are made in another order than is declared.
    WorkspaceDependent,
    /// Streams do not wait for one another.
    MissingStreamOrder,
    /// One of many calls alike gives another bit.
    NondeterministicRepeat,
    /// The accumulator of a maximum is cleared at its first use alone.
    AbsmaxNotCleared,
    /// A copy in a graph reads memory of the host that holds something else by then.
    GoneHostSource,
}

/// The engine.
///
/// Every thread has a runtime of its own, as every process of an engine has, and it lives from a
/// thread's first allocation until its last buffer and graph are gone: what one trial leaves
/// behind is nothing to the next.
#[derive(Default)]
pub struct Engine {
    fault: Option<EngineFault>,
    runtimes: Mutex<HashMap<ThreadId, Weak<Mutex<Runtime>>>>,
}

/// The usual way, and the one for calls without a workspace.
const VARIANTS: [&str; 2] = ["engine", "no_workspace"];

impl Engine {
    /// An engine that is right.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine with a fault.
    #[must_use]
    pub fn with_fault(fault: EngineFault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    fn runtime(&self) -> Arc<Mutex<Runtime>> {
        let mut runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        let own = runtimes.entry(thread::current().id()).or_default();
        if let Some(runtime) = own.upgrade() {
            return runtime;
        }
        let runtime = Arc::new(Mutex::new(Runtime::new(self.fault)));
        *own = Arc::downgrade(&runtime);
        runtime
    }
}

/// Memory of a runtime.
struct Block {
    runtime: Arc<Mutex<Runtime>>,
    address: u64,
}

fn locked(runtime: &Mutex<Runtime>) -> MutexGuard<'_, Runtime> {
    runtime.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut runtime = locked(&self.runtime);
        // Freeing waits for the work on what is freed. Work that fails is reported to who reads
        // what it should have written.
        let _ = runtime.drain();
        runtime.arena.free(self.address);
    }
}

fn operand(buffer: &Buffer) -> Result<Operand, BackendError> {
    Ok(Operand { address: buffer.memory::<Block>()?.address, layout: buffer.layout().clone() })
}

fn check_size(buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
    let (given, expected) = (bytes.len(), buffer.layout().total()?);
    if given == expected { Ok(()) } else { Err(BackendError::BufferSize { given, expected }) }
}

fn has_workspace(op: &Op, variant: &str) -> Result<bool, BackendError> {
    check_variant(op, variant, &VARIANTS)?;
    Ok(variant == VARIANTS[0])
}

/// The runtime that buffers are of.
fn runtime_of(buffers: &[&Buffer]) -> Result<Option<Arc<Mutex<Runtime>>>, BackendError> {
    let mut runtimes = Vec::new();
    for buffer in buffers {
        runtimes.push(buffer.memory::<Block>()?.runtime.clone());
    }
    match runtimes.split_first() {
        None => Ok(None),
        Some((first, others)) if others.iter().all(|other| Arc::ptr_eq(first, other)) => {
            Ok(Some(first.clone()))
        }
        Some(_) => Err(BackendError::ForeignBuffer),
    }
}

impl Backend for Engine {
    fn name(&self) -> &str {
        if self.fault.is_some() { "demo-fault" } else { "engine" }
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        Cpu.supports(op)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANTS[0].to_owned()]
    }

    fn stepwise(&self) -> bool {
        true
    }

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        let (runtime, bytes) = (self.runtime(), layout.total()?);
        let address = locked(&runtime).allocate(bytes, layout.poison);
        Ok(Buffer::new(layout.clone(), Block { runtime, address }))
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let block = buffer.memory::<Block>()?;
        check_size(buffer, bytes)?;
        locked(&block.runtime).upload(block.address, bytes)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        let has_workspace = has_workspace(launch.op, launch.variant)?;
        let runtime = runtime_of(&[launch.inputs, launch.outputs].concat())?;
        let runtime = runtime.unwrap_or_else(|| self.runtime());
        let mut runtime = locked(&runtime);
        let task = runtime.kernel(launch, has_workspace)?;
        runtime.queue(launch.stream, task)
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        let block = buffer.memory::<Block>()?;
        let mut runtime = locked(&block.runtime);
        runtime.drain()?;
        Ok(runtime.arena.bytes(block.address, buffer.layout().total()?).to_vec())
    }

    fn streams(&self) -> u32 {
        STREAMS as u32
    }

    fn order(&self, from: Stream, to: Stream) -> Result<(), BackendError> {
        locked(&self.runtime()).order(from, to)
    }

    fn wait(&self, stream: Option<Stream>) -> Result<(), BackendError> {
        locked(&self.runtime()).wait(stream)
    }

    fn without_workspace(&self, op: &Op, variant: &str) -> Option<String> {
        let is_there = matches!(op, Op::Gemm(_)) && variant == VARIANTS[0];
        is_there.then(|| VARIANTS[1].to_owned())
    }

    fn address(&self, buffer: &Buffer) -> Option<u64> {
        buffer.memory::<Block>().ok().map(|block| block.address)
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        self.record(&calls.iter().copied().map(Work::Launch).collect::<Vec<_>>())
    }

    fn record(&self, work: &[Work<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let buffers = work.iter().flat_map(|work| match *work {
            Work::Launch(call) => [call.inputs, call.outputs].concat(),
            Work::Upload { buffer, .. } => vec![buffer],
        });
        let runtime = runtime_of(&buffers.collect::<Vec<_>>())?.unwrap_or_else(|| self.runtime());
        let tasks = locked(&runtime).record(work)?;
        Ok(Box::new(EngineGraph { runtime, tasks }))
    }
}

/// Recorded work. It does not keep the memory it is done on.
struct EngineGraph {
    runtime: Arc<Mutex<Runtime>>,
    tasks: Vec<Task>,
}

impl Graph for EngineGraph {
    fn replay(&self) -> Result<(), BackendError> {
        self.replay_on(Stream::default())
    }

    fn replay_on(&self, stream: Stream) -> Result<(), BackendError> {
        let mut runtime = locked(&self.runtime);
        self.tasks.iter().try_for_each(|task| runtime.queue(stream, task.clone()))
    }
}
