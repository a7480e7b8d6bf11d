//! The conformance cases as tests, under the names that `plumbline conform` uses.
//! Configured by the variables of its options: `PLUMBLINE_PROFILE=full cargo test`.

use clap::{CommandFactory, FromArgMatches, Parser};
use libtest_mimic::Arguments;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::report::{ResultsFile, Run};
use plumbline_conformance::runner;
use plumbline_conformance::setup::{Selection, start_threads};
use plumbline_conformance::worker::{Isolation, Pool};
use std::process::ExitCode;

/// The options, which here come from variables alone.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    isolation: Isolation,
    /// Where each process writes a results file of its own.
    #[arg(long, env = "PLUMBLINE_OUT")]
    out: Option<std::path::PathBuf>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            let causes =
                std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
            let causes: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("error: {}", causes.join(": "));
            ExitCode::from(2)
        }
    }
}

/// What is said of CUDA, which a process per test need not look for.
const CUDA: &str = "not probed";

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let arguments = Arguments::from_args();
    let matches = Options::command().try_get_matches_from(["conform"])?;
    let Options { selection, isolation, out } = Options::from_arg_matches(&matches)?;
    start_threads();
    let mut registry = Registry::new(&selection)?;
    if let Some(partition) = selection.partition {
        registry.partition(partition)?;
    }
    // A runner that starts one process per test names it; build that one only.
    if let (true, Some(name)) = (arguments.exact, &arguments.filter) {
        registry.trials.retain(|trial| trial.name == *name);
    }
    if arguments.filter.is_some() || !arguments.skip.is_empty() {
        registry.gate = None;
    }
    if arguments.list {
        libtest_mimic::run(&arguments, registry.trials.iter().map(runner::listed).collect()).exit();
    }
    let name = format!("results-{}.jsonl", std::process::id());
    let run = Run::new(&registry, &selection, Vec::new(), CUDA);
    let results = out.map(|out| ResultsFile::create(&out, &name, &run)).transpose()?;
    let pool = Pool::new(env!("CARGO_BIN_EXE_plumbline"), &registry, &selection, isolation)?;
    let coverage = runner::run(&registry, Some(pool), &arguments, CUDA, results, Vec::new())?;
    if arguments.filter.is_none() && coverage.compared_nothing() {
        return Err("nothing was compared: the trials have no elements".into());
    }
    if let Some(gate) = &coverage.gate {
        gate.missing.iter().for_each(|missing| eprintln!("not covered: {missing}"));
    }
    Ok(if coverage.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) })
}
