//! Wrong elementwise functions, softmaxes and attentions are found by the cases about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/faults.rs"]
mod faults;

use clap::ValueEnum;
use faults::{Row, cases_of, check};
use plumbline_conformance::adapter::DemoFault::{self, *};

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

const ROWS: [Row; 23] = [
    Row {
        fault: GeluTailLost,
        found_by: &[
            "gelu_tanh/every_input_within_bound/bf16",
            "gelu_tanh/f32_within_bound",
            "gelu_erf/every_input_within_bound/bf16",
            "gelu_erf/f32_within_bound",
        ],
        may_be_found_by: &["gelu_tanh", "gelu_erf"],
    },
    Row {
        fault: TanhOverflows,
        found_by: &[
            "gelu_tanh/every_input_within_bound/f16",
            "gelu_tanh/f32_edges",
            "math/every_bf16/tanh",
            "math/within_bound/tanh",
        ],
        may_be_found_by: &["gelu_tanh", "tanh"],
    },
    Row {
        fault: GeluVariantSwapped,
        found_by: &[
            "gelu_tanh/every_input_within_bound/bf16",
            "gelu_erf/every_input_within_bound/f16",
            "gelu_erf/f32_within_bound",
        ],
        may_be_found_by: &["gelu_tanh", "gelu_erf"],
    },
    Row {
        fault: MinusInfinityIsNan,
        found_by: &["silu/every_input_within_bound/f16", "silu/f32_edges"],
        may_be_found_by: &["silu"],
    },
    Row {
        fault: ReluSwallowsNan,
        found_by: &["relu/every_input/bf16/bf16", "relu/every_input_within_bound/f16", "relu/f32_edges"],
        may_be_found_by: &["relu"],
    },
    Row {
        fault: GateSwapped,
        found_by: &["swiglu/every_gate_within_bound/bf16", "swiglu/f32/random_finite", "swiglu/sizes/f32/1"],
        may_be_found_by: &["swiglu"],
    },
    Row {
        fault: ExpFlushed,
        found_by: &["math/f32_edges/exp", "math/f32_edges/exp2", "math/within_bound/exp"],
        may_be_found_by: &["exp", "exp2"],
    },
    Row {
        fault: AnglesOfF32,
        found_by: &["math/every_bf16/sin", "math/within_bound/sin", "math/within_bound/cos"],
        may_be_found_by: &["sin", "cos"],
    },
    Row {
        fault: WithoutMaximum,
        found_by: &["softmax/offset", "softmax/widths/1", "softmax/widths_within_bound/33"],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: MaximumFromZero,
        found_by: &["softmax/offset", "softmax/widths/1", "softmax/widths_within_bound/33"],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: PerWarp,
        found_by: &[
            "softmax/widths_within_bound/33",
            "softmax/formats/f32/f32",
            "softmax/scale_within_bound/random_finite/0x3e000000",
        ],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: RowRestDropped,
        found_by: &["softmax/widths_within_bound/33", "softmax/widths/257"],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: LeadingTileIsNan,
        found_by: &["softmax/widths_within_bound/257", "softmax/widths/129"],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: MaskOffByOne,
        found_by: &["softmax/causal/zeros/0", "softmax/causal_within_bound/0"],
        may_be_found_by: &["softmax/causal", "softmax/causal_within_bound"],
    },
    Row {
        fault: FullyMaskedIsNan,
        found_by: &["softmax/causal/zeros/-1", "softmax/fully_masked/zeros", "softmax/widths_within_bound/1"],
        may_be_found_by: &["softmax"],
    },
    Row {
        fault: LogOfQuotient,
        found_by: &["log_softmax/offset", "log_softmax/widths/33"],
        may_be_found_by: &["log_softmax"],
    },
    Row {
        fault: AlignmentSwapped,
        found_by: &[
            "attention/rectangle/bottom_right",
            "attention/rectangles/top_left/2/9",
            "attention/prefill_within_bound/bottom_right/64",
        ],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: HeadScaleDropped,
        found_by: &[
            "attention/prefill/none/64",
            "attention/prefill_within_bound/none/64",
            "attention/groups/2",
        ],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: LastSlotDropped,
        found_by: &[
            "attention/prefill/none/64",
            "attention/prefill_within_bound/none/64",
            "attention/decode/f16/33",
        ],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: GroupsInterleaved,
        found_by: &["attention/groups/2", "attention/groups/4", "attention/prefill_within_bound/none/64"],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: UnusedSlotsRead,
        found_by: &[
            "attention/unused_slot_is_nan/none/two_pass",
            "attention/decode/f16/33",
            "attention/decode_within_bound/f32/33",
        ],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: ProductsInF16,
        found_by: &["attention/products_beyond_f16/both"],
        may_be_found_by: &["attention"],
    },
    Row {
        fault: RescaleDropped,
        found_by: &["attention/online/f32/300/32", "attention/decode_online/f16/97"],
        may_be_found_by: &["attention"],
    },
];

#[test]
fn each_fault_is_found_by_cases_that_are_about_it() {
    check(&ROWS, &cases_of(&FILES));
    let faults = DemoFault::value_variants().iter().filter(|fault| fault.is_of_functions());
    assert!(faults.into_iter().all(|fault| ROWS.iter().any(|row| row.fault == *fault)));
}
