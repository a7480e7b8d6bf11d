//! The trials of a run: every case and sequence with every backend and variant that does its
//! operation. The executable and `cargo test` both take them from here, so names are
//! the same. Nothing is computed until a trial runs.

use crate::attempt::{attempt, panic_text};
use crate::case::Against;
use crate::coverage::{Exercised, Gate};
use crate::load::{load_all_tests, load_tests};
use crate::refused::refused;
use crate::replay::{Needs, Replay};
use crate::sequence;
use crate::setup::{Partition, Selection, SetupError, Subject, fixtures, subjects};
use crate::source::{Built, Case, Values};
use crate::suite::Test;
use crate::sweep::digest;
use crate::vacuity::Proofs;
use crate::verdict::{Outcome, Verdict};
use crate::waiver::{self, Waiver, WaiverError};
use crate::weights::{self, Weights};
use crate::worker::{Call, Request};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Op;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// All that a run consists of.
pub struct Registry {
    /// The trials.
    pub trials: Vec<Trial>,
    /// What was left out, for the summary.
    pub left_out: LeftOut,
    /// Names of the trials that have a verdict on record and are not run again.
    pub done: BTreeSet<String>,
    /// The backends that are judged.
    pub subjects: Vec<Subject>,
    /// What the trials must cover; nothing where they are not all of the built-in cases.
    pub gate: Option<Gate>,
}

/// What a run does not cover.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Cases of larger profiles, by the profile's name.
    pub profiles: BTreeMap<String, usize>,
    /// Cases that a backend does not do, by backend and its reason.
    pub unsupported: BTreeMap<String, BTreeMap<String, usize>>,
    /// Tensors of a model that no case is made of, by what they are.
    pub weights: BTreeMap<String, usize>,
    /// Trials of other partitions.
    pub partitions: usize,
    /// Whether cases were not asked to prove that they can fail.
    pub proofs: bool,
}

/// One case on one variant of one backend.
#[derive(Clone)]
pub struct Trial {
    /// `backend/variant/case`.
    pub name: String,
    /// The case or sequence.
    pub test: Test,
    /// The backend.
    pub subject: Subject,
    /// Its variant.
    pub variant: String,
    /// The waiver that covers it.
    pub waiver: Option<Arc<Waiver>>,
    /// A worker is given the case itself, as it may not know its name.
    by_value: bool,
    context: Arc<RunContext>,
}

/// What the trials of a run have in common; nothing where a trial is of no run.
#[derive(Default)]
struct RunContext {
    seed: u64,
    replay: Option<Replay>,
    /// `None` where cases need not prove that they can fail.
    proofs: Option<Proofs>,
}

impl Registry {
    /// The trials that a selection asks for.
    pub fn new(selection: &Selection) -> Result<Self, SetupError> {
        let subjects = subjects(selection)?;
        let mut gate = None;
        let (cases, waivers) = match (&selection.weights, &selection.cases) {
            (Some(path), _) => {
                let Weights { cases, left_out } = weights::cases(path, selection.profile)?;
                let mut registry = Self::of(cases, subjects, Vec::new(), selection)?;
                registry.left_out.weights = left_out;
                return Ok(registry);
            }
            (None, Some(path)) => (load_tests(path)?, Vec::new()),
            (None, None) => {
                let fixtures = fixtures()?;
                gate = Some(Gate::load(&fixtures.join("coverage.yaml"))?);
                built_in(&fixtures)?
            }
        };
        Ok(Self { gate, ..Self::of(cases, subjects, waivers, selection)? })
    }

    /// No trials, for calls that are none.
    #[must_use]
    pub fn without_trials(subjects: Vec<Subject>) -> Self {
        Self { trials: Vec::new(), left_out: LeftOut::default(), done: BTreeSet::new(), subjects, gate: None }
    }

    /// The trials of given cases on given backends.
    pub fn of(
        cases: Vec<impl Into<Test>>,
        subjects: Vec<Subject>,
        waivers: Vec<Waiver>,
        selection: &Selection,
    ) -> Result<Self, SetupError> {
        let cases: Vec<Test> = cases.into_iter().map(Into::into).collect();
        let seed = selection.seed;
        let proofs = selection.proves().then(|| Proofs::new(&cases, seed));
        let mut left_out = LeftOut { proofs: proofs.is_none(), ..LeftOut::default() };
        let context = Arc::new(RunContext { seed, replay: Some(Replay::new(selection)), proofs });
        let mut waivers: Vec<_> = waivers.into_iter().map(|waiver| (Arc::new(waiver), false)).collect();
        let mut trials = Vec::new();
        for test in cases {
            let wanted = test.profile() <= selection.profile;
            if !wanted {
                *left_out.profiles.entry(test.profile().to_string()).or_default() += 1;
            }
            for subject in &subjects {
                let backend = subject.backend.name();
                let device = subject.backend.device();
                let variants = match test.variants(subject) {
                    Ok(variants) => variants,
                    Err(_) if !wanted => continue,
                    Err(Unsupported(why)) => {
                        let reasons = left_out.unsupported.entry(backend.to_owned()).or_default();
                        *reasons.entry(why).or_default() += 1;
                        continue;
                    }
                };
                for variant in variants {
                    if test.oracle().is_some() && test.oracle() == subject.oracle_of(&variant) {
                        continue;
                    }
                    let waiver = waivers
                        .iter_mut()
                        .find(|(waiver, _)| waiver.covers(test.name(), backend, &variant, &device));
                    let waiver = waiver.map(|(waiver, used)| {
                        *used = true;
                        waiver.clone()
                    });
                    if wanted {
                        let name = format!("{backend}/{variant}/{}", test.name());
                        let (test, subject, context) = (test.clone(), subject.clone(), context.clone());
                        trials.push(Trial { name, test, subject, variant, waiver, by_value: false, context });
                    }
                }
            }
        }
        for subject in &subjects {
            let (backend, device) = (subject.backend.name(), subject.backend.device());
            waivers.iter().try_for_each(|(waiver, _)| waiver.check(backend, &device))?;
        }
        // A waiver for a backend, device or version that is not here cannot be checked.
        let here = |waiver: &Waiver| {
            let mut backends = subjects.iter().map(|subject| &subject.backend);
            backends.any(|backend| waiver.is_of(backend.name(), &backend.device()))
        };
        if let Some((unused, _)) = waivers.iter().find(|(waiver, used)| !used && here(waiver)) {
            let (case, backend) = (unused.case.clone(), unused.backend.clone());
            return Err(WaiverError::Unused { case, backend }.into());
        }
        if trials.is_empty() {
            let why = "no trial to run: no selected backend does any of the cases, or all are of larger profiles or for devices \
                 alone";
            return Err(SetupError::NothingToRun(why.to_owned()));
        }
        Ok(Self { trials, left_out, done: BTreeSet::new(), subjects, gate: None })
    }

    /// The trials that are to be run.
    pub fn pending(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| !self.done.contains(&trial.name))
    }

    /// Keeps the trials whose name contains `filter`, or is `filter`.
    pub fn filter(&mut self, filter: &str, exact: bool) -> Result<(), SetupError> {
        self.gate = None;
        self.trials.retain(|trial| if exact { trial.name == filter } else { trial.name.contains(filter) });
        if self.trials.is_empty() {
            let how = if exact { "is named" } else { "has a name containing" };
            let why = format!("no trial {how} `{filter}`; `--list` shows the names");
            return Err(SetupError::NothingToRun(why));
        }
        Ok(())
    }

    /// A digest of the trials: their names, what their cases say and hold, and their waivers.
    pub(crate) fn digest(&self) -> u64 {
        let text = |text: &str| digest::of(text.as_bytes());
        self.trials.chunk_by(|a, b| a.test.name() == b.test.name()).fold(0, |all, trials| {
            let all = digest::followed_by(all, trials[0].test.digest());
            trials.iter().fold(all, |all, trial| {
                let waiver = trial.waiver.as_ref().map_or(0, |waiver| text(&format!("{waiver:?}")));
                digest::followed_by(digest::followed_by(all, text(&trial.name)), waiver)
            })
        })
    }

    /// Keeps the trials of one part.
    pub fn partition(&mut self, partition: Partition) -> Result<(), SetupError> {
        self.gate = None;
        let all = self.trials.len();
        self.trials.retain(|trial| partition.holds(&trial.name));
        self.left_out.partitions = all - self.trials.len();
        if self.trials.is_empty() {
            let why = format!("part {partition} holds none of the {all} trials; use fewer parts");
            return Err(SetupError::NothingToRun(why));
        }
        Ok(())
    }
}

/// What names of regressions begin with.
pub(crate) const REGRESSIONS: &str = "regressions";

/// The project's own cases, regressions and waivers.
fn built_in(fixtures: &Path) -> Result<(Vec<Test>, Vec<Waiver>), SetupError> {
    let mut cases = load_tests(&fixtures.join("cases"))?;
    let regressions = fixtures.join(REGRESSIONS);
    if regressions.is_dir() {
        cases.extend(load_all_tests(&regressions)?.into_iter().map(|test| test.within(REGRESSIONS)));
    }
    let waivers = waiver::load(&fixtures.join("waivers.yaml"), jiff::Zoned::now().date())?;
    Ok((cases, waivers))
}

/// What running a trial gave, before waivers.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The backend says that its device or process can no longer be used.
    pub(crate) lost: bool,
}

impl Trial {
    /// A case, of a file or not, on a variant of a backend. Workers are given it as it is.
    pub fn of(case: Case, subject: Subject, variant: &str) -> Self {
        let name = format!("{}/{variant}/{}", subject.backend.name(), case.name);
        let (test, variant) = (case.into(), variant.to_owned());
        Self { name, test, subject, variant, waiver: None, by_value: true, context: Arc::default() }
    }

    /// The same in a run of this selection, which has the case.
    #[must_use]
    pub(crate) fn replayed_as(self, selection: &Selection) -> Self {
        let context = RunContext { seed: selection.seed, replay: Some(Replay::new(selection)), proofs: None };
        Self { context: Arc::new(context), ..self }
    }

    /// What a worker is asked that is to run it.
    pub(crate) fn request(&self) -> Request {
        match &self.test {
            Test::Case(case) if self.by_value => Request::Call(Box::new(Call {
                trial: self.name.clone(),
                backend: self.subject.backend.name().to_owned(),
                variant: self.variant.clone(),
                case: case.literal(),
            })),
            _ => Request::Run(self.name.clone()),
        }
    }

    /// Builds the case, runs the backend in this process and judges what it gave.
    #[must_use]
    pub fn run(&self) -> Verdict {
        self.settle(self.judge().verdict)
    }

    /// A verdict on nothing yet: what is known before the trial runs.
    pub(crate) fn unjudged(&self, outcome: Outcome, message: Option<String>, needs: Needs) -> Verdict {
        let (op, ops, refusal) = match &self.test {
            Test::Case(case) => (Some(case.spec.op.clone()), Vec::new(), case.spec.refused.is_some()),
            Test::Sequence(sequence) => (None, sequence.operations().into_iter().cloned().collect(), false),
        };
        Verdict {
            trial: self.name.clone(),
            case: self.test.name().to_owned(),
            origin: self.test.origin(),
            about: self.test.about().cloned(),
            op,
            ops,
            oracle: self.test.oracle(),
            refusal,
            backend: self.subject.backend.name().to_owned(),
            variant: self.variant.clone(),
            device: self.subject.backend.device().name,
            seed: self.context.seed,
            outcome,
            outputs: Vec::new(),
            memory: Vec::new(),
            message,
            stderr: None,
            waiver: self.waiver.as_ref().map(|waiver| format!("{} ({})", waiver.reason, waiver.link)),
            how: BTreeMap::new(),
            exercised: None,
            elements: 0,
            millis: 0,
            replay: self
                .context
                .replay
                .as_ref()
                .map_or_else(String::new, |replay| replay.command(self, needs)),
        }
    }

    /// A worker's verdict, with what the worker does not know of a case that it was given.
    pub(crate) fn of_worker(&self, verdict: Verdict) -> Verdict {
        if !self.by_value {
            return verdict;
        }
        let Verdict { case, origin, about, oracle, seed, replay, .. } =
            self.unjudged(verdict.outcome, None, Needs::default());
        Verdict { case, origin, about, oracle, seed, replay, ..verdict }
    }

    /// The operations that it calls, each with the variant in which it does.
    pub(crate) fn calls(&self) -> Vec<(&Op, String)> {
        match &self.test {
            Test::Case(case) => vec![(&case.spec.op, self.variant.clone())],
            Test::Sequence(sequence) => sequence.ways(&self.subject, &self.variant),
        }
    }

    pub(crate) fn judge(&self) -> Judged {
        let start = Instant::now();
        let mut verdict = self.unjudged(Outcome::Pass, None, Needs::default());
        let lost = catch_unwind(AssertUnwindSafe(|| self.judge_into(&mut verdict))).unwrap_or_else(|panic| {
            // A panic of the backend is its verdict and does not come this far.
            verdict.outcome = Outcome::Error;
            verdict.message =
                Some(format!("the harness panicked: {}; please report it", panic_text(&*panic)));
            false
        });
        verdict.elements = verdict.outputs.iter().map(|output| output.elements).sum();
        verdict.millis = start.elapsed().as_millis() as u64;
        Judged { verdict, lost }
    }

    /// The verdict in the light of the waiver, if there is one.
    pub(crate) fn settle(&self, mut verdict: Verdict) -> Verdict {
        if let Some(waiver) = &self.waiver {
            if verdict.outcome == Outcome::Pass {
                verdict.outcome = Outcome::Fail;
                verdict.message =
                    Some("passes although a waiver says it fails: remove the waiver".to_owned());
            } else if waiver.excuses(&verdict) {
                verdict.outcome = Outcome::Waived;
            }
        }
        verdict
    }

    /// What the call exercises: what its case does, where memory begins as it may.
    fn exercised(&self, op: &Op, built: &Built) -> Exercised {
        let mut exercised = built.exercised(op).clone();
        let backend = &self.subject.backend;
        // Of a product that is judged at few elements, perhaps only these are computed, without steps.
        let is_whole = built.expected.iter().all(|it| !matches!(it.values, Values::Sparse { .. }));
        if is_whole && backend.stepwise() && backend.alignment(op, &self.variant) == 1 {
            exercised.misalign();
        }
        exercised
    }

    /// Whether the backend was lost.
    fn judge_into(&self, verdict: &mut Verdict) -> bool {
        let proofs = &self.context.proofs;
        let attempt = match &self.test {
            Test::Sequence(sequence) => {
                sequence::attempt(&self.subject, sequence, &self.variant, self.context.seed, proofs.is_some())
            }
            Test::Case(case) => {
                let built = match case.build(self.context.seed) {
                    Ok(built) => built,
                    Err(error) => {
                        verdict.outcome = Outcome::Error;
                        verdict.message = Some(error.to_string());
                        return false;
                    }
                };
                let op = &case.spec.op;
                let mut attempt = match &case.spec.refused {
                    None => {
                        // Of a call of no run nobody asks.
                        if self.context.replay.is_some() {
                            verdict.exercised = Some(self.exercised(op, &built));
                        }
                        attempt(&self.subject, op, &self.variant, &built)
                    }
                    Some(refusal) => refused(&self.subject, op, &self.variant, &built.inputs, refusal),
                };
                if let (Outcome::Pass, Some(proofs)) = (attempt.outcome, proofs) {
                    let mut lost = false;
                    let doubt = proofs.doubt(&self.subject, case, &self.variant, &built, &attempt, &mut lost);
                    attempt.lost |= lost;
                    if doubt.is_some() {
                        attempt.outcome = Outcome::Mistrusted;
                        attempt.message = doubt;
                    }
                }
                attempt
            }
        };
        if attempt.outcome == Outcome::Mistrusted {
            verdict.replay_needs("--vacuity=always");
        }
        verdict.outcome = attempt.outcome;
        verdict.outputs = attempt.outputs;
        verdict.memory = attempt.memory;
        verdict.message = attempt.message;
        verdict.how = attempt.how;
        attempt.lost
    }
}

impl Subject {
    fn oracle_of(&self, variant: &str) -> Option<Against> {
        self.oracle.filter(|(_, own)| *own == variant).map(|(oracle, _)| oracle)
    }
}
