//! `device_scaled_cast`.

use super::{BITS, OnDevice, random, scales};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Elementwise, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, F32, F64};
use plumbline_reference::ops::DeviceScaledCast;

const SOURCE: Source =
    Source { name: "device_scaled_cast", text: include_str!("../../kernels/device_scaled_cast.cu") };

impl OnDevice for DeviceScaledCast {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::between(SOURCE, self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, a, y, dequant) = (&inputs[0], &inputs[1], &outputs[0], &outputs[1]);
        let [extent, count] = scales(x, a);
        let [tiny, special] = [self.tiny as u8, self.special as u8].map(Argument::from);
        let mut steps = Vec::new();
        if x.count() > 0 {
            let arguments: [Argument; 8] = [
                a.address.into(),
                extent.into(),
                count.into(),
                (self.scale_op as u8).into(),
                tiny,
                special,
                random(self.rounding, inputs).into(),
                self.policy().into(),
            ];
            let unit = self.unit(variant);
            let entries = ["wide", "single"];
            steps.push(Elementwise { unit, x, y, entries, unrolled: false }.step(arguments));
        }
        // Without elements there may still be scales.
        if count > 0 {
            let first = [a.address, dequant.address, count].map(Argument::from);
            steps.push(Step::Kernel(Call {
                unit: self.unit(variant),
                entry: "dequant",
                blocks: count.div_ceil(THREADS.into()),
                threads: THREADS,
                shared: 0,
                arguments: first.into_iter().chain([tiny, special]).collect(),
            }));
        }
        Ok(steps)
    }

    fn units() -> Vec<Unit> {
        let targets = || ALL.into_iter().filter(|to| to.max_exponent() <= F32.max_exponent());
        let sources = ALL.into_iter().filter(|from| *from != F64);
        sources.flat_map(|from| targets().map(move |to| Unit::between(SOURCE, from, to))).collect()
    }
}
