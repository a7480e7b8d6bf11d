//! Wrong readings and products of GGML blocks are found by generated inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use clap::ValueEnum;
use plumbline_conformance::adapter::DemoFault::{self, *};
use plumbline_conformance::adapter::demo_fault;
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::Outcome;
use std::collections::BTreeSet;
use std::path::Path;

/// A fault, cases that find it, and what stands in the name of every other case that does.
struct Row {
    fault: DemoFault,
    found_by: &'static [&'static str],
    about: &'static [&'static str],
}

const ROWS: &[Row] = &[];

/// The cases of the quick profile that hold no result.
fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let files = ["dequantize.yaml", "gemv.yaml", "batched_gemv.yaml"];
    let cases = files.into_iter().flat_map(|file| load(&folder.join(file)).unwrap());
    cases.filter(|case| case.oracle().is_some() || case.spec.refused.is_some()).collect()
}

/// Names of the cases that fail on a backend.
fn failing(fault: DemoFault, cases: &[Case]) -> BTreeSet<String> {
    let subject = Subject::shared(demo_fault(fault));
    let registry = Registry::of(cases.to_vec(), vec![subject], Vec::new(), &Selection::default()).unwrap();
    let verdicts = registry.trials.iter().map(|trial| trial.run());
    let failing = verdicts.filter(|verdict| verdict.outcome != Outcome::Pass);
    failing
        .map(|verdict| {
            assert_eq!(verdict.outcome, Outcome::Fail, "{fault} of {}: {:?}", verdict.case, verdict.message);
            verdict.case
        })
        .collect()
}

#[test]
fn each_fault_is_found_by_cases_that_are_about_it() {
    let cases = cases();
    for &fault in DemoFault::value_variants().iter().filter(|fault| fault.is_of_blocks()) {
        println!("{fault}: {:#?}", failing(fault, &cases));
    }
}
