//! Right implementations that see other inputs.

use plumbline_reference::backend::BackendError;
use plumbline_reference::format::{F32, Format, Policy};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

/// How an input is seen. The number is its place among the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFault {
    /// Two inputs, each taken for the other.
    Swapped(usize, usize),
    /// Every number is 1: a scale that is left out.
    One(usize),
    /// Every element is 0: an addend or random bits that are left out.
    Zero(usize),
    /// Every element is the first: one scale for all.
    First(usize),
    /// Every row is the first: a stride of rows that is 0.
    FirstRow(usize),
    /// Every matrix of a batch is the first: a stride of the batch that is 0.
    FirstOfBatch(usize),
    /// Every element is the next one; the last is itself.
    Next(usize),
    /// The last element is 0.
    LastLost(usize),
    /// What is left of each row after whole groups of so many is 0.
    RowTail(usize, usize),
    /// The first row is 0 from its second half on.
    HalfRow(usize),
    /// Rows and columns are exchanged in memory.
    Transposed(usize),
    /// The elements are taken one after the other, whatever the strides.
    Unstrided(usize),
    /// Subnormal numbers are 0.
    Flushed(usize),
    /// NaN is 0.
    NanIsZero(usize),
    /// An infinity is the largest number.
    InfinityIsLarge(usize),
    /// -0 is +0.
    ZeroWithoutSign(usize),
    /// Negative numbers are 0.
    NegativesLost(usize),
    /// Signs are lost.
    SignLost(usize),
    /// Numbers are rounded to a narrower format first.
    Through(usize, Format),
    /// Bytes: the nibbles are exchanged.
    Nibbles(usize),
    /// Rows: neighbouring elements are exchanged.
    PairsSwapped(usize),
}

impl InputFault {
    /// The input that is seen otherwise.
    #[must_use]
    pub const fn input(self) -> usize {
        match self {
            Self::Swapped(i, _)
            | Self::One(i)
            | Self::Zero(i)
            | Self::First(i)
            | Self::FirstRow(i)
            | Self::FirstOfBatch(i)
            | Self::Next(i)
            | Self::LastLost(i)
            | Self::RowTail(i, _)
            | Self::HalfRow(i)
            | Self::Transposed(i)
            | Self::Unstrided(i)
            | Self::Flushed(i)
            | Self::NanIsZero(i)
            | Self::InfinityIsLarge(i)
            | Self::ZeroWithoutSign(i)
            | Self::NegativesLost(i)
            | Self::SignLost(i)
            | Self::Through(i, _)
            | Self::Nibbles(i)
            | Self::PairsSwapped(i) => i,
        }
    }

    /// The inputs as they are seen; `None` where they are seen as they are.
    pub(super) fn of(self, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>, BackendError> {
        let mut seen = inputs.to_vec();
        if let Self::Swapped(a, b) = self {
            if b >= inputs.len() || inputs[a].ty() != inputs[b].ty() {
                return Ok(None);
            }
            seen.swap(a, b);
            return Ok(Some(seen));
        }
        let Some(tensor) = inputs.get(self.input()).filter(|tensor| !tensor.is_empty()) else {
            return Ok(None);
        };
        let Some(other) = self.tensor(tensor)? else { return Ok(None) };
        seen[self.input()] = other;
        Ok(Some(seen))
    }

    fn tensor(self, x: &Tensor) -> Result<Option<Tensor>, TensorError> {
        let shape = x.shape();
        let row = shape.last().copied().unwrap_or(1);
        let matrix = shape.iter().rev().take(2).product::<usize>();
        let last = x.len() - 1;
        let made = |code: &(dyn Fn(usize) -> u64 + Sync)| {
            Tensor::from_fn(x.ty().clone(), Path::Definition, code).map(Some)
        };
        let of_number = |change: &(dyn Fn(Format, u64) -> u64 + Sync)| match x.dtype().format() {
            Some(format) => made(&|i| change(format, x.code(i))),
            None => Ok(None),
        };
        match self {
            Self::Swapped(..) => Ok(None),
            Self::One(_) => of_number(&|format, _| format.encode(1.0f32.into(), &Policy::IEEE, 0)),
            Self::Zero(_) => made(&|_| 0),
            Self::First(_) => made(&|_| x.code(0)),
            Self::FirstRow(_) => made(&|i| x.code(i % row)),
            Self::FirstOfBatch(_) if shape.len() > 2 => made(&|i| x.code(i % matrix)),
            Self::FirstOfBatch(_) => Ok(None),
            Self::Next(_) => made(&|i| x.code((i + 1).min(last))),
            Self::LastLost(_) => made(&|i| if i == last { 0 } else { x.code(i) }),
            Self::RowTail(_, group) => {
                let whole = row - row % group;
                made(&|i| if i % row < whole { x.code(i) } else { 0 })
            }
            Self::HalfRow(_) => made(&|i| if i < row && i >= row.div_ceil(2) { 0 } else { x.code(i) }),
            Self::Transposed(_) => {
                let &[.., rows, columns] = shape else { return Ok(None) };
                made(&|i| {
                    let (base, at) = (i / matrix * matrix, i % matrix);
                    x.code(base + at % columns * rows + at / columns)
                })
            }
            Self::Unstrided(_) => {
                let len = x.len() * x.dtype().bytes();
                let Some(bytes) = x.bytes().get(..len) else { return Ok(None) };
                Tensor::from_bytes(x.ty().clone(), bytes.to_vec()).map(Some)
            }
            Self::Flushed(_) => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                if format.subnormals && magnitude < format.min_normal() { code ^ magnitude } else { code }
            }),
            Self::NanIsZero(_) => {
                of_number(&|format, code| if format.decode(code).is_nan() { 0 } else { code })
            }
            Self::InfinityIsLarge(_) => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                if Some(magnitude) == format.infinity() { code - 1 } else { code }
            }),
            Self::ZeroWithoutSign(_) => of_number(&|format, code| {
                if format.has_negative_zero() && code == format.sign_bit() { 0 } else { code }
            }),
            Self::NegativesLost(_) => of_number(&|format, code| {
                if format.signed && code & format.sign_bit() != 0 { 0 } else { code }
            }),
            Self::SignLost(_) => of_number(&|format, code| code & !format.sign_bit()),
            Self::Through(_, narrow) => of_number(&|format, code| {
                let through = narrow.encode(format.decode(code), &Policy::IEEE, 0);
                format.encode(narrow.decode(through), &Policy::IEEE, 0)
            })
            .map(|seen| seen.filter(|_| x.dtype().format() == Some(F32))),
            Self::Nibbles(_) if x.dtype().bytes() == 1 => {
                made(&|i| u64::from((x.code(i) as u8).rotate_left(4)))
            }
            Self::Nibbles(_) => Ok(None),
            Self::PairsSwapped(_) => made(&|i| x.code(if (i ^ 1) <= last { i ^ 1 } else { i })),
        }
        .map(|seen: Option<Tensor>| seen.filter(|seen| seen.ty() == &TensorType::new(x.dtype(), shape)))
    }
}
