//! The project's own gate, on trials of one operation.

use super::*;
use crate::coverage::count;
use crate::registry::Registry;
use crate::setup::{BackendChoice, Selection};
use crate::verdict::{Outcome, Verdict};

/// The built-in trials of the CPU, one of each case.
fn registry() -> Registry {
    let selection = Selection { backend: BackendChoice::Cpu, ..Selection::default() };
    let mut registry = Registry::new(&selection).unwrap();
    registry.trials.retain(|trial| trial.name.starts_with("cpu/parallel/"));
    registry
}

#[test]
fn cells_of_a_case_that_is_gone_or_shows_nothing_are_named() {
    let mut registry = registry();
    let gate = registry.gate.take().unwrap();
    registry.trials.retain(|trial| trial.test.kind() == "classify");
    let missing = |verdicts: &[Verdict]| -> Vec<String> {
        let missing = gate.check(&registry.trials, &count(verdicts)).unwrap().missing;
        let of_operation = missing.iter().filter(|missing| missing.operation == "classify");
        of_operation.map(ToString::to_string).collect()
    };
    let all: Vec<_> = registry.trials.iter().map(Trial::run).collect();
    assert_eq!(missing(&all), [""; 0]);

    let is_dropped = |verdict: &&Verdict| verdict.case == "classify/all/e5m2";
    let rest: Vec<_> = all.iter().filter(|verdict| !is_dropped(verdict)).cloned().collect();
    let lines = missing(&rest);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let expected = "cpu classify x: e5m2; x every_code: no trial that passed has it; needs `generate: {all_codes: {}}` (";
    assert!(lines[0].starts_with(expected) && lines[0].contains("coverage.yaml:"), "{lines:?}");

    for outcome in Outcome::ALL {
        let mut verdicts = all.clone();
        verdicts.iter_mut().filter(|it| is_dropped(&&**it)).for_each(|it| it.outcome = outcome);
        assert_eq!(
            missing(&verdicts),
            if outcome == Outcome::Pass { Vec::new() } else { lines.clone() },
            "{outcome}"
        );
    }
}

#[test]
fn of_a_backend_that_need_not_do_all_only_what_it_does_is_demanded() {
    let mut registry = registry();
    let mut gate = registry.gate.take().unwrap();
    registry.trials.retain(|trial| trial.test.kind() == "classify");
    let all: Vec<_> = registry.trials.iter().map(Trial::run).collect();
    let missing = |gate: &Gate, verdicts: &[Verdict]| {
        let report = gate.check(&registry.trials, &count(verdicts)).unwrap();
        report.missing.into_iter().map(|missing| (missing.operation, missing.count)).collect::<Vec<_>>()
    };
    assert!(missing(&gate, &all).len() > 100);
    gate.backends = [("cpu".to_owned(), Demand::WhereSupported)].into();
    assert_eq!(missing(&gate, &all), []);
    // The run has the trial, but it shows nothing.
    let rest: Vec<_> = all.into_iter().filter(|verdict| verdict.case != "classify/all/e5m2").collect();
    assert_eq!(missing(&gate, &rest), [("classify".to_owned(), 1)]);
    // A backend that is not here is asked for nothing.
    gate.backends = [("cuda".to_owned(), Demand::Always)].into();
    assert!(gate.check(&registry.trials, &count(&rest)).is_none());
}
