//! Runs trials through libtest-mimic and collects their verdicts.

use crate::registry::{Registry, Trial};
use crate::report::{Coverage, Record, ResultsFile, failure};
use crate::verdict::Verdict;
use crate::worker::Pool;
use libtest_mimic::{Arguments, Failed};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Runs a registry's trials, in this process where there is no `pool`. `cuda` is what was found
/// of CUDA; `results` is where verdicts are recorded; `before` are those on record of trials that
/// are not run again.
pub fn run(
    registry: &Registry,
    pool: Option<Pool>,
    arguments: &Arguments,
    cuda: &str,
    results: Option<ResultsFile>,
    before: Vec<Verdict>,
) -> io::Result<Coverage> {
    let start = Instant::now();
    let file = results;
    let collected =
        Arc::new(Collected { pool, verdicts: Mutex::default(), unwritten: Mutex::default(), file });
    let trials = registry.pending().map(|trial| collected.clone().trial(trial.clone())).collect();
    // It panics when its reader is gone: `conform | head`.
    let conclusion = catch_unwind(AssertUnwindSafe(|| libtest_mimic::run(arguments, trials)))
        .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "progress could not be printed"))?;

    let mut verdicts =
        std::mem::take(&mut *collected.verdicts.lock().unwrap_or_else(PoisonError::into_inner));
    // A verdict that could not be recorded, or a trial that left none, is an error of the run.
    let unwritten = collected.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = unwritten {
        return Err(error);
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.outcome.is_ok()).count() as u64;
    let unaccounted = conclusion.num_failed.saturating_sub(failed);
    if unaccounted > 0 {
        return Err(io::Error::other(format!("{unaccounted} trials ended without a verdict")));
    }
    verdicts.extend(before);
    let coverage = Coverage::new(&verdicts, registry, cuda, start.elapsed());
    if let Some(file) = &collected.file {
        file.write(&Record::Summary(&coverage))?;
    }
    Ok(coverage)
}

struct Collected {
    pool: Option<Pool>,
    verdicts: Mutex<Vec<Verdict>>,
    /// Why the first verdict that could not be recorded was not.
    unwritten: Mutex<Option<io::Error>>,
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
            if let Err(error) = written {
                let failed = Failed::from(format!("results.jsonl: {error}"));
                self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return Err(failed);
            }
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
