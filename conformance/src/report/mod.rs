//! Views of verdicts: text for people, JSON Lines for programs.

mod coverage;
mod jsonl;
mod text;

pub use coverage::Coverage;
pub use jsonl::{Record, ResultsFile, ResumeError, Run, SCHEMA};
pub use text::{brief, failed_output, failure};
