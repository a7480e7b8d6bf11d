//! The classes that coverage is counted by. Each is there because kernels have faults that show in
//! it alone.

use plumbline_reference::format::{Class, Format, Value};
use plumbline_reference::{DType, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

macro_rules! classes {
    ($(#[$meta:meta])* $Name:ident { $($(#[$doc:meta])* $Class:ident $name:literal $remedy:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum $Name {
            $($(#[$doc])* #[serde(rename = $name)] $Class,)*
        }

        impl $Name {
            /// Every class.
            pub const ALL: &'static [Self] = &[$(Self::$Class,)*];

            /// What covers it in a case.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$Class => $remedy,)* }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$Class => $name,)* })
            }
        }
    };
}

classes! {
    /// Where the elements of a tensor lie in memory.
    LayoutClass {
        /// Row-major, without gaps.
        Contiguous "contiguous" "a case without `strides`",
        /// Gaps between the elements, as a leading dimension larger than the row makes them.
        Padded "padded" "`strides` larger than the rows",
        /// Of two dimensions of more than one element, the outer has the smaller stride.
        Transposed "transposed" "`strides` in another order",
        /// A dimension of more than one element has stride 0.
        Repeated "repeated" "a batch with stride 0",
        /// The first element is, in one of the calls, not at a multiple of 16 bytes.
        Misaligned "misaligned" "a variant that asks for no alignment",
    }
}

classes! {
    /// What an extent is to warps, blocks and vectors.
    ShapeClass {
        /// 0: nothing to launch.
        Zero "zero" "an extent of 0",
        /// 1.
        One "one" "an extent of 1",
        /// 2 to 31: less than a warp.
        BelowWarp "below_warp" "an extent from 2 to 31",
        /// A multiple of 32 that is no multiple of 256.
        Warps "warps" "an extent that is a multiple of 32 and not of 256",
        /// A multiple of 256: no tail.
        Blocks "blocks" "an extent that is a multiple of 256",
        /// One more than a multiple of 32 above 0: a tail of one element.
        OneOver "one_over" "an extent of 32 n + 1",
        /// One less than a multiple of 32: a tail that lacks one element.
        OneUnder "one_under" "an extent of 32 n - 1",
        /// A prime above 32: no vector width or tile divides it.
        Prime "prime" "a prime extent above 32",
        /// 2^20 or more: grids that loop, more blocks than 16 bits count.
        Large "large" "an extent of 2^20 or more",
    }
}

classes! {
    /// What an element is, and what rounding did to become it.
    ///
    /// The first ten are classes of a code, of either sign where none is named. Integers have
    /// `zero`, `max_finite` (all ones) and `normal` (the others). From `exact` on they relate an
    /// output to the exact value `v` that was encoded, wherever there is one, whatever the policy.
    /// With `t` the number of the output's format that is next to `v` toward zero, exponents
    /// unbounded above, and `r` the result:
    ValueClass {
        /// +0.
        Zero "zero" "+0 among the elements",
        /// -0.
        NegativeZero "negative_zero" "-0 among the elements",
        /// The smallest magnitude, where that is subnormal.
        MinSubnormal "min_subnormal" "the smallest subnormal: `generate: subnormals` or `edges`",
        /// Not 0, and below the smallest normal number.
        Subnormal "subnormal" "a subnormal: `generate: subnormals` or `edges`",
        /// The smallest normal number.
        MinNormal "min_normal" "the smallest normal number: `generate: extremes` or `edges`",
        /// Any normal number.
        Normal "normal" "a normal number",
        /// The largest finite number.
        MaxFinite "max_finite" "the largest number: `generate: extremes` or `edges`",
        /// +Inf.
        Infinity "infinity" "+Inf among the elements",
        /// -Inf.
        NegativeInfinity "negative_infinity" "-Inf among the elements",
        /// NaN.
        Nan "nan" "a NaN: `generate: nans` or `edges`",
        /// One trial has every code of a format of at most 16 bits.
        EveryCode "every_code" "`generate: {all_codes: {}}`",
        /// `r = v`.
        Exact "exact" "a value that the output's format holds",
        /// `abs(r) < abs(v)`, and none of those below.
        RoundedDown "rounded_down" "a value that rounds toward zero",
        /// `abs(r) > abs(v)`, `r` is finite, and `v` is no tie.
        RoundedUp "rounded_up" "a value that rounds away from zero",
        /// `v` is halfway between `t` and the next number, and `r = t`.
        TieDown "tie_down" "a tie whose lower neighbour is even: `generate: midpoints` or `edges`",
        /// `v` is halfway, and `r` is the next number.
        TieUp "tie_up" "a tie whose upper neighbour is even: `generate: midpoints` or `edges`",
        /// `r` is above `t` and has a larger exponent field.
        Carry "carry" "a value that rounds up to a power of two: `generate: midpoints` or `edges`",
        /// `v` is finite and beyond the midpoint above the largest number, below that under the
        /// smallest of a format without zero, or negative where there is no sign: `r` is that end.
        Saturated "saturated" "a number beyond the largest, under `overflow: saturate`",
        /// `v` is finite and `r` is not.
        Overflow "overflow" "a number beyond the largest, under `overflow: to_inf_or_nan`",
        /// `v` is not 0 and `r` is.
        Underflow "underflow" "a number below half the smallest: `generate: subnormals` or `edges`",
    }
}

impl LayoutClass {
    /// Those of a tensor under strides in elements.
    #[must_use]
    pub fn of(ty: &TensorType, strides: &[usize]) -> BTreeSet<Self> {
        if ty.shape.contains(&0) {
            return [Self::Contiguous].into();
        }
        let wide = || ty.shape.iter().copied().zip(strides.iter().copied()).filter(|(extent, _)| *extent > 1);
        let mut classes = BTreeSet::new();
        if wide().any(|(_, stride)| stride == 0) {
            classes.insert(Self::Repeated);
        }
        let placed: Vec<_> = wide().filter(|(_, stride)| *stride > 0).collect();
        if placed.windows(2).any(|pair| pair[0].1 < pair[1].1) {
            classes.insert(Self::Transposed);
        }
        let places: usize = placed.iter().map(|(extent, _)| extent).product();
        if ty.span(strides).is_some_and(|span| span > places) {
            classes.insert(Self::Padded);
        }
        if classes.is_empty() {
            classes.insert(Self::Contiguous);
        }
        classes
    }
}

impl ShapeClass {
    /// Those of an extent.
    #[must_use]
    pub fn of(extent: usize) -> BTreeSet<Self> {
        let has = |class: &Self| match class {
            Self::Zero => extent == 0,
            Self::One => extent == 1,
            Self::BelowWarp => (2..32).contains(&extent),
            Self::Warps => extent.is_multiple_of(32) && !extent.is_multiple_of(256),
            Self::Blocks => extent > 0 && extent.is_multiple_of(256),
            Self::OneOver => extent > 32 && extent % 32 == 1,
            Self::OneUnder => extent % 32 == 31,
            Self::Prime => extent > 32 && is_prime(extent),
            Self::Large => extent >= 1 << 20,
        };
        Self::ALL.iter().copied().filter(has).collect()
    }
}

fn is_prime(n: usize) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// A set of value classes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Values(u32);

impl Values {
    pub(super) const fn of(class: ValueClass) -> Self {
        Self(1 << class as u32)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn and_if(self, condition: bool, class: ValueClass) -> Self {
        if condition { self.and(Self::of(class)) } else { self }
    }

    pub(super) fn classes(self) -> BTreeSet<ValueClass> {
        ValueClass::ALL.iter().copied().filter(|&class| self.0 & Self::of(class).0 != 0).collect()
    }
}

impl ValueClass {
    /// Those of a code.
    #[inline]
    pub(super) fn of_code(dtype: DType, code: u64) -> Values {
        let DType::Float(format) = dtype else {
            return Values::of(match code {
                0 => Self::Zero,
                _ if code == dtype.code_mask() => Self::MaxFinite,
                _ => Self::Normal,
            });
        };
        let negative = code & format.sign_bit() != 0;
        let magnitude = code & format.code_mask() & !format.sign_bit();
        match format.classify(code) {
            Class::Nan => Values::of(Self::Nan),
            Class::Infinite => Values::of(if negative { Self::NegativeInfinity } else { Self::Infinity }),
            Class::Zero => Values::of(if negative { Self::NegativeZero } else { Self::Zero }),
            Class::Subnormal => {
                Values::of(Self::Subnormal).and_if(magnitude == format.min_positive(), Self::MinSubnormal)
            }
            Class::Normal => Values::of(Self::Normal)
                .and_if(magnitude == format.min_normal(), Self::MinNormal)
                .and_if(magnitude == format.max_finite(), Self::MaxFinite),
        }
    }

    /// Whether some element of that type has it, or some result of that type.
    #[must_use]
    pub fn is_of(self, dtype: DType) -> bool {
        let DType::Float(format) = dtype else {
            return matches!(self, Self::Zero | Self::Normal | Self::MaxFinite)
                || self == Self::EveryCode && dtype.bytes() == 1;
        };
        match self {
            Self::Zero | Self::Underflow => format.subnormals,
            Self::NegativeZero => format.has_negative_zero(),
            Self::MinSubnormal | Self::Subnormal => format.subnormals,
            Self::Infinity | Self::NegativeInfinity => format.has_infinity(),
            Self::Nan | Self::Overflow => format.has_nan(),
            Self::EveryCode => format.code_bits() <= 16,
            _ => true,
        }
    }

    /// Whether it is one of a code, and not of many or of a result.
    #[must_use]
    pub fn is_of_codes(self) -> bool {
        self < Self::EveryCode
    }

    /// Those of encoding `exact` as `code`.
    pub(super) fn of_result(to: Format, exact: Value, code: u64) -> Values {
        let Value::Finite { negative, significand, exponent } = exact else { return Values::default() };
        let magnitude = |code: u64| (code & to.code_mask() & !to.sign_bit()) >> to.low_padding;
        let (largest, result) = (magnitude(to.max_finite()), magnitude(code));
        match to.classify(code) {
            Class::Nan | Class::Infinite => return Values::of(Self::Overflow),
            Class::Zero if significand == 0 => return Values::of(Self::Exact),
            _ => (),
        }
        let log2 = exponent.saturating_add(63 - significand.leading_zeros() as i32);
        let below_all = !to.subnormals && (significand == 0 || log2 < to.min_exponent());
        if below_all || negative && !to.signed {
            return Values::of(Self::Saturated).and_if(to.classify(code) == Class::Zero, Self::Underflow);
        }
        // `v` in units of the last place, of which `t` has a whole number.
        let binade = log2.max(to.min_exponent());
        let ulp = binade - to.fraction_bits as i32;
        let (whole, twice_rest) = split(significand, exponent, ulp);
        let hidden = if to.subnormals { 0 } else { 1 << to.fraction_bits };
        let toward_zero = (((binade - to.min_exponent()) as u64) << to.fraction_bits) + whole - hidden;
        let underflow = to.classify(code) == Class::Zero;
        let beyond = toward_zero > largest || toward_zero == largest && twice_rest == Rest::AboveHalf;
        if beyond && result == largest {
            return Values::of(Self::Saturated);
        }
        let class = match twice_rest {
            Rest::Zero if result == toward_zero => Self::Exact,
            Rest::Half if result == toward_zero => Self::TieDown,
            Rest::Half if result > toward_zero => Self::TieUp,
            _ if result > toward_zero => Self::RoundedUp,
            _ => Self::RoundedDown,
        };
        let field = |magnitude: u64| magnitude >> to.fraction_bits;
        let carry = result > toward_zero && field(result) > field(toward_zero);
        Values::of(class).and_if(carry, Self::Carry).and_if(underflow, Self::Underflow)
    }
}

/// What is left of a number beside a whole number of units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

/// `significand * 2^exponent` in units of `2^unit`, and what is left.
fn split(significand: u64, exponent: i32, unit: i32) -> (u64, Rest) {
    if unit <= exponent {
        return (significand << (exponent - unit), Rest::Zero);
    }
    // From 65 bits on the number is less than half a unit.
    let shift = unit.abs_diff(exponent).min(65);
    let (wide, half) = (u128::from(significand), 1u128 << (shift - 1));
    let rest = match wide & ((half << 1) - 1) {
        0 => Rest::Zero,
        rest if rest < half => Rest::BelowHalf,
        rest if rest == half => Rest::Half,
        _ => Rest::AboveHalf,
    };
    ((wide >> shift) as u64, rest)
}

#[cfg(test)]
mod tests;
