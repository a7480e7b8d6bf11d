//! Trials in processes of their own, so that a backend that crashes, hangs, ends its
//! process or makes its device unusable costs one trial and no other.
//!
//! # The protocol, version 1
//!
//! `plumbline worker` takes the options that select trials, as `conform` does, and
//! `--device N`; with `--calls` it has no trials, and takes calls alone. It speaks JSON, one object a line. First it says what it is:
//!
//! ```json
//! {"hello": {"protocol": 1, "version": "0.1.0", "backends": {"cpu": {"name": "x86_64 CPU", "properties": {"threads": "8"}}}}}
//! ```
//!
//! Then, for every line on its standard input that names a trial,
//!
//! ```json
//! {"run": "cpu/parallel/cast/nan_code"}
//! ```
//!
//! it runs that trial and answers with its verdict, the object that `results.jsonl` has
//! for it, not yet compared with waivers:
//!
//! ```json
//! {"verdict": {"trial": "cpu/parallel/cast/nan_code", "outcome": "pass"}, "retire": true}
//! ```
//!
//! A call that is no trial of its own, such as those that fuzzing makes up, is sent whole: a name for
//! it, and a case as a file has it, without a matrix and with its inputs as bits. It is answered likewise:
//!
//! ```json
//! {"call": {"trial": "cpu/parallel/cast", "backend": "cpu", "variant": "parallel", "case": {"name": "cast",
//!   "op": {"cast": {"from": "f32", "to": "e4m3fn"}},
//!   "inputs": [{"dtype": "f32", "shape": [1], "bits": ["0x43e88000"]}]}}}
//! ```
//!
//! A line `{"prepare": [NAMES]}` says which trials are to follow, so that kernels can be
//! compiled ahead; it has no answer, and names that are no trial's are passed over.
//!
//! - `retire` is left out where it is false. Where it is true, the process or its device
//!   can no longer be used, and there are to be no further requests.
//! - The end of its input ends the worker, once it has answered what it was asked. When
//!   its parent is gone, it ends at once, whatever a backend is doing.
//! - A line that is no request, or names no trial or backend, is an error: one line on standard
//!   error and exit code 2.
//! - What a backend prints goes to standard error. A parent should still pass over lines
//!   that are no answer: a worker that is built otherwise may let them through.
//! - A reader ignores fields that it does not know; [`PROTOCOL`] changes when the meaning
//!   of one does.

mod isolation;
mod pool;
mod process;
mod sanitizer;
mod serve;

pub use isolation::{Isolate, Isolation, IsolationError};
pub use pool::Pool;
pub use sanitizer::Tool;
pub use serve::{Answers, ServeError, serve};

use crate::case::CaseSpec;
use crate::registry::Registry;
use crate::verdict::Verdict;
use plumbline_reference::backend::Device;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;

/// A line to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Run the trial of that name.
    Run(String),
    /// Make a call that is no trial of the worker's.
    Call(Box<Call>),
    /// These trials will follow: make ready what they need. There is no answer.
    Prepare(Vec<String>),
}

/// A call that is sent whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The trial that its verdict names.
    pub trial: String,
    /// Name of the backend.
    pub backend: String,
    /// Its variant.
    pub variant: String,
    /// The operation, its inputs as bits, and the criterion.
    pub case: CaseSpec,
}

/// A line from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// The first.
    Hello {
        /// What the worker is.
        hello: Hello,
    },
    /// One for each request.
    Judged {
        /// The trial's verdict, before waivers.
        verdict: Box<Verdict>,
        /// The process must not be used again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retire: bool,
    },
}

/// What a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of Plumbline.
    pub version: String,
    /// The backends and what they run on.
    pub backends: BTreeMap<String, Device>,
}

impl Hello {
    fn new(registry: &Registry) -> Self {
        let backends = registry.subjects.iter().map(|subject| &subject.backend);
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backends: backends.map(|backend| (backend.name().to_owned(), backend.device())).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
