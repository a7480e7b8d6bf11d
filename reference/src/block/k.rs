//! The k-quants: super-blocks of 256 values in groups of 16 or 32, each with a scale.

use super::{Block, Unpacked, filled};

/// Two bits of value v: 32 bytes hold 128 values, each byte one of every 32.
pub(super) fn two_bits(qs: &[u8], v: usize) -> i16 {
    i16::from(qs[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3)
}

/// The nibble of value v: 32 bytes hold 64 values, the low nibbles the first 32.
fn nibble(qs: &[u8], v: usize) -> i16 {
    i16::from(qs[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15)
}

/// Scale and min of sub-block j of Q4_K and Q5_K: 16 numbers of 6 bits in 12 bytes.
fn scale_and_min(s: &[u8], j: usize) -> (i16, i16) {
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
    };
    (scale.into(), min.into())
}

/// The field `scales` of Q4_K and Q5_K: scales and mins of six bits, whose higher ones are left out.
///
/// The first four of each are bytes of their own, whose two high bits are those of the last four; the
/// low nibbles of these follow, scale before min.
#[must_use]
pub fn pack_scales_and_mins(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] & 63 | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] & 63 | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    bytes
}

/// The field `scales` of Q3_K: scales of six bits, whose higher ones are left out, as codes: 32 more
/// than they are.
///
/// Byte j of the first eight has the low nibbles of scales j and j + 8; byte j of the last four has
/// the two high bits of scales j, j + 4, j + 8 and j + 12.
#[must_use]
pub fn pack_scales(codes: &[u8; 16]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (j, code) in codes.iter().enumerate() {
        bytes[j % 8] |= (code & 15) << (j / 8 * 4);
        bytes[8 + j % 4] |= (code >> 4 & 3) << (j / 4 * 2);
    }
    bytes
}

/// `d * (scales & 15) * q - dmin * (scales >> 4)`, groups of 16.
pub(super) fn q2_k(block: Block<'_>) -> Unpacked {
    let (scales, qs) = (block.bytes("scales"), block.bytes("qs"));
    Unpacked {
        d: block.f16("d"),
        m: Some(-block.f16("dmin")),
        group: 16,
        scales: filled(scales.iter().map(|&s| i16::from(s & 15))),
        mins: filled(scales.iter().map(|&s| i16::from(s >> 4))),
        quants: filled((0..256).map(|v| two_bits(qs, v))),
    }
}

/// `d * (scale - 32) * (q - 4 + 4 * high)`, groups of 16. Bit v / 32 of byte v % 32 of `hmask`
/// is the high bit of value v. A scale's low nibble is in the first eight bytes, its two high
/// bits in the last four.
pub(super) fn q3_k(block: Block<'_>) -> Unpacked {
    let (hmask, qs, s) = (block.bytes("hmask"), block.bytes("qs"), block.bytes("scales"));
    let scale = |j: usize| {
        let low = s[j % 8] >> (j / 8 * 4) & 15;
        let high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        i16::from(low | high << 4) - 32
    };
    let high = |v: usize| i16::from(hmask[v % 32] >> (v / 32) & 1);
    Unpacked {
        d: block.f16("d"),
        m: None,
        group: 16,
        scales: filled((0..16).map(scale)),
        mins: filled([]),
        quants: filled((0..256).map(|v| two_bits(qs, v) + 4 * high(v) - 4)),
    }
}

/// `d * scale * q - dmin * min`, groups of 32.
pub(super) fn q4_k(block: Block<'_>) -> Unpacked {
    let (s, qs) = (block.bytes("scales"), block.bytes("qs"));
    Unpacked {
        d: block.f16("d"),
        m: Some(-block.f16("dmin")),
        group: 32,
        scales: filled((0..8).map(|j| scale_and_min(s, j).0)),
        mins: filled((0..8).map(|j| scale_and_min(s, j).1)),
        quants: filled((0..256).map(|v| nibble(qs, v))),
    }
}

/// As Q4_K; bit v / 32 of byte v % 32 of `qh` is the fifth bit of value v.
pub(super) fn q5_k(block: Block<'_>) -> Unpacked {
    let (qh, qs) = (block.bytes("qh"), block.bytes("qs"));
    let fifth = |v: usize| i16::from(qh[v % 32] >> (v / 32) & 1);
    Unpacked { quants: filled((0..256).map(|v| nibble(qs, v) + 16 * fifth(v))), ..q4_k(block) }
}

/// `d * scale * (q - 32)`, groups of 16. 64 bytes of `ql` hold the low nibbles of 128 values, 32
/// bytes of `qh` their two high bits.
pub(super) fn q6_k(block: Block<'_>) -> Unpacked {
    let (ql, qh) = (block.bytes("ql"), block.bytes("qh"));
    let low = |v: usize| i16::from(ql[v / 128 * 64 + v % 64] >> (v % 128 / 64 * 4) & 15);
    Unpacked {
        d: block.f16("d"),
        m: None,
        group: 16,
        scales: filled(block.i8s("scales")),
        mins: filled([]),
        quants: filled((0..256).map(|v| low(v) + 16 * two_bits(qh, v) - 32)),
    }
}

/// `d * q` with d in f32. The sums are not read.
pub(super) fn q8_k(block: Block<'_>) -> Unpacked {
    Unpacked::plain(block.f32("d"), block.i8s("qs"))
}
