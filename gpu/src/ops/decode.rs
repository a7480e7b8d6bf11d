//! `decode`, in integers and by instruction.

use super::{BITS, CVT, OnDevice, cvt};
use crate::device::ComputeCapability;
use crate::module::{SM_100, Source, Unit};
use crate::plan::{Elementwise, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, BF16, F16, F32, F64, Policy};
use plumbline_reference::ops::Decode;

const SOURCE: Source = Source { name: "decode", text: include_str!("../../kernels/decode.cu") };

impl OnDevice for Decode {
    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        let instruction = cvt::instruction(self.from, self.to, Policy::IEEE, arch);
        [BITS].into_iter().chain(instruction.map(|_| CVT)).collect()
    }

    fn unit(&self, variant: &str) -> Unit {
        match cvt::instruction(self.from, self.to, Policy::IEEE, SM_100) {
            Some(instruction) if variant == CVT => instruction.on(Unit::between(SOURCE, self.from, self.to)),
            _ => Unit::between(SOURCE, self.from, self.to),
        }
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, y) = (&inputs[0], &outputs[0]);
        if x.count() == 0 {
            return Ok(Vec::new());
        }
        let unit = self.unit(variant);
        Ok(vec![Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: true }.step([])])
    }

    fn units() -> Vec<Unit> {
        let pairs =
            ALL.into_iter().flat_map(|from| [F16, BF16, F32, F64].map(|to| Unit::between(SOURCE, from, to)));
        let is_decode = |row: &cvt::Row| row.2 == Policy::IEEE && [F16, BF16, F32, F64].contains(&row.1);
        let instructions = cvt::table().into_iter().filter(is_decode);
        let by_instruction = instructions.map(|(from, to, _, it)| it.on(Unit::between(SOURCE, from, to)));
        pairs.chain(by_instruction).collect()
    }
}
