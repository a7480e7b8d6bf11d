//! `cast`, in integers and by instruction.

use super::{BITS, CVT, OnDevice, cvt, random};
use crate::device::ComputeCapability;
use crate::module::{SM_100, Source, Unit, constant};
use crate::plan::{Elementwise, Step, View};
use plumbline_reference::format::{ALL, Format, Policy};
use plumbline_reference::ops::Cast;

const SOURCE: Source = Source { name: "cast", text: include_str!("../../kernels/cast.cu") };

fn unit(from: Format, to: Format) -> Unit {
    Unit::new(SOURCE, vec![("FROM", constant(from)), ("TO", constant(to))])
}

fn unit_of_instruction(from: Format, to: Format, instruction: &cvt::Instruction) -> Unit {
    let mut unit = unit(from, to);
    unit.defines.extend(instruction.defines());
    Unit { since: instruction.since, ..unit }
}

impl OnDevice for Cast {
    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        let instruction = cvt::instruction(self.from, self.to, self.policy(), arch);
        [BITS].into_iter().chain(instruction.map(|_| CVT)).collect()
    }

    fn unit(&self, variant: &str) -> Unit {
        match cvt::instruction(self.from, self.to, self.policy(), SM_100) {
            Some(instruction) if variant == CVT => unit_of_instruction(self.from, self.to, &instruction),
            _ => unit(self.from, self.to),
        }
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Vec<Step> {
        let (x, y, policy) = (&inputs[0], &outputs[0], self.policy());
        if x.count() == 0 {
            return Vec::new();
        }
        let unit = self.unit(variant);
        // The instruction has its policy in it, and the other kernels the default one.
        if variant == CVT || policy == Policy::default() {
            return vec![Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: true }.step([])];
        }
        let random = random(self.rounding, inputs);
        let entries = ["wide_any", "single_any"];
        vec![Elementwise { unit, x, y, entries, unrolled: true }.step([random.into(), policy.into()])]
    }

    fn units() -> Vec<Unit> {
        let pairs = ALL.into_iter().flat_map(|from| ALL.map(|to| unit(from, to)));
        let instructions = cvt::table();
        let by_instruction = instructions.iter().map(|(from, to, _, it)| unit_of_instruction(*from, *to, it));
        pairs.chain(by_instruction).collect()
    }
}
