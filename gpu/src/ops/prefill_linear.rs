//! `prefill_linear`: its steps one by one, or a kernel that decodes blocks inside of the product.

use super::{MOST_BLOCKS, OnDevice, program};
use crate::device::ComputeCapability;
use crate::module::{SM_80, SM_90, Source, Unit, block_constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{BlockConversion, PrefillLinear, Route};
use plumbline_reference::{DType, TensorType};

const SOURCE: Source =
    Source { name: "prefill_linear", text: include_str!("../../kernels/prefill_linear.cu") };

/// Fused multiply-adds on decoded blocks.
const FUSED: &str = "fused";
/// The tensor core on decoded tiles.
const F16_TILES: &str = "f16_tiles";

/// Rows and columns of a block's tile, and its threads.
const FUSED_TILE: ([u64; 2], u32) = ([64, 64], 256);
const F16_TILE: ([u64; 2], u32) = ([64, 32], 128);

impl OnDevice for PrefillLinear {
    fn supports(&self, arch: ComputeCapability) -> Result<(), Unsupported> {
        let orders = || match self.route {
            Route::Fused => vec![Accumulation::Fma],
            _ => chain(arch).into_iter().map(Accumulation::Chain).collect(),
        };
        match &self.accumulate {
            _ if !self.route.decodes_inside() => OnDevice::supports(&self.gemm(), arch),
            Some(order) if !orders().contains(order) => {
                let what = if self.route == Route::Fused { "fma" } else { "the architecture's tensor core" };
                Err(Unsupported(format!("has a kernel for this route in the order of {what} alone")))
            }
            _ => Ok(()),
        }
    }

    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        match self.route {
            Route::Fused => vec![FUSED],
            Route::F16Tiles => vec![F16_TILES],
            _ => self.gemm().variants(arch),
        }
    }

    fn is_kernel(&self, _: &str) -> bool {
        self.route.decodes_inside()
    }

    fn unit(&self, _: &str) -> Unit {
        let once = self.conversion == BlockConversion::Direct;
        unit(self.weights, self.route == Route::Fused, once)
    }

    fn kernels(&self, variant: &str) -> Vec<Unit> {
        if self.route.decodes_inside() {
            return vec![self.unit(variant)];
        }
        // The steps are the same for any extents.
        let (values, bytes) = (self.weights.values(), self.weights.bytes());
        let types = [TensorType::new(DType::U8, [1, 1, bytes]), TensorType::new(F32, [1, values])];
        let program = program::of(&self.clone().into(), &types);
        program.map_or_else(|_| Vec::new(), |program| program::kernels(&program, variant))
    }

    fn scratch(&self, _: &str, inputs: &[TensorType]) -> Result<usize, Unsupported> {
        if self.route.decodes_inside() {
            return Ok(0);
        }
        Ok(program::scratch(&program::of(&self.clone().into(), inputs)?))
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
        // Rows of padding are never looked at by kernels that decode inside.
        match self.route {
            Route::Fused => return Ok(kernel(self, FUSED, FUSED_TILE, inputs, &outputs[0])),
            Route::F16Tiles => return Ok(kernel(self, F16_TILES, F16_TILE, inputs, &outputs[0])),
            _ => (),
        }
        let types: Vec<_> = inputs.iter().map(|view| view.ty.clone()).collect();
        let program = program::of(&self.clone().into(), &types)?;
        program::plan(&program, variant, scratch, inputs, outputs)
    }

    fn units() -> Vec<Unit> {
        let tiles = BlockFormat::ALL
            .into_iter()
            .flat_map(|weights| [false, true].map(|once| unit(weights, false, once)));
        tiles.chain([unit(BlockFormat::Q4K, true, true)]).collect()
    }
}

/// What the tensor core of an architecture makes of a product of f16.
fn chain(arch: ComputeCapability) -> Option<Block> {
    match arch {
        SM_90 => Some(Block::HOPPER),
        // Ampere and Ada.
        arch if arch.major == SM_80.major => Some(Block::AMPERE),
        _ => None,
    }
}

/// One launch for the whole product.
fn kernel(
    op: &PrefillLinear,
    entry: &'static str,
    ([rows, columns], threads): ([u64; 2], u32),
    inputs: &[View],
    y: &View,
) -> Vec<Step> {
    if y.count() == 0 {
        return Vec::new();
    }
    let [m, n] = [y.ty.shape[0], y.ty.shape[1]].map(|extent| extent as u64);
    let k = inputs[1].ty.shape[1] as u64;
    vec![Step::Kernel(Call {
        unit: op.unit(entry),
        entry,
        blocks: (m.div_ceil(rows) * n.div_ceil(columns)).min(MOST_BLOCKS),
        threads,
        shared: 0,
        arguments: [inputs[0].address, inputs[1].address, y.address, m, n, k].map(Argument::from).to_vec(),
    })]
}

fn unit(weights: BlockFormat, fused: bool, once: bool) -> Unit {
    let flag = |is: bool| u8::from(is).to_string();
    Unit::new(
        SOURCE,
        vec![("WEIGHTS", block_constant(weights)), ("FUSED", flag(fused)), ("ONCE", flag(once))],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::SM_89;

    fn linear(route: Route, accumulate: Option<Accumulation>) -> PrefillLinear {
        PrefillLinear { accumulate, ..PrefillLinear::new(BlockFormat::Q4K, route) }
    }

    #[test]
    fn routes_have_the_variants_of_their_product_or_a_kernel_of_their_own() {
        let ways = |route, order| {
            let op = linear(route, order);
            OnDevice::supports(&op, SM_90).map(|()| op.variants(SM_90))
        };
        let fma = || Some(Accumulation::Fma);
        for route in [Route::Dequantized, Route::F16, Route::Fp8ViaF16, Route::Fp8] {
            assert_eq!(ways(route, fma()).unwrap(), ["tiled"], "{route:?}");
            let libraries = ways(route, None).unwrap();
            assert!(libraries.contains(&"cublaslt"), "{route:?}: {libraries:?}");
            // cuBLAS has no FP8.
            let is_fp8 = matches!(route, Route::Fp8ViaF16 | Route::Fp8);
            assert_eq!(libraries.contains(&"cublas"), !is_fp8, "{route:?}: {libraries:?}");
        }
        assert_eq!(ways(Route::Fused, None).unwrap(), [FUSED]);
        assert_eq!(ways(Route::Fused, fma()).unwrap(), [FUSED]);
        assert!(ways(Route::Fused, Some(Accumulation::Pairwise)).is_err());
        assert_eq!(ways(Route::F16Tiles, None).unwrap(), [F16_TILES]);
        assert!(ways(Route::F16Tiles, fma()).is_err());
    }

    #[test]
    fn a_chain_of_the_tensor_core_is_that_of_the_architecture() {
        for (block, on) in [(Block::HOPPER, [false, false, true]), (Block::AMPERE, [true, true, false])] {
            let op = linear(Route::F16Tiles, Some(Accumulation::Chain(block)));
            assert_eq!(
                [SM_80, SM_89, SM_90].map(|arch| OnDevice::supports(&op, arch).is_ok()),
                on,
                "{block:?}"
            );
        }
    }

    #[test]
    fn kernels_are_those_of_all_steps() {
        let names = |route, variant| -> Vec<_> {
            let units = linear(route, Some(Accumulation::Fma)).kernels(variant);
            units.into_iter().map(|unit| unit.source.name).collect()
        };
        assert_eq!(names(Route::Dequantized, "tiled"), ["dequantize", "gemm"]);
        assert_eq!(names(Route::F16, "cublas"), ["dequantize", "cast"]);
        let codes = ["absmax", "device_scaled_cast"];
        let both = [&["dequantize"][..], &codes, &codes, &["gemm", "scaled_decode"]].concat();
        assert_eq!(names(Route::Fp8ViaF16, "tiled"), both);
        assert_eq!(names(Route::Fused, FUSED), ["prefill_linear"]);
    }
}
