//! An encoder that looks its result up in the sorted list of all values.
//!
//! It works on real numbers and knows no significand, shift or carry. Its f64
//! arithmetic is exact: neighbouring values of a format differ by a power of two,
//! and a number between them by less than a factor of two from the lower one.

use crate::value::value;
use plumbline_reference::format::{
    Format, Infinities, NanPolicy, NegativeZero, Overflow, Policy, Rounding, Subnormals,
};

pub(crate) struct Oracle {
    pub(crate) format: Format,
    /// Finite magnitudes, ascending; the index is the code without its sign.
    pub(crate) magnitudes: Vec<f64>,
    /// The magnitude that would come next.
    pub(crate) beyond: f64,
    /// Index of the smallest normal magnitude.
    first_normal: usize,
    sign: u64,
    infinity: Option<u64>,
    nan: Option<u64>,
}

/// Where a magnitude lies among those of a format.
struct Place {
    /// Index of the largest magnitude that is not above.
    below: usize,
    /// Distance from that one, and to the next.
    from_below: f64,
    to_above: f64,
}

impl Oracle {
    pub(crate) fn new(format: Format) -> Self {
        let positive = (0..1u64 << (format.exponent_bits + format.fraction_bits)).map(|i| format.code_at(i));
        let magnitudes: Vec<_> =
            positive.clone().map(|code| value(format, code)).take_while(|value| value.is_finite()).collect();
        assert!(magnitudes.is_sorted_by(|a, b| a < b), "{format}");

        let top = magnitudes.len() - 1;
        // Within a binade values are evenly spaced; with no fraction each is twice the last.
        let beyond = match format.fraction_bits {
            0 => 2.0 * magnitudes[top],
            _ => magnitudes[top] + (magnitudes[top] - magnitudes[top - 1]),
        };
        let sign = match format.signed {
            true => format.code_at(1 << (format.exponent_bits + format.fraction_bits)),
            false => 0,
        };
        // All bits set, or where that is a number the code of -0.
        let nan = positive.clone().chain([sign]).rfind(|&code| value(format, code).is_nan());
        let infinity = positive.clone().find(|&code| value(format, code) == f64::INFINITY);
        Self { format, magnitudes, beyond, first_normal: 1 << format.fraction_bits, sign, infinity, nan }
    }

    fn has_zero(&self) -> bool {
        self.magnitudes[0] == 0.0
    }

    fn place(&self, magnitude: f64) -> Place {
        let above = self.magnitudes.partition_point(|&m| m <= magnitude);
        match above.checked_sub(1) {
            // A format without zero rounds everything below its smallest number to that.
            None => Place { below: 0, from_below: 0.0, to_above: f64::INFINITY },
            Some(_) if magnitude >= self.beyond => {
                Place { below: self.magnitudes.len(), from_below: 0.0, to_above: f64::INFINITY }
            }
            Some(below) => Place {
                below,
                from_below: magnitude - self.magnitudes[below],
                to_above: *self.magnitudes.get(above).unwrap_or(&self.beyond) - magnitude,
            },
        }
    }

    /// The code of `x` under each of the policies and random words.
    pub(crate) fn encode_all<'a>(
        &'a self,
        x: f64,
        choices: &'a [(Policy, u32)],
    ) -> impl Iterator<Item = u64> + 'a {
        let place = self.place(x.abs());
        choices.iter().map(move |(policy, random)| match () {
            () if x.is_nan() => self.nan(policy.nan, x),
            () if x.is_infinite() && policy.infinities == Infinities::Saturate => self.extreme(x),
            () if x.is_infinite() => self.infinity_or_nan(x, policy),
            () => self.finite(x, &place, policy, *random),
        })
    }

    fn finite(&self, x: f64, place: &Place, policy: &Policy, random: u32) -> u64 {
        let tiny = x.abs() < self.magnitudes[self.first_normal];
        if self.has_zero() && (x == 0.0 || tiny && policy.subnormals == Subnormals::FlushedBefore) {
            return self.zero(x, policy);
        }
        let rounded = self.round(x, place, policy.rounding, random);
        let subnormal = rounded < self.first_normal;
        if self.has_zero() && (rounded == 0 || subnormal && policy.subnormals == Subnormals::FlushedAfter) {
            return self.zero(x, policy);
        }
        let negative = x.is_sign_negative() && x != 0.0;
        if rounded == self.magnitudes.len() || negative && !self.format.signed {
            let inward = match policy.rounding {
                Rounding::TowardZero => true,
                Rounding::Up => negative,
                Rounding::Down => !negative,
                _ => false,
            };
            return match policy.overflow {
                Overflow::ToInfOrNan if !inward => self.infinity_or_nan(x, policy),
                _ => self.extreme(x),
            };
        }
        self.signed(self.format.code_at(rounded as u64), x)
    }

    /// Index of the magnitude that `x` rounds to.
    fn round(&self, x: f64, place: &Place, rounding: Rounding, random: u32) -> usize {
        let &Place { below, from_below, to_above } = place;
        if from_below == 0.0 {
            return below;
        }
        // A format without fraction has no even and odd: a tie goes to the larger magnitude.
        let odd = below % 2 == 1 || self.format.fraction_bits == 0;
        let away = match rounding {
            Rounding::NearestEven => from_below > to_above || from_below == to_above && odd,
            Rounding::NearestAway => from_below >= to_above,
            Rounding::TowardZero => false,
            Rounding::Up => x > 0.0,
            Rounding::Down => x < 0.0,
            Rounding::Stochastic => {
                let ulp = self.magnitudes.get(below + 1).unwrap_or(&self.beyond) - self.magnitudes[below];
                (from_below / ulp * 2f64.powi(32)).floor() + f64::from(random) >= 2f64.powi(32)
            }
        };
        below + usize::from(away)
    }

    fn signed(&self, code: u64, x: f64) -> u64 {
        if x.is_sign_negative() { code | self.sign } else { code }
    }

    fn zero(&self, x: f64, policy: &Policy) -> u64 {
        let has_negative_zero = value(self.format, self.sign) == 0.0;
        let keep = has_negative_zero && policy.negative_zero == NegativeZero::Kept;
        if keep { self.signed(0, x) } else { 0 }
    }

    /// The largest or the least value.
    fn extreme(&self, x: f64) -> u64 {
        if x.is_sign_negative() && !self.format.signed {
            return 0;
        }
        self.signed(self.format.code_at(self.magnitudes.len() as u64 - 1), x)
    }

    fn infinity_or_nan(&self, x: f64, policy: &Policy) -> u64 {
        match (self.infinity, self.nan) {
            (Some(infinity), _) => self.signed(infinity, x),
            (None, Some(nan)) if policy.nan == NanPolicy::SignKept => self.signed(nan, x),
            (None, Some(nan)) => nan,
            (None, None) => self.extreme(x),
        }
    }

    fn nan(&self, policy: NanPolicy, x: f64) -> u64 {
        match (policy, self.nan) {
            (NanPolicy::Canonical, Some(nan)) => nan,
            (NanPolicy::SignKept, Some(nan)) => self.signed(nan, x),
            (NanPolicy::SignKept, None) => self.extreme(x),
            (NanPolicy::MaxFinite, _) | (NanPolicy::Canonical, None) => self.extreme(1.0),
        }
    }
}
