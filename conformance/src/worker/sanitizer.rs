//! NVIDIA's compute-sanitizer around a worker: it watches every access of a kernel to memory.
//! A worker under it judges one trial, so that what it reports belongs to that trial.

use super::IsolationError;
use crate::verdict::{Outcome, Verdict};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tool {
    /// Accesses outside allocations, and misaligned ones
    Memcheck,
    /// Races in shared memory
    Racecheck,
    /// Wrong use of barriers
    Synccheck,
}

impl Tool {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Synccheck => "synccheck",
        }
    }
}

/// What the sanitizer exits with where it found something.
const FOUND: i32 = 86;
/// Lines of its report that a verdict keeps.
const LINES: usize = 24;

/// The sanitizer on this machine.
#[derive(Clone, Debug)]
pub(super) struct Sanitizer {
    program: PathBuf,
    tool: Tool,
}

impl Sanitizer {
    /// On the path, or where the CUDA toolkit puts it.
    pub(super) fn find(tool: Tool) -> Result<Self, IsolationError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let toolkit = env::var_os("CUDA_HOME").map_or_else(|| "/usr/local/cuda".into(), PathBuf::from);
        let folders = env::split_paths(&path).chain([toolkit.join("bin")]);
        let found = folders.map(|folder| folder.join("compute-sanitizer")).find(|file| file.is_file());
        found.map(|program| Self { program, tool }).ok_or(IsolationError::NoSanitizer)
    }

    /// The command under the sanitizer, which writes its report to a file of its own.
    pub(super) fn wrap(&self, command: &Command) -> (Command, PathBuf) {
        static UNIQUE: AtomicU32 = AtomicU32::new(0);
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let report = env::temp_dir().join(format!("plumbline-sanitizer-{}-{unique}", std::process::id()));
        let mut wrapped = Command::new(&self.program);
        wrapped.args(["--tool", self.tool.name(), "--error-exitcode"]).arg(FOUND.to_string());
        if self.tool == Tool::Memcheck {
            // A call that asks for what is not there and is told so is no fault.
            wrapped.args(["--report-api-errors", "no"]);
        }
        wrapped.arg("--log-file").arg(&report);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        (wrapped, report)
    }

    /// A verdict together with what the sanitizer found until its process ended.
    pub(super) fn judge(&self, mut verdict: Verdict, end: Option<ExitStatus>, report: &Path) -> Verdict {
        let text = std::fs::read_to_string(report).unwrap_or_default();
        let _ = std::fs::remove_file(report);
        verdict.replay_needs(&format!("--sanitize={}", self.tool.name()));
        let code = end.and_then(|status| status.code());
        if code == Some(0) {
            return verdict;
        }
        let lines = text.lines().map(|line| line.trim_start_matches('=').trim());
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).take(LINES).collect();
        if !lines.is_empty() {
            verdict.stderr = Some(lines.join("\n"));
        }
        // What the trial itself says comes first.
        if verdict.outcome.is_ok() {
            let what = match (code, end) {
                // The first line is the sanitizer's name.
                (Some(FOUND), _) => lines.get(1).copied().unwrap_or("errors without a report").to_owned(),
                (Some(code), _) => format!("ended with exit code {code}"),
                (None, Some(_)) => "was ended by a signal".to_owned(),
                (None, None) => "did not end".to_owned(),
            };
            verdict.outcome = Outcome::Fail;
            verdict.message = Some(format!("compute-sanitizer {}: {what}", self.tool.name()));
        }
        verdict
    }
}

/// For [`Sanitizer::wrap`]: the option that makes a worker's allocations exact.
pub(super) fn exact() -> OsString {
    "--exact-allocations".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_keeps_its_arguments_and_variables() {
        let sanitizer = Sanitizer { program: "/opt/compute-sanitizer".into(), tool: Tool::Racecheck };
        let mut command = Command::new("plumbline");
        command.args(["worker", "--seed=1"]).env("A", "1").env_remove("B");
        let (wrapped, report) = sanitizer.wrap(&command);
        let words: Vec<_> = wrapped.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words[..4], ["--tool", "racecheck", "--error-exitcode", "86"]);
        assert_eq!(words[5], report.to_string_lossy());
        assert_eq!(words[6..], ["plumbline", "worker", "--seed=1"]);
        let variables: Vec<_> = wrapped.get_envs().collect();
        assert_eq!(variables, command.get_envs().collect::<Vec<_>>());
        assert_ne!(sanitizer.wrap(&command).1, report);
    }

    #[cfg(unix)]
    #[test]
    fn what_the_sanitizer_finds_fails_a_trial_that_passed() {
        use std::os::unix::process::ExitStatusExt;
        let sanitizer = Sanitizer { program: "compute-sanitizer".into(), tool: Tool::Memcheck };
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report");
        let judge = |outcome, status: Option<i32>| {
            let text =
                "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n=========\n";
            std::fs::write(&report, text).unwrap();
            let verdict = Verdict { outcome, replay: "plumbline conform --exact x".to_owned(), ..verdict() };
            let judged = sanitizer.judge(verdict, status.map(ExitStatus::from_raw), &report);
            assert!(!report.exists());
            assert_eq!(judged.replay, "plumbline conform --exact x --sanitize=memcheck");
            judged
        };
        assert_eq!(judge(Outcome::Pass, Some(0)).outcome, Outcome::Pass);
        let found = judge(Outcome::Pass, Some(FOUND << 8));
        assert_eq!(found.outcome, Outcome::Fail);
        let message = "compute-sanitizer memcheck: Invalid __global__ read of size 4 bytes";
        assert_eq!(found.message.as_deref(), Some(message));
        assert_eq!(judge(Outcome::Pass, Some(1 << 8)).outcome, Outcome::Fail);
        assert_eq!(judge(Outcome::Pass, Some(9)).outcome, Outcome::Fail);
        assert_eq!(judge(Outcome::Pass, None).outcome, Outcome::Fail);
        let crashed = judge(Outcome::Crashed, Some(FOUND << 8));
        assert_eq!(crashed.outcome, Outcome::Crashed);
        assert!(crashed.stderr.unwrap().contains("Invalid __global__ read"));
    }

    fn verdict() -> Verdict {
        use crate::setup::{Selection, Subject};
        let cases =
            crate::load::load(&crate::setup::fixtures().unwrap().join("cases/format_info.yaml")).unwrap();
        let subject = Subject::foreign(plumbline_reference::Cpu);
        let registry =
            crate::registry::Registry::of(cases, vec![subject], Vec::new(), &Selection::default()).unwrap();
        registry.trials[0].run()
    }
}
