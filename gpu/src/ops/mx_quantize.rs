//! `mx_quantize`.

use super::{BITS, MOST_BLOCKS, OnDevice, random};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::mx::MxFormat;
use plumbline_reference::format::{BF16, F16, F32, Format};
use plumbline_reference::ops::MxQuantize;

const SOURCE: Source = Source { name: "mx_quantize", text: include_str!("../../kernels/mx_quantize.cu") };

/// Formats of the numbers on the wide side of a block.
pub(super) const WIDE: [Format; 3] = [F32, F16, BF16];

/// The unit of a source for one format of blocks and one on their wide side.
pub(super) fn unit(source: Source, format: MxFormat, wide: (&'static str, Format)) -> Unit {
    let layout = format.layout();
    let defines = vec![
        (wide.0, constant(wide.1)),
        ("ELEMENT", constant(layout.element)),
        ("SCALE", constant(layout.scale)),
        ("BLOCK", layout.block.to_string()),
    ];
    Unit::new(source, defines)
}

impl OnDevice for MxQuantize {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(SOURCE, self.format, ("FROM", self.from))
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, codes, scales) = (&inputs[0], &outputs[0], &outputs[1]);
        let count = x.count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let tensor_scale = if self.format.layout().tensor_scale { inputs[1].address } else { 0 };
        let arguments: [Argument; 11] = [
            x.address.into(),
            codes.address.into(),
            scales.address.into(),
            count.into(),
            tensor_scale.into(),
            (self.scale_rule as u8).into(),
            (self.non_finite as u8).into(),
            (self.element_op as u8).into(),
            u8::from(self.packed).into(),
            random(self.rounding, inputs).into(),
            self.policy().into(),
        ];
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry: "quantize",
            blocks: count.div_ceil(THREADS.into()).min(MOST_BLOCKS),
            threads: THREADS,
            shared: 0,
            arguments: arguments.to_vec(),
        })])
    }

    fn units() -> Vec<Unit> {
        let all = MxFormat::ALL.into_iter().flat_map(|format| WIDE.map(|from| (format, from)));
        all.map(|(format, from)| unit(SOURCE, format, ("FROM", from))).collect()
    }
}
