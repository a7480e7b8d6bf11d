//! `gemm`.

use super::{OnDevice, tiled};
use crate::device::ComputeCapability;
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Gemm;

impl OnDevice for Gemm {
    fn supports(&self, _: ComputeCapability) -> Result<(), Unsupported> {
        tiled::supports(self)
    }

    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![tiled::TILED]
    }

    fn unit(&self, _: &str) -> Unit {
        tiled::unit(self)
    }

    fn plan(&self, _: &str, inputs: &[View], outputs: &[View]) -> Vec<Step> {
        tiled::plan(self, inputs, outputs)
    }

    fn units() -> Vec<Unit> {
        tiled::units()
    }
}
