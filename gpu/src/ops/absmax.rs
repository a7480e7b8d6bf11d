//! `absmax`.

use super::{MOST_BLOCKS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{ALL, F64};
use plumbline_reference::ops::Absmax;

const SOURCE: Source = Source { name: "absmax", text: include_str!("../../kernels/absmax.cu") };

/// A block per part of a group, which meet in an atomic maximum.
const BLOCKS: &str = "blocks";
/// A warp per group.
pub(crate) const WARPS: &str = "warps";

/// Bytes from which on a group is worth a block rather than a warp.
const LONG: u64 = 1 << 14;
/// Bytes of one block of a long group.
const SLICE: u64 = 1 << 18;
const THREADS: u32 = 512;

impl OnDevice for Absmax {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec!["auto", BLOCKS, WARPS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::from(SOURCE, self.from)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, y) = (&inputs[0], &outputs[0]);
        let groups = y.count();
        if groups == 0 {
            return Ok(Vec::new());
        }
        let extent = x.count() / groups;
        let bytes = extent * x.width();
        let arguments = |rest: &[Argument]| -> Vec<Argument> {
            let first = [x.address, y.address, groups, extent].map(Argument::from);
            first.into_iter().chain(rest.iter().copied()).chain([(self.nan as u8).into()]).collect()
        };
        let call = |entry, blocks, arguments| {
            Step::Kernel(Call {
                unit: self.unit(variant),
                entry,
                blocks,
                threads: THREADS,
                shared: 0,
                arguments,
            })
        };
        // Blocks meet in zeros, which must not be what they read.
        let apart = x.address != y.address;
        if apart && (variant == BLOCKS || variant != WARPS && bytes >= LONG) {
            let slices = bytes.div_ceil(SLICE).max(1);
            let zero = Step::Zero { address: y.address, bytes: (groups * y.width()) as usize };
            return Ok(vec![zero, call("long_groups", groups * slices, arguments(&[slices.into()]))]);
        }
        let warps = u64::from(THREADS / 32);
        Ok(vec![call("short_groups", groups.div_ceil(warps).min(MOST_BLOCKS), arguments(&[]))])
    }

    fn units() -> Vec<Unit> {
        ALL.into_iter().filter(|from| *from != F64).map(|from| Unit::from(SOURCE, from)).collect()
    }
}
