//! `device_scaled_cast`.

use super::{BITS, OnDevice, random, scales};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Elementwise, Step, View};
use plumbline_reference::format::{ALL, F32, F64, Format};
use plumbline_reference::ops::DeviceScaledCast;

const SOURCE: Source =
    Source { name: "device_scaled_cast", text: include_str!("../../kernels/device_scaled_cast.cu") };

fn unit(from: Format, to: Format) -> Unit {
    Unit::new(SOURCE, vec![("FROM", constant(from)), ("TO", constant(to))])
}

impl OnDevice for DeviceScaledCast {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Vec<Step> {
        let (x, a, y, dequant) = (&inputs[0], &inputs[1], &outputs[0], &outputs[1]);
        // Without elements there may still be scales, and with neither nothing to do.
        if x.count() == 0 && a.count() == 0 {
            return Vec::new();
        }
        let [extent, count] = scales(x, a);
        let arguments: [Argument; 8] = [
            a.address.into(),
            dequant.address.into(),
            extent.into(),
            count.into(),
            (self.scale_op as u8).into(),
            (self.tiny as u8).into(),
            (self.special as u8).into(),
            random(self.rounding, inputs).into(),
        ];
        let arguments = arguments.into_iter().chain([self.policy().into()]);
        let unit = self.unit(variant);
        vec![Elementwise { unit, x, y, entries: ["wide", "single"], unrolled: false }.step(arguments)]
    }

    fn units() -> Vec<Unit> {
        let targets = || ALL.into_iter().filter(|to| to.max_exponent() <= F32.max_exponent());
        let sources = ALL.into_iter().filter(|from| *from != F64);
        sources.flat_map(|from| targets().map(move |to| unit(from, to))).collect()
    }
}
