//! `cast`, `decode`, `classify`, `format_info`.

use crate::support::{codes, evaluate, first, first_f32, tensor, vector};
use plumbline_reference::DType;
use plumbline_reference::format::{
    ALL, BF16, E2M1, E4M3FN, E5M2, E8M0, F16, F32, F64, Infinities, NanPolicy, NegativeZero, Overflow,
    Policy, Rounding, Subnormals, TF32,
};
use plumbline_reference::ops::{Cast, Classify, Decode, FormatInfo, Op};

fn cast(policy: Policy, values: &[f32]) -> Vec<u64> {
    first(Cast::new(F32, E4M3FN).with_policy(policy), &[vector(values)])
}

#[test]
fn cast_obeys_every_field_of_its_policy() {
    let default = Policy::default();
    let beyond = [465.0, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(cast(default, &beyond), [0x7e, 0x7e, 0xfe]);
    assert_eq!(cast(Policy { overflow: Overflow::ToInfOrNan, ..default }, &beyond), [0x7f, 0x7e, 0xfe]);
    assert_eq!(cast(Policy { infinities: Infinities::Propagate, ..default }, &beyond), [0x7e, 0x7f, 0x7f]);
    let nans = [f32::NAN, -f32::NAN];
    assert_eq!(cast(default, &nans), [0x7f, 0x7f]);
    assert_eq!(cast(Policy { nan: NanPolicy::SignKept, ..default }, &nans), [0x7f, 0xff]);
    assert_eq!(cast(Policy { nan: NanPolicy::MaxFinite, ..default }, &nans), [0x7e, 0x7e]);
    // 0.9995 * 2^-6 rounds up to the smallest normal number, 2^-7 is subnormal.
    let small = [0.9995 / 64.0, 1.0 / 128.0];
    assert_eq!(cast(default, &small), [0x08, 0x04]);
    assert_eq!(cast(Policy { subnormals: Subnormals::FlushedBefore, ..default }, &small), [0x00, 0x00]);
    assert_eq!(cast(Policy { subnormals: Subnormals::FlushedAfter, ..default }, &small), [0x08, 0x00]);
    let zeros = [-0.0, -1e-9];
    assert_eq!(cast(default, &zeros), [0x80, 0x80]);
    assert_eq!(cast(Policy { negative_zero: NegativeZero::Dropped, ..default }, &zeros), [0x00, 0x00]);
    let between = [1.03, -1.03];
    assert_eq!(cast(Policy { rounding: Rounding::Up, ..default }, &between), [0x39, 0xb8]);
    assert_eq!(cast(Policy { rounding: Rounding::Down, ..default }, &between), [0x38, 0xb9]);
}

#[test]
fn policies_survive_being_stored_in_an_operation() {
    for policy in Policy::all() {
        assert_eq!(Cast::new(F32, E5M2).with_policy(policy).policy(), policy);
    }
    assert_eq!(Policy::all().collect::<std::collections::HashSet<_>>().len(), 432);
}

#[test]
fn stochastic_rounding_uses_the_random_bits_of_its_element() {
    let stochastic = Policy { rounding: Rounding::Stochastic, ..Policy::default() };
    let x = vector(&[1.0625, 1.0625, 1.0625, -1.0625, 1.0]);
    let random = tensor(DType::U32, &[5], &[0, 0x7fff_ffff, 0x8000_0000, 0x8000_0000, 0xffff_ffff]);
    let op = Cast::new(F32, E4M3FN).with_policy(stochastic);
    assert_eq!(first(op, &[x, random]), [0x38, 0x38, 0x39, 0xb9, 0x38]);
}

#[test]
fn cast_from_f64_rounds_once() {
    // A tie of E4M3 and of f16 respectively, and 2^-40 more: an f32 loses the rest.
    let x = [1.0625f64, 1.0625 + 2f64.powi(-40), 1.0 + 2f64.powi(-11) + 2f64.powi(-40)];
    let x = codes(F64, &x.map(f64::to_bits));
    assert_eq!(first(Cast::new(F64, E4M3FN), std::slice::from_ref(&x)), [0x38, 0x39, 0x38]);
    assert_eq!(first(Cast::new(F64, F16), &[x])[2], 0x3c01);
}

#[test]
fn cast_ignores_the_padding_of_its_source_and_leaves_none() {
    assert_eq!(first(Cast::new(TF32, F32), &[codes(TF32, &[0x3f80_1fff])]), [0x3f80_0000]);
    assert_eq!(first(Cast::new(F32, TF32), &[vector(&[1.0 / 3.0])]), [0x3eaa_a000]);
    assert_eq!(first(Cast::new(E2M1, F32), &[codes(E2M1, &[0xf7])]), [0x40c0_0000]);
}

#[test]
fn decode_rounds_to_nearest_even_where_it_must() {
    let overflowing = [65519.0, 65520.0, -65520.0];
    assert_eq!(first(Decode { from: F32, to: F16 }, &[vector(&overflowing)]), [0x7bff, 0x7c00, 0xfc00]);
    let ties = [1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), 2f32.powi(-134)];
    assert_eq!(first(Decode { from: F32, to: BF16 }, &[vector(&ties)]), [0x3f80, 0x3f82, 0x0000]);
    let tie = codes(F64, &[(1.0 + 2f64.powi(-24)).to_bits(), (1.0 + 3.0 * 2f64.powi(-24)).to_bits()]);
    assert_eq!(first(Decode { from: F64, to: F32 }, &[tie]), [0x3f80_0000, 0x3f80_0002]);
}

#[test]
fn decode_keeps_zeros_and_infinities_and_makes_nan_canonical() {
    let of = |to| first(Decode { from: E5M2, to }, &[codes(E5M2, &[0x80, 0x7c, 0xfc, 0x7d, 0xfe])]);
    assert_eq!(of(F16), [0x8000, 0x7c00, 0xfc00, 0x7fff, 0x7fff]);
    assert_eq!(of(BF16), [0x8000, 0x7f80, 0xff80, 0x7fff, 0x7fff]);
    assert_eq!(of(F32), [0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fff_ffff, 0x7fff_ffff]);
    let nan = 0x7fff_ffff_ffff_ffff;
    assert_eq!(of(F64), [1 << 63, 0x7ff0 << 48, 0xfff0 << 48, nan, nan]);
}

#[test]
fn decode_of_e2m1_is_the_table_of_its_specification() {
    let all: Vec<_> = (0..16).collect();
    let values = first_f32(Decode { from: E2M1, to: F32 }, &[codes(E2M1, &all)]);
    let positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    assert_eq!(values, [positive, positive.map(|value| -value)].concat());
    assert_eq!(values[8].to_bits(), 0x8000_0000);
}

#[test]
fn classify_gives_class_and_sign() {
    let all = [0x00, 0x80, 0x01, 0x83, 0x04, 0xfb, 0x7c, 0xfc, 0x7d, 0xff];
    let y = evaluate(Classify { format: E5M2 }, &[codes(E5M2, &all)]).swap_remove(0);
    assert_eq!(y.dtype(), DType::U8);
    assert_eq!(y.bytes(), [4, 132, 8, 136, 16, 144, 2, 130, 1, 129]);
    assert_eq!(first(Classify { format: E8M0 }, &[codes(E8M0, &[0x00, 0x80, 0xff])]), [16, 16, 1]);
}

#[test]
fn format_info_gives_the_constants_of_a_format() {
    let of = |format| first(FormatInfo { format }, &[]).into_iter().map(f64::from_bits).collect::<Vec<_>>();
    assert_eq!(of(E4M3FN), [448.0, -448.0, 0.015625, 0.001953125, 0.125]);
    assert_eq!(of(E8M0), [2f64.powi(127), 2f64.powi(-127), 2f64.powi(-127), 2f64.powi(-127), 1.0]);
    let f32s = [f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), f32::EPSILON];
    assert_eq!(of(F32), f32s.map(f64::from));
    assert_eq!(of(F64), [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, f64::EPSILON]);
    for format in ALL {
        let one_and_next = 1.0 + of(format)[4];
        let one = format.encode(1.0.into(), &Policy::IEEE, 0);
        assert_eq!(format.next_up(one).map(|next| format.to_f64(next)), Some(one_and_next), "{format}");
    }
}

#[test]
fn what_a_cast_rounds_is_its_source() {
    let inputs = [vector(&[1.03, f32::INFINITY])];
    for op in [Op::from(Cast::new(F32, E4M3FN)), Op::from(Decode { from: F32, to: F16 })] {
        assert_eq!(op.exact(&inputs, 0, 0), Some(f64::from(1.03f32)));
        assert_eq!(op.exact(&inputs, 0, 1), Some(f64::INFINITY));
        assert_eq!(op.sources(&inputs, 0, 1), [(0, 1)]);
    }
    assert_eq!(Op::from(Classify { format: F32 }).exact(&inputs, 0, 0), None);
}
