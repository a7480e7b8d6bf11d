//! Tensors of integers, as matrices that vectors are multiplied by.

use plumbline_reference::Tensor;
use plumbline_reference::format::{F32, Format};
use rayon::prelude::*;
use std::borrow::Cow;

/// In place of what is no integer.
pub(super) const NONE: i32 = i32::MIN;

/// Elements of a task.
const CHUNK: usize = 1 << 14;

/// The number, if it is an integer of at most 30 bits.
pub(super) fn integer(x: f64) -> Option<i32> {
    let integer = x as i32;
    (f64::from(integer) == x && integer.unsigned_abs() < 1 << 30).then_some(integer)
}

/// The elements of a tensor as integers.
pub(super) struct Integers<'a> {
    bytes: Cow<'a, [u8]>,
    format: Format,
    /// The integers of all codes, where codes are short.
    table: Vec<i32>,
    len: usize,
}

impl<'a> Integers<'a> {
    pub(super) fn of(tensor: &'a Tensor, format: Format) -> Self {
        let codes = if format.storage_bits <= 16 { 1u64 << format.storage_bits } else { 0 };
        let table = (0..codes).map(|code| integer(format.to_f64(code)).unwrap_or(NONE)).collect();
        Self { bytes: tensor.packed(), format, table, len: tensor.len() }
    }

    /// `len` elements, row by row, from that one.
    pub(super) fn line(&self, first: usize, len: usize) -> Vec<i32> {
        let width = self.bytes.len() / self.len.max(1);
        let bytes = &self.bytes[first * width..(first + len) * width];
        match width {
            1 => bytes.iter().map(|&code| self.table[usize::from(code)]).collect(),
            2 => {
                let codes = bytes.as_chunks().0.iter().map(|&code| u16::from_le_bytes(code));
                codes.map(|code| self.table[usize::from(code)]).collect()
            }
            4 if self.format == F32 => {
                let numbers = bytes.as_chunks().0.iter().map(|&code| f32::from_le_bytes(code));
                numbers.map(|x| integer(x.into()).unwrap_or(NONE)).collect()
            }
            _ => {
                let code =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
                let numbers = bytes.chunks(width.max(1)).map(|bytes| self.format.to_f64(code(bytes)));
                numbers.map(|x| integer(x).unwrap_or(NONE)).collect()
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<i64> {
        self.line(0, self.len).into_iter().map(i64::from).collect()
    }

    /// The largest magnitude; `None` where one is no integer.
    pub(super) fn largest(&self) -> Option<u32> {
        let chunk = |chunk: usize| {
            let line = self.line(chunk * CHUNK, CHUNK.min(self.len - chunk * CHUNK));
            let largest = line.iter().map(|x| x.unsigned_abs()).max().unwrap_or(0);
            (largest < NONE.unsigned_abs()).then_some(largest)
        };
        (0..self.len.div_ceil(CHUNK)).into_par_iter().map(chunk).try_reduce(|| 0, |a, b| Some(a.max(b)))
    }

    /// A matrix of them: the place of its first element, from one row to the next, and from one
    /// column to the next. One of the two is 1.
    pub(super) fn matrix(
        &self,
        (first, row, column): (usize, usize, usize),
        rows: usize,
        columns: usize,
    ) -> Matrix<'_> {
        Matrix { integers: self, first, row, column, rows, columns }
    }
}

/// A matrix as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    integers: &'a Integers<'a>,
    first: usize,
    /// From one row to the next.
    row: usize,
    /// From one column to the next.
    column: usize,
    rows: usize,
    columns: usize,
}

impl Matrix<'_> {
    pub(super) fn transposed(self) -> Self {
        let Self { row, column, rows, columns, .. } = self;
        Self { row: column, column: row, rows: columns, columns: rows, ..self }
    }

    /// One row.
    pub(super) fn row(&self, row: usize) -> Vec<i64> {
        let first = self.first + row * self.row;
        if self.column == 1 {
            return self.integers.line(first, self.columns).into_iter().map(i64::from).collect();
        }
        (0..self.columns).map(|i| self.integers.line(first + i * self.column, 1)[0].into()).collect()
    }

    /// `of` of each element, times a vector below 2^61. No sum overflows: elements have 30
    /// bits, and there are fewer than 2^33.
    pub(super) fn times(&self, x: &[i64], of: impl Fn(i32) -> i32 + Sync) -> Vec<i128> {
        let wide = |a: i32, x: i64| i128::from(of(a)) * i128::from(x);
        if self.column == 1 {
            let row = |row: usize| {
                let line = self.integers.line(self.first + row * self.row, self.columns);
                line.into_iter().zip(x).map(|(a, &x)| wide(a, x)).sum()
            };
            return (0..self.rows).into_par_iter().map(row).collect();
        }
        let zeros = || vec![0; self.rows];
        let add_column = |mut sums: Vec<i128>, column: usize| {
            let line = self.integers.line(self.first + column * self.column, self.rows);
            for (sum, a) in sums.iter_mut().zip(line) {
                *sum += wide(a, x[column]);
            }
            sums
        };
        let add = |mut a: Vec<i128>, b: Vec<i128>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        (0..self.columns).into_par_iter().fold(zeros, add_column).reduce(zeros, add)
    }
}

#[cfg(test)]
mod tests {
    use super::{Integers, integer};
    use plumbline_reference::format::{E4M3FN, F16, F32, Format, Policy, Value};
    use plumbline_reference::{Tensor, TensorType};

    #[test]
    fn only_integers_are_integers() {
        let largest = f64::from((1 << 30) - 1);
        for (x, right) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (-3.0, Some(-3)),
            (0.5, None),
            (largest, Some((1 << 30) - 1)),
            (largest + 1.0, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(integer(x), right, "{x}");
        }
    }

    fn tensor(format: Format, numbers: &[f64]) -> Tensor {
        let code = |&x: &f64| format.encode(Value::from(x), &Policy::IEEE, 0);
        let codes: Vec<_> = numbers.iter().map(code).collect();
        Tensor::from_codes(TensorType::new(format, [codes.len()]), &codes).unwrap()
    }

    #[test]
    fn a_matrix_and_its_transpose_are_multiplied() {
        for format in [E4M3FN, F16, F32] {
            let tensor = tensor(format, &[1.0, -2.0, 3.0, 4.0, 5.0, -6.0]);
            let integers = Integers::of(&tensor, format);
            assert_eq!(integers.largest(), Some(6));
            let matrix = integers.matrix((0, 3, 1), 2, 3);
            assert_eq!(matrix.times(&[1, 10, 100], |x| x), [281, -546]);
            assert_eq!(matrix.transposed().times(&[1, 10], i32::abs), [41, 52, 63]);
            assert_eq!(matrix.transposed().row(1), [-2, 5]);
            assert_eq!(Integers::of(&self::tensor(format, &[1.0, 0.5]), format).largest(), None);
        }
    }
}
