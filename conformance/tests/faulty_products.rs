//! Faulty matrix products: which criterion finds which fault, and which it cannot find.
//!
//! Those of 4096 x 4096 x 4096 take minutes:
//! `cargo test --release -p plumbline-conformance --test faulty_products -- --ignored --nocapture --test-threads=1`

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "faulty_products/large.rs"]
mod large;

use clap::ValueEnum;
use plumbline_conformance::adapter::DemoFault::{self, *};
use plumbline_conformance::adapter::demo_fault;
use plumbline_conformance::case::Criterion::{self, Bound, Explained, Freivalds};
use plumbline_conformance::case::NanJudge;
use plumbline_conformance::judge::{Context, OutputVerdict, judge};
use plumbline_conformance::load::load;
use plumbline_conformance::report::failed_output;
use plumbline_conformance::source::{Built, Case, Expected};
use plumbline_reference::Tensor;

/// An operation with its inputs, and what its product is judged by.
struct Set {
    case: &'static str,
    by: &'static [By],
}

/// What a criterion finds of the faults, and which it accepts though bits differ.
struct By {
    criterion: Criterion,
    finds: &'static [DemoFault],
    accepts: &'static [DemoFault],
}

const fn by(criterion: Criterion, finds: &'static [DemoFault], accepts: &'static [DemoFault]) -> By {
    By { criterion, finds, accepts }
}

/// Faults of the whole product: which elements, how often, with what.
const OF_ALL: &[DemoFault] =
    &[TailDropped, BlockTwice, ScaleDropped, ScaleTwice, BetaRead, BiasOfRows, RowsSwapped];
/// Those of them that are there without scale, c and bias.
const OF_SUMS: &[DemoFault] = &[TailDropped, BlockTwice, RowsSwapped];
/// With those of the tensor core.
const OF_ALL_AND_BLOCKS: &[DemoFault] = &[
    TailDropped,
    BlockTwice,
    ScaleDropped,
    ScaleTwice,
    BetaRead,
    BiasOfRows,
    RowsSwapped,
    FractionBits,
    RoundedBlocks,
];
/// Faults of the tensor core.
const OF_BLOCKS: &[DemoFault] = &[FractionBits, RoundedBlocks];

/// Integers whose sums are exact show no fault of rounding: their bits are those of the right
/// product. A bound that allows any order allows one bit less of a term, too.
const SMALL: [Set; 10] = [
    Set { case: "integers/f32", by: &[by(Freivalds, OF_ALL, &[])] },
    Set { case: "integers/f16", by: &[by(Freivalds, OF_ALL, &[])] },
    Set { case: "integers/fp8", by: &[by(Freivalds, OF_ALL, &[])] },
    Set {
        case: "integers/batch",
        by: &[by(Freivalds, &[TailDropped, BlockTwice, RowsSwapped, FirstBatch], &[])],
    },
    Set {
        case: "integers/f32_of_12_bits",
        by: &[by(Freivalds, &[TailDropped, BlockTwice, RowsSwapped, Tf32], &[])],
    },
    Set {
        case: "real/f16",
        by: &[
            by(Explained, &[TailDropped, BlockTwice, RowsSwapped, FractionBits, RoundedBlocks], &[]),
            by(Bound, OF_SUMS, OF_BLOCKS),
        ],
    },
    Set {
        case: "real/fp8",
        by: &[
            by(Explained, &[TailDropped, BlockTwice, RowsSwapped, FractionBits, RoundedBlocks], &[]),
            by(Bound, OF_SUMS, OF_BLOCKS),
        ],
    },
    Set {
        case: "real/fp8_fast",
        by: &[by(Explained, &[TailDropped, BlockTwice, RowsSwapped, FractionBits, RoundedBlocks], &[])],
    },
    Set {
        case: "real/f32",
        by: &[
            by(Explained, &[TailDropped, BlockTwice, RowsSwapped, Tf32], &[]),
            by(Bound, &[TailDropped, BlockTwice, RowsSwapped, Tf32], &[]),
        ],
    },
    Set { case: "real/epilogue", by: &[by(Explained, OF_ALL_AND_BLOCKS, &[]), by(Bound, OF_ALL, OF_BLOCKS)] },
];

/// Large products of integers, and the faults that are computed whole.
const LARGE_INTEGERS: [Set; 4] = [
    Set { case: "integers/f32", by: &[by(Freivalds, OF_ALL, &[])] },
    Set { case: "integers/fp8", by: &[by(Freivalds, &[BlockTwice], &[])] },
    Set { case: "integers/batch", by: &[by(Freivalds, &[FirstBatch], &[])] },
    Set { case: "integers/f32_of_12_bits", by: &[by(Freivalds, &[Tf32], &[])] },
];

/// Other large products. Any order of 4096 products in f32 may be as far off as TF32 is: the
/// bound accepts it.
const LARGE: [Set; 3] = [
    Set { case: "real/f32", by: &[by(Explained, &[Tf32], &[]), by(Bound, &[], &[Tf32])] },
    Set { case: "real/f16", by: &[by(Explained, OF_BLOCKS, &[]), by(Bound, &[], OF_BLOCKS)] },
    Set { case: "real/fp8", by: &[by(Explained, OF_BLOCKS, &[]), by(Bound, &[], OF_BLOCKS)] },
];

/// The cases of the file at these M, N and K.
fn cases([m, n, k]: [usize; 3]) -> Vec<Case> {
    let mut text = include_str!("faulty_products/cases.yaml").to_owned();
    for (name, extent) in [("M", m), ("N", n), ("K", k)] {
        for (before, after) in [("[", ","), (" ", ","), (" ", "]"), ("[", "]")] {
            text = text.replace(&format!("{before}{name}{after}"), &format!("{before}{extent}{after}"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cases.yaml"), text).unwrap();
    load(&folder.path().join("cases.yaml")).unwrap()
}

fn product(case: &Case, built: &Built, fault: DemoFault) -> Tensor {
    demo_fault(fault).run(&case.spec.op, "faulty", &built.inputs).unwrap().remove(0)
}

fn verdict(case: &Case, built: &Built, criterion: Criterion, y: &Tensor) -> OutputVerdict {
    let expected = Expected { criterion, ..built.expected[0].clone() };
    judge(Context::new(&case.spec.op, &built.inputs, NanJudge::Class), 0, &expected, y)
}

/// What must stand in the report of a fault that a criterion finds.
fn words(criterion: Criterion) -> [&'static str; 2] {
    match criterion {
        Freivalds => ["freivalds", " rows of the product are wrong"],
        Explained => ["explained", "models; the nearest where tried, "],
        _ => ["bound", "of the bound"],
    }
}

/// What a verdict says, in one line.
fn line(verdict: &OutputVerdict) -> String {
    if let Some(explanation) = &verdict.explanation {
        return explanation.clone();
    }
    let ratio =
        verdict.max_error_over_bound.map_or(String::new(), |ratio| format!(", {ratio:.3} of the bound"));
    format!("{} of {} elements wrong{ratio}", verdict.mismatches, verdict.elements)
}

/// Judges the products of the sets with every fault, or with those that are named alone.
fn check(sets: &[Set], shape: [usize; 3], every_fault: bool) {
    let cases = cases(shape);
    let size = shape.map(|extent| extent.to_string()).join("x");
    for set in sets {
        let case = cases.iter().find(|case| case.name == format!("cases/{}", set.case)).unwrap();
        let built = case.build(0).unwrap();
        let faults = DemoFault::value_variants().iter().copied().filter(|fault| fault.is_of_products());
        let is_named = |fault: &DemoFault| {
            set.by.iter().any(|by| by.finds.contains(fault) || by.accepts.contains(fault))
        };
        let (named, others): (Vec<_>, Vec<_>) = faults.partition(is_named);
        // A fault that is not about an operation leaves it right: one of the batch, or of c.
        let other = if named.contains(&FirstBatch) { BetaRead } else { FirstBatch };
        let right = product(case, &built, other);
        for fault in others.into_iter().filter(|_| every_fault) {
            assert_eq!(product(case, &built, fault), right, "{fault} of {}", set.case);
        }
        let print = |fault: &str, criterion: Criterion, verdict: &OutputVerdict| {
            let ok = if verdict.ok { "pass" } else { "FAIL" };
            let criterion = format!("{criterion:?}").to_lowercase();
            println!("{fault:<15} {size:<15} {:<23} {criterion:<10} {ok} {}", set.case, line(verdict));
        };
        for by in set.by {
            let verdict = verdict(case, &built, by.criterion, &right);
            print("none", by.criterion, &verdict);
            assert!(verdict.ok, "{size} {}: {}", set.case, failed_output(&verdict));
        }
        for fault in named {
            let wrong = product(case, &built, fault);
            assert_ne!(wrong, right, "{fault} of {}", set.case);
            for by in set.by {
                let verdict = verdict(case, &built, by.criterion, &wrong);
                print(&fault.to_string(), by.criterion, &verdict);
                let what = format!("{size} {fault} of {} by {:?}", set.case, by.criterion);
                assert_eq!(verdict.ok, by.accepts.contains(&fault), "{what}");
                let report = failed_output(&verdict);
                for part in words(by.criterion).into_iter().filter(|_| !verdict.ok) {
                    assert!(report.contains(part), "{what}: no `{part}` in {report}");
                }
                assert_eq!(verdict.ok, verdict.faults.is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn each_fault_is_found_by_a_criterion_that_is_for_it() {
    check(&SMALL, [64, 64, 64], true);
    check(&SMALL, [17, 40, 136], true);
    let found: Vec<_> = SMALL.iter().flat_map(|set| set.by).flat_map(|by| by.finds).collect();
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_products());
    assert!(faults.into_iter().all(|fault| found.contains(&fault)));
}

#[test]
fn the_report_of_a_run_names_the_criterion() {
    let args =
        ["conform", "--backend=cpu", "--demo-fault=rows_swapped", "gemm_library/integers/column_major"];
    let run = common::plumbline(&args);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for part in ["criterion  freivalds", "2 rows of the product are wrong", "--demo-fault=rows_swapped"] {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
}

#[test]
#[ignore = "takes minutes; run it in release"]
fn faults_of_large_products_of_integers_are_found() {
    check(&LARGE_INTEGERS, [4096; 3], false);
}

#[test]
#[ignore = "takes minutes; run it in release"]
fn faults_of_large_products_are_found() {
    check(&LARGE, [4096; 3], false);
}
