//! `plumbline fuzz`: searches for inputs on which a backend differs from the definition.

mod seeds;

use crate::adapter::DemoFault;
use crate::fuzz::{Finding, Search, Target, Targets, record};
use crate::load::load;
use crate::registry::{REGRESSIONS, Registry, Trial};
use crate::replay::invoked_as;
use crate::report::failure;
use crate::setup::{
    BackendChoice, Partition, Selection, SetupError, Subject, also_fuzzed, fixtures, subjects,
};
use crate::source::Case;
use crate::waiver::{self, Waiver};
use crate::worker::{Isolation, Pool};
use anyhow::{Context, ensure};
use plumbline_reference::ops::Op;
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Options of `fuzz`.
#[derive(Debug, clap::Args)]
pub struct FuzzArgs {
    /// Fuzz only targets whose name, `backend/variant/operation`, contains this
    filter: Option<String>,
    /// Fuzz only this variant of each backend
    #[arg(long)]
    variant: Option<String>,
    /// How long to search, all targets together: 60s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// How many samples to try of each target, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Seed, in place of `--seeds`; mixed with each operation's name
    #[arg(long, env = "PLUMBLINE_SEED", default_value_t = 0)]
    seed: u64,
    /// Try `--iterations` samples of each target under each of these seeds, and record the alarms
    #[arg(long, value_name = "FIRST..END", value_parser = parse_seeds, requires = "iterations")]
    seeds: Option<Range<u64>>,
    /// Run part K of N of `--seeds`
    #[arg(long, env = "PLUMBLINE_PARTITION", value_name = "K/N")]
    partition: Option<Partition>,
    /// How many of `--seeds` at once; default: one per processor
    #[arg(long, env = "PLUMBLINE_JOBS", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// File for what was tried under each seed and what alarms there were, as lines of JSON
    #[arg(long, value_name = "FILE", requires = "seeds")]
    record: Option<PathBuf>,
    /// Folder for the cases that findings become; default: fixtures/regressions
    #[arg(long, value_name = "DIR")]
    regressions: Option<PathBuf>,
    /// Which backends to fuzz: those on the CPU, CUDA, or all that this machine has
    #[arg(long, env = "PLUMBLINE_BACKEND", value_enum, default_value = "auto")]
    backend: BackendChoice,
    /// The GPU to use, by CUDA's number for it; default: all
    #[arg(long, env = "PLUMBLINE_DEVICE", value_name = "N")]
    device: Option<u32>,
    #[command(flatten)]
    isolation: Isolation,
    /// Fuzz a deliberately wrong backend instead, to see what a finding looks like
    #[arg(long, value_enum, value_name = "FAULT", num_args = 0..=1, require_equals = true,
          default_missing_value = "cast_465_to_nan")]
    demo_fault: Option<DemoFault>,
    /// Print the names of the targets and fuzz none
    #[arg(long)]
    list: bool,
}

/// Samples of one target before the next has its turn.
const TURN: u64 = 256;
/// Time between lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Fuzzes the selected targets; the exit code.
pub(super) fn run(args: &FuzzArgs) -> anyhow::Result<u8> {
    // In the environment they may be meant for `conform`.
    let is_given = |is: bool, variable: &str| is && std::env::var_os(variable).is_none();
    let of_seeds = [
        is_given(args.partition.is_some(), "PLUMBLINE_PARTITION"),
        is_given(args.jobs.is_some(), "PLUMBLINE_JOBS"),
    ];
    ensure!(
        args.seeds.is_some() || of_seeds == [false, false],
        "`--partition` and `--jobs` are about `--seeds`; give it, or leave them out"
    );
    let fixtures = fixtures()?;
    let selection = selection(args, None);
    let mut subjects = subjects(&selection)?;
    let with_trials = subjects.iter().map(|subject| subject.backend.name().to_owned()).collect();
    subjects.extend(also_fuzzed(&selection));
    let waivers = waiver::load(&fixtures.join("waivers.yaml"), jiff::Zoned::now().date())?;
    let cases = load(&fixtures.join("cases"))?;
    let mut targets = Targets::new(&subjects, |subject, variant| waived(&waivers, &cases, subject, variant));
    let filter = args.filter.as_deref().unwrap_or_default();
    targets.filter(filter, args.variant.as_deref());
    if targets.targets.is_empty() {
        let why = match targets.waived.is_empty() {
            true => {
                let of = args.variant.iter().map(|variant| format!(" of the variant `{variant}`"));
                let of = of.collect::<String>();
                format!("no target{of} has a name containing `{filter}`; `fuzz --list` shows the names")
            }
            false => format!("every operation of `{filter}` has a waiver; there is nothing else to fuzz"),
        };
        return Err(SetupError::NothingToRun(why).into());
    }
    if args.list {
        let names: Vec<_> = targets.targets.iter().map(|target| format!("{}\n", target.name)).collect();
        super::print(&names.concat())?;
        return Ok(0);
    }

    report_each_panic_once();
    let program =
        std::env::current_exe().context("the executable's own path, to start workers from, is not known")?;
    let registry = Registry::without_trials(subjects);
    let fuzzing = Fuzzing {
        args,
        pool: Pool::new(program, &registry, &selection, args.isolation)?,
        folder: args.regressions.clone().unwrap_or_else(|| fixtures.join(REGRESSIONS)),
        built_in: fixtures.join(REGRESSIONS),
        writing: Mutex::new(()),
        with_trials,
    };
    if let Some(seeds) = &args.seeds {
        return seeds::run(&fuzzing, &targets, seeds.clone(), &registry.subjects);
    }
    let start = Instant::now();
    let mut searches: Vec<_> = targets.targets.iter().map(|target| target.search(args.seed)).collect();
    let found = fuzzing.search(&mut searches, start)?;
    super::print(&summary(args, &searches, &targets, found, start.elapsed()))?;
    Ok(u8::from(found > 0))
}

/// What searches have in common.
struct Fuzzing<'a> {
    args: &'a FuzzArgs,
    pool: Pool,
    /// Where findings are written.
    folder: PathBuf,
    /// From where every run replays them.
    built_in: PathBuf,
    /// Held by who writes there.
    writing: Mutex<()>,
    /// Names of the backends that `conform` has.
    with_trials: BTreeSet<String>,
}

/// A backend that panics does so again at every step of shrinking.
fn report_each_panic_once() {
    let (usual, seen) = (panic::take_hook(), Mutex::new(BTreeSet::new()));
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string);
        if seen.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            usual(info);
        }
    }));
}

/// The options of a run of cases that stand for these.
fn selection(args: &FuzzArgs, cases: Option<PathBuf>) -> Selection {
    Selection {
        backend: args.backend,
        cases,
        device: args.device,
        // Literal cases have no use for a seed.
        demo_fault: args.demo_fault,
        ..Selection::default()
    }
}

/// Operations, with their parameters, of the cases that a waiver covers on a backend's
/// variant.
fn waived(waivers: &[Waiver], cases: &[Case], subject: &Subject, variant: &str) -> Vec<Op> {
    let (backend, device) = (subject.backend.name(), subject.backend.device());
    let covered = cases
        .iter()
        .filter(|case| waivers.iter().any(|waiver| waiver.covers(&case.name, backend, variant, &device)));
    covered.map(|case| case.spec.op.clone()).collect()
}

impl Fuzzing<'_> {
    /// Gives each target its turns until it has a finding, its samples have been tried or
    /// the time is over. How many there are findings of.
    fn search(&self, searches: &mut [Search<'_>], start: Instant) -> anyhow::Result<usize> {
        let args = self.args;
        let mut open: BTreeSet<_> = (0..searches.len()).collect();
        let (mut next_progress, mut found) = (PROGRESS, 0);
        while !open.is_empty() {
            for i in open.clone() {
                if args.iterations.is_none() && start.elapsed() >= args.time {
                    return Ok(found);
                }
                let search = &mut searches[i];
                let left = args.iterations.map_or(u64::MAX, |iterations| iterations - search.done());
                let finding = search.run(left.min(TURN), |trial| self.pool.run(trial));
                if finding.is_some() || left <= TURN {
                    open.remove(&i);
                }
                if let Some(finding) = finding {
                    found += 1;
                    super::print(&self.report(search.target(), args.seed, &finding)?.text)?;
                }
                if start.elapsed() >= next_progress {
                    next_progress = start.elapsed() + PROGRESS;
                    eprintln!("fuzz: {}, {} targets left", rate(searches, start.elapsed()), open.len());
                }
            }
        }
        Ok(found)
    }

    /// The command that comes upon a sample again.
    fn command(&self, seed: u64, sample: u64, target: &Target) -> String {
        let mut command =
            format!("{} fuzz --seeds {seed}..{} --iterations {}", invoked_as(), seed + 1, sample + 1);
        for option in selection(self.args, None).arguments(None) {
            let option = option.to_string_lossy();
            if ["--backend", "--device", "--demo-fault"].iter().any(|name| option.starts_with(name)) {
                command += &format!(" {option}");
            }
        }
        command + &format!(" {}", target.name)
    }

    /// Writes a finding as a case, and runs that: the failure as `conform` reports it.
    fn report(&self, target: &Target, seed: u64, finding: &Finding) -> anyhow::Result<Report> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let regression = record(&self.folder, target, finding)
            .with_context(|| format!("a finding of {} was lost", target.name))?;
        drop(writing);
        let mut case = regression.case.clone();
        let folder = regression.file.parent();
        let replays_by_itself = folder.is_some_and(|folder| same_folder(folder, &self.built_in));
        let cases = if replays_by_itself {
            case.name = format!("{REGRESSIONS}/{}", case.name);
            None
        } else {
            Some(regression.file.clone())
        };
        let trial = Trial::of(case, target.subject().clone(), target.variant());
        let mut verdict = self.pool.run(&trial.replayed_as(&selection(self.args, cases)));
        if !self.with_trials.contains(target.subject().backend.name()) || target.is_definition() {
            // No trial is of such a backend, nor of the definition, which would be judged by itself.
            verdict.replay = self.command(seed, finding.iteration, target);
        }
        let mut text = failure(&verdict);
        if verdict.outcome.is_ok() {
            text +=
                "note       it passed when it was run once more: the backend does not always give the same\n";
        }
        let how = if regression.known { "known" } else { "written" };
        text += &format!("{how:<10} {}\n", regression.file.display());
        text += &format!(
            "found      sample {}, {} elements shrunk to {}\n",
            finding.iteration,
            finding.original.elements(),
            finding.sample.elements()
        );
        Ok(Report { text, replay: verdict.replay })
    }
}

/// A finding, for people.
struct Report {
    text: String,
    /// The command that shows it again.
    replay: String,
}

fn rate(searches: &[Search<'_>], took: Duration) -> String {
    let samples: u64 = searches.iter().map(Search::judged).sum();
    let seconds = took.as_secs_f64();
    format!("{samples} samples in {seconds:.1} s ({:.0}/s)", samples as f64 / seconds.max(1e-9))
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn summary(
    args: &FuzzArgs,
    searches: &[Search<'_>],
    targets: &Targets,
    found: usize,
    took: Duration,
) -> String {
    let mut text = format!("fuzzed: {}, seed {}\n", rate(searches, took), args.seed);
    for search in searches {
        text += &format!("  {:<36} {}", search.target().name, search.judged());
        if search.unbounded() > 0 {
            text += &format!(", {} more without a bound", search.unbounded());
        }
        text += "\n";
    }
    let untried = searches.iter().filter(|search| search.done() == 0).count();
    text += &not_fuzzed(targets, untried);
    text + &format!("result: {found} found")
}

/// What is left out.
fn not_fuzzed(targets: &Targets, untried: usize) -> String {
    let mut missing: Vec<_> = targets
        .waived
        .iter()
        .map(|(name, count)| format!("{name}: {count} operations with a waiver on this backend"))
        .collect();
    if untried > 0 {
        missing.push(format!("{untried} targets, for lack of time"));
    }
    let kinds = Targets::operations();
    let without: Vec<_> = Op::NAMES.iter().copied().filter(|name| !kinds.contains(name)).collect();
    if !without.is_empty() {
        missing.push(format!("no strategies for {}", without.join(", ")));
    }
    let lines: String = missing.iter().map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("not fuzzed:\n{lines}") }
}

/// Seeds from a first one to before another: `0..1000`.
fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    ends.filter(|seeds| !seeds.is_empty()).ok_or_else(|| "write seeds like 0..1000".to_owned())
}

/// A number of seconds, minutes or hours: `60s`, `5m`, `1h`, `90`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    // A year is as good as for ever, and an `Instant` can hold it.
    let seconds = seconds.filter(|seconds| (1..=31_536_000).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "write a time like 60s, 5m or 1h, at most a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{parse_seeds, parse_time};
    use std::time::Duration;

    #[test]
    fn seeds() {
        assert_eq!(parse_seeds("3..5"), Ok(3..5));
        for text in ["", "3", "5..3", "3..3", "a..b", "-1..3", "0..=3"] {
            assert!(parse_seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, seconds) in [("60s", 60), ("5m", 300), ("1h", 3600), ("90", 90)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "s", "0s", "-1s", "1d", "1.5m", "99999999999999999999s", "18446744073709551615h", "é"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
