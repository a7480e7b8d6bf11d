//! Nibbles that are looked up: IQ4_NL, IQ4_XS and ggml's MXFP4.
//!
//! Formulas and edges are in the documentation of the [module above](super).

use super::legacy::nibbles;
use super::search::{NEGLIGIBLE, Sums, best_inverse, nearest};
use super::{Fields, extreme, reciprocal};
use crate::block::half_e8m0;
use crate::block::nonlinear::{E2M1_DOUBLED, IQ4};

/// The entry of IQ4's table that is nearest to x.
fn nearest_entry(x: f32) -> usize {
    let above = IQ4.iter().position(|&entry| f32::from(entry) > x).unwrap_or(16);
    match above {
        0 => 0,
        16 => 15,
        _ => {
            let [low, high] = [above - 1, above].map(|entry| f32::from(IQ4[entry]));
            if x - low < high - x { above - 1 } else { above }
        }
    }
}

/// What a value and its entry add to the sums: `((x * x) * q) * x` and `((x * x) * q) * q`.
fn terms(x: f32, q: f32) -> Sums {
    let wq = x * x * q;
    Sums { xq: wq * x, qq: wq * q }
}

/// The scale of a group.
fn scale(x: &[f32]) -> f32 {
    let max = extreme(x);
    if max.abs() < NEGLIGIBLE {
        return 0.0;
    }
    let lowest = f32::from(IQ4[0]);
    let others = (-7..=7).map(|i| (f32::from(IQ4[0] + i)) / max);
    let entry = |x: f32| f32::from(IQ4[nearest_entry(x)]);
    best_inverse(x, entry, terms, 1.0 / (-max / lowest), others).0
}

/// The nearest entries of values times an inverse scale.
fn entries(x: &[f32], inverse: f32) -> Vec<u8> {
    x.iter().map(|x| nearest_entry(inverse * x) as u8).collect()
}

pub(super) fn iq4_nl(x: &[f32], block: &mut Fields<'_>) {
    let scale = scale(x);
    block.f16("d", scale);
    block.set("qs", nibbles(&entries(x, reciprocal(scale))));
}

pub(super) fn iq4_xs(x: &[f32], block: &mut Fields<'_>) {
    let scales: Vec<_> = x.chunks_exact(32).map(scale).collect();
    let d = -extreme(&scales) / 32.0;
    block.f16("d", d);
    let id = reciprocal(d);
    let integers: Vec<_> = scales.iter().map(|scale| nearest(id * scale).clamp(-32, 31)).collect();
    let codes: Vec<_> = integers.iter().map(|scale| (scale + 32) as u8).collect();
    let high = codes.iter().enumerate().fold(0, |bits, (j, code)| bits | u16::from(code >> 4) << (2 * j));
    block.set("scales_h", high.to_le_bytes());
    block.set("scales_l", codes.chunks_exact(2).map(|pair| pair[0] & 15 | pair[1] << 4));
    let groups = x.chunks_exact(32).zip(&integers);
    let qs = groups.flat_map(|(x, &scale)| {
        let entries = entries(x, reciprocal(d * scale as f32));
        nibbles(&entries).collect::<Vec<_>>()
    });
    block.set("qs", qs);
}

/// `floor(log2(x))` of a positive normal number, the logarithm correctly rounded to f32: the
/// exponent, and one more where the logarithm rounds up to it. 0 and subnormals give at most -126.
///
/// `2^k * (1 - m / 2^24)` has the logarithm `k - m / (2^24 ln 2)`, to first order. That is k in f32
/// if the distance is less than half of what two f32 are apart there: `2^(i - 24)`, where i is the
/// exponent of the integer part of the logarithm's magnitude. So m is at most `2^i ln 2`, and the
/// second order is too small to matter.
fn floor_log2(x: f32) -> i32 {
    const MOST: [u32; 7] = [0, 1, 2, 5, 11, 22, 44];
    let exponent = (x.to_bits() >> 23) as i32 - 127;
    let m = 0x0080_0000 - (x.to_bits() & 0x007f_ffff);
    let integer_part = if exponent < 0 { -1 - exponent } else { exponent };
    // Between -1 and 1 a logarithm is never rounded to an integer that it is not.
    let most = integer_part.checked_ilog2().map_or(0, |i| MOST[i as usize]);
    exponent + i32::from(m <= most)
}

pub(super) fn mxfp4(x: &[f32], block: &mut Fields<'_>) {
    let x: Vec<_> = x.iter().map(|x| if x.is_nan() { 0.0 } else { x.clamp(f32::MIN, f32::MAX) }).collect();
    let e = (floor_log2(extreme(&x).abs()) + 125).max(0) as u8;
    let scale = half_e8m0(e.into()) as f32;
    let entry = |x: &f32| {
        let error = |entry: usize| (f32::from(E2M1_DOUBLED[entry]) * scale - x).abs();
        let best = (1..16).fold(0, |best, entry| if error(entry) < error(best) { entry } else { best });
        best as u8
    };
    let entries: Vec<_> = x.iter().map(entry).collect();
    block.set("e", [e]);
    block.set("qs", nibbles(&entries));
}
