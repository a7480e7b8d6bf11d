//! The memory contract of a call: nothing outside the elements is read or written,
//! inputs stay as they were, and every element of every output is written.
//!
//! Where a backend has steps, every call is made twice or more, in buffers with guard zones,
//! each time over other poison and elsewhere within 16 bytes. An output that follows the
//! poison was not written; one that differs otherwise depends on memory outside its
//! inputs. Where it can, the call is also made on two streams at once and replayed from a
//! recorded graph, which must give the same bits.

use plumbline_reference::backend::{Buffer, Launch, Layout, Staged, Stream};
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, BackendError, Tensor, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// What memory outside the inputs holds: zeros, which a sum or a maximum does not
/// notice, then ones, which are NaN in most formats.
const POISON: [u8; 2] = [0x00, 0xff];

/// What a call's `run`-th time finds outside the elements.
fn poison(run: u32) -> u8 {
    POISON[run as usize % 2]
}

/// Bytes that a tensor begins after a boundary of 16, in the `run`-th call: none in the first,
/// so that any vector is aligned, then one element or more, differently for each buffer.
fn offset(ty: &TensorType, run: u32, buffer: usize) -> usize {
    let width = ty.dtype.bytes();
    let places = 16 / width;
    let elements: usize = ty.shape.iter().product();
    if run == 0 { 0 } else { width * (1 + (elements + run as usize / 2 + 7 * buffer) % (places - 1)) }
}

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// How often each call is made, at least twice.
    pub runs: u32,
    /// Bytes of each guard zone.
    pub guard: usize,
}

impl Default for Contract {
    fn default() -> Self {
        // A block of 1024 threads that writes past the end stays in the guard zone.
        Self { runs: 2, guard: 4096 }
    }
}

/// A broken memory contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum MemoryFault {
    /// A byte outside the elements was written.
    #[error(
        "{tensor}: byte {offset} relative to the first element was written; the elements end at byte {len}"
    )]
    OutOfBounds {
        /// The buffer: `input x`, `output 0`.
        tensor: String,
        /// Byte relative to the first element.
        offset: i64,
        /// Bytes of the elements.
        len: usize,
    },
    /// An element of an input was changed.
    #[error("{tensor}: element {index} was changed by the call")]
    InputChanged {
        /// The buffer.
        tensor: String,
        /// Its first changed element.
        index: usize,
    },
    /// Elements of an output were not written.
    #[error("{tensor}: {count} elements were not written, the first is {index}")]
    Unwritten {
        /// The buffer.
        tensor: String,
        /// How many.
        count: usize,
        /// The first.
        index: usize,
    },
    /// Two calls on the same inputs gave different results.
    #[error(
        "{tensor}: {count} elements differ between two calls on the same inputs, the first is {index}: \
         they depend on memory outside the inputs, or the call is not deterministic"
    )]
    Unstable {
        /// The buffer.
        tensor: String,
        /// How many.
        count: usize,
        /// The first.
        index: usize,
    },
    /// Of two calls on two streams at once, one gave other results than a call alone.
    #[error(
        "{tensor}: {count} elements differ when two streams make the call at once, the first is {index}: \
         calls share memory, or the call does not stay on its stream"
    )]
    Concurrent {
        /// The buffer.
        tensor: String,
        /// How many.
        count: usize,
        /// The first.
        index: usize,
    },
    /// A replay of the recorded call gave other results than the call itself.
    #[error(
        "{tensor}: {count} elements differ when the call is replayed from a graph, the first is {index}: \
         it does more than what it queues on its stream, or depends on earlier calls"
    )]
    Replayed {
        /// The buffer.
        tensor: String,
        /// How many.
        count: usize,
        /// The first.
        index: usize,
    },
}

/// The outputs of a call and what it did to memory.
#[derive(Debug)]
pub struct Execution {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// Broken contracts.
    pub faults: Vec<MemoryFault>,
}

/// Runs an operation; under the memory contract where the backend has steps.
pub fn execute(
    backend: &dyn Backend,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
    contract: Contract,
) -> Result<Execution, BackendError> {
    if !backend.stepwise() {
        return Ok(Execution { outputs: backend.run(op, variant, inputs)?, faults: Vec::new() });
    }
    let call = Call { backend, op, variant, inputs, guard: contract.guard };
    let first = call.guarded(0)?;
    let mut faults = first.faults;
    let mut add = |found: Vec<MemoryFault>| {
        for fault in found {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    };
    for run in 1..contract.runs.max(2) {
        let again = call.guarded(run)?;
        add(again.faults);
        for (i, (first, again)) in first.outputs.iter().zip(&again.outputs).enumerate() {
            add(compare(&format!("output {i}"), (first, poison(0)), (again, poison(run))));
        }
    }
    add(call.concurrent(&first.outputs)?);
    add(call.replayed(&first.outputs)?);
    Ok(Execution { outputs: first.outputs, faults })
}

/// One call, which is made in several ways.
struct Call<'a> {
    backend: &'a dyn Backend,
    op: &'a Op,
    variant: &'a str,
    inputs: &'a [Tensor],
    guard: usize,
}

impl Call<'_> {
    /// Buffers for the call's `run`-th time.
    fn stage(&self, run: u32) -> Result<Staged, BackendError> {
        let buffers = Cell::new(0);
        Staged::new(self.backend, self.op, self.inputs, |ty| {
            let buffer = buffers.replace(buffers.get() + 1);
            let offset = offset(&ty, run, buffer);
            Layout { guard: self.guard, offset, poison: poison(run), ..Layout::contiguous(ty) }
        })
    }

    fn launch(&self, staged: &Staged, stream: Stream) -> Result<(), BackendError> {
        staged.with_call(self.op, self.variant, stream, |call| self.backend.launch(call))
    }

    /// A call alone, and what it did to memory.
    fn guarded(&self, run: u32) -> Result<Execution, BackendError> {
        let staged = self.stage(run)?;
        self.launch(&staged, Stream::default())?;
        self.examine(&staged)
    }

    /// The outputs, and what was done to memory.
    fn examine(&self, staged: &Staged) -> Result<Execution, BackendError> {
        let mut faults = Vec::new();
        for (i, (buffer, tensor)) in staged.inputs.iter().zip(self.inputs).enumerate() {
            let name = format!("input {}", self.op.input_names().get(i).copied().unwrap_or("?"));
            let bytes = self.backend.download(buffer)?;
            faults.extend(out_of_bounds(&name, buffer, &bytes)?);
            let now = buffer.layout().gather(&bytes)?;
            if let Some(index) = (0..tensor.len()).find(|&index| now.code(index) != tensor.code(index)) {
                faults.push(MemoryFault::InputChanged { tensor: name, index });
            }
        }
        let mut outputs = Vec::new();
        for (i, buffer) in staged.outputs.iter().enumerate() {
            let bytes = self.backend.download(buffer)?;
            faults.extend(out_of_bounds(&format!("output {i}"), buffer, &bytes)?);
            outputs.push(buffer.layout().gather(&bytes)?);
        }
        Ok(Execution { outputs, faults })
    }

    /// Two calls on two streams at once, one of them aligned.
    fn concurrent(&self, outputs: &[Tensor]) -> Result<Vec<MemoryFault>, BackendError> {
        if self.backend.streams() < 2 {
            return Ok(Vec::new());
        }
        let calls = [self.stage(1)?, self.stage(0)?];
        for (staged, stream) in calls.iter().zip(0..) {
            self.launch(staged, Stream(stream))?;
        }
        let fault = |tensor, count, index| MemoryFault::Concurrent { tensor, count, index };
        let mut faults = Vec::new();
        for staged in &calls {
            let execution = self.examine(staged)?;
            faults.extend(differing(&execution.outputs, outputs, fault));
            faults.extend(execution.faults);
        }
        Ok(faults)
    }

    /// The call recorded, aligned and not, and replayed twice, each time over poison.
    fn replayed(&self, outputs: &[Tensor]) -> Result<Vec<MemoryFault>, BackendError> {
        let mut faults = Vec::new();
        if !self.backend.has_graphs() {
            return Ok(faults);
        }
        let fault = |tensor, count, index| MemoryFault::Replayed { tensor, count, index };
        for run in [0, 1] {
            let staged = self.stage(run)?;
            let capture = |call: Launch<'_>| self.backend.capture(&[call]);
            let graph = staged.with_call(self.op, self.variant, Stream::default(), capture)?;
            for _ in 0..2 {
                for buffer in &staged.outputs {
                    let layout = buffer.layout();
                    self.backend.upload(buffer, &vec![layout.poison; layout.total()?])?;
                }
                graph.replay()?;
                let execution = self.examine(&staged)?;
                faults.extend(differing(&execution.outputs, outputs, fault));
                faults.extend(execution.faults);
            }
        }
        Ok(faults)
    }
}

/// A fault for each output that is not what it was.
fn differing(
    now: &[Tensor],
    before: &[Tensor],
    fault: impl Fn(String, usize, usize) -> MemoryFault,
) -> Vec<MemoryFault> {
    let mut faults = Vec::new();
    for (i, (now, before)) in now.iter().zip(before).enumerate() {
        if now.bytes() == before.bytes() {
            continue;
        }
        let wrong: Vec<_> =
            (0..before.len()).filter(|&index| now.code(index) != before.code(index)).collect();
        if let Some(&index) = wrong.first() {
            faults.push(fault(format!("output {i}"), wrong.len(), index));
        }
    }
    faults
}

/// What two calls say of one output, each over its poison.
fn compare(tensor: &str, first: (&Tensor, u8), second: (&Tensor, u8)) -> Vec<MemoryFault> {
    let ((first, poison), (second, other)) = (first, second);
    if first.bytes() == second.bytes() {
        return Vec::new();
    }
    let width = first.dtype().bytes();
    let elements = || first.bytes().chunks_exact(width).zip(second.bytes().chunks_exact(width)).enumerate();
    let is_poison = |bytes: &[u8], poison| bytes.iter().all(|&byte| byte == poison);
    let unwritten = |a: &[u8], b: &[u8]| poison != other && is_poison(a, poison) && is_poison(b, other);
    let indices = |pick: &dyn Fn(&[u8], &[u8]) -> bool| -> Vec<usize> {
        elements().filter(|(_, (a, b))| pick(a, b)).map(|(i, _)| i).collect()
    };
    let tensor = || tensor.to_owned();
    let mut faults = Vec::new();
    let silent = indices(&unwritten);
    if let Some(&index) = silent.first() {
        faults.push(MemoryFault::Unwritten { tensor: tensor(), count: silent.len(), index });
    }
    let unstable = indices(&|a, b| a != b && !unwritten(a, b));
    if let Some(&index) = unstable.first() {
        faults.push(MemoryFault::Unstable { tensor: tensor(), count: unstable.len(), index });
    }
    faults
}

/// The first byte that belongs to no element and is no longer poison, gaps included.
fn out_of_bounds(tensor: &str, buffer: &Buffer, bytes: &[u8]) -> Result<Option<MemoryFault>, BackendError> {
    let layout = buffer.layout();
    let start = layout.guard + layout.offset;
    let len = layout.span()?;
    let mut outside = bytes.to_vec();
    if layout.strides == layout.ty.contiguous_strides() {
        outside[start..start + len].fill(layout.poison);
    } else {
        let width = layout.ty.dtype.bytes();
        for index in 0..layout.ty.elements()? {
            outside[layout.byte_of(index)..][..width].fill(layout.poison);
        }
    }
    let written = outside.iter().position(|&byte| byte != layout.poison);
    Ok(written.map(|at| MemoryFault::OutOfBounds {
        tensor: tensor.to_owned(),
        offset: at as i64 - start as i64,
        len,
    }))
}

#[cfg(test)]
mod tests;
