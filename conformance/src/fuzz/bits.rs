//! Bits of inputs, most of them where conversions go wrong.
//!
//! Everything is a function of a seed and a counter, so that a sample is made again
//! from its seed alone.

use crate::generate::{sampled_edges, sampled_midpoints};
use crate::seed::mix;
use plumbline_reference::format::{F32, Format, Policy, Value};

/// A stream of random numbers.
pub(super) struct Random {
    seed: u64,
    next: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    pub(super) fn word(&mut self) -> u64 {
        self.next += 1;
        mix(self.seed, self.next)
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    /// One of the values; `None` of none.
    pub(super) fn pick<T: Copy>(&mut self, values: &[T]) -> Option<T> {
        if values.is_empty() { None } else { Some(values[self.below(values.len())]) }
    }
}

/// What elements of one format are drawn from on their way to another.
#[derive(Debug)]
pub(super) struct Pool {
    from: Format,
    /// Codes of the class `edges`.
    edges: Vec<u64>,
    /// Zeros, infinities, NaNs, largest and smallest values.
    specials: Vec<u64>,
    /// Midpoints of the target.
    midpoints: Vec<f64>,
}

impl Pool {
    pub(super) fn new(from: Format, to: Option<Format>, seed: u64) -> Self {
        let midpoints = to.map_or_else(Vec::new, |to| sampled_midpoints(to, seed));
        Self { from, edges: sampled_edges(from, to, seed), specials: specials(from, to), midpoints }
    }

    /// An element: mostly an edge; where it will be scaled, as often a midpoint of the
    /// target as it looks before; sometimes a special value, an edge with one bit flipped,
    /// or any bits.
    pub(super) fn element(&self, random: &mut Random, unit: Option<f64>) -> u64 {
        let any = random.word() & self.from.code_mask();
        match (random.below(10), unit) {
            (0..=4, Some(unit)) => self.before_scaling(random, unit).unwrap_or(any),
            (0, None) | (5, _) => any,
            (6, _) => {
                let bit = self.from.code_at(1 << random.below(self.from.code_bits() as usize));
                random.pick(&self.edges).map_or(any, |edge| edge ^ bit)
            }
            (7, _) => random.pick(&self.specials).unwrap_or(any),
            _ => random.pick(&self.edges).unwrap_or(any),
        }
    }

    /// What an operation that scales 1 from `unit` scales to about a midpoint: rounding
    /// moves it, so what lands on the midpoint is a few codes away at most.
    fn before_scaling(&self, random: &mut Random, unit: f64) -> Option<u64> {
        let midpoint = random.pick(&self.midpoints)?;
        let signed = if self.from.signed && random.below(2) == 1 { -midpoint } else { midpoint };
        Some(near(self.from, signed * unit, random))
    }

    /// The same element, or zero in place of NaN and infinity.
    pub(super) fn finite(&self, code: u64) -> u64 {
        if matches!(self.from.decode(code), Value::Finite { .. }) { code } else { 0 }
    }
}

fn specials(from: Format, to: Option<Format>) -> Vec<u64> {
    let magnitudes = [0, from.min_positive(), from.min_normal(), from.max_finite()];
    let of_target = to.into_iter().flat_map(|to| {
        [to.min_positive(), to.min_normal(), to.max_finite()]
            .map(|code| from.encode(to.decode(code), &Policy::default(), 0))
    });
    let rest = [from.infinity(), from.canonical_nan()].into_iter().flatten();
    let positive = magnitudes.into_iter().chain(of_target).chain(rest);
    positive.flat_map(|code| [code, code | from.sign_bit()]).collect()
}

/// A code of `format` at most two from the one nearest to `value`.
fn near(format: Format, value: f64, random: &mut Random) -> u64 {
    let mut code = format.encode(Value::from(value), &Policy::default(), 0);
    let up = random.below(2) == 1;
    for _ in 0..random.below(3) {
        let next = if up { format.next_up(code) } else { format.next_down(code) };
        code = next.unwrap_or(code);
    }
    code
}

/// 1, 3, 0.37, 448, 1/448, -0.1.
const NICE_SCALES: [u32; 6] = [0x3f80_0000, 0x4040_0000, 0x3ebd_70a4, 0x43e0_0000, 0x3b12_4925, 0xbdcc_cccd];
/// Zeros, infinities, NaN; smallest and largest subnormals and normals; 2^127.
const SPECIAL_SCALES: [u32; 11] = [
    0,
    0x8000_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f00_0000,
];

/// A scale or an absmax, as the bits of an f32.
pub(super) fn scale(random: &mut Random, to: Option<Format>) -> u64 {
    let word = random.word();
    let bits = match random.below(10) {
        // Within 2^12 of 1.
        0..=4 => (115 + (word >> 32) as u32 % 24) << 23 | word as u32 & 0x7f_ffff,
        5 => (word as u32 % 255) << 23,
        6 => random.pick(&NICE_SCALES).unwrap_or_default(),
        7 => random.pick(&SPECIAL_SCALES).unwrap_or_default(),
        // Where the largest value over an absmax overflows.
        8 if to.is_some() => {
            let largest = to.map_or(1.0, |to| to.to_f64(to.max_finite()));
            return near(F32, largest * 2f64.powi(-128), random);
        }
        _ => word as u32,
    };
    bits.into()
}

/// A random word for stochastic rounding.
pub(super) fn rounding_word(random: &mut Random) -> u64 {
    let word = random.word() & u64::from(u32::MAX);
    random.pick(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX.into(), word, word, word]).unwrap_or(word)
}
