//! Operations on GGML blocks: their inputs by extents, strategies over their parameters, and what
//! is simpler than a sample that fails.
//!
//! The shape of a sample is `[rows, units]` for `dequantize`, `[N, units]` for `gemv` and
//! `[M, N, units]` for `batched_gemv`, `prefill_linear` and `dispatch`. A unit is as many values along K as the largest of an
//! operation's blocks holds: 32 or 256.

use super::bits::Random;
use super::product::{numbers, orders, simpler_orders};
use super::sample::Sample;
use crate::case::Class;
use crate::generate::{GenerateError, Request, generate};
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{BF16, F16, F32};
use plumbline_reference::ops::gemv::warp_order;
use plumbline_reference::ops::{
    Activations, BatchedGemv, BlockConversion, Dequantize, Dispatch, Gemv, Op, PrefillLinear,
};
use plumbline_reference::{DType, TensorType};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// An input of an operation on blocks.
struct Input {
    /// `None` for f32.
    blocks: Option<BlockFormat>,
    /// Which of the shape's extents it has besides units, in order.
    outer: &'static [usize],
    /// Values of a unit.
    unit: usize,
}

impl Input {
    /// Elements of a unit: bytes or numbers.
    fn per_unit(&self) -> usize {
        self.blocks.map_or(self.unit, |format| self.unit / format.values() * format.bytes())
    }

    fn ty(&self, shape: &[usize]) -> TensorType {
        let mut extents: Vec<_> = self.outer.iter().map(|&dimension| shape[dimension]).collect();
        let units = shape[shape.len() - 1];
        match self.blocks {
            Some(format) => {
                extents.extend([units * self.unit / format.values(), format.bytes()]);
                TensorType::new(DType::U8, extents)
            }
            None => {
                extents.push(units * self.unit);
                TensorType::new(F32, extents)
            }
        }
    }
}

/// The inputs; `None` for other operations.
fn inputs(op: &Op) -> Option<Vec<Input>> {
    let product = |weights: BlockFormat, activations: Activations, outer: [&'static [usize]; 2]| {
        let blocks = [Some(weights), activations.blocks()];
        let unit = blocks.into_iter().flatten().map(BlockFormat::values).max().unwrap_or(1);
        blocks.into_iter().zip(outer).map(|(blocks, outer)| Input { blocks, outer, unit }).collect()
    };
    match op {
        Op::Dequantize(op) => {
            Some(vec![Input { blocks: Some(op.from), outer: &[0], unit: op.from.values() }])
        }
        Op::Gemv(op) => Some(product(op.weights, op.activations, [&[0], &[]])),
        Op::BatchedGemv(op) => Some(product(op.weights, op.activations, [&[1], &[0]])),
        Op::PrefillLinear(PrefillLinear { weights, .. }) | Op::Dispatch(Dispatch { weights, .. }) => {
            Some(product(*weights, Activations::F32, [&[1], &[0]]))
        }
        _ => None,
    }
}

/// Types of the inputs; `None` for other operations.
pub(super) fn types(op: &Op, shape: &[usize]) -> Option<Vec<TensorType>> {
    Some(inputs(op)?.iter().map(|input| input.ty(shape)).collect())
}

/// Whether the operation is one on blocks.
pub(super) fn is_of_blocks(op: &Op) -> bool {
    inputs(op).is_some()
}

/// Whether the operation is a product without an order of accumulation.
pub(super) fn is_exact(op: &Op) -> bool {
    match op {
        Op::Gemv(op) => op.accumulate.is_none(),
        Op::BatchedGemv(op) => op.accumulate.is_none(),
        Op::PrefillLinear(op) => op.accumulate.is_none(),
        Op::Dispatch(op) => op.gemv.is_none() || op.gemm.is_none(),
        _ => false,
    }
}

/// Every reading of blocks.
pub(super) fn block_dequantizes() -> Vec<Op> {
    let to = BlockFormat::ALL.into_iter().flat_map(|from| [F32, F16, BF16].map(|to| (from, to)));
    to.flat_map(|(from, to)| BlockConversion::ALL.map(|conversion| Dequantize { from, to, conversion }))
        .map(Op::from)
        .collect()
}

/// Products of every pair of formats: exact ones, and in two orders.
fn simple_products() -> impl Iterator<Item = Gemv> {
    BlockFormat::ALL.into_iter().flat_map(|weights| Activations::ALL.map(|kind| (weights, kind))).flat_map(
        |(weights, activations)| {
            let orders = [Some(warp_order(weights, activations)), Some(Accumulation::Fma), None];
            orders.map(|accumulate| Gemv { weights, activations, accumulate })
        },
    )
}

/// Of one vector.
pub(super) fn simple_gemvs() -> Vec<Op> {
    simple_products().map(Op::from).collect()
}

/// Of several vectors.
pub(super) fn simple_batched_gemvs() -> Vec<Op> {
    simple_products().map(|product| batched(product).into()).collect()
}

fn batched(Gemv { weights, activations, accumulate }: Gemv) -> BatchedGemv {
    BatchedGemv { weights, activations, accumulate }
}

fn products() -> impl Strategy<Value = Gemv> {
    let formats = (select(&BlockFormat::ALL[..]), select(&Activations::ALL[..]));
    let order = prop_oneof![3 => Just(None), 2 => orders().prop_map(Some)];
    (formats, option::weighted(0.8, order)).prop_map(|((weights, activations), order)| Gemv {
        weights,
        activations,
        accumulate: order.map(|order| order.unwrap_or_else(|| warp_order(weights, activations))),
    })
}

pub(super) fn any_gemv() -> BoxedStrategy<Op> {
    products().prop_map(Op::from).boxed()
}

pub(super) fn any_batched_gemv() -> BoxedStrategy<Op> {
    products().prop_map(|product| batched(product).into()).boxed()
}

/// Extents at and around those where blocks of rows, lanes and vectors end; few elements.
pub(super) fn shapes(op: &Op) -> BoxedStrategy<Vec<usize>> {
    let is_small = inputs(op).is_some_and(|inputs| inputs.iter().all(|input| input.unit < 256));
    let units = if is_small {
        let around_lanes = select(&[15, 16, 17, 31, 32, 33, 40][..]);
        prop_oneof![1 => Just(0usize), 20 => 1..=9usize, 3 => around_lanes].boxed()
    } else {
        prop_oneof![1 => Just(0usize), 20 => 1..=3usize, 2 => select(&[4, 5, 9][..])].boxed()
    };
    let rows = || prop_oneof![1 => Just(0usize), 20 => 1..=3usize, 2 => select(&[7, 8, 9, 33][..])];
    let vectors = prop_oneof![1 => Just(0usize), 16 => 1..=3usize, 1 => 4..=16usize];
    match op {
        Op::BatchedGemv(_) => (vectors, rows(), units).prop_map(|(m, n, units)| vec![m, n, units]).boxed(),
        Op::PrefillLinear(_) | Op::Dispatch(_) => {
            let around_padding = select(&[15, 16, 17, 33][..]);
            let vectors = prop_oneof![12 => vectors, 1 => around_padding];
            (vectors, rows(), units).prop_map(|(m, n, units)| vec![m, n, units]).boxed()
        }
        _ => (rows(), units).prop_map(|(rows, units)| vec![rows, units]).boxed(),
    }
}

/// The codes of every input. An error says that a class does not fit an input.
pub(super) fn fill(op: &Op, shape: &[usize], seed: u64) -> Result<Vec<Vec<u64>>, GenerateError> {
    let mut random = Random::new(seed);
    let inputs = inputs(op).unwrap_or_default();
    let codes = inputs.iter().enumerate().map(|(i, input)| {
        let ty = input.ty(shape);
        let Some(format) = input.blocks else {
            return Ok(numbers(F32, ty.shape.iter().product(), &mut random));
        };
        let class = match random.below(8) {
            0..=3 => Class::Blocks,
            4 | 5 => Class::BlockEdges,
            6 => Class::BlockIntegers,
            _ => Class::RandomBits,
        };
        let request = Request {
            class: &class,
            dtype: DType::U8,
            shape: Some(&ty.shape),
            blocks: Some(format),
            lanes: 1,
            seed: random.word(),
            op,
            input: i,
            others: &[],
        };
        let mut codes: Vec<_> = generate(&request)?.codes().collect();
        let blocks = codes.len() / format.bytes();
        if blocks > 0 && random.below(6) == 0 {
            // One block among zeros.
            let there = random.below(blocks);
            let zeros = codes.iter_mut().enumerate().filter(|(at, _)| at / format.bytes() != there);
            zeros.for_each(|(_, code)| *code = 0);
        }
        Ok(codes)
    });
    codes.collect()
}

/// The sample with some of one extent's slices, never without any.
pub(super) fn keep(sample: &Sample, dimension: usize, keeps: impl Fn(usize) -> bool) -> Option<Sample> {
    let kept: Vec<_> = (0..*sample.shape.get(dimension)?).filter(|&i| keeps(i)).collect();
    if kept.is_empty() {
        return None;
    }
    let inputs = inputs(&sample.op)?;
    let codes = inputs.iter().zip(&sample.codes).map(|(input, codes)| {
        let dimensions: Vec<_> = input.outer.iter().copied().chain([sample.shape.len() - 1]).collect();
        let Some(axis) = dimensions.iter().position(|&own| own == dimension) else { return codes.clone() };
        // Elements of a slice, and of all of them.
        let inner = dimensions[axis + 1..].iter().map(|&own| sample.shape[own]).product::<usize>();
        let (slice, extent) = (inner * input.per_unit(), sample.shape[dimension]);
        let of_all = |all: usize| kept.iter().map(move |i| (all * extent + i) * slice);
        let alls = codes.len().checked_div(slice * extent).unwrap_or(0);
        (0..alls).flat_map(of_all).flat_map(|first| codes[first..first + slice].iter().copied()).collect()
    });
    let codes = codes.collect();
    let mut shape = sample.shape.clone();
    shape[dimension] = kept.len();
    Some(Sample { op: sample.op.clone(), shape, codes })
}

/// The sample with other parameters, if its inputs are of the same types.
pub(super) fn with_op(sample: &Sample, op: Op) -> Option<Sample> {
    (types(&op, &sample.shape) == types(&sample.op, &sample.shape)).then(|| Sample { op, ..sample.clone() })
}

/// Products in simpler orders of accumulation, the simplest first.
pub(super) fn simpler(op: &Op) -> Vec<Op> {
    let of = |order: &Option<Accumulation>| order.as_ref().map_or_else(Vec::new, simpler_orders);
    match op {
        Op::Gemv(gemv) => {
            let orders = of(&gemv.accumulate).into_iter();
            orders.map(|order| Gemv { accumulate: Some(order), ..gemv.clone() }.into()).collect()
        }
        Op::BatchedGemv(gemv) => {
            let orders = of(&gemv.accumulate).into_iter();
            orders.map(|order| BatchedGemv { accumulate: Some(order), ..gemv.clone() }.into()).collect()
        }
        Op::PrefillLinear(linear) => {
            let orders = of(&linear.accumulate).into_iter();
            orders.map(|order| PrefillLinear { accumulate: Some(order), ..linear.clone() }.into()).collect()
        }
        Op::Dispatch(dispatch) => {
            let few = of(&dispatch.gemv).into_iter();
            let few = few.map(|order| Dispatch { gemv: Some(order), ..dispatch.clone() }.into());
            let many = of(&dispatch.gemm).into_iter();
            few.chain(many.map(|order| Dispatch { gemm: Some(order), ..dispatch.clone() }.into())).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
