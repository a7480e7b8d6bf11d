//! A backend on the CPU that has one fault.

use super::DemoFault;
use crate::adapter::scalar::check_variant;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::ops::Op;
use plumbline_reference::{Cpu, Tensor};

const VARIANTS: [&str; 1] = ["faulty"];

type Run = fn(DemoFault, &Op, &[Tensor]) -> Result<Vec<Tensor>, BackendError>;

/// What a family of faults does, and which of them it is.
pub(super) struct Mistaken {
    pub(super) fault: DemoFault,
    /// The operations that the family is about.
    pub(super) supports: fn(&Op) -> Result<(), Unsupported>,
    /// The outputs with the fault.
    pub(super) run: Run,
}

impl Backend for Mistaken {
    fn name(&self) -> &str {
        "demo-fault"
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        (self.supports)(op)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        VARIANTS.map(str::to_owned).to_vec()
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.supports(op)?;
        check_variant(op, variant, &VARIANTS)?;
        (self.run)(self.fault, op, inputs)
    }
}
