//! Metadata: values and their types.

use crate::cursor::Cursor;
use crate::{Bytes, What};
use std::fmt;

/// The type of a value, by its number in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// 8 bits, unsigned.
    U8,
    /// 8 bits, signed.
    I8,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    I16,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    I32,
    /// binary32.
    F32,
    /// A byte, 0 or 1.
    Bool,
    /// UTF-8.
    String,
    /// Values of one type.
    Array,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// binary64.
    F64,
}

impl ValueType {
    /// Every type, by number.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The number that stands in files.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Bytes of a value; `None` where values differ.
    #[must_use]
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// A value of metadata.
#[derive(Clone, Debug)]
pub enum Value {
    /// 8 bits, unsigned.
    U8(u8),
    /// 8 bits, signed.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// binary32.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// A text.
    String(String),
    /// Values of one type.
    Array(Array),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// binary64.
    F64(f64),
}

impl Value {
    /// Its type.
    #[must_use]
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The integer, of whatever width, if it is one and not negative. The format leaves the
    /// width of most counts to the writer.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::U64(value) => Some(value),
            Self::I8(value) => value.try_into().ok(),
            Self::I16(value) => value.try_into().ok(),
            Self::I32(value) => value.try_into().ok(),
            Self::I64(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// Appends the value as files have it, without its type.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(value) => out.push(*value),
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_bits().to_le_bytes()),
            Self::Bool(value) => out.push((*value).into()),
            Self::String(value) => write_text(value, out),
            Self::Array(value) => {
                out.extend(value.element.number().to_le_bytes());
                out.extend((value.len as u64).to_le_bytes());
                out.extend_from_slice(&value.bytes);
            }
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) => out.extend(value.to_bits().to_le_bytes()),
        }
    }
}

/// Appends a text as files have it.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Values are the same where their bits are: NaNs with the same bits are, 0.0 and -0.0 are not.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        let bits = |value: &Self| {
            let mut bits = Vec::new();
            value.write(&mut bits);
            bits
        };
        self.ty() == other.ty() && bits(self) == bits(other)
    }
}

impl Eq for Value {}

macro_rules! from {
    ($($variant:ident($ty:ty)),*) => {
        $(impl From<$ty> for Value {
            fn from(value: $ty) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
from!(U8(u8), I8(i8), U16(u16), I16(i16), U32(u32), I32(i32), F32(f32), Bool(bool));
from!(String(String), Array(Array), U64(u64), I64(i64), F64(f64));

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

/// Values of one type, kept as the bytes that the file has: a vocabulary takes no memory
/// until one goes through it.
#[derive(Clone, Debug)]
pub struct Array {
    pub(crate) element: ValueType,
    pub(crate) len: usize,
    /// The elements, one after the other.
    pub(crate) bytes: Bytes,
}

/// An element whose type is not the array's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("element {index} is of type {found} in an array of {expected}; give values of one type")]
pub struct MixedArray {
    /// Which element.
    pub index: usize,
    /// Its type.
    pub found: ValueType,
    /// The array's.
    pub expected: ValueType,
}

impl Array {
    /// An array of these values.
    pub fn new(element: ValueType, values: impl IntoIterator<Item = Value>) -> Result<Self, MixedArray> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for (index, value) in values.into_iter().enumerate() {
            if value.ty() != element {
                return Err(MixedArray { index, found: value.ty(), expected: element });
            }
            value.write(&mut bytes);
            len = index + 1;
        }
        Ok(Self { element, len, bytes: bytes.into() })
    }

    /// The type of the elements.
    #[must_use]
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order. Of an array in a mapped file that was changed behind our back
    /// they end before the first that is malformed.
    #[must_use]
    pub fn iter(&self) -> Elements<'_> {
        Elements { element: self.element, left: self.len, cursor: Cursor::new(&self.bytes) }
    }
}

impl<'a> IntoIterator for &'a Array {
    type Item = Value;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

/// The elements of an array.
#[derive(Debug)]
pub struct Elements<'a> {
    element: ValueType,
    left: usize,
    cursor: Cursor<'a>,
}

impl Iterator for Elements<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let value = self.cursor.value(self.element, &What::Array).ok();
        if value.is_none() {
            self.left = 0;
        }
        value
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_types() {
        for (number, ty) in (0..).zip(ValueType::ALL) {
            assert_eq!((ty.number(), ValueType::from_number(number)), (number, Some(ty)));
        }
        assert_eq!(ValueType::from_number(13), None);
        assert_eq!(ValueType::from_number(u32::MAX), None);
    }

    #[test]
    fn values_are_compared_by_bits() {
        assert_eq!(Value::F32(f32::NAN), Value::F32(f32::NAN));
        assert_ne!(Value::F32(0.0), Value::F32(-0.0));
        assert_ne!(Value::U32(0), Value::I32(0));
    }

    #[test]
    fn arrays_are_of_one_type() {
        let mixed = Array::new(ValueType::U8, [Value::U8(1), Value::I8(1)]);
        let error = MixedArray { index: 1, found: ValueType::I8, expected: ValueType::U8 };
        assert_eq!(mixed.unwrap_err(), error);
        let texts = ["", "a\0b", "ä"].map(Value::from);
        let array = Array::new(ValueType::String, texts.clone()).unwrap();
        assert_eq!(array.iter().collect::<Vec<_>>(), texts);
    }
}
