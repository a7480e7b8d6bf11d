//! Wrong elementwise functions, softmaxes and attentions are found by the cases about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use plumbline_conformance::adapter::DemoFault;

const FILES: [&str; 10] = [
    "math.yaml",
    "relu.yaml",
    "silu.yaml",
    "gelu_tanh.yaml",
    "gelu_erf.yaml",
    "quick_gelu.yaml",
    "swiglu.yaml",
    "softmax.yaml",
    "log_softmax.yaml",
    "attention.yaml",
];

#[test]
fn dump() {
    let cases = faults::cases_of(&FILES);
    for fault in DemoFault::value_variants().iter().filter(|fault| fault.is_of_functions()) {
        println!("{fault}: {:?}", faults::failing(*fault, &cases));
    }
}
