//! The variant of `gemm` that accumulates as an order of fused multiply-adds says.

use crate::module::{Source, Unit, constant};
use crate::ops::MOST_BLOCKS;
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::accumulate::{Accumulation, Reduce, Split, Sum};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format};
use plumbline_reference::ops::gemm::{Geometry, OPERANDS};
use plumbline_reference::ops::{EpilogueOrder, Gemm, GemmScale, Operation};

const SOURCE: Source = Source { name: "gemm", text: include_str!("../../../kernels/gemm.cu") };

/// Tiles of operands in shared memory, sums in registers.
pub(in crate::ops) const TILED: &str = "tiled";

/// Rows and columns of a block's tile.
const TILE: u64 = 64;

/// Formats of y, c and bias, in the order of the kernel's `Stored`.
const STORED: [Format; 5] = [F32, F16, BF16, E4M3FN, E5M2];

/// Whether the kernel accumulates as these parameters say.
pub(super) fn supports(gemm: &Gemm) -> Result<(), Unsupported> {
    if gemm.accumulate.as_ref().is_none_or(|accumulate| parts(accumulate, 0).is_none()) {
        return Err(no_order());
    }
    if gemm.operands.is_some() {
        return Err(Unsupported("has no kernel for gemm that converts operands first".to_owned()));
    }
    if gemm.epilogue != EpilogueOrder::FusedProduct {
        return Err(Unsupported(
            "has a kernel for gemm with the usual order of its epilogue alone".to_owned(),
        ));
    }
    Ok(())
}

fn no_order() -> Unsupported {
    let why = "has a kernel for gemm whose order of accumulation is fma, or fma in contiguous parts that are \
               added in ascending order, and for no other";
    Unsupported(why.to_owned())
}

/// How many parts of how many products each are summed by themselves.
fn parts(accumulate: &Accumulation, k: usize) -> Option<[usize; 2]> {
    let sum = match accumulate {
        Accumulation::Fma => return Some([1, k]),
        Accumulation::Sum(sum) => &**sum,
        _ => return None,
    };
    match sum {
        Sum { split, each: Accumulation::Fma, reduce: Reduce::Ascending, partials, sums }
            if [*partials, *sums] == [F32, F32] =>
        {
            let length = match *split {
                Split::Contiguous { parts, granule } => k.div_ceil(granule).div_ceil(parts) * granule,
                Split::Every(length) => length,
                Split::Interleaved { .. } => return None,
            };
            Some([split.parts(k), length])
        }
        _ => None,
    }
}

pub(super) fn unit(gemm: &Gemm) -> Unit {
    between(gemm.a, gemm.b, gemm.out)
}

fn between(a: Format, b: Format, to: Format) -> Unit {
    Unit::new(SOURCE, vec![("FROM_A", constant(a)), ("FROM_B", constant(b)), ("TO", constant(to))])
}

pub(super) fn units() -> Vec<Unit> {
    let operands = OPERANDS.into_iter().flat_map(|a| OPERANDS.map(|b| (a, b)));
    operands.flat_map(|(a, b)| STORED.map(|to| between(a, b, to))).collect()
}

pub(super) fn plan(gemm: &Gemm, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
    let (a, b, y) = (&inputs[0], &inputs[1], &outputs[0]);
    let Geometry { batch, m, n, k, .. } = Geometry::of_shapes(gemm, &a.ty.shape, &b.ty.shape);
    let Some([parts, length]) = gemm.accumulate.as_ref().and_then(|accumulate| parts(accumulate, k)) else {
        return Err(no_order());
    };
    let tiles = batch as u64 * (m as u64).div_ceil(TILE) * (n as u64).div_ceil(TILE);
    if tiles == 0 {
        return Ok(Vec::new());
    }
    let names = gemm.input_names();
    let input = |name| names.iter().position(|own| *own == name).map(|i| &inputs[i]);
    let scale = |name, scale, of_row: fn(&View) -> Matrix| match (input(name), scale) {
        (Some(view), GemmScale::Tensor) => Matrix::one(view),
        (Some(view), GemmScale::Row) => of_row(view),
        _ => Matrix::NONE,
    };
    let stored = |format: Option<Format>| {
        let position = STORED.iter().position(|own| Some(*own) == format);
        Argument::from(position.unwrap_or(0) as u8)
    };
    let extents = [batch, m, n, k, parts, length].map(|extent| Argument::from(extent as u64));
    let rest: [Argument; 12] = [
        Matrix::of(a, gemm.transpose_a).into(),
        Matrix::of(b, gemm.transpose_b).into(),
        Matrix::of(y, false).into(),
        gemm.alpha.0.into(),
        gemm.beta.0.into(),
        input("c").filter(|_| gemm.reads_c()).map_or(Matrix::NONE, |c| Matrix::of(c, false)).into(),
        stored(gemm.c),
        scale("scale_a", gemm.scale_a, Matrix::per_row).into(),
        scale("scale_b", gemm.scale_b, Matrix::per_column).into(),
        input("bias").map_or(Matrix::NONE, Matrix::per_column).into(),
        stored(gemm.bias),
        input("scale_out").map_or(Matrix::NONE, Matrix::one).into(),
    ];
    Ok(vec![Step::Kernel(Call {
        unit: unit(gemm),
        entry: TILED,
        blocks: tiles.min(MOST_BLOCKS),
        threads: THREADS,
        shared: 0,
        arguments: extents.into_iter().chain(rest).collect(),
    })])
}

/// The kernel's `Matrix`: address and strides by batch, row and column, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matrix([u64; 4]);

impl Matrix {
    /// A tensor that there is not.
    const NONE: Self = Self([0; 4]);

    /// A matrix, or one per batch.
    fn of(view: &View, transposed: bool) -> Self {
        let strides = strides(view);
        let (batch, matrix) = strides.split_at(strides.len() - 2);
        let (row, column) = if transposed { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
        Self([view.address, batch.first().copied().unwrap_or(0), row, column])
    }

    /// A vector of one element per row.
    fn per_row(view: &View) -> Self {
        Self([view.address, 0, strides(view)[0], 0])
    }

    /// A vector of one element per column.
    fn per_column(view: &View) -> Self {
        Self([view.address, 0, 0, strides(view)[0]])
    }

    /// One element for all.
    fn one(view: &View) -> Self {
        Self([view.address, 0, 0, 0])
    }
}

impl From<Matrix> for Argument {
    fn from(Matrix(fields): Matrix) -> Self {
        fields.into()
    }
}

/// Strides of a view, in elements.
fn strides(view: &View) -> Vec<u64> {
    view.strides.iter().map(|&stride| stride as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::TensorType;
    use plumbline_reference::accumulate::Block;

    fn sum(split: Split) -> Accumulation {
        Sum::new(split, Accumulation::Fma).into()
    }

    #[test]
    fn parts_are_those_of_the_split() {
        let contiguous = |(parts, granule)| Split::Contiguous { parts, granule };
        let splits = [(1, 1), (2, 1), (3, 64), (4, 16), (7, 5)].map(contiguous);
        for split in splits.into_iter().chain([1, 3, 128].map(Split::Every)) {
            for k in [0, 1, 2, 15, 16, 17, 63, 64, 65, 300, 1024] {
                let [parts, length] = parts(&sum(split), k).expect("the kernel has it");
                let part = |part: usize| ((part * length).min(k)..((part + 1) * length).min(k)).collect();
                let own: Vec<Vec<usize>> = (0..parts).map(part).collect();
                assert_eq!(own, split.of(k), "{split:?} of {k}");
            }
        }
        assert_eq!(parts(&Accumulation::Fma, 17), Some([1, 17]));
    }

    #[test]
    fn other_orders_are_refused() {
        let gemm = |accumulate| Gemm { accumulate, ..Gemm::new(F32, F32, F32) };
        assert!(supports(&gemm(Some(Accumulation::Fma))).is_ok());
        let fma_sum = |reduce, partials, split| {
            Accumulation::from(Sum { reduce, partials, ..Sum::new(split, Accumulation::Fma) })
        };
        let refused = [
            None,
            Some(Accumulation::MultiplyAdd),
            Some(Accumulation::Pairwise),
            Some(Accumulation::Chain(Block::HOPPER)),
            Some(sum(Split::Interleaved { parts: 2, run: 1 })),
            Some(fma_sum(Reduce::Descending, F32, Split::Every(4))),
            Some(fma_sum(Reduce::Ascending, BF16, Split::Every(4))),
        ];
        for accumulate in refused {
            assert!(supports(&gemm(accumulate.clone())).is_err(), "{accumulate:?}");
        }
    }

    #[test]
    fn a_transposed_matrix_swaps_its_strides() {
        let view = |shape: &[usize]| View::contiguous(64, TensorType::new(F32, shape.to_vec()));
        assert_eq!(Matrix::of(&view(&[3, 5]), false), Matrix([64, 0, 5, 1]));
        assert_eq!(Matrix::of(&view(&[3, 5]), true), Matrix([64, 0, 1, 5]));
        assert_eq!(Matrix::of(&view(&[2, 3, 5]), true), Matrix([64, 15, 1, 5]));
        assert_eq!(Matrix::per_row(&view(&[3])), Matrix([64, 0, 1, 0]));
        assert_eq!(Matrix::per_column(&view(&[5])), Matrix([64, 0, 0, 1]));
        assert_eq!(Matrix::one(&view(&[])), Matrix([64, 0, 0, 0]));
    }
}
