//! Every mutant: faults beside the operations that can have them.
//!
//! What cannot change any result of an operation is left out here, as "an operation has no such input",
//! or stands in [`equal`](super::equal) with its proof.

use super::{EncodingFault, How, InputFault, Meaning, Mutant, OutputFault, StepFault};
use crate::adapter::DemoFault;
use crate::verdict::SEQUENCE;
use InputFault::*;
use Meaning::*;
use plumbline_reference::format::{BF16, F16};
use plumbline_reference::ops::Op;

/// Every mutant, those of an operation together.
#[must_use]
pub fn all() -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for &operation in Op::NAMES.iter().chain(&[SEQUENCE]) {
        let mut add = |fault: String, how| mutants.push(Mutant { operation, fault, how });
        let rows = DEMOS.iter().filter(|(operations, ..)| operations.contains(&operation));
        rows.flat_map(|(_, faults)| *faults).for_each(|fault| add(fault.to_string(), How::Demo(*fault)));
        let rows = MEANINGS.iter().filter(|(operations, ..)| operations.contains(&operation));
        rows.for_each(|(_, fault, meaning)| add((*fault).to_owned(), How::Meaning(*meaning)));
        let rows = ROUNDINGS.iter().filter(|(operations, ..)| operations.contains(&operation));
        rows.for_each(|(_, fault, rounding)| add((*fault).to_owned(), How::Encoding(*rounding)));
        let rows = INPUTS.iter().filter(|(operations, ..)| operations.contains(&operation));
        rows.for_each(|(_, fault, input)| add((*fault).to_owned(), How::Inputs(*input)));
        let rows = OUTPUTS.iter().filter(|(operations, ..)| operations.holds(operation));
        rows.for_each(|(_, fault, output)| add((*fault).to_owned(), How::Outputs(*output)));
        let rows = STEPS.iter().filter(|(operations, ..)| operations.holds(operation));
        rows.for_each(|(_, fault, step)| add((*fault).to_owned(), How::Steps(*step)));
    }
    mutants
}

/// Operations that encode under a policy.
const ENCODINGS: &[&str] = &["cast", "scaled_cast", "device_scaled_cast", "mx_quantize"];
/// Functions of one element.
const FUNCTIONS: &[&str] = &["math", "relu", "silu", "gelu_tanh", "gelu_erf", "quick_gelu"];
/// Operations on rows.
const ROWS: &[&str] = &["softmax", "log_softmax", "rms_norm", "layer_norm"];
/// Products that declare the order in which they sum.
const PRODUCTS: &[&str] = &["gemm", "gemm_fused", "prefill_linear"];
/// Products that a warp sums.
const OF_WARPS: &[&str] = &["gemv", "batched_gemv"];
/// A warp's order: a lane has every 32nd product.
const WARP: &str = "{sum: {split: {interleaved: {parts: 32, run: 1}}, each: fma, reduce: halves}}";
/// Products of matrices of numbers.
const MATRICES: &[&str] = &["gemm", "gemm_fused"];
/// Products of GGML blocks with numbers.
const BLOCK_PRODUCTS: &[&str] = &["gemv", "batched_gemv", "prefill_linear", "dispatch"];
/// Operations with cases of inputs that do not fit.
const REFUSING: &[&str] = &[
    "gemm_fused",
    "dequantize",
    "gemv",
    "batched_gemv",
    "prefill_linear",
    "dispatch",
    "rms_norm",
    "layer_norm",
    "rope",
    "kv_scatter",
];

/// Faults that come with a backend of their own.
const DEMOS: &[(&[&str], &[DemoFault])] = {
    use DemoFault::*;
    &[
        (
            &["cast"],
            &[
                Cast465ToNan,
                Lost,
                Panic,
                OutOfMemory,
                WritePastEnd,
                WriteInput,
                Unwritten,
                Nondeterministic,
                ReadsOutside,
            ],
        ),
        (
            &["gemm"],
            &[
                TailDropped,
                BlockTwice,
                ScaleDropped,
                ScaleTwice,
                BetaRead,
                BiasOfRows,
                RowsSwapped,
                Tf32,
                FractionBits,
                RoundedBlocks,
                FirstBatch,
            ],
        ),
        (
            &["dequantize", "gemv", "batched_gemv"],
            &[NibblesSwapped, GroupsSwapped, FifthBit, HighScaleBits, MinSign, FirstBlockOnly, ShortHeader],
        ),
        (&["gemv", "batched_gemv"], &[DepthCut, StoredSum, LaneLost]),
        (&["batched_gemv"], &[RowStride]),
        (&["mx_quantize"], &[FloorForCeil]),
        (&["mx_dequantize"], &[NanScaleLarge]),
        (&["mx_quantize", "mx_dequantize"], &[PackedSwapped, TensorScaleDropped]),
        (&["int8_quantize"], &[TiesToEven, Wraps, SumsShifted, SumOfStoredFactor]),
        (&["quantize"], &[SignDropped]),
        (&["quantize", "int8_quantize"], &[LastGroupZero]),
        (&["gemm_fused"], &[FusedBiasOfRows, BiasOf256, NanSwallowed, GeluSwapped]),
        (
            &["prefill_linear", "dispatch"],
            &[PaddingInAbsmax, LastBlockDropped, RowsReversed, AlphaDropped, ActivationScaleDropped],
        ),
        (&["prefill_linear"], &[SaturatedInF16]),
        (&["dispatch"], &[ThresholdOffByOne]),
        (&["gelu_tanh", "gelu_erf"], &[GeluTailLost, GeluVariantSwapped]),
        (&["gelu_tanh", "math"], &[TanhOverflows]),
        (&["silu"], &[MinusInfinityIsNan]),
        (&["relu"], &[ReluSwallowsNan]),
        (&["swiglu"], &[GateSwapped]),
        (&["math"], &[ExpFlushed, AnglesOfF32]),
        (
            &["softmax"],
            &[
                WithoutMaximum,
                MaximumFromZero,
                PerWarp,
                RowRestDropped,
                LeadingTileIsNan,
                MaskOffByOne,
                FullyMaskedIsNan,
            ],
        ),
        (&["log_softmax"], &[LogOfQuotient]),
        (
            &["attention"],
            &[
                AlignmentSwapped,
                HeadScaleDropped,
                LastSlotDropped,
                GroupsInterleaved,
                UnusedSlotsRead,
                ProductsInF16,
                RescaleDropped,
            ],
        ),
        (&["rms_norm", "layer_norm"], &[EpsOutside, WeightDropped, MeanOverWarps, RowTailDropped]),
        (&["layer_norm"], &[OnePassVariance]),
        (&["rope"], &[PairingSwapped, AngleF32, AngleF16, PositionOffByOne, SinSign, TailRotated]),
        (&["kv_scatter"], &[RowLate, PositionClamped, HeadsTransposed]),
        (
            &[SEQUENCE],
            &[
                StaleWeightCache,
                StaleActivationCache,
                BakedConstant,
                ScratchGrowth,
                GraphBakesInputs,
                WorkspaceDependent,
                MissingStreamOrder,
                NondeterministicRepeat,
                AbsmaxNotCleared,
                GoneHostSource,
            ],
        ),
    ]
};

/// Parameters that are taken for others.
const MEANINGS: &[(&[&str], &str, Meaning)] = &[
    (ENCODINGS, "toward_zero", For("rounding", "nearest_even", "toward_zero")),
    (ENCODINGS, "up", For("rounding", "nearest_even", "up")),
    (ENCODINGS, "down", For("rounding", "nearest_even", "down")),
    (ENCODINGS, "ties_away", For("rounding", "nearest_even", "nearest_away")),
    (&["cast", "scaled_cast"], "no_saturation", For("overflow", "saturate", "to_inf_or_nan")),
    (
        &["cast", "scaled_cast", "device_scaled_cast"],
        "infinity_kept",
        For("infinities", "saturate", "propagate"),
    ),
    (&["cast"], "infinity_saturated", For("infinities", "propagate", "saturate")),
    (&["cast"], "always_saturated", For("overflow", "to_inf_or_nan", "saturate")),
    (&["cast", "scaled_cast", "device_scaled_cast"], "nan_is_max", For("nan", "canonical", "max_finite")),
    (ENCODINGS, "flushed_before", Field("subnormals", "flushed_before")),
    (ENCODINGS, "flushed_after", Field("subnormals", "flushed_after")),
    (ENCODINGS, "negative_zero_dropped", Field("negative_zero", "dropped")),
    (&["scaled_cast"], "multiplied_for_divided", Meaning::Swapped("scale_op", "multiply", "divide")),
    (&["scaled_cast"], "reciprocal_for_divided", For("scale_op", "divide", "reciprocal")),
    (&["scaled_cast"], "divided_for_reciprocal", For("scale_op", "reciprocal", "divide")),
    (&["device_scaled_cast"], "reciprocal_for_multiplied", For("scale_op", "multiply", "reciprocal")),
    (&["device_scaled_cast"], "divided_for_multiplied", For("scale_op", "multiply", "divide")),
    (&["device_scaled_cast"], "tiny", Meaning::Swapped("tiny", "reciprocal", "quotient")),
    (&["device_scaled_cast"], "special", Meaning::Swapped("special", "propagate", "unit")),
    (&["absmax"], "nan_ignored", For("nan", "propagate", "ignore")),
    (&["absmax"], "nan_propagated", For("nan", "ignore", "propagate")),
    (&["mx_quantize"], "ceil_for_floor", For("scale_rule", "floor", "ceil")),
    (&["mx_quantize"], "even_for_floor", For("scale_rule", "floor", "even")),
    (&["mx_quantize"], "floor_for_even", For("scale_rule", "even", "floor")),
    (&["mx_quantize"], "rceil_for_ceil", For("scale_rule", "ceil", "rceil")),
    (&["mx_quantize"], "nan_scale_lost", For("non_finite", "nan_scale", "per_element")),
    (&["mx_quantize"], "nan_scale_saturated", For("non_finite", "nan_scale", "saturate")),
    (&["mx_quantize"], "per_element_saturated", For("non_finite", "per_element", "saturate")),
    (&["mx_quantize"], "reciprocal_for_divided", For("element_op", "divide", "reciprocal")),
    (&["mx_quantize"], "divided_for_reciprocal", For("element_op", "reciprocal", "divide")),
    (&["mx_dequantize"], "order", Meaning::Swapped("order", "codes_first", "scales_first")),
    (&["mx_dequantize"], "rounded_twice", For("output", "direct", "via_f32")),
    (&["mx_dequantize"], "rounded_once", For("output", "via_f32", "direct")),
    (&["dequantize"], "rounded_twice", For("conversion", "direct", "via_f32")),
    (&["dequantize"], "rounded_once", For("conversion", "via_f32", "direct")),
    (
        PRODUCTS,
        "descending",
        For("accumulate", "fma", "{sum: {split: {every: 1}, each: fma, reduce: descending}}"),
    ),
    (PRODUCTS, "pairwise", For("accumulate", "fma", "pairwise")),
    (PRODUCTS, "unfused", For("accumulate", "fma", "multiply_add")),
    (
        PRODUCTS,
        "split_k",
        For("accumulate", "fma", "{sum: {split: {contiguous: {parts: 2, granule: 1}}, each: fma}}"),
    ),
    (
        PRODUCTS,
        "partials_in_f16",
        For("accumulate", "fma", "{sum: {split: {every: 16}, each: fma, partials: f16}}"),
    ),
    (OF_WARPS, "one_lane", For("accumulate", WARP, "fma")),
    (OF_WARPS, "pairwise", For("accumulate", WARP, "pairwise")),
    (
        OF_WARPS,
        "lanes_of_runs",
        For(
            "accumulate",
            WARP,
            "{sum: {split: {interleaved: {parts: 32, run: 2}}, each: fma, reduce: halves}}",
        ),
    ),
    (
        OF_WARPS,
        "lanes_ascending",
        For("accumulate", WARP, "{sum: {split: {interleaved: {parts: 32, run: 1}}, each: fma}}"),
    ),
    (
        OF_WARPS,
        "half_a_warp",
        For(
            "accumulate",
            WARP,
            "{sum: {split: {interleaved: {parts: 16, run: 1}}, each: fma, reduce: halves}}",
        ),
    ),
    (
        OF_WARPS,
        "lanes_unfused",
        For(
            "accumulate",
            WARP,
            "{sum: {split: {interleaved: {parts: 32, run: 1}}, each: multiply_add, reduce: halves}}",
        ),
    ),
    (
        OF_WARPS,
        "partials_in_f16",
        For(
            "accumulate",
            WARP,
            "{sum: {split: {interleaved: {parts: 32, run: 1}}, each: fma, reduce: halves, partials: f16}}",
        ),
    ),
    (&["dispatch"], "gemm_pairwise", For("gemm", "fma", "pairwise")),
    (&["dispatch"], "gemv_one_lane", For("gemv", WARP, "fma")),
    (&["gemm"], "tensor_core_for_fma", For("accumulate", "fma", "{chain: hopper}")),
    (&["gemm"], "fma_for_tensor_core", For("accumulate", "{chain: hopper}", "fma")),
    (&["gemm"], "ampere_for_hopper", For("accumulate", "{chain: hopper}", "{chain: ampere}")),
    (&["gemm"], "a_not_transposed", For("transpose_a", "true", "false")),
    (&["gemm"], "b_not_transposed", For("transpose_b", "true", "false")),
    (&["gemm"], "b_transposed", For("transpose_b", "false", "true")),
    (&["gemm"], "alpha_dropped", Field("alpha", "'0x3f800000'")),
    (&["gemm"], "beta_dropped", Field("beta", "'0x00000000'")),
    (&["gemm"], "beta_one", Field("beta", "'0x3f800000'")),
    (&["gemm"], "epilogue_unfused", For("epilogue", "fused_product", "rounded_product")),
    (&["gemm"], "epilogue_addend", Meaning::Swapped("epilogue", "fused_product", "fused_addend")),
    (
        &["gemm"],
        "operands_truncated",
        For("operands", "{to: tf32, rounding: nearest_even}", "{to: tf32, rounding: toward_zero}"),
    ),
    (&["gemm_fused"], "activation_dropped", Field("activation", "none")),
    (&["gemm_fused"], "silu_for_quick_gelu", Meaning::Swapped("activation", "silu", "quick_gelu")),
    (&["gemm_fused"], "erf_for_tanh", For("activation", "gelu_tanh", "gelu_erf")),
    (&["prefill_linear"], "rounded_once", For("conversion", "via_f32", "direct")),
    (&["prefill_linear", "dispatch"], "f16_for_dequantized", For("route", "dequantized", "f16")),
    (&["prefill_linear"], "fp8_for_fp8_via_f16", Meaning::Swapped("route", "fp8", "fp8_via_f16")),
    (&["dispatch"], "threshold_one_more", Plus(&["threshold"], 1)),
    (&["dispatch"], "threshold_one_less", Plus(&["threshold"], -1)),
    (&["dispatch"], "always_gemm", Field("threshold", "0")),
    (&["dispatch"], "never_gemm", Field("threshold", "16")),
    (&["int8_quantize"], "away_for_even", For("rounding", "nearest_even", "nearest_away")),
    (&["int8_quantize"], "even_for_away", For("rounding", "nearest_away", "nearest_even")),
    (&["math"], "exp2_for_exp", Meaning::Swapped("function", "exp", "exp2")),
    (&["math"], "cos_for_sin", Meaning::Swapped("function", "sin", "cos")),
    (&["math"], "erf_for_normal_cdf", Meaning::Swapped("function", "erf", "normal_cdf")),
    (&["math"], "tanh_for_erf", Meaning::Swapped("function", "tanh", "erf")),
    (&["relu"], "is_silu", As("silu")),
    (&["silu"], "is_quick_gelu", As("quick_gelu")),
    (&["silu"], "is_relu", As("relu")),
    (&["quick_gelu"], "is_silu", As("silu")),
    (&["quick_gelu"], "is_gelu_tanh", As("gelu_tanh")),
    (&["gelu_tanh"], "is_quick_gelu", As("quick_gelu")),
    (&["gelu_erf"], "is_quick_gelu", As("quick_gelu")),
    (&["softmax"], "is_log_softmax", As("log_softmax")),
    (&["log_softmax"], "is_softmax", As("softmax")),
    (&["softmax", "log_softmax"], "scale_dropped", Field("scale", "'0x3f800000'")),
    (&["softmax", "log_softmax"], "mask_dropped", Field("causal", "null")),
    (&["softmax", "log_softmax"], "mask_one_more", Plus(&["causal", "offset"], 1)),
    (&["softmax", "log_softmax"], "mask_one_less", Plus(&["causal", "offset"], -1)),
    (&["log_softmax"], "fully_masked_is_nan", For("fully_masked", "zeros", "nan")),
    (&["attention"], "mask_dropped", Field("causal", "none")),
    (&["attention"], "mask_one_more", Plus(&["causal", "offset"], 1)),
    (&["attention"], "mask_one_less", Plus(&["causal", "offset"], -1)),
    (&["attention"], "length_dropped", Field("length", "null")),
    (&["attention"], "length_one_less", Plus(&["length"], -1)),
    (&["attention"], "scale_one", Field("scale", "'0x3f800000'")),
    (&["attention"], "two_pass_for_online", Field("softmax", "two_pass")),
    (&["attention"], "fully_masked_is_nan", For("fully_masked", "zeros", "nan")),
    (&["attention"], "probabilities_in_bf16", Field("probabilities", "bf16")),
    (&["rms_norm"], "is_layer_norm", As("layer_norm")),
    (&["layer_norm"], "is_rms_norm", As("rms_norm")),
    (&["rms_norm", "layer_norm"], "eps_dropped", Field("eps", "'0x00000000'")),
    (&["rms_norm", "layer_norm"], "eps_other", For("eps", "'0x3727c5ac'", "'0x358637bd'")),
    (&["rope"], "base_other", Field("base", "'0x49742400'")),
    (&["rope"], "rotary_dim_dropped", Field("rotary_dim", "null")),
    (&["rope"], "never_inverse", Field("inverse", "false")),
];

/// Roundings that are wrong for few inputs.
const ROUNDINGS: &[(&[&str], &str, EncodingFault)] = &[
    (ENCODINGS, "carry_lost", EncodingFault::CarryLost),
    (ENCODINGS, "subnormals_cut", EncodingFault::SubnormalsCut),
    (ENCODINGS, "normals_cut", EncodingFault::NormalsCut),
    (ENCODINGS, "negatives_cut", EncodingFault::NegativesCut),
    (ENCODINGS, "largest_lost", EncodingFault::LargestLost),
    (&["cast", "scaled_cast"], "ties_cut", EncodingFault::TiesCut),
    (&["cast", "scaled_cast"], "zero_with_sign", EncodingFault::ZeroWithSign),
];

/// Inputs that are seen otherwise.
const INPUTS: &[(&[&str], &str, InputFault)] = &[
    (&["cast", "scaled_cast", "device_scaled_cast", "mx_quantize"], "through_f16", Through(0, F16)),
    (
        &["cast", "scaled_cast", "device_scaled_cast", "mx_quantize", "int8_quantize", "quantize"],
        "through_bf16",
        Through(0, BF16),
    ),
    (&["absmax", "rope", "swiglu", "attention"], "through_bf16", Through(0, BF16)),
    (FUNCTIONS, "through_bf16", Through(0, BF16)),
    (ROWS, "through_bf16", Through(0, BF16)),
    (MATRICES, "through_bf16", Through(0, BF16)),
    (BLOCK_PRODUCTS, "activations_in_bf16", Through(1, BF16)),
    (ENCODINGS, "inputs_flushed", Flushed(0)),
    (&["decode", "scaled_decode", "absmax", "swiglu", "mx_dequantize", "mma"], "inputs_flushed", Flushed(0)),
    (&["gemm"], "inputs_flushed", Flushed(0)),
    (&["cast", "scaled_cast", "device_scaled_cast"], "inputs_without_zero_sign", ZeroWithoutSign(0)),
    (&["cast", "scaled_cast", "device_scaled_cast"], "input_nan_is_zero", NanIsZero(0)),
    (FUNCTIONS, "input_nan_is_zero", NanIsZero(0)),
    (ROWS, "input_nan_is_zero", NanIsZero(0)),
    (&["absmax", "scaled_decode", "swiglu", "gemm", "attention", "rope"], "input_nan_is_zero", NanIsZero(0)),
    (
        &["cast", "scaled_cast", "absmax", "swiglu", "softmax", "log_softmax", "rms_norm"],
        "input_infinity_is_large",
        InfinityIsLarge(0),
    ),
    (&["absmax"], "negatives_lost", NegativesLost(0)),
    (&["cast", "decode", "classify", "scaled_cast", "scaled_decode"], "input_sign_lost", SignLost(0)),
    (FUNCTIONS, "input_sign_lost", SignLost(0)),
    (
        &["absmax", "softmax", "log_softmax", "rms_norm", "layer_norm", "rope", "swiglu"],
        "last_input_lost",
        LastLost(0),
    ),
    (&["quantize", "int8_quantize", "mx_quantize"], "last_input_lost", LastLost(0)),
    (&["quantize", "int8_quantize", "mx_quantize"], "pairs_swapped", PairsSwapped(0)),
    (&["gemm", "gemm_fused", "mma"], "last_of_a_lost", LastLost(0)),
    (&["gemm", "gemm_fused", "mma"], "last_of_b_lost", LastLost(1)),
    (BLOCK_PRODUCTS, "last_activation_lost", LastLost(1)),
    (BLOCK_PRODUCTS, "last_weight_lost", LastLost(0)),
    (&["softmax", "log_softmax", "rms_norm", "layer_norm", "absmax"], "row_tail_of_4", RowTail(0, 4)),
    (&["softmax", "log_softmax", "rms_norm", "layer_norm", "absmax"], "row_tail_of_8", RowTail(0, 8)),
    (&["softmax", "log_softmax", "rms_norm", "layer_norm", "absmax"], "row_tail_of_32", RowTail(0, 32)),
    (&["softmax", "log_softmax", "rms_norm", "layer_norm", "absmax"], "row_tail_of_256", RowTail(0, 256)),
    (MATRICES, "k_tail_of_4", RowTail(0, 4)),
    (MATRICES, "k_tail_of_8", RowTail(0, 8)),
    (MATRICES, "k_tail_of_16", RowTail(0, 16)),
    (MATRICES, "k_tail_of_32", RowTail(0, 32)),
    (MATRICES, "k_tail_of_64", RowTail(0, 64)),
    (MATRICES, "k_tail_of_128", RowTail(0, 128)),
    (ROWS, "row_tail_of_1024", RowTail(0, 1024)),
    (&["attention"], "head_tail_of_8", RowTail(0, 8)),
    (&["attention"], "head_tail_of_32", RowTail(0, 32)),
    (&["rope"], "head_tail_of_8", RowTail(0, 8)),
    (BLOCK_PRODUCTS, "k_tail_of_64", RowTail(1, 64)),
    (BLOCK_PRODUCTS, "k_tail_of_512", RowTail(1, 512)),
    (
        &[
            "softmax",
            "log_softmax",
            "rms_norm",
            "layer_norm",
            "rope",
            "gemm",
            "gemm_fused",
            "mma",
            "attention",
            "swiglu",
        ],
        "first_row_of_input",
        FirstRow(0),
    ),
    (&["prefill_linear", "batched_gemv", "dispatch"], "first_row_of_input", FirstRow(1)),
    (&["gemm", "attention"], "first_of_batch", FirstOfBatch(0)),
    (&["gemm", "attention"], "first_of_batch_of_b", FirstOfBatch(1)),
    (&["softmax", "log_softmax", "rms_norm", "layer_norm", "absmax"], "input_transposed", Transposed(0)),
    (&["gemm", "gemm_fused", "mma"], "a_transposed", Transposed(0)),
    (&["gemm", "gemm_fused", "mma"], "b_misread", Transposed(1)),
    (&["gemm"], "strides_of_a_ignored", Unstrided(0)),
    (&["gemm"], "strides_of_b_ignored", Unstrided(1)),
    (&["gemm", "gemm_fused", "swiglu"], "operands_swapped", InputFault::Swapped(0, 1)),
    (&["attention"], "keys_and_values_swapped", InputFault::Swapped(1, 2)),
    (&["layer_norm"], "weight_and_bias_swapped", InputFault::Swapped(1, 2)),
    (&["scaled_cast", "scaled_decode", "device_scaled_cast", "mx_dequantize"], "scale_dropped", One(1)),
    (
        &["scaled_cast", "scaled_decode", "device_scaled_cast", "mx_dequantize"],
        "first_scale_for_all",
        First(1),
    ),
    (&["scaled_cast", "scaled_decode", "device_scaled_cast", "mx_dequantize"], "next_scale", Next(1)),
    (&["mx_dequantize"], "tensor_scale_one", One(2)),
    (&["mx_quantize"], "tensor_scale_one", One(1)),
    (&["cast"], "random_ignored", Zero(1)),
    (&["scaled_cast", "device_scaled_cast"], "random_ignored", Zero(2)),
    (&["cast"], "random_of_first", First(1)),
    (&["scaled_cast", "device_scaled_cast"], "random_of_first", First(2)),
    (&["mma"], "accumulator_dropped", Zero(2)),
    (&["mma"], "accumulator_transposed", Transposed(2)),
    (&["gemm_fused"], "bias_dropped", Zero(2)),
    (&["gemm_fused"], "bias_of_first", First(2)),
    (&["gemm_fused"], "bias_next", Next(2)),
    (&["layer_norm"], "bias_dropped", Zero(2)),
    (&["rms_norm", "layer_norm"], "weight_of_first", First(1)),
    (&["rms_norm", "layer_norm"], "weight_next", Next(1)),
    (&["rope"], "positions_of_first", First(1)),
    (&["rope"], "positions_dropped", Zero(1)),
    (&["kv_scatter"], "positions_swapped", PairsSwapped(1)),
    (&["kv_scatter"], "cache_dropped", Zero(2)),
    (&["kv_scatter"], "rows_of_first", FirstRow(0)),
    (&["mx_dequantize"], "nibbles", Nibbles(0)),
    (&["mx_dequantize"], "pairs_swapped", PairsSwapped(0)),
    (&["attention"], "first_value_for_all", FirstRow(2)),
    (&["attention"], "first_key_for_all", FirstRow(1)),
    (&["swiglu"], "gate_of_first", First(0)),
    (&["dequantize"], "last_byte_lost", LastLost(0)),
    (&["dequantize"], "next_byte", Next(0)),
];

/// The operations of a row.
enum Of {
    All,
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

impl Of {
    fn holds(&self, operation: &str) -> bool {
        let is_operation = operation != SEQUENCE;
        match self {
            Self::All => is_operation,
            Self::AllBut(others) => is_operation && !others.contains(&operation),
            Self::Only(operations) => operations.contains(&operation),
        }
    }
}

/// Operations whose outputs are short.
const SHORT: &[&str] = &["format_info", "absmax"];
/// Operations whose outputs are blocks or tiles of a multiple of 8 elements.
const WHOLE_EIGHTS: &[&str] = &["format_info", "mma", "dequantize", "mx_dequantize"];
/// Those of a multiple of 32.
const WHOLE_WARPS: &[&str] = &["format_info", "absmax", "mma", "dequantize"];
/// Operations whose outputs are no numbers.
const BYTES: &[&str] = &["classify", "quantize", "int8_quantize"];
/// Operations whose results are numbers without NaN and infinities; see `equal`.
const FINITE: &[&str] = &["classify", "quantize", "int8_quantize", "format_info"];
/// Operations whose results are never negative; see `equal`.
const POSITIVE: &[&str] = &["classify", "quantize", "int8_quantize", "absmax", "relu", "softmax"];
/// Operations that never give -0: those.
const WITHOUT_NEGATIVE_ZERO: &[&str] = &[
    "classify",
    "quantize",
    "int8_quantize",
    "format_info",
    "absmax",
    "relu",
    "softmax",
    "log_softmax",
    "mma",
];
/// Operations whose results are never infinite; see `equal`.
const BOUNDED: &[&str] = &["classify", "quantize", "int8_quantize", "format_info", "softmax"];
/// Operations whose results are codes that bf16 holds, or no numbers.
const NARROW: &[&str] = &["classify", "quantize", "int8_quantize", "mx_quantize"];
/// Operations with results for each element alone.
const ELEMENTS: &[&str] = &[
    "cast",
    "decode",
    "classify",
    "scaled_cast",
    "scaled_decode",
    "math",
    "relu",
    "silu",
    "gelu_tanh",
    "gelu_erf",
    "quick_gelu",
    "swiglu",
];
/// Operations whose outputs have rows.
const WITH_ROWS: &[&str] = &[
    "mma",
    "gemm",
    "gemm_fused",
    "batched_gemv",
    "prefill_linear",
    "dispatch",
    "softmax",
    "log_softmax",
    "attention",
    "rms_norm",
    "layer_norm",
    "rope",
    "kv_scatter",
    "dequantize",
    "swiglu",
];

/// Right outputs, changed.
const OUTPUTS: &[(Of, &str, OutputFault)] = &[
    (Of::All, "nothing_computed", OutputFault::Zero),
    (Of::All, "last_bit", OutputFault::LastBit),
    (Of::AllBut(&["format_info"]), "lane_7", OutputFault::Lane { of: 8, lane: 7 }),
    (Of::AllBut(SHORT), "lane_31", OutputFault::Lane { of: 32, lane: 31 }),
    (Of::AllBut(WHOLE_EIGHTS), "tail_of_4", OutputFault::Tail(4)),
    (Of::AllBut(WHOLE_EIGHTS), "tail_of_8", OutputFault::Tail(8)),
    (Of::AllBut(WHOLE_WARPS), "tail_of_32", OutputFault::Tail(32)),
    (Of::AllBut(SHORT), "one_block_of_256", OutputFault::Beyond(256)),
    (Of::AllBut(SHORT), "grid_of_1024", OutputFault::Beyond(1024)),
    (Of::Only(ELEMENTS), "grid_of_65536", OutputFault::Beyond(65536)),
    (Of::AllBut(&["format_info"]), "shifted", OutputFault::Shifted),
    (Of::Only(WITH_ROWS), "transposed", OutputFault::Transposed),
    (Of::Only(WITH_ROWS), "first_rows_swapped", OutputFault::RowsSwapped),
    (Of::Only(WITH_ROWS), "stale_row", OutputFault::StaleRow),
    (Of::Only(&["gemm", "attention"]), "stale_batch", OutputFault::StaleBatch),
    (Of::AllBut(POSITIVE), "sign_lost", OutputFault::SignLost),
    (Of::AllBut(FINITE), "nan_is_zero", OutputFault::NanIsZero),
    (Of::AllBut(FINITE), "nan_is_large", OutputFault::NanIsLarge),
    (Of::AllBut(BOUNDED), "infinity_is_large", OutputFault::InfinityIsLarge),
    (Of::AllBut(WITHOUT_NEGATIVE_ZERO), "zero_without_sign", OutputFault::ZeroWithoutSign),
    (Of::AllBut(BYTES), "output_flushed", OutputFault::Flushed),
    (Of::Only(&["cast", "scaled_cast", "device_scaled_cast"]), "large_is_nan", OutputFault::LargeIsNan),
    (Of::Only(&["cast", "decode", "scaled_cast", "gemm"]), "large_is_infinity", OutputFault::LargeIsInfinity),
    (Of::AllBut(NARROW), "output_through_bf16", OutputFault::Through(BF16)),
    (Of::AllBut(BYTES), "twice", OutputFault::Twice),
    (Of::Only(&["quantize", "int8_quantize", "mx_quantize"]), "nibbles", OutputFault::Nibbles),
];

/// Faults of memory, streams and graphs.
const STEPS: &[(Of, &str, StepFault)] = &[
    (Of::All, "past_end", StepFault::PastEnd),
    (Of::All, "before_start", StepFault::BeforeStart),
    (Of::All, "first_unwritten", StepFault::FirstUnwritten),
    (Of::All, "last_unwritten", StepFault::LastUnwritten),
    (Of::All, "reads_output", StepFault::ReadsOutput),
    (Of::All, "every_third", StepFault::EveryThird),
    (Of::All, "misaligned", StepFault::Misaligned),
    (Of::AllBut(WHOLE_EIGHTS), "tail_unwritten", StepFault::TailUnwritten(4)),
    (Of::AllBut(&["format_info"]), "input_written", StepFault::InputWritten),
    (Of::AllBut(&["format_info"]), "reads_past_end", StepFault::ReadsPastEnd),
    (Of::AllBut(&["format_info"]), "reads_before", StepFault::ReadsBefore),
    (Of::AllBut(&["format_info"]), "shared_scratch", StepFault::SharedScratch),
    (Of::AllBut(&["format_info"]), "graph_holds_inputs", StepFault::GraphBakesInputs),
    (Of::All, "replays_once", StepFault::ReplaysOnce),
    (Of::AllBut(&["format_info"]), "upload_lost", StepFault::UploadLost),
    (Of::Only(&["gemm"]), "gap_written", StepFault::Gap),
    (Of::Only(&["gemm"]), "output_strides_ignored", StepFault::StridesIgnored),
    (Of::Only(REFUSING), "misfit_accepted", StepFault::MisfitAccepted),
    (Of::Only(REFUSING), "misfit_written", StepFault::MisfitWritten),
    (Of::Only(&[SEQUENCE]), "upload_lost", StepFault::UploadLost),
    (Of::Only(&[SEQUENCE]), "call_cached", StepFault::CallCached),
    (Of::Only(&[SEQUENCE]), "every_third", StepFault::EveryThird),
    (Of::Only(&[SEQUENCE]), "graph_holds_inputs", StepFault::GraphBakesInputs),
    (Of::Only(&[SEQUENCE]), "graph_last_lost", StepFault::GraphLastLost),
    (Of::Only(&[SEQUENCE]), "graph_reversed", StepFault::GraphReversed),
    (Of::Only(&[SEQUENCE]), "last_unwritten", StepFault::LastUnwritten),
    (Of::Only(&[SEQUENCE]), "input_written", StepFault::InputWritten),
    (Of::Only(&[SEQUENCE]), "past_end", StepFault::PastEnd),
    (Of::Only(&[SEQUENCE]), "replays_once", StepFault::ReplaysOnce),
    (Of::Only(&[SEQUENCE]), "reads_output", StepFault::ReadsOutput),
];
