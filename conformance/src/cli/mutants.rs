//! `plumbline mutants`: how many seeded faults the cases find.

use crate::case::Profile;
use crate::load::load_tests;
use crate::mutants::equal::{EQUALS, Equal};
use crate::mutants::report::Report;
use crate::mutants::{all, run};
use crate::setup::fixtures;
use anyhow::{Context, ensure};
use std::path::PathBuf;

/// Options of `mutants`.
#[derive(Debug, clap::Args)]
pub struct MutantsArgs {
    /// Run only mutants whose name contains this: an operation, or a fault
    filter: Option<String>,
    /// Which cases may kill them
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    /// A case file or folder of your own, in place of the built-in cases
    #[arg(long, value_name = "PATH")]
    cases: Option<PathBuf>,
    /// Seed of random inputs; mixed with each case's name
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder for mutants.jsonl
    #[arg(long, env = "PLUMBLINE_OUT", default_value = "plumbline-results", value_name = "DIR")]
    out: PathBuf,
    /// Print the names of the mutants and run none
    #[arg(long)]
    list: bool,
}

/// Runs the mutants; 1 where too few are killed.
pub(super) fn run(args: &MutantsArgs) -> anyhow::Result<u8> {
    let mut mutants = all();
    if let Some(filter) = &args.filter {
        mutants.retain(|mutant| mutant.name().contains(filter));
        ensure!(!mutants.is_empty(), "no mutant has a name containing `{filter}`; `--list` shows the names");
    }
    if args.list {
        let lines = mutants.iter().map(|mutant| format!("{} ({})\n", mutant.name(), mutant.how.kind()));
        super::print(&lines.collect::<String>())?;
        return Ok(0);
    }
    let tests = match &args.cases {
        Some(path) => load_tests(path)?,
        None => load_tests(&fixtures()?.join("cases"))?,
    };
    let proven = EQUALS.iter().map(Equal::prove).collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    let run = run::run(&mutants, &tests, args.profile, args.seed)?;
    let report = Report { run: &run, profile: args.profile, proven };
    report.write(&args.out, "mutants.jsonl").with_context(|| {
        format!("writing mutants.jsonl to {}; choose another folder with --out", args.out.display())
    })?;
    super::print(&format!("{report}\nwritten: {}", args.out.join("mutants.jsonl").display()))?;
    Ok(report.exit_code())
}
