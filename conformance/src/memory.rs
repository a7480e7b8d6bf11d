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
use plumbline_reference::{Backend, BackendError, Path, Tensor, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;

/// What memory outside the inputs holds: zeros, which a sum or a maximum does not notice;
/// ones, which are NaN in most formats and may count as absent; and what is a large number in
/// every format.
pub(crate) const POISON: [u8; 3] = [0x00, 0xff, 0x7b];

/// How the `run`-th call finds memory. Poisons change at every call, and how buffers begin
/// within 16 bytes in a cycle of another length, so that in time each meets each.
#[derive(Clone, Copy)]
struct Surroundings {
    run: u32,
}

impl Surroundings {
    fn poison(self) -> u8 {
        POISON[self.run as usize % POISON.len()]
    }

    /// Bytes that a buffer begins after a boundary of 16. All are aligned for any vector in
    /// every second call; in the others none is, or the first alone. All are in every call
    /// where the backend asks for an `alignment`.
    fn offset(self, ty: &TensorType, buffer: usize, alignment: usize) -> usize {
        let is_aligned = match self.run % 4 {
            _ if alignment > 1 => true,
            0 | 2 => true,
            1 => false,
            _ => buffer == 0,
        };
        if is_aligned {
            return 0;
        }
        let width = ty.dtype.bytes();
        let elements: usize = ty.shape.iter().product();
        width * (1 + (elements + self.run as usize / 2 + 7 * buffer) % (16 / width - 1))
    }
}

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// How often each call is made, at least twice.
    pub runs: u32,
    /// Bytes of each guard zone.
    pub guard: usize,
    /// Whether each call is also made on two streams at once and replayed from a graph, where
    /// the backend has such. There is nothing to find where calls are done as they are queued.
    pub queues: bool,
}

impl Default for Contract {
    fn default() -> Self {
        // Each poison under aligned buffers, and each alignment. A block of 1024 threads that
        // writes past the end stays in the guard zone.
        Self { runs: 4, guard: 4096, queues: true }
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
    /// How the backend says that it makes the call.
    pub how: BTreeMap<String, String>,
}

/// Runs an operation; under the memory contract where the backend has steps. Inputs then lie
/// in memory by their strides and outputs by `output_strides`, where there are such.
pub fn execute(
    backend: &dyn Backend,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
    output_strides: &[Option<Vec<usize>>],
    contract: Contract,
) -> Result<Execution, BackendError> {
    if !backend.stepwise() {
        return Ok(Execution {
            outputs: backend.run(op, variant, inputs)?,
            faults: Vec::new(),
            how: BTreeMap::new(),
        });
    }
    let call = Call { backend, op, variant, inputs, output_strides, guard: contract.guard };
    let first = call.guarded(0)?;
    let mut faults = first.faults;
    let mut add = |found: Vec<MemoryFault>| {
        for fault in found {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    };
    let poison = |run| Surroundings { run }.poison();
    for run in 1..contract.runs.max(2) {
        let again = call.guarded(run)?;
        add(again.faults);
        for (i, (first, again)) in first.outputs.iter().zip(&again.outputs).enumerate() {
            add(compare(&format!("output {i}"), (first, poison(0)), (again, poison(run))));
        }
    }
    if contract.queues {
        add(call.concurrent(&first.outputs)?);
        add(call.replayed(&first.outputs)?);
    }
    Ok(Execution { outputs: first.outputs, faults, how: first.how })
}

/// One call, which is made in several ways.
struct Call<'a> {
    backend: &'a dyn Backend,
    op: &'a Op,
    variant: &'a str,
    inputs: &'a [Tensor],
    output_strides: &'a [Option<Vec<usize>>],
    guard: usize,
}

impl Call<'_> {
    /// Buffers for the call's `run`-th time.
    fn stage(&self, run: u32) -> Result<Staged, BackendError> {
        self.stage_with(run, self.inputs)
    }

    fn stage_with(&self, run: u32, inputs: &[Tensor]) -> Result<Staged, BackendError> {
        let (buffers, surroundings) = (Cell::new(0), Surroundings { run });
        let alignment = self.backend.alignment(self.op, self.variant);
        Staged::new(self.backend, self.op, inputs, |ty| {
            let buffer = buffers.replace(buffers.get() + 1);
            let offset = surroundings.offset(&ty, buffer, alignment);
            let poison = surroundings.poison();
            let contiguous = Layout { guard: self.guard, offset, poison, ..Layout::contiguous(ty) };
            match self.strides(buffer) {
                Some(strides) => Layout { strides: strides.to_vec(), ..contiguous },
                None => contiguous,
            }
        })
    }

    /// The strides of a buffer, inputs before outputs.
    fn strides(&self, buffer: usize) -> Option<&[usize]> {
        match self.inputs.get(buffer) {
            Some(input) => Some(input.strides()),
            None => self.output_strides.get(buffer - self.inputs.len())?.as_deref(),
        }
    }

    /// Inputs of the same types that hold something else.
    fn others(&self) -> Result<Vec<Tensor>, BackendError> {
        let reversed = |tensor: &Tensor| {
            let last = tensor.len().saturating_sub(1);
            let reversed = Tensor::from_fn(tensor.ty().clone(), Path::Parallel, |i| tensor.code(last - i))?;
            reversed.with_strides(tensor.strides())
        };
        Ok(self.inputs.iter().map(reversed).collect::<Result<_, _>>()?)
    }

    fn launch(&self, staged: &Staged, stream: Stream) -> Result<(), BackendError> {
        staged.with_call(self.op, self.variant, stream, |call| self.backend.launch(call))
    }

    /// A call alone, and what it did to memory.
    fn guarded(&self, run: u32) -> Result<Execution, BackendError> {
        let staged = self.stage(run)?;
        self.launch(&staged, Stream::default())?;
        let describe = |call: Launch<'_>| self.backend.describe(call);
        let how = if run == 0 {
            staged.with_call(self.op, self.variant, Stream::default(), describe)?
        } else {
            BTreeMap::new()
        };
        Ok(Execution { how, ..self.examine(&staged, self.inputs)? })
    }

    /// The outputs, and what was done to memory.
    fn examine(&self, staged: &Staged, inputs: &[Tensor]) -> Result<Execution, BackendError> {
        let mut faults = Vec::new();
        for (i, (buffer, tensor)) in staged.inputs.iter().zip(inputs).enumerate() {
            let name = format!("input {}", self.op.input_names().get(i).copied().unwrap_or("?"));
            let bytes = self.backend.download(buffer)?;
            faults.extend(out_of_bounds(&name, buffer, &bytes)?);
            let now = buffer.layout().gather(&bytes)?;
            let same = now.strides() == tensor.strides() && now.bytes() == tensor.bytes();
            let mut elements = 0..if same { 0 } else { tensor.len() };
            if let Some(index) = elements.find(|&index| now.code(index) != tensor.code(index)) {
                faults.push(MemoryFault::InputChanged { tensor: name, index });
            }
        }
        let mut outputs = Vec::new();
        for (i, buffer) in staged.outputs.iter().enumerate() {
            let bytes = self.backend.download(buffer)?;
            faults.extend(out_of_bounds(&format!("output {i}"), buffer, &bytes)?);
            outputs.push(buffer.layout().gather(&bytes)?.to_contiguous());
        }
        Ok(Execution { outputs, faults, how: BTreeMap::new() })
    }

    /// The call on each of two streams, while the other has one with other inputs.
    fn concurrent(&self, outputs: &[Tensor]) -> Result<Vec<MemoryFault>, BackendError> {
        let mut faults = Vec::new();
        if self.backend.streams() < 2 {
            return Ok(faults);
        }
        let others = self.others()?;
        for (run, stream) in [(2, 0), (3, 1)] {
            let (staged, other) = (self.stage(run)?, self.stage_with(run, &others)?);
            self.launch(&other, Stream(1 - stream))?;
            self.launch(&staged, Stream(stream))?;
            let execution = self.examine(&staged, self.inputs)?;
            let fault = |tensor, count, index| MemoryFault::Concurrent { tensor, count, index };
            faults.extend(differing(&execution.outputs, outputs, fault));
            faults.extend(execution.faults);
            faults.extend(self.examine(&other, &others)?.faults);
        }
        Ok(faults)
    }

    /// The call recorded over other inputs, aligned and not, and replayed over its own: what
    /// was read when it was recorded must not be what is computed from. Then once more.
    fn replayed(&self, outputs: &[Tensor]) -> Result<Vec<MemoryFault>, BackendError> {
        let mut faults = Vec::new();
        if !self.backend.has_graphs() {
            return Ok(faults);
        }
        let others = self.others()?;
        for run in [4, 5] {
            let staged = self.stage_with(run, &others)?;
            let capture = |call: Launch<'_>| self.backend.capture(&[call]);
            let graph = staged.with_call(self.op, self.variant, Stream::default(), capture)?;
            self.fill(&staged.inputs, Some(self.inputs))?;
            for _ in 0..2 {
                self.fill(&staged.outputs, None)?;
                graph.replay()?;
                let execution = self.examine(&staged, self.inputs)?;
                let fault = |tensor, count, index| MemoryFault::Replayed { tensor, count, index };
                faults.extend(differing(&execution.outputs, outputs, fault));
                faults.extend(execution.faults);
            }
        }
        Ok(faults)
    }

    /// Poisons buffers and writes tensors into them, if there are any.
    fn fill(&self, buffers: &[Buffer], tensors: Option<&[Tensor]>) -> Result<(), BackendError> {
        for (i, buffer) in buffers.iter().enumerate() {
            let layout = buffer.layout();
            let mut bytes = vec![layout.poison; layout.total()?];
            if let Some(tensors) = tensors {
                layout.scatter(&tensors[i], &mut bytes);
            }
            self.backend.upload(buffer, &bytes)?;
        }
        Ok(())
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
pub(crate) fn out_of_bounds(
    tensor: &str,
    buffer: &Buffer,
    bytes: &[u8],
) -> Result<Option<MemoryFault>, BackendError> {
    let layout = buffer.layout();
    let start = layout.guard + layout.offset;
    let len = layout.span()?;
    let is_clean = |bytes: &[u8]| {
        // Whole words first: buffers are large and nearly always clean.
        let (words, rest) = bytes.as_chunks::<64>();
        words.iter().all(|word| *word == [layout.poison; 64])
            && rest.iter().all(|&byte| byte == layout.poison)
    };
    let is_contiguous = layout.strides == layout.ty.contiguous_strides();
    if is_contiguous && is_clean(&bytes[..start]) && is_clean(&bytes[start + len..]) {
        return Ok(None);
    }
    let mut outside = bytes.to_vec();
    if is_contiguous {
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
