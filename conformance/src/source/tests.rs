//! Outputs of one code throughout.

use super::{Given, Values};
use crate::load::load;
use std::path::PathBuf;
use std::{env, fs, process};

/// The file of a case that expects this, of a cast of 3 numbers.
fn file(name: &str, expect: &str) -> PathBuf {
    let file = env::temp_dir().join(format!("plumbline-{name}-{}.yaml", process::id()));
    let case = "cases: [{name: a, op: {cast: {from: f32, to: e4m3fn}}, inputs: [{dtype: f32, shape: [3], \
                generate: random_finite}], expect: [EXPECT]}]";
    fs::write(&file, case.replace("EXPECT", expect)).unwrap();
    file
}

#[test]
fn one_code_becomes_a_tensor_when_the_case_is_built() {
    let file = file("all", r#"{dtype: e4m3fn, shape: [3], all: "0x7e"}"#);
    let case = load(&file).unwrap().remove(0);
    fs::remove_file(file).unwrap();
    assert!(matches!(case.expected.as_ref().unwrap()[0].values, Given::All(0x7e)));
    let built = case.build(0).unwrap();
    let Values::Dense(tensor) = &built.expected[0].values else { panic!("{:?}", built.expected) };
    assert_eq!(tensor.codes().collect::<Vec<_>>(), [0x7e; 3]);
}

/// As many strings would take tens of GiB.
#[test]
fn one_code_for_the_largest_output_costs_no_memory_to_load() {
    for (expect, part) in [
        (r#"{dtype: e4m3fn, shape: [1073741824], all: "0x7e"}"#, "the operation gives [3]"),
        (r#"{dtype: e4m3fn, shape: [1073741825], all: "0x7e"}"#, "GiB"),
        (r#"{dtype: e4m3fn, shape: [3], all: "0x7"}"#, "all: "),
        (r#"{dtype: e4m3fn, all: "0x7e"}"#, "`all` needs `shape`"),
        (r#"{dtype: e4m3fn, shape: [3], all: "0x7e", tensor: t}"#, "needs `bits` or `all`"),
    ] {
        let file = file("all-large", expect);
        let error = load(&file).unwrap_err().to_string();
        fs::remove_file(file).unwrap();
        assert!(error.contains(part), "{error}");
    }
}
