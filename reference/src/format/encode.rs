//! From a value to a code: the one place where anything is rounded.

use super::{Format, Infinities, NanPolicy, NegativeZero, Overflow, Policy, Rounding, Subnormals, Value};

/// The rounding decision: what becomes of the discarded bits.
#[derive(Clone, Copy, Debug)]
pub struct Rounder {
    /// The rounding.
    pub rounding: Rounding,
    /// The sign of the value.
    pub negative: bool,
    /// Random bits for stochastic rounding.
    pub random: u32,
}

impl Rounder {
    /// `significand / 2^shift`, rounded to an integer.
    #[must_use]
    #[inline]
    pub const fn round(&self, significand: u64, shift: u32) -> u64 {
        if shift == 0 {
            return significand;
        }
        // From 97 bits on, the whole significand lies below 2^-32 ulp: no rounding,
        // stochastic included, can tell such shifts apart.
        let shift = if shift > 97 { 97 } else { shift };
        let wide = significand as u128;
        let kept = (wide >> shift) as u64;
        let rest = wide & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        let away = match self.rounding {
            Rounding::NearestEven => rest > half || (rest == half && kept & 1 == 1),
            Rounding::NearestAway => rest >= half,
            Rounding::TowardZero => false,
            Rounding::Up => rest > 0 && !self.negative,
            Rounding::Down => rest > 0 && self.negative,
            Rounding::Stochastic => (((rest << 32) >> shift) + self.random as u128) >> 32 != 0,
        };
        kept + away as u64
    }
}

impl Format {
    /// The code of `value` under `policy`. `random` holds the bits that
    /// [`Rounding::Stochastic`] uses; other roundings ignore it.
    ///
    /// 1. NaN and infinities by their policies.
    /// 2. A source below the smallest normal number counts as zero under
    ///    [`Subnormals::FlushedBefore`].
    /// 3. The significand is rounded once, to the ulp of the value's binade (of
    ///    the smallest normal binade for subnormal results).
    /// 4. A subnormal result becomes zero under [`Subnormals::FlushedAfter`].
    /// 5. A result beyond the largest finite value goes by [`Overflow`].
    /// 6. The sign of zero by [`NegativeZero`]; formats without -0 give +0.
    #[must_use]
    #[inline]
    pub const fn encode(&self, value: Value, policy: &Policy, random: u32) -> u64 {
        let (negative, significand, exponent) = match value {
            Value::Nan { negative } => return self.encode_nan(negative, policy.nan),
            Value::Infinite { negative } => {
                return match policy.infinities {
                    Infinities::Saturate => self.saturated(negative),
                    Infinities::Propagate => self.beyond(negative, policy.nan),
                };
            }
            Value::Finite { negative, significand, exponent } => (negative, significand, exponent),
        };
        // floor(log2(|value|)), meaningless for zero.
        let log2 = exponent.saturating_add(63 - significand.leading_zeros() as i32);
        let tiny = log2 < self.min_exponent();
        let flushed = tiny && self.subnormals && matches!(policy.subnormals, Subnormals::FlushedBefore);
        if significand == 0 || flushed {
            return self.zero(negative, policy);
        }

        let magnitude = if log2 > self.max_exponent() {
            self.max_magnitude() + 1
        } else if tiny && !self.subnormals {
            0
        } else {
            let binade = if tiny { self.min_exponent() } else { log2 };
            let ulp = binade - self.fraction_bits as i32;
            let shift = ulp.abs_diff(exponent);
            let rounder = Rounder { rounding: policy.rounding, negative, random };
            let rounded =
                if ulp > exponent { rounder.round(significand, shift) } else { significand << shift };
            // Exponent and fraction as one integer: the hidden bit of a normal number
            // adds one to the exponent field, and a carry out of the fraction does the
            // same, so subnormal, normal and carried results need no cases.
            let hidden = if self.subnormals { 0 } else { 1 << self.fraction_bits };
            (((binade - self.min_exponent()) as u64) << self.fraction_bits) + rounded - hidden
        };

        let subnormal = self.subnormals && magnitude >> self.fraction_bits == 0;
        if magnitude == 0 && self.subnormals
            || subnormal && matches!(policy.subnormals, Subnormals::FlushedAfter)
        {
            return self.zero(negative, policy);
        }
        if negative && !self.signed || magnitude > self.max_magnitude() {
            return match (policy.overflow, policy.rounding) {
                (Overflow::Saturate, _) | (_, Rounding::TowardZero) => self.saturated(negative),
                (_, Rounding::Up) if negative => self.saturated(negative),
                (_, Rounding::Down) if !negative => self.saturated(negative),
                _ => self.beyond(negative, policy.nan),
            };
        }
        self.signed_code(negative, magnitude)
    }

    const fn encode_nan(&self, negative: bool, policy: NanPolicy) -> u64 {
        match (policy, self.canonical_nan()) {
            (NanPolicy::MaxFinite, _) => self.max_finite(),
            (NanPolicy::SignKept, Some(nan)) if negative => nan | self.sign_bit(),
            (_, Some(nan)) => nan,
            (NanPolicy::SignKept, None) => self.saturated(negative),
            (NanPolicy::Canonical, None) => self.max_finite(),
        }
    }

    /// Infinity, else NaN, else the largest finite value.
    const fn beyond(&self, negative: bool, nan: NanPolicy) -> u64 {
        match (self.infinity(), self.canonical_nan()) {
            (Some(infinity), _) if negative => infinity | self.sign_bit(),
            (Some(infinity), _) => infinity,
            (None, Some(code)) if negative && matches!(nan, NanPolicy::SignKept) => code | self.sign_bit(),
            (None, Some(code)) => code,
            (None, None) => self.saturated(negative),
        }
    }

    const fn saturated(&self, negative: bool) -> u64 {
        if negative { self.lowest() } else { self.max_finite() }
    }

    const fn zero(&self, negative: bool, policy: &Policy) -> u64 {
        let keep = negative && self.has_negative_zero() && matches!(policy.negative_zero, NegativeZero::Kept);
        if keep { self.sign_bit() } else { 0 }
    }

    const fn signed_code(&self, negative: bool, magnitude: u64) -> u64 {
        self.code_at(magnitude) | if negative { self.sign_bit() } else { 0 }
    }
}
