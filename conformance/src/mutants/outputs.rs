//! Right outputs, changed.

use plumbline_reference::backend::BackendError;
use plumbline_reference::format::{Format, Policy};
use plumbline_reference::{Path, Tensor, TensorError};

/// What becomes of an output. Where an operation has several, it is every one that it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFault {
    /// The lowest bit of one lane in so many is wrong.
    Lane {
        /// Lanes.
        of: usize,
        /// The wrong one.
        lane: usize,
    },
    /// The lowest bit of the last element is wrong.
    LastBit,
    /// What is left after whole groups of so many elements is 0.
    Tail(usize),
    /// Elements from this one on are 0: one block of a grid.
    Beyond(usize),
    /// Nothing is computed: all are 0.
    Zero,
    /// Every element is the one before; the first is itself.
    Shifted,
    /// Rows and columns are exchanged in memory.
    Transposed,
    /// The first two rows are exchanged.
    RowsSwapped,
    /// The last row is that before it: memory that was used before.
    StaleRow,
    /// The last of a batch is the first.
    StaleBatch,
    /// NaN is 0.
    NanIsZero,
    /// NaN is the largest number.
    NanIsLarge,
    /// The largest number is NaN.
    LargeIsNan,
    /// An infinity is the largest number.
    InfinityIsLarge,
    /// The largest number is an infinity, where there is one.
    LargeIsInfinity,
    /// -0 is +0.
    ZeroWithoutSign,
    /// Subnormal numbers are 0.
    Flushed,
    /// Numbers are rounded to a narrower format on the way.
    Through(Format),
    /// Signs are lost.
    SignLost,
    /// The nibbles of bytes are exchanged.
    Nibbles,
    /// Numbers are twice as large.
    Twice,
}

impl OutputFault {
    /// The outputs; `None` where the fault changes none.
    pub(super) fn of(self, right: &[Tensor]) -> Result<Option<Vec<Tensor>>, BackendError> {
        let mut outputs = Vec::with_capacity(right.len());
        let mut is_other = false;
        for output in right {
            let other = if output.is_empty() { None } else { self.tensor(output)? };
            is_other |= other.is_some();
            outputs.push(other.unwrap_or_else(|| output.clone()));
        }
        Ok(is_other.then_some(outputs))
    }

    fn tensor(self, y: &Tensor) -> Result<Option<Tensor>, TensorError> {
        let (shape, len) = (y.shape(), y.len());
        let row = shape.last().copied().unwrap_or(1);
        let matrix = shape.iter().rev().take(2).product::<usize>();
        let made = |code: &(dyn Fn(usize) -> u64 + Sync)| {
            Tensor::from_fn(y.ty().clone(), Path::Definition, code).map(Some)
        };
        let of_number = |change: &(dyn Fn(Format, u64) -> u64 + Sync)| match y.dtype().format() {
            Some(format) => made(&|i| change(format, y.code(i))),
            None => Ok(None),
        };
        let bit = y.dtype().format().map_or(1, |format| 1 << format.low_padding);
        match self {
            Self::Lane { of, lane } => made(&|i| y.code(i) ^ if i % of == lane { bit } else { 0 }),
            Self::LastBit => made(&|i| y.code(i) ^ if i + 1 == len { bit } else { 0 }),
            Self::Tail(group) => {
                let whole = len - len % group;
                made(&|i| if i < whole { y.code(i) } else { 0 })
            }
            Self::Beyond(end) => made(&|i| if i < end { y.code(i) } else { 0 }),
            Self::Zero => made(&|_| 0),
            Self::Shifted => made(&|i| y.code(i.saturating_sub(1))),
            Self::Transposed => {
                let &[.., rows, columns] = shape else { return Ok(None) };
                made(&|i| {
                    let (base, at) = (i / matrix * matrix, i % matrix);
                    y.code(base + at % rows * columns + at / rows)
                })
            }
            Self::RowsSwapped if shape.len() > 1 && len >= 2 * row => made(&|i| match i / row {
                0 => y.code(i + row),
                1 => y.code(i - row),
                _ => y.code(i),
            }),
            Self::StaleRow if shape.len() > 1 && len >= 2 * row => {
                made(&|i| y.code(if i + row >= len { i - row } else { i }))
            }
            Self::StaleBatch if shape.len() > 2 && len > matrix => {
                made(&|i| y.code(if i + matrix >= len { i % matrix } else { i }))
            }
            Self::RowsSwapped | Self::StaleRow | Self::StaleBatch => Ok(None),
            Self::NanIsZero => of_number(&|format, code| if format.decode(code).is_nan() { 0 } else { code }),
            Self::NanIsLarge => of_number(&|format, code| {
                if format.decode(code).is_nan() { format.max_finite() } else { code }
            }),
            Self::LargeIsNan => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                if magnitude == format.max_finite() { format.canonical_nan().unwrap_or(code) } else { code }
            }),
            Self::InfinityIsLarge => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                if Some(magnitude) == format.infinity() {
                    code ^ magnitude | format.max_finite()
                } else {
                    code
                }
            }),
            Self::LargeIsInfinity => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                match format.infinity() {
                    Some(infinity) if magnitude == format.max_finite() => code ^ magnitude | infinity,
                    _ => code,
                }
            }),
            Self::ZeroWithoutSign => of_number(&|format, code| {
                if format.has_negative_zero() && code == format.sign_bit() { 0 } else { code }
            }),
            Self::Flushed => of_number(&|format, code| {
                let magnitude = code & !format.sign_bit();
                if format.subnormals && magnitude < format.min_normal() { code ^ magnitude } else { code }
            }),
            Self::Through(narrow) => of_number(&|format, code| {
                let through = narrow.encode(format.decode(code), &Policy::IEEE, 0);
                format.encode(narrow.decode(through), &Policy::IEEE, 0)
            }),
            Self::SignLost => of_number(&|format, code| {
                if format.decode(code).is_nan() { code } else { code & !format.sign_bit() }
            }),
            Self::Nibbles if y.dtype().bytes() == 1 => made(&|i| u64::from((y.code(i) as u8).rotate_left(4))),
            Self::Nibbles => Ok(None),
            Self::Twice => {
                of_number(&|format, code| format.encode((2.0 * format.to_f64(code)).into(), &Policy::IEEE, 0))
            }
        }
    }
}
