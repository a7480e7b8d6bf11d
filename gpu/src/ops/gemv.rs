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
/// Rows of a warp where accesses are wide: the vector is read once for all.
const ROWS: u64 = 2;
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
        ("ROWS", ROWS.to_string()),
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
    let wide = is_wide(op) && k > 0 && w.address.is_multiple_of(16) && x.address.is_multiple_of(4);
    let (entry, warps) = if wide { ("wide", rows.div_ceil(ROWS) * vectors) } else { ("any", rows * vectors) };
    vec![Step::Kernel(Call {
        unit: unit(source, op),
        entry,
        blocks: warps.div_ceil(u64::from(THREADS / 32)).min(MOST_BLOCKS),
        threads: THREADS,
        arguments: [w.address, x.address, y.address, rows, vectors, k].map(Argument::from).to_vec(),
    })]
}
