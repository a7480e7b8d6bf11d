//! Wrong roundings, which are wrong for few inputs.

use super::meaning::with;
use plumbline_reference::format::Format;
use plumbline_reference::ops::Op;
use plumbline_reference::{Path, Tensor, TensorError};

/// What goes wrong where a number is rounded to nearest, ties to even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingFault {
    /// A carry out of the fraction does not reach the exponent: 0.49999 becomes 0.25.
    CarryLost,
    /// Results between subnormal numbers are cut off.
    SubnormalsCut,
    /// Results between normal numbers are cut off.
    NormalsCut,
    /// Negative results are cut off.
    NegativesCut,
    /// A tie goes to the smaller magnitude.
    TiesCut,
    /// A negative number that rounds to 0 gets the sign, which is NaN where there is no -0.
    ZeroWithSign,
    /// What rounds up to the largest number becomes the one below.
    LargestLost,
}

impl EncodingFault {
    /// The outputs; `None` where the operation does not round so.
    pub(super) fn of(
        self,
        op: &Op,
        inputs: &[Tensor],
        right: &[Tensor],
    ) -> Result<Option<Vec<Tensor>>, TensorError> {
        let rounded = |rounding: &str| with(op, "rounding", rounding.into());
        if rounded("nearest_even").as_ref() != Some(op) {
            return Ok(None);
        }
        let Some(cut) = rounded("toward_zero").and_then(|op| op.evaluate(inputs, Path::fastest()).ok())
        else {
            return Ok(None);
        };
        let wrong = |(output, (right, cut)): (usize, (&Tensor, &Tensor))| {
            let Some(format) = right.dtype().format() else { return Ok(right.clone()) };
            let exact = |i: usize| op.exact(inputs, output, i);
            Tensor::from_fn(right.ty().clone(), Path::Definition, |i| {
                self.code(format, (right.code(i), cut.code(i)), &|| exact(i))
            })
        };
        right.iter().zip(&cut).enumerate().map(wrong).collect::<Result<_, _>>().map(Some)
    }

    /// A code, given the right one, the one that is cut off, and the number.
    fn code(self, format: Format, (right, cut): (u64, u64), exact: &dyn Fn() -> Option<f64>) -> u64 {
        let magnitude = |code: u64| code & !format.sign_bit();
        let fraction = (1u64 << (format.fraction_bits + format.low_padding)) - 1;
        let is_up = right != cut && !format.decode(right).is_nan() && !format.decode(cut).is_nan();
        let is_subnormal = format.subnormals && magnitude(cut) < format.min_normal();
        match self {
            Self::CarryLost if is_up && right & fraction == 0 => cut & !fraction,
            Self::SubnormalsCut if is_up && is_subnormal => cut,
            Self::NormalsCut if is_up && !is_subnormal => cut,
            Self::NegativesCut if is_up && format.signed && right & format.sign_bit() != 0 => cut,
            Self::TiesCut if is_up => {
                let middle = f64::midpoint(format.to_f64(right), format.to_f64(cut));
                if exact() == Some(middle) { cut } else { right }
            }
            Self::ZeroWithSign if right == 0 && format.signed && !format.has_negative_zero() => {
                if exact().is_some_and(f64::is_sign_negative) { format.sign_bit() } else { right }
            }
            Self::LargestLost if is_up && magnitude(right) == format.max_finite() => cut,
            _ => right,
        }
    }
}
