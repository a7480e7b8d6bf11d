//! Matrix products: their inputs by extents, strategies over their parameters, and what is
//! simpler than a product that fails.
//!
//! The shape of a sample is `[M, N, K]` with a batch in front where there is one; that of an
//! instruction is `[tiles, M, N, K]`.

mod bits;
mod operation;
mod order;
#[cfg(test)]
mod tests;

pub(super) use bits::{fill, numbers};
pub(super) use operation::{
    any_gemm, any_gemm_fused, instructions, shapes, simple_gemm_fuseds, simple_gemms,
};
pub(super) use order::{orders, simpler as simpler_orders};

use super::sample::Sample;
use plumbline_reference::TensorType;
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::{Gemm, GemmFused, GemmScale, Op};

/// What an extent counts, in the order of a sample's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    /// Products, or tiles.
    Batch,
    /// Rows of the output.
    M,
    /// Columns of the output.
    N,
    /// Products of an element.
    K,
}

impl Axis {
    /// Its position in a shape; `None` for the batch where there is none.
    fn of(self, shape: &[usize]) -> Option<usize> {
        (self as usize + shape.len()).checked_sub(4)
    }
}

/// An input of a product.
#[derive(Clone, Debug)]
pub(super) struct Input {
    name: &'static str,
    format: Format,
    axes: Vec<Axis>,
}

impl Input {
    /// Its type in a product of those extents.
    pub(super) fn ty(&self, shape: &[usize]) -> TensorType {
        let extents: Vec<_> = self.dimensions(shape).into_iter().map(|dimension| shape[dimension]).collect();
        TensorType::new(self.format, extents)
    }

    pub(super) fn is_scale(&self) -> bool {
        self.name.starts_with("scale_")
    }

    /// Where in a shape its extents stand.
    fn dimensions(&self, shape: &[usize]) -> Vec<usize> {
        self.axes.iter().filter_map(|axis| axis.of(shape)).collect()
    }
}

/// The inputs of a product; `None` for other operations.
pub(super) fn inputs(op: &Op) -> Option<Vec<Input>> {
    use Axis::{Batch, K, M, N};
    let input = |name, format, axes: &[Axis]| Input { name, format, axes: axes.to_vec() };
    match op {
        Op::Mma(mma) => {
            let ([a, b], c) = (mma.instruction.operands(), mma.instruction.accumulator());
            let inputs = [("a", a, [Batch, M, K]), ("b", b, [Batch, N, K]), ("c", c, [Batch, M, N])];
            Some(inputs.map(|(name, format, axes)| input(name, format, &axes)).to_vec())
        }
        Op::Gemm(gemm) => {
            let scale = |scale, name, axis| match scale {
                GemmScale::None => None,
                GemmScale::Tensor => Some(input(name, F32, &[])),
                GemmScale::Row => Some(input(name, F32, &[axis])),
            };
            let a = if gemm.transpose_a { [Batch, K, M] } else { [Batch, M, K] };
            let b = if gemm.transpose_b { [Batch, N, K] } else { [Batch, K, N] };
            let inputs = [
                Some(input("a", gemm.a, &a)),
                Some(input("b", gemm.b, &b)),
                gemm.c.map(|format| input("c", format, &[Batch, M, N])),
                scale(gemm.scale_a, "scale_a", M),
                scale(gemm.scale_b, "scale_b", N),
                gemm.scale_out.then(|| input("scale_out", F32, &[])),
                gemm.bias.map(|format| input("bias", format, &[N])),
            ];
            Some(inputs.into_iter().flatten().collect())
        }
        Op::GemmFused(fused) => {
            let inputs = [("a", fused.a, &[M, K][..]), ("b", fused.b, &[K, N]), ("bias", F32, &[N])];
            Some(inputs.map(|(name, format, axes)| input(name, format, axes)).to_vec())
        }
        _ => None,
    }
}

/// Whether the operation is a product without an order of accumulation, whose bits are those
/// of the reference alone.
pub(super) fn is_exact(op: &Op) -> bool {
    match op {
        Op::Gemm(gemm) => gemm.accumulate.is_none(),
        Op::GemmFused(fused) => fused.accumulate.is_none(),
        _ => false,
    }
}

/// The product with some of one extent's slices, never without any.
pub(super) fn keep(sample: &Sample, dimension: usize, keeps: impl Fn(usize) -> bool) -> Option<Sample> {
    let kept: Vec<_> = (0..*sample.shape.get(dimension)?).filter(|&i| keeps(i)).collect();
    if kept.is_empty() {
        return None;
    }
    let mut shape = sample.shape.clone();
    shape[dimension] = kept.len();
    let moved = |position: &mut [usize]| position[dimension] = kept[position[dimension]];
    let inputs = inputs(&sample.op)?;
    let inputs = inputs.iter().zip(&sample.codes);
    let codes = inputs.map(|(input, codes)| select(codes, [input, input], [&shape, &sample.shape], moved));
    Some(Sample { op: sample.op.clone(), codes: codes.collect(), shape })
}

/// The product without a batch dimension.
pub(super) fn flat(sample: &Sample) -> Option<Sample> {
    match *sample.shape {
        [1, m, n, k] => Some(Sample { shape: vec![m, n, k], ..sample.clone() }),
        _ => None,
    }
}

/// The product with other parameters, the elements of its inputs where they were.
pub(super) fn with_op(sample: &Sample, op: Op) -> Option<Sample> {
    let (shape, old, new) = (&sample.shape, inputs(&sample.op)?, inputs(&op)?);
    let codes = new.iter().map(|input| {
        let (i, old) = old.iter().enumerate().find(|(_, old)| old.name == input.name)?;
        Some(select(&sample.codes[i], [input, old], [shape, shape], |_| ()))
    });
    let codes = codes.collect::<Option<_>>()?;
    Some(Sample { codes, shape: shape.clone(), op })
}

/// The codes of an input from those of another, by their positions in the whole product,
/// which `moved` makes those of the other.
fn select(
    codes: &[u64],
    [input, from]: [&Input; 2],
    [shape, from_shape]: [&[usize]; 2],
    moved: impl Fn(&mut [usize]),
) -> Vec<u64> {
    let (dimensions, from) = (input.dimensions(shape), from.dimensions(from_shape));
    let count = dimensions.iter().map(|&dimension| shape[dimension]).product();
    let code = |i: usize| {
        let (mut position, mut rest) = (vec![0; shape.len()], i);
        for &dimension in dimensions.iter().rev() {
            position[dimension] = rest % shape[dimension];
            rest /= shape[dimension];
        }
        moved(&mut position);
        let index =
            from.iter().fold(0, |index, &dimension| index * from_shape[dimension] + position[dimension]);
        codes[index]
    };
    (0..count).map(code).collect()
}

/// Products in simpler orders of accumulation, the simplest first.
pub(super) fn simpler(op: &Op) -> Vec<Op> {
    let of = |order: &Option<Accumulation>| order.as_ref().map_or_else(Vec::new, order::simpler);
    match op {
        Op::Gemm(gemm) => {
            let orders = of(&gemm.accumulate).into_iter();
            orders.map(|order| Gemm { accumulate: Some(order), ..gemm.clone() }.into()).collect()
        }
        Op::GemmFused(fused) => {
            let orders = of(&fused.accumulate).into_iter();
            orders.map(|order| GemmFused { accumulate: Some(order), ..fused.clone() }.into()).collect()
        }
        _ => Vec::new(),
    }
}
