//! Sweeps: an operation of single elements judged on every input there is.
//!
//! Inputs are made, run through it and compared a chunk at a time, on all threads; nothing is kept
//! but counts, the first mismatch of each kind and a digest of the results.

mod device;
pub(crate) mod digest;
mod oracle;

pub use device::Swept;
pub(crate) use oracle::policies;
pub use oracle::{Oracle, OracleError, Staircase};

use crate::case::NanJudge;
use crate::judge::Fault;
use plumbline_reference::format::Format;
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, BackendError, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inputs of one chunk: they, their results and what is compared with them stay in a
/// core's cache.
const CHUNK: u64 = 1 << 17;

/// A sweep of one operation.
pub struct Sweep<'a> {
    /// The operation, whose elements are each a function of one input's.
    pub op: Op,
    /// What is judged, and which of its variants.
    pub backend: &'a dyn Backend,
    /// The variant.
    pub variant: &'a str,
    /// What it is judged by.
    pub oracle: &'a Oracle<'a>,
    /// How NaNs compare.
    pub nan: NanJudge,
    /// The inputs: codes of the source format.
    pub inputs: Range<u64>,
}

/// Why an operation cannot be swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Too many inputs.
    #[error("{0} has 2^{bits} codes; sources of at most 32 bits can be swept", bits = .0.code_bits())]
    TooWide(Format),
    /// Its elements are no function of one element.
    #[error(
        "an element of {0} depends on more than one input's element, or on random bits, and no sweep covers all \
         of them; `conform` and `fuzz` judge it"
    )]
    NotPointwise(&'static str),
    /// The backend or the oracle failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The oracle cannot say.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Inputs compared.
    pub inputs: u64,
    /// Mismatches by kind, with the first of each.
    pub mismatches: BTreeMap<Fault, Mismatches>,
    /// A digest of all results in order: equal digests of equal sweeps mean equal bits.
    pub digest: u64,
}

/// Mismatches of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatches {
    /// How many.
    pub count: u64,
    /// The first: input, right and given code.
    pub first: (u64, u64, u64),
}

impl Sweep<'_> {
    /// All inputs of a source format.
    pub fn all_inputs(from: Format) -> Result<Range<u64>, SweepError> {
        if from.code_bits() > 32 {
            return Err(SweepError::TooWide(from));
        }
        Ok(0..1 << from.code_bits())
    }

    /// Runs the sweep; `progress` is told how many inputs are done.
    pub fn run(&self, progress: &(impl Fn(u64) + Sync)) -> Result<Findings, SweepError> {
        let formats = self.formats()?;
        let done = AtomicU64::new(0);
        let chunks = (self.inputs.end - self.inputs.start).div_ceil(CHUNK);
        let findings = (0..chunks).into_par_iter().map(|chunk| {
            let start = self.inputs.start + chunk * CHUNK;
            let inputs = start..self.inputs.end.min(start + CHUNK);
            let count = inputs.end - inputs.start;
            let findings = self.chunk(formats, inputs)?;
            progress(done.fetch_add(count, Ordering::Relaxed) + count);
            Ok(findings)
        });
        let findings: Vec<Findings> = findings.collect::<Result<_, SweepError>>()?;
        Ok(findings.into_iter().fold(Findings::default(), Findings::followed_by))
    }

    /// Formats of inputs and results.
    fn formats(&self) -> Result<(Format, Format), SweepError> {
        self.op.pointwise().ok_or(SweepError::NotPointwise(self.op.name()))
    }

    fn chunk(&self, formats: (Format, Format), inputs: Range<u64>) -> Result<Findings, SweepError> {
        let x = codes(formats.0, inputs.clone()).map_err(BackendError::from)?;
        let results = self.backend.run(&self.op, self.variant, std::slice::from_ref(&x))?;
        let [result] = results.as_slice() else {
            let why = format!("{} outputs, expected 1", results.len());
            return Err(BackendError::Failed { call: self.backend.name().to_owned(), why }.into());
        };
        let mut findings = Findings {
            inputs: inputs.end - inputs.start,
            digest: digest::of(result.bytes()),
            mismatches: BTreeMap::new(),
        };
        match self.oracle.results(&self.op, &inputs, &x)? {
            Some(right) if result.ty() != right.ty() || result.bytes() != right.bytes() => {
                self.compare(formats, inputs, &right, result, &mut findings);
            }
            _ => (),
        }
        Ok(findings)
    }

    fn compare(
        &self,
        (from, to): (Format, Format),
        inputs: Range<u64>,
        right: &Tensor,
        result: &Tensor,
        findings: &mut Findings,
    ) {
        for (i, input) in inputs.enumerate() {
            let right = right.code(i);
            // A result that is too short has no element here: wrong, whatever is right.
            let got = if i < result.len() { result.code(i) } else { !right };
            let is_nan = |code| to.decode(code).is_nan();
            if right == got || self.nan == NanJudge::Class && is_nan(right) && is_nan(got) {
                continue;
            }
            let exact = from.to_f64(from.code_at(input));
            let fault = Fault::of(to.into(), right, got, Some(exact));
            let first = (from.code_at(input), right, got);
            findings.mismatches.entry(fault).or_insert(Mismatches { count: 0, first }).count += 1;
        }
    }
}

/// A tensor of the codes at these indices.
fn codes(format: Format, indices: Range<u64>) -> Result<Tensor, TensorError> {
    let count = (indices.end - indices.start) as usize;
    let width = format.storage_bits as usize / 8;
    let mut bytes = vec![0; count * width];
    match width {
        1 => fill(&mut bytes, indices, |index| [format.code_at(index) as u8]),
        2 => fill(&mut bytes, indices, |index| (format.code_at(index) as u16).to_le_bytes()),
        _ => fill(&mut bytes, indices, |index| (format.code_at(index) as u32).to_le_bytes()),
    }
    Tensor::from_bytes(TensorType::new(format, [count]), bytes)
}

fn fill<const BYTES: usize>(bytes: &mut [u8], indices: Range<u64>, code: impl Fn(u64) -> [u8; BYTES]) {
    for (slot, index) in bytes.as_chunks_mut().0.iter_mut().zip(indices) {
        *slot = code(index);
    }
}

impl Findings {
    /// These findings and those of the inputs that follow.
    #[must_use]
    pub fn followed_by(mut self, next: Self) -> Self {
        self.inputs += next.inputs;
        self.digest = digest::followed_by(self.digest, next.digest);
        for (fault, mismatches) in next.mismatches {
            let first = mismatches.first;
            self.mismatches.entry(fault).or_insert(Mismatches { count: 0, first }).count += mismatches.count;
        }
        self
    }

    /// Mismatches of every kind.
    #[must_use]
    pub fn mismatched(&self) -> u64 {
        self.mismatches.values().map(|mismatches| mismatches.count).sum()
    }
}

#[cfg(test)]
mod tests;
