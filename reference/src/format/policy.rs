//! What an encoding does where the format alone does not say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a value between two codes is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To the nearer; a tie to the code whose last bit is 0 (with a precision of
    /// one bit, E8M0, to the larger magnitude: IEEE 754-2019, 4.3.1).
    #[default]
    NearestEven,
    /// To the one of smaller magnitude.
    TowardZero,
    /// Toward +infinity.
    Up,
    /// Toward -infinity.
    Down,
    /// To the nearer; a tie to the larger magnitude.
    NearestAway,
    /// With 32 given random bits `r` and discarded fraction `f` (in units of the
    /// last place): away from zero iff `floor(f * 2^32) + r >= 2^32`.
    Stochastic,
}

/// A finite value that rounds beyond the largest finite one (IEEE 754-2019, 7.4:
/// judged after rounding as if the exponent were unbounded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The largest finite value of that sign.
    #[default]
    Saturate,
    /// Infinity, or NaN where the format has no infinity (positive, or of the
    /// value's sign with [`NanPolicy::SignKept`]), or the largest finite value
    /// where it has neither. A directed rounding that points back toward
    /// zero gives the largest finite value, as IEEE 754 says.
    ToInfOrNan,
}

/// An infinite value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Infinities {
    /// The largest finite value of that sign.
    #[default]
    Saturate,
    /// Infinity, or NaN where the format has no infinity, or the largest finite
    /// value where it has neither.
    Propagate,
}

/// A NaN. A format without NaN gives its largest finite value instead (of the
/// source's sign with `SignKept`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NanPolicy {
    /// The canonical, positive NaN, as NVIDIA's `cvt` gives it.
    #[default]
    Canonical,
    /// The canonical NaN with the sign of the source, as `cuda_fp8.h` on the host.
    SignKept,
    /// The largest finite value, positive, as some engines do.
    MaxFinite,
}

/// A result below the smallest normal number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subnormals {
    /// Encoded like any other value.
    #[default]
    Kept,
    /// A source value whose magnitude is below the smallest normal one counts as
    /// zero before it is rounded.
    FlushedBefore,
    /// A result that is subnormal after rounding becomes zero.
    FlushedAfter,
}

/// A zero result with a negative sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NegativeZero {
    /// Stays -0 where the format has it.
    #[default]
    Kept,
    /// Becomes +0.
    Dropped,
}

/// The choices of an encoding. The default is what NVIDIA's
/// `cvt.rn.satfinite` does.
///
/// A negative value that does not round to zero has no code in an unsigned
/// format: it is an overflow below the range, giving the smallest value (0, or
/// 2^-127 for E8M0) or NaN by `overflow` and `infinities`. A format without zero gives its smallest value
/// for zero and for anything that would underflow to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Values between two codes.
    pub rounding: Rounding,
    /// Finite values beyond the largest.
    pub overflow: Overflow,
    /// Infinite values.
    pub infinities: Infinities,
    /// NaN.
    pub nan: NanPolicy,
    /// Results below the smallest normal number.
    pub subnormals: Subnormals,
    /// The sign of a zero result.
    pub negative_zero: NegativeZero,
}

impl Rounding {
    /// Every rounding.
    pub const ALL: [Self; 6] =
        [Self::NearestEven, Self::TowardZero, Self::Up, Self::Down, Self::NearestAway, Self::Stochastic];
}

impl Policy {
    /// IEEE 754 conversion: nothing saturates. NaN is canonical.
    pub const IEEE: Self = Self {
        rounding: Rounding::NearestEven,
        overflow: Overflow::ToInfOrNan,
        infinities: Infinities::Propagate,
        nan: NanPolicy::Canonical,
        subnormals: Subnormals::Kept,
        negative_zero: NegativeZero::Kept,
    };

    /// Every combination of choices: 6 * 2 * 2 * 3 * 3 * 2 = 432.
    pub fn all() -> impl Iterator<Item = Self> {
        let mut all = Vec::with_capacity(432);
        for rounding in Rounding::ALL {
            for overflow in [Overflow::Saturate, Overflow::ToInfOrNan] {
                for infinities in [Infinities::Saturate, Infinities::Propagate] {
                    for nan in [NanPolicy::Canonical, NanPolicy::SignKept, NanPolicy::MaxFinite] {
                        for subnormals in
                            [Subnormals::Kept, Subnormals::FlushedBefore, Subnormals::FlushedAfter]
                        {
                            for negative_zero in [NegativeZero::Kept, NegativeZero::Dropped] {
                                all.push(Self {
                                    rounding,
                                    overflow,
                                    infinities,
                                    nan,
                                    subnormals,
                                    negative_zero,
                                });
                            }
                        }
                    }
                }
            }
        }
        all.into_iter()
    }
}
