//! A check must be able to fail: cases prove that they reject wrong outputs.
//!
//! The first trial of a case that passes proves it, in each process, and the others share what it
//! finds: the outputs that were judged right are made wrong in several ways, and go before the same
//! judge. A perturbation that changes no judged value shows nothing and is left out. One that does
//! must be rejected, by the case or by one of its companions.

use crate::attempt::{Attempt, Output, attempt, context, outputs_of};
use crate::case::{Criterion, NanJudge};
use crate::judge::{Context, accepts};
use crate::setup::Subject;
use crate::source::{Built, Case, Expected, Values};
use crate::suite::Test;
use crate::verdict::Outcome;
use plumbline_reference::format::{Class, Format, Policy};
use plumbline_reference::{BackendError, DType, Path, Tensor, TensorType};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How an output is made wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Perturbation {
    Zeros,
    Negated,
    Scaled,
    Shifted,
    Nan,
    /// What the same case gives under the next seed.
    NextSeed,
    /// The lowest bit of the last judged element is another, where bits are judged.
    LowBit,
    /// Of an output without elements: one that has some.
    Longer,
}

impl Perturbation {
    const ALL: [Self; 8] = [
        Self::Zeros,
        Self::Negated,
        Self::Scaled,
        Self::Shifted,
        Self::Nan,
        Self::NextSeed,
        Self::LowBit,
        Self::Longer,
    ];

    /// The wrong output; `None` where there is none of its kind.
    fn of(self, y: &Tensor, next: Option<&Tensor>, last: Option<usize>) -> Option<Tensor> {
        let made =
            |code: &(dyn Fn(usize) -> u64 + Sync)| Tensor::from_fn(y.ty().clone(), Path::Parallel, code).ok();
        let of_numbers = |change: &(dyn Fn(Format, u64) -> u64 + Sync)| {
            let format = y.dtype().format()?;
            made(&|i| match y.code(i) {
                code if format.decode(code).is_nan() => code,
                code => change(format, code),
            })
        };
        match self {
            Self::Longer if y.is_empty() => {
                let shape: Vec<_> = y.shape().iter().map(|&extent| extent.max(1)).collect();
                Tensor::from_fn(TensorType::new(y.dtype(), shape), Path::Parallel, |_| 0).ok()
            }
            Self::Longer => None,
            Self::Zeros => made(&|_| 0),
            Self::Negated => of_numbers(&|format, code| {
                let is_zero = format.classify(code) == Class::Zero;
                if is_zero && !format.has_negative_zero() { code } else { code ^ format.sign_bit() }
            }),
            Self::Scaled => of_numbers(&|format, code| {
                format.encode((0.9 * format.to_f64(code)).into(), &Policy::IEEE, 0)
            }),
            Self::Shifted => {
                let row = if let &[_, .., row] = y.shape() { row } else { 1 };
                made(&|i| y.code((i + row) % y.len()))
            }
            Self::Nan => {
                let nan = y.dtype().format()?.canonical_nan()?;
                made(&|_| nan)
            }
            Self::NextSeed => next.filter(|next| next.ty() == y.ty()).cloned(),
            Self::LowBit => {
                let (last, bit) = (last?, low_bit(y.dtype()));
                made(&|i| y.code(i) ^ if i == last { bit } else { 0 })
            }
        }
    }
}

impl fmt::Display for Perturbation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Zeros => "all zeros",
            Self::Negated => "negated",
            Self::Scaled => "scaled by 0.9",
            Self::Shifted => "shifted by one row",
            Self::Nan => "NaN everywhere",
            Self::NextSeed => "that of the next seed",
            Self::LowBit => "with one low bit flipped",
            Self::Longer => "with elements where there are none",
        })
    }
}

fn low_bit(dtype: DType) -> u64 {
    dtype.format().map_or(1, |format| 1 << format.low_padding)
}

/// What a judge says of a wrong output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    output: usize,
    perturbation: Perturbation,
    rejected: bool,
}

/// Shows wrong outputs in place of a right one to its judge.
pub(crate) fn answers(
    context: Context<'_>,
    output: usize,
    expected: &Expected,
    right: &Output,
    next: Option<&Output>,
) -> Vec<Answer> {
    let judged = Judged::new(context.nan, expected, right);
    let flips = expected.criterion == Criterion::BitExact;
    answers_of(&judged, output, right, next, flips, |wrong| {
        accepts(context, output, expected, wrong.actual())
    })
}

/// Shows a judge every perturbation that changes a judged value; low bits only where it `flips` them.
fn answers_of(
    judged: &Judged<'_>,
    output: usize,
    right: &Output,
    next: Option<&Output>,
    flips: bool,
    accepts: impl Fn(&Output) -> bool,
) -> Vec<Answer> {
    let last = if flips { judged.last_flippable() } else { None };
    let made = Perturbation::ALL.into_iter().filter_map(|perturbation| {
        let wrong = perturbation.of(right.tensor(), next.map(Output::tensor), last)?;
        judged.differs(&wrong).then(|| (perturbation, right.with(wrong)))
    });
    let answer =
        |(perturbation, wrong): (_, Output)| Answer { output, perturbation, rejected: !accepts(&wrong) };
    made.map(answer).collect()
}

/// Which values of an output are judged, and which of them count as the same.
struct Judged<'a> {
    right: &'a Tensor,
    /// All elements where there is none.
    at: Option<&'a [usize]>,
    nan: NanJudge,
    signs_of_zeros: bool,
}

impl<'a> Judged<'a> {
    fn new(nan: NanJudge, expected: &'a Expected, right: &'a Output) -> Self {
        // What a derived criterion says of signs of zeros depends on the element.
        let is_derived = matches!(expected.values, Values::Derived);
        Self {
            right: right.tensor(),
            at: match (&expected.values, right) {
                (Values::Sparse { at, .. }, Output::Whole(_)) => Some(at),
                _ => None,
            },
            nan: if is_derived { NanJudge::Class } else { expected.nan.unwrap_or(nan) },
            signs_of_zeros: !is_derived,
        }
    }

    fn positions(&self) -> impl DoubleEndedIterator<Item = usize> {
        let count = self.at.map_or(self.right.len(), <[usize]>::len);
        (0..count).map(|i| self.at.map_or(i, |at| at[i]))
    }

    fn same(&self, right: u64, wrong: u64) -> bool {
        let class = |code| self.right.dtype().format().map(|format| format.classify(code));
        right == wrong
            || match (class(right), class(wrong)) {
                (Some(Class::Nan), Some(Class::Nan)) => self.nan == NanJudge::Class,
                (Some(Class::Zero), Some(Class::Zero)) => !self.signs_of_zeros,
                _ => false,
            }
    }

    fn differs(&self, wrong: &Tensor) -> bool {
        wrong.ty() != self.right.ty()
            || self.positions().any(|i| !self.same(self.right.code(i), wrong.code(i)))
    }

    /// The last element whose lowest bit counts.
    fn last_flippable(&self) -> Option<usize> {
        let bit = low_bit(self.right.dtype());
        self.positions().rev().find(|&i| !self.same(self.right.code(i), self.right.code(i) ^ bit))
    }
}

/// What is wrong with an output, `what`, of which the answers say that neither its judge nor that of a
/// companion rejects something.
pub(crate) fn doubt(what: &str, output: usize, answers: &[Answer], companions: &[Answer]) -> Option<String> {
    let own: Vec<_> = answers.iter().filter(|answer| answer.output == output).collect();
    let rejected: Vec<_> =
        companions.iter().filter(|answer| answer.output == output && answer.rejected).collect();
    let is_rejected = |wrong: Perturbation| rejected.iter().any(|answer| answer.perturbation == wrong);
    let accepted = own.iter().filter(|answer| !answer.rejected && !is_rejected(answer.perturbation));
    let accepted: Vec<_> = accepted.map(|answer| answer.perturbation.to_string()).collect();
    if !accepted.is_empty() {
        return Some(format!("{what} is also accepted {}", accepted.join(", ")));
    }
    (own.is_empty() && rejected.is_empty())
        .then(|| format!("{what} cannot be wrong: nothing that is done to it changes a judged value"))
}

/// What to do about doubts.
pub(crate) const REMEDY: &str = "give it inputs for which that is wrong, or a stricter `judge`";

/// The proofs of a run.
pub(crate) struct Proofs {
    seed: u64,
    cases: BTreeMap<String, Proof>,
}

struct Proof {
    case: Arc<Case>,
    /// Of the first trial that passed.
    answers: Mutex<Option<Vec<Answer>>>,
}

impl Proofs {
    pub(crate) fn new(tests: &[Test], seed: u64) -> Self {
        let proof = |test: &Test| match test {
            Test::Case(case) if case.spec.refused.is_none() => {
                Some((case.name.clone(), Proof { case: case.clone(), answers: Mutex::default() }))
            }
            Test::Case(_) | Test::Sequence(_) => None,
        };
        Self { seed, cases: tests.iter().filter_map(proof).collect() }
    }

    /// Why a case is not to be trusted, of which an attempt passed. `lost` becomes true where the backend
    /// cannot be used any more.
    pub(crate) fn doubt(
        &self,
        subject: &Subject,
        case: &Case,
        variant: &str,
        built: &Built,
        passed: &Attempt,
        lost: &mut bool,
    ) -> Option<String> {
        let proof = self.cases.get(&case.name)?;
        let answers = {
            let mut known = proof.answers.lock().unwrap_or_else(PoisonError::into_inner);
            known.get_or_insert_with(|| self.prove(subject, case, variant, built, passed, lost)).clone()
        };
        let doubts = |companions: &[Answer]| -> Vec<_> {
            let outputs = 0..built.expected.len();
            outputs
                .filter_map(|output| doubt(&format!("output {output}"), output, &answers, companions))
                .collect()
        };
        if doubts(&[]).is_empty() {
            return None;
        }
        let names: Vec<_> = case.companions().collect();
        let companions: Vec<_> =
            names.iter().flat_map(|name| self.of_companion(subject, name, variant, lost)).collect();
        let doubts = doubts(&companions);
        if doubts.is_empty() {
            return None;
        }
        let others = match names.len() {
            0 => String::new(),
            _ => format!(" (and its companions {} do not reject it)", names.join(", ")),
        };
        let companion = "or name a case that rejects it under `companions`";
        Some(format!("{}{others}; {REMEDY}, {companion}", doubts.join("; ")))
    }

    fn prove(
        &self,
        subject: &Subject,
        case: &Case,
        variant: &str,
        built: &Built,
        passed: &Attempt,
        lost: &mut bool,
    ) -> Vec<Answer> {
        let op = &case.spec.op;
        let inputs = case.inputs(self.seed.wrapping_add(1)).ok().filter(|inputs| *inputs != built.inputs);
        // Where other inputs make it fail, that is for runs under other seeds to say.
        let next = inputs.and_then(|inputs| {
            let outputs = outputs_of(subject, op, variant, built, &inputs);
            outputs.inspect_err(|error| *lost |= matches!(error, BackendError::Lost { .. })).ok()
        });
        let device = subject.backend.device();
        let context = Context { hints: Some(&passed.how), ..context(subject, op, &built.inputs, &device) };
        let outputs = built.expected.iter().zip(&passed.given).enumerate();
        let answers = outputs.map(|(i, (expected, right))| {
            answers(context, i, expected, right, next.as_ref().and_then(|next| next.get(i)))
        });
        answers.flatten().collect()
    }

    /// What a companion answers, which is run where no trial of it passed yet. Nothing, if it does not pass.
    fn of_companion(&self, subject: &Subject, name: &str, variant: &str, lost: &mut bool) -> Vec<Answer> {
        let Some(Proof { case, answers }) = self.cases.get(name) else { return Vec::new() };
        let mut known = answers.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = self.run(subject, case, variant, lost);
        }
        known.clone().unwrap_or_default()
    }

    fn run(&self, subject: &Subject, case: &Case, variant: &str, lost: &mut bool) -> Option<Vec<Answer>> {
        let (op, backend) = (&case.spec.op, &subject.backend);
        backend.supports(op).ok()?;
        let ways = backend.variants(op);
        let way = ways.iter().find(|way| *way == variant).or(ways.first())?;
        let built = case.build(self.seed).ok()?;
        let attempt = attempt(subject, op, way, &built);
        *lost |= attempt.lost;
        (attempt.outcome == Outcome::Pass).then(|| self.prove(subject, case, way, &built, &attempt, lost))
    }
}

#[cfg(test)]
mod tests;
