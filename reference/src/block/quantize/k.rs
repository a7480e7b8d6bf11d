//! The k-quants: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
//!
//! Formulas and edges are in the documentation of the [module above](super).

use super::search::{NEGLIGIBLE, WithMin, nearest, one_at_a_time, symmetric};
use super::{Fields, extreme};
use crate::block::{pack_scales, pack_scales_and_mins};

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
struct WithMins<const GROUPS: usize> {
    scales: [u8; GROUPS],
    mins: [u8; GROUPS],
    codes: Vec<u8>,
}

/// Numbers that are not negative as integers up to n: the integers, and the factor.
fn up_to<const GROUPS: usize>(n: u8, numbers: [f32; GROUPS]) -> ([u8; GROUPS], f32) {
    let largest = numbers.iter().fold(0.0, |max, &x| if x > max { x } else { max });
    let inverse = if largest > 0.0 { f32::from(n) / largest } else { 0.0 };
    let integers = numbers.map(|x| nearest(inverse * x).clamp(0, n.into()) as u8);
    (integers, largest / f32::from(n))
}

/// Writes `d` and `dmin`; scales and mins, of as many groups, go up to n.
fn with_mins<const GROUPS: usize>(
    x: &[f32],
    search: &WithMin,
    n: u8,
    weights: impl Fn(&[f32]) -> Vec<f32>,
    block: &mut Fields<'_>,
) -> WithMins<GROUPS> {
    let group = 256 / GROUPS;
    let mut quants = [0; 256];
    let (mut scales, mut mins) = ([0.0; GROUPS], [0.0; GROUPS]);
    for (j, (x, quants)) in x.chunks_exact(group).zip(quants.chunks_exact_mut(group)).enumerate() {
        let (scale, min) = search.search(x, &weights(x), quants);
        (scales[j], mins[j]) = (scale, -min);
    }
    let ((scales, d), (mins, dmin)) = (up_to(n, scales), up_to(n, mins));
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
    let WithMins { scales, mins, codes } = with_mins::<16>(x, &search, 15, magnitudes, block);
    block.set("scales", scales.iter().zip(&mins).map(|(scale, min)| scale | min << 4));
    block.set("qs", two_bits(&codes));
}

/// Above the root of the mean square.
fn above_mean(x: &[f32]) -> Vec<f32> {
    let sum = x.iter().fold(0.0, |sum, x| sum + x * x);
    let mean = (sum / 32.0).sqrt();
    x.iter().map(|x| mean + x.abs()).collect()
}

pub(super) fn q4_k(x: &[f32], block: &mut Fields<'_>) {
    let search = WithMin { n: 15, first: -1.0, step: 0.1, steps: 20, squares: true };
    let WithMins { scales, mins, codes } = with_mins(x, &search, 63, above_mean, block);
    block.set("scales", pack_scales_and_mins(&scales, &mins));
    block.set("qs", nibbles(&codes));
}

pub(super) fn q5_k(x: &[f32], block: &mut Fields<'_>) {
    let search = WithMin { n: 31, first: -0.5, step: 0.1, steps: 15, squares: true };
    let WithMins { scales, mins, codes } = with_mins(x, &search, 63, above_mean, block);
    block.set("scales", pack_scales_and_mins(&scales, &mins));
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
fn scales_of(x: &[f32], quants: &mut [i32], search: impl Fn(&[f32], &mut [i32]) -> f32) -> [f32; 16] {
    let mut scales = [0.0; 16];
    for (scale, (x, quants)) in scales.iter_mut().zip(x.chunks_exact(16).zip(quants.chunks_exact_mut(16))) {
        *scale = search(x, quants);
    }
    scales
}

pub(super) fn q3_k(x: &[f32], block: &mut Fields<'_>) {
    let mut quants = [0; 256];
    let scales = scales_of(x, &mut quants, |x, quants| one_at_a_time(x, 4, quants));
    let max = extreme(&scales);
    if max != 0.0 {
        let inverse = -32.0 / max;
        let integers = scales.map(|x| nearest(inverse * x).clamp(-32, 31));
        let d = block.f16("d", 1.0 / inverse);
        block.set("scales", pack_scales(&integers.map(|scale| (scale + 32) as u8)));
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
