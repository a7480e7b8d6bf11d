//! Kernels that are wrong on purpose, to see that the harness says so and goes on.

use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::format::{E4M3FN, F32};
use plumbline_reference::ops::{Cast, Op};

const SOURCE: Source = Source { name: "defect", text: include_str!("../kernels/defect.cu") };

/// What is wrong with every cast from f32 to E4M3FN under the default policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Writes through a null pointer.
    IllegalAddress,
    /// Never ends.
    InfiniteLoop,
    /// Writes one element past the end.
    WritePastEnd,
    /// Changes an input.
    WriteInput,
    /// Leaves the last element out.
    Unwritten,
    /// Gives another result in every call.
    Nondeterministic,
    /// Asks for more memory than there is.
    OutOfMemory,
    /// Ends the process.
    Exit,
}

/// More memory than any device has.
pub(crate) const TOO_MUCH: usize = 1 << 46;

impl Defect {
    /// Whether it shows in an operation.
    pub(crate) fn affects(op: &Op) -> bool {
        *op == Op::from(Cast::new(F32, E4M3FN))
    }

    /// The kernel, where it is one.
    fn entry(self) -> Option<&'static str> {
        match self {
            Self::IllegalAddress => Some("illegal_address"),
            Self::InfiniteLoop => Some("infinite_loop"),
            Self::WritePastEnd => Some("write_past_end"),
            Self::WriteInput => Some("write_input"),
            Self::Unwritten => Some("unwritten"),
            Self::Nondeterministic => Some("nondeterministic"),
            Self::OutOfMemory | Self::Exit => None,
        }
    }

    /// The defective kernel in place of the right one.
    pub(crate) fn plan(self, x: &View, y: &View) -> Option<Vec<Step>> {
        let entry = self.entry()?;
        if x.count() == 0 {
            return Some(Vec::new());
        }
        let arguments = [x.address, y.address, x.count()].map(Argument::from).to_vec();
        Some(vec![Step::Kernel(Call {
            unit: unit(),
            entry,
            blocks: x.count().div_ceil(THREADS.into()),
            threads: THREADS,
            shared: 0,
            arguments,
        })])
    }
}

pub(crate) fn unit() -> Unit {
    Unit::new(SOURCE, Vec::new())
}
