//! Strategies over the parameters and extents of products.

use super::order::orders;
use plumbline_reference::accumulate::{Accumulation, Block, Instruction, Split, Sum};
use plumbline_reference::format::{ALL, BF16, E4M3FN, E5M2, F16, F32, F64, Format, Rounding, TF32};
use plumbline_reference::ops::gemm::OPERANDS;
use plumbline_reference::ops::{
    Bits32, Compute, EpilogueOrder, FusedActivation, Gemm, GemmFused, GemmScale, Mma, Op, Operands,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const OUTPUTS: [Format; 5] = [F32, F16, BF16, E4M3FN, E5M2];
const EPILOGUES: [EpilogueOrder; 4] = [
    EpilogueOrder::FusedProduct,
    EpilogueOrder::FusedAddend,
    EpilogueOrder::FusedBias,
    EpilogueOrder::RoundedProduct,
];
const SCALES: [GemmScale; 3] = [GemmScale::None, GemmScale::Tensor, GemmScale::Row];

/// Every instruction.
pub(in crate::fuzz) fn instructions() -> Vec<Op> {
    Instruction::ALL.map(|instruction| Mma { instruction }.into()).to_vec()
}

/// Any product.
pub(in crate::fuzz) fn any_gemm() -> BoxedStrategy<Op> {
    let layout = (any::<bool>(), any::<bool>(), any::<bool>());
    let order = option::weighted(0.8, (orders(), option::weighted(0.25, operands())));
    (formats(), layout, order, epilogues(), select(&Compute::ALL[..]))
        .prop_map(|([a, b, out], layout, order, epilogue, compute)| {
            let (transpose_a, transpose_b, fast_accumulation) = layout;
            let (accumulate, operands) = order.unzip();
            let usual = Gemm { a, b, out, transpose_a, transpose_b, fast_accumulation, ..epilogue };
            let compute = if fits(compute, [a, b]) { compute } else { Compute::F32 };
            Gemm { compute, accumulate, operands: operands.flatten(), ..usual }.into()
        })
        .boxed()
}

/// Any product with an activation.
pub(in crate::fuzz) fn any_gemm_fused() -> BoxedStrategy<Op> {
    let order = prop_oneof![1 => Just(Accumulation::Fma), 2 => orders()];
    (formats(), select(FusedActivation::ALL), order)
        .prop_map(|([a, b, _], activation, order)| {
            GemmFused { accumulate: Some(order), ..GemmFused::new(a, b, activation) }.into()
        })
        .boxed()
}

/// Every format of operands and every activation, in the usual orders.
pub(in crate::fuzz) fn simple_gemm_fuseds() -> Vec<Op> {
    let plain = OPERANDS
        .into_iter()
        .flat_map(|format| FusedActivation::ALL.iter().map(move |&it| GemmFused::new(format, format, it)));
    let orders = [None, Some(Accumulation::Fma), Some(Accumulation::Chain(Block::HOPPER))];
    plain
        .flat_map(|plain| orders.clone().map(|accumulate| GemmFused { accumulate, ..plain.clone() }))
        .map(Op::from)
        .collect()
}

/// Whether products of those operands are computed so.
fn fits(compute: Compute, operands: [Format; 2]) -> bool {
    match compute {
        Compute::F32 => true,
        Compute::Tf32 => operands.iter().all(|format| [F32, TF32].contains(format)),
        Compute::F16 => operands == [F16, F16],
    }
}

/// Formats of a, b and the output.
fn formats() -> impl Strategy<Value = [Format; 3]> {
    let eight = select(&[[E4M3FN, E5M2], [E5M2, E4M3FN]][..]);
    let operands = prop_oneof![
        6 => select(&OPERANDS[..]).prop_map(|format| [format; 2]),
        1 => eight,
        1 => (select(&OPERANDS[..]), select(&OPERANDS[..])).prop_map(|(a, b)| [a, b]),
    ];
    (operands, select(&OUTPUTS[..])).prop_map(|([a, b], out)| [a, b, out])
}

fn operands() -> impl Strategy<Value = Operands> {
    let formats: Vec<_> = ALL.into_iter().filter(|&format| format != F64).collect();
    let roundings: Vec<_> =
        Rounding::ALL.into_iter().filter(|&rounding| rounding != Rounding::Stochastic).collect();
    let to = prop_oneof![2 => select(&OPERANDS[..]), 1 => select(formats)];
    let rounding = prop_oneof![Just(Rounding::NearestEven), select(roundings)];
    (to, rounding).prop_map(|(to, rounding)| Operands { to, rounding })
}

/// A product with some epilogue.
fn epilogues() -> impl Strategy<Value = Gemm> {
    let c = option::weighted(0.5, select(&OUTPUTS[..]));
    let bias = option::weighted(0.3, select(&OUTPUTS[..]));
    let scales = || prop_oneof![1 => Just(GemmScale::None), 1 => select(&SCALES[..])];
    let scales = (scales(), scales(), prop_oneof![3 => Just(false), 1 => Just(true)]);
    (c, bias, scales, select(&EPILOGUES[..]), factors(), factors()).prop_map(
        |(c, bias, (scale_a, scale_b, scale_out), epilogue, alpha, beta)| {
            // Without a c, beta is a zero of either sign.
            let beta = if c.is_some() || beta.0 == 0.0 { beta } else { Bits32(0.0) };
            let usual = Gemm::new(F32, F32, F32);
            Gemm { c, bias, scale_a, scale_b, scale_out, epilogue, alpha, beta, ..usual }
        },
    )
}

/// 0, -0, 1, -1, 2, 0.37, subnormals, the largest, 2^127, infinities, NaNs.
const FACTORS: [u32; 14] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x4000_0000,
    0x3ebd_70a4,
    0x0000_0001,
    0x807f_ffff,
    0x7f7f_ffff,
    0x7f00_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xff81_2345,
];

fn factors() -> impl Strategy<Value = Bits32> {
    let moderate = (0u32..1 << 23, 120..=133u32).prop_map(|(fraction, exponent)| exponent << 23 | fraction);
    prop_oneof![
        4 => Just(0x3f80_0000),
        2 => select(&FACTORS[..]),
        2 => moderate,
        1 => any::<u32>(),
    ]
    .prop_map(|bits| Bits32(f32::from_bits(bits)))
}

/// Every pair of an operand and an output in the usual orders, one other parameter varied at
/// a time.
pub(in crate::fuzz) fn simple_gemms() -> Vec<Op> {
    let plain = OPERANDS.into_iter().flat_map(|format| OUTPUTS.map(|out| Gemm::new(format, format, out)));
    plain.flat_map(varied).map(Op::from).collect()
}

fn varied(plain: Gemm) -> Vec<Gemm> {
    let split = Sum::new(Split::Contiguous { parts: 3, granule: 8 }, Accumulation::Chain(Block::HOPPER));
    let orders = [
        Accumulation::Fma,
        Accumulation::MultiplyAdd,
        Accumulation::Pairwise,
        Accumulation::HalvesThenAdd(Block::HOPPER),
        Accumulation::ResidueFirst { tile: 32, block: Block::HOPPER },
        split.into(),
    ];
    let chains = Block::NAMED.map(|(_, block)| Accumulation::Chain(block));
    let orders = orders.into_iter().chain(chains).map(Some).chain([None]);
    let ordered = orders.map(|accumulate| Gemm { accumulate, ..plain.clone() });
    let usual = plain.accumulated(None, Accumulation::Chain(Block::HOPPER));
    let of = |change: &dyn Fn(&mut Gemm)| {
        let mut gemm = usual.clone();
        change(&mut gemm);
        gemm
    };
    let others = [
        of(&|gemm| gemm.transpose_a = true),
        of(&|gemm| gemm.transpose_b = true),
        of(&|gemm| gemm.alpha = Bits32(0.37)),
        of(&|gemm| (gemm.c, gemm.beta) = (Some(gemm.out), Bits32(1.0))),
        of(&|gemm| gemm.bias = Some(gemm.out)),
        of(&|gemm| (gemm.scale_a, gemm.scale_b) = (GemmScale::Tensor, GemmScale::Tensor)),
        of(&|gemm| (gemm.scale_a, gemm.scale_b) = (GemmScale::Row, GemmScale::Row)),
        of(&|gemm| gemm.scale_out = true),
    ];
    ordered.chain(others).collect()
}

/// Extents at and around those where vectors, tiles and blocks end; few elements.
pub(in crate::fuzz) fn shapes(op: &Op) -> BoxedStrategy<Vec<usize>> {
    if let Op::Mma(mma) = op {
        let shape = mma.instruction.shape();
        let tiles = prop_oneof![1 => Just(0usize), 16 => Just(1), 2 => 2..=3usize];
        return tiles.prop_map(move |tiles| vec![tiles, shape.m, shape.n, shape.k]).boxed();
    }
    let sides = || {
        prop_oneof![
            1 => Just(0usize),
            30 => 1..=5usize,
            2 => 1..=20usize,
            1 => select(&[15, 16, 17, 31, 32, 33, 65][..]),
        ]
    };
    let depths = prop_oneof![
        1 => Just(0usize),
        20 => 1..=40usize,
        10 => select(&[15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129][..]),
        1 => 1..=400usize,
    ];
    let batch = match op {
        Op::GemmFused(_) => Just(None).boxed(),
        _ => option::weighted(0.15, 0..=3usize).boxed(),
    };
    (batch, sides(), sides(), depths)
        .prop_map(|(batch, m, n, k)| batch.into_iter().chain([m, n, k]).collect())
        .boxed()
}
