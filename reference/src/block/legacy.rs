//! Blocks of 32 values with one factor each: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1.

use super::{Block, MAX_VALUES, Unpacked, filled};

/// The low nibbles of 16 bytes are values 0 to 15, the high ones 16 to 31.
pub(super) fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let low = bytes.iter().map(|byte| byte & 15);
    low.chain(bytes.iter().map(|byte| byte >> 4))
}

/// Nibbles with a fifth bit: bit j of `qh` is that of value j.
fn fives<'a>(block: &Block<'a>) -> impl Iterator<Item = i16> + 'a {
    let qh = block.word("qh");
    nibbles(block.bytes("qs")).enumerate().map(move |(j, q)| i16::from(q) | ((qh >> j & 1) << 4) as i16)
}

/// A min `m` as it is.
fn with_min(unpacked: Unpacked, m: f64) -> Unpacked {
    Unpacked { m: Some(m), group: MAX_VALUES, mins: filled([1]), ..unpacked }
}

/// `d * (q - 8)`.
pub(super) fn q4_0(block: Block<'_>) -> Unpacked {
    Unpacked::plain(block.f16("d"), nibbles(block.bytes("qs")).map(|q| i16::from(q) - 8))
}

/// `d * q + m`.
pub(super) fn q4_1(block: Block<'_>) -> Unpacked {
    let products = Unpacked::plain(block.f16("d"), nibbles(block.bytes("qs")).map(i16::from));
    with_min(products, block.f16("m"))
}

/// `d * (q - 16)`.
pub(super) fn q5_0(block: Block<'_>) -> Unpacked {
    Unpacked::plain(block.f16("d"), fives(&block).map(|q| q - 16))
}

/// `d * q + m`.
pub(super) fn q5_1(block: Block<'_>) -> Unpacked {
    with_min(Unpacked::plain(block.f16("d"), fives(&block)), block.f16("m"))
}

/// `d * q`. The sum `s` of Q8_1 is not read.
pub(super) fn q8_0(block: Block<'_>) -> Unpacked {
    Unpacked::plain(block.f16("d"), block.i8s("qs"))
}
