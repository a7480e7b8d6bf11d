//! `batched_gemv`: a warp for each row and vector.

use super::OnDevice;
use super::gemv::{WARP, supports, unit, units, warp};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::BatchedGemv;

const SOURCE: Source = Source { name: "batched_gemv", text: include_str!("../../kernels/batched_gemv.cu") };

impl OnDevice for BatchedGemv {
    fn supports(&self, _: ComputeCapability) -> Result<(), Unsupported> {
        supports(&self.of_row())
    }

    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![WARP]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(SOURCE, &self.of_row())
    }

    fn plan(&self, _: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let vectors = outputs[0].ty.shape[0] as u64;
        Ok(warp(SOURCE, &self.of_row(), vectors, inputs, &outputs[0]))
    }

    fn units() -> Vec<Unit> {
        units(SOURCE)
    }
}
