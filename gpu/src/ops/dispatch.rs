//! `dispatch`: whichever product the rows take. Variants are those of the product of many; few rows
//! have one kernel.

use super::{OnDevice, gemv};
use crate::device::ComputeCapability;
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::TensorType;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::{BatchedGemv, Dispatch, PrefillLinear, Product};

impl OnDevice for Dispatch {
    fn supports(&self, arch: ComputeCapability) -> Result<(), Unsupported> {
        OnDevice::supports(&self.of_few(), arch)?;
        OnDevice::supports(&self.of_many(), arch)
    }

    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        self.of_many().variants(arch)
    }

    fn is_kernel(&self, variant: &str) -> bool {
        self.of_many().is_kernel(variant)
    }

    fn unit(&self, variant: &str) -> Unit {
        self.of_many().unit(variant)
    }

    fn kernels(&self, variant: &str) -> Vec<Unit> {
        [BatchedGemv::kernels(&self.of_few(), gemv::WARP), self.of_many().kernels(variant)].concat()
    }

    fn scratch(&self, variant: &str, inputs: &[TensorType]) -> Result<usize, Unsupported> {
        match self.choice(inputs[1].shape[0]) {
            Product::Gemv => Ok(0),
            Product::Gemm => self.of_many().scratch(variant, inputs),
        }
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        self.plan_in(0, variant, inputs, outputs)
    }

    fn plan_in(
        &self,
        scratch: u64,
        variant: &str,
        inputs: &[View],
        outputs: &[View],
    ) -> Result<Vec<Step>, Unsupported> {
        match self.choice(inputs[1].ty.shape[0]) {
            Product::Gemv => BatchedGemv::plan(&self.of_few(), gemv::WARP, inputs, outputs),
            Product::Gemm => PrefillLinear::plan_in(&self.of_many(), scratch, variant, inputs, outputs),
        }
    }

    /// Those of the products.
    fn units() -> Vec<Unit> {
        Vec::new()
    }
}
