//! The trials of a run: every case with every backend and variant that does its
//! operation. The executable and `cargo test` both take them from here, so names are
//! the same. Nothing is computed until a trial runs.

use crate::adapter::Playback;
use crate::attempt::attempt;
use crate::case::Against;
use crate::load::load;
use crate::replay::Replay;
use crate::setup::{Selection, SetupError, Subject, fixtures, subjects};
use crate::source::Case;
use crate::verdict::{Outcome, Verdict};
use crate::waiver::{self, Waiver, WaiverError};
use plumbline_reference::backend::Device;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// All that a run consists of.
pub struct Registry {
    /// The trials.
    pub trials: Vec<Trial>,
    /// What was left out, for the summary.
    pub left_out: LeftOut,
    /// The backends that are judged.
    pub subjects: Vec<Subject>,
}

/// What a run does not cover.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Cases of larger profiles, by the profile's name.
    pub profiles: BTreeMap<String, usize>,
    /// Cases that a backend does not do, by backend.
    pub unsupported: BTreeMap<String, usize>,
    /// Trials of other partitions.
    pub partitions: usize,
}

/// One case on one variant of one backend.
#[derive(Clone)]
pub struct Trial {
    /// `backend/variant/case`.
    pub name: String,
    /// The case.
    pub case: Arc<Case>,
    /// The backend.
    pub subject: Subject,
    /// Its variant.
    pub variant: String,
    /// The waiver that covers it.
    pub waiver: Option<Arc<Waiver>>,
    context: Arc<RunContext>,
}

struct RunContext {
    seed: u64,
    h200: Playback,
    replay: Replay,
}

impl Registry {
    /// The trials that a selection asks for.
    pub fn new(selection: &Selection) -> Result<Self, SetupError> {
        let h200 = Playback::h200()?;
        let subjects = subjects(selection, &h200)?;
        let (cases, waivers) = match &selection.cases {
            Some(path) => (load(path)?, Vec::new()),
            None => built_in(&fixtures()?, &subjects)?,
        };
        Self::of(cases, subjects, &waivers, selection, h200)
    }

    /// The trials of given cases on given backends.
    pub fn of(
        cases: Vec<Case>,
        subjects: Vec<Subject>,
        waivers: &[Arc<Waiver>],
        selection: &Selection,
        h200: Playback,
    ) -> Result<Self, SetupError> {
        let context = Arc::new(RunContext { seed: selection.seed, h200, replay: Replay::new(selection) });
        let mut left_out = LeftOut::default();
        let mut trials = Vec::new();
        for case in cases.into_iter().map(Arc::new) {
            if case.spec.profile > selection.profile {
                *left_out.profiles.entry(case.spec.profile.to_string()).or_default() += 1;
                continue;
            }
            for subject in &subjects {
                let backend = subject.backend.name();
                if subject.backend.supports(&case.spec.op).is_err() {
                    *left_out.unsupported.entry(backend.to_owned()).or_default() += 1;
                    continue;
                }
                for variant in subject.backend.variants(&case.spec.op) {
                    if judges_itself(&case, subject, &variant) {
                        continue;
                    }
                    let name = format!("{backend}/{variant}/{}", case.name);
                    if selection.partition.is_some_and(|partition| !partition.holds(&name)) {
                        left_out.partitions += 1;
                        continue;
                    }
                    let device = subject.backend.device();
                    let waiver =
                        waivers.iter().find(|waiver| waiver.covers(&case.name, backend, &device)).cloned();
                    let (case, subject, context) = (case.clone(), subject.clone(), context.clone());
                    trials.push(Trial { name, case, subject, variant, waiver, context });
                }
            }
        }
        if trials.is_empty() {
            let why =
                "no trial is left: no selected backend does any of these cases, or the partition is empty";
            return Err(SetupError::NothingToRun(why.to_owned()));
        }
        Ok(Self { trials, left_out, subjects })
    }

    /// Keeps the trials whose name contains `filter`, or is `filter`.
    pub fn filter(&mut self, filter: &str, exact: bool) -> Result<(), SetupError> {
        self.trials.retain(|trial| if exact { trial.name == filter } else { trial.name.contains(filter) });
        if self.trials.is_empty() {
            let how = if exact { "is named" } else { "has a name containing" };
            let why = format!("no trial {how} `{filter}`; `--list` shows the names");
            return Err(SetupError::NothingToRun(why));
        }
        Ok(())
    }
}

/// Where a comparison would be of a backend with itself.
fn judges_itself(case: &Case, subject: &Subject, variant: &str) -> bool {
    match case.spec.against {
        Against::H200 => subject.backend.name() == Playback::NAME,
        Against::Definition => !case.is_independent() && subject.definition == Some(variant),
    }
}

/// What names of regressions begin with.
pub(crate) const REGRESSIONS: &str = "regressions";

type CasesAndWaivers = (Vec<Case>, Vec<Arc<Waiver>>);

/// The project's own cases, regressions and waivers.
fn built_in(fixtures: &Path, subjects: &[Subject]) -> Result<CasesAndWaivers, SetupError> {
    let mut cases = load(&fixtures.join("cases"))?;
    let regressions = fixtures.join(REGRESSIONS);
    if has_cases(&regressions) {
        for mut case in load(&regressions)? {
            case.name = format!("{REGRESSIONS}/{}", case.name);
            cases.push(case);
        }
    }
    let file = fixtures.join("waivers.yaml");
    let waivers = waiver::load(&file, jiff::Zoned::now().date())?;
    // A waiver for a backend that is not here cannot be checked.
    let unused = waivers.iter().find(|waiver| {
        let known = subjects.iter().any(|subject| subject.backend.name() == waiver.backend);
        let any_device = Device { name: waiver.device.clone().unwrap_or_default(), ..Device::default() };
        known && !cases.iter().any(|case| waiver.covers(&case.name, &waiver.backend, &any_device))
    });
    match unused {
        None => Ok((cases, waivers.into_iter().map(Arc::new).collect())),
        Some(waiver) => Err(WaiverError::Unused {
            file: file.display().to_string(),
            case: waiver.case.clone(),
            backend: waiver.backend.clone(),
        }
        .into()),
    }
}

fn has_cases(folder: &Path) -> bool {
    let yaml = |path: PathBuf| path.extension().is_some_and(|extension| extension == "yaml");
    std::fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(|entry| yaml(entry.path())))
}

impl Trial {
    /// Builds the case, runs the backend and judges what it gave.
    #[must_use]
    pub fn run(&self) -> Verdict {
        let start = Instant::now();
        let mut verdict = Verdict {
            trial: self.name.clone(),
            case: self.case.name.clone(),
            origin: self.case.origin(),
            about: self.case.spec.about.clone(),
            op: self.case.spec.op.clone(),
            backend: self.subject.backend.name().to_owned(),
            variant: self.variant.clone(),
            device: self.subject.backend.device().name,
            seed: self.context.seed,
            outcome: Outcome::Pass,
            outputs: Vec::new(),
            memory: Vec::new(),
            message: None,
            waiver: self.waiver.as_ref().map(|waiver| format!("{} ({})", waiver.reason, waiver.link)),
            elements: 0,
            millis: 0,
            replay: self.context.replay.command(self),
        };
        self.judge_into(&mut verdict);
        if self.waiver.is_some() {
            match verdict.outcome {
                Outcome::Fail | Outcome::Crashed => verdict.outcome = Outcome::Waived,
                Outcome::Pass => {
                    verdict.outcome = Outcome::Fail;
                    verdict.message =
                        Some("passes although a waiver says it fails: remove the waiver".to_owned());
                }
                Outcome::Waived | Outcome::Error => {}
            }
        }
        verdict.elements = verdict.outputs.iter().map(|output| output.elements).sum();
        verdict.millis = start.elapsed().as_millis() as u64;
        verdict
    }

    fn judge_into(&self, verdict: &mut Verdict) {
        let op = &self.case.spec.op;
        let built = match self.case.build(self.context.seed, &self.context.h200) {
            Ok(built) => built,
            Err(error) => {
                verdict.outcome = Outcome::Error;
                verdict.message = Some(error.to_string());
                return;
            }
        };
        let attempt = attempt(&self.subject, op, &self.variant, &built);
        verdict.outcome = attempt.outcome;
        verdict.outputs = attempt.outputs;
        verdict.memory = attempt.memory;
        verdict.message = attempt.message;
    }
}
