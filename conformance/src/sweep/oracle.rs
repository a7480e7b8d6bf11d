//! What a sweep is judged by.

use plumbline_reference::format::{Format, Policy};
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{Backend, BackendError, Tensor, TensorType};
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
    /// every result is equal.
    Staircase(Staircase),
}

/// Why an oracle has no answer.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The implementation failed.
    #[error("the oracle: {0}")]
    Backend(#[from] BackendError),
}

/// The results of a cast over the codes of its source in the order of their patterns.
pub struct Staircase {
    to: Format,
    /// First input of each step and the result from there on, ascending from 0.
    steps: Vec<(u64, u64)>,
}

impl Oracle<'_> {
    /// The right results for inputs `x`, whose indices are `inputs`.
    pub(super) fn results(&self, op: &Op, inputs: &Range<u64>, x: &Tensor) -> Result<Tensor, OracleError> {
        match self {
            Self::Backend { backend, variant } => {
                let mut results = backend.run(op, variant, std::slice::from_ref(x))?;
                Ok(results.swap_remove(0))
            }
            Self::Staircase(staircase) => Ok(staircase.results(inputs)?),
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
        Self { to, steps }
    }

    /// First input of each step, and its result.
    #[must_use]
    pub fn steps(&self) -> &[(u64, u64)] {
        &self.steps
    }

    fn results(&self, inputs: &Range<u64>) -> Result<Tensor, BackendError> {
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
        Ok(Tensor::from_bytes(TensorType::new(self.to, [bytes.len() / width]), bytes)?)
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
