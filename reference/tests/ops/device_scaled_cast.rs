//! `device_scaled_cast`: the contract at the edges of the absmax.

use crate::noise::noise;
use crate::support::{evaluate, f32s, first, first_f32, scalar, tensor, vector};
use plumbline_reference::format::{
    BF16, E2M1, E4M3FN, E5M2, F16, F32, Format, NanPolicy, Policy, Rounding, Value,
};
use plumbline_reference::ops::{DeviceScaledCast, Granularity, Op, ScaleOp, ScaledDecode, Special, Tiny};
use plumbline_reference::{DType, Tensor};

/// 448 * 2^-128, the largest absmax for which 448 / a overflows.
const LARGEST_TINY: f32 = f32::from_bits(0x03e0_0000);
const ONE_OVER_448: u64 = 0x3b12_4925;
const NAN: u64 = 0x7fff_ffff;
const SCALE_OPS: [ScaleOp; 3] = [ScaleOp::Multiply, ScaleOp::Divide, ScaleOp::Reciprocal];

fn to(to: Format) -> DeviceScaledCast {
    DeviceScaledCast::new(F32, to)
}

fn e4m3() -> DeviceScaledCast {
    to(E4M3FN)
}

/// Codes and bits of `dequant`.
fn cast(op: DeviceScaledCast, x: &[f32], a: f32) -> (Vec<u64>, u64) {
    let outputs = evaluate(op, &[vector(x), scalar(a)]);
    assert_eq!((outputs[0].dtype(), outputs[1].dtype()), (op.to.into(), F32.into()));
    (outputs[0].codes().collect(), outputs[1].code(0))
}

/// What `x = 1` is multiplied by.
fn factor(op: DeviceScaledCast, a: f32) -> f32 {
    Op::from(op).exact(&[vector(&[1.0]), scalar(a)], 0, 0).unwrap() as f32
}

#[test]
fn an_absmax_is_mapped_to_the_largest_code() {
    for a in [1e-30, 0.1, 1.0, 3.7, 448.0, 1e30, f32::MAX] {
        for scale_op in SCALE_OPS {
            let (codes, dequant) = cast(DeviceScaledCast { scale_op, ..e4m3() }, &[a, -a, 0.0, -0.0], a);
            assert_eq!(codes, [0x7e, 0xfe, 0x00, 0x80], "{a} {scale_op:?}");
            assert_eq!(dequant, u64::from((a / 448.0).to_bits()), "{a}");
        }
    }
}

#[test]
fn every_target_is_scaled_to_its_own_largest_value() {
    for (format, largest) in [(E5M2, 57344.0), (E2M1, 6.0), (F16, 65504.0), (BF16, 3.389_531_4e38)] {
        let (codes, dequant) = cast(to(format), &[largest, 0.0], largest);
        assert_eq!((codes[0], dequant), (format.max_finite(), 1f32.to_bits().into()), "{format}");
        assert_eq!(factor(to(format), largest / 2.0), 2.0, "{format}");
    }
}

#[test]
fn an_absmax_of_zero_counts_as_one() {
    for a in [0.0, -0.0, 1.0] {
        assert_eq!(cast(e4m3(), &[0.0, -0.0, 1.0, -1.0], a), (vec![0x00, 0x80, 0x7e, 0xfe], ONE_OVER_448));
        assert_eq!(factor(e4m3(), a), 448.0);
    }
}

#[test]
fn the_quotient_overflows_up_to_448_times_2_to_the_minus_128() {
    assert_eq!(f64::from(LARGEST_TINY), 448.0 * 2f64.powi(-128));
    assert_eq!(448.0 / LARGEST_TINY, f32::INFINITY);
    assert_eq!(448.0 / LARGEST_TINY.next_up(), f32::MAX);
}

#[test]
fn no_factor_is_infinite_at_either_side_of_the_edge() {
    let subnormal = 1e-40;
    let edge = [LARGEST_TINY.next_up(), LARGEST_TINY, LARGEST_TINY.next_down(), subnormal, f32::from_bits(1)];
    for a in edge {
        for (scale_op, tiny) in SCALE_OPS
            .map(|op| (op, Tiny::Reciprocal))
            .into_iter()
            .chain([(ScaleOp::Multiply, Tiny::Quotient), (ScaleOp::Reciprocal, Tiny::Quotient)])
        {
            let op = DeviceScaledCast { scale_op, tiny, ..e4m3() };
            let (codes, _) = cast(op, &[0.0, -0.0], a);
            assert_eq!(codes, [0x00, 0x80], "{a:e} {scale_op:?} {tiny:?}");
        }
        assert_eq!(factor(e4m3(), a), f32::MAX, "{a:e}");
        assert_eq!(factor(e4m3(), -a), f32::MIN, "{a:e}");
        let reciprocal = DeviceScaledCast { scale_op: ScaleOp::Reciprocal, ..e4m3() };
        assert_eq!(factor(reciprocal, a), f32::MAX, "{a:e}");
    }
}

#[test]
fn dequant_of_a_tiny_absmax_is_the_reciprocal_or_the_quotient() {
    let dequant = |tiny, a| cast(DeviceScaledCast { tiny, ..e4m3() }, &[], a).1;
    // 1 / FLT_MAX is 2^-128 as an f32.
    for a in [LARGEST_TINY.next_up(), LARGEST_TINY, f32::from_bits(0x03df_fffc), 1e-40, f32::from_bits(1)] {
        assert_eq!(dequant(Tiny::Reciprocal, a), 0x0020_0000, "{a:e}");
        assert_eq!(dequant(Tiny::Reciprocal, -a), 0x8020_0000, "{a:e}");
    }
    assert_eq!(dequant(Tiny::Quotient, LARGEST_TINY.next_up()), 0x0020_0000);
    assert_eq!(dequant(Tiny::Quotient, LARGEST_TINY), 0x0020_0000);
    // Four ulps of `a` are the first that a subnormal quotient shows.
    assert_eq!(dequant(Tiny::Quotient, f32::from_bits(0x03df_fffd)), 0x0020_0000);
    assert_eq!(dequant(Tiny::Quotient, f32::from_bits(0x03df_fffc)), 0x001f_ffff);
    assert_eq!(dequant(Tiny::Quotient, 1e-40), u64::from((1e-40f32 / 448.0).to_bits()));
    assert_eq!(dequant(Tiny::Quotient, f32::from_bits(1)), 0);
}

#[test]
fn a_plain_kernel_that_divides_by_a_zero_quotient_gives_what_ieee_says() {
    let op = DeviceScaledCast { scale_op: ScaleOp::Divide, tiny: Tiny::Quotient, ..e4m3() };
    let smallest = f32::from_bits(1);
    assert_eq!(cast(op, &[0.0, smallest, -smallest], smallest), (vec![0x7f, 0x7e, 0xfe], 0));
}

/// `x` cast and decoded again.
fn round_trip(op: DeviceScaledCast, x: &[f32], a: f32) -> Vec<f32> {
    let outputs = evaluate(op, &[vector(x), scalar(a)]);
    let back = ScaledDecode { from: op.to, granularity: Granularity::Tensor };
    first_f32(back, &outputs)
}

/// Whether a round trip is as good as E4M3 allows: half a unit in the last of four
/// places, half a smallest number (2^-9) of what 448 stands for, and the roundings
/// of a scale near the smallest f32.
fn inverts(op: DeviceScaledCast, a: f32) -> bool {
    let fractions = (0..64).map(|i| i as f32 / 63.0).chain([1e-3, 2e-3, 0.01]);
    let x: Vec<_> = fractions.flat_map(|fraction| [fraction * a, -fraction * a]).collect();
    let smallest = (f64::from(a) / 448.0).max(2f64.powi(-128)) * 2f64.powi(-9);
    x.iter().zip(round_trip(op, &x, a)).all(|(&x, back)| {
        let error = (f64::from(x) - f64::from(back)).abs();
        error <= f64::from(x.abs()) / 16.0 * 1.001 + smallest / 2.0 * 1.001 + 2f64.powi(-149)
    })
}

#[test]
fn a_round_trip_inverts_for_every_absmax() {
    let edges = [0, 1, 2, 3, 4, 5, 100].map(|step| LARGEST_TINY.to_bits() - 3 + step);
    let small = [1, 2, 1000, 0x7f_ffff, 0x80_0000];
    let random = (0..3000).map(|i| noise(i) as u32 & 0x7fff_ffff).filter(|&bits| bits < 0x7f80_0000);
    for a in edges.into_iter().chain(small).chain(random).map(f32::from_bits) {
        for scale_op in SCALE_OPS {
            assert!(inverts(DeviceScaledCast { scale_op, ..e4m3() }, a), "{a:e} {scale_op:?}");
        }
    }
}

#[test]
fn a_round_trip_with_the_quotient_of_a_tiny_absmax_does_not_invert() {
    let plain = DeviceScaledCast { tiny: Tiny::Quotient, ..e4m3() };
    assert!(inverts(plain, LARGEST_TINY));
    assert!(!inverts(plain, LARGEST_TINY / 4.0));
    assert!(!inverts(plain, 1e-37));
}

#[test]
fn an_infinite_absmax_propagates_or_counts_as_one() {
    let x = [1.0, -1.0, 0.0, f32::INFINITY];
    assert_eq!(cast(e4m3(), &x, f32::INFINITY), (vec![0x00, 0x80, 0x00, 0x7f], 0x7f80_0000));
    assert_eq!(cast(e4m3(), &x, f32::NEG_INFINITY), (vec![0x80, 0x00, 0x80, 0x7f], 0xff80_0000));
    let divide = DeviceScaledCast { scale_op: ScaleOp::Divide, ..e4m3() };
    assert_eq!(cast(divide, &x, f32::INFINITY), (vec![0x00, 0x80, 0x00, 0x7f], 0x7f80_0000));
    let unit = DeviceScaledCast { special: Special::Unit, ..e4m3() };
    for a in [f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(cast(unit, &x, a), (vec![0x7e, 0xfe, 0x00, 0x7e], ONE_OVER_448));
    }
    assert_eq!(cast(unit, &x, 2.0), cast(e4m3(), &x, 2.0));
}

#[test]
fn a_nan_absmax_propagates_or_counts_as_one() {
    for a in [f32::NAN, -f32::NAN, f32::from_bits(0xff80_0001)] {
        assert_eq!(cast(e4m3(), &[1.0, 0.0], a), (vec![0x7f, 0x7f], NAN));
        let unit = DeviceScaledCast { special: Special::Unit, ..e4m3() };
        assert_eq!(cast(unit, &[1.0, 0.0], a), (vec![0x7e, 0x00], ONE_OVER_448));
    }
}

#[test]
fn a_negative_absmax_keeps_its_sign() {
    assert_eq!(cast(e4m3(), &[1.0, -2.0], -448.0), (vec![0xb8, 0x40], 0xbf80_0000));
}

#[test]
fn a_nan_element_gives_the_positive_nan_or_what_the_policy_says() {
    let of = |nan| {
        let op = e4m3().with_policy(Policy { nan, ..Policy::default() });
        cast(op, &[f32::NAN, -f32::NAN], 1.0).0
    };
    assert_eq!(of(NanPolicy::Canonical), [0x7f, 0x7f]);
    assert_eq!(of(NanPolicy::SignKept), [0x7f, 0x7f]);
    assert_eq!(of(NanPolicy::MaxFinite), [0x7e, 0x7e]);
}

/// Each row: absmax, element, and the codes by product, quotient, and reciprocal of
/// `dequant`: 168.0 is a tie and goes to 0x72, the f32 after it to 0x73.
#[test]
fn scale_operations_differ_at_a_tie() {
    for (a, x, expected) in [
        (0x3f83_f571, 0x3ec5_f02a, [0x73, 0x72, 0x72]),
        (0x3f96_6ed8, 0x3ee1_a645, [0x73, 0x72, 0x73]),
        (0x3f80_a7b2, 0x3ec0_fb8b, [0x72, 0x72, 0x73]),
    ] {
        let code = |scale_op| {
            let op = DeviceScaledCast { scale_op, ..e4m3() };
            cast(op, &[f32::from_bits(x)], f32::from_bits(a)).0[0]
        };
        assert_eq!(SCALE_OPS.map(code), expected, "{a:#x}");
    }
}

#[test]
fn every_step_is_rounded_to_f32() {
    for i in 0..2000 {
        let (a, x) = ((1.0 + noise(i) as f32 / 1e19).abs(), noise(i + 5000) as f32 / 1.9e19);
        let code = |scaled: f32| E4M3FN.encode(Value::from(scaled), &Policy::default(), 0);
        let dequant = a / 448.0;
        let expected = [x * (448.0 / a), x / dequant, x * (1.0 / dequant)].map(code);
        let got = SCALE_OPS.map(|scale_op| cast(DeviceScaledCast { scale_op, ..e4m3() }, &[x], a).0[0]);
        assert_eq!(got, expected, "{x} by {a}");
    }
}

fn by(granularity: Granularity, x: &Tensor, a: Tensor) -> Vec<Tensor> {
    evaluate(DeviceScaledCast { granularity, ..e4m3() }, &[x.clone(), a])
}

#[test]
fn every_row_or_block_has_its_absmax() {
    let x = f32s(&[2, 4], &[1.0; 8]);
    let rows = by(Granularity::Row, &x, f32s(&[2], &[1.0, 448.0]));
    assert_eq!(rows[0], tensor(E4M3FN, &[2, 4], &[0x7e, 0x7e, 0x7e, 0x7e, 0x38, 0x38, 0x38, 0x38]));
    assert_eq!(rows[1], f32s(&[2], &[1.0 / 448.0, 1.0]));
    let blocks = by(Granularity::Block(2), &x, f32s(&[2, 2], &[1.0, 448.0, 224.0, 0.0]));
    assert_eq!(blocks[0], tensor(E4M3FN, &[2, 4], &[0x7e, 0x7e, 0x38, 0x38, 0x40, 0x40, 0x7e, 0x7e]));
    assert_eq!(blocks[1].shape(), [2, 2]);
}

#[test]
fn dequant_has_the_shape_of_the_absmax() {
    let x = vector(&[1.0, 2.0]);
    assert_eq!(evaluate(e4m3(), &[x.clone(), scalar(2.0)])[1].shape(), [0usize; 0]);
    assert_eq!(evaluate(e4m3(), &[x, f32s(&[1], &[2.0])])[1].shape(), [1]);
}

#[test]
fn each_output_names_the_elements_it_is_made_from() {
    let op = Op::from(DeviceScaledCast { granularity: Granularity::Row, ..e4m3() });
    let inputs = [f32s(&[2, 4], &[1.0; 8]), f32s(&[2], &[1.0, 448.0])];
    assert_eq!(op.sources(&inputs, 0, 6), [(0, 6), (1, 1)]);
    assert_eq!(op.sources(&inputs, 1, 1), [(1, 1)]);
}

#[test]
fn stochastic_rounding_uses_the_random_bits_of_its_element() {
    let op = e4m3().with_policy(Policy { rounding: Rounding::Stochastic, ..Policy::default() });
    let random = tensor(DType::U32, &[3], &[0, 0x7fff_ffff, 0x8000_0000]);
    assert_eq!(first(op, &[vector(&[1.0625; 3]), scalar(448.0), random]), [0x38, 0x38, 0x39]);
}
