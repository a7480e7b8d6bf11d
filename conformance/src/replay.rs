//! The command that runs one trial again.

use crate::case::Profile;
use crate::registry::Trial;
use crate::setup::Selection;
use std::path::PathBuf;

/// What of a run's options a replay repeats.
pub(crate) struct Replay {
    program: String,
    cases: Option<PathBuf>,
    seed: u64,
    demo_fault: bool,
}

impl Replay {
    pub(crate) fn new(selection: &Selection) -> Self {
        // Under `cargo test` the first argument is the test's executable, which takes no
        // such options; the project's own command always does.
        let program = std::env::var("PLUMBLINE_INVOKED_AS").ok().or_else(|| {
            let own = std::env::args_os().next()?.to_string_lossy().into_owned();
            let is_plumbline = std::path::Path::new(&own).file_stem()? == "plumbline";
            is_plumbline.then(|| quote(&own))
        });
        Self {
            program: program.unwrap_or_else(|| "cargo xtask".to_owned()),
            cases: selection.cases.clone(),
            seed: selection.seed,
            demo_fault: selection.demo_fault,
        }
    }

    pub(crate) fn command(&self, trial: &Trial) -> String {
        let mut command = format!("{} conform", self.program);
        if self.demo_fault {
            command += " --demo-fault";
        }
        if let Some(cases) = &self.cases {
            command += &format!(" --cases={}", quote(&cases.display().to_string()));
        }
        let profile = trial.case.spec.profile;
        if profile != Profile::Quick {
            command += &format!(" --profile {profile}");
        }
        if self.seed != 0 {
            command += &format!(" --seed {}", self.seed);
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
