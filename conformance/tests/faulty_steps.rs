//! Wrong operations that are made of others are found by their cases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check, failing};
use plumbline_conformance::adapter::DemoFault::{self, *};
use std::collections::BTreeSet;

const ROWS: [Row; 11] = [
    Row {
        fault: FusedBiasOfRows,
        found_by: &[
            "gemm_fused/bias/columns/none",
            "gemm_fused/bias/columns/relu",
            "gemm_fused/bias/square/none",
            "gemm_fused/integers/f16/relu",
            "gemm_fused/bound/f32/none/17",
            "gemm_fused/fma/f32/none/1",
            "gemm_fused/chain/f16/relu",
        ],
        may_be_found_by: &["gemm_fused"],
    },
    Row {
        fault: BiasOf256,
        found_by: &["gemm_fused/bias/long/257", "gemm_fused/bias/long/600"],
        may_be_found_by: &["257", "600"],
    },
    Row {
        fault: NanSwallowed,
        found_by: &[
            "gemm_fused/relu/nan",
            "gemm_fused/relu/specials",
            "gemm_fused/specials/f16/relu",
            "gemm_fused/specials/f32/relu",
        ],
        may_be_found_by: &["gemm_fused/relu", "gemm_fused/specials"],
    },
    Row {
        fault: GeluSwapped,
        found_by: &[
            "gemm_fused/activation/specials/gelu_erf",
            "gemm_fused/activation/bound/gelu_erf",
            "gemm_fused/fma/f32/gelu_erf/17",
            "gemm_fused/small/fma/f16/gelu_erf",
            "gemm_fused/small/fma/bf16/gelu_erf",
            "gemm_fused/small/bound/f32/gelu_erf",
            "gemm_fused/small/bound/f16/gelu_erf",
        ],
        may_be_found_by: &["gelu_erf"],
    },
    Row {
        fault: PaddingInAbsmax,
        found_by: &[
            "prefill_linear/fma/17/true/fp8",
            "prefill_linear/fma/17/true/fp8_via_f16",
            "prefill_linear/bound/17/true/fp8",
            "prefill_linear/bound/17/true/fp8_via_f16",
            "prefill_linear/absmax/zero/true/fp8",
            "prefill_linear/literal/fp8/true",
            "dispatch/routes/5/fp8",
        ],
        may_be_found_by: &["true", "prefill_linear/chain/fp8", "dispatch/routes/5"],
    },
    Row {
        fault: LastBlockDropped,
        found_by: &[
            "prefill_linear/fma/17/true/dequantized",
            "prefill_linear/fma/17/true/fused",
            "prefill_linear/fma/tail/f16/q8_0",
            "prefill_linear/fma/blocks/fp8/q6_K",
            "prefill_linear/chain/blocks/iq4_xs",
            "prefill_linear/bound/17/true/f16_tiles",
            "prefill_linear/integers/fused",
            "prefill_linear/explained/f16",
            "prefill_linear/overflow",
            "dispatch/bound/gemm/9/fused",
            "dispatch/integers/9",
        ],
        may_be_found_by: &["prefill_linear", "dispatch"],
    },
    Row {
        fault: RowsReversed,
        found_by: &[
            "prefill_linear/fma/17/true/fp8_via_f16",
            "prefill_linear/fma/tiles/fused",
            "prefill_linear/chain/17/true/f16_tiles",
            "prefill_linear/bound/17/true/dequantized",
            "prefill_linear/integers/f16_tiles",
            "prefill_linear/explained/fp8",
            "dispatch/around/4/gemv/5/dequantized",
            "dispatch/around/4/gemm/4/fused",
            "dispatch/bound/gemm/9/fused",
            "dispatch/integers/16",
        ],
        may_be_found_by: &["prefill_linear", "dispatch"],
    },
    Row {
        fault: AlphaDropped,
        found_by: &[
            "prefill_linear/fma/17/true/fp8",
            "prefill_linear/fma/17/true/fp8_via_f16",
            "prefill_linear/bound/blocks/fp8/q4_0",
            "prefill_linear/literal/fp8/false",
            "prefill_linear/literal/fp8_via_f16/true",
            "dispatch/routes/5/fp8",
        ],
        may_be_found_by: OF_FP8,
    },
    Row {
        fault: ActivationScaleDropped,
        found_by: &[
            "prefill_linear/fma/17/true/fp8",
            "prefill_linear/fma/17/true/fp8_via_f16",
            "prefill_linear/bound/blocks/fp8/q4_0",
            "prefill_linear/literal/fp8/false",
            "prefill_linear/literal/fp8_via_f16/true",
            "dispatch/routes/5/fp8",
        ],
        may_be_found_by: OF_FP8,
    },
    // Sums come to overflow in other cases too.
    Row {
        fault: SaturatedInF16,
        found_by: &[
            "prefill_linear/overflow",
            "prefill_linear/overflow/bound",
            "prefill_linear/fma/17/true/fp8_via_f16",
        ],
        may_be_found_by: &["prefill_linear/overflow", "fp8_via_f16"],
    },
    Row {
        fault: ThresholdOffByOne,
        found_by: &[
            "dispatch/around/4/gemm/4/dequantized",
            "dispatch/around/4/gemv/4/fused",
            "dispatch/around/gemm/1/1",
            "dispatch/around/gemv/1/1",
            "dispatch/around/gemm/16/16",
            "dispatch/around/gemv/16/16",
            "dispatch/routes/4/fp8",
        ],
        may_be_found_by: &["dispatch/around", "dispatch/routes/4"],
    },
];

/// Cases of the routes whose operands are FP8.
const OF_FP8: &[&str] = &["fp8", "fp8_via_f16", "prefill_linear/overflow"];

const FILES: [&str; 3] = ["gemm_fused.yaml", "prefill_linear.yaml", "dispatch.yaml"];

#[test]
fn each_fault_is_found_by_the_cases_about_it_and_by_no_others() {
    let rows: BTreeSet<_> = ROWS.iter().map(|row| row.fault.to_string()).collect();
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_steps());
    assert_eq!(rows, faults.map(DemoFault::to_string).collect());
    check(&ROWS, &cases_of(&FILES));
}

#[test]
fn a_fault_of_another_family_changes_none_of_them() {
    // On this backend a fault that no operation has leaves all of them right.
    let cases: Vec<_> = cases_of(&FILES).into_iter().filter(|case| !case.name.contains("/blocks/")).collect();
    let fused = cases.iter().filter(|case| case.name.starts_with("gemm_fused")).cloned().collect::<Vec<_>>();
    assert!(failing(AlphaDropped, &fused).is_empty());
    let others =
        cases.iter().filter(|case| !case.name.starts_with("gemm_fused")).cloned().collect::<Vec<_>>();
    assert!(failing(BiasOf256, &others).is_empty());
}

#[test]
fn a_report_says_that_the_sum_in_f16_overflows() {
    let args = ["conform", "--backend=cpu", "--demo-fault=saturated_in_f16", "prefill_linear/overflow/bound"];
    let run = common::plumbline(&args);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for part in
        ["note       6 right elements", "the sum in f16 overflows: exactly it is 7.168", "criterion  bound"]
    {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
}

#[test]
fn a_run_counts_the_trials_that_pass_with_an_overflow() {
    let run = common::plumbline(&["conform", "--backend=cpu", "prefill_linear/overflow/bound"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let line = "trials of prefill_linear that passed; see their verdicts";
    assert!(
        run.stdout.lines().any(|own| own.starts_with("notes: ") && own.ends_with(line)),
        "{}",
        run.stdout
    );
}
