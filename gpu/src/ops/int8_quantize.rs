//! `int8_quantize`.

use super::{MOST_BLOCKS, OnDevice, WARPS};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::Int8Format;
use plumbline_reference::ops::Int8Quantize;

const SOURCE: Source = Source { name: "int8_quantize", text: include_str!("../../kernels/int8_quantize.cu") };

impl OnDevice for Int8Quantize {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![WARPS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::new(SOURCE, Vec::new())
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, y) = (&inputs[0], &outputs[0]);
        let blocks = y.count() / self.to.blocks().bytes() as u64;
        if blocks == 0 {
            return Ok(Vec::new());
        }
        let entry = match self.to {
            Int8Format::Q8_0 => "q8_0",
            Int8Format::Q8_1 => "q8_1",
            Int8Format::Q8K => "q8_k",
        };
        let first = [x.address, y.address, blocks].map(Argument::from);
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry,
            blocks: blocks.div_ceil(u64::from(THREADS / 32)).min(MOST_BLOCKS),
            threads: THREADS,
            shared: 0,
            arguments: first.into_iter().chain([(self.rounding() as u8).into()]).collect(),
        })])
    }

    fn units() -> Vec<Unit> {
        vec![Unit::new(SOURCE, Vec::new())]
    }
}
