//! `results.jsonl`: one JSON object a line. The first is the run, then one per trial
//! as it ends, the last is the summary. Fields are only ever added; [`SCHEMA`] changes
//! when the meaning of one does.
//!
//! A run that was ended leaves complete lines, perhaps but the last, and can be resumed: the trials
//! that have a verdict are not run again.

use super::Coverage;
use crate::case::Profile;
use crate::registry::Registry;
use crate::setup::Selection;
use crate::verdict::Verdict;
use plumbline_reference::backend::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Version of the format.
pub const SCHEMA: &str = "plumbline.results/1";

/// One line of `results.jsonl`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record<'a> {
    /// The first line.
    Run(#[schemars(with = "Run")] &'a Run),
    /// One trial.
    Verdict(#[schemars(with = "Verdict")] &'a Verdict),
    /// The last line.
    Summary(#[schemars(with = "Coverage")] &'a Coverage),
}

/// What is known of a run before its first trial.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of Plumbline.
    pub version: String,
    /// Size and time of the executable: another build may hold other backends.
    #[serde(default)]
    pub executable: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The run's seed.
    pub seed: u64,
    /// The profile.
    pub profile: Profile,
    /// The backends and what they run on.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub backends: BTreeMap<String, Device>,
    /// What was found of CUDA, in one line.
    pub cuda: String,
    /// Options that say which trials there are and how they are made, each with its value.
    #[serde(default)]
    pub options: Vec<String>,
    /// How many trials there are.
    #[serde(default)]
    pub trials: usize,
    /// Digest of the trials' names, cases and waivers.
    #[serde(default)]
    pub cases: String,
}

impl Run {
    /// A run of a registry's trials that begins now. `options` are those beside the selection's.
    #[must_use]
    pub fn new(registry: &Registry, selection: &Selection, options: Vec<String>, cuda: &str) -> Self {
        let backends = registry.subjects.iter().map(|subject| &subject.backend);
        let selected = selection.arguments(None).into_iter();
        let selected = selected.map(|option| option.to_string_lossy().into_owned());
        let partition = selection.partition.map(|partition| format!("--partition={partition}"));
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            executable: executable(),
            started: jiff::Timestamp::now().to_string(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            seed: selection.seed,
            profile: selection.profile,
            backends: backends.map(|backend| (backend.name().to_owned(), backend.device())).collect(),
            cuda: cuda.to_owned(),
            options: selected.chain(partition).chain(options).collect(),
            trials: registry.trials.len(),
            cases: format!("{:016x}", registry.digest()),
        }
    }

    /// Why verdicts of another run are not those of this one.
    fn differs(&self, other: &Self) -> Option<String> {
        let words = |options: &[String]| options.join(" ");
        let names = |run: &Self| {
            let backends = run.backends.iter();
            let backends = backends.map(|(name, device)| {
                let properties = device.properties.iter().map(|(name, value)| format!(", {name} {value}"));
                format!("{name} on {}{}", device.name, properties.collect::<String>())
            });
            backends.collect::<Vec<_>>().join("; ")
        };
        let compared = [
            ("format", other.schema.clone(), self.schema.clone()),
            ("version", other.version.clone(), self.version.clone()),
            ("executable", other.executable.clone(), self.executable.clone()),
            ("seed", other.seed.to_string(), self.seed.to_string()),
            ("profile", other.profile.to_string(), self.profile.to_string()),
            ("set of backends", names(other), names(self)),
            ("set of options", words(&other.options), words(&self.options)),
            ("number of trials", other.trials.to_string(), self.trials.to_string()),
            ("content of the cases or waivers", other.cases.clone(), self.cases.clone()),
        ];
        let (what, on_record, now) = compared.into_iter().find(|(_, on_record, now)| on_record != now)?;
        Some(format!("of a run with another {what}: `{on_record}` on record, `{now}` now"))
    }
}

/// What tells one build of the executable from another.
fn executable() -> String {
    let of = || {
        let metadata = fs::metadata(std::env::current_exe()?)?;
        Ok::<_, io::Error>((metadata.len(), jiff::Timestamp::try_from(metadata.modified()?)))
    };
    match of() {
        Ok((bytes, Ok(modified))) => format!("{bytes} bytes of {modified}"),
        _ => "unknown".to_owned(),
    }
}

/// A line of a record that is resumed.
#[derive(Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Line {
    Run(Box<Run>),
    Verdict(Box<Verdict>),
    Summary {},
}

/// Why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The file cannot be read or written.
    #[error("{}: {error}; choose another folder with --out", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line is none that a run writes there.
    #[error("{}:{line}: {why}; choose another folder with --out, or leave out --resume to write the file anew", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The record is of another run.
    #[error("{}: the record is {what}; repeat the command of its run, or leave out --resume to begin anew", file.display())]
    Other {
        /// The file.
        file: PathBuf,
        /// What differs.
        what: String,
    },
}

/// A `results.jsonl` that is being written. Every record has been handed to the system when `write`
/// returns, so that the end of the process loses none.
pub struct ResultsFile {
    file: Mutex<File>,
}

impl ResultsFile {
    /// Creates `name` in `folder`, and the folder, for a run.
    pub fn create(folder: &Path, name: &str, run: &Run) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = Self { file: Mutex::new(File::create(folder.join(name))?) };
        file.write(&Record::Run(run))?;
        Ok(file)
    }

    /// Continues the record of a run in `folder`, with the verdicts that it holds. Where there is no
    /// record, or not even its first line, it is created.
    pub fn resume(folder: &Path, name: &str, run: &Run) -> Result<(Self, Vec<Verdict>), ResumeError> {
        let file = folder.join(name);
        let failed = |error| ResumeError::Io { file: file.clone(), error };
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed)?,
        };
        let (mut kept, mut verdicts) = (0, Vec::new());
        // A last line without its end was cut off; its trial runs again.
        for (number, line) in
            (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")))
        {
            let wrong = |why: String| ResumeError::Line { file: file.clone(), line: number, why };
            let parsed = serde_json::from_slice(line)
                .map_err(|error| wrong(format!("no record of a run: {error}")))?;
            match parsed {
                Line::Run(before) if number == 1 => {
                    if let Some(what) = run.differs(&before) {
                        return Err(ResumeError::Other { file, what });
                    }
                }
                Line::Verdict(verdict) if number > 1 => verdicts.push(*verdict),
                // There will be another that covers all.
                Line::Summary {} if number > 1 => break,
                _ => return Err(wrong("not the record that a run has there".to_owned())),
            }
            kept += line.len();
        }
        if kept == 0 {
            return Ok((Self::create(folder, name, run).map_err(failed)?, verdicts));
        }
        let open = || {
            let mut opened = File::options().write(true).open(&file)?;
            opened.set_len(kept as u64)?;
            opened.seek(SeekFrom::End(0))?;
            Ok(opened)
        };
        Ok((Self { file: Mutex::new(open().map_err(failed)?) }, verdicts))
    }

    /// Appends a record.
    pub fn write(&self, record: &Record<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let before = file.stream_position()?;
        file.write_all(&line).inspect_err(|_| {
            // A part of a line would spoil the record. Where even this fails, the error tells of it.
            let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
        })
    }
}
