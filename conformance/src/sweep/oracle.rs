//! What a sweep is judged by.

use super::{CHUNK, Findings, digest};
use plumbline_reference::format::{Format, Policy};
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{Backend, BackendError, Tensor, TensorType};
use rayon::prelude::*;
use std::ops::Range;

/// Says what is right for a range of inputs.
pub enum Oracle<'a> {
    /// Another implementation.
    Backend {
        /// The implementation.
        backend: &'a dyn Backend,
        /// Its variant.
        variant: String,
    },
    /// The definition as a staircase: the inputs at which its result changes, found by
    /// bisection. A deterministic encoding is monotone, so between two equal results
    /// every result is equal. Or a device's, as it was recorded.
    Staircase(Staircase),
    /// Nothing says what is right: results are digested, not compared.
    Nothing,
}

/// Why an oracle has no answer.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The implementation failed.
    #[error("the oracle: {0}")]
    Backend(#[from] BackendError),
}

/// The results of a cast over the codes of its source in the order of their patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staircase {
    to: Format,
    /// First input of each step and the result from there on, ascending from 0.
    steps: Vec<(u64, u64)>,
}

impl Oracle<'_> {
    /// The right results for inputs `x`, whose indices are `inputs`, if anything says so.
    pub(super) fn results(
        &self,
        op: &Op,
        inputs: &Range<u64>,
        x: &Tensor,
    ) -> Result<Option<Tensor>, OracleError> {
        match self {
            Self::Backend { backend, variant } => {
                let mut results = backend.run(op, variant, std::slice::from_ref(x))?;
                Ok(Some(results.swap_remove(0)))
            }
            Self::Staircase(staircase) => Ok(Some(staircase.results(inputs)?)),
            Self::Nothing => Ok(None),
        }
    }
}

impl Staircase {
    /// The staircase of a cast without random bits.
    #[must_use]
    pub fn new(cast: &Cast) -> Self {
        let (from, to, policy) = (cast.from, cast.to, cast.policy());
        let result = |index: u64| to.encode(from.decode(from.code_at(index)), &policy, 0);
        let mut steps = Vec::new();
        for range in monotone(from) {
            let (first, last) = (range.start, range.end - 1);
            steps.push((first, result(first)));
            bisect(&result, (first, result(first)), (last, result(last)), &mut steps);
        }
        Self::of(to, steps)
    }

    /// A staircase of these steps: the first index of each, ascending from 0, with its code.
    /// One with the code of the step before it is no step, and left out.
    ///
    /// # Panics
    /// If the steps are not in order, or do not begin at 0.
    #[must_use]
    pub fn of(to: Format, mut steps: Vec<(u64, u64)>) -> Self {
        assert_eq!(steps.first().map(|step| step.0), Some(0), "steps begin at input 0");
        assert!(steps.is_sorted_by(|before, after| before.0 < after.0), "steps ascend");
        steps.dedup_by_key(|&mut (_, code)| code);
        Self { to, steps }
    }

    /// The result of the input at an index.
    #[must_use]
    pub fn result(&self, index: u64) -> u64 {
        // The steps begin at 0, so one of them is not above any index.
        self.steps[self.steps.partition_point(|&(start, _)| start <= index) - 1].1
    }

    /// The digest of all results of these inputs, which a sweep of an implementation with
    /// just these results finds.
    #[must_use]
    pub fn digest(&self, inputs: Range<u64>) -> u64 {
        let chunks = (inputs.end - inputs.start).div_ceil(CHUNK);
        let of_chunk = |chunk| {
            let start = inputs.start + chunk * CHUNK;
            digest::of(&self.bytes(&(start..inputs.end.min(start + CHUNK))))
        };
        let digests: Vec<u64> = (0..chunks).into_par_iter().map(of_chunk).collect();
        digests.into_iter().fold(Findings::default().digest, digest::followed_by)
    }

    /// First input of each step, and its result.
    #[must_use]
    pub fn steps(&self) -> &[(u64, u64)] {
        &self.steps
    }

    fn results(&self, inputs: &Range<u64>) -> Result<Tensor, BackendError> {
        let ty = TensorType::new(self.to, [(inputs.end - inputs.start) as usize]);
        Ok(Tensor::from_bytes(ty, self.bytes(inputs))?)
    }

    fn bytes(&self, inputs: &Range<u64>) -> Vec<u8> {
        let width = self.to.storage_bits as usize / 8;
        let mut bytes = vec![0; (inputs.end - inputs.start) as usize * width];
        let first = self.steps.partition_point(|&(start, _)| start <= inputs.start) - 1;
        let mut rest = bytes.as_mut_slice();
        for (i, &(start, code)) in self.steps.iter().enumerate().skip(first) {
            if start >= inputs.end {
                break;
            }
            let end = self.steps.get(i + 1).map_or(inputs.end, |&(end, _)| end.min(inputs.end));
            let (step, after) = rest.split_at_mut((end - start.max(inputs.start)) as usize * width);
            rest = after;
            match width {
                1 => step.fill(code as u8),
                2 => fill(step, (code as u16).to_le_bytes()),
                4 => fill(step, (code as u32).to_le_bytes()),
                _ => fill(step, code.to_le_bytes()),
            }
        }
        bytes
    }
}

fn fill<const BYTES: usize>(bytes: &mut [u8], code: [u8; BYTES]) {
    bytes.as_chunks_mut().0.fill(code);
}

/// Ranges of code indices within which results only grow or only shrink.
fn monotone(format: Format) -> Vec<Range<u64>> {
    let codes = 1u64 << format.code_bits();
    let halves = if format.signed { 2 } else { 1 };
    let is_nan = |index: u64| format.decode(format.code_at(index)).is_nan();
    (0..halves)
        .map(|half| codes / halves * half..codes / halves * (half + 1))
        .flat_map(|half| {
            // NaNs are the last magnitudes, or with `fnuz` the first of the negative ones.
            let numbers = half.clone().start + u64::from(is_nan(half.start));
            let mut nans = numbers..half.end;
            while nans.start < nans.end {
                let middle = nans.start + (nans.end - nans.start) / 2;
                if is_nan(middle) { nans.end = middle } else { nans.start = middle + 1 }
            }
            // Infinity just before them may be less than a large number that overflows.
            let infinity = nans.start - u64::from(format.has_infinity());
            [half.start..numbers, numbers..infinity, infinity..nans.start, nans.start..half.end]
        })
        .filter(|range| !range.is_empty())
        .collect()
}

/// Adds the steps after `low` up to `high`, each an index with its result.
fn bisect(result: &impl Fn(u64) -> u64, low: (u64, u64), high: (u64, u64), steps: &mut Vec<(u64, u64)>) {
    if low.1 == high.1 {
        return;
    }
    if high.0 - low.0 == 1 {
        steps.push(high);
        return;
    }
    let middle = low.0 + (high.0 - low.0) / 2;
    let middle = (middle, result(middle));
    bisect(result, low, middle, steps);
    bisect(result, middle, high, steps);
}

/// Every policy that a sweep covers: all but stochastic rounding.
pub(crate) fn policies() -> impl Iterator<Item = Policy> {
    Policy::all().filter(|policy| policy.rounding != plumbline_reference::format::Rounding::Stochastic)
}
