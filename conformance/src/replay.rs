//! The command that runs one trial again.

use crate::adapter::DemoFault;
use crate::case::Profile;
use crate::memory::Contract;
use crate::registry::Trial;
use crate::setup::{BackendChoice, Selection};
use std::path::PathBuf;
use std::time::Duration;

/// What of a run's options a replay repeats.
pub(crate) struct Replay {
    program: String,
    cases: Option<PathBuf>,
    weights: Option<PathBuf>,
    seed: u64,
    device: Option<u32>,
    demo_fault: Option<DemoFault>,
    backend: BackendChoice,
    runs: u32,
    algorithms: u32,
}

/// What a replay needs beyond the options of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The device on which it was seen, where the run had several.
    pub(crate) device: Option<u32>,
    /// A worker process, since it ends its own.
    pub(crate) isolation: bool,
    /// The same end to waiting.
    pub(crate) timeout: Option<Duration>,
}

/// The variable that says what replay lines begin with.
pub(crate) const INVOKED_AS: &str = "PLUMBLINE_INVOKED_AS";

/// What replay lines of this process begin with.
pub(crate) fn invoked_as() -> String {
    // Under `cargo test` the first argument is the test's executable, which takes no
    // such options; the project's own command always does.
    let program = std::env::var(INVOKED_AS).ok().or_else(|| {
        let own = std::env::args_os().next()?.to_string_lossy().into_owned();
        let is_plumbline = std::path::Path::new(&own).file_stem()? == "plumbline";
        is_plumbline.then(|| quote(&own))
    });
    program.unwrap_or_else(|| "cargo xtask".to_owned())
}

impl Replay {
    pub(crate) fn new(selection: &Selection) -> Self {
        Self {
            program: invoked_as(),
            cases: selection.cases.clone(),
            weights: selection.weights.clone(),
            seed: selection.seed,
            device: selection.device,
            demo_fault: selection.demo_fault,
            backend: selection.backend,
            runs: selection.runs,
            algorithms: selection.algorithms,
        }
    }

    pub(crate) fn command(&self, trial: &Trial, needs: Needs) -> String {
        let mut command = format!("{} conform", self.program);
        match self.demo_fault {
            None => (),
            Some(DemoFault::Cast465ToNan) => command += " --demo-fault",
            Some(fault) => command += &format!(" --demo-fault={fault}"),
        }
        if self.demo_fault.is_some() && self.backend == BackendChoice::Cuda {
            command += " --backend cuda";
        }
        if self.runs != Contract::default().runs {
            command += &format!(" --runs {}", self.runs);
        }
        if self.algorithms > 0 {
            command += &format!(" --algorithms {}", self.algorithms);
        }
        if let Some(cases) = &self.cases {
            command += &format!(" --cases={}", quote(&cases.display().to_string()));
        }
        if let Some(weights) = &self.weights {
            command += &format!(" --weights={}", quote(&weights.display().to_string()));
        }
        let profile = trial.test.profile();
        if profile != Profile::Quick {
            command += &format!(" --profile {profile}");
        }
        if self.seed != 0 {
            command += &format!(" --seed {}", self.seed);
        }
        if let Some(device) = needs.device.or(self.device) {
            command += &format!(" --device {device}");
        }
        if needs.isolation && !trial.subject.isolated {
            command += " --isolate always";
        }
        if let Some(timeout) = needs.timeout {
            command += &format!(" --timeout {}", timeout.as_secs_f64());
        }
        command + &format!(" --exact {}", quote(&trial.name))
    }
}

/// For a POSIX shell.
fn quote(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_quoted_word_is_one_word_to_the_shell() {
        for text in ["plain/x_1", "two words", "it's", "$(rm)", "", "a;b"] {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quote(text))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
