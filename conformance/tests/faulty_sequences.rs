//! Faults that only show across calls are found by the sequences about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use clap::ValueEnum;
use common::{plumbline, results};
use plumbline_conformance::adapter::DemoFault::{self, *};
use plumbline_conformance::adapter::{Engine, demo_fault};
use plumbline_conformance::load::load_tests;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::report::failure;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::suite::Test;
use plumbline_conformance::verdict::{Outcome, Verdict};
use plumbline_reference::{Backend, Cpu, ops::Op};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A fault, sequences that find it, and how the names of all that do begin.
struct Row {
    fault: DemoFault,
    found_by: &'static [&'static str],
    may_be_found_by: &'static [&'static str],
}

const ROWS: [Row; 10] = [
    Row {
        fault: StaleWeightCache,
        found_by: &[
            "kept/weights/address_reused/gemv/q4_0",
            "kept/weights/address_reused/gemv/q8_0",
            "kept/weights/address_reused/gemv/q4_K",
            "kept/weights/address_reused/gemv/q6_K",
            "kept/weights/address_reused/dequantize/f32/q5_0",
            "kept/weights/address_reused/dequantize/f16/q3_K",
            "kept/weights/address_reused/gemm/f32",
            "kept/weights/address_reused/gemm/e4m3fn",
            "kept/weights/overwritten/gemv/q4_K",
            "kept/weights/overwritten/by_a_call",
            "kept/weights/overwritten/dispatch/dequantized",
            "kept/weights/overwritten/dispatch/fp8_via_f16",
            "kept/weights/overwritten/prefill_linear/f16",
            "kept/weights/overwritten/prefill_linear/fp8_via_f16",
        ],
        may_be_found_by: &["kept/weights", "graphs/new_inputs/gemm"],
    },
    Row {
        fault: StaleActivationCache,
        found_by: &[
            "kept/activations/overwritten/absmax/f32",
            "kept/activations/overwritten/absmax/f16",
            "kept/activations/overwritten/gemv/q4_K",
            "kept/activations/overwritten/gemv/q5_1",
        ],
        may_be_found_by: &["kept/activations", "graphs/new_inputs"],
    },
    Row {
        fault: BakedConstant,
        found_by: &[
            "kept/constants/alpha/f32",
            "kept/constants/alpha/f16",
            "kept/constants/beta/f32",
            "kept/constants/transposed",
            "kept/constants/rounding/f16",
            "kept/constants/rounding/e4m3fn",
            "kept/constants/nan",
            "kept/constants/eps/rms_norm",
            "kept/constants/eps/layer_norm",
            "kept/constants/base/interleaved",
            "kept/constants/base/halves",
            "kept/constants/scale/softmax",
            "kept/constants/scale/attention",
            "kept/constants/length/attention/none",
            "kept/constants/length/attention/bottom_right",
            "kept/constants/bias_length/f32",
            "kept/constants/bias_length/f16",
            "kept/constants/activation",
            "kept/constants/route",
        ],
        may_be_found_by: &["kept/constants"],
    },
    Row {
        fault: ScratchGrowth,
        found_by: &[
            "graphs/scratch_growth/f32/e4m3fn",
            "graphs/scratch_growth/f16/e4m3fn",
            "graphs/scratch_growth/prefill_linear/dequantized",
            "graphs/scratch_growth/prefill_linear/f16",
            "graphs/scratch_growth/prefill_linear/fp8_via_f16",
            "graphs/scratch_growth/prefill_linear/fp8",
        ],
        may_be_found_by: &["graphs/scratch_growth"],
    },
    Row {
        fault: GraphBakesInputs,
        found_by: &[
            "graphs/new_inputs/gemm/f32",
            "graphs/new_inputs/gemm/f16",
            "graphs/new_inputs/chain/e4m3fn",
            "graphs/new_inputs/chain/e5m2",
            "graphs/scratch_growth/f32/e4m3fn",
            "graphs/host_source/overwritten/f32",
            "streams/order/graphs",
        ],
        may_be_found_by: &["graphs", "streams/order/graphs"],
    },
    Row {
        fault: WorkspaceDependent,
        found_by: &["alike/workspace/declared_order/f32", "alike/workspace/declared_order/f16"],
        may_be_found_by: &["alike/workspace"],
    },
    Row {
        fault: MissingStreamOrder,
        found_by: &[
            "streams/order/produced_on_0/e4m3fn",
            "streams/order/produced_on_1/e4m3fn",
            "streams/order/overwritten_after",
            "streams/order/there_and_back",
            "streams/order/graphs",
        ],
        may_be_found_by: &["streams/order"],
    },
    Row {
        fault: NondeterministicRepeat,
        found_by: &[
            "alike/thousand/gemm/f32",
            "alike/thousand/gemm/f16",
            "alike/thousand/gemv/q4_K",
            "alike/thousand/absmax",
            "alike/thousand/library/f16",
            "alike/thousand/replays",
        ],
        may_be_found_by: &["alike/thousand"],
    },
    Row {
        fault: AbsmaxNotCleared,
        found_by: &[
            "kept/accumulators/absmax/f32",
            "kept/accumulators/absmax/f16",
            "kept/accumulators/absmax/bf16",
            "kept/accumulators/absmax_rows/row",
            "kept/accumulators/absmax_replayed",
            "kept/activations/overwritten/quantized/e4m3fn",
        ],
        may_be_found_by: &["kept/accumulators", "kept/activations/overwritten/quantized"],
    },
    Row {
        fault: GoneHostSource,
        found_by: &[
            "graphs/host_source/overwritten/f32",
            "graphs/host_source/overwritten/f16",
            "graphs/host_source/every_replay/f32",
        ],
        may_be_found_by: &["graphs/host_source"],
    },
];

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")
}

/// What a backend makes of tests of the quick profile.
fn verdicts(backend: Arc<dyn Backend>, tests: Vec<Test>) -> Vec<Verdict> {
    let subject = Subject::shared(backend);
    let registry = Registry::of(tests, vec![subject], Vec::new(), &Selection::default()).unwrap();
    registry.trials.iter().map(|trial| trial.run()).collect()
}

fn sequences() -> Vec<Test> {
    load_tests(&cases().join("sequences")).unwrap()
}

fn passes(backend: Arc<dyn Backend>, tests: Vec<Test>) -> usize {
    let verdicts = verdicts(backend, tests);
    for verdict in &verdicts {
        assert_eq!(verdict.outcome, Outcome::Pass, "{}", failure(verdict));
        assert!(verdict.elements > 0 || verdict.op.is_some(), "{}", verdict.trial);
    }
    verdicts.len()
}

#[test]
fn an_engine_that_is_right_passes_every_sequence() {
    let all = sequences().len();
    assert_eq!(passes(Arc::new(Engine::new()), sequences()), all);
    // All but those about a workspace, which the reference does not have, in every variant.
    let (about_workspaces, others): (Vec<_>, Vec<_>) =
        sequences().into_iter().partition(|it| it.name().contains("workspace"));
    let variants = others.iter().map(|test| {
        let Test::Sequence(sequence) = test else { panic!("{} is a case", test.name()) };
        let of = |op: &&Op| Cpu.variants(op);
        sequence.operations().iter().flat_map(of).collect::<BTreeSet<_>>().len()
    });
    assert!(!about_workspaces.is_empty());
    assert_eq!(passes(Arc::new(Cpu), sequences()), variants.sum::<usize>());
}

/// In cases of one call, with guard zones, streams and graphs, it is the reference.
#[test]
fn an_engine_that_is_right_passes_cases_of_one_call() {
    for file in ["device_scaled_cast.yaml", "gemm_epilogue.yaml", "gemm_layout.yaml", "batched_gemv.yaml"] {
        assert!(passes(Arc::new(Engine::new()), load_tests(&cases().join(file)).unwrap()) > 10, "{file}");
    }
}

#[test]
fn each_fault_is_found_by_the_sequences_that_are_about_it() {
    for Row { fault, found_by, may_be_found_by } in &ROWS {
        let verdicts = verdicts(demo_fault(*fault), sequences());
        let failing = verdicts.iter().filter(|verdict| verdict.outcome != Outcome::Pass);
        let failing: BTreeSet<&str> = failing
            .map(|verdict| {
                assert_eq!(verdict.outcome, Outcome::Fail, "{fault}: {}", failure(verdict));
                verdict.case.as_str()
            })
            .collect();
        let missed: Vec<_> = found_by.iter().filter(|name| !failing.contains(*name)).collect();
        assert!(missed.is_empty(), "{fault} is not found by {missed:?}, but by {failing:#?}");
        let is_about =
            |name: &str| may_be_found_by.iter().any(|it| format!("{name}/").starts_with(&format!("{it}/")));
        let others: Vec<_> = failing.iter().filter(|name| !is_about(name)).collect();
        assert!(others.is_empty(), "{fault} is found by {others:?}");
    }
    let all: Vec<_> =
        DemoFault::value_variants().iter().filter(|fault| fault.of_engine().is_some()).collect();
    assert_eq!(all, ROWS.iter().map(|row| &row.fault).collect::<Vec<_>>());
}

/// A failure says which buffer was wrong at which step and in which round, and how to see it again.
#[test]
fn a_failure_names_step_round_and_buffer() {
    let folder = cases().join("sequences");
    let out = results();
    let name = "demo-fault/engine/alike/thousand/absmax";
    let run = plumbline(&[
        "conform",
        "--demo-fault=nondeterministic_repeat",
        "--cases",
        folder.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--exact",
        name,
    ]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let step = "steps[2].repeat.steps[1] in round 613 of 1000";
    for part in [
        "operation  {absmax: {from: f32}}",
        "sequences/alike.yaml:",
        &format!("buffer     y, checked at {step}"),
        "mismatches 1 of 1: 1 x",
        "conform --demo-fault=nondeterministic_repeat",
        &format!("--exact {name}"),
    ] {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
    let records = fs::read_to_string(out.join("results.jsonl")).unwrap();
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let record = &records[1];
    assert_eq!(record["outputs"][0]["check"]["buffer"], "y");
    assert_eq!(record["outputs"][0]["check"]["step"], step);
    assert_eq!((&record["op"], &record["ops"][0]["absmax"]["from"]), (&Value::Null, &"f32".into()));
    // A worker's verdict is read again.
    let verdict: Verdict = serde_json::from_value(record.clone()).unwrap();
    assert_eq!((verdict.kind(), verdict.outcome), ("sequence", Outcome::Fail));
}

/// In a process of its own a sequence is a trial like any other.
#[test]
fn a_worker_runs_sequences() {
    let folder = cases().join("sequences/streams.yaml");
    let out = results();
    let run = plumbline(&[
        "conform",
        "--demo-fault=missing_stream_order",
        "--cases",
        folder.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--isolate",
        "always",
        "streams/order/produced_on_1",
    ]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("y, checked at steps[5]"), "{}", run.stdout);
    assert!(run.stdout.contains("0 passed, 2 failed"), "{}", run.stdout);
}
