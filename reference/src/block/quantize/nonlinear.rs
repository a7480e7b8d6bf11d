//! Nibbles that are looked up: IQ4_NL, IQ4_XS and ggml's MXFP4.
//!
//! - IQ4: an entry of the table of 16 is that nearest to a number, the larger of two. With `max` the
//!   first value of the largest magnitude of a group of 32 (below 1e-15: scale 0), inverse scales to
//!   try are `1 / (-max / -127)` and then `(-127 + i) / max` for i from -7 to 7, taken as in the
//!   symmetric [search](super::search), with terms `((x * x) * q) * x` and `((x * x) * q) * q` of an
//!   entry q.
//! - IQ4_NL: the scale found is `d`, in f16; the entries are those nearest to `x * (1 / scale)`, of
//!   the f32, 0 for a scale of 0.
//! - IQ4_XS: with `max` the first scale of the largest magnitude, `d = -max / 32`, a scale is
//!   `nearest(1 / d * scale)` from -32 to 31, and entries are those nearest to
//!   `1 / (d * scale) * x`, of the f32 `d`, 0 for 0.
//! - MXFP4: `e = floor(log2(amax)) + 125`, the logarithm rounded to f32, from 0; 0 if all values
//!   are. The entry is the first of those for which `abs(entry * 2^(e - 128) - x)` is least, product
//!   and difference in f32.

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

pub(super) fn mxfp4(x: &[f32], block: &mut Fields<'_>) {
    let x: Vec<_> = x.iter().map(|x| if x.is_nan() { 0.0 } else { x.clamp(f32::MIN, f32::MAX) }).collect();
    let amax = extreme(&x).abs();
    let e = if amax == 0.0 { 0 } else { ((f64::from(amax).log2() as f32).floor() + 125.0) as u8 };
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
