//! `plumbline fuzz --seeds`: the same few samples of every target under each of many seeds. On
//! backends that are right, whatever is found is a false alarm.

use super::{Fuzzing, Report, not_fuzzed};
use crate::cli::print;
use crate::fuzz::Targets;
use crate::setup::Subject;
use anyhow::{Context, ensure};
use plumbline_reference::backend::Device;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// A line of the record.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Run {
        version: &'static str,
        command: Vec<String>,
        backends: BTreeMap<String, Device>,
        /// Names of what each seed tries.
        targets: Vec<String>,
    },
    Seed(OfSeed),
    Total {
        seeds: u64,
        #[serde(flatten)]
        tried: Tried,
        alarms: usize,
        seconds: f64,
    },
}

/// What was tried under a seed and what came of it.
#[derive(Serialize)]
struct OfSeed {
    seed: u64,
    #[serde(flatten)]
    tried: Tried,
    alarms: Vec<Alarm>,
    seconds: f64,
}

#[derive(Clone, Default, Serialize)]
struct Tried {
    /// Calls that were judged.
    samples: u64,
    /// The same by operation.
    operations: BTreeMap<&'static str, u64>,
    /// Samples that were not run, as their bound says nothing.
    unbounded: u64,
    /// The same by operation.
    unbounded_operations: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Alarm {
    target: String,
    /// The number of the sample.
    sample: u64,
    what: String,
    /// The command that runs the case that it became.
    replay: String,
    /// The command that comes upon it again.
    search: String,
}

impl Tried {
    fn add(&mut self, operation: &'static str, samples: u64, unbounded: u64) {
        self.samples += samples;
        *self.operations.entry(operation).or_default() += samples;
        self.unbounded += unbounded;
        if unbounded > 0 {
            *self.unbounded_operations.entry(operation).or_default() += unbounded;
        }
    }
}

/// Tries every seed; the exit code.
pub(super) fn run(
    fuzzing: &Fuzzing<'_>,
    targets: &Targets,
    seeds: Range<u64>,
    subjects: &[Subject],
) -> anyhow::Result<u8> {
    let start = Instant::now();
    let args = fuzzing.args;
    let seeds = match args.partition {
        None => seeds,
        Some(partition) => {
            let part = partition.of(seeds);
            ensure!(!part.is_empty(), "part {partition} holds none of the seeds; use fewer parts");
            part
        }
    };
    let file = args.record.as_ref().map(|path| {
        File::create(path)
            .with_context(|| format!("{} cannot be written; choose another --record", path.display()))
    });
    let output = Mutex::new(Output { file: file.transpose()?, total: Tried::default(), alarms: 0 });
    let lock = || output.lock().unwrap_or_else(PoisonError::into_inner);
    lock().write(&Record::Run {
        version: env!("CARGO_PKG_VERSION"),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        backends: subjects.iter().map(|it| (it.backend.name().to_owned(), it.backend.device())).collect(),
        targets: targets.targets.iter().map(|target| target.name.clone()).collect(),
    })?;
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || -> anyhow::Result<()> {
        loop {
            let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| {
                (seed < seeds.end).then(|| seed + 1)
            });
            let Some(seed) = taken.ok().filter(|_| !failed.load(Ordering::Relaxed)) else { return Ok(()) };
            let done = of_seed(fuzzing, targets, seed).and_then(|of_seed| lock().add(of_seed));
            if done.is_err() {
                failed.store(true, Ordering::Relaxed);
                return done;
            }
        }
    };
    let jobs = args.jobs.map(usize::from);
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let (count, seconds) = (seeds.end - seeds.start, start.elapsed().as_secs_f64());
    let mut output = lock();
    let (tried, alarms) = (output.total.clone(), output.alarms);
    let mut text = format!(
        "{count} seeds, {} samples in {seconds:.1} s, {} more without a bound\n",
        tried.samples, tried.unbounded
    );
    for (operation, samples) in &tried.operations {
        text += &format!("  {operation:<36} {samples}");
        if let Some(unbounded) = tried.unbounded_operations.get(operation) {
            text += &format!(", {unbounded} more without a bound");
        }
        text += "\n";
    }
    text += &not_fuzzed(targets, 0);
    output.write(&Record::Total { seeds: count, tried, alarms, seconds })?;
    print(&(text + &format!("result: {alarms} alarms")))?;
    Ok(u8::from(alarms > 0))
}

/// The samples of one seed.
fn of_seed(fuzzing: &Fuzzing<'_>, targets: &Targets, seed: u64) -> anyhow::Result<OfSeed> {
    let start = Instant::now();
    let (mut tried, mut alarms) = (Tried::default(), Vec::new());
    for target in &targets.targets {
        let mut search = target.search(seed);
        let finding = search.run(fuzzing.args.iterations.unwrap_or(1), |trial| fuzzing.pool.run(trial));
        tried.add(target.operation(), search.judged(), search.unbounded());
        let Some(finding) = finding else { continue };
        let report = fuzzing.report(target, seed, &finding)?;
        let search = fuzzing.command(seed, finding.iteration, target);
        print(&format!("{}seed       {seed}: {search}\n", report.text))?;
        let Report { replay, .. } = report;
        alarms.push(Alarm {
            target: target.name.clone(),
            sample: finding.iteration,
            what: finding.what,
            replay,
            search,
        });
    }
    Ok(OfSeed { seed, tried, alarms, seconds: start.elapsed().as_secs_f64() })
}

/// The record, and what it adds up to.
struct Output {
    file: Option<File>,
    total: Tried,
    alarms: usize,
}

impl Output {
    fn add(&mut self, of_seed: OfSeed) -> anyhow::Result<()> {
        self.alarms += of_seed.alarms.len();
        let Tried { operations, unbounded_operations, .. } = &of_seed.tried;
        for (operation, samples) in operations {
            self.total.add(operation, *samples, unbounded_operations.get(operation).copied().unwrap_or(0));
        }
        self.write(&Record::Seed(of_seed))
    }

    fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(record)? + "\n";
        file.write_all(line.as_bytes()).context("writing the record; choose another --record")
    }
}
