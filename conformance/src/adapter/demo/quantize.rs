//! Wrong quantizers, and wrong readings of microscaling blocks.
//!
//! Most faults are those of a right implementation that is given something else.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::block::mx::{MxFormat, ScaleRule};
use plumbline_reference::block::{BlockFormat, Int8Format, Int8Rounding};
use plumbline_reference::format::{E8M0, F16, F32, Policy, Value};
use plumbline_reference::ops::{Int8Quantize, MxDequantize, MxQuantize, Op, Quantize};
use plumbline_reference::{Path, Tensor, TensorError};

/// Values of a super-block, and of the group of it that is lost.
const SUPER_BLOCK: usize = 256;
const GROUP: usize = 16;

/// `mx_quantize`, `mx_dequantize`, `quantize` and `int8_quantize` with one fault. What the fault is
/// not about is right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::MxQuantize(_) | Op::MxDequantize(_) | Op::Quantize(_) | Op::Int8Quantize(_) => Ok(()),
        _ => Err(Unsupported("does only quantizing, and `mx_dequantize`".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    check_inputs(op, inputs)?;
    let mut inputs = inputs.to_vec();
    let op = misunderstood(fault, op, &mut inputs)?;
    let mut outputs = op.evaluate(&inputs, Path::fastest())?;
    spoil(fault, &op, &inputs, &mut outputs)?;
    Ok(outputs)
}

/// The operation and inputs that a right implementation would have to be given to do what this one
/// does.
fn misunderstood(fault: DemoFault, op: &Op, inputs: &mut [Tensor]) -> Result<Op, TensorError> {
    let is_super = |format: BlockFormat| format.values() == SUPER_BLOCK;
    match (fault, op) {
        (DemoFault::FloorForCeil, Op::MxQuantize(op)) if op.scale_rule == ScaleRule::Ceil => {
            return Ok(MxQuantize { scale_rule: ScaleRule::Floor, ..*op }.into());
        }
        (DemoFault::TiesToEven, Op::Int8Quantize(op)) if op.to == Int8Format::Q8_0 => {
            return Ok(Int8Quantize { rounding: Some(Int8Rounding::NearestEven), ..*op }.into());
        }
        (DemoFault::PackedSwapped, Op::MxDequantize(MxDequantize { packed: true, .. })) => {
            inputs[0] = swapped(&inputs[0])?;
        }
        (DemoFault::TensorScaleDropped, Op::MxQuantize(MxQuantize { format: MxFormat::Nvfp4, .. })) => {
            inputs[1] = one(&inputs[1])?;
        }
        (DemoFault::TensorScaleDropped, Op::MxDequantize(MxDequantize { format: MxFormat::Nvfp4, .. })) => {
            inputs[2] = one(&inputs[2])?;
        }
        (DemoFault::LastGroupZero, Op::Quantize(Quantize { to })) if is_super(*to) => {
            inputs[0] = without_last_groups(&inputs[0])?;
        }
        (DemoFault::LastGroupZero, Op::Int8Quantize(op)) if is_super(op.to.blocks()) => {
            inputs[0] = without_last_groups(&inputs[0])?;
        }
        _ => (),
    }
    Ok(op.clone())
}

/// Changes what is right.
fn spoil(fault: DemoFault, op: &Op, inputs: &[Tensor], outputs: &mut [Tensor]) -> Result<(), BackendError> {
    match (fault, op) {
        (DemoFault::PackedSwapped, Op::MxQuantize(op)) if op.packed => {
            outputs[0] = swapped(&outputs[0])?;
        }
        (DemoFault::NanScaleLarge, Op::MxDequantize(op)) if op.format.layout().scale == E8M0 => {
            outputs[0] = with_large_scales(op, inputs, &outputs[0])?;
        }
        (DemoFault::Wraps, Op::Int8Quantize(op)) => {
            outputs[0] = changed(op.to.blocks(), &inputs[0], &outputs[0], wrap)?;
        }
        (DemoFault::SumsShifted, Op::Int8Quantize(Int8Quantize { to: Int8Format::Q8K, .. })) => {
            let (first, field) = BlockFormat::Q8K.layout().field("bsums");
            let shift = |_: &[f32], block: &mut [u8]| block[first..][..field.bytes()].rotate_right(2);
            outputs[0] = changed(BlockFormat::Q8K, &inputs[0], &outputs[0], shift)?;
        }
        (DemoFault::SumOfStoredFactor, Op::Int8Quantize(Int8Quantize { to: Int8Format::Q8_1, .. })) => {
            outputs[0] = changed(BlockFormat::Q8_1, &inputs[0], &outputs[0], sum_of_stored_factor)?;
        }
        (DemoFault::SignDropped, Op::Quantize(Quantize { to: BlockFormat::Q4_0 })) => {
            outputs[0] = changed(BlockFormat::Q4_0, &inputs[0], &outputs[0], without_sign)?;
        }
        _ => (),
    }
    Ok(())
}

/// With the nibbles of each byte swapped.
fn swapped(codes: &Tensor) -> Result<Tensor, TensorError> {
    let bytes = codes.packed().iter().map(|byte| byte.rotate_left(4)).collect();
    Tensor::from_bytes(codes.ty().clone(), bytes)
}

/// A 1 of the same type.
fn one(scale: &Tensor) -> Result<Tensor, TensorError> {
    Tensor::from_fn(scale.ty().clone(), Path::Definition, |_| 1f32.to_bits().into())
}

fn without_last_groups(x: &Tensor) -> Result<Tensor, TensorError> {
    let code = |i: usize| if i % SUPER_BLOCK < SUPER_BLOCK - GROUP { x.code(i) } else { 0 };
    Tensor::from_fn(x.ty().clone(), Path::Definition, code)
}

/// Twice what a scale of 2^127 gives, where the scale is NaN.
fn with_large_scales(op: &MxDequantize, inputs: &[Tensor], right: &Tensor) -> Result<Tensor, BackendError> {
    const NAN: u64 = 255;
    let scale = |i: usize| inputs[1].code(i);
    let mut inputs = inputs.to_vec();
    let large = |i: usize| scale(i).min(NAN - 1);
    let scales = Tensor::from_fn(inputs[1].ty().clone(), Path::Definition, large)?;
    let is_nan: Vec<_> = inputs[1].codes().map(|code| code == NAN).collect();
    inputs[1] = scales;
    let half = Op::from(*op).evaluate(&inputs, Path::fastest())?.remove(0);
    let double = |code: u64| op.to.encode(Value::from(2.0 * op.to.to_f64(code)), &Policy::IEEE, 0);
    let block = op.format.layout().block;
    let code = |i: usize| if is_nan[i / block] { double(half.code(i)) } else { right.code(i) };
    Ok(Tensor::from_fn(right.ty().clone(), Path::Definition, code)?)
}

/// Blocks, changed by what they were made of.
fn changed(
    format: BlockFormat,
    x: &Tensor,
    blocks: &Tensor,
    change: impl Fn(&[f32], &mut [u8]),
) -> Result<Tensor, TensorError> {
    let x: Vec<_> = x.codes().map(|code| f32::from_bits(code as u32)).collect();
    let mut bytes = blocks.packed().into_owned();
    for (x, block) in x.chunks_exact(format.values()).zip(bytes.chunks_exact_mut(format.bytes())) {
        change(x, block);
    }
    Tensor::from_bytes(blocks.ty().clone(), bytes)
}

/// The first number of the largest magnitude.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |max, &x| if x.abs() > max.abs() { x } else { max })
}

/// What is rounded to an integer too large is where a factor is so small that its reciprocal is not
/// finite.
fn wrap(x: &[f32], block: &mut [u8]) {
    let (max, is_k) = (extreme(x), x.len() == SUPER_BLOCK);
    let format = match (is_k, block.len() == BlockFormat::Q8_0.bytes()) {
        (true, _) => BlockFormat::Q8K,
        (false, true) => BlockFormat::Q8_0,
        (false, false) => BlockFormat::Q8_1,
    };
    let factor = if is_k { -127.0 / max } else { 1.0 / (max.abs() / 127.0) };
    let first = format.layout().field("qs").0;
    for (x, quant) in x.iter().zip(&mut block[first..]) {
        if x * factor >= 127.5 {
            *quant = 0x80;
        }
    }
}

/// `s = d * sum(q)` with d as it is stored.
fn sum_of_stored_factor(_: &[f32], block: &mut [u8]) {
    let [d, s, qs] = ["d", "s", "qs"].map(|name| BlockFormat::Q8_1.layout().field(name).0);
    let factor = F16.to_f64(u64::from(u16::from_le_bytes([block[d], block[d + 1]]))) as f32;
    let sum: i32 = block[qs..].iter().map(|&q| i32::from(q as i8)).sum();
    block[s..][..2].copy_from_slice(&half(factor * sum as f32));
}

/// A negative factor for negative extremes, too.
fn without_sign(x: &[f32], block: &mut [u8]) {
    if extreme(x) >= 0.0 {
        return;
    }
    let d = extreme(x).abs() / -8.0;
    let code = |x: f32| ((x * (1.0 / d) + 8.5) as u8).min(15);
    let [first, qs] = ["d", "qs"].map(|name| BlockFormat::Q4_0.layout().field(name).0);
    block[first..][..2].copy_from_slice(&half(d));
    for (j, byte) in block[qs..].iter_mut().enumerate() {
        *byte = code(x[j]) | code(x[j + 16]) << 4;
    }
}

/// The bytes of a number in f16.
fn half(x: f32) -> [u8; 2] {
    (F16.encode(F32.decode(x.to_bits().into()), &Policy::IEEE, 0) as u16).to_le_bytes()
}
