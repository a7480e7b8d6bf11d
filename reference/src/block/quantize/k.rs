//! The k-quants: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
//!
//! Each group of 16 or 32 values gets a scale, or a scale and a min, by a search; then these are
//! quantized themselves, and the integers follow anew from what is stored.
//!
//! - Q2_K, Q4_K, Q5_K: with n = 15 (Q2_K) or 63, `inverse = n / largest scale` (0 if none is above
//!   0), a scale is `nearest(inverse * scale)`, and `d = largest scale / n` in f16; mins, whose sign
//!   is turned, likewise with `dmin`. A group whose `d * scale` is not 0 has
//!   `q = nearest((x + dmin * min) / (d * scale))`; others keep those of the search.
//!   The [search](super::search) is that with a min.
//!
//!   | | n | first, step, steps | weights | errors |
//!   |---|---|---|---|---|
//!   | Q2_K | 3 | -0.5, 0.1, 15 | `abs(x)` | magnitudes |
//!   | Q4_K | 15 | -1, 0.1, 20 | `sqrt(sum x^2 / 32) + abs(x)` | squares |
//!   | Q5_K | 31 | -0.5, 0.1, 15 | `sqrt(sum x^2 / 32) + abs(x)` | squares |
//!
//! - Q3_K, Q6_K: with n = 32 or 128 and `max` the first scale of the largest magnitude,
//!   `inverse = -n / max`, a scale is `nearest(inverse * scale)` from -n to n - 1, and
//!   `d = 1 / inverse` in f16. `q = nearest(x / (d * scale))` where `d * scale` is not 0.
//!   The search is one at a time for Q3_K, with n = 4; symmetric for Q6_K, with n = 32. Where all
//!   scales are 0, or below 1e-15 in Q6_K, all of Q6_K's block is 0, and the bytes of Q3_K's `d` and
//!   scales are.

use super::search::{NEGLIGIBLE, WithMin, nearest, one_at_a_time, symmetric};
use super::{Fields, extreme};

/// Two bits of each code: 32 bytes hold 128 values, each byte one of every 32.
pub(super) fn two_bits(codes: &[u8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (v, code) in codes.iter().enumerate() {
        bytes[v / 128 * 32 + v % 32] |= (code & 3) << (v % 128 / 32 * 2);
    }
    bytes
}

/// The low nibble of each code: 32 bytes hold 64 values, the low nibbles the first 32.
fn nibbles(codes: &[u8]) -> [u8; 128] {
    let mut bytes = [0; 128];
    for (v, code) in codes.iter().enumerate() {
        bytes[v / 64 * 32 + v % 32] |= (code & 15) << (v % 64 / 32 * 4);
    }
    bytes
}

/// A bit of each code: bit v / 32 of byte v % 32 is that of value v.
fn bits(codes: &[u8], bit: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (v, code) in codes.iter().enumerate() {
        bytes[v % 32] |= (code >> bit & 1) << (v / 32);
    }
    bytes
}

/// Integers that are at least `-offset` as codes from 0.
fn codes(quants: &[i32], offset: i32) -> Vec<u8> {
    quants.iter().map(|q| (q + offset) as u8).collect()
}

/// A block with mins before it is packed.
struct WithMins {
    scales: Vec<u8>,
    mins: Vec<u8>,
    codes: Vec<u8>,
}

/// Numbers that are not negative as integers up to n: the integers, and the factor.
fn up_to(n: u8, numbers: &[f32]) -> (Vec<u8>, f32) {
    let largest = numbers.iter().fold(0.0, |max, &x| if x > max { x } else { max });
    let inverse = if largest > 0.0 { f32::from(n) / largest } else { 0.0 };
    let integers = numbers.iter().map(|x| nearest(inverse * x).clamp(0, n.into()) as u8);
    (integers.collect(), largest / f32::from(n))
}

/// Writes `d` and `dmin`; scales and mins go up to n.
fn with_mins(
    x: &[f32],
    search: &WithMin,
    group: usize,
    n: u8,
    weights: impl Fn(&[f32]) -> Vec<f32>,
    block: &mut Fields<'_>,
) -> WithMins {
    let mut quants = [0; 256];
    let groups = x.chunks_exact(group).zip(quants.chunks_exact_mut(group));
    let found = groups.map(|(x, quants)| search.search(x, &weights(x), quants));
    let (scales, mins): (Vec<_>, Vec<_>) = found.map(|(scale, min)| (scale, -min)).unzip();
    let ((scales, d), (mins, dmin)) = (up_to(n, &scales), up_to(n, &mins));
    let (d, dmin) = (block.f16("d", d), block.f16("dmin", dmin));
    for (j, (x, quants)) in x.chunks_exact(group).zip(quants.chunks_exact_mut(group)).enumerate() {
        let scale = d * f32::from(scales[j]);
        if scale == 0.0 {
            continue;
        }
        let min = dmin * f32::from(mins[j]);
        for (q, x) in quants.iter_mut().zip(x) {
            *q = nearest((x + min) / scale).clamp(0, search.n.into());
        }
    }
    WithMins { scales, mins, codes: codes(&quants, 0) }
}

pub(super) fn q2_k(x: &[f32], block: &mut Fields<'_>) {
    let search = WithMin { n: 3, first: -0.5, step: 0.1, steps: 15, squares: false };
    let magnitudes = |x: &[f32]| x.iter().map(|x| x.abs()).collect();
    let WithMins { scales, mins, codes } = with_mins(x, &search, 16, 15, magnitudes, block);
    block.set("scales", scales.iter().zip(&mins).map(|(scale, min)| scale | min << 4));
    block.set("qs", two_bits(&codes));
}

/// Above the root of the mean square.
fn above_mean(x: &[f32]) -> Vec<f32> {
    let sum = x.iter().fold(0.0, |sum, x| sum + x * x);
    let mean = (sum / 32.0).sqrt();
    x.iter().map(|x| mean + x.abs()).collect()
}

/// Eight scales and eight mins of 6 bits in 12 bytes: the first four of each are bytes of their
/// own, whose two high bits are those of the last four; the low nibbles of these follow, scale
/// before min.
fn scales_and_mins(scales: &[u8], mins: &[u8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    bytes
}

pub(super) fn q4_k(x: &[f32], block: &mut Fields<'_>) {
    let search = WithMin { n: 15, first: -1.0, step: 0.1, steps: 20, squares: true };
    let WithMins { scales, mins, codes } = with_mins(x, &search, 32, 63, above_mean, block);
    block.set("scales", scales_and_mins(&scales, &mins));
    block.set("qs", nibbles(&codes));
}

pub(super) fn q5_k(x: &[f32], block: &mut Fields<'_>) {
    let search = WithMin { n: 31, first: -0.5, step: 0.1, steps: 15, squares: true };
    let WithMins { scales, mins, codes } = with_mins(x, &search, 32, 63, above_mean, block);
    block.set("scales", scales_and_mins(&scales, &mins));
    block.set("qh", bits(&codes, 4));
    block.set("qs", nibbles(&codes));
}

/// Integers anew, of groups of 16 whose factor is not 0.
fn again(x: &[f32], n: i32, d: f32, scales: &[i32], quants: &mut [i32]) {
    for ((x, quants), &scale) in x.chunks_exact(16).zip(quants.chunks_exact_mut(16)).zip(scales) {
        let factor = d * scale as f32;
        if factor == 0.0 {
            continue;
        }
        for (q, x) in quants.iter_mut().zip(x) {
            *q = nearest(x / factor).clamp(-n, n - 1);
        }
    }
}

/// The sixteen scales of a block.
fn scales_of(x: &[f32], quants: &mut [i32], search: impl Fn(&[f32], &mut [i32]) -> f32) -> Vec<f32> {
    x.chunks_exact(16).zip(quants.chunks_exact_mut(16)).map(|(x, quants)| search(x, quants)).collect()
}

/// The low nibbles of 16 codes of 6 bits in eight bytes, their high bits in four.
fn six_bits(codes: &[u8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (j, code) in codes.iter().enumerate() {
        bytes[j % 8] |= (code & 15) << (j / 8 * 4);
        bytes[8 + j % 4] |= (code >> 4) << (j / 4 * 2);
    }
    bytes
}

pub(super) fn q3_k(x: &[f32], block: &mut Fields<'_>) {
    let mut quants = [0; 256];
    let scales = scales_of(x, &mut quants, |x, quants| one_at_a_time(x, 4, quants));
    let max = extreme(&scales);
    if max != 0.0 {
        let inverse = -32.0 / max;
        let integers: Vec<_> = scales.iter().map(|x| nearest(inverse * x).clamp(-32, 31)).collect();
        let d = block.f16("d", 1.0 / inverse);
        block.set("scales", six_bits(&codes(&integers, 32)));
        again(x, 4, d, &integers, &mut quants);
    }
    let codes = codes(&quants, 4);
    block.set("hmask", bits(&codes, 2));
    block.set("qs", two_bits(&codes));
}

pub(super) fn q6_k(x: &[f32], block: &mut Fields<'_>) {
    let mut quants = [0; 256];
    let scales = scales_of(x, &mut quants, |x, quants| symmetric(x, 32, quants));
    let max = extreme(&scales);
    if max.abs() < NEGLIGIBLE {
        return;
    }
    let inverse = -128.0 / max;
    let integers: Vec<_> = scales.iter().map(|x| nearest(inverse * x).clamp(-128, 127)).collect();
    let d = block.f16("d", 1.0 / inverse);
    again(x, 32, d, &integers, &mut quants);
    let codes = codes(&quants, 32);
    let mut low = [0; 128];
    for (v, code) in codes.iter().enumerate() {
        low[v / 128 * 64 + v % 64] |= (code & 15) << (v % 128 / 64 * 4);
    }
    let high: Vec<_> = codes.iter().map(|code| code >> 4).collect();
    block.set("ql", low);
    block.set("qh", two_bits(&high));
    block.set("scales", integers.iter().map(|&scale| scale as u8));
}
