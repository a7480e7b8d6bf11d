//! Every bad input is one clear line and exit code 2, before anything runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Run, command, plumbline, run};
use plumbline_gguf::{Type, Writer};
use std::fs;
use std::path::{Path, PathBuf};

/// A case that is right, to be broken in one place.
const GOOD: &str = r#"cases:
  - name: good
    op: {cast: {from: f32, to: e4m3fn}}
    inputs:
      - {dtype: f32, shape: [2], bits: ["0x43e80000", "0x43e80001"]}
    expect:
      - {dtype: e4m3fn, shape: [2], bits: ["0x7e", "0x7e"]}
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

fn conform(path: &Path) -> Run {
    plumbline(&["conform", "--cases", path.to_str().unwrap()])
}

/// One line on stderr that holds every part, nothing run, exit code 2.
fn refused(run: &Run, parts: &[&str]) {
    assert_eq!(run.code, 2, "stdout: {}\nstderr: {}", run.stdout, run.stderr);
    assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "no `{part}` in: {}", run.stderr);
    }
    assert!(!run.stdout.contains("running"), "{}", run.stdout);
}

/// Breaks the good case by a replacement; `conform` and `check` must both refuse it.
fn broken(from: &str, to: &str, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let folder = Folder::new();
    let file = folder.write("mine.yaml", GOOD.replacen(from, to, 1));
    refused(&conform(&file), parts);
    refused(&plumbline(&["check", file.to_str().unwrap()]), parts);
}

#[test]
fn the_good_case_passes() {
    let folder = Folder::new();
    let file = folder.write("mine.yaml", GOOD);
    let run = conform(&file);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(" passed, 0 failed"), "{}", run.stdout);
}

#[test]
fn strides() {
    let strides = |strides, parts: &[&str]| {
        broken("shape: [2], bits: [\"0x43", &format!("shape: [2], strides: {strides}, bits: [\"0x43"), parts);
    };
    strides("[0]", &["mine.yaml:5", "inputs[0]", "strides: stride 0 of dimension 0", "share places"]);
    strides("[1, 1]", &["mine.yaml:5", "inputs[0]", "2 strides for shape [2]", "one per dimension"]);
    strides("[4000000000]", &["mine.yaml:5", "inputs[0]", "strides: ", "more than 1 GiB"]);
    strides("[-1]", &["mine.yaml:5", "inputs[0].strides[0]", "-1"]);
    let outputs = |strides, parts: &[&str]| {
        broken("    expect:", &format!("    output_strides: {strides}\n    expect:"), parts);
    };
    outputs("[[0]]", &["mine.yaml:6", "output_strides[0]", "outputs never repeat"]);
    outputs("[null, [1]]", &["mine.yaml:6", "output_strides", "strides of 2 outputs given, cast gives 1"]);
}

#[test]
fn unknown_fields() {
    broken(
        "to: e4m3fn}",
        "to: e4m3fn, roundin: up}",
        &["mine.yaml:3", "`good`", "op.cast.roundin", "`rounding`"],
    );
    broken("    expect:", "    expects:", &["mine.yaml:6", "unknown field `expects`", "`expect`"]);
    broken("{dtype: f32,", "{dtyp: f32,", &["mine.yaml:5", "inputs[0]", "dtyp"]);
    broken("{cast:", "{kast:", &["mine.yaml:3", "unknown variant `kast`", "`cast`"]);
    broken("cases:", "case:", &["mine.yaml:1", "cases"]);
}

#[test]
fn unknown_names() {
    broken("dtype: f32", "dtype: f33", &["mine.yaml:5", "inputs[0].dtype", "unknown dtype `f33`", "f32"]);
    broken("to: e4m3fn}", "to: e4m3}", &["mine.yaml:3", "op.cast.to", "unknown format `e4m3`", "e4m3fn"]);
    broken(
        "to: e4m3fn}",
        "to: e4m3fn, rounding: nearest}",
        &["mine.yaml:3", "op.cast.rounding", "nearest_even"],
    );
}

#[test]
fn wrong_counts_and_widths_of_bits() {
    broken(r#", "0x43e80001""#, "", &["mine.yaml:5", "inputs[0]", "1 elements given", "holds 2"]);
    broken(r#"["0x7e", "#, r#"["0x7e", "0x7e", "#, &["mine.yaml:7", "expect[0]", "3 elements given"]);
    broken("\"0x43e80000\"", "\"0x43e8000\"", &["mine.yaml:5", "7 hex digits", "f32 has 8"]);
    broken("\"0x43e80000\"", "\"465.0\"", &["mine.yaml:5", "`465.0` is not a bit pattern", "0x00000000"]);
    broken("\"0x43e80000\"", "0x43e80000", &["mine.yaml:5", "bits", "quoted hex"]);
    let e2m1 = [("to: e4m3fn}", "to: e2m1}"), ("dtype: e4m3fn", "dtype: e2m1"), ("[\"0x7e\"", "[\"0x17\"")];
    let text = e2m1.iter().fold(GOOD.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    let folder = Folder::new();
    refused(&conform(&folder.write("mine.yaml", text)), &["mine.yaml:7", "`0x17`", "outside the 4 of e2m1"]);
}

#[test]
fn shapes_that_do_not_match() {
    broken(
        "shape: [2], bits: [\"0x7e\", \"0x7e\"]",
        "shape: [1], bits: [\"0x7e\"]",
        &["mine.yaml:7", "expect[0]", "shape [1]", "gives [2]"],
    );
    broken("dtype: f32", "dtype: tf32", &["mine.yaml:3", "input `x` is tf32", "expected f32"]);
    broken(
        "{cast: {from: f32, to: e4m3fn}}",
        "{scaled_cast: {from: f32, to: e4m3fn}}",
        &["mine.yaml:3", "1 inputs given", "x, s"],
    );
    broken(
        "{cast: {from: f32, to: e4m3fn}}",
        "{absmax: {from: f32, granularity: row}}",
        &["mine.yaml:3", "absmax", "input `x` has shape [2]", "[M, K]"],
    );
}

#[test]
fn a_shape_of_10_to_the_12() {
    let generated = "shape: [1000000000000], generate: random_bits}";
    broken(
        "shape: [2], bits: [\"0x43e80000\", \"0x43e80001\"]}",
        generated,
        &["mine.yaml:5", "inputs[0]", "[1000000000000]", "GiB"],
    );
    let overflow = "shape: [4294967296, 4294967296, 16], generate: random_bits}";
    broken("shape: [2], bits: [\"0x43e80000\", \"0x43e80001\"]}", overflow, &["mine.yaml:5", "GiB"]);
}

#[test]
fn nan_in_yaml() {
    broken(
        "\"0x43e80000\"",
        ".nan",
        &["mine.yaml:5", "inputs[0].bits[0]", "NaN and infinity are not numbers here"],
    );
    broken("    expect:", "    judge: {ulp: .nan}\n    expect:", &["mine.yaml:6", "judge.ulp", "NaN"]);
    broken("    expect:", "    judge: {ulp: -1}\n    expect:", &["mine.yaml:6", "judge", "tolerance"]);
    broken(
        "    expect:",
        "    judge: {allclose: {rtol: .inf, atol: 0}}\n    expect:",
        &["mine.yaml:6", "rtol"],
    );
}

#[test]
fn yaml_that_is_none() {
    broken("{cast: {from", "{cast: {{from", &["mine.yaml", "not YAML"]);
    broken("    expect:", "    name: again\n    expect:", &["mine.yaml", "duplicate"]);
    broken("    op: {cast", "    op: !cast {cast", &["mine.yaml:3", "tag"]);
    broken("name: good", "name: ''", &["mine.yaml:2", "name"]);
    let folder = Folder::new();
    let twice = format!("{GOOD}{}", GOOD.trim_start_matches("cases:\n"));
    refused(&conform(&folder.write("mine.yaml", twice)), &["mine.yaml:8", "another case of this name"]);
}

#[test]
fn inputs_made_in_no_way_or_two() {
    broken(", bits: [\"0x43e80000\", \"0x43e80001\"]", "", &["mine.yaml:5", "exactly one of"]);
    broken("shape: [2], bits", "shape: [2], generate: edges, bits", &["mine.yaml:5", "exactly one of"]);
    broken("shape: [2], bits", "shape: [2], seed: 1, bits", &["mine.yaml:5", "`seed`"]);
    broken("shape: [2], bits", "bits", &["mine.yaml:5", "needs `shape`"]);
}

#[test]
fn matrices() {
    let with = |matrix: &str| format!("    matrix: {matrix}\n    op: {{cast");
    broken("    op: {cast", &with("{to: []}"), &["mine.yaml:3", "at least one value"]);
    broken(
        "    op: {cast",
        &with("{to: [1.5]}"),
        &["mine.yaml:3", "matrix.to[0]", "a string, an integer or a boolean"],
    );
    broken("to: e4m3fn}", "to: $target}", &[]);
    let text =
        GOOD.replacen("    op: {cast", &with("{to: [e4m3fn]}"), 1).replacen("to: e4m3fn}", "to: $target}", 1);
    let folder = Folder::new();
    refused(&conform(&folder.write("mine.yaml", text)), &["mine.yaml:4", "`$target`", "not a dimension"]);
}

#[test]
fn files_that_are_missing() {
    let folder = Folder::new();
    let missing = folder.0.path().join("missing.yaml");
    refused(&conform(&missing), &["missing.yaml", "cannot be read"]);
    refused(&plumbline(&["check", missing.to_str().unwrap()]), &["missing.yaml", "cannot be read"]);
    refused(&conform(folder.0.path()), &["holds no cases"]);
    refused(&conform(&folder.write("empty.yaml", "cases: []")), &["empty.yaml", "holds no cases"]);
    refused(&conform(&folder.write("binary.yaml", [0xff, 0xfe, 0x00])), &["binary.yaml", "cannot be read"]);
}

/// A safetensors file with that header over `data`.
fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn recorded(file: &[u8], parts: &[&str]) {
    let folder = Folder::new();
    folder.write("x.safetensors", file);
    let input = "bits: [\"0x43e80000\", \"0x43e80001\"]";
    let text = GOOD.replacen(input, "file: x.safetensors, tensor: a", 1);
    let run = conform(&folder.write("mine.yaml", text));
    refused(&run, &[&["mine.yaml:5", "inputs[0]"], parts].concat());
}

#[test]
fn safetensors_that_lie() {
    let honest = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    recorded(&safetensors(honest, &[0; 8])[..40], &["x.safetensors", "not a valid safetensors file"]);
    recorded(&safetensors(honest, &[0; 7]), &["not a valid safetensors file"]);
    recorded(&safetensors(&honest.replace("[2]", "[3]"), &[0; 8]), &["not a valid safetensors file"]);
    recorded(&safetensors(&honest.replace("8]", "800]"), &[0; 8]), &["not a valid safetensors file"]);
    recorded(&u64::MAX.to_le_bytes(), &["not a valid safetensors file"]);
    recorded(b"", &["not a valid safetensors file"]);
    recorded(&safetensors(&honest.replace("\"a\"", "\"b\""), &[0; 8]), &["no tensor `a`", "it has b"]);
    recorded(&safetensors(&honest.replace("F32", "I32"), &[0; 8]), &["I32", "f32"]);
    recorded(&safetensors(&honest.replace("[2]", "[1,2]"), &[0; 8]), &["[1, 2]", "[2]"]);
}

#[test]
fn a_recording_that_is_missing() {
    let input = "bits: [\"0x43e80000\", \"0x43e80001\"]";
    broken(
        input,
        "file: nowhere.safetensors, tensor: a",
        &["mine.yaml:5", "nowhere.safetensors", "cannot be read"],
    );
    broken(input, "file: nowhere.safetensors", &["mine.yaml:5", "`tensor`"]);
}

#[test]
fn a_class_that_does_not_suit_the_case() {
    let folder = Folder::new();
    let input = "shape: [2], bits: [\"0x43e80000\", \"0x43e80001\"]";
    let text = GOOD.replacen(input, "shape: [2], generate: scaled_edges", 1);
    let run = conform(&folder.write("mine.yaml", text));
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert!(run.stdout.contains("scaled_edges") && run.stdout.contains("mine.yaml:5"), "{}", run.stdout);
}

#[test]
fn a_filter_that_matches_nothing() {
    refused(&plumbline(&["conform", "no/such/case"]), &["no/such/case", "--list"]);
    refused(&plumbline(&["conform", "--exact", "cast"]), &["cast", "--list"]);
    refused(&plumbline(&["conform", "--list", "no/such/case"]), &["no/such/case"]);
}

#[test]
fn options_that_make_no_sense() {
    for (args, part) in [
        (&["--partition", "0/4"][..], "K/N"),
        (&["--partition", "5/4"], "K/N"),
        (&["--partition", "x"], "K/N"),
        (&["--backend", "tpu"], "auto"),
        (&["--profile", "slow"], "quick"),
        (&["--jobs", "0"], "jobs"),
        (&["--seed", "x"], "seed"),
        (&["--format", "xml"], "pretty"),
        (&["--exact"], "FILTER"),
        (&["--isolate", "sometimes"], "always"),
        (&["--timeout", "0"], "like 60 or 0.5"),
        (&["--timeout", "1m"], "like 60 or 0.5"),
        (&["--device", "x"], "device"),
        (&["--demo-fault=flood"], "cast_465_to_nan"),
        (&["--demo-fault=abort", "--isolate", "never"], "leave out `--isolate never`"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let run = plumbline(&[&["conform"], args].concat());
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn an_output_folder_that_cannot_be_written() {
    let folder = Folder::new();
    let file = folder.write("file", "");
    let out = file.join("results");
    let run = plumbline(&["conform", "--out", out.to_str().unwrap(), "format_info"]);
    refused(&run, &["--out"]);
}

#[test]
fn fixtures_that_are_missing() {
    let folder = Folder::new();
    let run = run(command().arg("conform").env("PLUMBLINE_FIXTURES", folder.0.path()));
    refused(&run, &["no fixtures", "PLUMBLINE_FIXTURES"]);
}

#[test]
fn a_gpu_that_is_required_but_missing() {
    if plumbline_gpu::device::require().is_ok() {
        assert_eq!(plumbline(&["conform", "--require-gpu", "format_info"]).code, 0);
        refused(&plumbline(&["conform", "--device", "99"]), &["no usable GPU has the number 99", "doctor"]);
    } else {
        refused(&plumbline(&["conform", "--require-gpu"]), &["no CUDA device", "install"]);
        refused(&plumbline(&["conform", "--device", "0"]), &["no CUDA device", "install"]);
        refused(&plumbline(&["conform", "--backend", "cuda"]), &["no CUDA device", "install"]);
        let run = run(command().arg("conform").env("PLUMBLINE_REQUIRE_GPU", "1"));
        refused(&run, &["no CUDA device"]);
    }
}

#[test]
fn a_folder_that_holds_itself() {
    let folder = Folder::new();
    folder.write("mine.yaml", GOOD);
    #[cfg(unix)]
    std::os::unix::fs::symlink(".", folder.0.path().join("again")).unwrap();
    #[cfg(unix)]
    refused(&conform(folder.0.path()), &["again", "remove the link"]);
}

#[test]
fn two_thousand_cases_are_not_too_many() {
    let entry = GOOD.trim_start_matches("cases:\n");
    let many: String = (0..2000).map(|i| entry.replace("good", &format!("good{i}"))).collect();
    let folder = Folder::new();
    let file = folder.write("mine.yaml", format!("cases:\n{many}"));
    let checked = plumbline(&["check", file.to_str().unwrap()]);
    assert!(checked.stdout.contains("2000 cases are valid"), "{}", checked.stderr);
}

#[test]
fn too_much_memory() {
    let input = "shape: [2], bits: [\"0x43e80000\", \"0x43e80001\"]";
    broken(input, "generate: edges, lanes: 131072", &["mine.yaml:5", "lanes: 131072"]);
    broken(input, "generate: edges, lanes: 3", &["mine.yaml:5", "lanes: 3"]);
    let many: Vec<_> = (0..1000).map(|i| i.to_string()).collect();
    let values = many.join(", ");
    let matrix = format!("    matrix: {{a: [{values}], b: [{values}]}}\n    op: {{cast");
    broken("    op: {cast", &matrix, &["mine.yaml:3", "matrix", "100000 cases"]);
}

#[test]
fn model_files() {
    let folder = Folder::new();
    let ls = |file: &Path, parts: &[&str]| {
        for args in [&["gguf", "ls"][..], &["gguf", "ls", "--json", "--metadata"]] {
            refused(&plumbline(&[args, &[file.to_str().unwrap()]].concat()), parts);
        }
    };
    let file = Writer::new().metadata("a", "b").zeros("w\n\x1b[2J", Type::Q8_0, [1, 32]).to_bytes().unwrap();
    let write = |bytes: &[u8]| folder.write("mine.gguf", bytes);
    ls(&folder.0.path().join("absent.gguf"), &["absent.gguf cannot be read"]);
    ls(folder.0.path(), &["cannot be read", "give the path of a file"]);
    ls(&write(b""), &["mine.gguf: byte 0: ", "ends inside the magic", "fetch the file again"]);
    ls(&write(b"cases:\n"), &["begins with \"case\"", "give a GGUF file"]);
    ls(&write(&file[..10]), &["byte 8: the file ends inside the counts"]);
    ls(
        &write(&file[..128]),
        &[r"tensor `w\n\u{1b}[2J` takes 34 bytes from byte 96 on", "ends at 128", "fetch"],
    );
    let newer = [&file[..4], &[9], &file[5..]].concat();
    ls(&write(&newer), &["byte 4: version 9 ", "convert the model again"]);
}

/// A case of blocks that is right, to be broken in one place.
const GOOD_BLOCKS: &str = r#"cases:
  - name: good
    matrix: {format: [q4_K]}
    op: {gemv: {weights: $format, activations: f32}}
    inputs:
      - {dtype: u8, blocks: $format, shape: [4, 256], generate: {block_fields: {d: ["0x3c00"]}}}
      - {dtype: f32, shape: [300], generate: random_finite}
    refused: {because: "of a block of ${format}", outputs: [{dtype: f32, shape: [4]}]}
"#;

const REFUSED_POSITION: &str = r#"cases:
  - name: last
    op: {kv_scatter: {dtype: f16}}
    inputs:
      - {dtype: f16, shape: [1, 1, 2], generate: random_bits}
      - {dtype: u32, shape: [1], bits: ["0x00000003"]}
      - {dtype: f16, shape: [1, 3, 2], generate: random_bits}
    refused: {because: "below max_len, 3", outputs: [{dtype: f16, shape: [1, 3, 2]}]}
"#;

#[test]
fn what_is_wrong_with_a_refusal_of_values_is_said() {
    let folder = Folder::new();
    let run = conform(&folder.write("good.yaml", REFUSED_POSITION));
    assert!(run.stdout.contains("result: 2 passed"), "{}{}", run.stdout, run.stderr);
    for (from, to, part) in [
        ("0x00000003", "0x00000002", "the inputs fit kv_scatter"),
        ("below", "above", "the reference says `kv_scatter: `positions[0]` is 3"),
        ("    refused", "    # refused", "`positions[0]` is 3, expected a position below max_len, 3"),
    ] {
        assert!(REFUSED_POSITION.contains(from), "{from}");
        let run = conform(&folder.write("mine.yaml", REFUSED_POSITION.replacen(from, to, 1)));
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code != 0 && said.contains(part), "no `{part}` in {said}");
    }
}

#[test]
fn what_is_wrong_with_blocks_or_a_refusal_is_said() {
    let folder = Folder::new();
    let good = folder.write("good.yaml", GOOD_BLOCKS);
    let run = conform(&good);
    // Nothing was compared, although all is well.
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("nothing was compared"), "{}", run.stderr);
    for part in ["cpu 2: the same, by the check that their cases are made with", "result: 2 passed"] {
        assert!(run.stdout.contains(part), "no `{part}` in {}", run.stdout);
    }
    for (from, to, parts) in [
        ("[4, 256]", "[4, 255]", &["inputs[0]", "q4_K hold 256 values each, and 255"][..]),
        ("[4, 256]", "[]", &["inputs[0]", "whose last dimension counts values"]),
        ("dtype: u8", "dtype: f32", &["inputs[0]", "the bytes of blocks are u8, not f32"]),
        ("[q4_K]", "[q4_k]", &["unknown block format `q4_k`"]),
        ("blocks: $format, ", "", &["because: the reference says"]),
        ("blocks: $format", "blocks: q8_K", &["inputs[0]", "blocks of q8_K, and gemv takes q4_K here"]),
        ("[300]", "[256]", &["refused", "the inputs fit gemv"]),
        ("${format}", "${formats}", &["`$formats` is not a dimension"]),
        ("of ${format}\"", "of ${format\"", &["`${format` is not a dimension"]),
        (
            "of a block of",
            "not of a block of",
            &["because: the reference says `gemv: input `x` has shape [300]"],
        ),
        (
            "outputs: [{dtype: f32, shape: [4]}]}",
            "outputs: []}\n    judge: bound",
            &["leave out what is said"],
        ),
        ("outputs: [{dtype: f32, shape: [4]}]", "output: []", &["unknown field `output`"]),
    ] {
        assert!(GOOD_BLOCKS.contains(from), "{from}");
        let file = folder.write("mine.yaml", GOOD_BLOCKS.replacen(from, to, 1));
        refused(&conform(&file), parts);
    }
    let unknown = GOOD_BLOCKS.replace("d: [", "dd: [").replace("[300]", "[256]");
    let without = unknown.split("    refused").next().unwrap().to_owned();
    let run = conform(&folder.write("unknown.yaml", without));
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert!(run.stdout.contains("its fields are d, dmin, scales, qs"), "{}", run.stdout);
}

#[test]
fn sequences_without_one_right_result() {
    let folder = Folder::new();
    let sequence = r#"sequences:
  - name: race
    buffers: {x: {dtype: f32, shape: [2]}, y: {dtype: f16, shape: [2]}}
    steps:
      - allocate: [x, y]
      - write: {buffer: x, generate: ones}
      - call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y], stream: 1}
      - call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}
      - check: {buffer: y}
"#;
    let file = folder.write("mine.yaml", sequence);
    let parts = ["mine.yaml:8", "`race`", "steps[3]", "`y` is also used on stream 1", "put `order: [1, 0]`"];
    refused(&conform(&file), &parts);
    refused(&plumbline(&["check", file.to_str().unwrap()]), &parts);
    // A class that a buffer cannot hold shows when it is checked, and as the case's own error.
    let file = folder.write("mine.yaml", sequence.replace(", stream: 1", "").replace("ones", "blocks"));
    refused(
        &plumbline(&["check", file.to_str().unwrap()]),
        &["mine.yaml:6", "steps[1]", "generate: class `blocks`"],
    );
}

#[test]
fn sweeps_that_cannot_be_made() {
    for (args, parts) in [
        (&["cast"][..], &["--to"][..]),
        (&["softmax"], &["softmax", "gelu_erf", "functions"]),
        (&["silu", "--policies"], &["silu", "leave it out"]),
        (&["silu", "--from", "e4m3fn"], &["e4m3fn", "expected f32, f16 or bf16"]),
        (&["silu", "--from", "f16", "--against", "staircase"], &["silu", "--against definition"]),
        (&["silu", "--from", "f16", "--against", "hardware"], &["silu", "only casts are recorded"]),
        (&["silu", "--from", "f16", "--against", "reference"], &["silu", "judged by itself"]),
        (&["silu", "--from", "f16", "--variant", "definition"], &["silu", "judged by itself"]),
    ] {
        let run = plumbline(&[&["sweep"], args].concat());
        assert_eq!(run.code, 2, "{args:?}: {}{}", run.stdout, run.stderr);
        for part in parts {
            assert!(run.stderr.contains(part), "{args:?}: no `{part}` in: {}", run.stderr);
        }
    }
}

/// Fixtures with one case, no waivers, and that gate.
fn with_gate(gate: &str) -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.0.path().join("cases")).unwrap();
    folder.write("cases/mine.yaml", GOOD);
    folder.write("waivers.yaml", "waivers: []");
    folder.write("coverage.yaml", gate);
    folder
}

#[test]
fn gate_files() {
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/coverage.yaml");
    let good = fs::read_to_string(good).unwrap();
    let broken = |from: &str, to: &str, parts: &[&str]| {
        assert!(good.contains(from), "{from}");
        let folder = with_gate(&good.replacen(from, to, 1));
        let run = run(command().args(["conform", "--list"]).env("PLUMBLINE_FIXTURES", folder.0.path()));
        refused(&run, &[&["coverage.yaml:"], parts].concat());
    };
    let last = "- operations: [format_info]\n    dtypes: {out0: [f64]}\n";
    broken("[format_info]", "[format_inf]", &["operations", "unknown operation `format_inf`", "format_info"]);
    broken("[format_info]", "[]", &["operations", "names no operation"]);
    broken(last, "", &["cells", "no entry is of the operation `format_info`"]);
    broken(last, &last.replace("dtypes", "types"), &["types", "unknown field `types`"]);
    broken(last, &last.replace("f64", "f65"), &["dtypes.out0", "`f65` is neither an element type nor"]);
    broken(last, &last.replace("[f64]", "f64"), &["dtypes.out0", "invalid type: string"]);
    broken(last, &last.replace("[f64]", "[]"), &["dtypes.out0", "is an empty list"]);
    broken(
        last,
        &format!("{last}    values: {{out0: [huge]}}\n"),
        &["values.out0", "unknown variant `huge`"],
    );
    broken(last, &format!("{last}    shapes: {{n: [odd]}}\n"), &["shapes.n", "unknown variant `odd`"]);
    broken(last, &format!("{last}    layouts: {{x: [odd]}}\n"), &["layouts.x", "unknown variant `odd`"]);
    broken(last, &format!("{last}    all_values: [x]\n"), &["all_values", "`dtypes` does not have `x`"]);
    broken(last, &format!("{last}    codes: {{out0: all}}\n"), &["codes.out0", "f64 has more than 8 bits"]);
    broken(
        last,
        &last.replace("[f64]}", "[e2m1]}\n    values: {out0: [nan]}"),
        &["no element of e2m1 is `nan`"],
    );
    broken("cpu: always", "cpu: sometimes", &["backends.cpu", "unknown variant `sometimes`"]);
    broken("{cpu: always, cuda: where_supported}", "{}", &["backends", "names no backend"]);
    broken("cpu: always", "cpuu: always", &["backends", "unknown backend `cpuu`, expected one of cpu, cuda"]);
    broken(&good, "", &["invalid type: null"]);
}
