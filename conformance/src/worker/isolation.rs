//! Which trials run in workers, and for how long they may.

use super::sanitizer::Tool;
use crate::setup::{Selection, Subject};
use clap::ValueEnum;
use std::time::Duration;

/// Which trials run in workers, and for how long they may.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Isolation {
    /// Which trials run in processes of their own
    #[arg(long, env = "PLUMBLINE_ISOLATE", value_enum, default_value = "auto")]
    pub isolate: Isolate,
    /// Seconds after which a trial in a process of its own is given up
    #[arg(long, env = "PLUMBLINE_TIMEOUT", value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Run each CUDA trial under NVIDIA's compute-sanitizer, in a process of its own
    #[arg(long, env = "PLUMBLINE_SANITIZE", value_enum, value_name = "TOOL", num_args = 0..=1,
          require_equals = true, default_missing_value = "memcheck")]
    pub sanitize: Option<Tool>,
}

/// Which trials run in workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Isolate {
    /// Those of backends that can take their process down
    Auto,
    /// All
    Always,
    /// None; a crash ends the run, and a hang is not noticed
    Never,
}

/// Why trials cannot run as asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsolationError {
    /// The harness itself would end.
    #[error(
        "`--demo-fault={0}` ends or blocks the process in which it runs; leave out `--isolate never` (or PLUMBLINE_ISOLATE)"
    )]
    EndsProcess(crate::adapter::DemoFault),
    /// The sanitizer was asked for.
    #[error(
        "no compute-sanitizer on the PATH, or in the folder `bin` of CUDA_HOME or /usr/local/cuda; install the CUDA toolkit, or leave out `--sanitize`"
    )]
    NoSanitizer,
    /// There is no trial for it.
    #[error("`--sanitize` watches CUDA trials, and there are none; choose `--backend cuda`, or leave it out")]
    NothingToSanitize,
}

impl Isolation {
    /// Whether a backend's trials run in workers.
    #[must_use]
    pub fn holds(self, subject: &Subject) -> bool {
        match self.isolate {
            _ if self.sanitizes(subject) => true,
            Isolate::Auto => subject.isolated,
            Isolate::Always => true,
            Isolate::Never => false,
        }
    }

    /// Whether a backend's trials run under the sanitizer.
    #[must_use]
    pub fn sanitizes(self, subject: &Subject) -> bool {
        self.sanitize.is_some() && !subject.devices.is_empty()
    }

    /// Each option with its value.
    #[must_use]
    pub fn arguments(self) -> Vec<String> {
        let isolate = self.isolate.to_possible_value();
        let isolate = isolate.map(|value| format!("--isolate={}", value.get_name()));
        let timeout = format!("--timeout={}", self.timeout.as_secs_f64());
        let sanitize = self.sanitize.map(|tool| format!("--sanitize={}", tool.name()));
        isolate.into_iter().chain([timeout]).chain(sanitize).collect()
    }

    pub(super) fn check(self, selection: &Selection) -> Result<(), IsolationError> {
        match selection.demo_fault {
            Some(fault) if fault.ends_process() && self.isolate == Isolate::Never => {
                Err(IsolationError::EndsProcess(fault))
            }
            _ => Ok(()),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    // A year is as good as for ever, and an `Instant` can hold it.
    let seconds = text.parse().ok().filter(|seconds| (0.001..=31_536_000.0).contains(seconds));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "write seconds, like 60 or 0.5, at most a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::seconds;
    use std::time::Duration;

    #[test]
    fn seconds_may_be_fractions() {
        for (text, millis) in [("60", 60_000), ("0.5", 500), ("1e2", 100_000)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "-1", "1m", "inf", "NaN", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
