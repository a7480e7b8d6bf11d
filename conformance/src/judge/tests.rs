use super::*;
use plumbline_reference::TensorType;
use plumbline_reference::format::{E2M1, E4M3FN, F16, F32, F64, UE4M3};
use plumbline_reference::ops::Cast;

fn verdict(
    criterion: Criterion,
    nan: NanJudge,
    x: &[u32],
    right: &[u64],
    got: &[u64],
    to: Format,
) -> OutputVerdict {
    let codes: Vec<_> = x.iter().map(|&bits| bits.into()).collect();
    let inputs = [Tensor::from_codes(TensorType::new(F32, [x.len()]), &codes).unwrap()];
    let ty = TensorType::new(to, [x.len()]);
    let expected = Expected {
        values: Values::Dense(Tensor::from_codes(ty.clone(), right).unwrap()),
        ty: ty.clone(),
        criterion,
        nan: None,
        computed: true,
    };
    let op = Op::from(Cast::new(F32, to));
    judge(Context::new(&op, &inputs, nan), 0, &expected, &Tensor::from_codes(ty, got).unwrap())
}

fn one(criterion: Criterion, x: f32, right: u64, got: u64, to: Format) -> bool {
    verdict(criterion, NanJudge::Class, &[x.to_bits()], &[right], &[got], to).ok
}

#[test]
fn nan_never_passes_for_a_number() {
    let loose = Criterion::Allclose { rtol: 1e30, atol: 1e30 };
    for criterion in [Criterion::BitExact, Criterion::Ulp(1e30), loose] {
        assert!(!one(criterion, 1.0, 0x38, 0x7f, E4M3FN), "{criterion:?}: number to NaN");
        assert!(!one(criterion, f32::NAN, 0x7f, 0x38, E4M3FN), "{criterion:?}: NaN to number");
    }
}

#[test]
fn infinity_never_passes_for_a_number_under_allclose() {
    let loose = Criterion::Allclose { rtol: 1e30, atol: 1e30 };
    assert!(!one(loose, 1.0, 0x3c00, 0x7c00, F16));
    assert!(!one(loose, f32::INFINITY, 0x7c00, 0x7bff, F16));
}

#[test]
fn the_sign_of_zero_is_judged_under_every_criterion() {
    let loose = Criterion::Allclose { rtol: 1.0, atol: 1.0 };
    for criterion in [Criterion::BitExact, Criterion::Ulp(8.0), loose] {
        assert!(!one(criterion, -0.0, 0x80, 0x00, E4M3FN), "{criterion:?}");
    }
}

#[test]
fn nans_compare_by_bits_or_by_class() {
    let nan = [f32::NAN.to_bits()];
    assert!(verdict(Criterion::BitExact, NanJudge::Class, &nan, &[0x7f], &[0xff], E4M3FN).ok);
    let bits = verdict(Criterion::BitExact, NanJudge::Bits, &nan, &[0x7f], &[0xff], E4M3FN);
    assert!(!bits.ok);
    assert_eq!(bits.faults[&Fault::NanBits], 1);
}

#[test]
fn half_an_ulp_accepts_either_side_of_a_tie_and_nothing_else() {
    // 1.0625 lies between 0x38 (1.0) and 0x39 (1.125).
    assert!(one(Criterion::Ulp(0.5), 1.0625, 0x38, 0x39, E4M3FN));
    assert!(!one(Criterion::Ulp(0.5), 1.07, 0x39, 0x38, E4M3FN));
    assert!(one(Criterion::Ulp(1.0), 1.07, 0x39, 0x38, E4M3FN));
}

#[test]
fn an_ulp_at_a_power_of_two_is_the_lower_one() {
    // Below 1.0 codes are 1/16 apart, above 1/8: 1.125 is two lower ulps away.
    assert!(!one(Criterion::Ulp(1.0), 1.0, 0x38, 0x39, E4M3FN));
    assert!(one(Criterion::Ulp(2.0), 1.0, 0x38, 0x39, E4M3FN));
}

#[test]
fn overflow_counts_as_the_next_power_of_two() {
    // 65520 is the tie between 65504 and 65536.
    assert!(one(Criterion::Ulp(0.5), 65520.0, 0x7c00, 0x7bff, F16));
    assert!(one(Criterion::Ulp(0.5), 65520.0, 0x7bff, 0x7c00, F16));
    assert!(!one(Criterion::Ulp(0.5), 65000.0, 0x7bef, 0x7c00, F16));
}

#[test]
fn what_a_policy_makes_of_an_overflow_is_right() {
    let ulp = Criterion::Ulp(1.0);
    for right in [0x7c00, 0x7bff] {
        assert!(one(ulp, 1e30, right, right, F16), "{right:x}");
        assert!(!one(ulp, 1e30, right, right | 0x8000, F16), "{right:x}");
        assert!(!one(ulp, 1e30, right, 0x7b00, F16), "{right:x}");
    }
}

#[test]
fn faults_are_named() {
    let cases: &[(f32, u64, u64, Fault)] = &[
        (465.0, 0x7e, 0x7f, Fault::NanMade),
        (f32::NAN, 0x7f, 0x7e, Fault::NanLost),
        (-0.0, 0x80, 0x00, Fault::SignOfZero),
        (1.0, 0x38, 0xb8, Fault::Sign),
        (1000.0, 0x7e, 0x70, Fault::Saturation),
        (0.002, 0x01, 0x00, Fault::Subnormal),
        (1.0625, 0x38, 0x39, Fault::Tie),
        (1.07, 0x39, 0x38, Fault::Rounding),
        (1.0, 0x38, 0x40, Fault::Value),
    ];
    for &(x, right, got, fault) in cases {
        let verdict = verdict(Criterion::BitExact, NanJudge::Bits, &[x.to_bits()], &[right], &[got], E4M3FN);
        assert_eq!(verdict.worst.unwrap().fault, fault, "{x}");
    }
}

#[test]
fn the_worst_element_is_the_wrong_special_value_then_the_largest_error() {
    let x = [1f32, 2.0, 3.0, 4.0].map(f32::to_bits);
    let right = [0x38, 0x40, 0x44, 0x48];
    let numbers = verdict(Criterion::BitExact, NanJudge::Bits, &x, &right, &[0x39, 0x48, 0x45, 0x48], E4M3FN);
    assert_eq!((numbers.mismatches, numbers.first.unwrap().index, numbers.worst.unwrap().index), (3, 0, 1));
    let special = verdict(Criterion::BitExact, NanJudge::Bits, &x, &right, &[0x39, 0x48, 0x7f, 0x48], E4M3FN);
    assert_eq!(special.worst.unwrap().index, 2);
}

#[test]
fn a_wrong_shape_or_type_fails_before_any_element() {
    let ty = TensorType::new(E4M3FN, [2]);
    let expected = Expected {
        values: Values::Dense(Tensor::from_codes(ty.clone(), &[0, 0]).unwrap()),
        ty,
        criterion: Criterion::BitExact,
        nan: None,
        computed: true,
    };
    let op = Op::from(Cast::new(F32, E4M3FN));
    let context = Context::new(&op, &[], NanJudge::Bits);
    for wrong in [TensorType::new(E4M3FN, [1, 2]), TensorType::new(DType::U8, [2])] {
        let verdict = judge(context, 0, &expected, &Tensor::from_codes(wrong, &[0, 0]).unwrap());
        assert!(!verdict.ok && verdict.shape.is_some());
    }
}

#[test]
fn a_given_value_is_judged_by_itself_not_by_the_operation() {
    // The case says that 1.0 must become 448, so 1.0 is wrong.
    let ty = TensorType::new(E4M3FN, [1]);
    let x = [Tensor::from_codes(TensorType::new(F32, [1]), &[1f32.to_bits().into()]).unwrap()];
    let expected = Expected {
        values: Values::Dense(Tensor::from_codes(ty.clone(), &[0x7e]).unwrap()),
        ty: ty.clone(),
        criterion: Criterion::Ulp(0.5),
        nan: None,
        computed: false,
    };
    let op = Op::from(Cast::new(F32, E4M3FN));
    let context = Context::new(&op, &x, NanJudge::Class);
    assert!(!judge(context, 0, &expected, &Tensor::from_codes(ty.clone(), &[0x38]).unwrap()).ok);
    assert!(judge(context, 0, &expected, &Tensor::from_codes(ty, &[0x7e]).unwrap()).ok);
}

#[test]
fn bits_outside_a_code_are_wrong_under_every_criterion() {
    for criterion in [Criterion::BitExact, Criterion::Ulp(8.0), Criterion::Allclose { rtol: 1.0, atol: 1.0 }]
    {
        let verdict = verdict(criterion, NanJudge::Class, &[1f32.to_bits()], &[0x02], &[0xf2], E2M1);
        assert_eq!(verdict.faults.keys().collect::<Vec<_>>(), [&Fault::Padding], "{criterion:?}");
    }
    assert!(!one(Criterion::BitExact, f32::NAN, 0x7f, 0xff, UE4M3), "NaN with padding set");
}

#[test]
fn the_error_over_the_bound_counts_right_elements_too() {
    let x = [1.0f32, 1.0625, 1.125].map(f32::to_bits);
    let verdict =
        verdict(Criterion::Ulp(1.0), NanJudge::Class, &x, &[0x38, 0x38, 0x39], &[0x38, 0x38, 0x39], E4M3FN);
    assert_eq!((verdict.ok, verdict.bit_exact, verdict.max_error_over_bound), (true, true, Some(0.5)));
}

#[test]
fn ulps_of_the_smallest_f64_are_not_zero() {
    let tiny = f64::from_bits(3);
    assert_eq!(ulp_below(F64, tiny), f64::from_bits(1));
}
