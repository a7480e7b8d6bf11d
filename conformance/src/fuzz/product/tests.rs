use super::super::regression::record;
use super::super::sample::Sample;
use super::super::shrink::{Shrinking, shrink};
use super::super::target::{Finding, Target, Targets};
use super::super::tests::samples;
use super::{inputs, is_exact, keep, simpler, with_op};
use crate::adapter::Closure;
use crate::case::Criterion;
use crate::registry::Trial;
use crate::setup::Subject;
use plumbline_reference::accumulate::{Accumulation, Block, Instruction, Reduce, Split, Sum};
use plumbline_reference::format::{BF16, F16, F32};
use plumbline_reference::ops::{Bits32, EpilogueOrder, Gemm, GemmScale, Mma, Op};
use plumbline_reference::{Cpu, Path, Tensor};
use std::collections::BTreeSet;

fn target(operation: &str) -> Target {
    let targets = Targets::new(&[Subject::foreign(Cpu)], |_, _| Vec::new()).targets;
    targets.into_iter().find(|target| target.name == format!("cpu/parallel/{operation}")).unwrap()
}

fn result(sample: &Sample) -> Tensor {
    sample.op.evaluate(&sample.inputs().unwrap(), Path::Definition).unwrap().swap_remove(0)
}

fn gemm(sample: &Sample) -> &Gemm {
    match &sample.op {
        Op::Gemm(gemm) => gemm,
        op => panic!("{op:?}"),
    }
}

/// The names in an order of accumulation.
fn names(order: &Accumulation) -> String {
    let written = serde_json::to_string(order).unwrap();
    written.chars().filter(|c| c.is_alphabetic() || "_:".contains(*c)).collect()
}

#[test]
fn samples_are_of_all_kinds_of_products() {
    let samples = samples(&target("gemm"), 3000);
    let count = |is: &dyn Fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
    let written: Vec<_> = samples.iter().filter_map(|sample| gemm(sample).accumulate.as_ref()).collect();
    let orders: String = written.iter().map(|order| names(order)).collect();
    for name in [
        "fma",
        "multiply_add",
        "pairwise",
        "chain",
        "residue_first",
        "halves_then_add",
        "sum",
        "contiguous",
        "every",
        "interleaved",
        "ascending",
        "descending",
        "neighbours",
        "halves",
        "buffers",
    ] {
        assert!(orders.matches(name).count() > 20, "{name}");
    }
    let is_nested = |order: &Accumulation| match order {
        Accumulation::Sum(sum) => matches!(sum.each, Accumulation::Sum(_)),
        _ => false,
    };
    assert!(written.iter().filter(|order| is_nested(order)).count() > 50);
    assert!(count(&|sample| gemm(sample).operands.is_some()) > 100);
    assert!(count(&|sample| sample.shape.len() == 4) > 100);
    assert!(count(&|sample| sample.shape.contains(&0)) > 100);
    assert!(count(&|sample| gemm(sample).alpha.0.is_nan()) > 50);
    assert!(count(&|sample| gemm(sample).reads_c()) > 500);
    let distinct = |of: &dyn Fn(&Gemm) -> String| {
        samples.iter().map(|sample| of(gemm(sample))).collect::<BTreeSet<_>>().len()
    };
    assert!(distinct(&|gemm| format!("{:?}{:?}{:?}", gemm.a, gemm.b, gemm.out)) > 60);
    let flags = |gemm: &Gemm| (gemm.transpose_a, gemm.transpose_b, gemm.scale_out, gemm.bias.is_some());
    assert_eq!(distinct(&|gemm| format!("{:?}", flags(gemm))), 16);
    assert_eq!(distinct(&|gemm| format!("{:?}{:?}{:?}", gemm.scale_a, gemm.scale_b, gemm.epilogue)), 36);
    assert_eq!(distinct(&|gemm| format!("{:?}", gemm.compute)), 3);
}

#[test]
fn exact_products_of_others_are_judged_by_their_bound() {
    let definition = Some((crate::case::Against::Definition, "definition"));
    let own = Subject { oracle: definition, ..Subject::foreign(Cpu) };
    let targets = Targets::new(&[own], |_, _| Vec::new()).targets;
    let own = targets.iter().find(|target| target.name == "cpu/parallel/gemm").unwrap();
    for (target, exact, ordered) in [
        (own, Some(Criterion::BitExact), Some(Criterion::BitExact)),
        (&target("gemm"), Some(Criterion::Bound), Some(Criterion::BitExact)),
    ] {
        let samples = samples(target, 1000);
        assert!(samples.iter().filter(|sample| is_exact(&sample.op)).count() > 100);
        for sample in samples {
            let criterion = if is_exact(&sample.op) { exact } else { ordered };
            assert_eq!(target.scope.criterion(&sample.op), criterion, "{:?}", sample.op);
        }
    }
}

#[test]
fn many_results_depend_on_the_last_bit_that_a_block_keeps() {
    let product = |fraction_bits| {
        let block = Block { fraction_bits, ..Block::HOPPER };
        Op::from(Gemm::new(F16, F16, F32).accumulated(None, Accumulation::Chain(block)))
    };
    let differs = |seed: u64| {
        let shape = vec![1, 1, 16];
        let sample = |op: Op| Sample { codes: super::fill(&op, &shape, seed), shape: shape.clone(), op };
        result(&sample(product(24))) != result(&sample(product(25)))
    };
    let count = (0..2000).filter(|&seed| differs(seed)).count();
    assert!(count > 200, "{count} of 2000");
}

/// A product with all there is.
fn full() -> Sample {
    let sum = Sum { reduce: Reduce::Halves, ..Sum::new(Split::Every(3), Accumulation::Chain(Block::TURING)) };
    let op = Op::from(Gemm {
        transpose_a: true,
        transpose_b: true,
        accumulate: Some(sum.into()),
        epilogue: EpilogueOrder::FusedAddend,
        alpha: Bits32(3.0),
        beta: Bits32(0.5),
        c: Some(BF16),
        scale_a: GemmScale::Row,
        scale_b: GemmScale::Row,
        scale_out: true,
        bias: Some(F16),
        ..Gemm::new(F16, BF16, F32)
    });
    let shape = vec![2, 3, 4, 5];
    let codes = inputs(&op).unwrap().into_iter().enumerate().map(|(i, input)| {
        let ty = input.ty(&shape);
        let format = input.format;
        let code = |j: usize| format.encode((i as f32 + 1.0 + j as f32 / 8.0).into(), &Default::default(), 0);
        (0..ty.elements().unwrap()).map(code).collect()
    });
    Sample { codes: codes.collect(), shape, op }
}

#[test]
fn slices_are_left_out_of_every_input() {
    let sample = full();
    let whole = result(&sample);
    let kept = [[0, 1], [0, 2], [1, 3]];
    for (dimension, kept) in kept.iter().enumerate() {
        let some = keep(&sample, dimension, |i| kept.contains(&i)).unwrap();
        assert!(some.fits(), "{some:?}");
        let mut shape = [2, 3, 4];
        shape[dimension] = 2;
        let code = |i: usize| {
            let mut position = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
            position[dimension] = kept[position[dimension]];
            whole.code((position[0] * 3 + position[1]) * 4 + position[2])
        };
        let expected: Vec<_> = (0..shape.iter().product()).map(code).collect();
        assert_eq!(result(&some).codes().collect::<Vec<_>>(), expected, "dimension {dimension}");
    }
}

#[test]
fn elements_stay_where_they_are_without_transposes() {
    let sample = full();
    let plain = Gemm { transpose_a: false, transpose_b: false, ..gemm(&sample).clone() };
    let moved = with_op(&sample, plain.into()).unwrap();
    assert_ne!(moved.codes[0], sample.codes[0]);
    assert_eq!(result(&moved), result(&sample));
}

#[test]
fn what_does_not_matter_is_left_out() {
    let target = target("gemm");
    let mut sample = full();
    sample.codes[1][17] = 0x7fff;
    let is_nan = |code: &u64| BF16.decode(*code).is_nan();
    let simplest = shrink(Shrinking::new(&target.scope, sample), |sample| sample.codes[1].iter().any(is_nan));
    let Op::Gemm(left) = &simplest.op else { panic!("{simplest:?}") };
    assert_eq!(*left, Gemm::new(F16, BF16, F32));
    assert_eq!((&*simplest.shape, simplest.codes), (&[1, 1, 1][..], vec![vec![0], vec![0x7fc0]]));
}

#[test]
fn orders_get_simpler_until_nothing_is_left() {
    for sample in samples(&target("gemm"), 300) {
        let mut op = sample.op;
        for step in 0.. {
            assert!(step < 200, "{op:?}");
            match simpler(&op).pop() {
                Some(simpler) => op = simpler,
                None => break,
            }
        }
    }
}

/// A backend that does one product as if it were another.
fn impostor(op: impl Into<Op>, as_if: impl Into<Op>) -> Subject {
    let as_if = as_if.into();
    Subject::foreign(Closure::new("impostor", op, move |inputs| {
        Ok(as_if.evaluate(inputs, Path::Definition).unwrap())
    }))
}

fn found(subject: &Subject) -> Finding {
    let targets = Targets::new(std::slice::from_ref(subject), |_, _| Vec::new()).targets;
    let [target] = &targets[..] else { panic!("one operation") };
    let finding = target.search(0).run(2000, Trial::run).expect("is found");
    let folder = tempfile::tempdir().unwrap();
    let regression = record(folder.path(), target, &finding).unwrap();
    assert!(!regression.known && record(folder.path(), target, &finding).unwrap().known);
    assert_eq!(regression.case.spec.op, finding.sample.op);
    finding
}

#[test]
fn a_block_that_keeps_one_bit_less_is_found() {
    let product = |block| Gemm::new(F16, F16, F32).accumulated(None, Accumulation::Chain(block));
    let short = Block { fraction_bits: 24, ..Block::HOPPER };
    let finding = found(&impostor(product(Block::HOPPER), product(short)));
    let [m, n, k] = finding.sample.shape[..] else { panic!("{finding:?}") };
    assert!([m, n] == [1, 1] && (2..=4).contains(&k), "{:?}", finding.sample);
}

#[test]
fn an_epilogue_in_another_order_is_found() {
    let product = |epilogue| {
        let chain = Gemm::new(BF16, BF16, BF16).accumulated(None, Accumulation::Chain(Block::HOPPER));
        Gemm { epilogue, c: Some(BF16), beta: Bits32(1.0), ..chain }
    };
    let (fused, addend) = (product(EpilogueOrder::FusedProduct), product(EpilogueOrder::RoundedProduct));
    let finding = found(&impostor(fused, addend));
    assert_eq!(finding.sample.shape, [1, 1, 1], "{:?}", finding.sample);
}

#[test]
fn an_instruction_whose_accumulator_is_cut_is_found() {
    let own = Instruction::MmaE4m3F32;
    let subject = Subject::foreign(Closure::new("impostor", Mma { instruction: own }, move |inputs| {
        let right = Op::from(Mma { instruction: own }).evaluate(inputs, Path::Definition).unwrap();
        let cut = |code: u64| Block::HOPPER_FP8.fuse([].into_iter(), code);
        let codes: Vec<_> = right[0].codes().map(cut).collect();
        Ok(vec![Tensor::from_codes(right[0].ty().clone(), &codes).unwrap()])
    }));
    let finding = found(&subject);
    assert_eq!(finding.sample.shape, [1, 16, 8, 32]);
    let set = finding.sample.codes.iter().flatten().filter(|&&code| code != 0).count();
    // One number in the accumulator with a bit that is cut.
    assert_eq!(set, 1, "{:?}", finding.sample);
}
