use super::equal::EQUALS;
use super::report::{Report, Score};
use super::run::{Fate, Run, run};
use super::{How, InputFault, Meaning, Mutant, OutputFault, StepFault, all};
use crate::adapter::DemoFault;
use crate::case::Profile;
use crate::load::load_tests;
use crate::setup::fixtures;
use crate::suite::Test;
use crate::verdict::SEQUENCE;
use clap::ValueEnum;
use plumbline_reference::format::{E4M3FN, F32, Rounding};
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{Tensor, TensorType};
use std::collections::{BTreeMap, BTreeSet};

fn cases(file: &str) -> Vec<Test> {
    load_tests(&fixtures().unwrap().join("cases").join(file)).unwrap()
}

fn met(mutants: &[Mutant], file: &str) -> Run {
    run(mutants, &cases(file), Profile::Quick, 0).unwrap()
}

fn mutant(operation: &'static str, how: How) -> Mutant {
    Mutant { operation, fault: "test".to_owned(), how }
}

#[test]
fn names_are_unique_and_of_every_operation_there_are_many() {
    let mutants = all();
    let names: BTreeSet<_> = mutants.iter().map(Mutant::name).collect();
    assert_eq!(names.len(), mutants.len());
    let mut count: BTreeMap<_, usize> = BTreeMap::new();
    mutants.iter().for_each(|mutant| *count.entry(mutant.operation).or_default() += 1);
    let few: Vec<_> =
        Op::NAMES.iter().chain(&[SEQUENCE]).filter(|name| count.get(*name).copied() < Some(10)).collect();
    assert!(few.is_empty() && mutants.len() >= 150, "{few:?}: {}", mutants.len());
}

#[test]
fn every_deliberate_fault_is_a_mutant() {
    let there: BTreeSet<_> = all()
        .iter()
        .filter_map(|mutant| match mutant.how {
            How::Demo(fault) => Some(fault.to_string()),
            _ => None,
        })
        .collect();
    // Those that end or block their process are found by workers, whose own tests show it.
    let faults = DemoFault::value_variants().iter().filter(|fault| !fault.ends_process());
    assert_eq!(there, faults.map(DemoFault::to_string).collect());
}

#[test]
fn what_changes_nothing_is_proven_and_is_no_mutant() {
    let names: BTreeSet<_> = all().iter().map(Mutant::name).collect();
    for equal in EQUALS {
        assert!(!names.contains(equal.name), "{}", equal.name);
        assert!(equal.prove().unwrap() > 50, "{}", equal.name);
    }
}

#[test]
fn the_reference_survives() {
    for file in ["absmax.yaml", "sequences/kept.yaml"] {
        let operation = if file == "absmax.yaml" { "absmax" } else { SEQUENCE };
        let run = met(&[mutant(operation, How::Right)], file);
        let [judged] = &*run.judged else { panic!("{:?}", run.judged) };
        assert_eq!((judged.fate, &judged.case), (Fate::Survived, &None), "{:?}", judged.why);
        assert!(judged.cases > 0);
    }
}

#[test]
fn every_mutant_of_some_operations_is_killed() {
    for operation in ["classify", "decode", "scaled_decode"] {
        let of = all().into_iter().filter(|mutant| mutant.operation == operation).collect::<Vec<_>>();
        let run = met(&of, &format!("{operation}.yaml"));
        let living: Vec<_> = run.judged.iter().filter(|judged| judged.fate != Fate::Killed).collect();
        assert!(living.is_empty() && run.judged.len() == of.len(), "{living:?}");
    }
}

#[test]
fn a_panic_is_a_verdict_on_its_mutant_alone() {
    let panics = mutant("cast", How::Demo(DemoFault::Panic));
    let other = Mutant { fault: "other".to_owned(), ..mutant("cast", How::Outputs(OutputFault::Zero)) };
    let run = met(&[panics, other], "cast.yaml");
    assert!(run.judged.iter().all(|judged| judged.fate == Fate::Killed), "{:?}", run.judged);
    assert!(run.judged[0].why.as_ref().unwrap().contains("deliberate panic"), "{:?}", run.judged);
}

#[test]
fn runs_are_alike() {
    let mutants: Vec<_> = all().into_iter().filter(|mutant| mutant.operation == "absmax").collect();
    let told = || serde_json::to_string(&met(&mutants, "absmax.yaml").judged).unwrap();
    assert_eq!(told(), told());
}

#[test]
fn a_field_is_changed_where_it_has_the_value() {
    let op = Op::from(Cast::new(F32, E4M3FN));
    let toward_zero = Op::from(Cast { rounding: Rounding::TowardZero, ..Cast::new(F32, E4M3FN) });
    assert_eq!(Meaning::Field("rounding", "toward_zero").of(&op), Some(toward_zero.clone()));
    assert_eq!(Meaning::For("rounding", "up", "toward_zero").of(&op), None);
    assert_eq!(Meaning::For("rounding", "nearest_even", "toward_zero").of(&op), Some(toward_zero.clone()));
    assert_eq!(
        Meaning::Swapped("rounding", "nearest_even", "toward_zero").of(&toward_zero),
        Some(op.clone())
    );
    assert_eq!(Meaning::Field("rounding", "sideways").of(&op), None);
    // The policy is no parameter of the other operation.
    assert_eq!(Meaning::As("decode").of(&op).map(|op| op.name()), Some("decode"));
    assert_eq!(Meaning::As("nothing").of(&op), None);
}

#[test]
fn inputs_and_outputs_change_as_said() {
    let tensor =
        |shape: &[usize], codes: &[u64]| Tensor::from_codes(TensorType::new(E4M3FN, shape), codes).unwrap();
    let x = tensor(&[2, 3], &[1, 2, 3, 0x80, 0x7f, 6]);
    let seen = |fault: InputFault| {
        fault.of(std::slice::from_ref(&x)).unwrap().unwrap()[0].codes().collect::<Vec<_>>()
    };
    assert_eq!(seen(InputFault::FirstRow(0)), [1, 2, 3, 1, 2, 3]);
    assert_eq!(seen(InputFault::Transposed(0)), [1, 3, 0x7f, 2, 0x80, 6]);
    assert_eq!(seen(InputFault::RowTail(0, 2)), [1, 2, 0, 0x80, 0x7f, 0]);
    assert_eq!(seen(InputFault::NanIsZero(0)), [1, 2, 3, 0x80, 0, 6]);
    assert_eq!(seen(InputFault::Flushed(0)), [0, 0, 0, 0x80, 0x7f, 0]);
    assert_eq!(InputFault::Zero(1).of(std::slice::from_ref(&x)), Ok(None));
    let given = |fault: OutputFault| {
        fault.of(std::slice::from_ref(&x)).unwrap().unwrap()[0].codes().collect::<Vec<_>>()
    };
    assert_eq!(given(OutputFault::Lane { of: 4, lane: 1 }), [1, 3, 3, 0x80, 0x7f, 7]);
    assert_eq!(given(OutputFault::Tail(4)), [1, 2, 3, 0x80, 0, 0]);
    assert_eq!(given(OutputFault::Transposed), [1, 0x80, 2, 0x7f, 3, 6]);
    assert_eq!(given(OutputFault::RowsSwapped), [0x80, 0x7f, 6, 1, 2, 3]);
    assert_eq!(given(OutputFault::NanIsLarge), [1, 2, 3, 0x80, 0x7e, 6]);
    assert_eq!(given(OutputFault::ZeroWithoutSign), [1, 2, 3, 0, 0x7f, 6]);
    assert_eq!(OutputFault::StaleBatch.of(std::slice::from_ref(&x)), Ok(None));
}

#[test]
fn the_score_is_what_a_profile_asks_for() {
    let score = |killed, total| Score { killed, total };
    assert!(score(95, 100).suffices(Profile::Quick) && !score(94, 100).suffices(Profile::Quick));
    assert!(score(100, 100).suffices(Profile::Full) && !score(999, 1000).suffices(Profile::Full));
    assert!(!score(0, 0).suffices(Profile::Quick));
    let run = met(&[mutant("classify", How::Right)], "classify.yaml");
    let report = Report { run: &run, profile: Profile::Quick, proven: Vec::new() };
    assert_eq!((report.score(), report.exit_code()), (score(0, 1), 1));
    assert!(report.to_string().contains("survivors:\n  classify/test"), "{report}");
    let run = met(&[mutant("classify", How::Steps(StepFault::PastEnd))], "classify.yaml");
    let report = Report { run: &run, profile: Profile::Full, proven: Vec::new() };
    assert_eq!((report.score(), report.exit_code()), (score(1, 1), 0));
}
