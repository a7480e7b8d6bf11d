//! Where implementations may legally differ, a case says which way is meant: another one fails unless
//! it is declared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_conformance::adapter::Closure;
use plumbline_conformance::case::NanJudge;
use plumbline_conformance::fuzz::{Finding, Targets};
use plumbline_conformance::registry::Trial;
use plumbline_conformance::setup::Subject;
use plumbline_reference::Path;
use plumbline_reference::ops::Op;
use serde_json::{Value, json};

/// Samples in which a difference must show.
const ENOUGH: u64 = 3000;
/// Samples of an implementation that does what it declares.
const FEW: u64 = 20;

/// An operation, a policy of it, and ways that are all legal, the usual one first.
fn policies() -> Vec<(&'static str, Value, &'static str, Vec<Value>)> {
    let to_e4m3 = || json!({"from": "f32", "to": "e4m3fn"});
    let to_e5m2 = || json!({"from": "f32", "to": "e5m2"});
    let mx = || json!({"from": "f32", "format": "mxfp4"});
    let nvfp4 = || json!({"from": "f32", "format": "nvfp4"});
    let masked = || json!({"from": "f32", "to": "f32", "causal": {"offset": -2}});
    let attention = || json!({"q": "f32", "kv": "f32", "out": "f32"});
    let gemm = || json!({"a": "f32", "b": "f32", "out": "f32"});
    let ways = |ways: &[&str]| ways.iter().map(|&way| way.into()).collect();
    vec![
        ("cast", to_e4m3(), "rounding", ways(&["nearest_even", "nearest_away", "toward_zero"])),
        ("cast", to_e4m3(), "overflow", ways(&["saturate", "to_inf_or_nan"])),
        ("cast", to_e5m2(), "overflow", ways(&["saturate", "to_inf_or_nan"])),
        ("cast", to_e5m2(), "infinities", ways(&["saturate", "propagate"])),
        ("cast", to_e4m3(), "nan", ways(&["canonical", "sign_kept", "max_finite"])),
        ("cast", to_e4m3(), "subnormals", ways(&["kept", "flushed_before", "flushed_after"])),
        ("cast", to_e4m3(), "negative_zero", ways(&["kept", "dropped"])),
        ("scaled_cast", to_e4m3(), "scale_op", ways(&["multiply", "divide", "reciprocal"])),
        ("absmax", json!({"from": "f32"}), "nan", ways(&["propagate", "ignore"])),
        ("device_scaled_cast", to_e4m3(), "tiny", ways(&["reciprocal", "quotient"])),
        ("device_scaled_cast", to_e4m3(), "special", ways(&["propagate", "unit"])),
        ("mx_quantize", mx(), "scale_rule", ways(&["floor", "ceil", "even", "ceil_log2"])),
        ("mx_quantize", mx(), "non_finite", ways(&["nan_scale", "per_element", "saturate"])),
        ("mx_quantize", nvfp4(), "element_op", ways(&["divide", "reciprocal"])),
        ("dequantize", json!({"from": "q4_K", "to": "f16"}), "conversion", ways(&["direct", "via_f32"])),
        ("softmax", masked(), "fully_masked", ways(&["zeros", "nan"])),
        ("attention", attention(), "causal", ways(&["none", "top_left", "bottom_right"])),
        ("gemm", gemm(), "accumulate", ways(&["fma", "multiply_add", "pairwise"])),
    ]
}

fn operation(name: &str, mut fields: Value, policy: &str, way: &Value) -> Op {
    fields[policy] = way.clone();
    serde_json::from_value(json!({ name: fields })).unwrap()
}

/// What fuzzing finds of a backend that says `declared` and does `done`.
fn found(declared: &Op, done: &Op, samples: u64) -> Option<Finding> {
    let done = done.clone();
    let backend = Closure::new("backend", declared.clone(), move |inputs| {
        Ok(done.evaluate(inputs, Path::Definition).unwrap())
    });
    // So that the sign of a NaN counts.
    let subject = Subject { nan: NanJudge::Bits, ..Subject::foreign(backend) };
    let targets = Targets::new(&[subject], |_, _| Vec::new()).targets;
    let [target] = &targets[..] else { panic!("{} is of no target", declared.name()) };
    target.search(0).run(samples, Trial::run)
}

#[test]
fn a_legal_policy_that_is_not_declared_is_found() {
    for (name, fields, policy, ways) in policies() {
        let of = |way| operation(name, fields.clone(), policy, way);
        for way in &ways[1..] {
            assert!(found(&of(&ways[0]), &of(way), ENOUGH).is_some(), "{name}: {policy} is {way}");
        }
    }
}

#[test]
fn a_legal_policy_that_is_declared_passes() {
    for (name, fields, policy, ways) in policies() {
        for way in &ways[1..] {
            let op = operation(name, fields.clone(), policy, way);
            assert_eq!(found(&op, &op, FEW), None, "{name}: {policy} is {way}");
        }
    }
}
