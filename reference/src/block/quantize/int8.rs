//! Integers of 8 bits: Q8_0, Q8_1 and Q8_K.
//!
//! `amax` is the largest magnitude, `round` the operation's rounding to an integer; the result is
//! clamped to -127 to 127, and NaN, which only `0 * Inf` makes, is 0.
//!
//! - Q8_0: `d = amax / 127`, `id = 1 / d` (0 for 0), `q = round(x * id)`; `d` is stored as f16 and
//!   `id` is of the f32.
//! - Q8_1: the same, and `s = d * sum(q)`, the product of the f32 `d` and the integer rounded to
//!   f32, then to f16.
//! - Q8_K: `max` is the first value of the largest magnitude, `iscale = -127 / max`,
//!   `q = round(iscale * x)`, so that `max` itself becomes -127; `d = 1 / iscale`, in f32; `bsums`
//!   are the sums of 16 `q` each. If all values are 0, so is everything.
//!
//! An `amax` below about 3.7e-37 makes `id` or `iscale` infinite, and the integers those of the signs.
//! `d` is 0 then, in f16 and in Q8_K, where it is -0 for a positive `max`: the values are zeros.

use super::{Fields, extreme, reciprocal, write};
use crate::block::BlockFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A format of 8-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Int8Format {
    /// 32 integers with a factor in f16.
    Q8_0,
    /// The same with a sum.
    Q8_1,
    /// 256 integers with a factor in f32 and sums of 16.
    #[serde(rename = "q8_K")]
    Q8K,
}

/// How a number becomes an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Int8Rounding {
    /// The nearest; of two the one away from zero.
    NearestAway,
    /// The nearest; of two the even one.
    NearestEven,
}

impl Int8Rounding {
    /// Both.
    pub const ALL: [Self; 2] = [Self::NearestAway, Self::NearestEven];

    /// The integer, from -127 to 127.
    fn round(self, x: f32) -> i8 {
        let integer = match self {
            Self::NearestAway => x.round(),
            Self::NearestEven => x.round_ties_even(),
        };
        (integer as i8).max(-127)
    }
}

impl Int8Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Q8_0, Self::Q8_1, Self::Q8K];

    /// The format of blocks.
    #[must_use]
    pub const fn blocks(self) -> BlockFormat {
        match self {
            Self::Q8_0 => BlockFormat::Q8_0,
            Self::Q8_1 => BlockFormat::Q8_1,
            Self::Q8K => BlockFormat::Q8K,
        }
    }

    /// The rounding of ggml's reference.
    #[must_use]
    pub const fn rounding(self) -> Int8Rounding {
        match self {
            Self::Q8_0 | Self::Q8_1 => Int8Rounding::NearestAway,
            Self::Q8K => Int8Rounding::NearestEven,
        }
    }

    /// Writes the block of these values.
    ///
    /// # Panics
    /// If there are not [`BlockFormat::values`] values and [`BlockFormat::bytes`] bytes.
    pub fn quantize_into(self, values: &[f32], rounding: Int8Rounding, bytes: &mut [u8]) {
        let quantizer = match self {
            Self::Q8_0 => q8_0,
            Self::Q8_1 => q8_1,
            Self::Q8K => q8_k,
        };
        write(self.blocks(), values, bytes, |values, block| quantizer(values, rounding, block));
    }
}

/// Writes `d` and `qs`; returns the f32 `d` and the sum of the integers.
fn scaled(x: &[f32], rounding: Int8Rounding, block: &mut Fields<'_>) -> (f32, i32) {
    let d = extreme(x).abs() / 127.0;
    let id = reciprocal(d);
    let q = x.iter().map(|x| rounding.round(x * id));
    block.f16("d", d);
    block.set("qs", q.clone().map(|q| q as u8));
    (d, q.map(i32::from).sum())
}

pub(super) fn q8_0(x: &[f32], rounding: Int8Rounding, block: &mut Fields<'_>) {
    scaled(x, rounding, block);
}

pub(super) fn q8_1(x: &[f32], rounding: Int8Rounding, block: &mut Fields<'_>) {
    let (d, sum) = scaled(x, rounding, block);
    block.f16("s", d * sum as f32);
}

pub(super) fn q8_k(x: &[f32], rounding: Int8Rounding, block: &mut Fields<'_>) {
    let max = extreme(x);
    if max == 0.0 {
        return;
    }
    let iscale = -127.0 / max;
    let q: Vec<_> = x.iter().map(|x| rounding.round(iscale * x)).collect();
    block.f32("d", 1.0 / iscale);
    block.set("qs", q.iter().map(|&q| q as u8));
    let sums = q.chunks_exact(16).map(|q| q.iter().map(|&q| i16::from(q)).sum::<i16>());
    block.set("bsums", sums.flat_map(i16::to_le_bytes));
}
