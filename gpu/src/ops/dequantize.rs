//! `dequantize`.

use super::{BITS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, block_constant, constant};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{BF16, F16, F32};
use plumbline_reference::ops::{BlockConversion, Dequantize};

const SOURCE: Source = Source { name: "dequantize", text: include_str!("../../kernels/dequantize.cu") };

impl OnDevice for Dequantize {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        let once = self.to != F32 && self.conversion == BlockConversion::Direct;
        let defines = vec![
            ("BLOCK", block_constant(self.from)),
            ("TO", constant(self.to)),
            ("ONCE", u8::from(once).to_string()),
        ];
        Unit::new(SOURCE, defines)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (blocks, y) = (&inputs[0], &outputs[0]);
        if y.count() == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry: "dequantize",
            blocks: y.count().div_ceil(u64::from(THREADS)),
            threads: THREADS,
            shared: 0,
            arguments: [blocks.address, y.address, y.count()].map(Argument::from).to_vec(),
        })])
    }

    fn units() -> Vec<Unit> {
        let conversions = [F32, F16, BF16].into_iter().flat_map(|to| BlockConversion::ALL.map(|it| (to, it)));
        let all = BlockFormat::ALL.into_iter().flat_map(|from| {
            let of = move |(to, conversion)| Self { from, to, conversion }.unit(BITS);
            conversions.clone().map(of)
        });
        let mut units: Vec<Unit> = Vec::new();
        for unit in all {
            // Both conversions to f32 are the same.
            if units.last() != Some(&unit) {
                units.push(unit);
            }
        }
        units
    }
}
