//! From strides to what the libraries take: matrices in column-major order, read as they are
//! or transposed, with a leading dimension and a distance from one of a batch to the next.

use crate::plan::View;
use std::fmt;

/// A matrix, or a batch of them, as a tensor has it: extents and strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
    pub(crate) batch: usize,
    pub(crate) batch_stride: usize,
}

impl Matrix {
    /// That of a tensor of shape `[rows, columns]` or `[batch, rows, columns]`.
    pub(crate) fn of(view: &View) -> Self {
        let (shape, strides) = (&view.ty.shape, &view.strides);
        let first = shape.len() - 2;
        Self {
            rows: shape[first],
            columns: shape[first + 1],
            row_stride: strides[first],
            column_stride: strides[first + 1],
            batch: if first > 0 { shape[0] } else { 1 },
            batch_stride: if first > 0 { strides[0] } else { 0 },
        }
    }

    /// The same elements with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// As a column-major matrix that is read as it is.
    pub(crate) fn plain(self) -> Option<Stored> {
        let ld = leading(self.rows, self.row_stride, self.columns, self.column_stride)?;
        Some(Stored { transposed: false, ld, stride: self.batch_stride })
    }

    /// As a column-major matrix that is read transposed.
    pub(crate) fn flipped(self) -> Option<Stored> {
        self.transposed().plain().map(|stored| Stored { transposed: true, ..stored })
    }

    /// Whether no two elements lie in one place.
    fn is_injective(self) -> bool {
        let mut dimensions = [
            (self.row_stride, self.rows),
            (self.column_stride, self.columns),
            (self.batch_stride, self.batch),
        ];
        dimensions.sort_unstable();
        let mut span = 1;
        dimensions.into_iter().filter(|(_, extent)| *extent > 1).all(|(stride, extent)| {
            let is_apart = stride >= span;
            span += (extent - 1) * stride;
            is_apart
        })
    }
}

/// The distance between columns of `extent` elements side by side, if they are such. A stride
/// does not count where there is but one element along it.
fn leading(extent: usize, stride: usize, count: usize, distance: usize) -> Option<usize> {
    let is_close = extent <= 1 || stride == 1;
    let is_apart = count <= 1 || distance >= extent;
    (is_close && is_apart).then(|| distance.max(extent).max(1))
}

/// A matrix as the libraries take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Whether it is read transposed.
    pub(crate) transposed: bool,
    /// Elements from one stored column to the next.
    pub(crate) ld: usize,
    /// Elements from one matrix of a batch to the next.
    pub(crate) stride: usize,
}

/// The matrices of `d = op(a) * op(b) + c` as the libraries take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arranged {
    /// Whether the libraries compute `transpose(d) = transpose(b) * transpose(a)`: their
    /// column-major output is then a row-major one, and their first operand is b.
    pub(crate) swapped: bool,
    /// The first operand.
    pub(crate) first: Stored,
    /// The second operand.
    pub(crate) second: Stored,
    /// c, if there is one.
    pub(crate) c: Option<Stored>,
    /// d.
    pub(crate) d: Stored,
}

/// Arranges `op(a)` of `[M, K]`, `op(b)` of `[K, N]`, c and d of `[M, N]`, or says why not.
/// Where an operand can be read both ways, the first is transposed and the second is not: FP8
/// kernels ask for it.
pub(crate) fn arrange(a: Matrix, b: Matrix, c: Option<Matrix>, d: Matrix) -> Result<Arranged, String> {
    if !d.is_injective() {
        return Err(format!("several outputs lie in one place under strides {}", Strides(d)));
    }
    let (swapped, stored) = match (d.transposed().plain(), d.plain()) {
        (Some(row_major), _) => (true, row_major),
        (None, Some(column_major)) => (false, column_major),
        (None, None) => return Err(unfit("y", d)),
    };
    // As the libraries see them.
    let turned = |matrix: Matrix| if swapped { matrix.transposed() } else { matrix };
    let [first, second] = if swapped { [("b", b), ("a", a)] } else { [("a", a), ("b", b)] };
    let out_of_order = |c| {
        format!("c under strides {} is in another order than the output, which no library takes", Strides(c))
    };
    Ok(Arranged {
        swapped,
        first: turned(first.1)
            .flipped()
            .or_else(|| turned(first.1).plain())
            .ok_or_else(|| unfit(first.0, first.1))?,
        second: turned(second.1)
            .plain()
            .or_else(|| turned(second.1).flipped())
            .ok_or_else(|| unfit(second.0, second.1))?,
        c: c.map(|c| turned(c).plain().ok_or_else(|| out_of_order(c))).transpose()?,
        d: stored,
    })
}

fn unfit(name: &str, matrix: Matrix) -> String {
    format!(
        "{name} under strides {} has neither whole rows nor whole columns side by side, as the libraries need",
        Strides(matrix)
    )
}

/// Strides of rows, columns and the batch.
struct Strides(Matrix);

impl fmt::Display for Strides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Matrix { row_stride, column_stride, batch, batch_stride, .. } = self.0;
        write!(f, "{row_stride} by row and {column_stride} by column")?;
        if batch > 1 {
            write!(f, " and {batch_stride} by batch")?;
        }
        Ok(())
    }
}

/// Elements side by side in all of some tensors: how many, and where each run begins in each.
/// The tensors have `batch` times `outer` rows of `inner` elements.
pub(crate) fn runs<const N: usize>(
    [inner, outer, batch]: [usize; 3],
    tensors: [Stored; N],
) -> (usize, Vec<[usize; N]>) {
    // Without gaps between them, rows are one run.
    let has_gaps = tensors.iter().any(|tensor| tensor.ld != inner);
    let (len, outer) = if has_gaps { (inner, outer) } else { (inner * outer, 1) };
    let rows = (0..batch).flat_map(|i| (0..outer).map(move |j| (i, j)));
    (len, rows.map(|(i, j)| tensors.map(|tensor| i * tensor.stride + j * tensor.ld)).collect())
}

/// Bytes by which an address is aligned, as far as the libraries ask.
pub(crate) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extents and strides of rows and columns.
    fn matrix(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> Matrix {
        Matrix { rows, columns, row_stride, column_stride, batch: 1, batch_stride: 0 }
    }

    fn batched(matrix: Matrix, batch: usize, batch_stride: usize) -> Matrix {
        Matrix { batch, batch_stride, ..matrix }
    }

    fn stored(transposed: bool, ld: usize) -> Stored {
        Stored { transposed, ld, stride: 0 }
    }

    #[test]
    fn a_matrix_is_read_as_it_lies() {
        let (plain, flipped) = (|ld| Some(stored(false, ld)), |ld| Some(stored(true, ld)));
        for (matrix, expected) in [
            // Row-major, without and with a gap after each row.
            (matrix(3, 5, 5, 1), [None, flipped(5)]),
            (matrix(3, 5, 8, 1), [None, flipped(8)]),
            // Column-major.
            (matrix(3, 5, 1, 3), [plain(3), None]),
            (matrix(3, 5, 1, 7), [plain(7), None]),
            // Rows that overlap, elements apart, one row or element for all.
            (matrix(3, 5, 4, 1), [None, None]),
            (matrix(3, 5, 10, 2), [None, None]),
            (matrix(3, 5, 0, 1), [None, None]),
            (matrix(3, 5, 1, 0), [None, None]),
            (matrix(3, 5, 0, 0), [None, None]),
            // With one row, or one column, the stride along it does not count.
            (matrix(1, 5, 99, 1), [plain(1), flipped(99)]),
            (matrix(1, 5, 0, 1), [plain(1), flipped(5)]),
            (matrix(1, 5, 5, 2), [plain(2), None]),
            (matrix(3, 1, 1, 1), [plain(3), flipped(1)]),
            (matrix(3, 1, 4, 1), [None, flipped(4)]),
            (matrix(1, 1, 0, 0), [plain(1), flipped(1)]),
            // Without elements.
            (matrix(3, 0, 0, 1), [None, flipped(1)]),
            (matrix(0, 5, 5, 1), [plain(1), flipped(5)]),
        ] {
            assert_eq!([matrix.plain(), matrix.flipped()], expected, "{matrix:?}");
        }
    }

    #[test]
    fn row_major_outputs_are_computed_transposed() {
        // y = x * transpose(w): x of 2 x 3, w of 5 x 3.
        let (x, w, y) = (matrix(2, 3, 3, 1), matrix(5, 3, 3, 1), matrix(2, 5, 5, 1));
        let arranged = arrange(x, w.transposed(), None, y);
        let expected = Arranged {
            swapped: true,
            first: stored(true, 3),
            second: stored(false, 3),
            c: None,
            d: stored(false, 5),
        };
        assert_eq!(arranged, Ok(expected));
    }

    #[test]
    fn column_major_outputs_are_computed_as_they_are() {
        let (a, b, y) = (matrix(2, 3, 3, 1), matrix(3, 5, 9, 1), matrix(2, 5, 1, 4));
        let c = matrix(2, 5, 1, 6);
        let expected = Arranged {
            swapped: false,
            first: stored(true, 3),
            second: stored(true, 9),
            c: Some(stored(false, 6)),
            d: stored(false, 4),
        };
        assert_eq!(arrange(a, b, Some(c), y), Ok(expected));
    }

    #[test]
    fn what_no_library_can_express_is_named() {
        let (a, b, y) = (matrix(2, 3, 3, 1), matrix(3, 5, 5, 1), matrix(2, 5, 5, 1));
        let why = |a, b, c, y| arrange(a, b, c, y).expect_err("arranged");
        assert!(why(matrix(2, 3, 6, 2), b, None, y).starts_with("a under strides 6 by row and 2 by column"));
        assert!(why(a, matrix(3, 5, 0, 1), None, y).starts_with("b under strides 0 by row"));
        assert!(why(a, b, None, matrix(2, 5, 20, 2)).starts_with("y under strides"));
        assert!(why(a, b, Some(matrix(2, 5, 1, 2)), y).starts_with("c under strides"));
        // Outputs one upon the other.
        assert!(why(a, b, None, matrix(2, 5, 0, 1)).starts_with("several outputs"));
        assert!(why(a, b, None, matrix(2, 5, 4, 1)).starts_with("several outputs"));
        assert!(why(a, b, None, batched(y, 3, 0)).starts_with("several outputs"));
        assert!(why(a, b, None, batched(y, 3, 9)).contains("9 by batch"));
    }

    #[test]
    fn batches_lie_anywhere() {
        let (a, b) = (batched(matrix(2, 3, 3, 1), 4, 0), batched(matrix(3, 5, 5, 1), 4, 100));
        // Rows of all of the batch take turns.
        let y = batched(matrix(2, 5, 20, 1), 4, 5);
        let arranged = arrange(a, b, None, y).expect("arranged");
        assert_eq!((arranged.first.stride, arranged.second.stride, arranged.d.stride), (100, 0, 5));
        assert_eq!(arranged.d.ld, 20);
    }

    #[test]
    fn runs_are_as_long_as_all_tensors_allow() {
        let tensor = |ld, stride| Stored { transposed: false, ld, stride };
        assert_eq!(runs([5, 2, 2], [tensor(5, 10)]), (10, vec![[0], [10]]));
        assert_eq!(runs([5, 2, 1], [tensor(5, 10), tensor(8, 99)]), (5, vec![[0, 0], [5, 8]]));
        let (len, starts) = runs([5, 2, 2], [tensor(8, 16), tensor(5, 10)]);
        assert_eq!((len, starts), (5, vec![[0, 0], [8, 5], [16, 10], [24, 15]]));
    }

    #[test]
    fn alignments() {
        let cases = [(0, 256), (1, 1), (6, 2), (16, 16), (48, 16), (128, 128), (256, 256), (1 << 40, 256)];
        for (address, bytes) in cases {
            assert_eq!(alignment(address), bytes, "{address}");
        }
    }
}
