//! The reference's own orders must be found again.

use super::{Extents, Findings, Target, Tree, find};
use plumbline_reference::Cpu;
use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput, Reduce, Split, Sum};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, TF32};
use plumbline_reference::ops::Gemm;

fn probe(formats: [Format; 3], accumulate: &Accumulation, k: usize) -> Findings {
    let [a, b, out] = formats;
    let gemm = Gemm::new(a, b, out).accumulated(None, accumulate.clone());
    // Masks of FP8 need a row and a column each, those of others only one of them.
    let (m, n) = if a.storage_bits == 8 { (8, 8) } else { (64, 2) };
    find(&Target::new(&Cpu, "parallel", gemm, Extents { m, n, k }).unwrap()).unwrap()
}

fn sum(split: Split, each: Accumulation, reduce: Reduce) -> Accumulation {
    Accumulation::Sum(Box::new(Sum { split, each, reduce, partials: F32 }))
}

/// The order is among those that fit, and each of those has its tree.
fn assert_found(formats: [Format; 3], accumulate: &Accumulation, k: usize) {
    let found = probe(formats, accumulate, k);
    let fits: Vec<_> = found.explained().map(|fit| &fit.accumulate).collect();
    assert!(fits.contains(&accumulate), "{accumulate:?}, k {k}:\n{}", found.text());
    for fit in fits {
        assert_eq!(Tree::of(fit, k), Tree::of(accumulate, k));
    }
}

const F32S: [Format; 3] = [F32; 3];

#[test]
fn orders_of_f32_are_found() {
    for k in [2, 3, 33, 200] {
        for accumulate in [Accumulation::Fma, Accumulation::MultiplyAdd, Accumulation::Pairwise] {
            assert_found(F32S, &accumulate, k);
        }
    }
}

/// Products that are rounded tell the two apart, their tree does not.
#[test]
fn a_fused_multiply_add_is_told_from_a_rounded_product_by_its_bits() {
    let found = probe(F32S, &Accumulation::Fma, 100);
    let orders: Vec<_> = found.fits.iter().map(|fit| (fit.accumulate.clone(), fit.is_whole())).collect();
    assert_eq!(orders, [(Accumulation::Fma, true), (Accumulation::MultiplyAdd, false)]);
}

#[test]
fn sums_of_parts_are_found() {
    use Accumulation::{Fma, Pairwise};
    for reduce in [Reduce::Ascending, Reduce::Descending, Reduce::Neighbours, Reduce::Halves] {
        // Of eight parts the four are different trees.
        let every = |n| sum(Split::Every(n), Fma, reduce);
        assert_found(F32S, &every(24), 192);
        assert_found(F32S, &sum(Split::Interleaved { parts: 8, run: 4 }, Fma, reduce), 200);
    }
    // A warp: each lane its own sum, then halves.
    assert_found(F32S, &sum(Split::Interleaved { parts: 32, run: 1 }, Fma, Reduce::Halves), 256);
    assert_found(F32S, &sum(Split::Contiguous { parts: 2, granule: 64 }, Pairwise, Reduce::Ascending), 300);
    let lanes = sum(Split::Interleaved { parts: 4, run: 2 }, Fma, Reduce::Halves);
    assert_found(F32S, &sum(Split::Contiguous { parts: 3, granule: 64 }, lanes, Reduce::Ascending), 600);
}

/// Formats that a block takes.
fn formats(name: &str) -> [Format; 3] {
    match name {
        _ if name.ends_with("fp8_f16") => [E4M3FN, E4M3FN, F16],
        _ if name.ends_with("fp8") => [E4M3FN, E4M3FN, F32],
        _ if name.ends_with("tf32") => [TF32, TF32, F32],
        _ if name.ends_with("f16") => [F16, F16, F16],
        "volta" | "turing" => [F16, F16, F32],
        _ => [BF16, BF16, F32],
    }
}

#[test]
fn every_named_block_is_found() {
    for (name, block) in Block::NAMED {
        let accumulate = Accumulation::Chain(block);
        let found = probe(formats(name), &accumulate, 100);
        let of_block = found.block.as_ref().unwrap();
        assert_eq!(of_block.block, Some(block), "{name}:\n{}", found.text());
        assert_eq!(found.explained().next().map(|fit| &fit.accumulate), Some(&accumulate), "{name}");
        // e0 shows with operands that have its range.
        let shows = formats(name)[0] != E4M3FN && !["volta", "turing"].contains(&name);
        assert_eq!(of_block.assumed.is_empty(), shows, "{name}:\n{}", found.text());
    }
}

#[test]
fn blocks_without_a_name_are_found() {
    let hopper = Block::HOPPER;
    let blocks = [
        Block { products: 12, fraction_bits: 22, ..hopper },
        Block { output: BlockOutput::NearestF32, ..hopper },
        Block { min_exponent: -136, ..hopper },
        Block { fraction_bits: 26, output: BlockOutput::Truncate(20), min_exponent: -133, ..hopper },
    ];
    for block in blocks {
        let found = probe([BF16, BF16, F32], &Accumulation::Chain(block), 96);
        let mut of_block = found.block.as_ref().unwrap().block.unwrap();
        if found.block.as_ref().unwrap().assumed.contains(&"min_exponent") {
            of_block.min_exponent = block.min_exponent;
        }
        assert_eq!(of_block, block, "{}", found.text());
    }
}

/// A narrow output hides the last bits of the accumulator, not those of a block before.
#[test]
fn a_block_is_found_below_a_narrow_output() {
    for (formats, k) in [([F16, F16, F16], 200), ([BF16, BF16, BF16], 200), ([E5M2, E4M3FN, BF16], 100)] {
        let block = if formats[1] == E4M3FN { Block::HOPPER_FP8 } else { Block::HOPPER };
        assert_found(formats, &Accumulation::Chain(block), k);
    }
}

#[test]
fn sums_of_chains_are_found() {
    let chain = Accumulation::Chain(Block::HOPPER);
    let halves = [F16, F16, F32];
    for (parts, k) in [(2, 384), (3, 500), (3, 520)] {
        assert_found(halves, &sum(Split::Contiguous { parts, granule: 64 }, chain.clone(), Reduce::Ascending), k);
    }
    let fp8 = [E4M3FN, E4M3FN, F32];
    let promoted = sum(Split::Every(128), Accumulation::Chain(Block::HOPPER_FP8), Reduce::Ascending);
    assert_found(fp8, &promoted, 300);
    assert_found(fp8, &Accumulation::HalvesThenAdd(Block::HOPPER), 150);
}
