//! `plumbline worker`: runs trials for a parent process.

use crate::registry::Registry;
use crate::setup::{Selection, also_fuzzed, subjects};
use crate::worker::{Answers, serve};

/// Options of `worker`.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    selection: Selection,
    /// Make calls that are sent whole, and no trials: cases need not be read
    #[arg(long)]
    calls: bool,
}

/// Answers until the input ends; the exit code.
pub(super) fn run(args: &WorkerArgs) -> anyhow::Result<u8> {
    // Before anything else: what a library prints when it is loaded is no answer.
    let answers = Answers::take()?;
    let registry = if args.calls {
        let mut subjects = subjects(&args.selection)?;
        subjects.extend(also_fuzzed(&args.selection));
        Registry::without_trials(subjects)
    } else {
        Registry::new(&args.selection)?
    };
    serve(&registry, answers)?;
    Ok(0)
}
