//! `plumbline probe gemm` from the outside.

mod common;

use common::{Run, plumbline};

fn refused(args: &[&str], parts: &[&str]) {
    let Run { code, stdout, stderr } = plumbline(&[&["probe", "gemm"], args].concat());
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
}

#[test]
fn the_reference_is_found_again() {
    let file = common::results().with_extension("json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let path = file.to_str().unwrap();
    let Run { code, stdout, stderr } = plumbline(&["probe", "gemm", "--n", "4", "--k", "64", "--json", path]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(
        stdout.contains("one chain of blocks of 16 products (hopper): 256 of 256 elements equal"),
        "{stdout}"
    );
    let found: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(found["fits"][0]["accumulate"]["chain"], "hopper");
}

/// What is printed as `accumulate` is taken as one.
#[test]
fn the_order_printed_is_one_that_is_taken() {
    let split = "{sum: {split: {contiguous: {parts: 2, granule: 64}}, each: multiply_add}}";
    let probe = |accumulate: &str| {
        let op = format!("{{a: f32, b: f32, out: f16, accumulate: {accumulate}}}");
        let Run { code, stdout, .. } = plumbline(&["probe", "gemm", "--n", "2", "--k", "300", "--op", &op]);
        assert_eq!(code, 0, "{stdout}");
        let line = stdout.lines().find_map(|line| line.trim().strip_prefix("accumulate: "));
        line.unwrap().to_owned()
    };
    let first = probe(split);
    assert_eq!(probe(&first), first);
}

#[test]
fn errors_name_the_option_and_what_to_do() {
    refused(&["--op", "{a: f16, b: f16, out: f32}"], &["--op", "accumulate: fma"]);
    refused(&["--op", "{a: f17, b: f16, out: f32}"], &["--op", "a: unknown format `f17`"]);
    refused(&["--op", "{a: f16, b: f16, out: e5m2, accumulate: fma}"], &["--op", "use f32, f16 or bf16"]);
    refused(&["--variant", "warp"], &["--variant", "parallel"]);
    refused(&["--k", "1"], &["--k", "from 2 to"]);
    refused(&["--json", "/no/such/folder/file"], &["--json", "cannot be written"]);
}
