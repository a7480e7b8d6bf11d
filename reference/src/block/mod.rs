//! GGML's block formats as data; those of OCP Microscaling are in [`mx`].
//!
//! A tensor of blocks is one of bytes, whose last dimension is a block: `u8[N, K / values, bytes]`
//! for a matrix `[N, K]`. A [`BlockFormat`] is a row of a table: how many values a block holds and
//! the fields it is made of, in order, little-endian, without padding. What the fields mean is one
//! function per format that takes a block apart into integers and two factors, an [`Unpacked`].
//!
//! Value j of a block is `(d * scale[g]) * quant[j]`, and `m * min[g]` more where the format has
//! mins, with g = j / group. No format needs more than an f64 for that: the value is exact there.
//!
//! Source: the layouts are those of ggml (`ggml-common.h`), the meaning that of its
//! `dequantize_row_*`; both are checked against blocks that ggml wrote and read, of all formats but
//! Q8_1 and Q8_K.

mod k;
mod legacy;
pub mod mx;
pub(crate) mod nonlinear;
pub mod quantize;
mod ternary;

use crate::format::{E8M0, F16, F32};
pub use k::{pack_scales, pack_scales_and_mins};
pub use nonlinear::{E2M1_DOUBLED, IQ4};
pub use quantize::{Int8Format, Int8Rounding};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Most values of a block.
pub const MAX_VALUES: usize = 256;
/// Most groups of values with a scale of their own.
pub const MAX_GROUPS: usize = 16;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// binary16.
    F16,
    /// binary32.
    F32,
    /// OCP E8M0: a power of two.
    E8M0,
    /// Bits or unsigned integers.
    U8,
    /// Signed integers.
    I8,
    /// Bits.
    U16,
    /// Signed integers.
    I16,
    /// Bits.
    U32,
}

impl Kind {
    /// Bytes of one.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::E8M0 => 1,
            Self::F16 | Self::U16 | Self::I16 => 2,
            Self::F32 | Self::U32 => 4,
        }
    }
}

/// A field of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in ggml.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// How many.
    pub count: usize,
}

impl Field {
    /// Bytes of the whole field.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.kind.bytes() * self.count
    }
}

/// A format's layout.
#[derive(Debug)]
pub struct Layout {
    /// Name as ggml and cases write it: `q4_K`.
    pub name: &'static str,
    /// Values of a block.
    pub values: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// The fields in order.
    pub fields: &'static [Field],
    unpack: fn(Block<'_>) -> Unpacked,
}

impl Layout {
    /// Whether the fields fill the block.
    const fn is_filled(&self) -> bool {
        let (mut sum, mut i) = (0, 0);
        while i < self.fields.len() {
            sum += self.fields[i].bytes();
            i += 1;
        }
        sum == self.bytes && self.values <= MAX_VALUES
    }

    /// The byte at which a field begins, for constants.
    ///
    /// # Panics
    /// If the format has no such field.
    pub(crate) const fn at(&self, name: &str) -> usize {
        let (mut start, mut i) = (0, 0);
        while i < self.fields.len() {
            if is_same(self.fields[i].name.as_bytes(), name.as_bytes()) {
                return start;
            }
            start += self.fields[i].bytes();
            i += 1;
        }
        panic!("no such field")
    }

    /// A field and the byte at which it begins.
    ///
    /// # Panics
    /// If the format has no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> (usize, Field) {
        let found = self.offsets().find(|(_, field)| field.name == name);
        found.unwrap_or_else(|| panic!("{} has no field {name}", self.name))
    }

    /// The fields with the byte at which each begins.
    pub fn offsets(&self) -> impl Iterator<Item = (usize, Field)> {
        let mut end = 0;
        self.fields.iter().map(move |field| {
            let start = end;
            end += field.bytes();
            (start, *field)
        })
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// A block's bytes, read by field.
#[derive(Clone, Copy)]
struct Block<'a> {
    layout: &'static Layout,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    fn bytes(&self, name: &str) -> &'a [u8] {
        let (start, field) = self.layout.field(name);
        &self.bytes[start..start + field.bytes()]
    }

    /// A field of one element as an unsigned integer.
    fn word(&self, name: &str) -> u64 {
        self.bytes(name).iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    fn f16(&self, name: &str) -> f64 {
        F16.to_f64(self.word(name))
    }

    fn f32(&self, name: &str) -> f64 {
        F32.to_f64(self.word(name))
    }

    fn i8s(&self, name: &str) -> impl Iterator<Item = i16> + 'a {
        self.bytes(name).iter().map(|&byte| i16::from(byte as i8))
    }
}

/// A block taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Unpacked {
    /// Factor of every scale.
    pub d: f64,
    /// Factor of every min, its sign included; `None` for formats without mins.
    pub m: Option<f64>,
    /// Values that share a scale.
    pub group: usize,
    /// A scale of each group.
    pub scales: [i16; MAX_GROUPS],
    /// A min of each group.
    pub mins: [i16; MAX_GROUPS],
    /// An integer of each value.
    pub quants: [i16; MAX_VALUES],
}

impl Unpacked {
    /// A block whose values are integers times one factor.
    fn plain(d: f64, quants: impl IntoIterator<Item = i16>) -> Self {
        Self { d, m: None, group: MAX_VALUES, scales: filled([1]), mins: filled([]), quants: filled(quants) }
    }

    /// Value j.
    ///
    /// # Panics
    /// If j is 256 or more.
    #[must_use]
    pub fn value(&self, j: usize) -> f64 {
        let g = j / self.group;
        let product = self.d * f64::from(self.scales[g]) * f64::from(self.quants[j]);
        self.m.map_or(product, |m| product + m * f64::from(self.mins[g]))
    }
}

/// The first elements; the rest is 0.
fn filled<const N: usize>(elements: impl IntoIterator<Item = i16>) -> [i16; N] {
    let mut array = [0; N];
    for (slot, element) in array.iter_mut().zip(elements) {
        *slot = element;
    }
    array
}

macro_rules! formats {
    ($($Format:ident $name:literal $values:literal / $bytes:literal
        [$($field:ident: $kind:ident $(* $count:literal)?),*] $unpack:path;)*) => {
        /// A block format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum BlockFormat {
            $($Format,)*
        }

        impl BlockFormat {
            /// Every format.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Format),*];

            /// The layout.
            #[must_use]
            pub const fn layout(self) -> &'static Layout {
                match self {
                    $(Self::$Format => {
                        static LAYOUT: Layout = Layout {
                            name: $name,
                            values: $values,
                            bytes: $bytes,
                            fields: &[$(Field {
                                name: stringify!($field),
                                kind: Kind::$kind,
                                count: 1 $(* $count)?,
                            }),*],
                            unpack: $unpack,
                        };
                        const _: () = assert!(LAYOUT.is_filled());
                        &LAYOUT
                    })*
                }
            }
        }
    };
}

formats! {
    Q4_0 "q4_0" 32 / 18 [d: F16, qs: U8 * 16] legacy::q4_0;
    Q4_1 "q4_1" 32 / 20 [d: F16, m: F16, qs: U8 * 16] legacy::q4_1;
    Q5_0 "q5_0" 32 / 22 [d: F16, qh: U32, qs: U8 * 16] legacy::q5_0;
    Q5_1 "q5_1" 32 / 24 [d: F16, m: F16, qh: U32, qs: U8 * 16] legacy::q5_1;
    Q8_0 "q8_0" 32 / 34 [d: F16, qs: I8 * 32] legacy::q8_0;
    Q8_1 "q8_1" 32 / 36 [d: F16, s: F16, qs: I8 * 32] legacy::q8_0;
    Q2K "q2_K" 256 / 84 [scales: U8 * 16, qs: U8 * 64, d: F16, dmin: F16] k::q2_k;
    Q3K "q3_K" 256 / 110 [hmask: U8 * 32, qs: U8 * 64, scales: U8 * 12, d: F16] k::q3_k;
    Q4K "q4_K" 256 / 144 [d: F16, dmin: F16, scales: U8 * 12, qs: U8 * 128] k::q4_k;
    Q5K "q5_K" 256 / 176 [d: F16, dmin: F16, scales: U8 * 12, qh: U8 * 32, qs: U8 * 128] k::q5_k;
    Q6K "q6_K" 256 / 210 [ql: U8 * 128, qh: U8 * 64, scales: I8 * 16, d: F16] k::q6_k;
    Q8K "q8_K" 256 / 292 [d: F32, qs: I8 * 256, bsums: I16 * 16] k::q8_k;
    Iq4Nl "iq4_nl" 32 / 18 [d: F16, qs: U8 * 16] nonlinear::iq4_nl;
    Iq4Xs "iq4_xs" 256 / 136 [d: F16, scales_h: U16, scales_l: U8 * 4, qs: U8 * 128] nonlinear::iq4_xs;
    Tq1_0 "tq1_0" 256 / 54 [qs: U8 * 48, qh: U8 * 4, d: F16] ternary::tq1_0;
    Tq2_0 "tq2_0" 256 / 66 [qs: U8 * 64, d: F16] ternary::tq2_0;
    Mxfp4 "mxfp4" 32 / 17 [e: E8M0, qs: U8 * 16] nonlinear::mxfp4;
}

impl BlockFormat {
    /// Name as ggml and cases write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.layout().name
    }

    /// The format of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Values of a block.
    #[must_use]
    pub const fn values(self) -> usize {
        self.layout().values
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.layout().bytes
    }

    /// Whether blocks have mins, so that a value is a sum and may be rounded.
    #[must_use]
    pub const fn has_mins(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K)
    }

    /// Takes a block apart.
    ///
    /// # Panics
    /// If there are not [`BlockFormat::bytes`] of them.
    #[must_use]
    pub fn unpack(self, bytes: &[u8]) -> Unpacked {
        let layout = self.layout();
        assert_eq!(bytes.len(), layout.bytes, "bytes of a block of {self}");
        (layout.unpack)(Block { layout, bytes })
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for BlockFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for BlockFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::by_name(&name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            de::Error::custom(format!("unknown block format `{name}`, expected one of {names}"))
        })
    }
}

impl JsonSchema for BlockFormat {
    fn schema_name() -> Cow<'static, str> {
        "BlockFormat".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Self::ALL.map(Self::name) })
    }
}

/// The f32 of a code of E8M0 halved, as ggml has it: `2^(e - 128)`, 255 included.
fn half_e8m0(e: u64) -> f64 {
    // The format's own 255 is NaN.
    if e == 255 { F32.to_f64(0x7f00_0000) } else { E8M0.to_f64(e) / 2.0 }
}
