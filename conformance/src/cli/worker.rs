//! `plumbline worker`: runs trials for a parent process.

use crate::registry::Registry;
use crate::setup::{Selection, also_fuzzed};
use crate::worker::{Answers, serve};

/// Options of `worker`.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    selection: Selection,
}

/// Answers until the input ends; the exit code.
pub(super) fn run(args: &WorkerArgs) -> anyhow::Result<u8> {
    // Before anything else: what a library prints when it is loaded is no answer.
    let answers = Answers::take()?;
    let mut registry = Registry::new(&args.selection)?;
    registry.subjects.extend(also_fuzzed(&args.selection));
    serve(&registry, answers)?;
    Ok(0)
}
