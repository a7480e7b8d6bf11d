//! Microscaling blocks: their inputs, strategies over their parameters, and what is left of them
//! without some blocks.
//!
//! The shape of a sample is that of its first input, `[rows, blocks * units]`, where a block has a
//! unit per element, or one per two if they are packed.

use super::bits::{Random, rounding_word, scale};
use super::operation::policies;
use super::sample::Sample;
use crate::generate::Blocks;
use plumbline_reference::block::mx::{self, MxFormat, ScaleRule};
use plumbline_reference::format::{BF16, E8M0, F16, F32, Format, Policy, Rounding};
use plumbline_reference::ops::{
    Granularity, MxDequantize, MxElementOp, MxOrder, MxOutput, MxQuantize, NonFinite, Op,
};
use plumbline_reference::{DType, TensorType};
use proptest::prelude::*;
use proptest::sample::select;

/// An input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    dtype: DType,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// So many units per block.
    Units(usize),
    /// One scale per block.
    Scales,
    /// One scale for the tensor.
    TensorScale,
}

impl Input {
    /// Its elements of one block; `None` where it has one for the tensor.
    fn per_block(self) -> Option<usize> {
        match self.kind {
            Kind::Units(units) => Some(units),
            Kind::Scales => Some(1),
            Kind::TensorScale => None,
        }
    }

    /// Its type beside a first input of that shape.
    pub(super) fn ty(self, op: &Op, shape: &[usize]) -> TensorType {
        let blocks = |k: &usize| k / units(op).unwrap_or(1);
        match (self.per_block(), shape) {
            (Some(own), [rows @ .., k]) => TensorType::new(self.dtype, [rows, &[blocks(k) * own]].concat()),
            _ => TensorType::new(self.dtype, []),
        }
    }

    /// Its simplest element: a scale of 1, otherwise 0.
    pub(super) fn simplest(self) -> u64 {
        match (self.kind, self.dtype) {
            (Kind::Units(_), _) => 0,
            (_, DType::Float(format)) => format.encode(1.0.into(), &Policy::default(), 0),
            _ => 1,
        }
    }
}

/// The inputs of an operation on blocks; `None` for other operations.
pub(super) fn inputs(op: &Op) -> Option<Vec<Input>> {
    let input = |dtype: DType, kind| Input { dtype, kind };
    let tensor_scale =
        |format: MxFormat| format.layout().tensor_scale.then_some(input(F32.into(), Kind::TensorScale));
    match op {
        Op::MxQuantize(op) => {
            let units = Kind::Units(op.format.layout().block);
            let random = (op.rounding == Rounding::Stochastic).then_some(input(DType::U32, units));
            let x = input(op.from.into(), units);
            Some([x].into_iter().chain(tensor_scale(op.format)).chain(random).collect())
        }
        Op::MxDequantize(op) => {
            let layout = op.format.layout();
            let units = Kind::Units(layout.block / (1 + usize::from(op.packed)));
            let codes = input(mx::dtype(layout.element, op.packed), units);
            let scales = input(layout.scale.into(), Kind::Scales);
            Some([codes, scales].into_iter().chain(tensor_scale(op.format)).collect())
        }
        _ => None,
    }
}

/// Units of a block in the first input; `None` for other operations.
fn units(op: &Op) -> Option<usize> {
    inputs(op)?.first()?.per_block()
}

/// How the first input is grouped.
pub(super) fn granularity(op: &Op) -> Option<Granularity> {
    units(op).map(Granularity::Block)
}

/// The codes of all inputs.
pub(super) fn fill(op: &Op, shape: &[usize], seed: u64) -> Vec<Vec<u64>> {
    let mut random = Random::new(seed);
    let tensor_scale = scale(&mut random, None);
    let blocks = match op {
        Op::MxQuantize(op) => Some(Blocks::new(op, f32::from_bits(tensor_scale as u32))),
        _ => None,
    };
    let inputs = inputs(op).unwrap_or_default().into_iter().enumerate();
    let codes = inputs.map(|(i, input)| {
        let count = input.ty(op, shape).shape.iter().product::<usize>();
        let code = |element: usize| match (input.kind, &blocks) {
            (Kind::TensorScale, _) => tensor_scale,
            (Kind::Scales, _) => block_scale(&mut random, input.dtype),
            (Kind::Units(_), Some(blocks)) if i == 0 => blocks.code(seed, element as u64),
            (Kind::Units(_), Some(_)) => rounding_word(&mut random),
            (Kind::Units(_), None) => random.word() & input.dtype.code_mask(),
        };
        (0..count).map(code).collect()
    });
    codes.collect()
}

/// Any code, one near the ends, or one within f16's range.
fn block_scale(random: &mut Random, dtype: DType) -> u64 {
    let word = random.word();
    match (random.below(4), dtype == E8M0.into()) {
        (0, true) => [0, 1, 2, 252, 253, 254, 255][random.below(7)],
        (1 | 2, true) => E8M0.bias as u64 - 26 + word % 44,
        _ => word & dtype.code_mask(),
    }
}

/// The sample with some of its blocks, in one row. Never without any.
pub(super) fn keep(sample: &Sample, keeps: impl Fn(usize) -> bool) -> Option<Sample> {
    let (inputs, units) = (inputs(&sample.op)?, units(&sample.op)?);
    let blocks = sample.codes.first()?.len() / units;
    let kept: Vec<_> = (0..blocks).filter(|&block| keeps(block)).collect();
    if kept.is_empty() {
        return None;
    }
    let codes = inputs.iter().zip(&sample.codes).map(|(input, codes)| match input.per_block() {
        Some(own) => kept.iter().flat_map(|block| &codes[block * own..][..own]).copied().collect(),
        None => codes.clone(),
    });
    Some(Sample { op: sample.op.clone(), shape: vec![1, kept.len() * units], codes: codes.collect() })
}

const SOURCES: [Format; 3] = [F32, F16, BF16];
const NON_FINITE: [NonFinite; 3] = [NonFinite::NanScale, NonFinite::PerElement, NonFinite::Saturate];

/// The ways to make scales and elements of a format.
fn ways(format: MxFormat) -> Vec<MxQuantize> {
    let usual = MxQuantize::new(F32, format);
    if format.layout().tensor_scale {
        let ops = [MxElementOp::Divide, MxElementOp::Reciprocal];
        return ops.map(|element_op| MxQuantize { element_op, ..usual }).to_vec();
    }
    ScaleRule::ALL.map(|scale_rule| MxQuantize { scale_rule, ..usual }).to_vec()
}

fn all_ways() -> Vec<MxQuantize> {
    MxFormat::ALL.into_iter().flat_map(ways).collect()
}

pub(super) fn any_mx_quantize() -> BoxedStrategy<Op> {
    (select(all_ways()), select(&SOURCES[..]), select(&NON_FINITE[..]), any::<bool>(), policies())
        .prop_map(|(op, from, non_finite, packed, policy)| {
            let packed = packed && op.format.layout().packs();
            MxQuantize { from, non_finite, packed, ..op }.with_policy(policy).into()
        })
        .boxed()
}

pub(super) fn mx_quantizes() -> Vec<Op> {
    let all = all_ways().into_iter().flat_map(|usual| {
        let sources = SOURCES.map(|from| MxQuantize { from, ..usual });
        let non_finite = NON_FINITE.map(|non_finite| MxQuantize { non_finite, ..usual });
        let packed = usual.format.layout().packs().then_some(MxQuantize { packed: true, ..usual });
        sources.into_iter().chain(non_finite).chain(packed)
    });
    all.map(Op::from).collect()
}

pub(super) fn mx_dequantizes() -> Vec<Op> {
    let mut all = Vec::new();
    for format in MxFormat::ALL {
        let layout = format.layout();
        for to in SOURCES {
            for packed in [false, true].into_iter().filter(|packed| !packed || layout.packs()) {
                for order in [MxOrder::CodesFirst, MxOrder::ScalesFirst] {
                    if order != MxOrder::default() && !layout.tensor_scale {
                        continue;
                    }
                    for output in [MxOutput::Direct, MxOutput::ViaF32] {
                        all.push(MxDequantize { format, to, packed, order, output }.into());
                    }
                }
            }
        }
    }
    all
}
