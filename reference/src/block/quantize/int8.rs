//! Integers of 8 bits: Q8_0, Q8_1 and Q8_K.
//!
//! Formulas and edges are in the documentation of the [module above](super).

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
