//! The exact formula on sums that fit 128 bits: the common case, several times as fast.

use super::{Gemm, GemmScale};
use crate::format::{F32, Format, Value};
use crate::{Exact, Tensor};

/// What the formula does to a sum.
pub(super) struct Short<'a> {
    alpha: Factor,
    scale_a: Vec<Factor>,
    scale_b: Vec<Factor>,
    scale_out: Factor,
    c: Option<(Factor, &'a Tensor, Format)>,
    bias: Option<(&'a Tensor, Format)>,
}

/// `integer * 2^unit`, the integer odd or zero; `None` where it is not finite.
type Factor = Option<(i64, i32)>;

fn factor(value: Value) -> Factor {
    match value {
        Value::Finite { significand: 0, .. } => Some((0, 0)),
        Value::Finite { negative, significand, exponent } => {
            let zeros = significand.trailing_zeros();
            let integer = i64::try_from(significand >> zeros).ok()?;
            Some((if negative { -integer } else { integer }, exponent + zeros as i32))
        }
        Value::Nan { .. } | Value::Infinite { .. } => None,
    }
}

impl<'a> Short<'a> {
    pub(super) fn of(gemm: &Gemm, inputs: &'a [Tensor]) -> Self {
        let one = || vec![Some((1, 0))];
        let scales = |scale: GemmScale, name: &str| match (scale, gemm.input(inputs, name)) {
            (GemmScale::None, _) | (_, None) => one(),
            (_, Some(scales)) => scales.codes().map(|code| factor(F32.decode(code))).collect(),
        };
        let scale_out = gemm.input(inputs, "scale_out");
        Self {
            alpha: factor(Value::from(gemm.alpha.0)),
            scale_a: scales(gemm.scale_a, "scale_a"),
            scale_b: scales(gemm.scale_b, "scale_b"),
            scale_out: scale_out.map_or(Some((1, 0)), |scale| factor(F32.decode(scale.code(0)))),
            c: gemm
                .input(inputs, "c")
                .zip(gemm.c)
                .filter(|_| gemm.reads_c())
                .map(|(c, format)| (factor(Value::from(gemm.beta.0)), c, format)),
            bias: gemm.input(inputs, "bias").zip(gemm.bias),
        }
    }

    /// The value of the element whose products have that sum. `None` where a number is not
    /// finite, does not fit, or is a zero whose sign is to be found.
    pub(super) fn value(
        &self,
        integer: i128,
        unit: i32,
        position: usize,
        m: usize,
        n: usize,
    ) -> Option<Value> {
        let one_of = |scales: &[Factor], i: usize| if scales.len() == 1 { scales[0] } else { scales[i] };
        let mut sum = (integer, unit);
        for factor in [self.alpha, one_of(&self.scale_a, m), one_of(&self.scale_b, n)] {
            sum = times(sum, factor?)?;
        }
        if let Some((beta, c, format)) = self.c {
            let (beta, beta_unit) = beta?;
            let (c, c_unit) = factor(format.decode(c.code(position)))?;
            sum = plus(sum, (i128::from(beta) * i128::from(c), beta_unit + c_unit))?;
        }
        if let Some((bias, format)) = self.bias {
            let (bias, unit) = factor(format.decode(bias.code(n)))?;
            sum = plus(sum, (bias.into(), unit))?;
        }
        value(times(sum, self.scale_out?)?)
    }
}

fn times((integer, unit): (i128, i32), (factor, weight): (i64, i32)) -> Option<(i128, i32)> {
    if factor == 1 {
        return Some((integer, unit + weight));
    }
    Some((integer.checked_mul(factor.into())?, unit + weight))
}

fn plus(a: (i128, i32), b: (i128, i32)) -> Option<(i128, i32)> {
    let (low, high) = if a.1 <= b.1 { (a, b) } else { (b, a) };
    let shift = high.1.abs_diff(low.1);
    let aligned = high.0.checked_mul(1i128.checked_shl(shift).filter(|&power| power > 0)?)?;
    Some((aligned.checked_add(low.0)?, low.1))
}

/// For rounding, as [`Exact::value`].
fn value((integer, unit): (i128, i32)) -> Option<Value> {
    if integer == 0 {
        return None;
    }
    let magnitude = integer.unsigned_abs();
    let spill = (128 - magnitude.leading_zeros()).saturating_sub(64);
    let left_out = magnitude & ((1 << spill) - 1) != 0;
    let significand = (magnitude >> spill) as u64 | u64::from(left_out);
    Some(Value::Finite { negative: integer < 0, significand, exponent: unit + spill as i32 })
}

/// A sum of products in an accumulator that began at +0.
pub(super) fn exact(integer: i128, unit: i32) -> Exact {
    let (negative, magnitude) = (integer < 0, integer.unsigned_abs());
    let mut sum = Exact::default();
    sum.add_product(Value::from(0f32), Value::from(0f32));
    for (significand, exponent) in [(magnitude as u64, unit), ((magnitude >> 64) as u64, unit + 64)] {
        sum.add_product(Value::Finite { negative, significand, exponent }, Value::from(1f32));
    }
    sum
}
