//! Deliberately wrong backends, to show what a failure looks like and that the harness
//! finds it and goes on.

mod cast;
mod cpu;

pub use cast::cast_465_to_nan;
use clap::ValueEnum;
use cpu::Faulty;
use plumbline_gpu::Defect;
use plumbline_reference::Backend;
use std::fmt;
use std::sync::Arc;

/// What a deliberately wrong backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum DemoFault {
    /// Casts f32 to E4M3FN with numbers between 464 and 496 becoming NaN
    #[value(name = "cast_465_to_nan")]
    Cast465ToNan,
    /// Aborts the process
    Abort,
    /// Ends the process with exit code 0
    Exit,
    /// Never returns
    Hang,
    /// Loses its device
    Lost,
    /// Panics
    Panic,
    /// Asks for more memory than there is
    OutOfMemory,
    /// Writes a byte past the end of an output
    WritePastEnd,
    /// Changes an input
    WriteInput,
    /// Leaves the last element of an output unwritten
    Unwritten,
    /// Gives another result at every call
    Nondeterministic,
    /// Gives a result that depends on the byte before an input
    ReadsOutside,
}

impl DemoFault {
    /// Whether the process in which it runs ends or never answers again.
    #[must_use]
    pub const fn ends_process(self) -> bool {
        matches!(self, Self::Abort | Self::Exit | Self::Hang)
    }

    /// Whether it spoils later calls in its process.
    #[must_use]
    pub const fn needs_isolation(self) -> bool {
        self.ends_process() || matches!(self, Self::Lost)
    }
}

impl DemoFault {
    /// The kernel with the same fault, if there is one.
    #[must_use]
    pub const fn on_cuda(self) -> Option<Defect> {
        match self {
            Self::Lost => Some(Defect::IllegalAddress),
            Self::Hang => Some(Defect::InfiniteLoop),
            Self::Exit => Some(Defect::Exit),
            Self::OutOfMemory => Some(Defect::OutOfMemory),
            Self::WritePastEnd => Some(Defect::WritePastEnd),
            Self::WriteInput => Some(Defect::WriteInput),
            Self::Unwritten => Some(Defect::Unwritten),
            Self::Nondeterministic => Some(Defect::Nondeterministic),
            Self::Cast465ToNan | Self::Abort | Self::Panic | Self::ReadsOutside => None,
        }
    }

    pub(crate) fn names_on_cuda() -> String {
        let there = Self::value_variants().iter().filter(|fault| fault.on_cuda().is_some());
        there.map(Self::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// As the command line writes it.
impl fmt::Display for DemoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A backend on the CPU that has the fault.
#[must_use]
pub fn demo_fault(fault: DemoFault) -> Arc<dyn Backend> {
    match fault {
        DemoFault::Cast465ToNan => Arc::new(cast_465_to_nan()),
        fault => Arc::new(Faulty::new(fault)),
    }
}
