//! Sums and products without any rounding: a fixed-point number wide enough for products of
//! f64.

use crate::format::{F64, Policy, Rounding, Value};

/// Bits of a digit. Digits are signed and of 64 bits, so that carries can wait.
const DIGIT: i32 = 32;
/// The weight of the first digit's last bit.
const LOWEST: i32 = -3200;
/// Up to 2^2880: the square of the largest f64, times four f32, and 2^64 of them.
const DIGITS: usize = 190;
/// Additions to a digit, each below 2^32, that cannot overflow it.
const ADDITIONS: u32 = 1 << 30;

/// An exact sum.
///
/// Any number of terms `+-significand * 2^exponent` with exponents from -3200, multiplied by
/// further numbers, rounded once at the end. A NaN or infinity is kept beside the number and
/// rules as IEEE 754 says.
///
/// ```
/// use plumbline_reference::{Exact, format::{F32, Policy}};
/// let mut sum = Exact::default();
/// for x in [1e30f32, 1.0, -1e30] {
///     sum.add_product(x.into(), 1f32.into());
/// }
/// assert_eq!(F32.encode(sum.value(), &Policy::IEEE, 0), u64::from(1f32.to_bits()));
/// ```
#[derive(Clone, Debug)]
pub struct Exact {
    digits: Vec<i64>,
    /// Additions since the last carry.
    additions: u32,
    /// What infinities and NaNs make of the sum; 0 without them.
    special: f64,
    /// Whether every term was -0: the only way to a sum of -0.
    negative_zeros: Option<bool>,
}

impl Default for Exact {
    fn default() -> Self {
        Self { digits: vec![0; DIGITS], additions: 0, special: 0.0, negative_zeros: None }
    }
}

impl From<Value> for Exact {
    fn from(value: Value) -> Self {
        let mut exact = Self::default();
        exact.add_product(value, Value::from(1f32));
        exact
    }
}

impl Exact {
    /// Adds `a * b`.
    #[inline]
    pub fn add_product(&mut self, a: Value, b: Value) {
        match (a, b) {
            (
                Value::Finite { negative: na, significand: sa, exponent: ea },
                Value::Finite { negative: nb, significand: sb, exponent: eb },
            ) => {
                let significand = u128::from(sa) * u128::from(sb);
                let negative = na != nb;
                let negative_zero = negative && significand == 0;
                self.negative_zeros = Some(self.negative_zeros.unwrap_or(true) && negative_zero);
                self.add(negative, significand, ea + eb);
            }
            (a, b) => self.special += a.to_f64() * b.to_f64(),
        }
    }

    /// Adds `+-significand * 2^exponent`.
    #[inline]
    fn add(&mut self, negative: bool, significand: u128, exponent: i32) {
        if significand == 0 {
            return;
        }
        let position = exponent - LOWEST;
        assert!(position >= 0, "2^{exponent} is below the sum's last bit");
        let (first, shift) = ((position / DIGIT) as usize, position % DIGIT);
        // At most 128 + 31 bits: five digits.
        let (low, high) = (significand << shift, if shift == 0 { 0 } else { significand >> (128 - shift) });
        for (i, digit) in self.digits[first..][..5].iter_mut().enumerate() {
            let bits = if i < 4 { (low >> (32 * i)) as u32 } else { high as u32 };
            let bits = i64::from(bits);
            *digit += if negative { -bits } else { bits };
        }
        self.additions += 1;
        if self.additions == ADDITIONS {
            self.carry();
        }
    }

    /// Makes every digit but the last one 0 to 2^32 - 1.
    fn carry(&mut self) {
        let mut carry = 0;
        let last = self.digits.len() - 1;
        for digit in &mut self.digits[..last] {
            let sum = *digit + carry;
            carry = sum >> DIGIT;
            *digit = sum & 0xffff_ffff;
        }
        self.digits[last] += carry;
        self.additions = 1;
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (digit, other) in self.digits.iter_mut().zip(&other.digits) {
            *digit += other;
        }
        self.carry();
        self.special += other.special;
        self.negative_zeros = match (self.negative_zeros, other.negative_zeros) {
            (Some(a), Some(b)) => Some(a && b),
            (a, b) => a.or(b),
        };
    }

    /// The sum multiplied by a number of up to 53 bits.
    #[must_use]
    pub fn times(&self, factor: Value) -> Self {
        let zero = |value: Value| matches!(value, Value::Finite { significand: 0, .. });
        let mut product = Self::default();
        let own = self.value();
        if !matches!(own, Value::Finite { .. }) || !matches!(factor, Value::Finite { .. }) {
            product.special = own.to_f64() * factor.to_f64();
            // An f64 may not hold the sum; its sign is all that matters beside an infinity.
            if let (Value::Finite { negative, .. }, Value::Infinite { negative: other }) = (own, factor)
                && !zero(own)
            {
                product.special = if negative == other { f64::INFINITY } else { f64::NEG_INFINITY };
            }
            return product;
        }
        let Value::Finite { negative, significand, exponent } = factor else { return product };
        product.negative_zeros = Some((zero(own) || zero(factor)) && own.is_negative() != negative);
        let (sign, digits) = self.magnitude();
        for (i, digit) in digits.into_iter().enumerate() {
            let weight = LOWEST + DIGIT * i as i32;
            product.add(sign != negative, u128::from(digit) * u128::from(significand), weight + exponent);
        }
        product
    }

    /// Sign and digits of the number.
    fn magnitude(&self) -> (bool, Vec<u32>) {
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.digits.last().is_some_and(|&last| last < 0);
        if negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        (negative, sum.digits.iter().map(|&digit| digit as u32).collect())
    }

    /// The number for rounding to any format of up to 62 bits of significand: the first 63 of
    /// its bits or more, the last one of them set where further ones were left out. NaN, if
    /// it is one, is positive.
    #[must_use]
    pub fn value(&self) -> Value {
        if self.special != 0.0 {
            return match self.special {
                special if special.is_nan() => Value::Nan { negative: false },
                special => Value::Infinite { negative: special < 0.0 },
            };
        }
        let (negative, digits) = self.magnitude();
        let Some(top) = digits.iter().rposition(|&digit| digit != 0) else {
            let negative = self.negative_zeros.unwrap_or(false);
            return Value::Finite { negative, significand: 0, exponent: 0 };
        };
        let low = top.saturating_sub(2);
        let first = digits[low..=top].iter().rev().fold(0u128, |bits, &digit| bits << 32 | u128::from(digit));
        let spill = (128 - first.leading_zeros()).saturating_sub(64);
        let kept = (first >> spill) as u64;
        let left_out = first & ((1 << spill) - 1) != 0 || digits[..low].iter().any(|&digit| digit != 0);
        let exponent = LOWEST + DIGIT * low as i32 + spill as i32;
        Value::Finite { negative, significand: kept | u64::from(left_out), exponent }
    }

    /// The number, rounded to nearest even.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.value().to_f64()
    }

    /// The magnitude, rounded up: for bounds.
    #[must_use]
    pub fn to_f64_up(&self) -> f64 {
        let value = match self.value() {
            Value::Finite { significand, exponent, .. } => {
                Value::Finite { negative: false, significand, exponent }
            }
            other => other,
        };
        f64::from_bits(F64.encode(value, &Policy { rounding: Rounding::Up, ..Policy::IEEE }, 0)).abs()
    }

    /// `abs(self - value)`, which is exact before it is rounded up to an f64.
    #[must_use]
    pub fn distance(&self, value: Value) -> f64 {
        let mut difference = self.clone();
        difference.add_product(value, Value::from(-1f32));
        difference.to_f64_up()
    }
}

#[cfg(test)]
mod tests {
    use super::Exact;
    use crate::format::{F32, F64, Policy, Value};

    fn sum(terms: &[(f64, f64)]) -> Exact {
        let mut sum = Exact::default();
        terms.iter().for_each(|&(a, b)| sum.add_product(a.into(), b.into()));
        sum
    }

    #[test]
    fn a_product_and_a_sum_equal_those_of_fma() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut next = || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                // Exponents of every kind, subnormals included.
                f64::from_bits(state.rotate_left(state as u32 % 64))
            };
            let (a, b, c) = (next(), next(), next());
            let exact = sum(&[(a, b), (c, 1.0)]).to_f64();
            let fused = a.mul_add(b, c);
            assert!(exact == fused || exact.is_nan() && fused.is_nan(), "{a:e} * {b:e} + {c:e}: {exact:e}");
            assert!(exact.is_nan() || exact.is_sign_negative() == fused.is_sign_negative());
        }
    }

    #[test]
    fn what_cancels_leaves_the_rest() {
        let big = f64::MAX;
        let tiny = f64::from_bits(1);
        assert_eq!(sum(&[(big, big), (tiny, tiny), (-big, big)]).to_f64(), 0.0);
        let rest = sum(&[(big, big), (tiny, 1.0), (-big, big)]);
        assert_eq!(rest.to_f64(), tiny);
        assert_eq!(rest.times(2f64.powi(1000).into()).to_f64(), tiny * 2f64.powi(1000));
        assert_eq!(rest.times((-3f64).into()).to_f64(), -3.0 * tiny);
    }

    #[test]
    fn a_bit_far_below_a_tie_decides() {
        let tie = 1.0 + 2f64.powi(-24);
        let round = |exact: &Exact| F32.encode(exact.value(), &Policy::IEEE, 0) as u32;
        assert_eq!(round(&sum(&[(tie, 1.0)])), 1f32.to_bits());
        assert_eq!(round(&sum(&[(tie, 1.0), (2f64.powi(-1000), 2f64.powi(-1074))])), 1f32.to_bits() + 1);
        assert_eq!(round(&sum(&[(tie, 1.0), (-(2f64.powi(-1000)), 2f64.powi(-1074))])), 1f32.to_bits());
    }

    #[test]
    fn specials_rule_as_ieee_754_says() {
        let infinity = f64::INFINITY;
        assert!(sum(&[(infinity, 0.0)]).to_f64().is_nan());
        assert!(sum(&[(infinity, 1.0), (-infinity, 1.0)]).to_f64().is_nan());
        assert_eq!(sum(&[(infinity, -2.0), (f64::MAX, f64::MAX)]).to_f64(), -infinity);
        assert!(sum(&[(1.0, 1.0), (-1.0, 1.0)]).times(infinity.into()).to_f64().is_nan());
        assert_eq!(sum(&[(f64::MAX, f64::MAX)]).times((-infinity).into()).to_f64(), -infinity);
    }

    #[test]
    fn only_negative_zeros_sum_to_negative_zero() {
        let is_negative = |terms: &[(f64, f64)]| sum(terms).to_f64().is_sign_negative();
        assert!(is_negative(&[(-0.0, 1.0), (0.0, -3.0)]));
        assert!(!is_negative(&[(-0.0, 1.0), (0.0, 1.0)]));
        assert!(!is_negative(&[(1.0, 1.0), (-1.0, 1.0)]));
        assert!(!is_negative(&[]));
    }

    #[test]
    fn a_distance_is_rounded_up() {
        let third = sum(&[(1.0, 1.0), (2f64.powi(-80), 1.0)]);
        assert!(third.distance(Value::from(0f64)) > 1.0);
        assert_eq!(third.distance(Value::from(1f64)), 2f64.powi(-80));
        assert_eq!(F64.encode(third.value(), &Policy::IEEE, 0), 1f64.to_bits());
    }
}
