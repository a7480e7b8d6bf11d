//! Strategies over orders of accumulation.

use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput, Reduce, Split, Sum};
use plumbline_reference::format::{ALL, BF16, F16, F32, Format};
use proptest::prelude::*;
use proptest::sample::select;
use std::ops::RangeInclusive;

/// Parts of a sum.
const FEW: RangeInclusive<usize> = 1..=9;

/// Any order: one alone, or sums of sums of them.
pub(in crate::fuzz) fn orders() -> impl Strategy<Value = Accumulation> {
    let sum = |parts| sums(alone().boxed(), parts);
    // More parts than the fast paths sum, where they are not multiplied by others.
    let many = prop_oneof![80 => FEW, 1 => Just(4097)].boxed();
    prop_oneof![4 => alone(), 4 => sum(many), 1 => sums(sum(FEW.boxed()), FEW.boxed())]
}

fn alone() -> impl Strategy<Value = Accumulation> {
    let residue_first = (select(&[1, 2, 5, 16, 32, 33, 64, 128][..]), blocks())
        .prop_map(|(tile, block)| Accumulation::ResidueFirst { tile, block });
    prop_oneof![
        1 => Just(Accumulation::Fma),
        1 => Just(Accumulation::MultiplyAdd),
        1 => Just(Accumulation::Pairwise),
        6 => blocks().prop_map(Accumulation::Chain),
        2 => residue_first,
        2 => blocks().prop_filter_map("is of f32", |block| {
            (block.accumulator() == F32).then_some(Accumulation::HalvesThenAdd(block))
        }),
    ]
}

fn blocks() -> impl Strategy<Value = Block> {
    let named = select(&Block::NAMED[..]).prop_map(|(_, block)| block);
    let outputs = prop_oneof![
        (1..=23u32).prop_map(BlockOutput::Truncate),
        Just(BlockOutput::NearestF32),
        Just(BlockOutput::NearestF16)
    ];
    let products = prop_oneof![8 => 1..=40u32, 1 => 1..=256u32];
    let fraction_bits = prop_oneof![1 => 10..=27u32, 1 => 1..=40u32];
    let min_exponent =
        prop_oneof![2 => select(&[-133, -132, -21, -20][..]), 1 => -160..=10i32, 1 => -300..=300i32];
    let any = (products, fraction_bits, min_exponent, outputs).prop_map(
        |(products, fraction_bits, min_exponent, output)| Block {
            products,
            fraction_bits,
            min_exponent,
            output,
        },
    );
    prop_oneof![named, any]
}

fn sums(each: BoxedStrategy<Accumulation>, parts: BoxedStrategy<usize>) -> BoxedStrategy<Accumulation> {
    let sum = (splits(parts), each, reductions(), formats(), formats());
    sum.prop_map(|(split, each, reduce, partials, sums)| Sum { split, each, reduce, partials, sums }.into())
        .boxed()
}

fn splits(parts: BoxedStrategy<usize>) -> impl Strategy<Value = Split> {
    let granules = prop_oneof![1..=9usize, select(&[16, 32, 64, 128][..])];
    prop_oneof![
        (parts.clone(), granules).prop_map(|(parts, granule)| Split::Contiguous { parts, granule }),
        prop_oneof![1..=9usize, select(&[16, 31, 32, 64, 128][..])].prop_map(Split::Every),
        (parts, 1..=17usize).prop_map(|(parts, run)| Split::Interleaved { parts, run }),
    ]
}

fn reductions() -> impl Strategy<Value = Reduce> {
    prop_oneof![
        3 => select(&[Reduce::Ascending, Reduce::Descending, Reduce::Neighbours, Reduce::Halves][..]),
        1 => (1..=5usize).prop_map(Reduce::Buffers),
    ]
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![6 => Just(F32), 2 => select(&[F16, BF16][..]), 1 => select(&ALL[..])]
}

/// Simpler orders, the simplest first.
pub(in crate::fuzz) fn simpler(order: &Accumulation) -> Vec<Accumulation> {
    let mut all = match order {
        Accumulation::Fma | Accumulation::MultiplyAdd | Accumulation::Pairwise => Vec::new(),
        Accumulation::Chain(block) => simpler_blocks(block).map(Accumulation::Chain).to_vec(),
        Accumulation::ResidueFirst { tile, block } => {
            let blocks = simpler_blocks(block).map(|block| Accumulation::ResidueFirst { tile: *tile, block });
            [Accumulation::Chain(*block)].into_iter().chain(blocks).collect()
        }
        Accumulation::HalvesThenAdd(block) => {
            let blocks = simpler_blocks(block).map(Accumulation::HalvesThenAdd);
            [Accumulation::Chain(*block)].into_iter().chain(blocks).collect()
        }
        Accumulation::Sum(sum) => simpler_sums(sum),
    };
    all.retain(|simpler| simpler != order);
    all
}

fn simpler_sums(sum: &Sum) -> Vec<Accumulation> {
    let (unit, two) = match sum.split {
        Split::Contiguous { parts, granule } => {
            (Split::Contiguous { parts, granule: 1 }, Split::Contiguous { parts: parts.min(2), granule })
        }
        Split::Every(n) => (Split::Every(n), Split::Every(n)),
        Split::Interleaved { parts, run } => {
            (Split::Interleaved { parts, run: 1 }, Split::Interleaved { parts: parts.min(2), run })
        }
    };
    let sums = [
        Sum { reduce: Reduce::Ascending, ..sum.clone() },
        Sum { partials: F32, ..sum.clone() },
        Sum { sums: F32, ..sum.clone() },
        Sum { split: unit, ..sum.clone() },
        Sum { split: two, ..sum.clone() },
    ];
    let inner = simpler(&sum.each).into_iter().map(|each| Sum { each, ..sum.clone() });
    [sum.each.clone()].into_iter().chain(sums.into_iter().chain(inner).map(Accumulation::from)).collect()
}

/// Hopper's block, and blocks that are more like it.
fn simpler_blocks(block: &Block) -> [Block; 4] {
    let usual = if block.accumulator() == F32 { Block::HOPPER } else { Block::HOPPER_F16 };
    [
        usual,
        Block { products: usual.products, ..*block },
        Block { fraction_bits: usual.fraction_bits, ..*block },
        Block { min_exponent: usual.min_exponent, ..*block },
    ]
}
