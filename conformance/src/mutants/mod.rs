//! Mutants: backends with exactly one seeded fault, by which the cases themselves are measured.
//!
//! A mutant is *killed* by a case that gives a verdict against it. One that no case of its operation
//! kills shows what the cases do not look at. The score is killed over total.
//!
//! - `table`: every mutant, a row per fault and operations.
//! - `meaning`: a right implementation of another operation or of other parameters.
//! - `encoding`: wrong roundings, which are wrong for few inputs.
//! - `inputs`: a right implementation that sees other inputs.
//! - `outputs`: right outputs, changed.
//! - `steps`: right outputs, and memory, streams or graphs that are not.
//! - [`equal`]: what looks like a fault and changes nothing, with the proof.
//! - [`run`]: which mutants the cases of a profile kill.
//! - [`report`]: the scores as text and as lines of JSON.

mod encoding;
pub mod equal;
mod inputs;
mod meaning;
mod outputs;
pub mod report;
pub mod run;
mod steps;
mod table;
#[cfg(test)]
mod tests;

pub use encoding::EncodingFault;
pub use inputs::InputFault;
pub use meaning::Meaning;
pub use outputs::OutputFault;
pub use steps::StepFault;
pub use table::all;

use crate::adapter::{DemoFault, demo_fault};
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::ops::Op;
use plumbline_reference::{Cpu, Path, Tensor};
use std::sync::Arc;

/// A backend with one fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutant {
    /// The operation whose cases must kill it, or `sequence`.
    pub operation: &'static str,
    /// What it does wrong, in a word: unique among the operation's.
    pub fault: String,
    /// How it is made.
    pub how: How,
}

/// How a mutant is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Not at all: it is the reference. No case may kill it.
    Right,
    /// It is a backend of [`demo_fault`](crate::adapter::demo_fault()).
    Demo(DemoFault),
    /// It takes the operation for another.
    Meaning(Meaning),
    /// It rounds wrongly.
    Encoding(EncodingFault),
    /// It sees other inputs.
    Inputs(InputFault),
    /// It changes right outputs.
    Outputs(OutputFault),
    /// It does something to memory, streams or graphs.
    Steps(StepFault),
}

impl How {
    /// The word for its kind.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Demo(_) => "backend",
            Self::Meaning(_) => "meaning",
            Self::Encoding(_) => "encoding",
            Self::Inputs(_) => "inputs",
            Self::Outputs(_) => "outputs",
            Self::Steps(_) => "steps",
        }
    }
}

impl Mutant {
    /// Its name: `cast/toward_zero`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.operation, self.fault)
    }

    /// The backend that it is.
    #[must_use]
    pub fn backend(&self) -> Arc<dyn Backend> {
        match self.how {
            How::Demo(fault) => demo_fault(fault),
            How::Steps(fault) => Arc::new(steps::Faulty::new(fault)),
            How::Right | How::Meaning(_) | How::Encoding(_) | How::Inputs(_) | How::Outputs(_) => {
                Arc::new(Mistaken(self.how))
            }
        }
    }

    /// Whether an error or a panic is what it does wrong. From any other mutant it says nothing.
    #[must_use]
    pub const fn may_crash(&self) -> bool {
        use DemoFault::{Lost, OutOfMemory, Panic};
        matches!(self.how, How::Demo(Lost | OutOfMemory | Panic))
    }
}

/// A backend that computes by `run` alone.
struct Mistaken(How);

const VARIANT: &str = "mutant";

impl Backend for Mistaken {
    fn name(&self) -> &str {
        VARIANT
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        Cpu.supports(op)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANT.to_owned()]
    }

    fn run(&self, op: &Op, _: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let right = op.evaluate(inputs, Path::fastest())?;
        Ok(wrong(self.0, op, inputs, &right)?.unwrap_or(right))
    }
}

/// What a mutant gives in place of what is right; `None` where that is the same.
pub(crate) fn wrong(
    how: How,
    op: &Op,
    inputs: &[Tensor],
    right: &[Tensor],
) -> Result<Option<Vec<Tensor>>, BackendError> {
    let outputs = match how {
        How::Right | How::Demo(_) | How::Steps(_) => return Ok(None),
        How::Meaning(meaning) => meaning.of(op).and_then(|op| like(&op, inputs, right)),
        How::Encoding(fault) => fault.of(op, inputs, right)?,
        How::Inputs(fault) => fault.of(inputs)?.and_then(|inputs| like(op, &inputs, right)),
        How::Outputs(fault) => fault.of(right)?,
    };
    Ok(outputs.filter(|outputs| !same(outputs, right)))
}

/// The outputs, where the operation takes the inputs and gives outputs of the same types: what it
/// refuses it does not compute wrongly.
fn like(op: &Op, inputs: &[Tensor], right: &[Tensor]) -> Option<Vec<Tensor>> {
    let outputs = op.evaluate(inputs, Path::fastest()).ok()?;
    let alike = outputs.len() == right.len() && outputs.iter().zip(right).all(|(a, b)| a.ty() == b.ty());
    alike.then_some(outputs)
}

/// Whether outputs are the same bit for bit.
pub(crate) fn same(outputs: &[Tensor], right: &[Tensor]) -> bool {
    outputs.len() == right.len()
        && outputs.iter().zip(right).all(|(a, b)| a.ty() == b.ty() && a.packed() == b.packed())
}
