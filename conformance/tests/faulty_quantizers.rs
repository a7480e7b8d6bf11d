//! Wrong quantizers are found by generated inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check};
use plumbline_conformance::adapter::DemoFault::{self, *};

const ROWS: [Row; 10] = [
    Row {
        fault: PackedSwapped,
        found_by: &[
            "mx_quantize/shapes/1",
            "mx_quantize/shapes/3",
            "mx_quantize/nvfp4_sources/f16",
            "mx_dequantize/every_scale/mxfp4_packed",
            "mx_dequantize/nvfp4/narrow/codes_first/direct/0x3ebd70a4/f16",
            "mx_dequantize/shapes/1",
        ],
        may_be_found_by: &[
            "mx_quantize/shapes",
            "mx_quantize/nvfp4_sources",
            "mx_quantize/nvfp4_stochastic",
            "mx_dequantize/every_scale",
            "mx_dequantize/nvfp4/narrow",
            "mx_dequantize/shapes",
        ],
    },
    Row {
        fault: FloorForCeil,
        found_by: &[
            "mx_quantize/rules/mxfp8_e4m3/ceil",
            "mx_quantize/rules/mxfp8_e5m2/ceil",
            "mx_quantize/rules/mxfp6_e2m3/ceil",
            "mx_quantize/rules/mxfp6_e3m2/ceil",
            "mx_quantize/rules/mxfp4/ceil",
        ],
        may_be_found_by: &["ceil"],
    },
    Row {
        fault: NanScaleLarge,
        found_by: &[
            "mx_dequantize/every_pair/mxfp8_e4m3/0",
            "mx_dequantize/every_pair/mxfp6_e2m3/1",
            "mx_dequantize/every_pair/mxfp4/bf16",
            "mx_dequantize/every_scale/mxfp4_packed",
            "mx_dequantize/random_bits/mxfp8_e5m2/direct/f16",
        ],
        may_be_found_by: &[
            "mx_dequantize/every_pair",
            "mx_dequantize/every_scale",
            "mx_dequantize/random_bits",
            "mx_dequantize/shapes",
        ],
    },
    Row {
        fault: TensorScaleDropped,
        found_by: &[
            "mx_quantize/nvfp4/divide/0x3ebd70a4",
            "mx_quantize/nvfp4/reciprocal/0x46000000",
            "mx_quantize/nvfp4_tensor_scale/divide/0x00000000",
            "mx_quantize/nvfp4_stochastic",
            "mx_dequantize/nvfp4/every_pair/codes_first/0x3ebd70a4",
            "mx_dequantize/nvfp4/every_pair/scales_first/0x80000000",
            "mx_dequantize/nvfp4/narrow/codes_first/direct/0x3ebd70a4/f16",
        ],
        may_be_found_by: &[
            "mx_quantize/nvfp4",
            "mx_quantize/nvfp4_tensor_scale",
            "mx_quantize/nvfp4_sources",
            "mx_quantize/nvfp4_shapes",
            "mx_quantize/nvfp4_stochastic",
            "mx_dequantize/nvfp4",
        ],
    },
    Row {
        fault: TiesToEven,
        found_by: &["int8_quantize/ties/254/nearest_away/q8_0"],
        may_be_found_by: &["q8_0"],
    },
    Row {
        fault: Wraps,
        found_by: &[
            "int8_quantize/subnormals/q8_0",
            "int8_quantize/subnormals/q8_1",
            "int8_quantize/subnormals/q8_K",
        ],
        may_be_found_by: &[
            "int8_quantize/tiny",
            "int8_quantize/subnormals",
            "int8_quantize/extremes",
            "int8_quantize/any_size",
            "int8_quantize/any_bits",
            "int8_quantize/needle",
        ],
    },
    Row {
        fault: SumsShifted,
        found_by: &["int8_quantize/k/256/q8_K", "int8_quantize/any_size/nearest_away/q8_K"],
        may_be_found_by: &["q8_K"],
    },
    Row {
        fault: SumOfStoredFactor,
        found_by: &["int8_quantize/k/768/q8_1", "int8_quantize/k_of_32/1056/q8_1"],
        may_be_found_by: &["q8_1"],
    },
    Row { fault: SignDropped, found_by: &["quantize/rows/q4_0"], may_be_found_by: &["q4_0"] },
    Row {
        fault: LastGroupZero,
        found_by: &[
            "quantize/rows/q2_K",
            "quantize/rows/q3_K",
            "quantize/rows/q4_K",
            "quantize/rows/q5_K",
            "quantize/rows/q6_K",
            "quantize/rows/q8_K",
            "quantize/rows/iq4_xs",
            "quantize/rows/tq1_0",
            "quantize/rows/tq2_0",
            "int8_quantize/k/256/q8_K",
        ],
        may_be_found_by: &["q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "q8_K", "iq4_xs", "tq1_0", "tq2_0"],
    },
];

#[test]
fn each_fault_is_found_by_generated_cases_that_are_about_it() {
    let cases = cases_of(&["mx_quantize.yaml", "mx_dequantize.yaml", "quantize.yaml", "int8_quantize.yaml"]);
    let cases: Vec<_> = cases.into_iter().filter(|case| case.oracle().is_some()).collect();
    check(&ROWS, &cases);
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_quantizing());
    assert!(faults.into_iter().all(|fault| ROWS.iter().any(|row| row.fault == *fault)));
}
