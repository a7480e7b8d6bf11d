//! Reading one thing after the other, none of them beyond the end.

use crate::error::{Error, Problem, What};
use crate::{Array, Bytes, MAX_DEPTH, MAX_NAME, MAX_TEXT, Value, ValueType};
use std::sync::Arc;

/// A place in some bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a Bytes,
    /// Offset of the next byte; at most the length.
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes of `what`.
    fn take(&mut self, count: u64, what: &What) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let taken = taken.ok_or_else(|| {
            Problem::Truncated { what: what.clone(), wanted: count, left: rest.len() }.at(self.at)
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &What) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self, what: &What) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &What) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things of which each takes at least so many bytes.
    pub(crate) fn count(&mut self, things: &'static str, least: usize, what: &What) -> Result<usize, Error> {
        let at = self.at;
        let (count, left) = (self.u64(what)?, self.left());
        let fits = usize::try_from(count).ok().filter(|&count| count <= left / least);
        fits.ok_or(Problem::Count { things, count, left }.at(at))
    }

    /// A key or a name.
    pub(crate) fn name(&mut self, what: &What) -> Result<Arc<str>, Error> {
        let at = self.at;
        let length = self.u64(what)?;
        if length > MAX_NAME as u64 {
            return Err(Problem::LongName { what: what.clone(), length }.at(at));
        }
        Ok(self.utf8(length, what)?.into())
    }

    fn text(&mut self, what: &What) -> Result<String, Error> {
        let at = self.at;
        let length = self.u64(what)?;
        if length > MAX_TEXT as u64 {
            return Err(Problem::LongText { what: what.clone(), length }.at(at));
        }
        self.utf8(length, what)
    }

    /// A copy that was checked, not a check and then a copy: a mapped file may be written to in
    /// between.
    fn utf8(&mut self, length: u64, what: &What) -> Result<String, Error> {
        let at = self.at;
        String::from_utf8(self.take(length, what)?.to_vec())
            .map_err(|error| Problem::Utf8 { what: what.clone() }.at(at + error.utf8_error().valid_up_to()))
    }

    pub(crate) fn value_type(&mut self, what: &What) -> Result<ValueType, Error> {
        let at = self.at;
        let number = self.u32(what)?;
        ValueType::from_number(number).ok_or_else(|| Problem::ValueType { what: what.clone(), number }.at(at))
    }

    /// A value of that type.
    pub(crate) fn value(&mut self, ty: ValueType, what: &What) -> Result<Value, Error> {
        Ok(match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            ValueType::U32 => Value::U32(self.u32(what)?),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            ValueType::F32 => Value::F32(f32::from_bits(self.u32(what)?)),
            ValueType::Bool => Value::Bool(self.bool(what)?),
            ValueType::String => Value::String(self.text(what)?),
            ValueType::Array => Value::Array(self.values(1, what)?),
            ValueType::U64 => Value::U64(self.u64(what)?),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            ValueType::F64 => Value::F64(f64::from_bits(self.u64(what)?)),
        })
    }

    /// A byte that is 0 or 1.
    fn bool(&mut self, what: &What) -> Result<bool, Error> {
        let at = self.at;
        match self.array(what)? {
            [byte @ 0..=1] => Ok(byte == 1),
            [byte] => Err(Problem::Bool { what: what.clone(), byte }.at(at)),
        }
    }

    /// An array, which is the `depth`-th of those around it and itself. Its elements are
    /// checked and left where they are.
    fn values(&mut self, depth: usize, what: &What) -> Result<Array, Error> {
        if depth > MAX_DEPTH {
            return Err(Problem::Depth { what: what.clone() }.at(self.at));
        }
        let element = self.value_type(what)?;
        let (things, least) = match element {
            ValueType::Array => ("arrays", 12),
            ValueType::String => ("texts", 8),
            _ => ("values", element.bytes().unwrap_or(1)),
        };
        let len = self.count(things, least, what)?;
        let start = self.at;
        match element {
            ValueType::Array => (0..len).try_for_each(|_| self.values(depth + 1, what).map(drop))?,
            ValueType::String => (0..len).try_for_each(|_| self.text(what).map(drop))?,
            ValueType::Bool => (0..len).try_for_each(|_| self.bool(what).map(drop))?,
            // `count` has seen that they are there.
            _ => drop(self.take((len * least) as u64, what)?),
        }
        let bytes = self.bytes.slice(start..self.at).unwrap_or_else(|| Vec::new().into());
        Ok(Array { element, len, bytes })
    }
}
