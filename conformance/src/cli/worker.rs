//! `plumbline worker`: runs trials for a parent process.

use crate::registry::Registry;
use crate::setup::Selection;
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
    serve(&Registry::new(&args.selection)?, answers)?;
    Ok(0)
}
