//! A run that was ended is resumed, and both parts give what one whole run does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Run, command, results, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Cases, and a folder for their results.
struct Work {
    cases: tempfile::TempDir,
    out: PathBuf,
}

const CASES: &str = "
cases:
  - name: sizes
    matrix: {from: [f32, f16], to: [e4m3fn, e5m2, f16, bf16], n: [1, 2, 3, 4, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]}
    op: {cast: {from: $from, to: $to}}
    inputs: [{dtype: $from, shape: [$n], generate: random_bits}]
";

impl Work {
    fn new() -> Self {
        let work = Self { cases: tempfile::tempdir().unwrap(), out: results() };
        work.write(CASES);
        work
    }

    fn write(&self, cases: &str) {
        fs::write(self.cases.path().join("mine.yaml"), cases).unwrap();
    }

    fn results(&self) -> PathBuf {
        self.out.join("results.jsonl")
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = command();
        command.args(["conform", "--backend=cpu", "--jobs=1", "--runs=20", "--cases"]).arg(self.cases.path());
        command.args(args).arg("--out").arg(&self.out);
        command
    }

    fn conform(&self, args: &[&str]) -> Run {
        run(&mut self.command(args))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.results()).unwrap_or_default()
    }

    /// The record: a run, verdicts each of another trial, and a summary that counts them.
    fn verdicts(&self) -> BTreeMap<String, String> {
        let records: Vec<Value> =
            self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&records[0]["record"], &records[records.len() - 1]["record"]),
            (&"run".into(), &"summary".into())
        );
        let verdicts = &records[1..records.len() - 1];
        let word = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
        let all: BTreeMap<_, _> =
            verdicts.iter().map(|record| (word(record, "trial"), word(record, "outcome"))).collect();
        assert_eq!(all.len(), verdicts.len(), "a trial has two verdicts");
        let counts = records[records.len() - 1]["outcomes"].as_object().unwrap().values();
        assert_eq!(counts.map(|count| count.as_u64().unwrap()).sum::<u64>(), all.len() as u64);
        all
    }
}

#[test]
fn a_run_that_is_killed_anywhere_is_resumed_to_the_same_verdicts() {
    let whole = Work::new();
    assert_eq!(whole.conform(&[]).code, 0);
    let right = whole.verdicts();
    assert!(right.len() > 200);
    for lines in [1, 2, 60, 150] {
        let work = Work::new();
        let mut child = work.command(&[]).stdout(std::process::Stdio::null()).spawn().unwrap();
        while work.text().lines().count() < lines && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        let done = work.text().matches('\n').count().saturating_sub(1);
        assert!(done < right.len(), "killed too late to show anything");
        let resumed = work.conform(&["--resume"]);
        assert_eq!(resumed.code, 0, "{}{}", resumed.stdout, resumed.stderr);
        let said = format!("resumed: {done} of {} trials", right.len());
        assert!(resumed.stderr.contains(&said), "no `{said}` in {}", resumed.stderr);
        assert!(
            resumed.stdout.contains(&format!("running {} tests", right.len() - done)),
            "{}",
            resumed.stdout
        );
        assert!(resumed.stdout.contains(&format!("covered: {} trials", right.len())), "{}", resumed.stdout);
        assert_eq!(work.verdicts(), right);
    }
}

#[test]
fn a_torn_line_is_dropped_wherever_it_is_torn() {
    let work = Work::new();
    assert_eq!(work.conform(&["mine/sizes/f32/1/"]).code, 0);
    let (right, text) = (work.verdicts(), work.text());
    let second = text.match_indices('\n').nth(1).unwrap().0;
    let first = text.find('\n').unwrap();
    // Within the first line, at its end, within a verdict, before its end, within the summary, at its end.
    for cut in
        [0, first / 2, first, first + 1, (first + second) / 2, second, second + 1, text.len() - 9, text.len()]
    {
        fs::write(work.results(), &text[..cut]).unwrap();
        let resumed = work.conform(&["--resume", "mine/sizes/f32/1/"]);
        assert_eq!(resumed.code, 0, "cut at {cut}: {}{}", resumed.stdout, resumed.stderr);
        assert_eq!(work.verdicts(), right, "cut at {cut}");
    }
}

#[test]
fn without_a_record_all_is_run() {
    let work = Work::new();
    let resumed = work.conform(&["--resume", "mine/sizes/f32/1/"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.stdout, resumed.stderr);
    assert!(resumed.stderr.contains("resumed: 0 of"), "{}", resumed.stderr);
    assert!(!work.verdicts().is_empty());
}

#[test]
fn trials_that_crashed_are_done() {
    let work = Work::new();
    let args = ["--demo-fault=panic", "e4m3fn"];
    assert_eq!(work.conform(&args).code, 1);
    let right = work.verdicts();
    assert!(right.values().any(|outcome| outcome == "crashed"), "{right:?}");
    let text = work.text();
    let without_summary = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(work.results(), &text[..without_summary]).unwrap();
    let resumed = work.conform(&[&args[..], &["--resume"]].concat());
    assert_eq!(resumed.code, 1, "{}{}", resumed.stdout, resumed.stderr);
    assert!(resumed.stdout.contains("running 0 tests"), "{}", resumed.stdout);
    assert_eq!(work.verdicts(), right);
}

#[test]
fn the_record_of_another_run_is_not_resumed() {
    let work = Work::new();
    assert_eq!(work.conform(&[]).code, 0);
    let text = work.text();
    let refused = |args: &[&str], part: &str| {
        let run = work.conform(&[&["--resume"], args].concat());
        assert_eq!(run.code, 2, "{args:?}: {}{}", run.stdout, run.stderr);
        assert!(
            run.stderr.contains("results.jsonl") && run.stderr.contains(part),
            "no `{part}` in {}",
            run.stderr
        );
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
    };
    refused(&["--seed=7"], "with another seed: `0` on record, `7` now");
    refused(&["--profile=full"], "with another profile: `quick` on record, `full` now");
    refused(&["--demo-fault"], "with another set of backends");
    refused(&["--algorithms=5"], "with another set of options");
    refused(&["--timeout=61"], "with another set of options");
    refused(&["sizes/f16"], "with another set of options");
    work.write(&CASES.replace("233, 377", "234, 377"));
    refused(&[], "with another content of the cases");
    work.write(CASES);
    assert!(work.text() == text, "the record was changed");
    let version = text.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1);
    fs::write(work.results(), version).unwrap();
    refused(&[], "with another version: `0.0.1` on record");
    fs::write(work.results(), text.replacen(" bytes of 20", " bytes of 19", 1)).unwrap();
    refused(&[], "with another executable: `");
}

#[test]
fn a_foreign_file_is_left_as_it_is() {
    let work = Work::new();
    fs::create_dir_all(&work.out).unwrap();
    for (text, part) in [
        ("some text\n", "results.jsonl:1: no record of a run"),
        ("{\"record\":\"summary\"}\n", "results.jsonl:1: not the record that a run has there"),
    ] {
        fs::write(work.results(), text).unwrap();
        let run = work.conform(&["--resume"]);
        assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(part) && run.stderr.contains("--out"), "{}", run.stderr);
        assert_eq!(work.text(), text);
    }
}
