//! What cases find of deliberate faults.

use plumbline_conformance::adapter::{DemoFault, demo_fault};
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::Outcome;
use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

/// A fault, cases that find it, and how the names of all cases that may begin, or a part of them.
pub struct Row {
    pub fault: DemoFault,
    pub found_by: &'static [&'static str],
    pub may_be_found_by: &'static [&'static str],
}

/// The cases of these files.
pub fn cases_of(files: &[&str]) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    files.iter().flat_map(|file| load(&folder.join(file)).unwrap()).collect()
}

/// Names of the cases of the quick profile that fail on a backend.
pub fn failing(fault: DemoFault, cases: &[Case]) -> BTreeSet<String> {
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

/// Whether a name begins with these parts, or has this one part in it.
fn is_named(name: &str, parts: &str) -> bool {
    name.split('/').any(|part| part == parts) || format!("{name}/").starts_with(&format!("{parts}/"))
}

/// Requires that each fault is found by the cases that are about it, and by no others of the same folders:
/// of other operations it changes nothing.
pub fn check(rows: &[Row], cases: &[Case]) {
    let of_row = |Row { fault, found_by, may_be_found_by }: &Row| {
        let folder = |name: &str| name.split('/').next().map(str::to_owned);
        let folders: BTreeSet<_> = found_by.iter().map(|name| folder(name)).collect();
        let cases: Vec<_> =
            cases.iter().filter(|case| folders.contains(&folder(&case.name))).cloned().collect();
        let failing = failing(*fault, &cases);
        let missed: Vec<_> = found_by.iter().filter(|&&name| !failing.contains(name)).collect();
        assert!(missed.is_empty(), "{fault} is not found by {missed:?}, but by {failing:#?}");
        let may = |name: &str| may_be_found_by.iter().any(|parts| is_named(name, parts));
        let others: Vec<_> = failing.iter().filter(|name| !may(name)).collect();
        assert!(others.is_empty(), "{fault} is found by {others:?}");
    };
    // Threads of their own: those of rayon would take up another row within a case's lock.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for rows in rows.chunks(rows.len().div_ceil(threads).max(1)) {
            scope.spawn(move || rows.iter().for_each(of_row));
        }
    });
}
