//! Sweeps on a CUDA device. Whole chunks are judged there; one with a mismatch, and what fills
//! no chunk, is judged again here, which says what is wrong.

use super::{CHUNK, Findings, Oracle, Sweep, SweepError, codes, digest};
use crate::case::NanJudge;
use plumbline_gpu::Cuda;
use plumbline_reference::BackendError;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Chunks with mismatches that are judged again; the rest is counted only.
const EXPLAINED: usize = 64;

/// What a sweep on the device found.
pub struct Swept {
    /// What any sweep finds, of chunks that are explained.
    pub findings: Findings,
    /// Mismatches without a kind: too many to be judged again, or right the second time.
    pub unexplained: u64,
    /// Chunks whose digests differ, with mismatches that nobody has counted, for the same reasons.
    pub uncounted: u64,
    /// Milliseconds of the device's time, if it was not the host that swept.
    pub millis: Option<f32>,
}

impl Swept {
    /// What a sweep on the host found.
    #[must_use]
    pub fn of_host(findings: Findings) -> Self {
        Self { findings, unexplained: 0, uncounted: 0, millis: None }
    }

    /// Mismatches of every kind, at least: each uncounted chunk has one.
    #[must_use]
    pub fn mismatched(&self) -> u64 {
        self.findings.mismatched() + self.unexplained + self.uncounted
    }
}

impl Sweep<'_> {
    /// Runs the sweep on a device. Where another implementation says what is right, whole chunks are
    /// compared by their digests; where NaNs need not have the same bits, on the host.
    pub fn run_on_device(&self, cuda: &Cuda, progress: &(impl Fn(u64) + Sync)) -> Result<Swept, SweepError> {
        let (from, to) = self.formats()?;
        let (first, last) = (self.inputs.start / CHUNK, self.inputs.end / CHUNK);
        let by_digest = match self.oracle {
            Oracle::Backend { .. } => self.nan == NanJudge::Bits,
            Oracle::Staircase(_) | Oracle::Nothing => true,
        };
        if !by_digest || !self.inputs.start.is_multiple_of(CHUNK) || first == last {
            return self.run(progress).map(Swept::of_host);
        }
        let steps = match self.oracle {
            Oracle::Staircase(staircase) => staircase.steps(),
            Oracle::Backend { .. } | Oracle::Nothing => &[],
        };
        let swept = cuda.sweep(&self.op, self.variant, first..last, CHUNK, steps)?;
        let bytes = CHUNK * u64::from(to.storage_bits / 8);
        // The digest is that of the pass that was judged, whatever a second one gives.
        let digests: Vec<_> = swept.sums.iter().map(|sums| digest::finished(bytes, &[], *sums)).collect();
        let done = AtomicU64::new(0);
        let wrong = match self.oracle {
            // How many in a chunk is found out with what they are.
            Oracle::Backend { .. } => {
                let is_wrong = |(i, digest): (usize, &u64)| {
                    let start = (first + i as u64) * CHUNK;
                    let inputs = start..start + CHUNK;
                    let x = codes(from, inputs.clone()).map_err(BackendError::from)?;
                    let right = self.oracle.results(&self.op, &inputs, &x)?;
                    progress(done.fetch_add(CHUNK, Ordering::Relaxed) + CHUNK);
                    Ok(u32::from(right.is_none_or(|right| digest::of(right.bytes()) != *digest)))
                };
                digests.par_iter().enumerate().map(is_wrong).collect::<Result<_, SweepError>>()?
            }
            Oracle::Staircase(_) | Oracle::Nothing => swept.mismatches,
        };
        let is_counted = !matches!(self.oracle, Oracle::Backend { .. });
        let mut swept = Swept { millis: Some(swept.millis), ..Swept::of_host(Findings::default()) };
        let mut explained = 0;
        for (chunk, (mismatches, digest)) in (first..last).zip(wrong.into_iter().zip(digests)) {
            let mut of_chunk = Findings { inputs: CHUNK, mismatches: BTreeMap::new(), digest };
            if mismatches > 0 && explained < EXPLAINED {
                explained += 1;
                of_chunk.mismatches = self.chunk((from, to), chunk * CHUNK..(chunk + 1) * CHUNK)?.mismatches;
            }
            let left = u64::from(mismatches).saturating_sub(of_chunk.mismatched());
            *(if is_counted { &mut swept.unexplained } else { &mut swept.uncounted }) += left;
            swept.findings = swept.findings.followed_by(of_chunk);
        }
        if last * CHUNK < self.inputs.end {
            let rest = self.chunk((from, to), last * CHUNK..self.inputs.end)?;
            swept.findings = swept.findings.followed_by(rest);
        }
        Ok(swept)
    }
}
