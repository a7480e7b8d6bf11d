//! Number formats as data.
//!
//! A [`Format`] is a row of a table: how many bits each field has, the bias, and
//! which codes are special. Everything else (largest value, smallest subnormal,
//! canonical NaN, neighbours) is derived from that row, and the two algorithms
//! over it, [`Format::encode`] and [`Format::decode`], read it and nothing else.
//!
//! A *code* is the bit pattern as stored: one `u64`, right-aligned, with the
//! format's padding bits where memory has them. TF32 is stored as the f32 with
//! its low 13 bits zero; E2M1 takes the low four bits of a byte.

mod decode;
mod display;
mod encode;
mod policy;

pub use decode::{Class, Value};
pub use display::{Decimal, HexFloat};
pub use encode::Rounder;
pub use policy::{Infinities, NanPolicy, NegativeZero, Overflow, Policy, Rounding, Subnormals};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Which codes are not finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Specials {
    /// IEEE 754: an exponent field of all ones is infinity (fraction 0) or NaN.
    Ieee,
    /// No infinity; the code with every exponent and fraction bit set is NaN
    /// (both signs). OCP E4M3, E8M0, and NVIDIA's UE4M3.
    NanAllOnes,
    /// No infinity and no negative zero; the code that would be -0 is the only
    /// NaN. The `fnuz` formats.
    NanNegativeZero,
    /// Every code is a finite number: the OCP MX element formats.
    None,
}

/// A binary floating-point format.
///
/// ```
/// use plumbline_reference::format::{E4M3FN, F32, Policy};
/// let code = E4M3FN.encode(F32.decode(465f32.to_bits().into()), &Policy::default(), 0);
/// assert_eq!(code, 0x7e); // 448, not the NaN code 0x7f
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Name as written in cases: `e4m3fn`.
    pub name: &'static str,
    /// Has a sign bit.
    pub signed: bool,
    /// Width of the exponent field.
    pub exponent_bits: u32,
    /// Width of the fraction field.
    pub fraction_bits: u32,
    /// The exponent field of 1.0.
    pub bias: i32,
    /// Which codes are not finite numbers.
    pub specials: Specials,
    /// An exponent field of 0 means zero and subnormals. Where false (E8M0), it
    /// is an ordinary exponent and the format has no zero; it is unsigned then.
    pub subnormals: bool,
    /// Bits of storage of one code in memory: 8, 16, 32 or 64.
    pub storage_bits: u32,
    /// Unused bits below the fraction: zero when written, ignored when read.
    pub low_padding: u32,
    /// Where the format is defined.
    pub source: &'static str,
}

const IEEE: Format = Format {
    name: "",
    signed: true,
    exponent_bits: 0,
    fraction_bits: 0,
    bias: 0,
    specials: Specials::Ieee,
    subnormals: true,
    storage_bits: 8,
    low_padding: 0,
    source: "IEEE 754-2019",
};
const OCP8: &str = "OCP 8-bit Floating Point Specification 1.0";
const OCP_MX: &str = "OCP Microscaling Formats Specification 1.0";
const FNUZ: &str = "arXiv:2206.02915 (8-bit numerical formats for deep neural networks)";

/// OCP E4M3 (`fn`: finite, one NaN per sign): largest value 448.
pub const E4M3FN: Format = Format {
    name: "e4m3fn",
    exponent_bits: 4,
    fraction_bits: 3,
    bias: 7,
    specials: Specials::NanAllOnes,
    source: OCP8,
    ..IEEE
};
/// OCP E5M2: IEEE-like with infinities, largest value 57344.
pub const E5M2: Format =
    Format { name: "e5m2", exponent_bits: 5, fraction_bits: 2, bias: 15, source: OCP8, ..IEEE };
/// E4M3 with bias 8 and neither infinity nor -0: largest value 240.
pub const E4M3FNUZ: Format =
    Format { name: "e4m3fnuz", bias: 8, specials: Specials::NanNegativeZero, source: FNUZ, ..E4M3FN };
/// E5M2 with bias 16 and neither infinity nor -0: largest value 57344.
pub const E5M2FNUZ: Format =
    Format { name: "e5m2fnuz", bias: 16, specials: Specials::NanNegativeZero, source: FNUZ, ..E5M2 };
/// IEEE binary16.
pub const F16: Format =
    Format { name: "f16", exponent_bits: 5, fraction_bits: 10, bias: 15, storage_bits: 16, ..IEEE };
/// bfloat16: the upper half of a binary32.
pub const BF16: Format = Format {
    name: "bf16",
    exponent_bits: 8,
    fraction_bits: 7,
    bias: 127,
    storage_bits: 16,
    source: "binary32 cut to 16 bits; PTX ISA, .bf16",
    ..IEEE
};
/// NVIDIA's TensorFloat-32: a binary32 whose low 13 bits are padding.
pub const TF32: Format = Format {
    name: "tf32",
    exponent_bits: 8,
    fraction_bits: 10,
    bias: 127,
    storage_bits: 32,
    low_padding: 13,
    source: "PTX ISA, .tf32",
    ..IEEE
};
/// IEEE binary32.
pub const F32: Format =
    Format { name: "f32", exponent_bits: 8, fraction_bits: 23, bias: 127, storage_bits: 32, ..IEEE };
/// IEEE binary64.
pub const F64: Format =
    Format { name: "f64", exponent_bits: 11, fraction_bits: 52, bias: 1023, storage_bits: 64, ..IEEE };
/// MX block scale: a power of two, no sign, no zero, one NaN.
pub const E8M0: Format = Format {
    name: "e8m0",
    signed: false,
    exponent_bits: 8,
    fraction_bits: 0,
    bias: 127,
    specials: Specials::NanAllOnes,
    subnormals: false,
    source: OCP_MX,
    ..IEEE
};
/// MX element: 6 bits, largest value 7.5.
pub const E2M3: Format = Format {
    name: "e2m3",
    exponent_bits: 2,
    fraction_bits: 3,
    bias: 1,
    specials: Specials::None,
    source: OCP_MX,
    ..IEEE
};
/// MX element: 6 bits, largest value 28.
pub const E3M2: Format = Format {
    name: "e3m2",
    exponent_bits: 3,
    fraction_bits: 2,
    bias: 3,
    specials: Specials::None,
    source: OCP_MX,
    ..IEEE
};
/// MX element: 4 bits, values 0, 0.5, 1, 1.5, 2, 3, 4, 6.
pub const E2M1: Format = Format {
    name: "e2m1",
    exponent_bits: 2,
    fraction_bits: 1,
    bias: 1,
    specials: Specials::None,
    source: OCP_MX,
    ..IEEE
};
/// The block scale of NVFP4: E4M3 without its sign; the top bit of the byte is
/// padding.
pub const UE4M3: Format = Format { name: "ue4m3", signed: false, source: "PTX ISA, .ue4m3", ..E4M3FN };

/// Every format, in the order of the documentation.
pub const ALL: [Format; 14] =
    [E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ, F16, BF16, TF32, F32, F64, E8M0, E2M3, E3M2, E2M1, UE4M3];

impl Format {
    /// The format of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|format| format.name == name)
    }

    /// Bits of a code that carry information, without padding.
    #[must_use]
    pub const fn code_bits(&self) -> u32 {
        self.signed as u32 + self.magnitude_bits()
    }

    /// How many codes there are: `2^code_bits`.
    #[must_use]
    pub const fn code_count(&self) -> u128 {
        1 << self.code_bits()
    }

    /// The `index`-th code in the order of the stored pattern.
    #[must_use]
    pub const fn code_at(&self, index: u64) -> u64 {
        index << self.low_padding
    }

    /// Bits that a stored code may have set.
    #[must_use]
    pub const fn code_mask(&self) -> u64 {
        u64::MAX >> (64 - self.code_bits()) << self.low_padding
    }

    /// Whether some code is an infinity.
    #[must_use]
    pub const fn has_infinity(&self) -> bool {
        matches!(self.specials, Specials::Ieee)
    }

    /// Whether some code is a NaN.
    #[must_use]
    pub const fn has_nan(&self) -> bool {
        !matches!(self.specials, Specials::None)
    }

    /// Whether -0 and +0 are different codes.
    #[must_use]
    pub const fn has_negative_zero(&self) -> bool {
        self.signed && self.subnormals && !matches!(self.specials, Specials::NanNegativeZero)
    }

    /// Code of the largest finite value.
    #[must_use]
    pub const fn max_finite(&self) -> u64 {
        self.code_at(self.max_magnitude())
    }

    /// Code of the least value: `-max_finite`, or the smallest magnitude of an
    /// unsigned format.
    #[must_use]
    pub const fn lowest(&self) -> u64 {
        if self.signed { self.max_finite() | self.sign_bit() } else { 0 }
    }

    /// Code of the smallest positive normal number.
    #[must_use]
    pub const fn min_normal(&self) -> u64 {
        if self.subnormals { self.code_at(1 << self.fraction_bits) } else { 0 }
    }

    /// Code of the smallest positive number.
    #[must_use]
    pub const fn min_positive(&self) -> u64 {
        if self.subnormals { self.code_at(1) } else { 0 }
    }

    /// Code of +infinity.
    #[must_use]
    pub const fn infinity(&self) -> Option<u64> {
        if self.has_infinity() {
            Some(self.code_at(self.exponent_mask() << self.fraction_bits))
        } else {
            None
        }
    }

    /// The NaN that arithmetic gives: positive with every bit set, as NVIDIA's
    /// conversions give it (`0x7f`, `0x7fff`, `0x7fffffff`); `0x80` for `fnuz`.
    #[must_use]
    pub const fn canonical_nan(&self) -> Option<u64> {
        match self.specials {
            Specials::Ieee | Specials::NanAllOnes => Some(self.code_at(self.magnitude_mask())),
            Specials::NanNegativeZero => Some(self.sign_bit()),
            Specials::None => None,
        }
    }

    /// `floor(log2)` of the largest finite value.
    #[must_use]
    pub const fn max_exponent(&self) -> i32 {
        (self.max_magnitude() >> self.fraction_bits) as i32 - self.bias
    }

    /// `floor(log2)` of the smallest normal number.
    #[must_use]
    pub const fn min_exponent(&self) -> i32 {
        self.subnormals as i32 - self.bias
    }

    /// The sign bit of a stored code; 0 for an unsigned format.
    #[must_use]
    pub const fn sign_bit(&self) -> u64 {
        if self.signed { 1 << (self.magnitude_bits() + self.low_padding) } else { 0 }
    }

    /// A number that orders codes as their values, -0 below +0.
    #[must_use]
    pub const fn ordinal(&self, code: u64) -> i64 {
        let magnitude = (code & !self.sign_bit()) as i64;
        if code & self.sign_bit() == 0 { magnitude } else { -1 - magnitude }
    }

    /// Hex digits of a stored code.
    #[must_use]
    pub const fn hex_digits(&self) -> usize {
        self.storage_bits as usize / 4
    }

    const fn magnitude_bits(&self) -> u32 {
        self.exponent_bits + self.fraction_bits
    }

    pub(crate) const fn magnitude_mask(&self) -> u64 {
        u64::MAX >> (64 - self.magnitude_bits())
    }

    pub(crate) const fn exponent_mask(&self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    const fn fraction_mask(&self) -> u64 {
        (1 << self.fraction_bits) - 1
    }

    /// The magnitude of a stored code: exponent and fraction fields as one number.
    const fn magnitude(&self, code: u64) -> u64 {
        code >> self.low_padding & self.magnitude_mask()
    }

    pub(crate) const fn max_magnitude(&self) -> u64 {
        match self.specials {
            Specials::Ieee => ((self.exponent_mask() - 1) << self.fraction_bits) | self.fraction_mask(),
            Specials::NanAllOnes => self.magnitude_mask() - 1,
            Specials::NanNegativeZero | Specials::None => self.magnitude_mask(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn names() -> String {
    ALL.map(|format| format.name).join(", ")
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::by_name(&name)
            .ok_or_else(|| de::Error::custom(format!("unknown format `{name}`, expected one of {}", names())))
    }
}

impl JsonSchema for Format {
    fn schema_name() -> Cow<'static, str> {
        "Format".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ALL.map(|format| format.name) })
    }
}
