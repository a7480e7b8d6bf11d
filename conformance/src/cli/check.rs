//! `plumbline check`: validates case files without running any backend on them.

use crate::case::Profile;
use crate::load::load;
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
        let cases = load(path)?;
        let mut operations = BTreeMap::<_, usize>::new();
        for case in &cases {
            // Classes may refuse a case only when they see it.
            if case.spec.profile == Profile::Quick {
                case.build(0)?;
            }
            *operations.entry(case.spec.op.name()).or_default() += 1;
        }
        let operations: Vec<_> = operations.iter().map(|(op, count)| format!("{op} {count}")).collect();
        text += &format!("{}: {} cases are valid: {}\n", path.display(), cases.len(), operations.join(", "));
    }
    Ok(text)
}
