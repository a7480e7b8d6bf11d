//! Sweeps on a CUDA device. Whole chunks are judged there; one with a mismatch, and what fills
//! no chunk, is judged again here, which says what is wrong.

use super::{CHUNK, Findings, Oracle, Sweep, SweepError, digest};
use plumbline_gpu::Cuda;
use plumbline_reference::ops::Op;
use std::collections::BTreeMap;

/// Chunks with mismatches that are judged again; the rest is counted only.
const EXPLAINED: usize = 64;

/// What a sweep on the device found.
pub struct Swept {
    /// What any sweep finds. Mismatches beyond the explained chunks are in `unexplained`.
    pub findings: Findings,
    /// Mismatches without a kind: too many to be judged again, or right the second time.
    pub unexplained: u64,
    /// Milliseconds of the device's time, if it was not the host that swept.
    pub millis: Option<f32>,
}

impl Swept {
    /// What a sweep on the host found.
    #[must_use]
    pub fn of_host(findings: Findings) -> Self {
        Self { findings, unexplained: 0, millis: None }
    }

    /// Mismatches of every kind.
    #[must_use]
    pub fn mismatched(&self) -> u64 {
        self.findings.mismatched() + self.unexplained
    }
}

impl Sweep<'_> {
    /// Runs the sweep on a device. One against another implementation is compared here.
    pub fn run_on_device(&self, cuda: &Cuda) -> Result<Swept, SweepError> {
        self.check()?;
        let op = Op::from(self.cast);
        let steps = match self.oracle {
            Oracle::Staircase(staircase) => staircase.steps(),
            Oracle::Nothing => &[],
            Oracle::Backend { .. } => return self.run(&|_| ()).map(Swept::of_host),
        };
        let (first, last) = (self.inputs.start / CHUNK, self.inputs.end / CHUNK);
        if !self.inputs.start.is_multiple_of(CHUNK) || first == last {
            return self.run(&|_| ()).map(Swept::of_host);
        }
        let swept = cuda.sweep(&self.cast, self.variant, first..last, CHUNK, steps)?;
        let bytes = CHUNK * u64::from(self.cast.to.storage_bits / 8);
        let mut findings = Findings::default();
        let (mut explained, mut unexplained) = (0, 0);
        for (chunk, (&mismatches, sums)) in (first..last).zip(swept.mismatches.iter().zip(&swept.sums)) {
            // The digest is that of the pass that was judged, whatever a second one gives.
            let digest = digest::finished(bytes, &[], *sums);
            let mut of_chunk = Findings { inputs: CHUNK, mismatches: BTreeMap::new(), digest };
            if mismatches > 0 && explained < EXPLAINED {
                explained += 1;
                of_chunk.mismatches = self.chunk(&op, chunk * CHUNK..(chunk + 1) * CHUNK)?.mismatches;
            }
            unexplained += u64::from(mismatches).saturating_sub(of_chunk.mismatched());
            findings = findings.followed_by(of_chunk);
        }
        if last * CHUNK < self.inputs.end {
            findings = findings.followed_by(self.chunk(&op, last * CHUNK..self.inputs.end)?);
        }
        Ok(Swept { findings, unexplained, millis: Some(swept.millis) })
    }
}
