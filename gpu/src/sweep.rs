//! Sweeps on the device: every input of a cast is made there, cast by the kernel under
//! judgement, and compared there with a staircase that the host found. Only counts and the
//! sums of a digest come back.

use crate::cuda::{Cuda, view};
use crate::module::{Source, Unit, constant};
use crate::ops;
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::{Backend, BackendError, Buffer, Layout};
use plumbline_reference::format::Format;
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{DType, TensorType};
use std::ops::Range;

const SOURCE: Source = Source { name: "sweep", text: include_str!("../kernels/sweep.cu") };
const THREADS: u32 = 256;
/// Inputs that one thread of `check` takes.
const RUN: u64 = 16;
/// Inputs on the device at once, at most: the digest's sums of so many chunks keep it busy.
const BATCH: u64 = 1 << 30;
/// Batches and their results take at most this part of the device's memory.
const PART_OF_MEMORY: u64 = 4;

/// What a sweep brings back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepOnDevice {
    /// Per chunk, how many results are not the staircase's.
    pub mismatches: Vec<u32>,
    /// Per chunk, the four sums of the digest of its results.
    pub sums: Vec<[u64; 4]>,
    /// Milliseconds of the device's time, from the first input to the last sum.
    pub millis: f32,
}

fn unit(from: Format, to: Format) -> Unit {
    Unit::new(SOURCE, vec![("FROM", constant(from)), ("TO", constant(to))])
}

/// Every unit that some sweep needs.
pub(crate) fn units() -> Vec<Unit> {
    use plumbline_reference::format::ALL;
    ALL.into_iter().flat_map(|from| ALL.map(|to| unit(from, to))).collect()
}

fn call(unit: &Unit, entry: &'static str, threads: u64, arguments: &[u64]) -> Step {
    Step::Kernel(Call {
        unit: unit.clone(),
        entry,
        blocks: threads.div_ceil(THREADS.into()),
        threads: THREADS,
        arguments: arguments.iter().copied().map(Argument::from).collect(),
    })
}

/// Writes the codes at indices from `start` on, a multiple of 16 bytes of them.
pub(crate) fn generate(format: Format, address: u64, start: u64, count: u64) -> Step {
    // Any target serves: inputs do not depend on it.
    call(
        &unit(format, format),
        "generate",
        count * u64::from(format.storage_bits / 8) / 16,
        &[address, start, count],
    )
}

impl Cuda {
    /// Sweeps the inputs at indices `chunks.start * chunk .. chunks.end * chunk`; `steps` are
    /// the first index of each step and its right result, the first of them at index 0.
    ///
    /// # Panics
    /// If `chunk` is not a multiple of 32 that divides 2^30, or `steps` does not begin at 0.
    pub fn sweep(
        &self,
        cast: &Cast,
        variant: &str,
        chunks: Range<u64>,
        chunk: u64,
        steps: &[(u64, u64)],
    ) -> Result<SweepOnDevice, BackendError> {
        assert!(chunk.is_multiple_of(32) && BATCH.is_multiple_of(chunk), "chunks of {chunk} inputs");
        assert_eq!(steps.first().map(|step| step.0), Some(0), "steps begin at input 0");
        let count = chunks.end - chunks.start;
        if count == 0 {
            return Ok(SweepOnDevice::default());
        }
        let bytes = u64::from(cast.from.storage_bits + cast.to.storage_bits) / 8;
        let fits = self.info().memory_bytes / PART_OF_MEMORY / bytes / chunk * chunk;
        let batch = BATCH.min(count * chunk).min(fits.max(chunk));
        let x = self.elements(cast.from, batch)?;
        let y = self.elements(cast.to, batch)?;
        let table: Vec<u8> =
            steps.iter().flat_map(|&(start, code)| [start, code]).flat_map(u64::to_le_bytes).collect();
        let table_on_device = self.bytes(table.len() as u64)?;
        self.upload(&table_on_device.0, &table)?;
        let mismatches = self.bytes(4 * count)?;
        let sums = self.bytes(32 * count)?;

        let op = Op::from(*cast);
        let unit = unit(cast.from, cast.to);
        let call = |entry, threads, arguments: &[u64]| call(&unit, entry, threads, arguments);
        let words = chunk * u64::from(cast.to.storage_bits / 8) / 8;
        let view = |address: u64, format: Format, inputs: u64| View {
            address,
            ty: TensorType::new(format, [inputs as usize]),
        };
        let mut plan = Vec::new();
        let mut done = 0;
        while done < count {
            let batched = (batch / chunk).min(count - done);
            let (start, inputs) = ((chunks.start + done) * chunk, batched * chunk);
            plan.push(generate(cast.from, x.1, start, inputs));
            let (from, to) = (view(x.1, cast.from, inputs), view(y.1, cast.to, inputs));
            plan.extend(ops::plan(&op, variant, &[from], &[to])?);
            let steps_on_device = [table_on_device.1, steps.len() as u64];
            let counts = mismatches.1 + 4 * done;
            let arguments = [&[y.1, start, inputs, chunk][..], &steps_on_device, &[counts]].concat();
            plan.push(call("check", inputs / RUN, &arguments));
            plan.push(call("digest", 4 * batched, &[y.1, words, batched, sums.1 + 32 * done]));
            done += batched;
        }
        let ready = self.prepare(plan)?;
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
