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

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::DType;
    use plumbline_reference::accumulate::Accumulation;
    use plumbline_reference::block::BlockFormat;
    use plumbline_reference::format::F32;
    use plumbline_reference::ops::Route;

    #[test]
    fn the_product_is_chosen_by_rows() {
        for at in [Product::Gemv, Product::Gemm] {
            let plain = Dispatch::new(BlockFormat::Q4K, 4, at, Route::Dequantized);
            let op = Dispatch { gemm: Some(Accumulation::Fma), ..plain };
            for m in [1, 3, 4, 5, 17] {
                let types = [
                    TensorType::new(DType::U8, [9, 2, 144]),
                    TensorType::new(F32, [m, 512]),
                    TensorType::new(F32, [m, 9]),
                ];
                let [w, x, y] = types.map(|ty| View::contiguous(1 << 20, ty));
                let steps = op.plan_in(1 << 30, "tiled", &[w.clone(), x.clone()], &[y]).unwrap();
                let is_gemv =
                    matches!(&steps[..], [Step::Kernel(call)] if call.unit.source.name == "batched_gemv");
                assert_eq!(is_gemv, m < 4 || m == 4 && at == Product::Gemv, "{m} rows, {at:?}");
                let scratch = op.scratch("tiled", &[w.ty, x.ty]).unwrap();
                assert_eq!(scratch == 0, is_gemv, "{m} rows, {at:?}");
            }
        }
    }
}
