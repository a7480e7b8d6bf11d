//! Every reported fault is found by generated inputs, not only by the literal case of
//! its report; and the backend without the fault passes the same cases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "faults/catalogue.rs"]
mod catalogue;

use catalogue::{Fault, catalogue};
use plumbline_conformance::case::{NanJudge, Profile};
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{BackendChoice, Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::Outcome;
use std::collections::BTreeSet;
use std::path::Path;

fn cases() -> Vec<Case> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")).unwrap()
}

fn selection() -> Selection {
    Selection {
        backend: BackendChoice::Cpu,
        profile: Profile::Quick,
        cases: None,
        seed: 0,
        partition: None,
        require_gpu: false,
        demo_fault: false,
    }
}

/// Names of the failed trials of a fault's backend on the cases that `keep` picks.
fn failures(fault: Fault, keep: impl Fn(&Case) -> bool) -> BTreeSet<String> {
    let cases: Vec<_> = cases().into_iter().filter(keep).collect();
    let subject = Subject { backend: fault.backend.into(), nan: NanJudge::Bits, oracle: None };
    let registry = Registry::of(cases, vec![subject], Vec::new(), &selection())
        .unwrap_or_else(|error| panic!("{}: {error}", fault.id));
    let failed =
        registry.trials.iter().map(|trial| trial.run()).filter(|verdict| verdict.outcome == Outcome::Fail);
    failed.map(|verdict| verdict.trial).collect()
}

#[test]
fn generated_inputs_find_every_reported_fault() {
    let missed: Vec<_> = catalogue()
        .into_iter()
        .map(|fault| (fault.id, failures(fault, |case| case.spec.expect.is_none())))
        .filter(|(_, failed)| failed.is_empty())
        .map(|(id, _)| id)
        .collect();
    assert!(missed.is_empty(), "not found by generated inputs: {missed:?}");
}

#[test]
fn literal_cases_find_every_reported_fault() {
    let missed: Vec<_> = catalogue()
        .into_iter()
        .filter(|fault| fault.report.is_some())
        .map(|fault| (fault.id, failures(fault, |case| case.spec.expect.is_some())))
        .filter(|(_, failed)| failed.is_empty())
        .map(|(id, _)| id)
        .collect();
    assert!(missed.is_empty(), "not found by literal cases: {missed:?}");
}
