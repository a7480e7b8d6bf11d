//! `results.jsonl`: one JSON object a line. The first is the run, then one per trial
//! as it ends, the last is the summary. Fields are only ever added; [`SCHEMA`] changes
//! when the meaning of one does.

use super::Coverage;
use crate::verdict::Verdict;
use plumbline_reference::backend::Device;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Version of the format.
pub const SCHEMA: &str = "plumbline.results/1";

/// One line of `results.jsonl`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record<'a> {
    /// The first line.
    Run {
        /// [`SCHEMA`].
        schema: &'static str,
        /// Version of Plumbline.
        version: &'static str,
        /// Start of the run, RFC 3339.
        started: String,
        /// The command line.
        command: Vec<String>,
        /// The run's seed.
        seed: u64,
        /// The profile.
        profile: crate::case::Profile,
        /// The backends and what they run on.
        #[schemars(with = "BTreeMap<String, serde_json::Value>")]
        backends: BTreeMap<String, Device>,
        /// What was found of CUDA, in one line.
        cuda: String,
    },
    /// One trial.
    Verdict(#[schemars(with = "Verdict")] &'a Verdict),
    /// The last line.
    Summary(#[schemars(with = "Coverage")] &'a Coverage),
}

/// A `results.jsonl` that is being written. Every record is on disk when `write`
/// returns, so a crash loses none.
pub struct ResultsFile {
    file: Mutex<File>,
}

impl ResultsFile {
    /// Creates `name` in `folder`, and the folder.
    pub fn create(folder: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { file: Mutex::new(File::create(folder.join(name))?) })
    }

    /// Appends a record.
    pub fn write(&self, record: &Record<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}
