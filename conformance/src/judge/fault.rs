//! What kind of fault a wrong element shows, in words that name a cause.

use plumbline_reference::DType;
use plumbline_reference::format::{Class, Format};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of a mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A number became NaN.
    NanMade,
    /// A NaN became a number.
    NanLost,
    /// NaN, but not the right one.
    NanBits,
    /// An infinity is missing, invented or of the wrong sign.
    Infinity,
    /// Zero of the wrong sign.
    SignOfZero,
    /// The right magnitude with the wrong sign.
    Sign,
    /// The largest finite value where another is right, or another where it is right.
    Saturation,
    /// A subnormal result flushed, invented or wrong.
    Subnormal,
    /// A tie went to the wrong neighbour.
    Tie,
    /// The neighbour of the right code, not on a tie.
    Rounding,
    /// Bits set that no code of the type has.
    Padding,
    /// Any other wrong value.
    Value,
}

impl Fault {
    /// The kind of fault that `got` shows where `right` was expected; `exact` is the
    /// value that was rounded.
    #[must_use]
    pub fn of(dtype: DType, right: u64, got: u64, exact: Option<f64>) -> Self {
        let Some(format) = dtype.format() else { return Self::Value };
        if got & !dtype.code_mask() != 0 {
            return Self::Padding;
        }
        match (format.classify(right), format.classify(got)) {
            (Class::Nan, Class::Nan) => Self::NanBits,
            (Class::Nan, _) => Self::NanLost,
            (_, Class::Nan) => Self::NanMade,
            (Class::Zero, Class::Zero) => Self::SignOfZero,
            _ if right ^ got == format.sign_bit() => Self::Sign,
            (Class::Infinite, _) | (_, Class::Infinite) => Self::Infinity,
            _ if is_largest(format, right) || is_largest(format, got) => Self::Saturation,
            (Class::Subnormal, _) | (_, Class::Subnormal) => Self::Subnormal,
            _ if is_tie(format, right, got, exact) => Self::Tie,
            _ if format.next_up(right) == Some(got) || format.next_down(right) == Some(got) => Self::Rounding,
            _ => Self::Value,
        }
    }

    /// One line for a report.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NanMade => "a number became NaN",
            Self::NanLost => "a NaN became a number",
            Self::NanBits => "NaN with other bits",
            Self::Infinity => "wrong infinity",
            Self::SignOfZero => "wrong sign of zero",
            Self::Sign => "wrong sign",
            Self::Saturation => "wrong at the largest finite value",
            Self::Subnormal => "wrong subnormal",
            Self::Tie => "tie to the wrong neighbour",
            Self::Rounding => "one code off",
            Self::Padding => "bits set that no code has",
            Self::Value => "wrong value",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

fn is_largest(format: Format, code: u64) -> bool {
    code & !format.sign_bit() == format.max_finite()
}

fn is_tie(format: Format, right: u64, got: u64, exact: Option<f64>) -> bool {
    // Distances of values with few bits to a value near them are exact in f64.
    exact.is_some_and(|exact| (format.to_f64(right) - exact).abs() == (format.to_f64(got) - exact).abs())
}
