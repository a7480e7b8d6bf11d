//! `gemm`: by a kernel that follows an order of accumulation, and by libraries, where the sum
//! may be made in any.

mod libraries;
mod tiled;

pub(super) use libraries::position;
pub(super) use tiled::TILED;

use super::OnDevice;
use crate::device::ComputeCapability;
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Gemm;

impl OnDevice for Gemm {
    fn supports(&self, arch: ComputeCapability) -> Result<(), Unsupported> {
        match self.accumulate {
            Some(_) => tiled::supports(self),
            None => libraries::variants(self, arch).map(drop),
        }
    }

    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        match self.accumulate {
            Some(_) => vec![tiled::TILED],
            None => libraries::variants(self, arch).unwrap_or_default(),
        }
    }

    fn is_kernel(&self, variant: &str) -> bool {
        variant == tiled::TILED
    }

    fn unit(&self, _: &str) -> Unit {
        tiled::unit(self)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        match variant {
            tiled::TILED => tiled::plan(self, inputs, outputs),
            library => libraries::plan(self, library, inputs, outputs),
        }
    }

    fn units() -> Vec<Unit> {
        tiled::units()
    }
}
