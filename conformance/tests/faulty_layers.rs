//! Wrong layers are found by cases that are about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check};
use plumbline_conformance::adapter::DemoFault::{self, *};

const ROWS: [Row; 14] = [
    Row {
        fault: EpsOutside,
        found_by: &[
            "rms_norm/known/eps_of_small_rows",
            "rms_norm/eps_bound/0x3f800000",
            "layer_norm/known/eps_of_small_rows",
            "layer_norm/eps_bound/0x3f800000",
        ],
        may_be_found_by: &["rms_norm", "layer_norm"],
    },
    Row {
        fault: WeightDropped,
        found_by: &[
            "rms_norm/known/weighted",
            "rms_norm/lengths_bound/33",
            "rms_norm/formats_bound/bf16/f16/f32",
            "layer_norm/known/weight_and_bias",
            "layer_norm/lengths_bound/33",
        ],
        may_be_found_by: &["rms_norm", "layer_norm"],
    },
    Row {
        fault: MeanOverWarps,
        found_by: &[
            "rms_norm/lengths_bound/31",
            "rms_norm/lengths_bound/1025",
            "rms_norm/formats_bound/f16/f16/f32",
            "layer_norm/lengths_bound/33",
        ],
        may_be_found_by: &["rms_norm", "layer_norm"],
    },
    Row {
        fault: RowTailDropped,
        found_by: &[
            "rms_norm/lengths_bound/33",
            "rms_norm/lengths_bound/257",
            "rms_norm/lengths/1025",
            "layer_norm/lengths_bound/257",
        ],
        may_be_found_by: &["rms_norm", "layer_norm"],
    },
    Row {
        fault: OnePassVariance,
        found_by: &[
            "layer_norm/known/offset",
            "layer_norm/offset_bound/4096/33",
            "layer_norm/offset_bound/4096/64",
            "layer_norm/offset_bound/-20000/64",
        ],
        may_be_found_by: &["layer_norm"],
    },
    Row {
        fault: PairingSwapped,
        found_by: &[
            "rope/known/halves",
            "rope/known/interleaved",
            "rope/heads_bound/64/3/halves",
            "rope/heads_bound/64/3/interleaved",
            "rope/angle_f32/2048/halves",
        ],
        may_be_found_by: &["rope"],
    },
    Row {
        fault: AngleF32,
        found_by: &[
            "rope/known/halves",
            "rope/positions/131072/false/halves",
            "rope/positions_bound/131072/interleaved",
            "rope/positions_bound/1000000/halves",
        ],
        may_be_found_by: &["rope"],
    },
    Row {
        fault: AngleF16,
        found_by: &[
            "rope/known/halves",
            "rope/positions_bound/2048/interleaved",
            "rope/angle_f32/2048/halves",
        ],
        may_be_found_by: &["rope"],
    },
    Row {
        fault: PositionOffByOne,
        found_by: &[
            "rope/known/position_0/halves",
            "rope/positions_bound/4/halves",
            "rope/positions_bound/1000000/interleaved",
            "rope/angle_f32/2048/interleaved",
        ],
        may_be_found_by: &["rope"],
    },
    Row {
        fault: SinSign,
        found_by: &["rope/known/inverse", "rope/known/halves", "rope/positions_bound/4/halves"],
        may_be_found_by: &["rope"],
    },
    Row {
        fault: TailRotated,
        found_by: &[
            "rope/partial/80/halves/10",
            "rope/partial/80/interleaved/32",
            "rope/partial_bound/80/halves/10",
            "rope/formats_bound/bf16/interleaved/20/f16",
        ],
        may_be_found_by: &[
            "rope/partial",
            "rope/partial_bound",
            "rope/formats",
            "rope/formats_bound",
            "rope/any_bits",
        ],
    },
    Row {
        fault: RowLate,
        found_by: &["kv_scatter/known", "kv_scatter/types/u8", "kv_scatter/first_and_last/0x0000001f"],
        may_be_found_by: &["kv_scatter"],
    },
    Row {
        fault: PositionClamped,
        found_by: &[
            "kv_scatter/refused/out_of_range/0x00000008",
            "kv_scatter/refused/out_of_range/0xffffffff",
            "kv_scatter/refused/twice",
            "kv_scatter/refused/no_place",
        ],
        may_be_found_by: &["kv_scatter/refused"],
    },
    Row {
        fault: HeadsTransposed,
        found_by: &["kv_scatter/known", "kv_scatter/types/f16"],
        may_be_found_by: &["kv_scatter"],
    },
];

const FILES: [&str; 4] = ["rms_norm.yaml", "layer_norm.yaml", "rope.yaml", "kv_scatter.yaml"];

#[test]
fn each_fault_is_found_by_cases_that_are_about_it() {
    check(&ROWS, &cases_of(&FILES));
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_layers());
    assert!(faults.into_iter().all(|fault| ROWS.iter().any(|row| row.fault == *fault)));
}

#[test]
fn angles_of_f32_are_right_where_a_case_declares_them() {
    let failing = faults::failing(AngleF32, &cases_of(&["rope.yaml"]));
    assert!(failing.iter().all(|name| !name.starts_with("rope/angle_f32/")), "{failing:#?}");
}
