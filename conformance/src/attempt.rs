//! One call of a backend, judged: what trials and fuzzing have in common.

use crate::judge::{Context, OutputVerdict, judge};
use crate::memory::{Execution, MemoryFault, execute};
use crate::setup::Subject;
use crate::source::Built;
use crate::verdict::Outcome;
use plumbline_reference::BackendError;
use plumbline_reference::ops::Op;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a call.
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    pub(crate) outputs: Vec<OutputVerdict>,
    pub(crate) memory: Vec<MemoryFault>,
    pub(crate) message: Option<String>,
    /// The device or process can no longer be used.
    pub(crate) lost: bool,
}

impl Attempt {
    fn without_outputs(outcome: Outcome, message: String) -> Self {
        Self { outcome, outputs: Vec::new(), memory: Vec::new(), message: Some(message), lost: false }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Runs a backend on the inputs and judges what it gives.
pub(crate) fn attempt(subject: &Subject, op: &Op, variant: &str, built: &Built) -> Attempt {
    // A foreign backend may panic; that is its verdict, not the end of the run.
    let run = AssertUnwindSafe(|| execute(&*subject.backend, op, variant, &built.inputs, subject.contract));
    let Execution { outputs, faults } = match catch_unwind(run) {
        Ok(Ok(execution)) => execution,
        Ok(Err(BackendError::Unsupported(why))) => {
            return Attempt::without_outputs(Outcome::Unsupported, why.to_string());
        }
        Ok(Err(error @ BackendError::Lost { .. })) => {
            let crashed = Attempt::without_outputs(Outcome::Crashed, error.to_string());
            return Attempt { lost: true, ..crashed };
        }
        Ok(Err(error)) => return Attempt::without_outputs(Outcome::Crashed, error.to_string()),
        Err(panic) => {
            let message = format!("panicked: {}", panic_text(&*panic));
            return Attempt::without_outputs(Outcome::Crashed, message);
        }
    };
    if outputs.len() != built.expected.len() {
        let message = format!("{} outputs, expected {}", outputs.len(), built.expected.len());
        return Attempt::without_outputs(Outcome::Fail, message);
    }
    let context = Context::new(op, &built.inputs, subject.nan);
    let pairs = built.expected.iter().zip(&outputs).enumerate();
    let outputs: Vec<_> = pairs.map(|(i, (expected, actual))| judge(context, i, expected, actual)).collect();
    let right = faults.is_empty() && outputs.iter().all(|output| output.ok);
    let outcome = if right { Outcome::Pass } else { Outcome::Fail };
    Attempt { outcome, outputs, memory: faults, message: None, lost: false }
}
