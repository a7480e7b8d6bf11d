//! Runs trials through libtest-mimic and collects their verdicts.

use crate::registry::{Registry, Trial};
use crate::report::{Coverage, Record, ResultsFile, SCHEMA, failure};
use crate::setup::Selection;
use crate::verdict::Verdict;
use crate::worker::Pool;
use libtest_mimic::{Arguments, Failed};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Runs a registry's trials, in this process where there is no `pool`. `cuda` is what was found
/// of CUDA; `results` is where `results.jsonl` goes and its name.
pub fn run(
    registry: &Registry,
    selection: &Selection,
    pool: Option<Pool>,
    arguments: &Arguments,
    cuda: &str,
    results: Option<(&Path, &str)>,
) -> io::Result<Coverage> {
    let start = Instant::now();
    let file = results.map(|(folder, name)| ResultsFile::create(folder, name)).transpose()?;
    if let Some(file) = &file {
        file.write(&Record::Run {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            started: jiff::Timestamp::now().to_string(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            seed: selection.seed,
            profile: selection.profile,
            backends: registry
                .subjects
                .iter()
                .map(|subject| (subject.backend.name().to_owned(), subject.backend.device()))
                .collect(),
            cuda: cuda.to_owned(),
        })?;
    }

    let collected = Arc::new(Collected { pool, verdicts: Mutex::default(), file });
    let trials = registry.trials.iter().map(|trial| collected.clone().trial(trial.clone())).collect();
    // It panics when its reader is gone: `conform | head`.
    let conclusion = catch_unwind(AssertUnwindSafe(|| libtest_mimic::run(arguments, trials)))
        .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "progress could not be printed"))?;

    let verdicts = std::mem::take(&mut *collected.verdicts.lock().unwrap_or_else(PoisonError::into_inner));
    // A trial that left no verdict, or whose record was not written, is an error of the run.
    let failed = verdicts.iter().filter(|verdict| !verdict.outcome.is_ok()).count() as u64;
    let unaccounted = conclusion.num_failed.saturating_sub(failed);
    if unaccounted > 0 {
        return Err(io::Error::other(format!("{unaccounted} trials ended without a verdict on record")));
    }
    let coverage = Coverage::new(&verdicts, registry, cuda, start.elapsed());
    if let Some(file) = &collected.file {
        file.write(&Record::Summary(&coverage))?;
    }
    Ok(coverage)
}

struct Collected {
    pool: Option<Pool>,
    verdicts: Mutex<Vec<Verdict>>,
    file: Option<ResultsFile>,
}

impl Collected {
    fn trial(self: Arc<Self>, trial: Trial) -> libtest_mimic::Trial {
        let kind = if trial.waiver.is_some() { "waived" } else { "" };
        libtest_mimic::Trial::test(trial.name.clone(), move || {
            let verdict = self.pool.as_ref().map_or_else(|| trial.run(), |pool| pool.run(&trial));
            let result = if verdict.outcome.is_ok() { Ok(()) } else { Err(Failed::from(failure(&verdict))) };
            let written = self.file.as_ref().map_or(Ok(()), |file| file.write(&Record::Verdict(&verdict)));
            self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
            written.map_err(|error| Failed::from(format!("results.jsonl: {error}")))?;
            result
        })
        .with_kind(kind)
    }
}

/// A trial for listing only.
#[must_use]
pub fn listed(trial: &Trial) -> libtest_mimic::Trial {
    libtest_mimic::Trial::test(trial.name.clone(), || Ok(()))
}
