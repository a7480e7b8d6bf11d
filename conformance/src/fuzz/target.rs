//! What is fuzzed: a variant of a backend at one operation.

use super::operation::{KINDS, Kind};
use super::regression::what;
use super::sample::Sample;
use super::shrink::shrink;
use super::strategy::Samples;
use crate::case::{Against, Criterion};
use crate::registry::Trial;
use crate::seed::{mix, of_case};
use crate::setup::Subject;
use crate::source::{Case, check_product};
use crate::verdict::Verdict;
use plumbline_reference::ops::Op;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;

/// The operations of a target.
pub(super) struct Scope {
    subject: Subject,
    variant: String,
    /// Left out, since their faults are known.
    waived: Vec<Op>,
    /// Simple ones among those that are done, at least one.
    pub(super) simple: Vec<Op>,
}

impl Scope {
    pub(super) fn criterion(&self, op: &Op) -> Option<Criterion> {
        criterion(&self.subject, &self.variant, op)
    }

    pub(super) fn allows(&self, op: &Op) -> bool {
        let backend = &self.subject.backend;
        !self.waived.contains(op)
            && self.criterion(op).is_some()
            && backend.supports(op).is_ok()
            && backend.variants(op).contains(&self.variant)
    }
}

/// What judges an operation on a variant of a backend; `None` where nothing can. The definition's bits
/// are the only right ones, but of exact products, which others may add up in any order. The definition
/// itself must be within its own bounds.
fn criterion(subject: &Subject, variant: &str, op: &Op) -> Option<Criterion> {
    let is_definition = subject.oracle == Some((Against::Definition, variant));
    if is_definition || super::is_exact(op) && subject.oracle.is_none() {
        return check_product(op, Criterion::Bound).is_ok().then_some(Criterion::Bound);
    }
    Some(Criterion::BitExact)
}

/// A variant of a backend at one operation.
pub struct Target {
    /// `backend/variant/operation`.
    pub name: String,
    pub(super) scope: Scope,
    pub(super) kind: Kind,
}

/// Why a sample is no trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTrial {
    /// Its inputs do not fit its operation, or nothing judges it.
    Unfit,
    /// Its bound says nothing.
    Unbounded,
}

/// A sample on which a target fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The simplest such sample.
    pub sample: Sample,
    /// What the search came upon first.
    pub original: Sample,
    /// The number of that sample, from 0.
    pub iteration: u64,
    /// What the backend did with the simplest.
    pub what: String,
}

/// What can be fuzzed on some backends, and what is left out.
#[derive(Default)]
pub struct Targets {
    /// The targets.
    pub targets: Vec<Target>,
    /// Names of targets of which some operations are left out as waived, and how many.
    pub waived: BTreeMap<String, usize>,
}

/// Samples that are drawn from the same pools of bits.
const EPOCH: u64 = 8192;

impl Targets {
    /// The targets on some backends. `waived` says which operations of a backend's
    /// variant have a known fault.
    #[must_use]
    pub fn new(subjects: &[Subject], waived: impl Fn(&Subject, &str) -> Vec<Op>) -> Self {
        let mut all = Self::default();
        for subject in subjects {
            for kind in KINDS {
                all.add(subject, kind, &waived);
            }
        }
        all
    }

    /// Names of the operations that can be fuzzed.
    #[must_use]
    pub fn operations() -> Vec<&'static str> {
        KINDS.iter().map(|kind| kind.name).collect()
    }

    fn add(&mut self, subject: &Subject, kind: Kind, waived: &impl Fn(&Subject, &str) -> Vec<Op>) {
        let mut by_variant = BTreeMap::<String, Vec<Op>>::new();
        for op in (kind.simple)().into_iter().filter(|op| subject.backend.supports(op).is_ok()) {
            for variant in subject.backend.variants(&op) {
                if criterion(subject, &variant, &op).is_some() {
                    by_variant.entry(variant).or_default().push(op.clone());
                }
            }
        }
        for (variant, mut simple) in by_variant {
            let name = format!("{}/{variant}/{}", subject.backend.name(), kind.name);
            let (done, waived) = (simple.len(), waived(subject, &variant));
            simple.retain(|op| !waived.contains(op));
            if simple.len() < done {
                self.waived.insert(name.clone(), done - simple.len());
            }
            if !simple.is_empty() {
                let scope = Scope { subject: subject.clone(), variant, waived, simple };
                self.targets.push(Target { name, scope, kind });
            }
        }
    }

    /// Keeps what has a name containing `filter`, and of that the targets of a variant.
    pub fn filter(&mut self, filter: &str, variant: Option<&str>) {
        // `backend/variant/operation`
        let is_kept = |name: &str| {
            name.contains(filter) && variant.is_none_or(|variant| name.split('/').nth(1) == Some(variant))
        };
        self.targets.retain(|target| is_kept(&target.name));
        self.waived.retain(|name, _| is_kept(name));
    }
}

impl Target {
    /// The backend.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.scope.subject
    }

    /// Its variant.
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.scope.variant
    }

    /// Whether it is what all others are judged by.
    #[must_use]
    pub fn is_definition(&self) -> bool {
        self.scope.subject.oracle == Some((Against::Definition, self.variant()))
    }

    /// Name of the operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.kind.name
    }

    /// A search that begins with the first sample. The run's seed, the operation's name and
    /// a sample's number say what the sample is, so that backends that do the same get the same.
    #[must_use]
    pub fn search(&self, run_seed: u64) -> Search<'_> {
        let seed = of_case(self.kind.name, run_seed);
        let samples = Samples::new(&self.scope, self.kind, mix(seed, 0));
        Search { target: self, seed, done: 0, unbounded: 0, samples }
    }

    /// A sample as a trial.
    pub(super) fn trial(&self, sample: &Sample) -> Result<Trial, NoTrial> {
        let criterion = self.scope.criterion(&sample.op).ok_or(NoTrial::Unfit)?;
        let inputs = sample.inputs().map_err(|_| NoTrial::Unfit)?;
        if criterion == Criterion::Bound && !sample.is_bounded(&inputs) {
            return Err(NoTrial::Unbounded);
        }
        let case = Case::loose(sample.op.clone(), inputs, criterion);
        Ok(Trial::of(case, self.scope.subject.clone(), &self.scope.variant))
    }
}

/// A search for a sample on which a target fails.
pub struct Search<'a> {
    target: &'a Target,
    seed: u64,
    done: u64,
    unbounded: u64,
    samples: Samples<'a>,
}

impl<'a> Search<'a> {
    /// What is fuzzed.
    #[must_use]
    pub fn target(&self) -> &'a Target {
        self.target
    }

    /// Samples tried so far.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// How many of them were not run, as their bound says nothing: most sums may leave the range of their
    /// accumulator.
    #[must_use]
    pub fn unbounded(&self) -> u64 {
        self.unbounded
    }

    /// How many were run and judged.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.done - self.unbounded
    }

    /// Tries the next `count` samples, each as a trial that `run` runs; the first that fails, made as
    /// simple as it can be.
    pub fn run(&mut self, count: u64, run: impl Fn(&Trial) -> Verdict) -> Option<Finding> {
        let target = self.target;
        for _ in 0..count {
            let iteration = self.done;
            self.done += 1;
            if iteration > 0 && iteration.is_multiple_of(EPOCH) {
                let seed = mix(self.seed, iteration / EPOCH);
                self.samples = Samples::new(&target.scope, target.kind, seed);
            }
            // The strategies here reject nothing. One that does would look as if it found nothing.
            let tree = self.samples.new_tree(&mut runner(mix(!self.seed, iteration)));
            let tree = tree.unwrap_or_else(|why| panic!("{}: no sample: {why}", target.name));
            let original = tree.current();
            let trial = match target.trial(&original) {
                Ok(trial) => trial,
                Err(NoTrial::Unbounded) => {
                    self.unbounded += 1;
                    continue;
                }
                Err(NoTrial::Unfit) => panic!("{}: a sample that does not fit: {original:?}", target.name),
            };
            let mut last = run(&trial);
            if !last.outcome.is_ok() {
                let sample = shrink(tree, |sample| {
                    let Ok(trial) = target.trial(sample) else { return false };
                    let verdict = run(&trial);
                    let fails = !verdict.outcome.is_ok();
                    if fails {
                        last = verdict;
                    }
                    fails
                });
                return Some(Finding { sample, original, iteration, what: what(&last) });
            }
        }
        None
    }
}

fn runner(seed: u64) -> TestRunner {
    let config = Config { failure_persistence: None, ..Config::default() };
    let seed: Vec<u8> = (0..4).flat_map(|i| mix(seed, i).to_le_bytes()).collect();
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}
