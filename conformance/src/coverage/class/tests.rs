//! The classes against definitions of their own: values as f64, in lists.

use super::*;
use plumbline_reference::format::{
    ALL, BF16, E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, Overflow, Policy,
    Rounding, UE4M3,
};

fn names(values: Values) -> Vec<String> {
    values.classes().iter().map(ToString::to_string).collect()
}

#[test]
fn every_code_of_8_bits() {
    // The smallest subnormal and normal number, and the largest.
    let limits = [
        (E4M3FN, 2f64.powi(-9), 2f64.powi(-6), 448.0),
        (E5M2, 2f64.powi(-16), 2f64.powi(-14), 57344.0),
        (E4M3FNUZ, 2f64.powi(-10), 2f64.powi(-7), 240.0),
        (E5M2FNUZ, 2f64.powi(-17), 2f64.powi(-15), 57344.0),
        (E8M0, 0.0, 2f64.powi(-127), 2f64.powi(127)),
        (E2M3, 0.125, 1.0, 7.5),
        (E3M2, 0.0625, 0.25, 28.0),
        (E2M1, 0.5, 1.0, 6.0),
        (UE4M3, 2f64.powi(-9), 2f64.powi(-6), 448.0),
    ];
    let narrow = ALL.iter().filter(|format| format.code_bits() <= 8);
    assert!(narrow.eq(limits.iter().map(|(format, ..)| format)));
    for (format, min_subnormal, min_normal, max) in limits {
        for code in 0..1u64 << format.code_bits() {
            let value = format.to_f64(code);
            let size = value.abs();
            let negative = value.is_sign_negative();
            let expected: Vec<_> = [
                ("zero", value == 0.0 && !negative),
                ("negative_zero", value == 0.0 && negative),
                ("min_subnormal", size == min_subnormal && value != 0.0),
                ("subnormal", 0.0 < size && size < min_normal),
                ("min_normal", size == min_normal),
                ("normal", min_normal <= size && size.is_finite()),
                ("max_finite", size == max),
                ("infinity", value == f64::INFINITY),
                ("negative_infinity", value == f64::NEG_INFINITY),
                ("nan", value.is_nan()),
            ]
            .into_iter()
            .filter_map(|(name, has)| has.then_some(name))
            .collect();
            let found = ValueClass::of_code(format.into(), code);
            assert_eq!(names(found), expected, "{format} {code:#x}");
            assert!(found.classes().iter().all(|class| class.is_of(format.into())), "{format} {code:#x}");
        }
    }
}

#[test]
fn a_class_is_of_a_format_if_a_code_has_it() {
    for format in ALL.into_iter().filter(|format| format.code_bits() <= 16) {
        let codes = (0..1u64 << format.code_bits()).map(|code| ValueClass::of_code(format.into(), code));
        let found = codes.fold(Values::default(), Values::and).classes();
        for class in ValueClass::ALL.iter().filter(|class| class.is_of_codes()) {
            assert_eq!(found.contains(class), class.is_of(format.into()), "{format} {class}");
        }
    }
}

#[test]
fn codes_at_the_ends_of_wider_formats() {
    let of = |format: Format, codes: [u64; 10]| {
        codes.map(|code| names(ValueClass::of_code(format.into(), code)).join(" "))
    };
    let expected = [
        "zero",
        "negative_zero",
        "min_subnormal subnormal",
        "subnormal",
        "min_normal normal",
        "normal",
        "normal max_finite",
        "infinity",
        "negative_infinity",
        "nan",
    ];
    let f16 = [0, 0x8000, 0x8001, 0x03ff, 0x0400, 0x0401, 0xfbff, 0x7c00, 0xfc00, 0x7c01];
    assert_eq!(of(F16, f16), expected);
    let bf16 = [0, 0x8000, 0x0001, 0x807f, 0x8080, 0x0081, 0x7f7f, 0x7f80, 0xff80, 0xff81];
    assert_eq!(of(BF16, bf16), expected);
    let f32 = [
        0,
        0x8000_0000,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x0080_0001,
        0xff7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7f80_0001,
    ];
    assert_eq!(of(F32, f32), expected);
    assert_eq!(
        [0, 1, 0xff].map(|code| names(ValueClass::of_code(DType::U8, code)).join(" ")),
        ["zero", "normal", "max_finite"]
    );
}

/// Classes of a result from the list of a format's magnitudes.
fn expected(to: Format, magnitudes: &[f64], exact: f64, code: u64) -> Vec<&'static str> {
    let (result, size) = (to.to_f64(code), exact.abs());
    if !exact.is_finite() {
        return Vec::new();
    }
    if !result.is_finite() {
        return vec!["overflow"];
    }
    let (smallest, largest) = (magnitudes[0], magnitudes[magnitudes.len() - 1]);
    let underflow = (exact != 0.0 && result == 0.0).then_some("underflow");
    if size < smallest || exact < 0.0 && !to.signed {
        return ["saturated"].into_iter().chain(underflow).collect();
    }
    let below = magnitudes.partition_point(|&it| it <= size) - 1;
    let lower = magnitudes[below];
    let gap = |i: usize| if to == E8M0 { magnitudes[i] } else { magnitudes[i] - magnitudes[i - 1] };
    let upper = magnitudes.get(below + 1).copied().unwrap_or_else(|| largest + gap(magnitudes.len() - 1));
    let middle = f64::midpoint(lower, upper);
    if size > middle && lower == largest && result.abs() == largest {
        return vec!["saturated"];
    }
    let class = match result.abs() {
        result if result == size => "exact",
        result if result > size && size == middle => "tie_up",
        result if result > size => "rounded_up",
        result if result == lower && size == middle => "tie_down",
        _ => "rounded_down",
    };
    // The first number of a binade is the next one there is, but for the smallest subnormals.
    let normal = to.to_f64(to.min_normal());
    let carry = result.abs() > size && upper >= normal && upper.log2().fract() == 0.0;
    [Some(class), carry.then_some("carry"), underflow].into_iter().flatten().collect()
}

#[test]
fn every_f16_to_every_format_of_8_bits() {
    let policies = [
        Policy::default(),
        Policy::IEEE,
        Policy { rounding: Rounding::TowardZero, ..Policy::default() },
        Policy { rounding: Rounding::Up, overflow: Overflow::ToInfOrNan, ..Policy::default() },
    ];
    for to in ALL.into_iter().filter(|format| format.code_bits() <= 8) {
        let values = (0..1u64 << to.code_bits()).map(|code| to.to_f64(code));
        let mut magnitudes: Vec<_> = values.filter(|it| it.is_finite() && !it.is_sign_negative()).collect();
        magnitudes.sort_by(f64::total_cmp);
        for (policy, step) in policies.iter().zip([1, 17, 17, 17]) {
            for code in (0..1u64 << 16).step_by(step) {
                let (exact, result) = (F16.decode(code), to.encode(F16.decode(code), policy, 0));
                let found = ValueClass::of_result(to, exact, result);
                let expected = expected(to, &magnitudes, exact.to_f64(), result);
                assert!(
                    names(found) == expected,
                    "{to} {code:#x} {result:#x}: {:?} {expected:?}",
                    names(found)
                );
            }
        }
    }
}

#[test]
fn results_at_the_ends() {
    let of = |to: Format, exact: f64, overflow: Overflow| {
        let policy = Policy { overflow, ..Policy::default() };
        names(ValueClass::of_result(to, exact.into(), to.encode(exact.into(), &policy, 0))).join(" ")
    };
    let saturating = |exact| of(E4M3FN, exact, Overflow::Saturate);
    assert_eq!(saturating(449.0), "rounded_down");
    assert_eq!(saturating(464.0), "tie_down");
    assert_eq!(saturating(-464.000_01), "saturated");
    assert_eq!(saturating(1e300), "saturated");
    assert_eq!(of(E4M3FN, 464.000_01, Overflow::ToInfOrNan), "overflow");
    assert_eq!(saturating(2f64.powi(-10)), "tie_down underflow");
    assert_eq!(saturating(1e-300), "rounded_down underflow");
    assert_eq!(saturating(-0.0), "exact");
    assert_eq!(saturating(2f64.powi(-7) * 1.875), "tie_up carry"); // the largest subnormal and a half
    assert_eq!(saturating(1.99), "rounded_up carry");
    assert_eq!(of(E8M0, 0.0, Overflow::Saturate), "saturated");
    assert_eq!(of(E8M0, 1.5, Overflow::Saturate), "tie_up carry");
    assert_eq!(of(F32, f64::from(f32::MAX), Overflow::Saturate), "exact");
    assert_eq!(of(F32, 2f64.powi(-150), Overflow::Saturate), "tie_down underflow");
}

#[test]
fn extents() {
    let of = |extent| ShapeClass::of(extent).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for (extent, classes) in [
        (0, "zero"),
        (1, "one"),
        (2, "below_warp"),
        (31, "below_warp one_under"),
        (32, "warps"),
        (33, "one_over"),
        (37, "prime"),
        (40, ""),
        (97, "one_over prime"),
        (127, "one_under prime"),
        (256, "blocks"),
        (320, "warps"),
        (1 << 20, "blocks large"),
        ((1 << 20) + 1, "one_over large"),
    ] {
        assert_eq!(of(extent), classes, "{extent}");
    }
}

#[test]
fn layouts() {
    let of = |shape: &[usize], strides: &[usize]| {
        let classes = LayoutClass::of(&TensorType::new(F32, shape), strides);
        classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    for (shape, strides, classes) in [
        (&[2, 3][..], &[3, 1][..], "contiguous"),
        (&[], &[], "contiguous"),
        (&[0, 3], &[9, 1], "contiguous"),
        (&[1, 3], &[200, 1], "contiguous"),
        (&[2, 3], &[4, 1], "padded"),
        (&[2, 3], &[1, 2], "transposed"),
        (&[2, 3], &[1, 8], "padded transposed"),
        (&[3, 9, 33], &[33, 99, 1], "transposed"),
        (&[3, 9, 33], &[0, 33, 1], "repeated"),
        (&[3, 9, 33], &[0, 40, 1], "padded repeated"),
    ] {
        assert_eq!(of(shape, strides), classes, "{shape:?} {strides:?}");
    }
}
