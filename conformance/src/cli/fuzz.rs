//! `plumbline fuzz`: searches for inputs on which a backend differs from the definition.

use crate::adapter::DemoFault;
use crate::fuzz::{Finding, Regression, Search, Target, Targets, record};
use crate::load::load;
use crate::registry::{REGRESSIONS, Registry};
use crate::report::failure;
use crate::setup::{BackendChoice, Selection, SetupError, Subject, fixtures, subjects};
use crate::source::Case;
use crate::waiver::{self, Waiver};
use anyhow::Context;
use plumbline_reference::ops::Op;
use std::collections::BTreeSet;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Options of `fuzz`.
#[derive(Debug, clap::Args)]
pub struct FuzzArgs {
    /// Fuzz only targets whose name, `backend/variant/operation`, contains this
    filter: Option<String>,
    /// How long to search, all targets together: 60s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// How many samples to try of each target, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Seed; mixed with each target's name
    #[arg(long, env = "PLUMBLINE_SEED", default_value_t = 0)]
    seed: u64,
    /// Folder for the cases that findings become; default: fixtures/regressions
    #[arg(long, value_name = "DIR")]
    regressions: Option<PathBuf>,
    /// Which backends to fuzz: those on the CPU, CUDA, or all that this machine has
    #[arg(long, env = "PLUMBLINE_BACKEND", value_enum, default_value = "auto")]
    backend: BackendChoice,
    /// Fuzz a deliberately wrong backend instead, to see what a finding looks like
    #[arg(long)]
    demo_fault: bool,
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
    let fixtures = fixtures()?;
    let subjects = subjects(&selection(args, None))?;
    let waivers = waiver::load(&fixtures.join("waivers.yaml"), jiff::Zoned::now().date())?;
    let cases = load(&fixtures.join("cases"))?;
    let mut targets = Targets::new(&subjects, |subject, variant| waived(&waivers, &cases, subject, variant));
    let filter = args.filter.as_deref().unwrap_or_default();
    targets.filter(filter);
    if targets.targets.is_empty() {
        let why = match targets.waived.is_empty() {
            true => format!("no target has a name containing `{filter}`; `fuzz --list` shows the names"),
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
    let start = Instant::now();
    let mut searches: Vec<_> = targets.targets.iter().map(|target| target.search(args.seed)).collect();
    let folder = args.regressions.clone().unwrap_or_else(|| fixtures.join(REGRESSIONS));
    let built_in = fixtures.join(REGRESSIONS);
    let mut found = 0;
    search(args, &mut searches, start, |target, finding| {
        found += 1;
        let regression = record(&folder, target, finding)
            .with_context(|| format!("a finding of {} was lost", target.name))?;
        super::print(&report(args, target, finding, &regression, &built_in)?)?;
        Ok(())
    })?;
    super::print(&summary(args, &searches, &targets, found, start.elapsed()))?;
    Ok(u8::from(found > 0))
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
        // Literal cases have no use for a seed.
        demo_fault: args.demo_fault.then_some(DemoFault::Cast465ToNan),
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

/// Gives each target its turns until it has a finding, its samples have been tried or
/// the time is over.
fn search<'a>(
    args: &FuzzArgs,
    searches: &mut [Search<'a>],
    start: Instant,
    mut found: impl FnMut(&'a Target, &Finding) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut open: BTreeSet<_> = (0..searches.len()).collect();
    let mut next_progress = PROGRESS;
    while !open.is_empty() {
        for i in open.clone() {
            if args.iterations.is_none() && start.elapsed() >= args.time {
                return Ok(());
            }
            let search = &mut searches[i];
            let left = args.iterations.map_or(u64::MAX, |iterations| iterations - search.done());
            let finding = search.run(left.min(TURN));
            if finding.is_some() || left <= TURN {
                open.remove(&i);
            }
            if let Some(finding) = finding {
                found(search.target(), &finding)?;
            }
            if start.elapsed() >= next_progress {
                next_progress = start.elapsed() + PROGRESS;
                eprintln!("fuzz: {}, {} targets left", rate(searches, start.elapsed()), open.len());
            }
        }
    }
    Ok(())
}

fn rate(searches: &[Search<'_>], took: Duration) -> String {
    let samples: u64 = searches.iter().map(Search::done).sum();
    let seconds = took.as_secs_f64();
    format!("{samples} samples in {seconds:.1} s ({:.0}/s)", samples as f64 / seconds.max(1e-9))
}

/// The failure as `conform` reports it, from the case that was written.
fn report(
    args: &FuzzArgs,
    target: &Target,
    finding: &Finding,
    regression: &Regression,
    built_in: &Path,
) -> anyhow::Result<String> {
    let mut case = regression.case.clone();
    let replays_by_itself = regression.file.parent().is_some_and(|folder| same_folder(folder, built_in));
    let cases = if replays_by_itself {
        case.name = format!("{REGRESSIONS}/{}", case.name);
        None
    } else {
        Some(regression.file.clone())
    };
    let subjects = vec![target.subject().clone()];
    let registry = Registry::of(vec![case], subjects, Vec::new(), &selection(args, cases))?;
    let trial = registry.trials.iter().find(|trial| trial.variant == target.variant());
    let verdict = trial.context("the finding became a case that its backend does not do")?.run();
    let mut text = failure(&verdict);
    if verdict.outcome.is_ok() {
        text += "note       it passed when it was run once more: the backend does not always give the same\n";
    }
    let how = if regression.known { "known" } else { "written" };
    text += &format!("{how:<10} {}\n", regression.file.display());
    text += &format!(
        "found      sample {}, {} elements shrunk to {}\n",
        finding.iteration,
        finding.original.elements(),
        finding.sample.elements()
    );
    Ok(text)
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
        text += &format!("  {:<36} {}\n", search.target().name, search.done());
    }
    let mut missing: Vec<_> = targets
        .waived
        .iter()
        .map(|(name, count)| format!("{name}: {count} operations with a waiver on this backend"))
        .collect();
    let untried = searches.iter().filter(|search| search.done() == 0).count();
    if untried > 0 {
        missing.push(format!("{untried} targets, for lack of time"));
    }
    let isolated = targets.isolated.iter();
    missing.extend(isolated.map(|name| format!("{name}: its trials need processes of their own")));
    let kinds = Targets::operations();
    let strange: Vec<_> = Op::NAMES.iter().copied().filter(|name| !kinds.contains(name)).collect();
    if !strange.is_empty() {
        missing.push(format!("no strategies for {}", strange.join(", ")));
    }
    if !missing.is_empty() {
        text += "not fuzzed:\n";
        missing.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text + &format!("result: {found} found")
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
    use super::parse_time;
    use std::time::Duration;

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
