//! Wrong readings and products of GGML blocks are found by generated inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check, failing};
use plumbline_conformance::adapter::DemoFault::{self, *};
use plumbline_conformance::source::Case;
use std::collections::BTreeSet;

const ROWS: [Row; 11] = [
    Row {
        fault: NibblesSwapped,
        found_by: &[
            "dequantize/edges/q4_0",
            "dequantize/edges/q4_K",
            "gemv/warp/f32/q4_0",
            "gemv/warp/f32/q4_K",
            "gemv/warp/q8/q8_1/q4_0",
            "gemv/warp/q8_with_mins/q8_1/q4_K",
            "gemv/bound/f32/q4_K",
            "gemv/integers/f32/96/q4_0",
            "gemv/integers/q8/1/q4_K",
            "batched_gemv/warp/q8_with_mins/3",
            "batched_gemv/bound/f32",
        ],
        may_be_found_by: &["q4_0", "q4_K", "batched_gemv/warp/q8_with_mins", "batched_gemv/bound/f32"],
    },
    Row {
        fault: GroupsSwapped,
        found_by: &[
            "dequantize/edges/q6_K",
            "dequantize/narrow/direct/q6_K/f16",
            "gemv/warp/f32/q6_K",
            "gemv/warp/q8/q8_1/q6_K",
            "gemv/bound/f32/q6_K",
            "gemv/integers/f32_k/768/q6_K",
            "batched_gemv/warp/f32/3/q6_K",
        ],
        may_be_found_by: &["q6_K"],
    },
    Row {
        fault: FifthBit,
        found_by: &[
            "dequantize/edges/q5_K",
            "gemv/warp/f32/q5_K",
            "gemv/warp/q8_K_with_mins/q8_K/q5_K",
            "gemv/bound/q8_K/q8_K/q5_K",
            "batched_gemv/edges",
        ],
        may_be_found_by: &["q5_K", "dequantize/shape/batch", "batched_gemv/edges"],
    },
    Row {
        fault: HighScaleBits,
        found_by: &[
            "dequantize/edges/q3_K",
            "dequantize/edges/q4_K",
            "dequantize/edges/q5_K",
            "dequantize/edges/iq4_xs",
            "gemv/warp/f32/q3_K",
            "gemv/warp/f32/q4_K",
            "gemv/warp/f32/q5_K",
            "gemv/warp/f32/iq4_xs",
            "gemv/bound/f32/q4_K",
            "batched_gemv/warp/q8_with_mins/1",
        ],
        may_be_found_by: &[
            "q3_K",
            "q4_K",
            "q5_K",
            "iq4_xs",
            "dequantize/shape/batch",
            "batched_gemv/warp/q8_with_mins",
            "batched_gemv/bound/f32",
            "batched_gemv/edges",
        ],
    },
    Row {
        fault: MinSign,
        found_by: &[
            "dequantize/edges/q4_1",
            "dequantize/edges/q5_1",
            "dequantize/edges/q2_K",
            "dequantize/edges/q4_K",
            "dequantize/edges/q5_K",
            "gemv/warp/q8_with_mins/q8_1/q4_1",
            "gemv/warp/q8_K_with_mins/q8_K/q2_K",
            "gemv/bound/edges",
            "gemv/integers/q8/9/q4_K",
            "batched_gemv/integers/tail",
        ],
        may_be_found_by: &[
            "q4_1",
            "q5_1",
            "q2_K",
            "q4_K",
            "q5_K",
            "dequantize/shape",
            "gemv/bound/edges",
            "batched_gemv/warp/q8_with_mins",
            "batched_gemv/bound/f32",
            "batched_gemv/integers/tail",
            "batched_gemv/edges",
        ],
    },
    Row {
        fault: FirstBlockOnly,
        found_by: &[
            "dequantize/edges/q8_K",
            "dequantize/edges/mxfp4",
            "dequantize/shape/batch",
            "gemv/warp/f32/q4_K",
            "gemv/bound/q8/q8_1/q4_0",
            "gemv/integers/f32_k/768/q6_K",
            "batched_gemv/integers/tail",
        ],
        may_be_found_by: &["dequantize", "gemv", "batched_gemv"],
    },
    Row {
        fault: ShortHeader,
        found_by: &[
            "dequantize/edges/q4_1",
            "gemv/warp/q8_with_mins/q8_1/q4_1",
            "batched_gemv/integers/tail",
        ],
        may_be_found_by: &["q4_1", "dequantize/shape/one_block", "batched_gemv/integers/tail"],
    },
    Row {
        fault: DepthCut,
        found_by: &[
            "gemv/refused/cut_f32",
            "gemv/refused/cut_q8_K",
            "gemv/refused/shorter_weights",
            "batched_gemv/refused/cut",
        ],
        may_be_found_by: &["gemv/refused", "batched_gemv/refused"],
    },
    Row {
        fault: StoredSum,
        found_by: &[
            "gemv/large/q4_K/q8_1/q4_K",
            "gemv/warp/q8_with_mins/q8_1/q4_1",
            "gemv/warp/q8_with_mins/q8_1/q4_K",
            "gemv/integers/q8/9/q4_K",
            "batched_gemv/warp/q8_with_mins/5",
            "batched_gemv/edges",
        ],
        may_be_found_by: &[
            "q8_1",
            "gemv/integers/q8",
            "batched_gemv/warp/q8_with_mins",
            "batched_gemv/edges",
        ],
    },
    Row {
        fault: LaneLost,
        found_by: &[
            "gemv/warp/f32/q6_K",
            "gemv/warp/q8/q8_1/q4_0",
            "gemv/warp/q8_with_mins/q8_1/q4_K",
            "gemv/bound/f32/q4_K",
            "gemv/bound/q8/q8_1/q4_0",
            "gemv/integers/f32/32/q4_0",
            "gemv/integers/q8/1/q4_K",
            "batched_gemv/warp/f32/3/q4_0",
            "batched_gemv/bound/f32",
        ],
        may_be_found_by: &["gemv", "batched_gemv"],
    },
    Row {
        fault: RowStride,
        found_by: &[
            "batched_gemv/warp/q8_with_mins/2",
            "batched_gemv/warp/q8_with_mins/16",
            "batched_gemv/integers/f32/3/q5_0",
            "batched_gemv/integers/tail",
            "batched_gemv/bound/f32",
        ],
        may_be_found_by: &["batched_gemv"],
    },
];

/// The cases of the quick profile that hold no result.
fn cases() -> Vec<Case> {
    let cases = cases_of(&["dequantize.yaml", "gemv.yaml", "batched_gemv.yaml"]).into_iter();
    cases.filter(|case| case.oracle().is_some() || case.spec.refused.is_some()).collect()
}

/// Whether weights have one block in a row.
fn has_single_blocks(case: &Case) -> bool {
    let w = &case.spec.inputs[0];
    let k = w.shape.as_ref().and_then(|shape| shape.last().copied());
    w.blocks.is_some_and(|format| k == Some(format.values()))
}

#[test]
fn blocks_that_are_alone_do_not_find_that_others_are_not_read() {
    let single: Vec<_> = cases().into_iter().filter(has_single_blocks).collect();
    assert!(single.iter().any(|case| case.name == "dequantize/shape/one_block"));
    assert!(single.iter().any(|case| case.name.starts_with("gemv/")));
    assert_eq!(failing(FirstBlockOnly, &single), BTreeSet::new());
}

#[test]
fn each_fault_is_found_by_cases_that_are_about_it() {
    check(&ROWS, &cases());
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_blocks());
    assert!(faults.into_iter().all(|fault| ROWS.iter().any(|row| row.fault == *fault)));
}

/// Not by the cases alone that hold their results.
#[test]
fn recorded_blocks_and_reports_find_what_they_hold() {
    let given = cases_of(&["dequantize.yaml", "gemv.yaml"]).into_iter();
    let given: Vec<_> = given.filter(|case| case.oracle().is_none() && case.spec.refused.is_none()).collect();
    for (fault, case) in [
        (NibblesSwapped, "dequantize/recorded/q4_K"),
        (GroupsSwapped, "dequantize/recorded/q6_K"),
        (FifthBit, "dequantize/recorded/q5_K"),
        (HighScaleBits, "dequantize/report/q3k_scales_as_4_bit"),
        (MinSign, "dequantize/recorded/q4_1"),
        (ShortHeader, "dequantize/recorded/q4_1"),
        (FirstBlockOnly, "gemv/report/k_not_multiple_of_tile/96"),
        (StoredSum, "gemv/report/q8_1_sum_overflow"),
    ] {
        let failing = failing(fault, &given);
        // The sum is multiplied by a min of 0: infinity makes NaN of that.
        assert!(failing.contains(case), "{fault} is not found by {case}, but by {failing:#?}");
    }
}

#[test]
fn the_report_says_what_was_computed_from() {
    let args = ["conform", "--backend=cpu", "--demo-fault=depth_cut", "gemv/refused/cut_f32"];
    let run = common::plumbline(&args);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for part in
        ["run: computes from inputs that do not fit: K must be a multiple of 256", "--demo-fault=depth_cut"]
    {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
    let args = ["conform", "--backend=cpu", "--demo-fault=lane_lost", "gemv/bound/f32/q4_K"];
    let run = common::plumbline(&args);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for part in ["criterion  bound", "of the bound", "all 5 elements judged"] {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
}
