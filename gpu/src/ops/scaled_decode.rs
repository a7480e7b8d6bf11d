//! `scaled_decode`.

use super::{BITS, OnDevice, scales};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Elementwise, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, F64};
use plumbline_reference::ops::ScaledDecode;

const SOURCE: Source = Source { name: "scaled_decode", text: include_str!("../../kernels/scaled_decode.cu") };

impl OnDevice for ScaledDecode {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::from(SOURCE, self.from)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, s, y) = (&inputs[0], &inputs[1], &outputs[0]);
        if x.count() == 0 {
            return Ok(Vec::new());
        }
        let [extent, count] = scales(x, s);
        let arguments = [s.address, extent, count].map(Into::into);
        let unit = self.unit(variant);
        Ok(vec![Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: false }.step(arguments)])
    }

    fn units() -> Vec<Unit> {
        ALL.into_iter().filter(|from| *from != F64).map(|from| Unit::from(SOURCE, from)).collect()
    }
}
