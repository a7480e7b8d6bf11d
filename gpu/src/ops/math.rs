//! `math`: the canonical functions.

use super::{OnDevice, activation};
use crate::device::ComputeCapability;
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::{Elementary, Math};

fn device_function(function: Elementary) -> String {
    format!("canonical_{}", function.name())
}

impl OnDevice for Math {
    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        activation::variants(1, self.from, self.to, arch)
    }

    fn unit(&self, _: &str) -> Unit {
        activation::unit(&device_function(self.function), 1, self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        Ok(activation::plan(self.unit(variant), variant, inputs, outputs))
    }

    fn units() -> Vec<Unit> {
        let functions = Elementary::ALL.iter().map(|&function| device_function(function));
        let units = functions.map(|function| {
            activation::pairs().map(move |(from, to)| activation::unit(&function, 1, from, to))
        });
        units.flatten().collect()
    }
}
