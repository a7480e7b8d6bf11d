//! Wrong layers: norms, rotary embeddings, and scatters into a cache.
//!
//! Most faults are those of a right implementation that is given something else.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::format::{F16, Format, Policy, Value};
use plumbline_reference::ops::{LayerNorm, Op, Pairing, RmsNorm, Rope};
use plumbline_reference::{Path, Tensor, TensorError};

/// Lanes of a warp, in which rows are taken.
const WARP: usize = 32;

/// Layers with one fault. What the fault is not about is right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::RmsNorm(_) | Op::LayerNorm(_) | Op::Rope(_) | Op::KvScatter(_) => Ok(()),
        _ => Err(Unsupported("does only norms, `rope` and `kv_scatter`".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    if let (DemoFault::PositionClamped, Op::KvScatter(_)) = (fault, op) {
        return clamped(op, inputs);
    }
    check_inputs(op, inputs)?;
    let mut inputs = inputs.to_vec();
    let op = misunderstood(fault, op, &mut inputs)?;
    let right = op.evaluate(&inputs, Path::fastest())?;
    let wrong = match &op {
        Op::RmsNorm(op) => Norm::of_rms(op, &inputs).wrong(fault, &inputs, &right[0])?,
        Op::LayerNorm(op) => Norm::of_layer(op, &inputs).wrong(fault, &inputs, &right[0])?,
        Op::Rope(op) => turned(fault, op, &inputs, &right[0])?,
        _ => None,
    };
    Ok(wrong.map_or(right, |wrong| vec![wrong]))
}

/// The operation and inputs that a right implementation would have to be given to do what this one
/// does.
fn misunderstood(fault: DemoFault, op: &Op, inputs: &mut [Tensor]) -> Result<Op, TensorError> {
    match (fault, op) {
        (DemoFault::WeightDropped, Op::RmsNorm(RmsNorm { weight: Some(format), .. }))
        | (DemoFault::WeightDropped, Op::LayerNorm(LayerNorm { weight: Some(format), .. })) => {
            let one = format.encode(1.0.into(), &Policy::IEEE, 0);
            inputs[1] = Tensor::from_fn(inputs[1].ty().clone(), Path::Definition, |_| one)?;
        }
        (DemoFault::PairingSwapped, Op::Rope(op)) => {
            let pairing = match op.pairing {
                Pairing::Interleaved => Pairing::Halves,
                Pairing::Halves => Pairing::Interleaved,
            };
            return Ok(Rope { pairing, ..*op }.into());
        }
        (DemoFault::SinSign, Op::Rope(op)) => return Ok(Rope { inverse: !op.inverse, ..*op }.into()),
        (DemoFault::TailRotated, Op::Rope(op)) if inputs[0].shape()[2].is_multiple_of(2) => {
            return Ok(Rope { rotary_dim: None, ..*op }.into());
        }
        (DemoFault::PositionOffByOne, Op::Rope(_)) => {
            let next = |i: usize| (inputs[1].code(i) + 1) & u64::from(u32::MAX);
            inputs[1] = Tensor::from_fn(inputs[1].ty().clone(), Path::Definition, next)?;
        }
        (DemoFault::RowLate, Op::KvScatter(_)) => {
            let max_len = inputs[2].shape()[1] as u64;
            let next = |i: usize| (inputs[1].code(i) + 1) % max_len;
            inputs[1] = Tensor::from_fn(inputs[1].ty().clone(), Path::Definition, next)?;
        }
        (DemoFault::HeadsTransposed, Op::KvScatter(_)) => {
            let rows = inputs[0].clone();
            let [tokens, heads, dim] = *rows.shape() else { return Ok(op.clone()) };
            let other = |i: usize| {
                let (token, head, column) = (i / (heads * dim), i / dim % heads, i % dim);
                rows.code((head * tokens + token) * dim + column)
            };
            inputs[0] = Tensor::from_fn(rows.ty().clone(), Path::Definition, other)?;
        }
        _ => (),
    }
    Ok(op.clone())
}

/// Positions that are too large are the last there is, and the last of several rows for one stays.
fn clamped(op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
    op.signature(&types)?;
    let (rows, positions, cache) = (&inputs[0], &inputs[1], &inputs[2]);
    let mut codes: Vec<_> = cache.codes().collect();
    if let ([_, heads, dim], &[_, max_len, _]) = (rows.shape(), cache.shape())
        && max_len > 0
    {
        for i in 0..rows.len() {
            let (token, head, column) = (i / (heads * dim), i / dim % heads, i % dim);
            let slot = (positions.code(token) as usize).min(max_len - 1);
            codes[(head * max_len + slot) * dim + column] = rows.code(i);
        }
    }
    Ok(vec![Tensor::from_codes(cache.ty().clone(), &codes)?])
}

/// A code of what is computed in f64.
fn code(to: Format, y: f64) -> u64 {
    to.encode(Value::from(y), &Policy::IEEE, 0)
}

/// The parameters of both norms.
struct Norm {
    from: Format,
    to: Format,
    eps: f64,
    weight: Option<Vec<f64>>,
    bias: Option<Vec<f64>>,
    centered: bool,
}

/// Mean, and the reciprocal of the root of the variance.
type Moments = (f64, f64);

impl Norm {
    fn of_rms(op: &RmsNorm, inputs: &[Tensor]) -> Self {
        let weight = op.weight.map(|format| numbers(format, &inputs[1]));
        Self { from: op.from, to: op.to, eps: op.eps.0.into(), weight, bias: None, centered: false }
    }

    fn of_layer(op: &LayerNorm, inputs: &[Tensor]) -> Self {
        let weight = op.weight.map(|format| numbers(format, &inputs[1]));
        let bias = op.bias.map(|format| numbers(format, &inputs[inputs.len() - 1]));
        Self { from: op.from, to: op.to, eps: op.eps.0.into(), weight, bias, centered: true }
    }

    /// The result with the fault; `None` where it has nothing to do with it.
    fn wrong(
        &self,
        fault: DemoFault,
        inputs: &[Tensor],
        right: &Tensor,
    ) -> Result<Option<Tensor>, TensorError> {
        let Some(&n @ 1..) = right.shape().last() else { return Ok(None) };
        let x = numbers(self.from, &inputs[0]);
        let Some(moments) = x.chunks(n).map(|row| self.moments(fault, row)).collect::<Option<Vec<Moments>>>()
        else {
            return Ok(None);
        };
        let element = |i: usize| {
            let ((mean, r), column) = (moments[i / n], i % n);
            let y = (x[i] - mean) * r;
            let y = self.weight.as_ref().map_or(y, |weight| y * weight[column]);
            code(self.to, self.bias.as_ref().map_or(y, |bias| y + bias[column]))
        };
        Tensor::from_fn(right.ty().clone(), Path::Parallel, element).map(Some)
    }

    fn moments(&self, fault: DemoFault, row: &[f64]) -> Option<Moments> {
        let n = row.len();
        let of = |row: &[f64], count: usize| {
            let mean = if self.centered { row.iter().sum::<f64>() / count as f64 } else { 0.0 };
            (mean, row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count as f64)
        };
        let reciprocal = |(mean, variance): (f64, f64)| (mean, 1.0 / (variance + self.eps).sqrt());
        match fault {
            DemoFault::EpsOutside if self.eps > 0.0 => {
                let (mean, variance) = of(row, n);
                Some((mean, 1.0 / (variance.sqrt() + self.eps)))
            }
            DemoFault::MeanOverWarps if !n.is_multiple_of(WARP) => {
                Some(reciprocal(of(row, n.next_multiple_of(WARP))))
            }
            DemoFault::RowTailDropped if !n.is_multiple_of(WARP) => {
                Some(reciprocal(of(&row[..n - n % WARP], n)))
            }
            DemoFault::OnePassVariance if self.centered => {
                let sum = |f: fn(f32) -> f32| row.iter().map(|&x| f(x as f32)).sum::<f32>() / n as f32;
                let (mean, squares) = (sum(|x| x), sum(|x| x * x));
                Some(reciprocal((mean.into(), (squares - mean * mean).into())))
            }
            _ => None,
        }
    }
}

fn numbers(format: Format, tensor: &Tensor) -> Vec<f64> {
    tensor.codes().map(|code| format.to_f64(code)).collect()
}

/// Rotated by other angles than the right ones.
fn turned(
    fault: DemoFault,
    op: &Rope,
    inputs: &[Tensor],
    right: &Tensor,
) -> Result<Option<Tensor>, TensorError> {
    let (x, positions) = (&inputs[0], &inputs[1]);
    let [_, heads, dim] = *x.shape() else { return Ok(None) };
    let rotated = op.rotated(dim);
    let angle = |position: u64, pair: usize| -> Option<f64> {
        let exponent = -2.0 * pair as f64 / rotated as f64;
        match fault {
            DemoFault::AngleF32 => Some((position as f32 * op.base.0.powf(exponent as f32)).into()),
            DemoFault::AngleF16 => {
                let angle = position as f64 * f64::from(op.base.0).powf(exponent);
                Some(F16.to_f64(code(F16, angle)))
            }
            _ => None,
        }
    };
    let element = |i: usize| {
        let column = i % dim;
        let (pair, distance, second) = match op.pairing {
            Pairing::Interleaved => (column / 2, 1, column % 2 == 1),
            Pairing::Halves => (column % (rotated / 2).max(1), rotated / 2, column >= rotated / 2),
        };
        let position = positions.code(i / (heads * dim));
        // At position 0 nothing turns.
        let angle = (column < rotated && position > 0).then(|| angle(position, pair)).flatten();
        let Some(angle) = angle else { return right.code(i) };
        let (sin, cos) = if op.inverse { (-angle.sin(), angle.cos()) } else { angle.sin_cos() };
        let number = |i: usize| op.from.to_f64(x.code(i));
        let y = if second {
            number(i - distance) * sin + number(i) * cos
        } else {
            number(i) * cos - number(i + distance) * sin
        };
        code(op.to, y)
    };
    let is_of_angles = matches!(fault, DemoFault::AngleF32 | DemoFault::AngleF16);
    is_of_angles.then(|| Tensor::from_fn(right.ty().clone(), Path::Parallel, element)).transpose()
}
