//! `scaled_cast` and `scaled_decode`.

use crate::support::{codes, evaluate, f32s, first, scalar, tensor, vector};
use plumbline_reference::DType;
use plumbline_reference::format::{E4M3FN, E5M2, F32, NanPolicy, Overflow, Policy, Rounding, Value};
use plumbline_reference::ops::{Granularity, Op, ScaleOp, ScaledCast, ScaledDecode};

const DECODE: ScaledDecode = ScaledDecode { from: E4M3FN, granularity: Granularity::Tensor };

fn scaled_cast() -> ScaledCast {
    ScaledCast::new(F32, E4M3FN)
}

fn f32_bits(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[test]
fn the_product_is_rounded_to_f32_before_it_is_encoded() {
    // 1.1875 (1 + 2^-13) (1 - 2^-13) lies 1.1875 * 2^-26 below the tie 1.1875, which is
    // its nearest f32.
    let (x, s) = (f32_bits(0x3f98_04c0), f32_bits(0x3f7f_f800));
    let product = f64::from(x) * f64::from(s);
    assert!(product < 1.1875 && x * s == 1.1875);
    assert_eq!(E4M3FN.encode(Value::from(product), &Policy::default(), 0), 0x39);
    assert_eq!(first(scaled_cast(), &[vector(&[x]), scalar(s)]), [0x3a]);
    assert_eq!(Op::from(scaled_cast()).exact(&[vector(&[x]), scalar(s)], 0, 0), Some(1.1875));
}

#[test]
fn multiplication_division_and_reciprocal_round_differently() {
    let of = |scale_op, x, s| {
        let inputs = [vector(&[f32_bits(x)]), scalar(f32_bits(s))];
        let op = ScaledCast { scale_op, ..scaled_cast() };
        (Op::from(op).exact(&inputs, 0, 0).unwrap() as f32, first(op, &inputs)[0])
    };
    let (tie, above) = ((168.0, 0x72), (168.00002, 0x73));
    assert_eq!(of(ScaleOp::Divide, 0x432e_ed87, 0x3f85_4742), tie);
    assert_eq!(of(ScaleOp::Reciprocal, 0x432e_ed87, 0x3f85_4742), above);
    assert_eq!(of(ScaleOp::Divide, 0x438c_49e6, 0x3fd5_c5f0), above);
    assert_eq!(of(ScaleOp::Reciprocal, 0x438c_49e6, 0x3fd5_c5f0), tie);
    assert_eq!(of(ScaleOp::Multiply, 168f32.to_bits(), 1f32.to_bits()), tie);
    assert_eq!(of(ScaleOp::Multiply, 42f32.to_bits(), 4f32.to_bits() + 1), (168.00002, 0x73));
}

#[test]
fn an_f32_product_that_overflows_is_infinite_not_merely_large() {
    let inputs = [vector(&[f32::MAX, -f32::MAX]), scalar(2.0)];
    assert_eq!(first(scaled_cast(), &inputs), [0x7e, 0xfe]);
    // The overflow of the product is an infinity: `infinities` decides, not `overflow`.
    let overflow = Policy { overflow: Overflow::ToInfOrNan, ..Policy::default() };
    assert_eq!(first(scaled_cast().with_policy(overflow), &inputs), [0x7e, 0xfe]);
    assert_eq!(first(scaled_cast().with_policy(Policy::IEEE), &inputs), [0x7f, 0x7f]);
}

#[test]
fn nan_of_arithmetic_is_positive() {
    let sign_kept = scaled_cast().with_policy(Policy { nan: NanPolicy::SignKept, ..Policy::default() });
    let inputs = [vector(&[-f32::NAN, f32::NEG_INFINITY, f32::INFINITY]), scalar(-0.0)];
    assert_eq!(first(sign_kept, &inputs), [0x7f; 3]);
    let division = ScaledCast { scale_op: ScaleOp::Divide, ..sign_kept };
    assert_eq!(first(division, &[vector(&[0.0, -0.0, 1.0]), scalar(0.0)]), [0x7f, 0x7f, 0x7e]);
}

#[test]
fn a_scale_of_shape_1_counts_as_a_scalar() {
    let x = vector(&[1.0, 3.0]);
    assert_eq!(first(scaled_cast(), &[x.clone(), f32s(&[1], &[2.0])]), [0x40, 0x4c]);
    assert_eq!(first(scaled_cast(), &[x, scalar(2.0)]), [0x40, 0x4c]);
}

#[test]
fn every_row_or_block_has_its_scale() {
    let x = f32s(&[2, 4], &[1.0; 8]);
    let by = |granularity, s| {
        let op = ScaledCast { granularity, ..scaled_cast() };
        let inputs = [x.clone(), s];
        let sources: Vec<_> = (0..8).map(|i| Op::from(op).sources(&inputs, 0, i)[1].1).collect();
        (first(op, &inputs), sources)
    };
    let (one, two, four, eight) = (0x38, 0x40, 0x48, 0x50);
    let rows = by(Granularity::Row, f32s(&[2], &[1.0, 2.0]));
    assert_eq!(rows, (vec![one, one, one, one, two, two, two, two], vec![0, 0, 0, 0, 1, 1, 1, 1]));
    let blocks = by(Granularity::Block(2), f32s(&[2, 2], &[1.0, 2.0, 4.0, 8.0]));
    let expected = vec![one, one, two, two, four, four, eight, eight];
    assert_eq!(blocks, (expected, vec![0, 0, 1, 1, 2, 2, 3, 3]));
    let tensor = by(Granularity::Tensor, scalar(4.0));
    assert_eq!(tensor, (vec![four; 8], vec![0; 8]));
}

#[test]
fn stochastic_rounding_uses_the_random_bits_of_its_element() {
    let op = scaled_cast().with_policy(Policy { rounding: Rounding::Stochastic, ..Policy::default() });
    let random = tensor(DType::U32, &[3], &[0, 0x7fff_ffff, 0x8000_0000]);
    let inputs = [vector(&[2.125; 3]), scalar(0.5), random];
    assert_eq!(first(op, &inputs), [0x38, 0x38, 0x39]);
    assert_eq!(Op::from(op).sources(&inputs, 0, 2)[..2], [(0, 2), (1, 0)]);
}

#[test]
fn scaled_decode_is_one_f32_product() {
    for s in [1.0 / 3.0, 1e30, 1e-38, -2.5] {
        let all: Vec<_> = (0..256).filter(|code| code & 0x7f != 0x7f).collect();
        let inputs = [codes(E4M3FN, &all), scalar(s)];
        let expected: Vec<u64> =
            all.iter().map(|&code| (E4M3FN.to_f64(code) as f32 * s).to_bits().into()).collect();
        assert_eq!(first(DECODE, &inputs), expected, "{s}");
        // The exact product has no rounding of its own.
        let exact = |i: usize| E4M3FN.to_f64(all[i]) * f64::from(s);
        assert!((0..all.len()).all(|i| Op::from(DECODE).exact(&inputs, 0, i) == Some(exact(i))));
    }
}

#[test]
fn scaled_decode_keeps_subnormals_and_the_sign_of_zero() {
    let inputs = [codes(E4M3FN, &[0x01, 0x81, 0x80, 0x00]), scalar(2f32.powi(-140))];
    assert_eq!(first(DECODE, &inputs), [0x0000_0001, 0x8000_0001, 0x8000_0000, 0x0000_0000]);
    let negative = [codes(E4M3FN, &[0x00, 0x80]), scalar(-1.0)];
    assert_eq!(first(DECODE, &negative), [0x8000_0000, 0x0000_0000]);
}

#[test]
fn scaled_decode_makes_every_nan_canonical() {
    let nan = 0x7fff_ffff;
    assert_eq!(first(DECODE, &[codes(E4M3FN, &[0x7f, 0xff]), scalar(1.0)]), [nan, nan]);
    assert_eq!(first(DECODE, &[codes(E4M3FN, &[0x38, 0x00]), scalar(-f32::NAN)]), [nan, nan]);
    let e5m2 = ScaledDecode { from: E5M2, ..DECODE };
    let inputs = [codes(E5M2, &[0x7c, 0xfc, 0x7d]), scalar(0.0)];
    assert_eq!(first(e5m2, &inputs), [nan, nan, nan]);
    let infinite = [codes(E5M2, &[0x7c, 0xfc, 0x00]), scalar(f32::INFINITY)];
    assert_eq!(first(e5m2, &infinite), [0x7f80_0000, 0xff80_0000, nan]);
}

#[test]
fn scaled_decode_by_rows_and_blocks() {
    let x = tensor(E4M3FN, &[2, 4], &[0x38; 8]);
    let by =
        |granularity, s| evaluate(ScaledDecode { granularity, ..DECODE }, &[x.clone(), s]).swap_remove(0);
    let rows = by(Granularity::Row, f32s(&[2], &[0.5, 3.0]));
    assert_eq!(rows, f32s(&[2, 4], &[0.5, 0.5, 0.5, 0.5, 3.0, 3.0, 3.0, 3.0]));
    let blocks = by(Granularity::Block(2), f32s(&[2, 2], &[0.5, 3.0, 7.0, 9.0]));
    assert_eq!(blocks, f32s(&[2, 4], &[0.5, 0.5, 3.0, 3.0, 7.0, 7.0, 9.0, 9.0]));
}
