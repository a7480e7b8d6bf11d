//! The command line as a newcomer uses it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{clean, command, plumbline, results, run};
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::Selection;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn records(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("results.jsonl")).expect("results were written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn conform(args: &[&str]) -> (common::Run, Vec<Value>) {
    let out = results();
    let run = run(command().arg("conform").args(args).arg("--out").arg(&out));
    (run, records(&out))
}

#[test]
fn a_failure_is_replayed_by_the_command_it_prints() {
    let (failed, records) = conform(&["--demo-fault", "cast/edges/f32/e4m3fn", "--seed", "7"]);
    assert_eq!(failed.code, 1, "{}{}", failed.stdout, failed.stderr);
    for part in ["a number became NaN", "expected", "actual", "replay", "0x7f"] {
        assert!(failed.stdout.contains(part), "no `{part}` in {}", failed.stdout);
    }
    let verdict = records.iter().find(|record| record["outcome"] == "fail").expect("a failed verdict");
    let worst = &verdict["outputs"][0]["worst"];
    let replay = verdict["replay"].as_str().unwrap();
    assert!(failed.stdout.contains(replay));

    // The command as printed, in a shell; results go where this test can read them.
    let out = results();
    let again = run(clean("sh").args(["-c", replay]).env("PLUMBLINE_OUT", &out));
    assert_eq!(again.code, 1, "{}{}", again.stdout, again.stderr);
    let again = self::records(&out);
    assert_eq!(again.len(), 3, "a run, one verdict, a summary");
    assert_eq!(&again[1]["outputs"][0]["worst"], worst);
}

#[test]
fn results_begin_with_the_run_and_end_with_the_summary() {
    let (run, records) = conform(&["format_info"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    let (first, last) = (records.first().unwrap(), records.last().unwrap());
    assert_eq!((&first["record"], &first["schema"]), (&"run".into(), &"plumbline.results/1".into()));
    assert_eq!(last["record"], "summary");
    let verdicts = &records[1..records.len() - 1];
    assert!(verdicts.iter().all(|record| record["record"] == "verdict"));
    let counted: u64 =
        last["outcomes"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, verdicts.len() as u64);
    assert!(verdicts.iter().any(|record| record["outcome"] == "waived"), "float8's constants");
    assert!(
        last["not_covered"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("GPU"))
    );
}

#[test]
fn every_format_of_progress_is_understood() {
    let name = "cpu/parallel/cast/nan_code";
    let pretty = plumbline(&["conform", "--format", "pretty", name]);
    assert!(pretty.stdout.contains(&format!("test {name} ... ok")), "{}", pretty.stdout);
    let json = plumbline(&["conform", "--format", "json", name]);
    for line in json.stdout.lines() {
        let _: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    assert_eq!(plumbline(&["conform", "--format", "terse", name]).code, 0);
}

#[test]
fn the_executable_and_cargo_test_list_the_same_names() {
    let listed = plumbline(&["conform", "--list"]);
    let selection = Selection::default();
    let names: Vec<_> = Registry::new(&selection)
        .unwrap()
        .trials
        .into_iter()
        .map(|trial| format!("{}: test", trial.name))
        .collect();
    assert_eq!(listed.stdout.lines().collect::<Vec<_>>(), names);
}

#[test]
fn partitions_are_disjoint_and_complete() {
    let list = |args: &[&str]| {
        let run = plumbline(&[&["conform", "--list"], args].concat());
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut parts: Vec<_> =
        ["1/3", "2/3", "3/3"].iter().flat_map(|part| list(&["--partition", part])).collect();
    let mut all = list(&[]);
    parts.sort();
    all.sort();
    assert_eq!(parts, all);
}

#[test]
fn a_case_file_in_the_documented_form_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    let text = r#"
cases:
  - name: tie_464
    op: {cast: {from: f32, to: e4m3fn, rounding: nearest_even, overflow: saturate, nan: canonical}}
    inputs:
      - {dtype: f32, shape: [2], bits: ["0x43e80000", "0x43e80001"]}
    expect:
      - {dtype: e4m3fn, shape: [2], bits: ["0x7e", "0x7e"]}
    judge: bit_exact
"#;
    fs::write(&file, text).unwrap();
    let (run, records) = conform(&["--cases", file.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    let trials: Vec<_> = records.iter().filter_map(|record| record["trial"].as_str()).collect();
    assert!(trials.contains(&"cpu/parallel/mine/tie_464") && trials.contains(&"h200/recorded/mine/tie_464"));

    fs::write(&file, text.replace("[\"0x7e\", \"0x7e\"]", "[\"0x7e\", \"0x7f\"]")).unwrap();
    let (run, _) = conform(&["--cases", file.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.contains("464.000"), "{}", run.stdout);
}

#[test]
fn recorded_tensors_are_read_dense_and_sparse() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"y":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[12,15]},"p.value":{"dtype":"U8","shape":[1],"data_offsets":[15,16]},"p.index":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1f32, 465.0, -0.0].iter().flat_map(|x| x.to_le_bytes()));
    bytes.extend([0x38, 0x7e, 0x80, 0x7e]);
    bytes.extend(1i64.to_le_bytes());
    fs::write(folder.path().join("x.safetensors"), bytes).unwrap();
    let case = |expect: &str| {
        let text = format!(
            "cases: [{{name: a, op: {{cast: {{from: f32, to: e4m3fn}}}}, \
             inputs: [{{dtype: f32, shape: [3], file: x.safetensors, tensor: x}}], expect: [{expect}]}}]"
        );
        let file = folder.path().join("mine.yaml");
        fs::write(&file, text).unwrap();
        plumbline(&["conform", "--cases", file.to_str().unwrap()])
    };
    let dense = case("{dtype: e4m3fn, shape: [3], file: x.safetensors, tensor: y}");
    assert_eq!(dense.code, 0, "{}{}", dense.stdout, dense.stderr);
    let sparse = case("{dtype: e4m3fn, shape: [3], file: x.safetensors, values: p.value, at: p.index}");
    assert_eq!(sparse.code, 0, "{}{}", sparse.stdout, sparse.stderr);
    // One element of three is compared, by every path of this processor.
    let covered = sparse.stdout.split_once("covered: ").unwrap().1;
    let (trials, rest) = covered.split_once(" trials, ").unwrap();
    assert_eq!(rest.split_once(" elements").unwrap().0, trials);
    let outside = case("{dtype: e4m3fn, shape: [1], file: x.safetensors, values: p.value, at: p.index}");
    assert_eq!(outside.code, 2, "{}", outside.stdout);
}

#[test]
fn the_schemas_in_the_repository_are_current() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    for of in ["cases", "results", "hardware", "coverage"] {
        let file = fixtures.join(format!("{of}.schema.json"));
        let written = plumbline(&["schema", of]).stdout;
        let kept = fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == written, "{} is old: write it with `plumbline schema {of}`", file.display());
    }
}

#[test]
fn check_counts_the_cases_of_a_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/format_info.yaml");
    let run = plumbline(&["check", file.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.contains("14 cases are valid")), (0, true), "{}", run.stdout);
}

#[test]
fn doctor_says_what_is_here_and_what_is_not() {
    let run = plumbline(&["doctor"]);
    assert_eq!(run.code, 0);
    for part in ["plumbline", "machine", "CUDA", "fixtures", "cases"] {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
}

#[test]
fn a_model_file_is_listed() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/gguf/tests/data/gguf_py.gguf");
    let listed = plumbline(&["gguf", "ls", file]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let row = ["q8_0.weight", "q8_0", "[3,", "64]", "1152", "204"];
    let has_row = |text: &str| text.lines().any(|line| line.split_whitespace().eq(row));
    assert!(has_row(&listed.stdout), "{}", listed.stdout);
    assert!(!listed.stdout.contains("general.architecture"), "{}", listed.stdout);

    let listed = plumbline(&["gguf", "ls", "--metadata", file]);
    assert!(has_row(&listed.stdout), "{}", listed.stdout);
    assert!(listed.stdout.contains(r#"["<s>", "", "a b", "é"]"#), "{}", listed.stdout);

    let listed = plumbline(&["gguf", "ls", "--metadata", "--json", file]);
    let listing: Value = serde_json::from_str(&listed.stdout).unwrap();
    let tensor = &listing["tensors"][2];
    assert_eq!((&tensor["name"], &tensor["bytes"]), (&"q8_0.weight".into(), &204.into()));
    let keys = listing["metadata"].as_array().unwrap().iter().map(|entry| &entry["key"]);
    assert_eq!(keys.count(), 18);
}

#[test]
fn functions_are_swept() {
    let run = plumbline(&["sweep", "functions", "--from", "f16,bf16"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let swept = run.stdout.lines().filter(|line| line.contains("65536 inputs")).count();
    assert_eq!(swept, 28, "{}", run.stdout);
    assert!(run.stdout.contains("28 sweeps, 0 with differences"), "{}", run.stdout);
}

#[test]
fn mutants_are_counted_and_survivors_fail() {
    let out = results();
    let of = |args: &[&str]| run(command().arg("mutants").args(args).arg("--out").arg(&out));
    let killed = of(&["classify/"]);
    assert_eq!(killed.code, 0, "{}{}", killed.stdout, killed.stderr);
    for part in
        ["classify/past_end ", "by operation:", "mutants killed (100.0%)", "proven to change nothing:"]
    {
        assert!(killed.stdout.contains(part), "no `{part}` in {}", killed.stdout);
    }
    let text = fs::read_to_string(out.join("mutants.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["mutant"] == "classify/past_end" && line["case"].is_string()));
    assert_eq!(lines[lines.len() - 1]["record"], "summary");
    // One case of few is not enough to find a fault of another.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("few.yaml");
    fs::write(&file, "cases: [{name: one, op: {classify: {format: e4m3fn}}, inputs: [{dtype: e4m3fn, shape: [1], bits: ['0x00']}]}]")
        .unwrap();
    let survived = of(&["classify/nothing_computed", "classify/lane_31", "--cases", file.to_str().unwrap()]);
    assert_eq!(survived.code, 2, "one filter is taken: {}", survived.stderr);
    let survived = of(&["classify/lane_31", "--cases", file.to_str().unwrap()]);
    assert_eq!(survived.code, 1, "{}{}", survived.stdout, survived.stderr);
    assert!(survived.stdout.contains("survivors:\n  classify/lane_31"), "{}", survived.stdout);
    assert_eq!(of(&["no_such_mutant"]).code, 2);
}

#[test]
fn a_run_of_all_cases_that_covers_too_little_fails() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cases")).unwrap();
    for file in ["cases/kv_scatter.yaml", "coverage.yaml"] {
        fs::copy(fixtures.join(file), folder.path().join(file)).unwrap();
    }
    fs::write(folder.path().join("waivers.yaml"), "waivers: []").unwrap();
    let out = results();
    let of = |args: &[&str]| {
        let mut command = command();
        command.args(["conform", "--backend", "cpu", "--out"]).arg(&out).args(args);
        run(command.env("PLUMBLINE_FIXTURES", folder.path()))
    };
    let all = of(&[]);
    assert_eq!(all.code, 1, "{}{}", all.stdout, all.stderr);
    let missing = "cpu cast out0: e4m3fn, x: e4m3fn: no trial that passed has it; needs a case";
    assert!(all.stdout.contains(missing) && !all.stdout.contains("cpu kv_scatter rows"), "{}", all.stdout);
    assert!(all.stdout.contains(" passed, 0 failed"), "{}", all.stdout);
    let resumed = of(&["--resume"]);
    assert_eq!(resumed.code, 1, "{}{}", resumed.stdout, resumed.stderr);
    assert!(
        resumed.stdout.contains("running 0 tests") && resumed.stdout.contains(missing),
        "{}",
        resumed.stdout
    );
    let matrix = fs::read_to_string(out.join("coverage.txt")).unwrap();
    assert!(matrix.contains("cpu kv_scatter cache: f16, out0: f16, positions: u32, rows: f16 ("), "{matrix}");
    for part in [&["kv_scatter"][..], &["--partition", "1/2"]] {
        let part = of(part);
        assert_eq!(part.code, 0, "{}{}", part.stdout, part.stderr);
        assert!(!part.stdout.contains("gate:"), "{}", part.stdout);
    }
}
