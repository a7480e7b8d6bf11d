//! Faulty matrix products: which criterion finds which fault.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use clap::ValueEnum;
use plumbline_conformance::adapter::{DemoFault, demo_fault};
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::{Outcome, Verdict};

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

#[test]
fn look() {
    for shape in [[64, 64, 64], [17, 40, 136]] {
        let all = cases(shape);
        for fault in DemoFault::value_variants().iter().filter(|fault| fault.is_of_products()) {
            let subject = Subject::shared(demo_fault(*fault));
            let registry =
                Registry::of(all.clone(), vec![subject], Vec::new(), &Selection::default()).unwrap();
            for trial in &registry.trials {
                let verdict: Verdict = trial.run();
                let output = &verdict.outputs[0];
                println!(
                    "{shape:?} {fault} {} {} {:?} {:?} {:?} {:?} {} ms",
                    verdict.case,
                    verdict.outcome,
                    output.mismatches,
                    output.explanation,
                    output.max_error_over_bound,
                    output.shape,
                    verdict.millis
                );
            }
        }
    }
}

#[test]
#[ignore]
fn time() {
    let all = cases([4096; 3]);
    for case in &all {
        let start = std::time::Instant::now();
        let built = case.build(0).unwrap();
        println!("{} built {:?}", case.name, start.elapsed());
        let start = std::time::Instant::now();
        let backend = demo_fault(DemoFault::ScaleTwice);
        let y = backend.run(&case.spec.op, "faulty", &built.inputs).unwrap();
        println!("{} run {:?}", case.name, start.elapsed());
        let start = std::time::Instant::now();
        let context = plumbline_conformance::judge::Context::new(
            &case.spec.op,
            &built.inputs,
            plumbline_conformance::case::NanJudge::Class,
        );
        let output = plumbline_conformance::judge::judge(context, 0, &built.expected[0], &y[0]);
        println!(
            "{} judge {:?} {} {:?} {:?}",
            case.name,
            start.elapsed(),
            output.ok,
            output.explanation,
            output.shape
        );
    }
    let _ = Outcome::Pass;
}
