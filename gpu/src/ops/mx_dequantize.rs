//! `mx_dequantize`.

use super::mx_quantize::{WIDE, unit};
use super::{BITS, MOST_BLOCKS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::mx::MxFormat;
use plumbline_reference::ops::MxDequantize;

const SOURCE: Source = Source { name: "mx_dequantize", text: include_str!("../../kernels/mx_dequantize.cu") };

impl OnDevice for MxDequantize {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(SOURCE, self.format, ("TO", self.to))
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (codes, scales, y) = (&inputs[0], &inputs[1], &outputs[0]);
        let count = y.count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let arguments: [Argument; 8] = [
            codes.address.into(),
            scales.address.into(),
            y.address.into(),
            count.into(),
            inputs.get(2).map_or(0, |tensor_scale| tensor_scale.address).into(),
            (self.order as u8).into(),
            (self.output as u8).into(),
            u8::from(self.packed).into(),
        ];
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry: "dequantize",
            blocks: count.div_ceil(THREADS.into()).min(MOST_BLOCKS),
            threads: THREADS,
            shared: 0,
            arguments: arguments.to_vec(),
        })])
    }

    fn units() -> Vec<Unit> {
        let all = MxFormat::ALL.into_iter().flat_map(|format| WIDE.map(|to| (format, to)));
        all.map(|(format, to)| unit(SOURCE, format, ("TO", to))).collect()
    }
}
