//! Nibbles that are looked up: IQ4_NL, IQ4_XS and ggml's MXFP4.

use super::legacy::nibbles;
use super::{Block, Unpacked, filled, half_e8m0};

/// The values of IQ4's nibbles.
pub const IQ4: [i16; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of E2M1; ggml has no -0.
pub const E2M1_DOUBLED: [i16; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `d * table[q]`, nibbles as in Q4_0.
pub(super) fn iq4_nl(block: Block<'_>) -> Unpacked {
    Unpacked::plain(block.f16("d"), nibbles(block.bytes("qs")).map(|q| IQ4[usize::from(q)]))
}

/// `d * (scale - 32) * table[q]`, groups of 32, each laid out as a block of IQ4_NL. The low
/// nibbles of scales are in `scales_l`, the low one first, two high bits each in `scales_h`.
pub(super) fn iq4_xs(block: Block<'_>) -> Unpacked {
    let (low, high) = (block.bytes("scales_l"), block.word("scales_h"));
    let scale = |j: usize| {
        let low = i16::from(low[j / 2] >> (j % 2 * 4) & 15);
        low + ((high >> (2 * j) & 3) << 4) as i16 - 32
    };
    let quants = block.bytes("qs").chunks(16).flat_map(nibbles).map(|q| IQ4[usize::from(q)]);
    Unpacked { group: 32, scales: filled((0..8).map(scale)), ..Unpacked::plain(block.f16("d"), quants) }
}

/// `2^(e - 128) * table[q]` with twice the values of E2M1, nibbles as in Q4_0. The scale of code
/// 255 is finite, unlike that of OCP MX.
pub(super) fn mxfp4(block: Block<'_>) -> Unpacked {
    let quants = nibbles(block.bytes("qs")).map(|q| E2M1_DOUBLED[usize::from(q)]);
    Unpacked::plain(half_e8m0(block.word("e")), quants)
}
