//! Formats as ladders of exact magnitudes.
//!
//! Without its sign and padding a code is the index of its magnitude, in ascending
//! order. The neighbours of a number are then indices plus and minus one, and the
//! midpoint above a magnitude is its significand plus a half.

use crate::seed::mix;
use plumbline_reference::format::{Format, Policy, Rounding, Value};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

/// An exact magnitude: `significand * 2^exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub(super) significand: u64,
    pub(super) exponent: i32,
}

impl Exact {
    /// Half of it.
    pub(super) fn half(self) -> Self {
        Self { exponent: self.exponent - 1, ..self }
    }

    /// Twice as much.
    pub(super) fn double(self) -> Self {
        Self { exponent: self.exponent + 1, ..self }
    }

    /// As an f64, rounded if need be.
    pub(super) fn to_f64(self) -> f64 {
        self.value().to_f64()
    }

    fn value(self) -> Value {
        Value::Finite { negative: false, significand: self.significand, exponent: self.exponent }
    }

    /// `floor(log2)`; `None` for zero.
    fn log2(self) -> Option<i32> {
        Some(self.significand.checked_ilog2()? as i32 + self.exponent)
    }

    /// The form with an odd significand, which equal magnitudes share.
    fn canonical(self) -> Option<(u64, i32)> {
        let zeros = self.significand.trailing_zeros();
        Some((self.significand.checked_shr(zeros)?, self.exponent + zeros as i32))
    }
}

impl PartialEq for Exact {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

/// Where an exact magnitude stands between those of a format: the greatest index not
/// above it and the least one not below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) floor: u64,
    pub(super) ceil: u64,
}

impl Place {
    /// Whether the format has the magnitude itself.
    pub(super) fn is_exact(self) -> bool {
        self.floor == self.ceil
    }
}

/// The magnitudes of a format by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    pub(super) format: Format,
    /// Index of the largest finite magnitude.
    pub(super) max: u64,
}

impl Ladder {
    pub(super) fn new(format: Format) -> Self {
        Self { format, max: format.max_finite() >> format.low_padding }
    }

    /// Index of infinity, else of the largest finite magnitude.
    pub(super) fn top(self) -> u64 {
        self.max + u64::from(self.format.has_infinity())
    }

    /// The finite magnitude at an index.
    pub(super) fn at(self, index: u64) -> Exact {
        match self.format.decode(self.format.code_at(index)) {
            Value::Finite { significand, exponent, .. } => Exact { significand, exponent },
            // Only indices above `max` have no number; the next one would be here.
            Value::Nan { .. } | Value::Infinite { .. } => self.after(self.max),
        }
    }

    /// The magnitude after that index, as if the exponent were unbounded.
    pub(super) fn after(self, index: u64) -> Exact {
        let Exact { significand, exponent } = self.at(index);
        Exact { significand: significand + 1, exponent }
    }

    /// The midpoint between the magnitude at an index and the one after it: half the
    /// smallest positive for 0, the overflow threshold for `max`.
    pub(super) fn midpoint_above(self, index: u64) -> Exact {
        let Exact { significand, exponent } = self.at(index);
        Exact { significand: 2 * significand + 1, exponent: exponent - 1 }
    }

    /// Where a magnitude stands; `None` outside the range of the format.
    pub(super) fn locate(self, magnitude: Exact) -> Option<Place> {
        const TRUNCATE: Policy = Policy { rounding: Rounding::TowardZero, ..Policy::IEEE };
        let has_zero = self.format.subnormals;
        if !has_zero && magnitude.log2().is_none_or(|log2| log2 < self.format.min_exponent()) {
            return None;
        }
        let floor = self.index(self.format.encode(magnitude.value(), &TRUNCATE, 0));
        let exact = self.at(floor) == magnitude;
        if !exact && floor == self.max {
            return None;
        }
        Some(Place { floor, ceil: floor + u64::from(!exact) })
    }

    /// The index nearest to a number's magnitude, at most `max`.
    pub(super) fn nearest(self, x: f64) -> u64 {
        self.index(self.format.encode(Value::from(x.abs()), &Policy::default(), 0))
    }

    /// Indices from one under a place to one over it, as far as they exist.
    fn around(self, place: Place) -> RangeInclusive<u64> {
        place.floor.saturating_sub(1)..=(place.ceil + 1).min(self.top())
    }

    /// The code of an index and a sign. Where the format has no such negative code,
    /// the positive one.
    pub(super) fn code(self, index: u64, negative: bool) -> u64 {
        let has_negative = if index == 0 && self.format.subnormals {
            self.format.has_negative_zero()
        } else {
            self.format.signed
        };
        self.format.code_at(index) | if negative && has_negative { self.format.sign_bit() } else { 0 }
    }

    /// The index of a finite code's magnitude.
    pub(super) fn index(self, code: u64) -> u64 {
        (code & !self.format.sign_bit()) >> self.format.low_padding
    }
}

/// Which magnitudes stand for all of a format's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    /// Formats of at most so many code bits are taken whole.
    pub(super) whole_up_to: u32,
    /// Of the random fractions of larger ones.
    pub(super) seed: u64,
}

impl Sampling {
    /// Indices of all magnitudes, or in every binade the first, middle and last ones
    /// and two random ones.
    pub(super) fn indices(self, ladder: Ladder) -> Vec<u64> {
        if ladder.format.code_bits() <= self.whole_up_to {
            return (0..=ladder.max).collect();
        }
        let fraction_bits = ladder.format.fraction_bits;
        let binade = 1 << fraction_bits;
        let (middle, last) = (binade / 2, binade - 1);
        let sampled = |field: u64| {
            let random = |i| mix(self.seed, 2 * field + i) % binade;
            [0, 1, 2, middle - 1, middle, middle + 1, last - 1, last, random(0), random(1)]
                .map(|fraction| field << fraction_bits | fraction)
        };
        (0..=ladder.max >> fraction_bits).flat_map(sampled).filter(|&index| index <= ladder.max).collect()
    }

    /// The midpoints above those magnitudes.
    pub(super) fn midpoints(self, ladder: Ladder) -> impl Iterator<Item = Exact> {
        self.indices(ladder).into_iter().map(move |index| ladder.midpoint_above(index))
    }
}

/// A list of codes without repetition, in the order of first mention.
pub(super) struct Codes {
    pub(super) source: Ladder,
    codes: Vec<u64>,
    seen: HashSet<u64, BuildHasherDefault<CodeHasher>>,
}

/// One round of [`mix`], as lists hold up to half a million codes.
#[derive(Default)]
struct CodeHasher(u64);

impl Hasher for CodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, code: u64) {
        self.0 = mix(self.0, code);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Codes {
    pub(super) fn new(source: Ladder) -> Self {
        Self { source, codes: Vec::new(), seen: HashSet::default() }
    }

    pub(super) fn into_vec(self) -> Vec<u64> {
        self.codes
    }

    pub(super) fn push(&mut self, code: u64) {
        if self.seen.insert(code) {
            self.codes.push(code);
        }
    }

    /// The magnitude at an index with both signs.
    pub(super) fn push_index(&mut self, index: u64) {
        self.push(self.source.code(index, false));
        self.push(self.source.code(index, true));
    }

    /// A magnitude, or the two that enclose it, and one more on either side, with
    /// both signs. Nothing where the source's range ends before it.
    pub(super) fn push_around(&mut self, magnitude: Exact) {
        if let Some(place) = self.source.locate(magnitude) {
            self.source.around(place).for_each(|index| self.push_index(index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::{ALL, E2M1, E4M3FN, E8M0, F16, F32};

    fn midpoints(format: Format) -> Vec<f64> {
        let sampling = Sampling { whole_up_to: 19, seed: 0 };
        sampling.midpoints(Ladder::new(format)).map(Exact::to_f64).collect()
    }

    #[test]
    fn midpoints_of_e2m1() {
        assert_eq!(midpoints(E2M1), [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0]);
    }

    #[test]
    fn the_last_midpoint_is_the_overflow_threshold() {
        assert_eq!(midpoints(E4M3FN).last(), Some(&464.0));
        assert_eq!(midpoints(F16).last(), Some(&65520.0));
        assert_eq!(Ladder::new(F32).midpoint_above(0x7f7f_ffff).to_f64(), 2f64.powi(128) - 2f64.powi(103));
    }

    #[test]
    fn every_midpoint_is_half_way() {
        for format in ALL.into_iter().filter(|format| format.code_bits() <= 16) {
            let ladder = Ladder::new(format);
            for index in 0..ladder.max {
                let [low, high] = [index, index + 1].map(|index| format.to_f64(format.code_at(index)));
                assert_eq!(ladder.midpoint_above(index).to_f64(), (low + high) / 2.0, "{format} {index}");
            }
        }
    }

    #[test]
    fn a_place_encloses_the_magnitude() {
        let f16 = Ladder::new(F16);
        let place = |significand, exponent| f16.locate(Exact { significand, exponent });
        assert_eq!(place(1, 0), Some(Place { floor: 0x3c00, ceil: 0x3c00 }));
        assert_eq!(place((1 << 30) + 1, -30), Some(Place { floor: 0x3c00, ceil: 0x3c01 }));
        assert_eq!(place(1, -25), Some(Place { floor: 0, ceil: 1 }));
        assert_eq!(place(65504, 0), Some(Place { floor: 0x7bff, ceil: 0x7bff }));
        assert_eq!(place(65505, 0), None);
        assert_eq!(Ladder::new(E8M0).locate(Exact { significand: 1, exponent: -128 }), None);
    }

    #[test]
    fn large_formats_are_sampled_in_every_binade() {
        let indices = Sampling { whole_up_to: 16, seed: 0 }.indices(Ladder::new(F32));
        assert_eq!(indices.len(), 255 * 10);
        assert!((0..255).all(|field| indices.contains(&(field << 23 | 0x40_0000))));
    }
}
