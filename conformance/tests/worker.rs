//! A backend that crashes, hangs, ends its process or loses its device costs one trial.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Run, clean, command, plumbline, results, run};
use plumbline_conformance::adapter::{self, DemoFault};
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::verdict::{Outcome, Verdict};
use plumbline_conformance::worker::{Isolate, Isolation, Pool};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Cases of which one, `four`, has the number of elements at which faulty backends go
/// wrong.
const CASES: &str = "\
cases:
  - {name: three, op: {cast: {from: f32, to: e4m3fn}}, inputs: [{dtype: f32, shape: [3], generate: random_finite}]}
  - {name: four, op: {cast: {from: f32, to: e4m3fn}}, inputs: [{dtype: f32, shape: [4], generate: random_finite}]}
  - {name: five, op: {decode: {from: e4m3fn, to: f32}}, inputs: [{dtype: e4m3fn, shape: [5], generate: random_bits}]}
  - {name: six, op: {cast: {from: f32, to: e5m2}}, inputs: [{dtype: f32, shape: [6], generate: random_finite}]}
";
/// More cases, whose verdicts hold errors over bounds, one of them infinite.
const JUDGED: &str = "  - name: wrong
    op: {cast: {from: f32, to: e4m3fn}}
    inputs: [{dtype: f32, shape: [2], bits: ['0x43e80000', '0x3f800000']}]
    expect: [{dtype: e4m3fn, shape: [2], bits: ['0x7d', '0x30'], judge: {allclose: {rtol: 0, atol: 0}}}]
  - name: near
    op: {cast: {from: f32, to: e4m3fn}}
    inputs: [{dtype: f32, shape: [2], bits: ['0x43e80000', '0x3f800001']}]
    judge: {ulp: 0.3333333333333333}
";
const WRONG: &str = "demo-fault/faulty/cases/four";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(cases: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cases.yaml"), cases).unwrap();
        Self(folder)
    }

    fn cases(&self) -> PathBuf {
        self.0.path().join("cases.yaml")
    }

    /// `conform` on the cases, not yet run.
    fn conform(&self, args: &[&str], out: &Path) -> Command {
        let mut command = command();
        command.arg("conform").arg("--cases").arg(self.cases()).args(args).arg("--out").arg(out);
        command
    }
}

/// The verdicts of a complete results file, by name, each with its record as it stands.
fn verdicts(out: &Path) -> Vec<(Verdict, Value)> {
    let records = records(out);
    assert_eq!(
        (&records[0]["record"], &records[records.len() - 1]["record"]),
        (&"run".into(), &"summary".into())
    );
    let mut verdicts: Vec<_> =
        records[1..records.len() - 1].iter().map(|record| (verdict(record), record.clone())).collect();
    verdicts.sort_by(|(a, _), (b, _)| a.trial.cmp(&b.trial));
    verdicts
}

fn records(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("results.jsonl")).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut: {text}");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A record that has the fields of the schema and reads back as what it was.
fn verdict(record: &Value) -> Verdict {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/results.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let schema = &schema["definitions"]["Verdict"];
    let fields: BTreeSet<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    for required in schema["required"].as_array().unwrap() {
        assert!(fields.contains(required.as_str().unwrap()), "no {required} in {record}");
    }
    assert_eq!(record["record"], "verdict");
    let unknown =
        fields.iter().find(|&&field| field != "record" && schema["properties"].get(field).is_none());
    assert_eq!(unknown, None, "{record}");
    let verdict: Verdict = serde_json::from_value(record.clone()).unwrap();
    let mut again = serde_json::to_value(&verdict).unwrap();
    again["record"] = "verdict".into();
    assert_eq!(again, *record);
    verdict
}

/// Runs the cases on a faulty backend: every trial has a verdict and all but one pass.
/// Gives that one.
fn demo(fault: &str, args: &[&str]) -> (Run, Verdict) {
    let (folder, out) = (Folder::new(CASES), results());
    let run = run(&mut folder.conform(&[&[&format!("--demo-fault={fault}")[..]], args].concat(), &out));
    assert_eq!(run.code, 1, "{fault}: {}{}", run.stdout, run.stderr);
    let verdicts = verdicts(&out);
    let names: BTreeSet<_> = verdicts.iter().map(|(verdict, _)| verdict.trial.clone()).collect();
    assert_eq!((verdicts.len(), names.len()), (4, 4), "{fault}: {names:?}");
    let (wrong, right): (Vec<_>, Vec<_>) =
        verdicts.into_iter().map(|(verdict, _)| verdict).partition(|verdict| verdict.trial == WRONG);
    for verdict in right {
        assert_eq!(verdict.outcome, Outcome::Pass, "{fault}: {verdict:?}");
    }
    let wrong = wrong.into_iter().next().unwrap();
    assert!(run.stdout.contains(&wrong.replay), "{}", run.stdout);
    (run, wrong)
}

#[test]
fn a_call_that_goes_wrong_costs_one_trial() {
    for (fault, message) in [
        ("abort", "the process was ended by signal: 6 (SIGABRT)"),
        ("exit", "the process ended with exit code 0"),
        ("lost", "a deliberate loss of the device; the device cannot be used further"),
        ("panic", "panicked: a deliberate panic"),
        ("out_of_memory", "allocating 9223372036854775807 bytes: memory allocation failed"),
    ] {
        // One worker after the other: a lost device would spoil the trials after it.
        let (run, wrong) = demo(fault, &["--jobs", "1"]);
        assert_eq!(wrong.outcome, Outcome::Crashed, "{fault}");
        let said = wrong.message.unwrap();
        assert!(
            said.contains(message) && run.stdout.contains(&format!("crashed    {said}")),
            "{}",
            run.stdout
        );
        assert!(run.stdout.contains("3 passed, 0 failed, 1 crashed"), "{}", run.stdout);
    }
}

#[test]
fn a_broken_memory_contract_is_reported_from_a_worker() {
    for (fault, message) in [
        ("write_past_end", "output 0: byte 4 relative to the first element was written"),
        ("write_input", "input x: element 0 was changed"),
        ("unwritten", "output 0: 1 elements were not written, the first is 3"),
        ("nondeterministic", "the call is not deterministic"),
        ("reads_outside", "they depend on memory outside the inputs"),
    ] {
        let (run, wrong) = demo(fault, &["--isolate", "always"]);
        assert_eq!(wrong.outcome, Outcome::Fail, "{fault}");
        let said: Vec<_> = wrong.memory.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains(message), "{fault}: {said:?}");
        assert!(run.stdout.contains(&said[0]), "{}", run.stdout);
    }
}

#[test]
fn a_hang_is_killed_in_time() {
    let start = Instant::now();
    let (run, wrong) = demo("hang", &["--timeout", "0.8"]);
    let took = start.elapsed();
    assert!((Duration::from_millis(800)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!(wrong.outcome, Outcome::TimedOut);
    assert!(
        run.stdout.contains("timed out  the process gave no verdict for 0.8 s and was killed"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("3 passed, 0 failed, 1 timed out"), "{}", run.stdout);
    assert!(wrong.replay.contains(" --timeout 0.8 "), "{}", wrong.replay);
    assert!((800..20_000).contains(&wrong.millis), "{} ms", wrong.millis);
}

#[test]
fn a_crash_is_replayed_by_the_command_it_prints() {
    let out = results();
    // The built-in cases, which the command finds by itself.
    let failed = run(command().args(["conform", "--demo-fault=abort", "cast/nan_code", "--out"]).arg(&out));
    assert_eq!(failed.code, 1, "{}{}", failed.stdout, failed.stderr);
    let (crashed, _) = &verdicts(&out)[0];
    assert_eq!(crashed.outcome, Outcome::Crashed);
    let again = results();
    let run = run(clean("sh").args(["-c", &crashed.replay]).env("PLUMBLINE_OUT", &again));
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let again = verdicts(&again);
    assert_eq!((again.len(), &again[0].0.message), (1, &crashed.message));
}

/// Verdicts of a run with an option of isolation, without what time it took.
fn isolated(how: &str, run: impl Fn(&Path) -> Command) -> Vec<Value> {
    let out = results();
    let status = common::run(run(&out).args(["--isolate", how]));
    assert!(status.code < 2, "{}", status.stderr);
    let mut records: Vec<_> = verdicts(&out).into_iter().map(|(_, record)| record).collect();
    for record in &mut records {
        record["millis"] = 0.into();
    }
    assert!(!records.is_empty());
    records
}

#[test]
fn verdicts_are_the_same_in_and_out_of_process() {
    let folder = Folder::new(&format!("{CASES}{JUDGED}"));
    let own = |out: &Path| folder.conform(&[], out);
    let never = isolated("never", own);
    assert!(never.iter().any(|record| record["outputs"][0]["max_error_over_bound"].is_null()
        && record["outputs"][0].get("max_error_over_bound").is_some()));
    assert_eq!(isolated("always", own), never);
    for fault in ["cast_465_to_nan", "panic", "out_of_memory", "write_past_end", "unwritten", "reads_outside"]
    {
        let faulty = |out: &Path| folder.conform(&[&format!("--demo-fault={fault}")], out);
        let never = isolated("never", faulty);
        assert_eq!(isolated("always", faulty), never, "{fault}");
    }
}

#[test]
fn a_waiver_holds_out_of_process() {
    let float8 = |out: &Path| {
        let mut command = command();
        command.args(["conform", "float8/crate/format_info", "--out"]).arg(out);
        command
    };
    let never = isolated("never", float8);
    assert!(never.iter().any(|record| record["outcome"] == "waived"), "{never:?}");
    assert_eq!(isolated("always", float8), never);
}

#[test]
fn workers_that_cannot_be_started_do_not_stop_the_run() {
    let folder = Folder::new(CASES);
    let selection = Selection { cases: Some(folder.cases()), ..Selection::default() };
    let registry = Registry::new(&selection).unwrap();
    let isolation = Isolation { isolate: Isolate::Always, timeout: Duration::from_secs(60), sanitize: None };
    for (program, how) in
        [("/no/such/program", "cannot be started as /no/such"), ("false", "ended with exit code 1")]
    {
        let pool = Pool::new(program, &registry, &selection, isolation).unwrap();
        for trial in &registry.trials {
            let verdict = pool.run(trial);
            assert_eq!(verdict.outcome, Outcome::Crashed);
            let message = verdict.message.unwrap();
            assert!(message.starts_with("no worker could be started") && message.contains(how), "{message}");
        }
    }
}

#[test]
fn a_crash_on_one_of_several_devices_names_it() {
    let folder = Folder::new(CASES);
    let demo_fault = Some(DemoFault::Abort);
    let selection = Selection { cases: Some(folder.cases()), demo_fault, ..Selection::default() };
    let subject = Subject {
        isolated: true,
        devices: vec![0, 1],
        ..Subject::shared(adapter::demo_fault(DemoFault::Abort))
    };
    let cases = load(&folder.cases()).unwrap();
    let registry = Registry::of(cases, vec![subject], Vec::new(), &selection).unwrap();
    let isolation = Isolation { isolate: Isolate::Auto, timeout: Duration::from_secs(60), sanitize: None };
    let pool = Pool::new(env!("CARGO_BIN_EXE_plumbline"), &registry, &selection, isolation).unwrap();
    for trial in &registry.trials {
        let verdict = pool.run(trial);
        let outcome = if trial.name == WRONG { Outcome::Crashed } else { Outcome::Pass };
        assert_eq!(verdict.outcome, outcome, "{verdict:?}");
        assert!(verdict.replay.contains(" --device "), "{}", verdict.replay);
    }
}

/// A worker with that on its standard input.
fn worker(input: &str) -> Run {
    let folder = Folder::new(CASES);
    let file = folder.0.path().join("input");
    fs::write(&file, input).unwrap();
    run(command().arg("worker").arg("--cases").arg(folder.cases()).stdin(fs::File::open(file).unwrap()))
}

#[test]
fn a_worker_answers_all_that_it_was_asked() {
    let names = ["cpu/parallel/cases/four", "cpu/parallel/cases/six"];
    let run = worker(&names.map(|name| format!("{{\"run\":\"{name}\"}}\n")).concat());
    assert_eq!((run.code, &*run.stderr), (0, ""));
    let answers: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["hello"]["protocol"], 1);
    assert!(answers[0]["hello"]["backends"]["cpu"]["name"].is_string(), "{}", answers[0]);
    let judged: Vec<_> = answers[1..].iter().map(|answer| &answer["verdict"]["trial"]).collect();
    assert_eq!(judged, names);
    assert!(answers[1..].iter().all(|answer| answer["verdict"]["outcome"] == "pass"));
}

#[test]
fn garbage_to_a_worker_is_an_error() {
    for (input, part) in [
        ("garbage\n", "line 1 of standard input is no request"),
        ("{\"run\":\"cpu/parallel/cases/four\"}\n{\"walk\":1}\n", "line 2 of standard input is no request"),
        ("{\"run\":\"cpu/no/such\"}\n", "no trial is named `cpu/no/such`"),
        ("\u{0}\n", "line 1"),
        (
            "{\"call\":{\"trial\":\"t\",\"backend\":\"b\",\"variant\":\"v\",\"case\":{\"name\":\"n\",\"op\":{\"decode\":{\"from\":\"f16\",\"to\":\"f32\"}}}}}\n",
            "there is no backend `b`",
        ),
    ] {
        let run = worker(input);
        assert_eq!(run.code, 2, "{input}: {}", run.stderr);
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(part), "{}", run.stderr);
    }
}

#[test]
fn a_worker_that_cannot_begin_says_so_and_nothing_else() {
    let run = plumbline(&["worker", "--cases", "/no/such/file.yaml"]);
    assert_eq!((run.code, &*run.stdout), (2, ""), "{}", run.stderr);
    assert!(run.stderr.starts_with("error: ") && run.stderr.contains("/no/such/file.yaml"), "{}", run.stderr);
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Child;

    /// Whether a process runs; one whose threads have ended may still wait for its parent.
    fn runs(pid: u32) -> bool {
        if fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1) {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
    }

    fn children(parent: u32) -> Vec<u32> {
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            runs(*pid) && status.lines().any(|line| line == format!("PPid:\t{parent}"))
        })
        .collect()
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A run that hangs in its second trial, and the worker that hangs.
    fn hanging(folder: &Folder, out: &Path) -> (Child, u32) {
        let mut command = folder.conform(&["--demo-fault=hang", "--jobs", "1"], out);
        let parent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("a first verdict", || out.join("results.jsonl").exists() && records(out).len() == 2);
        std::thread::sleep(Duration::from_millis(200));
        let workers = children(parent.id());
        assert_eq!(workers.len(), 1);
        (parent, workers[0])
    }

    #[test]
    fn a_killed_run_leaves_its_verdicts_and_no_worker() {
        let (folder, out) = (Folder::new(CASES), results());
        let (mut parent, worker) = hanging(&folder, &out);
        parent.kill().unwrap();
        parent.wait().unwrap();
        until("the worker ends", || !runs(worker));
        let records = records(&out);
        assert_eq!(records.len(), 2);
        assert_eq!(verdict(&records[1]).outcome, Outcome::Pass);
    }

    #[test]
    fn a_killed_worker_costs_one_trial() {
        let (folder, out) = (Folder::new(CASES), results());
        let (mut parent, worker) = hanging(&folder, &out);
        assert!(Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
        assert_eq!(parent.wait().unwrap().code(), Some(1));
        let verdicts = verdicts(&out);
        let (crashed, rest): (Vec<_>, Vec<_>) =
            verdicts.into_iter().map(|(verdict, _)| verdict).partition(|verdict| verdict.trial == WRONG);
        assert!(crashed[0].message.as_ref().unwrap().contains("signal: 9 (SIGKILL)"), "{crashed:?}");
        assert!(rest.len() == 3 && rest.iter().all(|verdict| verdict.outcome == Outcome::Pass));
    }

    #[test]
    fn a_worker_that_ends_between_trials_is_replaced() {
        let folder = Folder::new(CASES);
        let selection = Selection { cases: Some(folder.cases()), ..Selection::default() };
        let registry = Registry::new(&selection).unwrap();
        let isolation =
            Isolation { isolate: Isolate::Always, timeout: Duration::from_secs(60), sanitize: None };
        let pool = Pool::new(env!("CARGO_BIN_EXE_plumbline"), &registry, &selection, isolation).unwrap();
        assert_eq!(pool.run(&registry.trials[0]).outcome, Outcome::Pass);
        let own = |pid: &u32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains(folder.0.path().to_str().unwrap())
        };
        let worker = children(std::process::id()).into_iter().find(own).unwrap();
        assert!(Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
        until("the worker ends", || !runs(worker));
        assert_eq!(pool.run(&registry.trials[1]).outcome, Outcome::Pass);
    }

    #[test]
    fn what_a_backend_prints_cannot_reach_the_answers() {
        let mut worker =
            command().arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut hello = String::new();
        BufReader::new(worker.stdout.as_mut().unwrap()).read_line(&mut hello).unwrap();
        assert!(hello.starts_with("{\"hello\""), "{hello}");
        let stream = |fd: u32| fs::read_link(format!("/proc/{}/fd/{fd}", worker.id())).unwrap();
        assert_eq!(stream(1), stream(2));
        drop(worker.stdin.take());
        assert!(worker.wait().unwrap().success());
    }
}
