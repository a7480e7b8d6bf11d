//! A waiver holds for the fault that it names, where it names it, and no longer than that is there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_conformance::adapter::cast_465_to_nan;
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, SetupError, Subject, fixtures};
use plumbline_conformance::verdict::Outcome;
use plumbline_conformance::waiver::{Waiver, WaiverError};
use plumbline_reference::Backend;
use serde_json::json;

/// The trial of a case on a backend that casts 465 to NaN, with a waiver of that scope.
fn waived(case: &str, scope: serde_json::Value) -> Result<Outcome, SetupError> {
    let backend = cast_465_to_nan();
    let mut waiver =
        json!({"backend": backend.name(), "case": case, "reason": "r", "link": "l", "expires": "2999-12-31"});
    waiver.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
    let waiver: Waiver = serde_json::from_value(waiver).unwrap();
    let mut cases = load(&fixtures().unwrap().join("cases/cast.yaml")).unwrap();
    cases.retain(|it| it.name == case || it.name == "cast/nan_code");
    let subject = Subject::foreign(backend);
    let registry = Registry::of(cases, vec![subject], vec![waiver], &Selection::default())?;
    Ok(registry.trials.iter().find(|trial| trial.test.name() == case).unwrap().run().outcome)
}

#[test]
fn a_waiver_excuses_where_its_scope_is() {
    for scope in [json!({}), json!({"device": "*"}), json!({"device": "clo*"}), json!({"versions": {}})] {
        assert_eq!(waived("cast/nan_code", scope.clone()).unwrap(), Outcome::Waived, "{scope}");
    }
    for scope in [json!({"device": "NVIDIA H200"}), json!({"versions": {"driver": "580.*"}})] {
        assert_eq!(waived("cast/nan_code", scope.clone()).unwrap(), Outcome::Fail, "{scope}");
    }
}

#[test]
fn a_waiver_of_this_device_that_covers_nothing_is_an_error() {
    for scope in [json!({}), json!({"device": "*"}), json!({"device": "closure"})] {
        let error = waived("cast/no_such_case", scope.clone()).unwrap_err();
        assert!(matches!(error, SetupError::Waiver(WaiverError::Unused { .. })), "{scope}: {error}");
    }
}

#[test]
fn a_waived_trial_that_passes_is_an_error() {
    // The backend does this one right.
    let right = "cast/report/fp8_truncated";
    assert_eq!(waived(right, json!({})).unwrap(), Outcome::Fail);
}
