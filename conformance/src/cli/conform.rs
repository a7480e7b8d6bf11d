//! `plumbline conform`: the main job.

use crate::registry::Registry;
use crate::report::{ResultsFile, Run};
use crate::runner;
use crate::setup::Selection;
use crate::verdict::Verdict;
use crate::worker::{Isolation, Pool};
use anyhow::Context;
use libtest_mimic::{Arguments, FormatSetting};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Options of `conform`.
#[derive(Debug, clap::Args)]
pub struct ConformArgs {
    /// Run only trials whose name contains this
    filter: Option<String>,
    /// The filter is a whole name
    #[arg(long, requires = "filter")]
    exact: bool,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    isolation: Isolation,
    /// Trials at once; default: one per processor
    #[arg(long, env = "PLUMBLINE_JOBS", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Folder for results.jsonl
    #[arg(long, env = "PLUMBLINE_OUT", default_value = "plumbline-results", value_name = "DIR")]
    out: PathBuf,
    /// Run only the trials without a verdict in DIR, where the same command was ended; without a
    /// results.jsonl there, all
    #[arg(long)]
    resume: bool,
    /// Print the names of the trials and run none
    #[arg(long)]
    list: bool,
    /// How progress is printed
    #[arg(long, value_enum, default_value = "terse")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per trial
    Pretty,
    /// One character per trial
    Terse,
    /// One JSON object per trial, and one for the summary
    Json,
}

/// Runs the selected trials; the exit code.
pub(super) fn run(args: &ConformArgs) -> anyhow::Result<u8> {
    let mut registry = Registry::new(&args.selection)?;
    if let Some(filter) = &args.filter {
        registry.filter(filter, args.exact)?;
    }
    if let Some(partition) = args.selection.partition {
        registry.partition(partition)?;
    }
    if args.list {
        let names: Vec<_> = registry.trials.iter().map(|trial| format!("{}: test\n", trial.name)).collect();
        super::print(&names.concat())?;
        return Ok(0);
    }
    let arguments = Arguments {
        test_threads: args.jobs.map(usize::from),
        format: Some(match args.format {
            Format::Pretty => FormatSetting::Pretty,
            Format::Terse => FormatSetting::Terse,
            Format::Json => FormatSetting::Json,
        }),
        ..Arguments::default()
    };
    let program =
        std::env::current_exe().context("the executable's own path, to start workers from, is not known")?;
    let mut pool = Pool::new(program, &registry, &args.selection, args.isolation)?;
    let cuda = plumbline_gpu::device::probe().to_string();
    let unwritten = || format!("writing results to {}; choose another folder with --out", args.out.display());
    let (results, before) = record(args, &registry, &cuda, unwritten)?;
    if args.resume {
        registry.done = before.iter().map(|verdict| verdict.trial.clone()).collect();
        eprintln!(
            "resumed: {} of {} trials have a verdict on record",
            registry.done.len(),
            registry.trials.len()
        );
        pool.leave_out(&registry.done);
    }
    let ran = runner::run(&registry, Some(pool), &arguments, &cuda, Some(results), before);
    let coverage = ran.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => error.into(),
        _ => anyhow::Error::new(error).context(unwritten()),
    })?;
    let matrix = args.out.join("coverage.txt");
    std::fs::write(&matrix, coverage.matrix.to_string())
        .with_context(|| format!("writing {}; choose another folder with --out", matrix.display()))?;
    if args.format == Format::Json {
        super::print(&serde_json::to_string(&coverage)?)?;
    } else {
        let results = args.out.join(RESULTS);
        super::print(&format!("{coverage}\nwritten: {}, {}", results.display(), matrix.display()))?;
    }
    let vacuous = args.filter.is_none() && coverage.compared_nothing();
    anyhow::ensure!(!vacuous, "nothing was compared: the trials have no elements");
    Ok(coverage.exit_code())
}

const RESULTS: &str = "results.jsonl";

/// Where verdicts go, and those that are there already.
fn record(
    args: &ConformArgs,
    registry: &Registry,
    cuda: &str,
    unwritten: impl Fn() -> String,
) -> anyhow::Result<(ResultsFile, Vec<Verdict>)> {
    let exact = if args.exact { "--exact " } else { "" };
    let filter = args.filter.iter().map(|filter| format!("{exact}{filter}"));
    let options = args.isolation.arguments().into_iter().chain(filter).collect();
    let run = Run::new(registry, &args.selection, options, cuda);
    if args.resume {
        return Ok(ResultsFile::resume(&args.out, RESULTS, &run)?);
    }
    Ok((ResultsFile::create(&args.out, RESULTS, &run).with_context(unwritten)?, Vec::new()))
}
