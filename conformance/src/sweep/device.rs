//! Sweeps on a CUDA device. Whole chunks are judged there; one with a mismatch, and what fills
//! no chunk, is judged again here, which says what is wrong.

use super::{CHUNK, Findings, Oracle, Sweep, SweepError, codes, digest};
use crate::case::NanJudge;
use plumbline_gpu::Cuda;
use plumbline_reference::BackendError;
use plumbline_reference::format::Format;
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
        let digests: Vec<_> = swept.sums.iter().map(|sums| digest::finished(bytes, &[], *sums)).collect();
        let judged = match self.oracle {
            Oracle::Backend { .. } => Wrong::Chunks(self.wrong_by_digest(from, first, &digests, progress)?),
            Oracle::Staircase(_) | Oracle::Nothing => Wrong::Inputs(swept.mismatches),
        };
        let mut explained = self.explained((from, to), first, &digests, &judged)?;
        if last * CHUNK < self.inputs.end {
            let rest = self.chunk((from, to), last * CHUNK..self.inputs.end)?;
            explained.findings = explained.findings.followed_by(rest);
        }
        Ok(Swept { millis: Some(swept.millis), ..explained })
    }

    /// Whether each of the chunks from this one on has other results than the digest's.
    fn wrong_by_digest(
        &self,
        from: Format,
        first: u64,
        digests: &[u64],
        progress: &(impl Fn(u64) + Sync),
    ) -> Result<Vec<bool>, SweepError> {
        let done = AtomicU64::new(0);
        let is_wrong = |(i, digest): (usize, &u64)| {
            let start = (first + i as u64) * CHUNK;
            let inputs = start..start + CHUNK;
            let x = codes(from, inputs.clone()).map_err(BackendError::from)?;
            let right = self.oracle.results(&self.op, &inputs, &x)?;
            progress(done.fetch_add(CHUNK, Ordering::Relaxed) + CHUNK);
            Ok(right.is_none_or(|right| digest::of(right.bytes()) != *digest))
        };
        digests.par_iter().enumerate().map(is_wrong).collect()
    }

    /// What is wrong in the chunks from this one on: some of those with mismatches are judged again. The
    /// digests are those of the pass that was judged, whatever a second one gives.
    fn explained(
        &self,
        formats: (Format, Format),
        first: u64,
        digests: &[u64],
        wrong: &Wrong,
    ) -> Result<Swept, SweepError> {
        let mut swept = Swept::of_host(Findings::default());
        let mut explained = 0;
        for (i, (chunk, &digest)) in (first..).zip(digests).enumerate() {
            let mut of_chunk = Findings { inputs: CHUNK, mismatches: BTreeMap::new(), digest };
            let (mismatches, left) = match wrong {
                Wrong::Inputs(counts) => (u64::from(counts[i]), &mut swept.unexplained),
                Wrong::Chunks(is_wrong) => (u64::from(is_wrong[i]), &mut swept.uncounted),
            };
            if mismatches > 0 && explained < EXPLAINED {
                explained += 1;
                of_chunk.mismatches = self.chunk(formats, chunk * CHUNK..(chunk + 1) * CHUNK)?.mismatches;
            }
            *left += mismatches.saturating_sub(of_chunk.mismatched());
            swept.findings = swept.findings.followed_by(of_chunk);
        }
        Ok(swept)
    }
}

/// What is known of each chunk before it is judged again.
enum Wrong {
    /// How many of its results are wrong.
    Inputs(Vec<u32>),
    /// Whether any is.
    Chunks(Vec<bool>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Closure;
    use plumbline_reference::Cpu;
    use plumbline_reference::format::{BF16, F32};
    use plumbline_reference::ops::{Cast, Op};

    /// The first and the end of the chunks that are swept.
    const SWEPT: [u64; 2] = [2, 7];

    /// Those chunks' casts to bf16, judged by digests that are changed.
    fn swept(wrong_from: Option<u64>, change: impl Fn(&mut Vec<u64>)) -> Swept {
        let [first, last] = SWEPT;
        let op: Op = Cast::new(F32, BF16).into();
        let oracle = Oracle::Backend { backend: &Cpu, variant: "definition".to_owned() };
        // So small numbers have their codes' upper halves, rounded to even.
        let backend = Closure::elementwise("rounds", op.clone(), |code| {
            let rounded = (code + 0x7fff + (code >> 16 & 1)) >> 16;
            rounded + u64::from(wrong_from.is_some_and(|from| code >= from))
        });
        let inputs = first * CHUNK..last * CHUNK;
        let (variant, nan) = ("closure", NanJudge::Bits);
        let sweep = Sweep { op, backend: &backend, variant, oracle: &oracle, nan, inputs };
        let digest = |chunk| sweep.chunk((F32, BF16), chunk * CHUNK..(chunk + 1) * CHUNK).unwrap().digest;
        let mut digests: Vec<_> = (first..last).map(digest).collect();
        change(&mut digests);
        let wrong = sweep.wrong_by_digest(F32, first, &digests, &|_| ()).unwrap();
        sweep.explained((F32, BF16), first, &digests, &Wrong::Chunks(wrong)).unwrap()
    }

    #[test]
    fn chunks_whose_digests_are_right_have_no_mismatches() {
        let swept = swept(None, |_| ());
        assert_eq!((swept.findings.inputs, swept.mismatched()), (5 * CHUNK, 0));
    }

    #[test]
    fn a_wrong_digest_whose_results_are_right_the_second_time_is_a_mismatch_that_is_not_counted() {
        let swept = swept(None, |digests| digests[3] ^= 1);
        assert_eq!((swept.uncounted, swept.findings.mismatched(), swept.mismatched()), (1, 0, 1));
    }

    #[test]
    fn wrong_results_are_counted_and_the_first_is_named() {
        let from = 5 * CHUNK + 7;
        let swept = swept(Some(from), |_| ());
        assert_eq!((swept.findings.mismatched(), swept.uncounted), (2 * CHUNK - 7, 0));
        let mut firsts = swept.findings.mismatches.values().map(|mismatches| mismatches.first.0);
        assert!(firsts.any(|first| first == from));
    }

    #[test]
    fn counted_mismatches_that_nobody_explains_stay_counted() {
        let [first, last] = SWEPT;
        let oracle = Oracle::Backend { backend: &Cpu, variant: "definition".to_owned() };
        let (variant, nan, inputs) = ("parallel", NanJudge::Bits, first * CHUNK..last * CHUNK);
        let sweep =
            Sweep { op: Cast::new(F32, BF16).into(), backend: &Cpu, variant, oracle: &oracle, nan, inputs };
        let swept =
            sweep.explained((F32, BF16), first, &[0; 5], &Wrong::Inputs(vec![0, 0, 3, 0, 1])).unwrap();
        assert_eq!((swept.unexplained, swept.uncounted, swept.mismatched()), (4, 0, 4));
    }
}
