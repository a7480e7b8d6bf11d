//! `gemv`: a warp for each row.

use super::OnDevice;
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, block_constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::gemv::{Gemv, warp_order};
use plumbline_reference::ops::Activations;

const SOURCE: Source = Source { name: "gemv", text: include_str!("../../kernels/gemv.cu") };

/// A warp for each row and vector.
pub(super) const WARP: &str = "warp";

/// Threads of a block.
const THREADS: u32 = 128;
/// The kernels with wide accesses, each for rows of so many times as many values.
const WIDE: [&str; 4] = ["wide_1", "wide_2", "wide_3", "wide_4"];
const WIDE_VALUES: u64 = 1024;
/// Blocks of the wide kernels: five on each of an H200's multiprocessors.
const WIDE_BLOCKS: u64 = 5 * 132;
/// Blocks at once; further rows follow in the same ones.
const MOST_BLOCKS: u64 = 1 << 20;

impl OnDevice for Gemv {
    fn supports(&self, _: ComputeCapability) -> Result<(), Unsupported> {
        supports(self)
    }

    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![WARP]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(SOURCE, self)
    }

    fn plan(&self, _: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        Ok(steps(SOURCE, self, 1, inputs, &outputs[0]))
    }

    fn units() -> Vec<Unit> {
        units(SOURCE)
    }
}

/// The kernels add in their own order, which the exact sum judges too.
pub(super) fn supports(op: &Gemv) -> Result<(), Unsupported> {
    match &op.accumulate {
        Some(order) if *order != warp_order(op.weights, op.activations) => {
            Err(Unsupported("has no kernel for gemv in another order than a warp's".to_owned()))
        }
        _ => Ok(()),
    }
}

fn is_wide(op: &Gemv) -> bool {
    (op.weights, op.activations) == (BlockFormat::Q4K, Activations::Q8_1)
}

pub(super) fn unit(source: Source, op: &Gemv) -> Unit {
    let activations = op.activations.blocks().map_or_else(|| "Numbers".to_owned(), block_constant);
    let defines = vec![
        ("WEIGHTS", block_constant(op.weights)),
        ("ACTIVATIONS", activations),
        ("WIDE", u8::from(is_wide(op)).to_string()),
    ];
    Unit::new(source, defines)
}

pub(super) fn units(source: Source) -> Vec<Unit> {
    let pairs = BlockFormat::ALL.into_iter().flat_map(|weights| Activations::ALL.map(|it| (weights, it)));
    pairs.map(|(weights, activations)| unit(source, &Gemv::new(weights, activations))).collect()
}

/// The products of all rows with that many vectors.
pub(super) fn steps(source: Source, op: &Gemv, vectors: u64, inputs: &[View], y: &View) -> Vec<Step> {
    let (w, x) = (&inputs[0], &inputs[1]);
    if y.count() == 0 {
        return Vec::new();
    }
    let rows = w.ty.shape[0] as u64;
    let k = (w.ty.shape[1] * op.weights.values()) as u64;
    // Blocks of Q4_K are multiples of 16 bytes, those of Q8_1 of 4.
    let aligned = w.address.is_multiple_of(16) && x.address.is_multiple_of(4);
    let fits = is_wide(op) && vectors == 1 && aligned && k > 0;
    let wide = (k.div_ceil(WIDE_VALUES) as usize).checked_sub(1).and_then(|i| WIDE.get(i));
    let (entry, most) = match wide {
        Some(&entry) if fits => (entry, WIDE_BLOCKS),
        _ => ("any", MOST_BLOCKS),
    };
    vec![Step::Kernel(Call {
        unit: unit(source, op),
        entry,
        blocks: (rows * vectors).div_ceil(u64::from(THREADS / 32)).min(most),
        threads: THREADS,
        arguments: [w.address, x.address, y.address, rows, vectors, k].map(Argument::from).to_vec(),
    })]
}
