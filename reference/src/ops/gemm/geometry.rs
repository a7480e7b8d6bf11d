//! Which elements meet in which output.

use super::Gemm;
use crate::Tensor;

/// Extents of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Whether there is a batch dimension.
    pub is_batched: bool,
    /// Products of the batch; 1 without one.
    pub batch: usize,
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// Products of an element.
    pub k: usize,
    transpose_a: bool,
    transpose_b: bool,
}

impl Geometry {
    /// That of a product on inputs that fit its signature.
    #[must_use]
    pub fn of(gemm: &Gemm, inputs: &[Tensor]) -> Self {
        Self::of_shapes(gemm, inputs[0].shape(), inputs[1].shape())
    }

    /// The same from the shapes of a and b.
    #[must_use]
    pub fn of_shapes(gemm: &Gemm, a: &[usize], b: &[usize]) -> Self {
        let (first, last) = (a[a.len() - 2], a[a.len() - 1]);
        let (m, k) = if gemm.transpose_a { (last, first) } else { (first, last) };
        let n = b[if gemm.transpose_b { b.len() - 2 } else { b.len() - 1 }];
        let is_batched = a.len() == 3;
        let batch = if is_batched { a[0] } else { 1 };
        Self { is_batched, batch, m, n, k, transpose_a: gemm.transpose_a, transpose_b: gemm.transpose_b }
    }

    /// Shape of the output.
    #[must_use]
    pub fn output_shape(&self) -> Vec<usize> {
        self.is_batched.then_some(self.batch).into_iter().chain([self.m, self.n]).collect()
    }

    /// Multiply-adds of the whole product.
    #[must_use]
    pub fn multiply_adds(&self) -> u128 {
        [self.batch, self.m, self.n, self.k].into_iter().map(|extent| extent as u128).product()
    }

    /// Batch, row and column of an output position.
    #[must_use]
    pub fn coordinates(&self, position: usize) -> (usize, usize, usize) {
        (position / (self.m * self.n), position / self.n % self.m, position % self.n)
    }

    /// Index in a of factor `k` of an output position.
    #[must_use]
    pub fn a(&self, position: usize, k: usize) -> usize {
        let (batch, m, _) = self.coordinates(position);
        batch * self.m * self.k + if self.transpose_a { k * self.m + m } else { m * self.k + k }
    }

    /// Index in b of factor `k` of an output position.
    #[must_use]
    pub fn b(&self, position: usize, k: usize) -> usize {
        let (batch, _, n) = self.coordinates(position);
        batch * self.n * self.k + if self.transpose_b { n * self.k + k } else { k * self.n + n }
    }

    /// A product's rows of `op(a)`: the index of its first element, from one row to the next,
    /// and from one k to the next.
    #[must_use]
    pub fn rows_of_a(&self, batch: usize) -> (usize, usize, usize) {
        let (row, k) = if self.transpose_a { (1, self.m) } else { (self.k, 1) };
        (batch * self.m * self.k, row, k)
    }

    /// The same of columns of `op(b)`.
    #[must_use]
    pub fn columns_of_b(&self, batch: usize) -> (usize, usize, usize) {
        let (column, k) = if self.transpose_b { (self.k, 1) } else { (1, self.n) };
        (batch * self.n * self.k, column, k)
    }

    /// The first output position of a row, counted over the batch.
    pub(super) fn first_of_row(&self, row: usize) -> usize {
        row * self.n
    }

    /// The first output position of a column, counted over the batch.
    pub(super) fn first_of_column(&self, column: usize) -> usize {
        column / self.n * self.m * self.n + column % self.n
    }
}
