//! `gemv`: a warp for each row.

use super::OnDevice;
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, block_constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::Activations;
use plumbline_reference::ops::gemv::{Gemv, warp_order};

const SOURCE: Source = Source { name: "gemv", text: include_str!("../../kernels/gemv.cu") };

/// A warp for each row and vector.
pub(super) const WARP: &str = "warp";

/// Threads of a block.
const THREADS: u32 = 128;
/// Accesses of 16 bytes, and rows in turn through shared memory: for Q4_K by Q8_1.
const WIDE: &str = "wide";
/// Its kernels, each for rows of up to so many times as many values.
const WIDE_KERNELS: [&str; 4] = ["wide_1", "wide_2", "wide_3", "wide_4"];
const WIDE_VALUES: usize = 1024;
/// Its blocks: five on each of an H200's multiprocessors.
const WIDE_BLOCKS: u64 = 5 * 132;
/// Blocks at once; further rows follow in the same ones.
const MOST_BLOCKS: u64 = 1 << 20;

impl OnDevice for Gemv {
    fn supports(&self, _: ComputeCapability) -> Result<(), Unsupported> {
        supports(self)
    }

    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        if has_wide(self) { vec![WARP, WIDE] } else { vec![WARP] }
    }

    /// Blocks of Q4_K are multiples of 16 bytes.
    fn alignment(&self, variant: &str) -> usize {
        if variant == WIDE { 16 } else { 1 }
    }

    fn unit(&self, _: &str) -> Unit {
        unit(SOURCE, self)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        if variant == WIDE {
            wide(self, inputs, &outputs[0])
        } else {
            Ok(warp(SOURCE, self, 1, inputs, &outputs[0]))
        }
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

fn has_wide(op: &Gemv) -> bool {
    (op.weights, op.activations) == (BlockFormat::Q4K, Activations::Q8_1)
}

pub(super) fn unit(source: Source, op: &Gemv) -> Unit {
    let activations = op.activations.blocks().map_or_else(|| "Numbers".to_owned(), block_constant);
    let defines = vec![
        ("WEIGHTS", block_constant(op.weights)),
        ("ACTIVATIONS", activations),
        ("WIDE", u8::from(source == SOURCE && has_wide(op)).to_string()),
    ];
    Unit::new(source, defines)
}

pub(super) fn units(source: Source) -> Vec<Unit> {
    let pairs = BlockFormat::ALL.into_iter().flat_map(|weights| Activations::ALL.map(|it| (weights, it)));
    pairs.map(|(weights, activations)| unit(source, &Gemv::new(weights, activations))).collect()
}

/// The products of all rows with that many vectors.
pub(super) fn warp(source: Source, op: &Gemv, vectors: u64, inputs: &[View], y: &View) -> Vec<Step> {
    let call = |rows: u64| (rows * vectors).div_ceil(u64::from(THREADS / 32)).min(MOST_BLOCKS);
    steps(source, op, "any", vectors, inputs, y, call)
}

/// The products of all rows with one vector.
fn wide(op: &Gemv, inputs: &[View], y: &View) -> Result<Vec<Step>, Unsupported> {
    let k = inputs[0].ty.shape[1] * op.weights.values();
    let Some(kernel) = WIDE_KERNELS.get((k.max(1) - 1) / WIDE_VALUES) else {
        let most = WIDE_KERNELS.len() * WIDE_VALUES;
        return Err(Unsupported(format!("takes rows of up to {most} values, and not of {k}")));
    };
    if !inputs.iter().all(|view| view.address.is_multiple_of(16)) {
        return Err(Unsupported("takes tensors that are aligned to 16 bytes".to_owned()));
    }
    let blocks = |rows: u64| rows.div_ceil(u64::from(THREADS / 32)).min(WIDE_BLOCKS);
    Ok(steps(SOURCE, op, kernel, 1, inputs, y, blocks))
}

fn steps(
    source: Source,
    op: &Gemv,
    entry: &'static str,
    vectors: u64,
    inputs: &[View],
    y: &View,
    blocks: impl Fn(u64) -> u64,
) -> Vec<Step> {
    let (w, x) = (&inputs[0], &inputs[1]);
    if y.count() == 0 {
        return Vec::new();
    }
    let rows = w.ty.shape[0] as u64;
    let k = (w.ty.shape[1] * op.weights.values()) as u64;
    vec![Step::Kernel(Call {
        unit: unit(source, op),
        entry,
        blocks: blocks(rows),
        threads: THREADS,
        shared: 0,
        arguments: [w.address, x.address, y.address, rows, vectors, k].map(Argument::from).to_vec(),
    })]
}
