//! `plumbline check`: validates case files without running any backend on them.

use crate::case::Profile;
use crate::load::load_tests;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Case files or folders
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// One line per path: its cases by operation.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<String> {
    let mut text = String::new();
    for path in &args.paths {
        let tests = load_tests(path)?;
        let mut operations = BTreeMap::<_, usize>::new();
        for test in &tests {
            // Classes may refuse a case only when they see it.
            if test.profile() == Profile::Quick {
                test.rehearse(0)?;
            }
            *operations.entry(test.kind()).or_default() += 1;
        }
        let operations: Vec<_> = operations.iter().map(|(op, count)| format!("{op} {count}")).collect();
        text += &format!("{}: {} cases are valid: {}\n", path.display(), tests.len(), operations.join(", "));
    }
    Ok(text)
}
