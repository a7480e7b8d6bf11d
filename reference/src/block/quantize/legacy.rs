//! Blocks of 32 with one factor: Q4_0, Q4_1, Q5_0, Q5_1.
//!
//! Formulas and edges are in the documentation of the [module above](super).

use super::{Fields, extreme, reciprocal};

/// Values 0 to 15 in the low nibbles of 16 bytes, 16 to 31 in the high ones.
pub(super) fn nibbles(codes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let (low, high) = codes.split_at(codes.len() / 2);
    low.iter().zip(high).map(|(low, high)| (low & 15) | high << 4)
}

/// Bit j is the fifth of code j.
fn fifth_bits(codes: &[u8]) -> u32 {
    codes.iter().enumerate().fold(0, |bits, (j, code)| bits | u32::from(code >> 4) << j)
}

/// Writes `d`; returns codes around n.
fn around(n: u8, x: &[f32], block: &mut Fields<'_>) -> Vec<u8> {
    let d = extreme(x) / -f32::from(n);
    let id = reciprocal(d);
    block.f16("d", d);
    let code = |x: &f32| (x * id + (f32::from(n) + 0.5)) as u8;
    x.iter().map(|x| code(x).min(2 * n - 1)).collect()
}

/// Writes `d` and `m`; returns codes up to n.
fn above_min(n: u8, x: &[f32], block: &mut Fields<'_>) -> Vec<u8> {
    let min = x.iter().fold(f32::MAX, |min, &x| if x < min { x } else { min });
    let max = x.iter().fold(f32::MIN, |max, &x| if x > max { x } else { max });
    let d = (max - min) / f32::from(n);
    let id = reciprocal(d);
    block.f16("d", d);
    block.f16("m", min);
    x.iter().map(|x| (((x - min) * id + 0.5) as u8).min(n)).collect()
}

pub(super) fn q4_0(x: &[f32], block: &mut Fields<'_>) {
    let codes = around(8, x, block);
    block.set("qs", nibbles(&codes));
}

pub(super) fn q4_1(x: &[f32], block: &mut Fields<'_>) {
    let codes = above_min(15, x, block);
    block.set("qs", nibbles(&codes));
}

pub(super) fn q5_0(x: &[f32], block: &mut Fields<'_>) {
    let codes = around(16, x, block);
    block.set("qh", fifth_bits(&codes).to_le_bytes());
    block.set("qs", nibbles(&codes));
}

pub(super) fn q5_1(x: &[f32], block: &mut Fields<'_>) {
    let codes = above_min(31, x, block);
    block.set("qh", fifth_bits(&codes).to_le_bytes());
    block.set("qs", nibbles(&codes));
}
