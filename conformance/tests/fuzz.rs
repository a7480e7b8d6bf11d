//! Every faulty backend is found by fuzzing, shrunk, written as a case and replayed;
//! right ones are left in peace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "faults/catalogue.rs"]
mod catalogue;
mod common;

use catalogue::{Fault, catalogue};
use common::{Run, command, plumbline, run};
use plumbline_conformance::adapter::DemoFault::{self, *};
use plumbline_conformance::adapter::{Closure, demo_fault};
use plumbline_conformance::case::NanJudge;
use plumbline_conformance::fuzz::{Finding, Targets, record};
use plumbline_conformance::registry::{Registry, Trial};
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::source::Case;
use plumbline_conformance::verdict::Outcome;
use plumbline_reference::Cpu;
use plumbline_reference::format::{E4M3FN, F32, Policy};
use plumbline_reference::ops::{Cast, Decode, Op};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Samples in which a fault must show.
const ENOUGH: u64 = 20_000;

fn subject(fault: Fault) -> Subject {
    Subject::shared(fault.backend.into())
}

fn targets(subject: &Subject) -> Targets {
    Targets::new(std::slice::from_ref(subject), |_, _| Vec::new())
}

fn find(subject: &Subject, seed: u64) -> Option<Finding> {
    let Targets { targets, .. } = targets(subject);
    assert_eq!(targets.len(), 1, "each fault is of one operation");
    targets[0].search(seed).run(ENOUGH, Trial::run)
}

/// How the trials of a case on a backend end.
fn outcomes(case: &Case, subject: Subject) -> Vec<Outcome> {
    let selection = Selection::default();
    let registry = Registry::of(vec![case.clone()], vec![subject], Vec::new(), &selection).unwrap();
    registry.trials.iter().map(|trial| trial.run().outcome).collect()
}

/// Elements that a fault needs to show itself.
fn fewest_elements(fault: &str) -> usize {
    match fault {
        // The wrong lane is the eighth.
        "one-lane-off-by-one" => 8,
        // A number, then the NaN that gets lost.
        "max-loses-nan-after-a-number" => 2,
        _ => 1,
    }
}

#[test]
fn every_fault_is_found_shrunk_written_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut missed, mut count) = (Vec::new(), 0);
    for fault in catalogue() {
        let id = fault.id;
        let subject = subject(fault);
        let Some(finding) = find(&subject, 0) else {
            missed.push(id);
            continue;
        };
        assert_eq!(finding.sample.codes[0].len(), fewest_elements(id), "{id}: {:?}", finding.sample);

        let target = &targets(&subject).targets[0];
        let regression = record(folder.path(), target, &finding).unwrap();
        count += usize::from(!regression.known);
        assert_eq!(outcomes(&regression.case, subject.clone()), [Outcome::Fail], "{id}");
        let reference = Subject { nan: NanJudge::Bits, ..Subject::foreign(Cpu) };
        assert!(
            outcomes(&regression.case, reference).iter().all(|&outcome| outcome == Outcome::Pass),
            "{id}"
        );

        let again = record(folder.path(), target, &finding).unwrap();
        assert!(again.known && again.case.name == regression.case.name, "{id}: written twice");
    }
    assert!(missed.is_empty(), "not found: {missed:?}");

    let check = run(command().arg("check").arg(folder.path()));
    assert_eq!(check.code, 0, "{}", check.stderr);
    assert!(check.stdout.contains(&format!("{count} cases are valid")), "{}", check.stdout);
}

/// Faults of layers, and an operation in which each shows.
const OF_LAYERS: [(DemoFault, &str); 27] = [
    (TanhOverflows, "math"),
    (ExpFlushed, "math"),
    (AnglesOfF32, "math"),
    (ReluSwallowsNan, "relu"),
    (MinusInfinityIsNan, "silu"),
    (GeluTailLost, "gelu_tanh"),
    (GeluTailLost, "gelu_erf"),
    (TanhOverflows, "gelu_tanh"),
    (GeluVariantSwapped, "gelu_tanh"),
    (GateSwapped, "swiglu"),
    (WithoutMaximum, "softmax"),
    (MaximumFromZero, "softmax"),
    (PerWarp, "softmax"),
    (RowRestDropped, "softmax"),
    (LeadingTileIsNan, "softmax"),
    (MaskOffByOne, "softmax"),
    (FullyMaskedIsNan, "softmax"),
    (LogOfQuotient, "log_softmax"),
    (AlignmentSwapped, "attention"),
    (HeadScaleDropped, "attention"),
    (LastSlotDropped, "attention"),
    (GroupsInterleaved, "attention"),
    (UnusedSlotsRead, "attention"),
    (ProductsInF16, "attention"),
    (RescaleDropped, "attention"),
    (WeightDropped, "layer_norm"),
    (RowLate, "kv_scatter"),
];

#[test]
fn faults_of_layers_are_found() {
    for (fault, operation) in OF_LAYERS {
        let mut all = targets(&Subject::shared(demo_fault(fault)));
        all.filter(&format!("/{operation}"), None);
        let target = all.targets.iter().find(|target| target.operation() == operation).unwrap();
        assert!(target.search(0).run(2000, Trial::run).is_some(), "{fault} in {operation}");
    }
}

#[test]
fn a_panic_is_a_finding() {
    let backend = Closure::elementwise("panics", Cast::new(F32, E4M3FN), |x| {
        assert!(!F32.decode(x).is_nan(), "no NaN here");
        E4M3FN.encode(F32.decode(x), &Policy::default(), 0)
    });
    let subject = Subject::foreign(backend);
    let finding = find(&subject, 0).unwrap();
    assert!(
        finding.sample.codes[0].len() == 1 && F32.decode(finding.sample.codes[0][0]).is_nan(),
        "{finding:?}"
    );
    let folder = tempfile::tempdir().unwrap();
    let regression = record(folder.path(), &targets(&subject).targets[0], &finding).unwrap();
    assert!(regression.case.spec.about.as_ref().unwrap().contains("panicked: no NaN here"));
    assert_eq!(outcomes(&regression.case, subject), [Outcome::Crashed]);
}

#[test]
fn a_seed_stands_for_a_finding() {
    let subject = subject(catalogue().into_iter().find(|fault| fault.id == "e5m2-ties-away").unwrap());
    let (first, again, other) = (find(&subject, 1), find(&subject, 1), find(&subject, 2));
    assert!(first.is_some() && first == again);
    assert_ne!(first.unwrap().original, other.unwrap().original);
}

#[test]
fn backends_get_the_same_samples_of_an_operation() {
    // Whatever the backend gives is wrong.
    let wrong = |name: &str, op: Op| {
        let subject = Subject::foreign(Closure::new(name, op, |_| Ok(Vec::new())));
        let target = targets(&subject).targets.swap_remove(0);
        target.search(3).run(1, Trial::run).unwrap().original
    };
    let cast = || Op::from(Cast::new(F32, E4M3FN));
    assert_eq!(wrong("one", cast()), wrong("other", cast()));
    let decode = Decode { from: E4M3FN, to: F32 }.into();
    assert_ne!(wrong("one", cast()).shape, wrong("one", decode).shape);
}

/// A folder with the project's fixtures, without regressions.
fn fixtures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    for sub in ["cases", "regressions"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
    }
    // Recordings lie beside the cases that name them.
    let mut folders = ["cases", "cases/sequences", "ggml"].map(str::to_owned).to_vec();
    for entry in fs::read_dir(own.join("hardware")).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        folders.push(format!("hardware/{}", entry.file_name().to_string_lossy()));
    }
    for sub in folders {
        fs::create_dir_all(folder.path().join(&sub)).unwrap();
        let entries = fs::read_dir(own.join(&sub)).unwrap().map(Result::unwrap);
        for entry in entries.filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), folder.path().join(&sub).join(entry.file_name())).unwrap();
        }
    }
    for file in ["waivers.yaml", "coverage.yaml"] {
        fs::copy(own.join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn with_fixtures(fixtures: &Path, args: &[&str]) -> Run {
    run(command().args(args).env("PLUMBLINE_FIXTURES", fixtures))
}

/// The command that a report gives.
fn replay(report: &str) -> &str {
    report.lines().find_map(|line| line.strip_prefix("replay ")).expect("a replay line").trim()
}

#[test]
fn a_finding_is_replayed_by_its_command_and_by_every_later_run() {
    let fixtures = fixtures();
    let fuzz = ["fuzz", "--demo-fault", "--iterations", "5000"];
    let found = with_fixtures(fixtures.path(), &fuzz);
    assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
    let file = fixtures.path().join("regressions/cast.yaml");
    let written = fs::read_to_string(&file).unwrap();

    let command = replay(&found.stdout);
    let again = run(std::process::Command::new("sh")
        .args(["-c", command])
        .env("PLUMBLINE_FIXTURES", fixtures.path())
        .env("PLUMBLINE_OUT", common::results()));
    assert_eq!(again.code, 1, "{command}: {}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("a number became NaN"), "{}", again.stdout);

    assert_eq!(with_fixtures(fixtures.path(), &["conform", "--demo-fault", "regressions/"]).code, 1);
    let right = with_fixtures(fixtures.path(), &["conform", "regressions/"]);
    assert_eq!(right.code, 0, "{}{}", right.stdout, right.stderr);
    assert!(right.stdout.contains("cpu/definition"), "{}", right.stdout);

    let known = with_fixtures(fixtures.path(), &fuzz);
    assert!(known.code == 1 && known.stdout.contains("known "), "{}", known.stdout);
    assert_eq!(fs::read_to_string(&file).unwrap(), written, "the same case again");
}

#[test]
fn another_folder_is_replayed_as_cases_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new/folder");
    let args = ["fuzz", "--demo-fault", "--iterations", "5000", "--seed", "7", "--regressions"];
    let found = run(command().args(args).arg(&folder));
    assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
    let again = run(std::process::Command::new("sh")
        .args(["-c", replay(&found.stdout)])
        .env("PLUMBLINE_OUT", common::results()));
    assert_eq!(again.code, 1, "{}{}", again.stdout, again.stderr);
}

/// `fuzz` of casts on a faulty backend, whose findings are written to a folder.
fn fuzz_casts(fault: &str, args: &[&str], folder: &Path) -> Run {
    let fault = format!("--demo-fault={fault}");
    let usual = ["fuzz", &fault, "--iterations", "300", "--timeout", "1", "faulty/cast", "--regressions"];
    run(command().args(usual).arg(folder).args(args))
}

#[test]
fn what_takes_a_process_down_is_found_shrunk_written_and_replayed() {
    for (fault, what) in [
        ("abort", "crashed    the process was ended by signal: 6 (SIGABRT)"),
        ("exit", "crashed    the process ended with exit code 0"),
        ("hang", "timed out  the process gave no verdict for 1 s and was killed"),
        ("lost", "crashed    launch: a deliberate loss of the device"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let found = fuzz_casts(fault, &[], folder.path());
        assert_eq!(found.code, 1, "{fault}: {}{}", found.stdout, found.stderr);
        assert!(found.stdout.contains(what), "{fault}: {}", found.stdout);
        // It goes wrong with four elements, whatever they are.
        let written = fs::read_to_string(folder.path().join("cast.yaml")).unwrap();
        assert!(written.contains("shape: [4], bits: [\"0x00000000\","), "{fault}: {written}");
        assert!(written.contains("op: {cast: {from: "), "{fault}: {written}");
        let again = run(std::process::Command::new("sh")
            .args(["-c", replay(&found.stdout)])
            .env("PLUMBLINE_OUT", common::results()));
        assert_eq!(again.code, 1, "{fault}: {}{}", again.stdout, again.stderr);
        assert!(again.stdout.contains(what), "{fault}: {}", again.stdout);
    }
}

#[test]
fn a_finding_is_the_same_in_and_out_of_process() {
    let found = |isolate| {
        let folder = tempfile::tempdir().unwrap();
        let found = fuzz_casts("unwritten", &["--isolate", isolate], folder.path());
        assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
        let sample = found.stdout.lines().find(|line| line.starts_with("found ")).map(str::to_owned);
        (sample.unwrap(), fs::read_to_string(folder.path().join("cast.yaml")).unwrap())
    };
    assert_eq!(found("never"), found("always"));
}

#[test]
fn right_backends_raise_no_alarm_under_fifty_seeds() {
    let fixtures = fixtures();
    let record = fixtures.path().join("alarms.jsonl");
    let args = ["fuzz", "--backend", "cpu", "--seeds", "0..50", "--iterations", "1", "--record"];
    let run = run(command().args(args).arg(&record).env("PLUMBLINE_FIXTURES", fixtures.path()));
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let lines: Vec<serde_json::Value> =
        fs::read_to_string(record).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, seeds @ .., total] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&first["record"], &total["record"]), (&"run".into(), &"total".into()));
    let numbers: BTreeSet<_> = seeds.iter().map(|line| line["seed"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..50).collect());
    let samples: u64 = seeds.iter().map(|line| line["samples"].as_u64().unwrap()).sum();
    assert_eq!(
        (&total["samples"], &total["alarms"], &total["seeds"]),
        (&samples.into(), &0.into(), &50.into())
    );
    for name in Op::NAMES {
        assert!(total["operations"][name].as_u64() >= Some(50), "{name}: {total}");
    }
    for target in
        ["cpu/definition/softmax", "cpu/avx2/cast", "h200/recorded/cast", "reordered/some_order/gemv"]
    {
        let is_there = first["targets"].as_array().unwrap().contains(&target.into());
        assert!(is_there || !cfg!(target_arch = "x86_64"), "{target}: {first}");
    }
}

#[test]
fn alarms_are_recorded_with_their_seed() {
    let fixtures = fixtures();
    let record = fixtures.path().join("alarms.jsonl");
    let seeds =
        ["fuzz", "--demo-fault", "--seeds", "3..7", "--iterations", "2000", "--partition", "2/2", "--record"];
    let found = run(command().args(seeds).arg(&record).env("PLUMBLINE_FIXTURES", fixtures.path()));
    assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
    let record = fs::read_to_string(record).unwrap();
    let lines: Vec<serde_json::Value> =
        record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let alarms = lines.iter().filter_map(|line| line["alarms"].as_array()).flatten();
    let alarms: Vec<_> = alarms.collect();
    assert!(!alarms.is_empty() && lines[lines.len() - 1]["alarms"] == alarms.len(), "{record}");
    for command in ["replay", "search"] {
        let again = run(std::process::Command::new("sh")
            .args(["-c", alarms[0][command].as_str().unwrap()])
            .env("PLUMBLINE_FIXTURES", fixtures.path())
            .env("PLUMBLINE_OUT", common::results()));
        assert_eq!(again.code, 1, "{command}: {}{}", again.stdout, again.stderr);
    }
}

#[test]
fn right_backends_give_no_findings() {
    let fixtures = fixtures();
    let none = with_fixtures(fixtures.path(), &["fuzz", "--iterations", "20"]);
    assert_eq!(none.code, 0, "{}{}", none.stdout, none.stderr);
    for part in
        ["cpu/parallel/absmax", "h200/recorded/cast", "half/software/cast: 2 operations with a waiver"]
    {
        assert!(none.stdout.contains(part), "no `{part}` in {}", none.stdout);
    }
    assert!(!none.stdout.contains("cpu/definition/cast"), "{}", none.stdout);
    assert_eq!(fs::read_dir(fixtures.path().join("regressions")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_done_is_exit_code_2() {
    let fixtures = fixtures();
    let nothing = plumbline(&["fuzz", "no/such/target"]);
    assert_eq!(nothing.code, 2);
    assert!(nothing.stderr.contains("fuzz --list"), "{}", nothing.stderr);
    let waived = with_fixtures(fixtures.path(), &["fuzz", "float8/crate/classify"]);
    assert_eq!(waived.code, 2);
    assert!(waived.stderr.contains("waiver"), "{}", waived.stderr);
    for args in [["--time", "0s"], ["--time", "soon"], ["--iterations", "0"], ["--iterations", "-1"]] {
        assert_eq!(with_fixtures(fixtures.path(), &[&["fuzz"], &args[..]].concat()).code, 2, "{args:?}");
    }

    // A file in a style that no case can be added to stays as it is.
    let file = fixtures.path().join("regressions/cast.yaml");
    let flow =
        "cases: [{name: a, op: {cast: {from: f32, to: e5m2}}, inputs: [{dtype: f32, generate: nans}]}]\n";
    fs::write(&file, flow).unwrap();
    let lost = with_fixtures(fixtures.path(), &["fuzz", "--demo-fault", "--iterations", "5000"]);
    assert_eq!(lost.code, 2, "{}", lost.stdout);
    assert!(lost.stderr.contains("cannot be added"), "{}", lost.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), flow);
    assert_eq!(fs::read_dir(fixtures.path().join("regressions")).unwrap().count(), 1);
}

#[test]
fn a_time_ends_the_search() {
    let fixtures = fixtures();
    let timed = with_fixtures(fixtures.path(), &["fuzz", "--time", "1s", "cpu/parallel/decode"]);
    assert_eq!(timed.code, 0, "{}{}", timed.stdout, timed.stderr);
    assert!(timed.stdout.contains("samples in 1."), "{}", timed.stdout);
}
