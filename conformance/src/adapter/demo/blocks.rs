//! Wrong readings and products of GGML blocks.
//!
//! Most faults are those of a right implementation that is given other bytes: nibbles that are
//! swapped are what reading them in the wrong order gives.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{BatchedGemv, Gemv, Op};
use plumbline_reference::{DType, Path, Tensor, TensorError, TensorType};

/// The lane whose sum is lost, and how many there are.
const LANE: usize = 5;
const LANES: usize = 32;

/// `dequantize`, `gemv` and `batched_gemv` with one fault. What the fault is not about is right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::Dequantize(_) | Op::Gemv(_) | Op::BatchedGemv(_) => Ok(()),
        _ => Err(Unsupported("does only `dequantize`, `gemv` and `batched_gemv`".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let mut inputs = inputs.to_vec();
    if fault == DemoFault::DepthCut {
        cut_depth(op, &mut inputs)?;
    }
    check_inputs(op, &inputs)?;
    let (weights, activations) = formats(op);
    if let Some(format) = weights {
        inputs[0] = with_blocks(&inputs[0], format, |number, block| misread(fault, format, number, block))?;
    }
    match (fault, activations) {
        (DemoFault::LaneLost, Some(Some(format))) => {
            let (first, runs) = (format.layout().field("qs").0, format.values() / LANES);
            inputs[1] = with_blocks(&inputs[1], format, |number, block| {
                for run in (0..runs).filter(|run| (number * runs + run) % LANES == LANE) {
                    block[first + run * LANES..][..LANES].fill(0);
                }
            })?;
        }
        (DemoFault::LaneLost, Some(None)) => {
            let x = inputs[1].clone();
            let k = x.shape().last().copied().unwrap_or(0);
            let code = |i: usize| if i % k % LANES == LANE { 0 } else { x.code(i) };
            inputs[1] = Tensor::from_fn(x.ty().clone(), Path::Definition, code)?;
        }
        (DemoFault::StoredSum, Some(Some(BlockFormat::Q8_1))) => return stored_sum(op, &inputs),
        _ => (),
    }
    let mut outputs = op.evaluate(&inputs, Path::fastest())?;
    if let (DemoFault::RowStride, Op::BatchedGemv(_)) = (fault, op) {
        outputs[0] = misplaced(&outputs[0])?;
    }
    Ok(outputs)
}

/// The format of weights, and that of activations where there are some.
fn formats(op: &Op) -> (Option<BlockFormat>, Option<Option<BlockFormat>>) {
    match op {
        Op::Dequantize(op) => (Some(op.from), None),
        Op::Gemv(Gemv { weights, activations, .. })
        | Op::BatchedGemv(BatchedGemv { weights, activations, .. }) => {
            (Some(*weights), Some(activations.blocks()))
        }
        _ => (None, None),
    }
}

/// The tensor with every block changed, given its number in its row.
fn with_blocks(
    tensor: &Tensor,
    format: BlockFormat,
    change: impl Fn(usize, &mut [u8]),
) -> Result<Tensor, TensorError> {
    let per_row = tensor.shape().iter().rev().nth(1).copied().unwrap_or(0);
    let mut bytes = tensor.packed().into_owned();
    for (number, block) in bytes.chunks_exact_mut(format.bytes()).enumerate() {
        change(number % per_row, block);
    }
    Tensor::from_bytes(tensor.ty().clone(), bytes)
}

/// The bytes that a right implementation would have to be given to read what this one reads.
fn misread(fault: DemoFault, format: BlockFormat, number: usize, block: &mut [u8]) {
    use BlockFormat::{Iq4Xs, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_1, Q5K, Q6K};
    let start = |name: &str| format.layout().field(name).0;
    match (fault, format) {
        (DemoFault::NibblesSwapped, Q4_0 | Q4K) => {
            block[start("qs")..].iter_mut().for_each(|byte| *byte = byte.rotate_left(4));
        }
        (DemoFault::GroupsSwapped, Q6K) => {
            block[start("scales")..][..16].as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.reverse());
        }
        (DemoFault::FifthBit, Q5K) => {
            block[start("qh")..][..32].iter_mut().for_each(|byte| *byte = byte.rotate_right(1));
        }
        // As if the scales were signed and of 4 bits.
        (DemoFault::HighScaleBits, Q3K) => {
            let s = &mut block[start("scales")..][..12];
            let low: Vec<_> = (0..16).map(|j| (s[j % 8] >> (j / 8 * 4) & 15) + 24).collect();
            s.fill(0);
            for (j, code) in low.into_iter().enumerate() {
                s[j % 8] |= (code & 15) << (j / 8 * 4);
                s[8 + j % 4] |= code >> 4 << (j / 4 * 2);
            }
        }
        (DemoFault::HighScaleBits, Q4K | Q5K) => {
            block[start("scales")..][..8].iter_mut().for_each(|byte| *byte &= 63);
        }
        (DemoFault::HighScaleBits, Iq4Xs) => block[start("scales_h")..][..2].fill(0),
        (DemoFault::MinSign, Q4_1 | Q5_1) => block[start("m") + 1] ^= 0x80,
        (DemoFault::MinSign, Q2K | Q4K | Q5K) => block[start("dmin") + 1] ^= 0x80,
        (DemoFault::FirstBlockOnly, _) if number > 0 => block.fill(0),
        (DemoFault::ShortHeader, Q4_1) => block.copy_within(2..18, 4),
        _ => (),
    }
}

/// Leaves the whole blocks that both inputs have of K, in place of an error.
fn cut_depth(op: &Op, inputs: &mut [Tensor]) -> Result<(), TensorError> {
    let ((Some(weights), Some(activations)), [w, x]) = (formats(op), inputs) else { return Ok(()) };
    let blocks = |tensor: &Tensor, format: BlockFormat| match tensor.shape() {
        [.., blocks, bytes] if *bytes == format.bytes() => Some(blocks * format.values()),
        _ => None,
    };
    let k = (blocks(w, weights), activations.map_or(x.shape().last().copied(), |format| blocks(x, format)));
    let (Some(of_w), Some(of_x)) = k else { return Ok(()) };
    let unit = activations.map_or(weights.values(), |format| format.values().max(weights.values()));
    let k = of_w.min(of_x) / unit * unit;
    *w = cut(w, 2, k / weights.values())?;
    *x = match activations {
        Some(format) => cut(x, 2, k / format.values())?,
        None => cut(x, 1, k)?,
    };
    Ok(())
}

/// The first slices of the dimension that is this far from the end.
fn cut(tensor: &Tensor, from_end: usize, slices: usize) -> Result<Tensor, TensorError> {
    let mut ty = tensor.ty().clone();
    let axis = ty.shape.len() - from_end;
    let (extent, inner) = (ty.shape[axis], ty.shape[axis + 1..].iter().product::<usize>());
    ty.shape[axis] = slices;
    Tensor::from_fn(ty, Path::Definition, |i| {
        let (outer, rest) = (i / (slices * inner), i % (slices * inner));
        tensor.code(outer * extent * inner + rest)
    })
}

/// Takes the sums that blocks of Q8_1 store in place of those of their quants, for weights whose
/// mins are of whole blocks of 32.
fn stored_sum(op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    use BlockFormat::{Q4_1, Q4K, Q5_1, Q5K, Q8_1};
    let name = match formats(op).0 {
        Some(Q4_1 | Q5_1) => "m",
        Some(Q4K | Q5K) => "dmin",
        _ => return Ok(op.evaluate(inputs, Path::fastest())?),
    };
    let (Some(format), [w, x]) = (formats(op).0, inputs) else { return Ok(Vec::new()) };
    let first = format.layout().field(name).0;
    let without_mins = with_blocks(w, format, |_, block| block[first..first + 2].fill(0))?;
    let y = op.evaluate(&[without_mins, x.clone()], Path::fastest())?.remove(0);
    let n = w.shape()[0];
    let (w, x) = (w.packed(), x.packed());
    let (w_row, runs) = (w.len() / n.max(1), w.len() / n.max(1) / format.bytes() * format.values() / 32);
    let of_mins = |m: usize, n: usize| -> f32 {
        let row: Vec<_> =
            w[n * w_row..][..w_row].chunks_exact(format.bytes()).map(|block| format.unpack(block)).collect();
        let x = &x[m * runs * Q8_1.bytes()..][..runs * Q8_1.bytes()];
        let terms = x.chunks_exact(Q8_1.bytes()).enumerate().map(|(run, x)| {
            let (block, j) = (&row[run * 32 / format.values()], run * 32 % format.values());
            let s = plumbline_reference::format::F16.to_f64(u64::from(x[2]) | u64::from(x[3]) << 8);
            (block.m.unwrap_or(0.0) * f64::from(block.mins[j / block.group]) * s) as f32
        });
        terms.sum()
    };
    let code = |i: usize| {
        let sum = f32::from_bits(y.code(i) as u32) + of_mins(i / n, i % n);
        if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits().into() }
    };
    Ok(vec![Tensor::from_fn(y.ty().clone(), Path::Definition, code)?])
}

/// Rows one after another at the distance of a column: what is beyond the end is lost.
fn misplaced(y: &Tensor) -> Result<Tensor, TensorError> {
    let [m, n] = *y.shape() else { return Ok(y.clone()) };
    let mut codes = vec![0; m * n];
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        if let Some(code) = codes.get_mut(row * m + column) {
            *code = y.code(row * n + column);
        }
    }
    Tensor::from_codes(TensorType::new(DType::Float(F32), [m, n]), &codes)
}
