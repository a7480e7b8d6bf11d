//! The reference's own orders must be found again.

use super::{Extents, Findings, ProbeError, Target, Tree, find};
use crate::adapter::Closure;
use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput, Reduce, Split, Sum, Term};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, Rounding, TF32};
use plumbline_reference::ops::{Bits32, Compute, Gemm, Operands, Operation as _};
use plumbline_reference::{Backend, BackendError, Cpu, Path, Tensor, TensorType};

fn probe(formats: [Format; 3], accumulate: &Accumulation, k: usize) -> Findings {
    let [a, b, out] = formats;
    let gemm = Gemm::new(a, b, out).accumulated(None, accumulate.clone());
    // Masks of FP8 need a row and a column each, those of others only one of them.
    let (m, n) = if a.storage_bits == 8 { (8, 8) } else { (64, 2) };
    find(&Target::new(&Cpu, "parallel", gemm, Extents { m, n, k }).unwrap()).unwrap()
}

fn sum(split: Split, each: Accumulation, reduce: Reduce) -> Accumulation {
    Sum { reduce, ..Sum::new(split, each) }.into()
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
        assert_found(
            halves,
            &sum(Split::Contiguous { parts, granule: 64 }, chain.clone(), Reduce::Ascending),
            k,
        );
    }
    let fp8 = [E4M3FN, E4M3FN, F32];
    let promoted = sum(Split::Every(128), Accumulation::Chain(Block::HOPPER_FP8), Reduce::Ascending);
    assert_found(fp8, &promoted, 300);
    assert_found(fp8, &Accumulation::HalvesThenAdd(Block::HOPPER), 150);
}

#[test]
fn the_conversion_to_tf32_is_found() {
    let nearest = Operands { to: TF32, rounding: Rounding::NearestEven };
    let accumulate = Accumulation::Chain(Block::HOPPER_TF32);
    let gemm = Gemm { compute: Compute::Tf32, ..Gemm::new(F32, F32, F32) };
    let own = gemm.accumulated(Some(nearest), accumulate.clone());
    // As a backend gives it that is asked only for a product in TF32.
    let backend = Closure::new("tf32", gemm.clone(), move |inputs| Ok(own.evaluate(inputs, Path::Parallel)?));
    let found = find(&Target::new(&backend, "closure", gemm, SMALL).unwrap()).unwrap();
    let best = &found.fits[0];
    assert!(
        best.is_whole() && best.operands == Some(nearest) && best.accumulate == accumulate,
        "{}",
        found.text()
    );
    assert!(!found.fits[1].is_whole(), "{}", found.text());
}

const SMALL: Extents = Extents { m: 32, n: 4, k: 48 };

/// A chain that begins with c, as the instruction does it.
#[test]
fn whether_c_is_fused_is_found() {
    let plain = Gemm { c: Some(F32), beta: Bits32(1.0), ..Gemm::new(F16, F16, F32) };
    let fused = Closure::new("fused", plain.clone(), |inputs| {
        let Extents { n, k, .. } = SMALL;
        let term = |input: usize, i: usize| Term::of(F16, inputs[input].code(i));
        let y = Tensor::from_fn(inputs[2].ty().clone(), Path::Parallel, |i| {
            let terms: Vec<_> = (0..k).map(|k_| (term(0, i / n * k + k_), term(1, k_ * n + i % n))).collect();
            terms.chunks(16).fold(inputs[2].code(i), |c, terms| Block::HOPPER.fuse(terms.iter().copied(), c))
        });
        Ok(vec![y?])
    });
    let late = plain.accumulated(None, Accumulation::Chain(Block::HOPPER));
    let answer = |found: &Findings| {
        let answers = &found.block.as_ref().unwrap().answers;
        answers.iter().find(|answer| answer.question == "c").unwrap().answer.clone()
    };
    let of_fused = find(&Target::new(&fused, "closure", plain, SMALL).unwrap()).unwrap();
    let of_late = find(&Target::new(&Cpu, "parallel", late, SMALL).unwrap()).unwrap();
    assert_eq!(
        [answer(&of_fused), answer(&of_late)],
        ["is a term of the first block", "is added to the sum"]
    );
    assert!(of_fused.explained().next().is_some() && of_late.explained().next().is_some());
}

/// Orders without a name are shown as a tree; none is claimed.
#[test]
fn an_order_without_a_name_is_shown_as_its_tree() {
    let gemm = Gemm::new(F32, F32, F32);
    // From the sixth product on, then the first five.
    let turned = Closure::new("turned", gemm.clone(), |inputs| {
        let Extents { m, n, k } = SMALL;
        let value = |input: usize, i: usize| f32::from_bits(inputs[input].code(i) as u32);
        let y = Tensor::from_fn(TensorType::new(F32, [m, n]), Path::Parallel, |i| {
            let products = (5..k).chain(0..5).map(|k_| value(0, i / n * k + k_) * value(1, k_ * n + i % n));
            products.reduce(|sum, product| sum + product).unwrap().to_bits().into()
        });
        Ok(vec![y?])
    });
    let found = find(&Target::new(&turned, "closure", gemm, SMALL).unwrap()).unwrap();
    assert_eq!(found.tree, "(5, 6, .. 47, 0, 1, .. 4)");
    assert_eq!(found.fits, []);
}

#[test]
fn what_is_no_sum_in_an_order_is_an_error() {
    let target = |backend: &dyn Backend, variant, gemm: &Gemm, extents| {
        find(&Target::new(backend, variant, gemm.clone(), extents)?).map(|found| found.text())
    };
    let gemm = Gemm::new(F32, F32, F32);
    // Exact sums swallow nothing.
    let result = target(&Cpu, "parallel", &gemm, SMALL);
    assert!(matches!(result, Err(ProbeError::NotATree { .. })), "{result:?}");
    // The last products are left out.
    let own = gemm.accumulated(None, Accumulation::Fma);
    let short = Closure::new("short", gemm.clone(), move |inputs| {
        let Extents { m, k, .. } = SMALL;
        let cut = Tensor::from_fn(TensorType::new(F32, [m, k]), Path::Parallel, |i| {
            if i % k < k - 3 { inputs[0].code(i) } else { 0 }
        });
        Ok(own.evaluate(&[cut?, inputs[1].clone()], Path::Parallel)?)
    });
    let result = target(&short, "closure", &gemm, SMALL);
    assert!(matches!(result, Err(ProbeError::Count { counted: 45, of: 48 })), "{result:?}");
    // Columns in different orders.
    let orders = [Accumulation::Fma, Accumulation::Pairwise].map(|order| gemm.accumulated(None, order));
    let uneven = Closure::new("uneven", gemm.clone(), move |inputs| {
        let of = |gemm: &Gemm| gemm.evaluate(inputs, Path::Parallel).map(|mut outputs| outputs.remove(0));
        let (left, right) = (of(&orders[0])?, of(&orders[1])?);
        let y = Tensor::from_fn(left.ty().clone(), Path::Parallel, |i| {
            if i % SMALL.n < 3 { left.code(i) } else { right.code(i) }
        });
        Ok(vec![y?])
    });
    let result = target(&uneven, "closure", &gemm, SMALL);
    assert!(matches!(result, Err(ProbeError::Uneven { other: 3, .. })), "{result:?}");

    let result = target(&Cpu, "warp", &gemm, SMALL);
    assert!(matches!(result, Err(ProbeError::Backend(BackendError::Variant { .. }))), "{result:?}");
    let result = target(&Cpu, "parallel", &gemm, Extents { k: 1, ..SMALL });
    assert!(matches!(result, Err(ProbeError::Shape(_))), "{result:?}");
    let result = target(&Cpu, "parallel", &Gemm::new(E4M3FN, E4M3FN, E4M3FN), SMALL);
    assert!(matches!(result, Err(ProbeError::Operation(_))), "{result:?}");
}

#[test]
fn an_order_without_a_meaning_is_refused() {
    let gemm =
        Gemm::new(F16, F16, F32).accumulated(None, Sum::new(Split::Every(0), Accumulation::Fma).into());
    let target = Target::new(&Cpu, "parallel", gemm, Extents { m: 4, n: 4, k: 16 });
    assert!(matches!(target, Err(ProbeError::Backend(_))));
}
