//! Wrong operations that are made of others.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::format::{F16, F32};
use plumbline_reference::ops::prefill_linear::PADDED_ROWS;
use plumbline_reference::ops::{
    Dispatch, FusedActivation, Gemm, GemmFused, Granularity, Op, PrefillLinear, Product, Route, ScaledDecode,
};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

/// Columns that have a bias where not all have.
const COLUMNS: usize = 256;
/// What a buffer of padded rows holds from a call before.
const STALE: f32 = 1000.0;
/// The canonical NaN.
const NAN: u64 = 0x7fff_ffff;

/// `gemm_fused`, `prefill_linear` and `dispatch` with one fault. What the fault is not about is right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::GemmFused(_) | Op::PrefillLinear(_) | Op::Dispatch(_) => Ok(()),
        _ => Err(Unsupported("does only `gemm_fused`, `prefill_linear` and `dispatch`".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    check_inputs(op, inputs)?;
    let wrong = match op {
        Op::GemmFused(op) => fused(fault, op, inputs)?,
        Op::PrefillLinear(op) => prefill(fault, op, inputs)?,
        Op::Dispatch(op) => dispatch(fault, op, inputs)?,
        _ => None,
    };
    match wrong {
        Some(y) => Ok(vec![y]),
        None => Ok(op.evaluate(inputs, Path::fastest())?),
    }
}

fn f32_at(tensor: &Tensor, i: usize) -> f32 {
    f32::from_bits(tensor.code(i) as u32)
}

fn number(value: f32) -> u64 {
    if value.is_nan() { NAN } else { value.to_bits().into() }
}

fn numbers(shape: &[usize], value: impl Fn(usize) -> f32 + Sync) -> Result<Tensor, TensorError> {
    Tensor::from_fn(TensorType::new(F32, shape), Path::Definition, |i| number(value(i)))
}

/// `None` where the fault changes nothing.
fn fused(fault: DemoFault, op: &GemmFused, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let bias = &inputs[2];
    let n = bias.len();
    let bias_of = |i: usize| match fault {
        DemoFault::FusedBiasOfRows => f32_at(bias, i / n % n),
        _ if i % n < COLUMNS => f32_at(bias, i % n),
        _ => 0.0,
    };
    let relu = |t: f32| if t > 0.0 { t } else { 0.0 };
    match fault {
        DemoFault::FusedBiasOfRows | DemoFault::BiasOf256 => {
            let gemm = Gemm { bias: None, ..op.gemm() };
            let v = Op::from(gemm).evaluate(&inputs[..2], Path::fastest())?.remove(0);
            Ok(Some(numbers(v.shape(), |i| op.activation.of(f32_at(&v, i) + bias_of(i)))?))
        }
        DemoFault::NanSwallowed if op.activation == FusedActivation::Relu => {
            let t = Op::from(op.gemm()).evaluate(inputs, Path::fastest())?.remove(0);
            Ok(Some(numbers(t.shape(), |i| relu(f32_at(&t, i)))?))
        }
        DemoFault::GeluSwapped if op.activation == FusedActivation::GeluErf => {
            let op = GemmFused { activation: FusedActivation::GeluTanh, ..op.clone() };
            Ok(Some(Op::from(op).evaluate(inputs, Path::fastest())?.remove(0)))
        }
        _ => Ok(None),
    }
}

/// `None` where the fault changes nothing.
fn prefill(fault: DemoFault, op: &PrefillLinear, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let (w, x) = (&inputs[0], &inputs[1]);
    let &[rows, k] = x.shape() else { return Ok(None) };
    match fault {
        DemoFault::PaddingInAbsmax if op.pad => {
            let padded = rows.next_multiple_of(PADDED_ROWS);
            let x = numbers(&[padded, k], |i| if i < rows * k { f32_at(x, i) } else { STALE })?;
            let op = PrefillLinear { pad: false, ..op.clone() };
            let y = Op::from(op).evaluate(&[w.clone(), x], Path::fastest())?.remove(0);
            Ok(Some(numbers(&[rows, y.shape()[1]], |i| f32_at(&y, i))?))
        }
        DemoFault::LastBlockDropped => {
            let kept = k.saturating_sub(op.weights.values());
            let x = numbers(x.shape(), |i| if i % k < kept { f32_at(x, i) } else { 0.0 })?;
            Ok(Some(Op::from(op.clone()).evaluate(&[w.clone(), x], Path::fastest())?.remove(0)))
        }
        DemoFault::RowsReversed => {
            let y = Op::from(op.clone()).evaluate(inputs, Path::fastest())?.remove(0);
            let n = w.shape()[0];
            Ok(Some(numbers(y.shape(), |i| f32_at(&y, (rows - 1 - i / n) * n + i % n))?))
        }
        DemoFault::AlphaDropped | DemoFault::ActivationScaleDropped | DemoFault::SaturatedInF16 => {
            of_fp8(fault, op, inputs)
        }
        _ => Ok(None),
    }
}

/// Faults of the routes whose operands are FP8.
fn of_fp8(fault: DemoFault, op: &PrefillLinear, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let path = Path::fastest();
    let (gemm, mut operands) = op.product(inputs, path)?;
    let after = op.scale_after(inputs, path)?;
    let one = numbers(&[], |_| 1.0)?;
    match (fault, op.route) {
        (DemoFault::AlphaDropped, Route::Fp8 | Route::Fp8ViaF16) => {
            operands.pop();
            operands.push(one);
        }
        (DemoFault::ActivationScaleDropped, Route::Fp8) => operands[2] = one,
        (DemoFault::ActivationScaleDropped | DemoFault::SaturatedInF16, Route::Fp8ViaF16) => (),
        _ => return Ok(None),
    }
    let mut y = Op::from(gemm).evaluate(&operands, path)?.remove(0);
    let Some(scale) = after else { return Ok(Some(y)) };
    if fault == DemoFault::SaturatedInF16 {
        let infinity = F16.infinity().unwrap_or_default();
        let saturated = |i: usize| {
            let code = y.code(i);
            if code & !F16.sign_bit() == infinity { code - 1 } else { code }
        };
        y = Tensor::from_fn(y.ty().clone(), path, saturated)?;
    }
    let scale = if fault == DemoFault::ActivationScaleDropped { 1.0 } else { scale };
    let decode = ScaledDecode { from: F16, granularity: Granularity::Tensor };
    Ok(Some(Op::from(decode).evaluate(&[y, numbers(&[], |_| scale)?], path)?.remove(0)))
}

/// `None` where the fault changes nothing.
fn dispatch(fault: DemoFault, op: &Dispatch, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let rows = inputs[1].shape()[0];
    match (fault, op.choice(rows)) {
        (DemoFault::ThresholdOffByOne, _) => {
            let at_threshold = match op.at_threshold {
                Product::Gemv => Product::Gemm,
                Product::Gemm => Product::Gemv,
            };
            let op = Dispatch { at_threshold, ..op.clone() };
            Ok(Some(Op::from(op).evaluate(inputs, Path::fastest())?.remove(0)))
        }
        (fault, Product::Gemm) => prefill(fault, &op.of_many(), inputs),
        (_, Product::Gemv) => Ok(None),
    }
}
