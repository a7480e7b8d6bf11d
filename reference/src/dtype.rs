//! What the elements of a tensor are.

use crate::format::{ALL, Decimal, Format, HexFloat};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Type of a tensor's elements: a number format or an unsigned integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// A floating-point format, one code per storage unit.
    Float(Format),
    /// 8-bit unsigned integers (classes).
    U8,
    /// 32-bit unsigned integers (random bits).
    U32,
}

impl DType {
    /// Name as written in cases.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float(format) => format.name,
            Self::U8 => "u8",
            Self::U32 => "u32",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "u8" => Some(Self::U8),
            "u32" => Some(Self::U32),
            _ => Format::by_name(name).map(Self::Float),
        }
    }

    /// Names of all types.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.into_iter().map(|format| format.name).chain(["u8", "u32"])
    }

    /// The number format, if it is one.
    #[must_use]
    pub const fn format(self) -> Option<Format> {
        match self {
            Self::Float(format) => Some(format),
            Self::U8 | Self::U32 => None,
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Float(format) => format.storage_bits as usize / 8,
            Self::U8 => 1,
            Self::U32 => 4,
        }
    }

    /// Bits that an element may have set.
    #[must_use]
    pub const fn code_mask(self) -> u64 {
        match self {
            Self::Float(format) => format.code_mask(),
            Self::U8 => u8::MAX as u64,
            Self::U32 => u32::MAX as u64,
        }
    }

    /// An element in hex, with all its digits.
    #[must_use]
    pub fn hex(self, code: u64) -> String {
        format!("0x{code:0width$x}", width = 2 * self.bytes())
    }

    /// The element of a hex pattern, `0x` and all its digits. Padding below the fraction
    /// (TF32) may be set, bits above the code may not.
    pub fn parse_hex(self, text: &str) -> Result<u64, String> {
        let digits = 2 * self.bytes();
        let hex = text.strip_prefix("0x").filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(hex) = hex else {
            return Err(format!("`{text}` is not a bit pattern; write quoted hex, like \"{}\"", self.hex(0)));
        };
        if hex.len() != digits {
            return Err(format!("`{text}` has {} hex digits, {self} has {digits}", hex.len()));
        }
        let code = u64::from_str_radix(hex, 16).map_err(|error| format!("`{text}`: {error}"))?;
        let highest = self.code_mask().ilog2();
        if code.checked_ilog2().is_some_and(|bit| bit > highest) {
            return Err(format!("`{text}` has bits outside the {} of {self}", highest + 1));
        }
        Ok(code)
    }

    /// An element as decimal, hex float and bits: `465.0 (0x1.d1p+8, 0x43e88000)`.
    #[must_use]
    pub fn describe(self, code: u64) -> String {
        match self {
            Self::Float(format) => {
                let value = format.decode(code);
                format!("{} ({}, {})", Decimal(value), HexFloat(value), self.hex(code))
            }
            Self::U8 | Self::U32 => format!("{code} ({})", self.hex(code)),
        }
    }
}

impl From<Format> for DType {
    fn from(format: Format) -> Self {
        Self::Float(format)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::by_name(&name).ok_or_else(|| {
            let names: Vec<_> = Self::names().collect();
            de::Error::custom(format!("unknown dtype `{name}`, expected one of {}", names.join(", ")))
        })
    }
}

impl JsonSchema for DType {
    fn schema_name() -> Cow<'static, str> {
        "DType".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Self::names().collect();
        json_schema!({ "type": "string", "enum": names })
    }
}
