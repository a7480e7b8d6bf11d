//! Every reported fault is found by generated inputs, not only by the literal case of
//! its report. (The reference passes the same cases: that is `conform` itself.)

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "faults/catalogue.rs"]
mod catalogue;

use catalogue::{Fault, catalogue};
use plumbline_conformance::case::NanJudge;
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::Outcome;
use std::path::Path;

fn cases() -> Vec<Case> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")).unwrap()
}

fn selection() -> Selection {
    Selection::default()
}

/// Whether some trial of the cases that `keep` picks fails on a fault's backend.
fn is_found(fault: Fault, cases: &[Case], keep: impl Fn(&Case) -> bool) -> bool {
    let cases: Vec<_> = cases.iter().filter(|case| keep(case)).cloned().collect();
    let subject = Subject { nan: NanJudge::Bits, ..Subject::shared(fault.backend.into()) };
    let registry = Registry::of(cases, vec![subject], Vec::new(), &selection())
        .unwrap_or_else(|error| panic!("{}: {error}", fault.id));
    registry.trials.iter().any(|trial| trial.run().outcome == Outcome::Fail)
}

#[test]
fn generated_inputs_find_every_reported_fault() {
    let cases = cases();
    let found = |fault| is_found(fault, &cases, |case| case.oracle().is_some());
    let missed: Vec<_> =
        catalogue().into_iter().map(|fault| (fault.id, found(fault))).filter(|(_, found)| !found).collect();
    assert!(missed.is_empty(), "not found by generated inputs: {missed:?}");
}

#[test]
fn literal_cases_find_every_reported_fault() {
    let cases = cases();
    let found = |fault| is_found(fault, &cases, |case| case.oracle().is_none());
    let reported = catalogue().into_iter().filter(|fault| fault.report.is_some());
    let missed: Vec<_> = reported.map(|fault| (fault.id, found(fault))).filter(|(_, found)| !found).collect();
    assert!(missed.is_empty(), "not found by literal cases: {missed:?}");
}
