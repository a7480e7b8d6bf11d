//! The memory contract of a call: guard zones stay as they were, inputs stay as
//! they were, and every element of every output is written.

use plumbline_reference::backend::{Buffer, Layout, Staged};
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, BackendError, Tensor, TensorType};
use schemars::JsonSchema;
use serde::Serialize;

/// Bytes of each guard zone.
const GUARD: usize = 256;
/// What memory holds before the call. Two patterns, since for an 8-bit format any
/// one of them is a legal result.
const POISON: [u8; 2] = [0xa5, 0x5a];

/// A broken memory contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, thiserror::Error)]
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
}

/// The outputs of a call and what it did to memory.
#[derive(Debug)]
pub struct Execution {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// Broken contracts.
    pub faults: Vec<MemoryFault>,
}

/// Runs an operation; in guarded, poisoned buffers where the backend has steps.
pub fn execute(
    backend: &dyn Backend,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
) -> Result<Execution, BackendError> {
    if !backend.stepwise() {
        return Ok(Execution { outputs: backend.run(op, variant, inputs)?, faults: Vec::new() });
    }
    let (outputs, mut faults, suspects) = guarded(backend, op, variant, inputs, POISON[0])?;
    if suspects.iter().any(|suspects| !suspects.is_empty()) {
        // Those that hold the other poison after a second call were never written.
        let (_, _, again) = guarded(backend, op, variant, inputs, POISON[1])?;
        for (output, (first, second)) in suspects.iter().zip(&again).enumerate() {
            let unwritten: Vec<_> =
                first.iter().filter(|index| second.binary_search(index).is_ok()).collect();
            if let Some(&&index) = unwritten.first() {
                let tensor = format!("output {output}");
                faults.push(MemoryFault::Unwritten { tensor, count: unwritten.len(), index });
            }
        }
    }
    Ok(Execution { outputs, faults })
}

/// Per output, the elements that still hold the poison.
type Suspects = Vec<Vec<usize>>;

fn guarded(
    backend: &dyn Backend,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
    poison: u8,
) -> Result<(Vec<Tensor>, Vec<MemoryFault>, Suspects), BackendError> {
    let layout = |ty: TensorType| Layout { guard: GUARD, poison, ..Layout::contiguous(ty) };
    let staged = Staged::launch(backend, op, variant, inputs, layout)?;
    let mut faults = Vec::new();
    for (i, (buffer, tensor)) in staged.inputs.iter().zip(inputs).enumerate() {
        let name = format!("input {}", op.input_names().get(i).copied().unwrap_or("?"));
        let bytes = backend.download(buffer)?;
        faults.extend(out_of_bounds(&name, buffer, &bytes, poison)?);
        let now = buffer.layout().gather(&bytes)?;
        if let Some(index) = (0..tensor.len()).find(|&index| now.code(index) != tensor.code(index)) {
            faults.push(MemoryFault::InputChanged { tensor: name, index });
        }
    }
    let mut outputs = Vec::new();
    let mut suspects = Vec::new();
    for (i, buffer) in staged.outputs.iter().enumerate() {
        let bytes = backend.download(buffer)?;
        faults.extend(out_of_bounds(&format!("output {i}"), buffer, &bytes, poison)?);
        let tensor = buffer.layout().gather(&bytes)?;
        let width = tensor.dtype().bytes();
        let elements = tensor.bytes().chunks_exact(width).enumerate();
        suspects.push(
            elements.filter(|(_, bytes)| bytes.iter().all(|&byte| byte == poison)).map(|(i, _)| i).collect(),
        );
        outputs.push(tensor);
    }
    Ok((outputs, faults, suspects))
}

fn out_of_bounds(
    tensor: &str,
    buffer: &Buffer,
    bytes: &[u8],
    poison: u8,
) -> Result<Option<MemoryFault>, BackendError> {
    let layout = buffer.layout();
    let start = layout.guard + layout.offset;
    let len = layout.span()?;
    let written =
        bytes.iter().enumerate().find(|&(at, &byte)| !(start..start + len).contains(&at) && byte != poison);
    Ok(written.map(|(at, _)| MemoryFault::OutOfBounds {
        tensor: tensor.to_owned(),
        offset: at as i64 - start as i64,
        len,
    }))
}
