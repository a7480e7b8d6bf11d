//! Faults reported in public against other implementations, as values.

use crate::support::{codes, evaluate, f32s, first, first_f32, scalar, vector};
use plumbline_reference::block::mx::{MxFormat, ScaleRule};
use plumbline_reference::format::{
    BF16, E2M1, E4M3FN, E4M3FNUZ, E5M2, E8M0, F16, F32, Format, Infinities, Overflow, Policy,
};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, Cast, Classify, Decode, DeviceScaledCast, Granularity, MxDequantize, MxQuantize,
    ScaledDecode,
};

fn cast(to: Format, policy: Policy, values: &[f32]) -> Vec<u64> {
    first(Cast::new(F32, to).with_policy(policy), &[vector(values)])
}

fn cast_default(to: Format, values: &[f32]) -> Vec<u64> {
    cast(to, Policy::default(), values)
}

fn bits(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// microsoft/onnxruntime#16938
#[test]
fn e4m3_off_by_one() {
    let x = F16.encode(1.8131605f32.into(), &Policy::default(), 0);
    assert_eq!(first(Cast::new(F16, E4M3FN), &[codes(F16, &[x, 0x3c40])]), [0x3f, 0x38]);
}

/// triton-lang/triton#11753, openxla/xla#17324
#[test]
fn double_rounding_through_f16() {
    assert_eq!(cast_default(E4M3FN, &[0x3f88_0001, 0x3a80_0008, 0x3d77_ffff].map(bits)), [0x39, 0x01, 0x17]);
    let twice = first(Decode { from: F32, to: F16 }, &[vector(&[bits(0x3f88_0001)])]);
    assert_eq!(first(Cast::new(F16, E4M3FN), &[codes(F16, &twice)]), [0x38]);
}

/// ahrefs/ocannl#646
#[test]
fn e5m2_ties_and_subnormals() {
    let values = [1.125, 1.625, 2f32.powi(-16), -0.0, 65504.0];
    assert_eq!(cast_default(E5M2, &values), [0x3c, 0x3e, 0x01, 0x80, 0x7b]);
    assert_eq!(cast(E5M2, Policy::IEEE, &values), [0x3c, 0x3e, 0x01, 0x80, 0x7c]);
}

/// jax-ml/ml_dtypes#260: no fault, overflow is a policy
#[test]
fn overflow_is_a_policy() {
    let values = [464.0, bits(0x43e8_0001)];
    assert_eq!(cast_default(E4M3FN, &values), [0x7e, 0x7e]);
    let to_nan = Policy { overflow: Overflow::ToInfOrNan, ..Policy::default() };
    assert_eq!(cast(E4M3FN, to_nan, &values), [0x7e, 0x7f]);
}

/// microsoft/onnxruntime#18473
#[test]
fn fnuz_negative_zero() {
    let propagate = Policy { infinities: Infinities::Propagate, ..Policy::default() };
    let values = [-1e-8, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(cast(E4M3FNUZ, propagate, &values), [0x00, 0x80, 0x80]);
}

/// NVlabs/cutile-rs#250
#[test]
fn fp8_truncated() {
    assert_eq!(cast_default(E4M3FN, &[1.1, 1.9375]), [0x39, 0x40]);
}

/// VoidStarKat/half-rs#24
#[test]
fn f16_ties_in_software_and_hardware() {
    assert_eq!(cast_default(F16, &[520.25, 2f32.powi(-25), 0.49999]), [0x6010, 0x0000, 0x3800]);
}

/// intel/intel-xpu-backend-for-triton#7771
#[test]
fn fp8_specials_stay_special() {
    assert_eq!(first(Decode { from: E4M3FN, to: BF16 }, &[codes(E4M3FN, &[0x7f])]), [0x7fff]);
    assert_eq!(first(Decode { from: E5M2, to: BF16 }, &[codes(E5M2, &[0x7c])]), [0x7f80]);
}

/// triton-lang/triton#10745
#[test]
fn fnuz_nan_is_not_zero() {
    assert_eq!(first(Decode { from: E4M3FNUZ, to: F32 }, &[codes(E4M3FNUZ, &[0x80])]), [0x7fff_ffff]);
}

/// 1bit-MONSTER/1bit-MONSTER#300
#[test]
fn subnormals_have_the_smallest_normal_exponent() {
    let values = first_f32(Decode { from: E4M3FN, to: F32 }, &[codes(E4M3FN, &[0x01, 0x07])]);
    assert_eq!(values, [0.001953125, 0.013671875]);
}

/// EricLBuehler/float8#8
#[test]
fn every_nan_of_e5m2_is_one() {
    let classes = first(Classify { format: E5M2 }, &[codes(E5M2, &[0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff])]);
    assert_eq!(classes, [1, 1, 1, 129, 129, 129]);
    assert_eq!(first(Classify { format: E4M3FN }, &[codes(E4M3FN, &[0x7e])]), [16]);
}

/// NVIDIA/TransformerEngine#3262
#[test]
fn e8m0_ends() {
    let ends = first(Decode { from: E8M0, to: F32 }, &[codes(E8M0, &[0, 255])]);
    assert_eq!(ends, [0x0040_0000, 0x7fff_ffff]);
}

/// tenstorrent/tt-metal#51971, ROCm/aiter#3992
#[test]
fn e2m1_ties() {
    let values = [bits(0x3e80_0001), 0.25, 1.25, 2.5, 5.0, 0.75, 3.5];
    let rounded = cast_default(E2M1, &values);
    assert_eq!(rounded[0], 1);
    let decoded = first_f32(Decode { from: E2M1, to: F32 }, &[codes(E2M1, &rounded)]);
    assert_eq!(decoded, [0.5, 0.0, 1.0, 2.0, 4.0, 1.0, 4.0]);
}

/// pytorch/ao#4713
#[test]
fn a_row_of_zeros_among_others() {
    let granularity = Granularity::Row;
    let x = f32s(&[3, 2], &[1.0, -2.0, 0.0, 0.0, 5.0, 4.0]);
    let absmax =
        evaluate(Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity }, std::slice::from_ref(&x));
    let op = DeviceScaledCast { granularity, ..DeviceScaledCast::new(F32, E4M3FN) };
    let outputs = evaluate(op, &[x, absmax[0].clone()]);
    assert_eq!(outputs[0].bytes(), [0x76, 0xfe, 0x00, 0x00, 0x7e, 0x7b]);
    let back = first_f32(ScaledDecode { from: E4M3FN, granularity }, &outputs);
    assert_eq!(back[2..4], [0.0, 0.0]);
}

/// sgl-project/sglang#33533; built from a tie in `device_scaled_cast` and `scaled`
#[test]
fn a_scale_crosses_a_tie() {
    assert_eq!(cast_default(E4M3FN, &[168.0, 168.0f32.next_up()]), [0x72, 0x73]);
    let op = DeviceScaledCast::new(F32, E4M3FN);
    assert_eq!(first(op, &[vector(&[168.0, 168.0f32.next_up()]), scalar(448.0)]), [0x72, 0x73]);
}

/// microsoft/onnxruntime#10514
#[test]
fn a_maximum_keeps_nan_at_every_position() {
    let propagate = Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity: Granularity::Tensor };
    let ignore = Absmax { nan: AbsmaxNan::Ignore, ..propagate };
    for position in 0..4 {
        let mut values = [f32::NAN; 4];
        values[position] = 42.0;
        assert_eq!(first(propagate, &[vector(&values)]), [0x7fff_ffff]);
        assert_eq!(first_f32(ignore, &[vector(&values)]), [42.0]);
    }
}

/// The code of the scale and the first element of a block, dequantized, whose other elements are 0.
fn mx_block(op: MxQuantize, first: f32) -> (u64, f32) {
    let mut x = [0.0; 32];
    x[0] = first;
    let outputs = evaluate(op, &[vector(&x)]);
    let back = first_f32(MxDequantize::new(op.format, F32), &outputs)[0];
    (outputs[1].code(0), back)
}

/// vllm-project/vllm#43557
#[test]
fn an_mx_scale_that_holds_its_largest_element() {
    for scale_rule in ScaleRule::ALL {
        let op = MxQuantize { scale_rule, ..MxQuantize::new(F32, MxFormat::Mxfp4) };
        // With `ceil_log2` the element is 2.75, a tie no more: 3.0.
        let code = if scale_rule == ScaleRule::CeilLog2 { 128 } else { 127 };
        assert_eq!(mx_block(op, 5.5), (code, 6.0), "{scale_rule:?}");
    }
}

/// microsoft/microxcaling#4: no fault, the rule of the specification saturates
#[test]
fn the_floor_rule_of_mx_saturates() {
    let floor = MxQuantize::new(F32, MxFormat::Mxfp8E4m3);
    assert_eq!(mx_block(floor, 957.0), (128, 896.0));
    assert_eq!(mx_block(MxQuantize { scale_rule: ScaleRule::Ceil, ..floor }, 957.0), (129, 960.0));
}
