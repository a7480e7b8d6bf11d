//! `scaled_cast`.

use super::{BITS, OnDevice, random, scales};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Elementwise, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, F64};
use plumbline_reference::ops::ScaledCast;

const SOURCE: Source = Source { name: "scaled_cast", text: include_str!("../../kernels/scaled_cast.cu") };

impl OnDevice for ScaledCast {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::between(SOURCE, self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, s, y) = (&inputs[0], &inputs[1], &outputs[0]);
        if x.count() == 0 {
            return Ok(Vec::new());
        }
        let [extent, count] = scales(x, s);
        let arguments: [Argument; 6] = [
            s.address.into(),
            extent.into(),
            count.into(),
            (self.scale_op as u8).into(),
            random(self.rounding, inputs).into(),
            self.policy().into(),
        ];
        let unit = self.unit(variant);
        Ok(vec![Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: false }.step(arguments)])
    }

    fn units() -> Vec<Unit> {
        let sources = ALL.into_iter().filter(|from| *from != F64);
        sources.flat_map(|from| ALL.map(|to| Unit::between(SOURCE, from, to))).collect()
    }
}
