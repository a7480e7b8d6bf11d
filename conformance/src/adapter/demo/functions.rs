//! Wrong elementwise functions, softmaxes and attentions.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::format::{F32, Format, Policy, Value};
use plumbline_reference::ops::{
    Alignment, Attention, Bits32, Causal, Elementary, FullyMasked, GeluErf, GeluTanh, Op, SoftmaxOrder,
};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

/// Lanes of a warp.
const WARP: usize = 32;
/// Slots of a tile of an online softmax.
const TILE: usize = 64;
/// The largest f16.
const MAX_F16: f64 = 65504.0;

/// Functions of elements and rows with one fault. What the fault is not about is right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::Math(_)
        | Op::Relu(_)
        | Op::Silu(_)
        | Op::GeluTanh(_)
        | Op::GeluErf(_)
        | Op::QuickGelu(_)
        | Op::Swiglu(_)
        | Op::Softmax(_)
        | Op::LogSoftmax(_)
        | Op::Attention(_) => Ok(()),
        _ => Err(Unsupported("does only functions of elements, softmax and attention".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    check_inputs(op, inputs)?;
    if let Some(wrong) = wrong(fault, op, inputs)? {
        return Ok(vec![wrong]);
    }
    let mut inputs = inputs.to_vec();
    let op = misunderstood(fault, op, &mut inputs)?;
    Ok(op.evaluate(&inputs, Path::fastest())?)
}

/// The operation and inputs that a right implementation would have to be given to do what this one
/// does.
fn misunderstood(fault: DemoFault, op: &Op, inputs: &mut [Tensor]) -> Result<Op, TensorError> {
    Ok(match (fault, op) {
        (DemoFault::GeluVariantSwapped, Op::GeluTanh(op)) => GeluErf { from: op.from, to: op.to }.into(),
        (DemoFault::GeluVariantSwapped, Op::GeluErf(op)) => GeluTanh { from: op.from, to: op.to }.into(),
        (DemoFault::MaskOffByOne, Op::Softmax(op)) => {
            let causal = op.causal.map(|causal| Causal { offset: causal.offset.saturating_sub(1) });
            Op::Softmax(plumbline_reference::ops::Softmax { causal, ..*op })
        }
        (DemoFault::FullyMaskedIsNan, Op::Softmax(op)) => {
            Op::Softmax(plumbline_reference::ops::Softmax { fully_masked: FullyMasked::Nan, ..*op })
        }
        (DemoFault::AlignmentSwapped, Op::Attention(op)) => {
            let causal = match op.causal {
                Alignment::TopLeft => Alignment::BottomRight,
                Alignment::BottomRight => Alignment::TopLeft,
                other => other,
            };
            Attention { causal, ..*op }.into()
        }
        (DemoFault::HeadScaleDropped, Op::Attention(op)) => {
            Attention { scale: op.scale.or(Some(Bits32(1.0))), ..*op }.into()
        }
        (DemoFault::LastSlotDropped, Op::Attention(op)) => {
            let used = op.used(inputs[1].shape()[1]);
            Attention { length: Some(used.saturating_sub(1)), ..*op }.into()
        }
        (DemoFault::GroupsInterleaved, Op::Attention(op)) => {
            let (heads, kv_heads) = (inputs[0].shape()[0], inputs[1].shape()[0]);
            for cache in &mut inputs[1..] {
                let [_, slots, d] = *cache.shape() else { return Ok((*op).into()) };
                let ty = TensorType::new(op.kv, [heads, slots, d]);
                let of = |i: usize| cache.code(i / (slots * d) % kv_heads * slots * d + i % (slots * d));
                *cache = Tensor::from_fn(ty, Path::Definition, of)?;
            }
            (*op).into()
        }
        _ => op.clone(),
    })
}

fn number(tensor: &Tensor, format: Format, i: usize) -> f32 {
    format.to_f64(tensor.code(i)) as f32
}

fn encoded(format: Format, y: f32) -> u64 {
    let value = if y.is_nan() { Value::Nan { negative: false } } else { y.into() };
    format.encode(value, &Policy::IEEE, 0)
}

/// An output of which element `i` is `value(i)`.
fn elements(
    ty: TensorType,
    format: Format,
    value: impl Fn(usize) -> f32 + Sync,
) -> Result<Option<Tensor>, BackendError> {
    Ok(Some(Tensor::from_fn(ty, Path::Definition, |i| encoded(format, value(i)))?))
}

/// What is computed otherwise; `None` where the fault is another.
fn wrong(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let x = &inputs[0];
    let all = |to: Format| TensorType::new(to, x.shape());
    match (fault, op) {
        (DemoFault::GeluTailLost, Op::GeluTanh(op)) => elements(all(op.to), op.to, |i| {
            let x = number(x, op.from, i);
            let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + Elementary::Tanh.canonical(inner))
        }),
        (DemoFault::GeluTailLost, Op::GeluErf(op)) => elements(all(op.to), op.to, |i| {
            let x = number(x, op.from, i);
            0.5 * x * (1.0 + Elementary::Erf.canonical(x * std::f32::consts::FRAC_1_SQRT_2))
        }),
        (DemoFault::TanhOverflows, Op::GeluTanh(op)) => elements(all(op.to), op.to, |i| {
            let x = number(x, op.from, i);
            let e = Elementary::Exp.canonical(2.0 * 0.797_884_6 * (x + 0.044_715 * x * x * x));
            0.5 * x * (1.0 + (e - 1.0) / (e + 1.0))
        }),
        (DemoFault::TanhOverflows, Op::Math(op)) if op.function == Elementary::Tanh => {
            elements(all(op.to), op.to, |i| {
                let e = Elementary::Exp.canonical(2.0 * number(x, op.from, i));
                (e - 1.0) / (e + 1.0)
            })
        }
        (DemoFault::MinusInfinityIsNan, Op::Silu(op)) => elements(all(op.to), op.to, |i| {
            let x = number(x, op.from, i);
            x * (1.0 / (1.0 + Elementary::Exp.canonical(-x)))
        }),
        (DemoFault::ReluSwallowsNan, Op::Relu(op)) => {
            elements(all(op.to), op.to, |i| number(x, op.from, i).max(0.0))
        }
        (DemoFault::GateSwapped, Op::Swiglu(op)) => {
            let swapped = [inputs[1].clone(), inputs[0].clone()];
            Ok(Some(Op::from(*op).evaluate(&swapped, Path::fastest())?.remove(0)))
        }
        (DemoFault::ExpFlushed, Op::Math(op))
            if matches!(op.function, Elementary::Exp | Elementary::Exp2) =>
        {
            elements(all(op.to), op.to, |i| {
                let y = op.function.canonical(number(x, op.from, i));
                if y < f32::MIN_POSITIVE { 0.0 } else { y }
            })
        }
        (DemoFault::AnglesOfF32, Op::Math(op))
            if matches!(op.function, Elementary::Sin | Elementary::Cos) =>
        {
            elements(all(op.to), op.to, |i| {
                let x = number(x, op.from, i);
                // Reduced by a turn in f32.
                let turn = std::f32::consts::TAU;
                op.function.canonical(x - (x / turn).round() * turn)
            })
        }
        (fault, Op::Softmax(op)) => {
            let n = x.shape().last().copied().unwrap_or(1);
            if op.causal.is_some() || n == 0 {
                return Ok(None);
            }
            let row =
                |row: usize| (0..n).map(|j| number(x, op.from, row * n + j) * op.scale.0).collect::<Vec<_>>();
            let rows: Vec<_> = (0..x.len() / n).map(row).collect();
            let Some(y) = rows.iter().map(|s| wrong_row(fault, s)).collect::<Option<Vec<_>>>() else {
                return Ok(None);
            };
            elements(all(op.to), op.to, |i| y[i / n][i % n])
        }
        (DemoFault::LogOfQuotient, Op::LogSoftmax(op)) if op.causal.is_none() => {
            let softmax = plumbline_reference::ops::Softmax {
                scale: op.scale,
                fully_masked: op.fully_masked,
                ..plumbline_reference::ops::Softmax::new(op.from, F32)
            };
            let y = Op::from(softmax).evaluate(inputs, Path::fastest())?.remove(0);
            elements(all(op.to), op.to, |i| Elementary::Log.canonical(number(&y, F32, i)))
        }
        (
            DemoFault::UnusedSlotsRead | DemoFault::ProductsInF16 | DemoFault::RescaleDropped,
            Op::Attention(op),
        ) => attention(fault, op, inputs),
        _ => Ok(None),
    }
}

/// A row's softmax; `None` where the fault is another.
fn wrong_row(fault: DemoFault, s: &[f32]) -> Option<Vec<f32>> {
    let exp = |x: f32| Elementary::Exp.canonical(x);
    let max =
        |s: &[f32]| s.iter().copied().fold(f32::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b });
    let over = |s: &[f32], max: f32, sum: f32| -> Vec<f32> { s.iter().map(|s| exp(s - max) / sum).collect() };
    let sum = |s: &[f32], max: f32| s.iter().map(|s| exp(s - max)).sum::<f32>();
    let masked = || vec![0.0; s.len()];
    match fault {
        DemoFault::WithoutMaximum => Some(over(s, 0.0, sum(s, 0.0))),
        DemoFault::MaximumFromZero => {
            let max = max(s).max(0.0);
            Some(over(s, max, sum(s, max)))
        }
        DemoFault::PerWarp => {
            if max(s) == f32::NEG_INFINITY {
                return Some(masked());
            }
            Some(s.chunks(WARP).flat_map(|s| over(s, max(s), sum(s, max(s)))).collect())
        }
        DemoFault::RowRestDropped => {
            let max = max(s);
            if max == f32::NEG_INFINITY {
                return Some(masked());
            }
            let whole = s.len() / WARP * WARP;
            Some(over(s, max, sum(&s[..if whole == 0 { s.len() } else { whole }], max)))
        }
        DemoFault::LeadingTileIsNan => {
            let (mut largest, mut total) = (f32::NEG_INFINITY, 0f32);
            for tile in s.chunks(TILE) {
                let new = largest.max(max(tile));
                total = total * exp(largest - new) + sum(tile, new);
                largest = new;
            }
            Some(if max(s) == f32::NEG_INFINITY { masked() } else { over(s, largest, total) })
        }
        _ => None,
    }
}

fn attention(fault: DemoFault, op: &Attention, inputs: &[Tensor]) -> Result<Option<Tensor>, BackendError> {
    let right = Op::from(*op).evaluate(inputs, Path::fastest())?.remove(0);
    let ([heads, queries, d], [kv_heads, slots, _]) = (extents(&inputs[0]), extents(&inputs[1]));
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let seen = |query: usize| {
        let used = op.used(slots) as i64;
        let limit = op.offset(queries, slots).map_or(used, |offset| offset.saturating_add(query as i64 + 1));
        limit.clamp(0, used) as usize
    };
    let first = |i: usize| i / d / queries * kv_heads / heads * slots;
    let product = |i: usize, j: usize| -> f64 {
        let term =
            |c: usize| op.q.to_f64(q.code(i / d * d + c)) * op.kv.to_f64(k.code((first(i) + j) * d + c));
        (0..d).map(term).sum()
    };
    let value = |i: usize, j: usize| number(v, op.kv, (first(i) + j) * d + i % d);
    let correct = |i: usize| number(&right, op.out, i);
    let element = |i: usize| match fault {
        // Nothing times NaN is NaN.
        DemoFault::UnusedSlotsRead => {
            let unused = (seen(i / d % queries)..slots).map(|j| 0.0 * value(i, j)).sum::<f32>();
            if unused.is_nan() { f32::NAN } else { correct(i) }
        }
        DemoFault::ProductsInF16 => {
            let overflows = |j: usize| product(i, j).abs() > MAX_F16;
            if (0..seen(i / d % queries)).any(overflows) { f32::NAN } else { correct(i) }
        }
        _ => {
            let SoftmaxOrder::Online(tile) = op.softmax else { return correct(i) };
            let factor = f64::from(op.factor(d));
            let s: Vec<_> = (0..seen(i / d % queries)).map(|j| (product(i, j) * factor) as f32).collect();
            let (mut max, mut sum, mut acc) = (f32::NEG_INFINITY, 0f32, 0f32);
            for (t, s) in s.chunks(tile).enumerate() {
                let new = s.iter().copied().fold(max, f32::max);
                sum *= Elementary::Exp.canonical(max - new);
                for (j, s) in s.iter().enumerate() {
                    let e = Elementary::Exp.canonical(s - new);
                    sum += e;
                    acc = e.mul_add(value(i, t * tile + j), acc);
                }
                max = new;
            }
            // One tile needs no rescaling.
            if s.len() <= tile { correct(i) } else { acc / sum }
        }
    };
    elements(right.ty().clone(), op.out, element)
}

fn extents(tensor: &Tensor) -> [usize; 3] {
    tensor.shape().try_into().expect("the signature has been checked")
}
