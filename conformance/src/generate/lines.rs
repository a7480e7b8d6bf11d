//! The lines of an operand that sums run along: the rows of `op(a)` and the columns of
//! `op(b)` in a matrix product, the last dimension anywhere else.

use super::Request;
use plumbline_reference::ops::Op;

/// How the elements of an operand lie along its lines.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Elements of a line.
    pub(super) len: u64,
    /// Elements from one of a line to its next.
    step: u64,
}

impl Lines {
    pub(super) fn of(request: &Request<'_>, shape: &[usize]) -> Self {
        let is_last = match (request.op, request.input) {
            (Op::Gemm(gemm), 0) => !gemm.transpose_a,
            (Op::Gemm(gemm), 1) => gemm.transpose_b,
            (Op::GemmFused(_), 1) => false,
            _ => true,
        };
        let extent = |from_end: usize| match shape.len().checked_sub(from_end) {
            Some(i) => shape[i] as u64,
            None => 1,
        };
        if is_last { Self { len: extent(1), step: 1 } } else { Self { len: extent(2), step: extent(1) } }
    }

    /// The line of an element and its place in it.
    pub(super) fn place(self, element: u64) -> (u64, u64) {
        let (block, inside) = (element / (self.len * self.step), element % self.step);
        (block * self.step + inside, element / self.step % self.len)
    }

    /// See [`stride`].
    pub(super) fn stride(self) -> u64 {
        stride(self.len)
    }
}

/// A number coprime to the length, near its golden section: multiples of it visit all places, far
/// from one another.
pub(super) fn stride(len: u64) -> u64 {
    let mut stride = (len * 618 / 1000).max(1);
    while gcd(stride, len) != 1 {
        stride += 1;
    }
    stride
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
