//! Wrong operations that are made of others are found by their cases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check, failing};
use plumbline_conformance::adapter::DemoFault::{self, *};
use std::collections::BTreeSet;

const ROWS: [Row; 0] = [];

const FILES: [&str; 3] = ["gemm_fused.yaml", "prefill_linear.yaml", "dispatch.yaml"];

#[test]
fn each_fault_is_found_by_the_cases_about_it_and_by_no_others() {
    for fault in DemoFault::value_variants().iter().filter(|fault| fault.is_of_steps()) {
        println!("{fault} {:#?}", failing(*fault, &cases_of(&FILES)));
    }
}
