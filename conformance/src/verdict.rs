//! What judging a trial gives. Reports, replay and exit codes are views of it.

use crate::case::Against;
use crate::coverage::Exercised;
use crate::judge::OutputVerdict;
use crate::memory::MemoryFault;
use plumbline_reference::ops::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every criterion was met.
    Pass,
    /// Some criterion was not met, or a waived trial passed.
    Fail,
    /// Met, but the case could not tell that from wrong results.
    Mistrusted,
    /// Failed, as a waiver says it must.
    Waived,
    /// The backend refused, having seen the inputs. Counts as not covered.
    Unsupported,
    /// The backend returned an error, panicked or ended its process.
    Crashed,
    /// There was no verdict in time.
    TimedOut,
    /// The case could not be built, or the harness itself failed.
    Error,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 8] = [
        Self::Pass,
        Self::Fail,
        Self::Mistrusted,
        Self::Waived,
        Self::Unsupported,
        Self::Crashed,
        Self::TimedOut,
        Self::Error,
    ];

    /// Whether a run with this outcome can still be green.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Pass | Self::Waived | Self::Unsupported)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "passed",
            Self::Fail => "failed",
            Self::Mistrusted => "mistrusted",
            Self::Waived => "waived",
            Self::Unsupported => "unsupported",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed out",
            Self::Error => "errors",
        })
    }
}

/// One trial, judged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Name of the trial: `backend/variant/case`.
    pub trial: String,
    /// Name of the case.
    pub case: String,
    /// Where the case stands: `fixtures/cases/cast.yaml:12`.
    pub origin: String,
    /// What the case is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The operation and its parameters; left out of a sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
    /// Of a sequence: the operations of its calls, each once, in the order in which they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<Op>,
    /// Who computed the right outputs; left out where the case holds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oracle: Option<Against>,
    /// The inputs do not fit, and an error is right: there is nothing to compare.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refusal: bool,
    /// Name of the backend.
    pub backend: String,
    /// Its variant.
    pub variant: String,
    /// Name of its device, with its number where the run has several.
    pub device: String,
    /// The run's seed.
    pub seed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// One per output.
    pub outputs: Vec<OutputVerdict>,
    /// Broken memory contracts.
    pub memory: Vec<MemoryFault>,
    /// The error, panic, or why a pass is a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The end of what its process wrote to standard error, where it ended or was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Reason and link of the waiver that covers the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<String>,
    /// How the backend says that it made the call: a library's algorithm, for one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub how: BTreeMap<String, String>,
    /// What the call exercises; left out of sequences and refusals, and where it was not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exercised: Option<Exercised>,
    /// Elements judged, over all outputs.
    pub elements: usize,
    /// Time to build, run and judge, in milliseconds.
    pub millis: u64,
    /// The command that runs this trial alone.
    pub replay: String,
}

/// What counts call sequences, beside the names of operations.
pub(crate) const SEQUENCE: &str = "sequence";

impl Verdict {
    /// The operation's name, or `sequence`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.op.as_ref().map_or(SEQUENCE, Op::name)
    }

    /// Adds an option to the command that replays it, where there is one.
    pub(crate) fn replay_needs(&mut self, option: &str) {
        if !self.replay.is_empty() {
            self.replay += &format!(" {option}");
        }
    }
}
