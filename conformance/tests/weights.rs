//! Tensors of GGUF models: `conform --weights`, and case files that name them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Run, clean, command, plumbline, results, run};
use plumbline_gguf::{Type, Writer};
use plumbline_reference::block::BlockFormat;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the model that every test here knows, and its name from there.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures");
const MODEL: &str = "ggml/blocks.gguf";
/// Tensors of blocks in it, and what is made of each: two decodings, two products.
const TENSORS: usize = 15;
const CASES: usize = 4 * TENSORS;

/// `conform` in another working directory.
fn conform(folder: &Path, args: &[&str]) -> Run {
    run(command().current_dir(folder).arg("conform").args(args))
}

fn names(listed: &Run) -> Vec<&str> {
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    listed.stdout.lines().map(|line| line.strip_suffix(": test").unwrap()).collect()
}

/// One line on stderr that holds every part, nothing run, exit code 2.
#[track_caller]
fn refused(run: &Run, parts: &[&str]) {
    assert_eq!(run.code, 2, "stdout: {}\nstderr: {}", run.stdout, run.stderr);
    assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "no `{part}` in: {}", run.stderr);
    }
    assert!(!run.stdout.contains("running"), "{}", run.stdout);
}

#[test]
fn blocks_are_of_the_same_size_in_both_tables() {
    for format in BlockFormat::ALL {
        let ty = Type::from_name(format.name()).unwrap_or_else(|| panic!("{format} is not ggml's"));
        assert_eq!(
            (ty.name, ty.block_values, ty.block_bytes),
            (format.name(), format.values(), format.bytes())
        );
    }
}

#[test]
fn a_model_is_judged_from_any_folder() {
    let all = conform(FIXTURES.as_ref(), &["--weights", MODEL, "--backend", "cpu"]);
    assert_eq!(all.code, 0, "{}{}", all.stdout, all.stderr);
    let listed = conform(FIXTURES.as_ref(), &["--weights", MODEL, "--backend", "cpu", "--list"]);
    let trials = names(&listed);
    for part in [
        &format!("covered: {} trials, ", trials.len())[..],
        &format!("result: {} passed, 0 failed", trials.len()),
        "1 tensors of type f32",
    ] {
        assert!(all.stdout.contains(part), "no `{part}` in {}", all.stdout);
    }
    // Where a backend has several paths, a case is a trial of each.
    let cases = trials.iter().map(|name| name.splitn(3, '/').nth(2).unwrap());
    let cases: BTreeSet<_> = cases.collect();
    assert_eq!(cases.len(), CASES, "{cases:?}");
    for format in ["q4_K", "iq4_nl", "tq1_0", "mxfp4"] {
        for what in ["dequantize_f32", "dequantize_f16", "gemv_f32", "gemv_q8_1"] {
            let name = format!("weights/blk.0.{format}.weight/{what}/rows_0_8");
            assert!(cases.contains(&&name[..]), "no {name} in {cases:?}");
        }
    }
    assert!(trials.iter().all(|name| !name.contains("output_norm")));

    // The same by an absolute path, from this test's own folder.
    let path = format!("{FIXTURES}/{MODEL}");
    let absolute = plumbline(&["conform", "--weights", &path, "--backend", "cpu", "--list"]);
    assert_eq!(names(&absolute), trials);

    // Workers find the model too.
    let one = ["--isolate", "always", "blk.0.q6_K.weight/gemv_q8_1"];
    let run = conform(FIXTURES.as_ref(), &[&["--weights", MODEL, "--backend", "cpu"], &one[..]].concat());
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(" passed, 0 failed"), "{}", run.stdout);
}

#[test]
fn a_fault_is_found_and_replayed_by_the_command_it_prints() {
    let folder = Path::new(FIXTURES).join("ggml");
    let out = results();
    let args = ["conform", "--weights", "blocks.gguf", "--demo-fault=nibbles_swapped", "--seed", "7"];
    let found = run(command().current_dir(&folder).args(args).arg("--out").arg(&out));
    assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
    let records = |out: &PathBuf| {
        let text = fs::read_to_string(out.join("results.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let records_found = records(&out);
    let failed: Vec<_> = records_found.iter().filter(|record| record["outcome"] == "fail").collect();
    // All that reads the two formats whose nibbles are swapped, and nothing else.
    let of_format = |format: &str| {
        let part = format!("/blk.0.{format}.weight/");
        failed.iter().filter(|record| record["trial"].as_str().unwrap().contains(&part)).count()
    };
    assert_eq!((of_format("q4_0"), of_format("q4_K"), failed.len()), (4, 4, 8), "{}", found.stdout);
    assert!(found.stdout.contains(&format!("{} passed, 8 failed", CASES - 8)), "{}", found.stdout);

    for verdict in [failed[0], failed[7]] {
        let replay = verdict["replay"].as_str().unwrap();
        assert!(replay.contains(" --weights=blocks.gguf ") && found.stdout.contains(replay), "{replay}");
        let out = results();
        let again = run(clean("sh").current_dir(&folder).args(["-c", replay]).env("PLUMBLINE_OUT", &out));
        assert_eq!(again.code, 1, "{}{}", again.stdout, again.stderr);
        let again = records(&out);
        assert_eq!(again.len(), 3, "a run, one verdict, a summary");
        assert_eq!(again[1]["trial"], verdict["trial"]);
        assert_eq!(again[1]["outputs"], verdict["outputs"]);
    }
}

#[test]
fn models_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |name: &str, parts: &[&str]| {
        for last in [&[][..], &["--list"]] {
            let args = [&["--backend", "cpu", "--weights", name], last].concat();
            refused(&conform(folder.path(), &args), parts);
        }
    };
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let model = |writer: Writer| write("mine.gguf", &writer.to_bytes().unwrap());
    weights("absent.gguf", &["--weights needs a GGUF model: absent.gguf cannot be read: "]);
    weights(".", &["--weights needs a GGUF model: . cannot be read: ", "give the path of a file"]);
    write("mine.gguf", b"cases:\n");
    weights("mine.gguf", &["mine.gguf: byte 0: ", "begins with \"case\"", "give a GGUF file"]);
    model(Writer::new().zeros("a", Type::F32, [4]).zeros("b", Type::F32, [0]));
    weights("mine.gguf", &["mine.gguf has no tensor of blocks, but 2 tensors of type f32; give a model"]);
    model(Writer::new());
    weights("mine.gguf", &["no tensor of blocks, but no tensors at all; give a model"]);
    model(Writer::new().zeros("a", Type::Q4_K, [2, 0]));
    weights("mine.gguf", &["no tensor of blocks, but 1 empty tensors of type q4_K; give a model"]);
    // clap says so, on several lines.
    let both = conform(FIXTURES.as_ref(), &["--weights", MODEL, "--cases", "cases"]);
    assert_eq!((both.code, both.stderr.contains("cannot be used with")), (2, true), "{}", both.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff.gguf"));
    fs::copy(Path::new(FIXTURES).join(MODEL), &path).unwrap();
    let run = run(command().args(["conform", "--backend", "cpu", "--weights"]).arg(&path));
    refused(&run, &["--weights: ", "UTF-8", "rename the file"]);
}

/// The product of its first dimensions is more than any integer.
#[test]
fn tensors_without_values_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::new()
        .zeros("empty", Type::Q4_K, [1 << 40, 1 << 40, 0, 256])
        .zeros("no columns", Type::Q4_K, [1 << 40, 1 << 40, 0])
        .zeros("w", Type::Q8_0, [9, 32]);
    writer.write(folder.path().join("mine.gguf")).unwrap();
    let args = ["--backend", "cpu", "--weights", "mine.gguf"];
    let all = conform(folder.path(), &args);
    assert_eq!(all.code, 0, "{}{}", all.stdout, all.stderr);
    assert!(all.stdout.contains("2 empty tensors of type q4_K"), "{}", all.stdout);
    let listed = conform(folder.path(), &[&args[..], &["--list"]].concat());
    for rows in ["weights/w/gemv_f32/rows_0_8", "weights/w/gemv_f32/rows_1_9"] {
        assert!(listed.stdout.contains(rows), "no `{rows}` in {}", listed.stdout);
    }
    assert!(!listed.stdout.contains("empty") && !listed.stdout.contains("columns"), "{}", listed.stdout);
}

/// A case of rows of a model, to be changed in one place.
const GOOD: &str = r#"cases:
  - name: good
    op: {dequantize: {from: q8_0, to: f32}}
    inputs:
      - {dtype: u8, file: mine.gguf, tensor: w, blocks: q8_0, rows: [1, 3]}
"#;

/// A folder with that model: three rows of Q8_0, and a tensor without values.
fn folder_of_cases() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..3 * 34).map(|i| if i % 34 == 1 { 0x3c } else { i as u8 }).collect();
    let writer = Writer::new()
        .tensor("w", Type::Q8_0, [3, 32], rows)
        .zeros("empty", Type::Q8_0, [1 << 40, 1 << 40, 0, 32])
        .zeros("norm\x1b[2J", Type::F32, [4]);
    writer.write(folder.path().join("mine.gguf")).unwrap();
    folder
}

/// `conform` of the good case with one part replaced.
fn changed(folder: &Path, from: &str, to: &str) -> Run {
    assert!(GOOD.contains(from), "{from}");
    fs::write(folder.join("mine.yaml"), GOOD.replacen(from, to, 1)).unwrap();
    conform(folder, &["--backend", "cpu", "--cases", "mine.yaml"])
}

#[test]
fn case_files_name_rows_of_a_model() {
    let folder = folder_of_cases();
    let elements = |from: &str, to: &str| {
        let run = changed(folder.path(), from, to);
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        let covered = run.stdout.split_once("covered: ").unwrap().1;
        let (trials, rest) = covered.split_once(" trials, ").unwrap();
        let elements: usize = rest.split_once(" elements").unwrap().0.parse().unwrap();
        elements / trials.parse::<usize>().unwrap()
    };
    assert_eq!(elements("good", "good"), 2 * 32);
    assert_eq!(elements(", rows: [1, 3]", ""), 3 * 32);
    assert_eq!(elements("blocks: q8_0, ", ""), 2 * 32);
    // The ending in any case of letters, as some systems write it.
    fs::copy(folder.path().join("mine.gguf"), folder.path().join("LOUD.GGUF")).unwrap();
    assert_eq!(elements("mine.gguf", "LOUD.GGUF"), 2 * 32);
}

#[test]
fn what_is_wrong_with_rows_of_a_model_is_said() {
    let folder = folder_of_cases();
    fs::write(folder.path().join("none.gguf"), "cases:\n").unwrap();
    let nothing_else = "perhaps `blocks` and `rows`, and nothing else";
    for (from, to, parts) in [
        (
            "[1, 3]",
            "[1, 4]",
            &["rows: [1, 4] is not within the 3 rows of tensor `w`", "one after the last"][..],
        ),
        ("[1, 3]", "[3, 1]", &["rows: [3, 1] is not within the 3 rows"]),
        ("[1, 3]", "[1]", &["rows", "length"]),
        ("[1, 3]", "[-1, 3]", &["rows[0]", "-1"]),
        ("tensor: w, blocks: q8_0, rows: [1, 3]", "tensor: empty, rows: [0, 1]", &["within the 0 rows"]),
        ("tensor: w", "tensor: v", &["no tensor `v`", "gguf ls", r"w, empty, norm\u{1b}[2J"]),
        (
            "tensor: w",
            "tensor: \"norm\\x1b[2J\"",
            &[r"`norm\u{1b}[2J` is of type f32", "take one of type q4_0"],
        ),
        ("tensor: w, ", "", &[nothing_else]),
        ("blocks: q8_0", "blocks: q4_0", &["blocks: tensor `w` is q8_0 in the file, not q4_0"]),
        ("dtype: u8", "dtype: f32", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], shape: [2, 32]", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], seed: 1", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], lanes: 2", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], strides: [34, 34, 1]", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], generate: blocks", &[nothing_else]),
        ("rows: [1, 3]", "rows: [1, 3], bits: [\"0x00\"]", &[nothing_else]),
        ("mine.gguf", "absent.gguf", &["absent.gguf cannot be read: "]),
        ("mine.gguf", "none.gguf", &["none.gguf: byte 0: ", "begins with \"case\"", "give a GGUF file"]),
        ("mine.gguf", "mine.safetensors", &["`rows` goes with a GGUF file"]),
    ] {
        let run = changed(folder.path(), from, to);
        refused(&run, &[&["mine.yaml:5", "case `good`", "inputs[0]"], parts].concat());
        assert!(!run.stderr.contains("--weights"), "{}", run.stderr);
        assert!(!run.stderr.trim_end().contains(char::is_control), "{:?}", run.stderr);
    }
    // It is the operation that has another format.
    let run = changed(folder.path(), "from: q8_0", "from: q4_0");
    refused(&run, &["mine.yaml:5", "inputs[0]", "blocks of q8_0, and dequantize takes q4_0 here"]);
}
