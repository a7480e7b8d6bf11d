//! Running the executable.

use std::path::PathBuf;
use std::process::{Command, Output};

/// What a run of the executable gave.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `plumbline` with no option set from outside.
pub fn plumbline(args: &[&str]) -> Run {
    run(command().args(args))
}

/// The executable, not yet run, in a folder of its own.
pub fn command() -> Command {
    let mut command = clean(env!("CARGO_BIN_EXE_plumbline"));
    command.env("PLUMBLINE_OUT", results());
    command
}

/// A command that none of the variables set outside reaches.
pub fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PLUMBLINE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a command.
pub fn run(command: &mut Command) -> Run {
    let Output { status, stdout, stderr } = command.output().expect("the executable starts");
    Run {
        code: status.code().expect("it ends by itself"),
        stdout: String::from_utf8(stdout).expect("UTF-8"),
        stderr: String::from_utf8(stderr).expect("UTF-8"),
    }
}

/// A folder for results that no other test uses.
pub fn results() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("results").join(name)
}
