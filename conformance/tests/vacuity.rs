//! Cases that cannot fail are not trusted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Run, clean, command, results, run};
use serde_json::Value;
use std::fs;

/// Runs cases that must prove themselves, in this process or in workers.
fn conform(text: &str, args: &[&str]) -> (Run, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    fs::write(&file, text).unwrap();
    let out = results();
    let run = run(command()
        .args(["conform", "--backend=cpu", "--cases"])
        .arg(&file)
        .args(args)
        .arg("--out")
        .arg(&out));
    let records = fs::read_to_string(out.join("results.jsonl")).unwrap_or_default();
    (run, records.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// A case that casts rows to bf16.
fn case(name: &str, judge: &str, input: &str, more: &str) -> String {
    format!(
        "  - name: {name}\n    op: {{cast: {{from: f32, to: bf16}}}}\n    inputs: [{{dtype: f32, {input}}}]\n    \
         judge: {judge}\n{more}"
    )
}

const RANDOM: &str = "shape: [3, 5], generate: random_finite";

/// Asserts that a case is mistrusted, for these reasons alone.
fn mistrusted(judge: &str, input: &str, accepted: &str) {
    for isolate in ["--isolate=never", "--isolate=always"] {
        let text = format!("cases:\n{}", case("vain", judge, input, ""));
        let (run, records) = conform(&text, &["--vacuity=always", isolate]);
        assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
        let verdicts: Vec<_> = records.iter().filter(|record| record["record"] == "verdict").collect();
        assert!(verdicts.len() > 1);
        for verdict in &verdicts {
            assert_eq!(verdict["outcome"], "mistrusted", "{verdict}");
            let message = verdict["message"].as_str().unwrap();
            let start = format!("output 0 is also accepted {accepted}; give it inputs");
            assert!(message.starts_with(&start), "{message}");
        }
        let summary = records.last().unwrap();
        assert_eq!(summary["outcomes"]["mistrusted"], verdicts.len(), "{summary}");
        assert!(run.stdout.contains(&format!("{} mistrusted", verdicts.len())), "{}", run.stdout);
    }
}

#[test]
fn criteria_that_accept_wrong_outputs_are_found() {
    let all = "all zeros, negated, scaled by 0.9, shifted by one row, that of the next seed";
    mistrusted("{allclose: {rtol: 0, atol: 1.0e+30}}", RANDOM, all);
    mistrusted("{allclose: {rtol: 0.2, atol: 0}}", RANDOM, "scaled by 0.9");
    mistrusted("{ulp: 40}", RANDOM, "scaled by 0.9");
    let alike = "shape: [2, 2], bits: [\"0x3f800000\", \"0x40000000\", \"0x3f810000\", \"0x40010000\"]";
    mistrusted("{allclose: {rtol: 0.05, atol: 0}}", alike, "shifted by one row");
    let constant = "shape: [1, 5], generate: {offset: {by: 100}}";
    mistrusted("{allclose: {rtol: 0.05, atol: 0}}", constant, "that of the next seed");
}

#[test]
fn a_mistrusted_trial_is_shown_again_by_its_replay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    fs::write(&file, format!("cases:\n{}", case("vain", "{ulp: 40}", RANDOM, "    profile: full\n")))
        .unwrap();
    let out = results();
    let first =
        run(command().args(["conform", "--profile=full", "--cases"]).arg(&file).arg("--out").arg(&out));
    assert_eq!(first.code, 1, "{}{}", first.stdout, first.stderr);
    let replay = first.stdout.lines().find_map(|line| line.strip_prefix("replay")).unwrap().trim();
    let again = run(clean("sh").args(["-c", replay]).env("PLUMBLINE_OUT", &out));
    assert_eq!(again.code, 1, "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("mistrusted output 0 is also accepted scaled by 0.9"), "{}", again.stdout);
}

#[test]
fn quick_runs_do_not_prove_and_say_so() {
    let text = format!("cases:\n{}", case("vain", "{ulp: 40}", RANDOM, ""));
    let (quick, _) = conform(&text, &[]);
    assert_eq!(quick.code, 0, "{}", quick.stdout);
    assert!(
        quick.stdout.contains("whether each case can fail; run with `--vacuity always`"),
        "{}",
        quick.stdout
    );
    assert_eq!(conform(&text, &["--profile=full"]).0.code, 1);
    assert_eq!(conform(&text, &["--profile=full", "--vacuity=never"]).0.code, 0);
}

#[test]
fn cases_that_can_fail_are_trusted() {
    let sound = [
        case("bits", "bit_exact", RANDOM, ""),
        case("ulp", "{ulp: 1}", RANDOM, ""),
        // Where nothing else can be wrong, the bits, or the number of elements.
        case("zeros", "bit_exact", "shape: [1], bits: [\"0x00000000\"]", ""),
        case("nans", "bit_exact", "shape: [2], bits: [\"0x7fc00000\", \"0x7fc00000\"]", ""),
        case("empty", "bit_exact", "shape: [0, 4], bits: []", ""),
    ];
    let (run, _) = conform(&format!("cases:\n{}", sound.concat()), &["--vacuity=always"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
}

#[test]
fn a_companion_must_reject_what_a_case_accepts() {
    let loose = "{allclose: {rtol: 0.2, atol: 0}}";
    let with = |companion: &str, more: &str, filter: &[&str]| {
        let companions = format!("    companions: [{companion}]\n");
        let text = format!("cases:\n{}{more}", case("loose", loose, RANDOM, &companions));
        conform(&text, &[&["--vacuity=always"], filter].concat())
    };
    let sound = case("sound", "bit_exact", RANDOM, "");
    assert_eq!(with("sound", &sound, &[]).0.code, 0);
    // It need not be selected.
    assert_eq!(with("sound", &sound, &["mine/loose"]).0.code, 0);
    let (run, _) = with("sound", &case("sound", loose, RANDOM, ""), &["mine/loose"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(
        run.stdout.contains("accepted scaled by 0.9 (and its companions mine/sound do not reject it)"),
        "{}",
        run.stdout
    );
    // One that shows nothing of that perturbation does not help.
    let zero = case("sound", "bit_exact", "shape: [1], bits: [\"0x00000000\"]", "");
    assert_eq!(with("sound", &zero, &["mine/loose"]).0.code, 1);
}

#[test]
fn companions_are_cases_of_the_file() {
    let refused = |companion: &str, more: &str, part: &str| {
        let companions = format!("    companions: [{companion}]\n");
        let text = format!("cases:\n{}{more}", case("loose", "{ulp: 40}", RANDOM, &companions));
        let (run, _) = conform(&text, &[]);
        assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
        for part in ["mine.yaml:6: case `loose`: companions[0]: ", part] {
            assert!(run.stderr.contains(part), "no `{part}` in {}", run.stderr);
        }
    };
    refused("sound", "", "`sound`: no case of this file has the name");
    let other = "  - {name: other, op: {classify: {format: e4m3fn}}, inputs: [{dtype: e4m3fn, shape: [1], bits: ['0x00']}]}\n";
    refused("other", other, "`other`: is of another operation");
}

#[test]
fn checks_of_sequences_must_be_able_to_fail() {
    let sequence = |judge: &str| {
        let text = format!(
            "sequences:\n  - name: s\n    buffers: {{x: {{dtype: f32, shape: [3, 5]}}, y: {{dtype: bf16, shape: [3, 5]}}}}\n    \
             steps:\n      - allocate: [x, y]\n      - write: {{buffer: x, generate: random_finite}}\n      \
             - call: {{op: {{cast: {{from: f32, to: bf16}}}}, inputs: [x], outputs: [y]}}\n      \
             - check: {{buffer: y, judge: {judge}}}\n"
        );
        conform(&text, &["--vacuity=always"]).0
    };
    assert_eq!(sequence("bit_exact").code, 0);
    let loose = sequence("{ulp: 40}");
    assert_eq!(loose.code, 1, "{}", loose.stderr);
    assert!(loose.stdout.contains("buffer y at steps[3] is also accepted scaled by 0.9"), "{}", loose.stdout);
}
