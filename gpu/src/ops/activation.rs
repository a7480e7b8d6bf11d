//! What the elementwise functions have in common: one kernel, with the function as a constant.

use super::CANONICAL;
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Elementwise, Step, View};
use plumbline_reference::format::Format;
use plumbline_reference::ops::activation::FORMATS;

const SOURCE: Source = Source { name: "activation", text: include_str!("../../kernels/activation.cu") };

/// The results of all inputs of 16 bits, looked up.
const TABLE: &str = "table";
/// Bytes of that table.
const TABLE_BYTES: u32 = 2 << 16;
/// Threads of its block.
const TABLE_THREADS: u32 = 1024;
/// Its blocks, at most: about as many as the largest device has multiprocessors, each of which takes one.
const TABLE_BLOCKS: u64 = 256;

/// Whether there is a table: of 16-bit results, and of one argument.
fn has_table(arguments: usize, from: Format, to: Format) -> bool {
    arguments == 1 && from.storage_bits == 16 && to.storage_bits == 16
}

/// Whether a block may have that much shared memory, by the CUDA programming guide's table of compute
/// capabilities.
fn has_room(arch: ComputeCapability) -> bool {
    matches!((arch.major, arch.minor), (8, 0 | 7) | (9..=11, _))
}

pub(super) fn variants(
    arguments: usize,
    from: Format,
    to: Format,
    arch: ComputeCapability,
) -> Vec<&'static str> {
    if has_table(arguments, from, to) && has_room(arch) { vec![CANONICAL, TABLE] } else { vec![CANONICAL] }
}

pub(super) fn unit(function: &str, arguments: usize, from: Format, to: Format) -> Unit {
    let mut defines = vec![
        ("FUNCTION", function.to_owned()),
        ("ARGUMENTS", arguments.to_string()),
        ("FROM", constant(from)),
        ("TO", constant(to)),
    ];
    if has_table(arguments, from, to) {
        defines.push(("TABLE", "1".to_owned()));
    }
    Unit::new(SOURCE, defines)
}

pub(super) fn plan(unit: Unit, variant: &str, inputs: &[View], outputs: &[View]) -> Vec<Step> {
    let (x, y) = (&inputs[0], &outputs[0]);
    if x.count() == 0 {
        return Vec::new();
    }
    if variant == TABLE {
        return vec![Step::Kernel(Call {
            unit,
            entry: "table",
            blocks: x.count().div_ceil(TABLE_THREADS.into()).min(TABLE_BLOCKS),
            threads: TABLE_THREADS,
            shared: TABLE_BYTES,
            arguments: [x.address, y.address, x.count()].map(Argument::from).to_vec(),
        })];
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
            fn variants(&self, arch: crate::device::ComputeCapability) -> Vec<&'static str> {
                super::activation::variants($arguments, self.from, self.to, arch)
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
                Ok(super::activation::plan(self.unit(variant), variant, inputs, outputs))
            }

            fn units() -> Vec<crate::module::Unit> {
                let unit = |(from, to)| super::activation::unit($function, $arguments, from, to);
                super::activation::pairs().map(unit).collect()
            }
        }
    };
}
pub(super) use activation;

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::{BF16, F16, F32};

    #[test]
    fn a_table_is_of_16_bits_where_there_is_room() {
        let table = |arguments, from, to, (major, minor)| {
            variants(arguments, from, to, ComputeCapability { major, minor }).contains(&TABLE)
        };
        for arch in [(8, 0), (8, 7), (9, 0), (10, 0), (10, 3)] {
            assert!(table(1, F16, BF16, arch), "{arch:?}");
        }
        for arch in [(8, 6), (8, 9), (12, 0)] {
            assert!(!table(1, F16, BF16, arch), "{arch:?}");
        }
        assert!(!table(1, F32, F16, (9, 0)) && !table(1, F16, F32, (9, 0)) && !table(2, F16, F16, (9, 0)));
    }
}
