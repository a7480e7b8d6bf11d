//! `log_softmax`.

use super::{CANONICAL, OnDevice, activation, softmax};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::LogSoftmax;

const SOURCE: Source = Source { name: "log_softmax", text: include_str!("../../kernels/log_softmax.cu") };

impl OnDevice for LogSoftmax {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![CANONICAL]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::between(SOURCE, self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let views = [&inputs[0], &outputs[0]];
        let unit = self.unit(variant);
        Ok(softmax::plan(unit, self.scale.0, self.causal, self.fully_masked, f32::NEG_INFINITY, views))
    }

    fn units() -> Vec<Unit> {
        activation::pairs().map(|(from, to)| Unit::between(SOURCE, from, to)).collect()
    }
}
