//! Sweeps on the device: every input of an operation is made there, run through the kernel under
//! judgement, and compared there with a staircase that the host found, if there is one. Only counts and
//! the sums of a digest come back, or, for a recording, the inputs at which the result changes.

use crate::cuda::{Cuda, view};
use crate::module::{Source, Unit};
use crate::ops;
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::{Backend, BackendError, Buffer, Layout, Unsupported};
use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{DType, TensorType};
use std::ops::Range;

const SOURCE: Source = Source { name: "sweep", text: include_str!("../kernels/sweep.cu") };
/// Inputs that one thread of `check` takes.
const RUN: u64 = 16;
/// Inputs on the device at once, at most: the digest's sums of so many chunks keep it busy.
const BATCH: u64 = 1 << 30;
/// Batches and their results take at most this part of the device's memory.
const PART_OF_MEMORY: u64 = 4;
/// Steps that can be listed: as many as results of 8 bits or sources of 16 bits have, and more.
const LISTED: u64 = 1 << 17;

/// What a sweep brings back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepOnDevice {
    /// Per chunk, how many results are not the staircase's; 0 without a staircase.
    pub mismatches: Vec<u32>,
    /// Per chunk, the four sums of the digest of its results.
    pub sums: Vec<[u64; 4]>,
    /// Milliseconds of the device's time, from the first input to the last sum.
    pub millis: f32,
}

/// Every unit that some sweep needs.
pub(crate) fn units() -> Vec<Unit> {
    use plumbline_reference::format::ALL;
    ALL.into_iter().flat_map(|from| ALL.map(|to| Unit::between(SOURCE, from, to))).collect()
}

fn call(unit: &Unit, entry: &'static str, threads: u64, arguments: &[u64]) -> Step {
    Step::Kernel(Call {
        unit: unit.clone(),
        entry,
        blocks: threads.div_ceil(THREADS.into()),
        threads: THREADS,
        shared: 0,
        arguments: arguments.iter().copied().map(Argument::from).collect(),
    })
}

/// Writes the codes at indices from `start` on, as many as whole vectors of 16 bytes hold.
fn generate(format: Format, address: u64, start: u64, count: u64) -> Step {
    // Any target serves: inputs do not depend on it.
    call(
        &Unit::between(SOURCE, format, format),
        "generate",
        count * u64::from(format.storage_bits / 8) / 16,
        &[address, start, count],
    )
}

/// Fills words of 32 bits with any bits, of which these are kept and these set.
pub(crate) fn noise(address: u64, words: u64, kept: u32, set: u32) -> Step {
    let arguments = [address, words, kept.into(), set.into()];
    call(&Unit::between(SOURCE, F32, F32), "noise", words, &arguments)
}

/// Inputs of an operation on the device, and their results.
struct Batch<'a> {
    op: &'a Op,
    /// Of inputs and results.
    formats: [Format; 2],
    variant: &'a str,
    /// How many there is memory for.
    inputs: u64,
    x: (Buffer, u64),
    y: (Buffer, u64),
}

impl<'a> Batch<'a> {
    /// Memory for that many inputs, or fewer where the device has too little for them, but for
    /// a chunk, a power of two, at least.
    fn new(
        cuda: &Cuda,
        op: &'a Op,
        formats: [Format; 2],
        variant: &'a str,
        inputs: u64,
        chunk: u64,
    ) -> Result<Self, BackendError> {
        let [from, to] = formats;
        let bytes = u64::from(from.storage_bits + to.storage_bits) / 8;
        let fits = (cuda.info().memory_bytes / PART_OF_MEMORY / bytes).max(chunk);
        // A power of two, so that chunks fill it.
        let inputs = if inputs <= fits { inputs } else { 1 << fits.ilog2() };
        let (x, y) = (cuda.elements(from, inputs)?, cuda.elements(to, inputs)?);
        Ok(Self { op, formats, variant, inputs, x, y })
    }

    /// Makes the inputs at indices from `start` on, and their results.
    fn results(&self, start: u64, inputs: u64) -> Result<Vec<Step>, BackendError> {
        let view = |address: u64, format: Format| {
            View::contiguous(address, TensorType::new(format, [inputs as usize]))
        };
        let [from, to] = self.formats;
        let mut plan = vec![generate(from, self.x.1, start, inputs)];
        let (x, y) = (view(self.x.1, from), view(self.y.1, to));
        plan.extend(ops::plan(self.op, self.variant, 0, &[x], &[y])?);
        Ok(plan)
    }
}

/// Listed steps in order, without the first inputs of batches at which the result stays what
/// it was.
fn ordered(mut steps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    steps.sort_unstable();
    steps.dedup_by_key(|&mut (_, code)| code);
    steps
}

impl Cuda {
    /// Sweeps the inputs at indices `chunks.start * chunk .. chunks.end * chunk`; `steps` are
    /// the first index of each step and its right result, the first of them at index 0. With
    /// no steps nothing is compared.
    ///
    /// # Errors
    /// Where the device fails, or elements of the operation are no function of one input's.
    ///
    /// # Panics
    /// If `chunk` is not a multiple of 32 that divides 2^30, or `steps` does not begin at 0.
    pub fn sweep(
        &self,
        op: &Op,
        variant: &str,
        chunks: Range<u64>,
        chunk: u64,
        steps: &[(u64, u64)],
    ) -> Result<SweepOnDevice, BackendError> {
        assert!(chunk.is_multiple_of(32) && BATCH.is_multiple_of(chunk), "chunks of {chunk} inputs");
        assert!(steps.first().is_none_or(|step| step.0 == 0), "steps begin at input 0");
        let Some((from, to)) = op.pointwise() else {
            return Err(Unsupported(format!(
                "cannot sweep {}, whose elements depend on more than one input's",
                op.name()
            ))
            .into());
        };
        let count = chunks.end - chunks.start;
        if count == 0 {
            return Ok(SweepOnDevice::default());
        }
        let batch = Batch::new(self, op, [from, to], variant, BATCH.min(count * chunk), chunk)?;
        let table: Vec<u8> =
            steps.iter().flat_map(|&(start, code)| [start, code]).flat_map(u64::to_le_bytes).collect();
        let table_on_device = self.bytes(table.len() as u64)?;
        self.upload(&table_on_device.0, &table)?;
        let mismatches = self.bytes(4 * count)?;
        let sums = self.bytes(32 * count)?;

        let unit = Unit::between(SOURCE, from, to);
        let call = |entry, threads, arguments: &[u64]| call(&unit, entry, threads, arguments);
        let words = chunk * u64::from(to.storage_bits / 8) / 8;
        let mut plan = Vec::new();
        let mut done = 0;
        while done < count {
            let batched = (batch.inputs / chunk).min(count - done);
            let (start, inputs) = ((chunks.start + done) * chunk, batched * chunk);
            plan.extend(batch.results(start, inputs)?);
            let y = batch.y.1;
            if !steps.is_empty() {
                let steps_on_device = [table_on_device.1, steps.len() as u64];
                let counts = mismatches.1 + 4 * done;
                let arguments = [&[y, start, inputs, chunk][..], &steps_on_device, &[counts]].concat();
                plan.push(call("check", inputs / RUN, &arguments));
            }
            plan.push(call("digest", 4 * batched, &[y, words, batched, sums.1 + 32 * done]));
            done += batched;
        }
        let ready = self.load(plan)?;
        let (mismatches, millis) = self
            .timed(|| ready.queue())
            .and_then(|((), millis)| Ok((self.download(&mismatches.0)?, millis)))?;
        let sums = self.download(&sums.0)?;
        Ok(SweepOnDevice {
            mismatches: mismatches.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
            sums: sums
                .as_chunks::<32>()
                .0
                .iter()
                .map(|of_chunk| {
                    let words = of_chunk.as_chunks().0;
                    std::array::from_fn(|lane| u64::from_le_bytes(words[lane]))
                })
                .collect(),
            millis,
        })
    }

    /// The first index of each step of a cast's results over all its inputs, ascending from 0,
    /// and the result there: what the device does, whatever is right.
    pub fn steps(&self, cast: &Cast, variant: &str) -> Result<Vec<(u64, u64)>, BackendError> {
        let bits = cast.from.code_bits();
        if bits > 32 {
            let call = format!("steps of cast from {}", cast.from);
            return Err(BackendError::Failed { call, why: format!("it has 2^{bits} codes, more than 2^32") });
        }
        let count = 1 << bits;
        let op = Op::from(*cast);
        let batch = Batch::new(self, &op, [cast.from, cast.to], variant, BATCH.min(count), 1)?;
        let list = self.bytes(16 * LISTED)?;
        let listed = self.bytes(8)?;
        let unit = Unit::between(SOURCE, cast.from, cast.to);
        let mut plan = Vec::new();
        for start in (0..count).step_by(batch.inputs as usize) {
            plan.extend(batch.results(start, batch.inputs)?);
            let arguments = [batch.y.1, start, batch.inputs, list.1, LISTED, listed.1];
            plan.push(call(&unit, "steps", batch.inputs, &arguments));
        }
        self.load(plan)?.queue()?;
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        let listed = words(&self.download(&listed.0)?)[0];
        if listed > LISTED {
            let call = format!("steps of cast from {} to {}", cast.from, cast.to);
            let why =
                format!("the result changes at {listed} inputs, more than the {LISTED} that can be listed");
            return Err(BackendError::Failed { call, why });
        }
        let words = words(&self.download(&list.0)?);
        let steps = words.as_chunks().0.iter().take(listed as usize).map(|&[start, code]| (start, code));
        Ok(ordered(steps.collect()))
    }

    /// Zeroed memory for codes of a format, and its address.
    fn elements(&self, format: Format, count: u64) -> Result<(Buffer, u64), BackendError> {
        let buffer = self.alloc(&Layout::contiguous(TensorType::new(format, [count as usize])))?;
        let address = view(&buffer)?.address;
        Ok((buffer, address))
    }

    /// Zeroed bytes, and their address.
    fn bytes(&self, count: u64) -> Result<(Buffer, u64), BackendError> {
        let buffer = self.alloc(&Layout::contiguous(TensorType::new(DType::U8, [count as usize])))?;
        let address = view(&buffer)?.address;
        Ok((buffer, address))
    }
}

#[cfg(test)]
mod tests {
    use super::ordered;

    #[test]
    fn a_batch_that_goes_on_with_the_same_result_is_no_step() {
        let listed = vec![(256, 2), (300, 3), (0, 1), (200, 2), (512, 1)];
        assert_eq!(ordered(listed), [(0, 1), (200, 2), (300, 3), (512, 1)]);
    }
}
