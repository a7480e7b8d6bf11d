//! What the elementwise functions have in common: one kernel, with the function as a constant.

use crate::module::{Source, Unit, constant};
use crate::plan::{Elementwise, Step, View};
use plumbline_reference::format::Format;
use plumbline_reference::ops::activation::FORMATS;

const SOURCE: Source = Source { name: "activation", text: include_str!("../../kernels/activation.cu") };

pub(super) fn unit(function: &str, arguments: usize, from: Format, to: Format) -> Unit {
    let defines = [
        ("FUNCTION", function.to_owned()),
        ("ARGUMENTS", arguments.to_string()),
        ("FROM", constant(from)),
        ("TO", constant(to)),
    ];
    Unit::new(SOURCE, defines.to_vec())
}

pub(super) fn plan(unit: Unit, inputs: &[View], outputs: &[View]) -> Vec<Step> {
    let (x, y) = (&inputs[0], &outputs[0]);
    if x.count() == 0 {
        return Vec::new();
    }
    let second = inputs.get(1);
    // All inputs are read as vectors, or none.
    let is_aligned = second.is_none_or(|second| second.address % 16 == x.address % 16);
    let entries = if is_aligned { ["wide", "single"] } else { ["single", "single"] };
    let step = Elementwise { unit, x, y, entries, unrolled: true };
    vec![step.step(second.map(|second| second.address.into()))]
}

/// The formats of inputs and output that a unit is compiled for, of all pairs.
pub(super) fn pairs() -> impl Iterator<Item = (Format, Format)> {
    FORMATS.into_iter().flat_map(|from| FORMATS.map(|to| (from, to)))
}

/// Declares an elementwise operation by the name of its device function.
macro_rules! activation {
    ($Type:ident, $function:literal, $arguments:literal) => {
        impl super::OnDevice for plumbline_reference::ops::$Type {
            fn variants(&self, _: crate::device::ComputeCapability) -> Vec<&'static str> {
                vec![super::CANONICAL]
            }

            fn unit(&self, _: &str) -> crate::module::Unit {
                super::activation::unit($function, $arguments, self.from, self.to)
            }

            fn plan(
                &self,
                variant: &str,
                inputs: &[crate::plan::View],
                outputs: &[crate::plan::View],
            ) -> Result<Vec<crate::plan::Step>, plumbline_reference::backend::Unsupported> {
                Ok(super::activation::plan(self.unit(variant), inputs, outputs))
            }

            fn units() -> Vec<crate::module::Unit> {
                let unit = |(from, to)| super::activation::unit($function, $arguments, from, to);
                super::activation::pairs().map(unit).collect()
            }
        }
    };
}
pub(super) use activation;
