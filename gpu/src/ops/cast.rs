//! `cast`, in integers and by instruction.

use super::{BITS, CVT, OnDevice, cvt, random};
use crate::device::ComputeCapability;
use crate::module::{SM_100, Source, Unit};
use crate::plan::{Elementwise, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, Policy};
use plumbline_reference::ops::Cast;

const SOURCE: Source = Source { name: "cast", text: include_str!("../../kernels/cast.cu") };

impl OnDevice for Cast {
    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        let instruction = cvt::instruction(self.from, self.to, self.policy(), arch);
        [BITS].into_iter().chain(instruction.map(|_| CVT)).collect()
    }

    fn unit(&self, variant: &str) -> Unit {
        match cvt::instruction(self.from, self.to, self.policy(), SM_100) {
            Some(instruction) if variant == CVT => instruction.on(Unit::between(SOURCE, self.from, self.to)),
            _ => Unit::between(SOURCE, self.from, self.to),
        }
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, y, policy) = (&inputs[0], &outputs[0], self.policy());
        if x.count() == 0 {
            return Ok(Vec::new());
        }
        let unit = self.unit(variant);
        // The instruction has its policy in it, and the other kernels the default one.
        if variant == CVT || policy == Policy::default() {
            return Ok(vec![
                Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: true }.step([]),
            ]);
        }
        let random = random(self.rounding, inputs);
        let entries = ["wide_any", "single_any"];
        Ok(vec![Elementwise { unit, x, y, entries, unrolled: true }.step([random.into(), policy.into()])])
    }

    fn units() -> Vec<Unit> {
        let pairs = ALL.into_iter().flat_map(|from| ALL.map(|to| Unit::between(SOURCE, from, to)));
        let instructions = cvt::table();
        let by_instruction =
            instructions.iter().map(|(from, to, _, it)| it.on(Unit::between(SOURCE, *from, *to)));
        pairs.chain(by_instruction).collect()
    }
}
