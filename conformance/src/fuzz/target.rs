//! What is fuzzed: a variant of a backend at one operation.

use super::blocks;
use super::operation::{KINDS, Kind};
use super::product;
use super::sample::Sample;
use super::shrink::shrink;
use super::strategy::Samples;
use crate::attempt::{Attempt, attempt};
use crate::case::Against;
use crate::seed::{mix, of_case};
use crate::setup::Subject;
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
    pub(super) fn allows(&self, op: &Op) -> bool {
        let backend = &self.subject.backend;
        !self.waived.contains(op)
            && has_one_result(&self.subject, op)
            && backend.supports(op).is_ok()
            && backend.variants(op).contains(&self.variant)
    }
}

/// Whether the definition's bits are the only right ones. What else an exact product may give
/// is judged by a bound, which says nothing of most random bits.
fn has_one_result(subject: &Subject, op: &Op) -> bool {
    subject.oracle.is_some() || !(product::is_exact(op) || blocks::is_exact(op))
}

/// A variant of a backend at one operation.
pub struct Target {
    /// `backend/variant/operation`.
    pub name: String,
    pub(super) scope: Scope,
    pub(super) kind: Kind,
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
}

/// What can be fuzzed on some backends, and what is left out.
#[derive(Default)]
pub struct Targets {
    /// The targets.
    pub targets: Vec<Target>,
    /// Names of targets of which some operations are left out as waived, and how many.
    pub waived: BTreeMap<String, usize>,
    /// Backends that are left out because their trials need processes of their own.
    pub isolated: Vec<String>,
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
            // It could take this process down, and everything found before with it.
            if subject.isolated {
                all.isolated.push(subject.backend.name().to_owned());
                continue;
            }
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
        let is_done = |op: &Op| has_one_result(subject, op) && subject.backend.supports(op).is_ok();
        for op in (kind.simple)().into_iter().filter(is_done) {
            for variant in subject.backend.variants(&op) {
                // The definition would be compared with itself.
                if subject.oracle != Some((Against::Definition, &*variant)) {
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

    /// Keeps what has a name containing `filter`.
    pub fn filter(&mut self, filter: &str) {
        self.targets.retain(|target| target.name.contains(filter));
        self.waived.retain(|name, _| name.contains(filter));
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

    /// Name of the operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.kind.name
    }

    /// A search that begins with the first sample. The run's seed, the target's name and
    /// a sample's number say what the sample is.
    #[must_use]
    pub fn search(&self, run_seed: u64) -> Search<'_> {
        let seed = of_case(&self.name, run_seed);
        Search { target: self, seed, done: 0, samples: Samples::new(&self.scope, self.kind, mix(seed, 0)) }
    }

    fn fails(&self, sample: &Sample) -> bool {
        self.attempt(sample).is_some_and(|attempt| !attempt.outcome.is_ok())
    }

    /// Runs and judges a sample. `None` where it does not fit its operation.
    pub(super) fn attempt(&self, sample: &Sample) -> Option<Attempt> {
        let built = sample.build().ok()?;
        Some(attempt(&self.scope.subject, &sample.op, &self.scope.variant, &built))
    }
}

/// A search for a sample on which a target fails.
pub struct Search<'a> {
    target: &'a Target,
    seed: u64,
    done: u64,
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

    /// Tries the next `count` samples; the first that fails, made as simple as it can be.
    pub fn run(&mut self, count: u64) -> Option<Finding> {
        for _ in 0..count {
            let iteration = self.done;
            self.done += 1;
            if iteration > 0 && iteration.is_multiple_of(EPOCH) {
                let seed = mix(self.seed, iteration / EPOCH);
                self.samples = Samples::new(&self.target.scope, self.target.kind, seed);
            }
            // The strategies here reject nothing. One that does would look as if it found nothing.
            let tree = self.samples.new_tree(&mut runner(mix(!self.seed, iteration)));
            let tree = tree.unwrap_or_else(|why| panic!("{}: no sample: {why}", self.target.name));
            let original = tree.current();
            if self.target.fails(&original) {
                let sample = shrink(tree, |sample| self.target.fails(sample));
                return Some(Finding { sample, original, iteration });
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
