//! Formats against the numbers printed in their specifications.

#[path = "common/codes.rs"]
mod codes;
#[path = "common/noise.rs"]
mod noise;
#[path = "common/value.rs"]
mod value;

use codes::all_codes;
use noise::noise;
use plumbline_reference::format::{
    ALL, BF16, Class, E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, F64, Format,
    NanPolicy, Policy, TF32, UE4M3, Value,
};
use value::{power_of_two, value};

/// What a specification says of a format.
struct Printed {
    format: Format,
    code_bits: u32,
    /// Largest finite value, smallest normal and smallest positive number.
    max: (u64, f64),
    min_normal: (u64, f64),
    min_positive: (u64, f64),
    /// Code of the least value.
    lowest: u64,
    infinity: Option<u64>,
    nan: Option<u64>,
    negative_zero: Option<u64>,
    /// How many codes are NaN, infinite, zero, subnormal, normal.
    classes: [u64; 5],
}

#[rustfmt::skip]
const PRINTED: [Printed; 14] = [
    Printed {
        format: E4M3FN, code_bits: 8,
        max: (0x7e, 448.0), min_normal: (0x08, 0.015625), min_positive: (0x01, 0.001953125),
        lowest: 0xfe, infinity: None, nan: Some(0x7f), negative_zero: Some(0x80),
        classes: [2, 0, 2, 14, 238],
    },
    Printed {
        format: E5M2, code_bits: 8,
        max: (0x7b, 57344.0), min_normal: (0x04, 6.103515625e-5), min_positive: (0x01, 1.52587890625e-5),
        lowest: 0xfb, infinity: Some(0x7c), nan: Some(0x7f), negative_zero: Some(0x80),
        classes: [6, 2, 2, 6, 240],
    },
    Printed {
        format: E4M3FNUZ, code_bits: 8,
        max: (0x7f, 240.0), min_normal: (0x08, 0.0078125), min_positive: (0x01, 0.0009765625),
        lowest: 0xff, infinity: None, nan: Some(0x80), negative_zero: None,
        classes: [1, 0, 1, 14, 240],
    },
    Printed {
        format: E5M2FNUZ, code_bits: 8,
        max: (0x7f, 57344.0), min_normal: (0x04, 3.0517578125e-5), min_positive: (0x01, 7.62939453125e-6),
        lowest: 0xff, infinity: None, nan: Some(0x80), negative_zero: None,
        classes: [1, 0, 1, 6, 248],
    },
    Printed {
        format: F16, code_bits: 16,
        max: (0x7bff, 65504.0), min_normal: (0x0400, 6.103515625e-5), min_positive: (0x0001, 5.960464477539063e-8),
        lowest: 0xfbff, infinity: Some(0x7c00), nan: Some(0x7fff), negative_zero: Some(0x8000),
        classes: [2046, 2, 2, 2046, 61440],
    },
    Printed {
        format: BF16, code_bits: 16,
        max: (0x7f7f, 3.3895313892515355e38), min_normal: (0x0080, 1.1754943508222875e-38),
        min_positive: (0x0001, 9.183549615799121e-41),
        lowest: 0xff7f, infinity: Some(0x7f80), nan: Some(0x7fff), negative_zero: Some(0x8000),
        classes: [254, 2, 2, 254, 65024],
    },
    Printed {
        format: TF32, code_bits: 19,
        max: (0x7f7f_e000, 3.4011621342146535e38), min_normal: (0x0080_0000, 1.1754943508222875e-38),
        min_positive: (0x0000_2000, 1.1479437019748901e-41),
        lowest: 0xff7f_e000, infinity: Some(0x7f80_0000), nan: Some(0x7fff_e000), negative_zero: Some(0x8000_0000),
        classes: [2046, 2, 2, 2046, 520_192],
    },
    Printed {
        format: F32, code_bits: 32,
        max: (0x7f7f_ffff, 3.4028234663852886e38), min_normal: (0x0080_0000, 1.1754943508222875e-38),
        min_positive: (0x0000_0001, 1.401298464324817e-45),
        lowest: 0xff7f_ffff, infinity: Some(0x7f80_0000), nan: Some(0x7fff_ffff), negative_zero: Some(0x8000_0000),
        classes: [16_777_214, 2, 2, 16_777_214, 4_261_412_864],
    },
    Printed {
        format: F64, code_bits: 64,
        max: (0x7fef_ffff_ffff_ffff, 1.7976931348623157e308), min_normal: (0x0010_0000_0000_0000, 2.2250738585072014e-308),
        min_positive: (0x0000_0000_0000_0001, 5e-324),
        lowest: 0xffef_ffff_ffff_ffff, infinity: Some(0x7ff0_0000_0000_0000), nan: Some(0x7fff_ffff_ffff_ffff),
        negative_zero: Some(0x8000_0000_0000_0000),
        classes: [9_007_199_254_740_990, 2, 2, 9_007_199_254_740_990, 18_428_729_675_200_069_632],
    },
    Printed {
        format: E8M0, code_bits: 8,
        max: (0xfe, 1.7014118346046923e38), min_normal: (0x00, 5.877471754111438e-39), min_positive: (0x00, 5.877471754111438e-39),
        lowest: 0x00, infinity: None, nan: Some(0xff), negative_zero: None,
        classes: [1, 0, 0, 0, 255],
    },
    Printed {
        format: E2M3, code_bits: 6,
        max: (0x1f, 7.5), min_normal: (0x08, 1.0), min_positive: (0x01, 0.125),
        lowest: 0x3f, infinity: None, nan: None, negative_zero: Some(0x20),
        classes: [0, 0, 2, 14, 48],
    },
    Printed {
        format: E3M2, code_bits: 6,
        max: (0x1f, 28.0), min_normal: (0x04, 0.25), min_positive: (0x01, 0.0625),
        lowest: 0x3f, infinity: None, nan: None, negative_zero: Some(0x20),
        classes: [0, 0, 2, 6, 56],
    },
    Printed {
        format: E2M1, code_bits: 4,
        max: (0x7, 6.0), min_normal: (0x2, 1.0), min_positive: (0x1, 0.5),
        lowest: 0xf, infinity: None, nan: None, negative_zero: Some(0x8),
        classes: [0, 0, 2, 2, 12],
    },
    Printed {
        format: UE4M3, code_bits: 7,
        max: (0x7e, 448.0), min_normal: (0x08, 0.015625), min_positive: (0x01, 0.001953125),
        lowest: 0x00, infinity: None, nan: Some(0x7f), negative_zero: None,
        classes: [1, 0, 1, 7, 119],
    },
];

/// The formats whose codes can all be visited.
fn listable() -> impl Iterator<Item = Format> {
    ALL.into_iter().filter(|format| format.code_bits() <= 19)
}

/// Every code of a small format, a quarter million of a large one.
fn codes(format: Format) -> Vec<u64> {
    if format.code_bits() <= 19 {
        return all_codes(format).collect();
    }
    let patterns = (0..1 << 18).map(noise).chain((0..64).map(|bit| 1 << bit)).chain((0..64).map(|n| !0 << n));
    patterns.map(|bits| bits & format.code_mask()).collect()
}

#[test]
fn every_format_is_printed_here() {
    assert_eq!(PRINTED.map(|printed| printed.format), ALL);
}

#[test]
fn derived_constants_are_those_of_the_specification() {
    for Printed {
        format,
        code_bits,
        max,
        min_normal,
        min_positive,
        lowest,
        infinity,
        nan,
        negative_zero,
        ..
    } in PRINTED
    {
        assert_eq!(format.code_bits(), code_bits, "{format}");
        assert_eq!(format.code_count(), 1 << code_bits, "{format}");
        assert_eq!((format.max_finite(), format.to_f64(format.max_finite())), max, "{format}");
        assert_eq!((format.min_normal(), format.to_f64(format.min_normal())), min_normal, "{format}");
        assert_eq!((format.min_positive(), format.to_f64(format.min_positive())), min_positive, "{format}");
        assert_eq!(format.lowest(), lowest, "{format}");
        assert_eq!((format.infinity(), format.has_infinity()), (infinity, infinity.is_some()), "{format}");
        assert_eq!((format.canonical_nan(), format.has_nan()), (nan, nan.is_some()), "{format}");
        assert_eq!(format.has_negative_zero(), negative_zero.is_some(), "{format}");
        if let Some(code) = negative_zero {
            assert_eq!(format.to_f64(code).to_bits(), (-0.0f64).to_bits(), "{format}");
        }
        if let Some(code) = infinity {
            assert_eq!(format.decode(code), Value::Infinite { negative: false }, "{format}");
        }
        if let Some(code) = nan {
            assert!(format.decode(code).is_nan(), "{format}");
        }
    }
}

#[test]
fn binades_end_where_the_extremes_lie() {
    for Printed { format, max, min_normal, .. } in PRINTED {
        let (top, bottom) = (power_of_two(format.max_exponent()), power_of_two(format.min_exponent()));
        assert!(top <= max.1 && max.1 / 2.0 < top, "{format}");
        assert_eq!(bottom, min_normal.1, "{format}");
    }
}

#[test]
fn stored_patterns_are_as_wide_as_memory() {
    let widths =
        |format: Format| (format.storage_bits, format.hex_digits(), format.code_mask(), format.sign_bit());
    assert_eq!(widths(E4M3FN), (8, 2, 0xff, 0x80));
    assert_eq!(widths(UE4M3), (8, 2, 0x7f, 0));
    assert_eq!(widths(E8M0), (8, 2, 0xff, 0));
    assert_eq!(widths(E2M3), (8, 2, 0x3f, 0x20));
    assert_eq!(widths(E2M1), (8, 2, 0x0f, 0x08));
    assert_eq!(widths(F16), (16, 4, 0xffff, 0x8000));
    assert_eq!(widths(TF32), (32, 8, 0xffff_e000, 0x8000_0000));
    assert_eq!(widths(F32), (32, 8, 0xffff_ffff, 0x8000_0000));
    assert_eq!(widths(F64), (64, 16, u64::MAX, 1 << 63));
}

#[test]
fn padding_is_ignored_when_read_and_zero_when_written() {
    for format in listable() {
        let storage = u64::MAX >> (64 - format.storage_bits);
        for code in all_codes(format) {
            let dirty = code | storage & !format.code_mask();
            assert_eq!(format.decode(dirty), format.decode(code), "{format} {}", format.hex(dirty));
        }
    }
    let third = Value::from(1.0 / 3.0);
    assert_eq!(TF32.encode(third, &Policy::IEEE, 0), 0x3eaa_a000);
}

#[test]
fn decode_follows_the_formula() {
    for format in ALL {
        for code in codes(format) {
            let (got, expected) = (format.to_f64(code), value(format, code));
            let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
            assert!(same, "{format} {}: {got:e}, expected {expected:e}", format.hex(code));
            assert_eq!(format.decode(code).is_negative(), expected.is_sign_negative(), "{format} {code:#x}");
        }
    }
}

#[test]
fn decode_of_binary32_and_binary64_is_the_processors() {
    for bits in codes(F32) {
        let float = f32::from_bits(bits as u32);
        assert!(F32.to_f64(bits).to_bits() == f64::from(float).to_bits() || float.is_nan(), "{bits:#x}");
        assert_eq!(Value::from(float), F32.decode(bits), "{bits:#x}");
    }
    for bits in codes(F64) {
        let float = f64::from_bits(bits);
        assert!(F64.to_f64(bits) == float || float.is_nan(), "{bits:#x}");
        assert_eq!(Value::from(float), F64.decode(bits), "{bits:#x}");
    }
}

#[test]
fn encode_inverts_decode() {
    let sign_kept = Policy { nan: NanPolicy::SignKept, ..Policy::IEEE };
    for format in ALL {
        for code in codes(format) {
            let decoded = format.decode(code);
            let expected = if decoded.is_nan() { format.canonical_nan() } else { Some(code) };
            assert_eq!(Some(format.encode(decoded, &Policy::IEEE, 0)), expected, "{format} {code:#x}");
            let with_sign =
                expected.map(|code| code | if decoded.is_negative() { format.sign_bit() } else { 0 });
            assert_eq!(Some(format.encode(decoded, &sign_kept, 0)), with_sign, "{format} {code:#x}");
        }
    }
}

/// The finite and infinite values of a format, ascending, zero once.
fn ascending(format: Format) -> Vec<f64> {
    let mut values: Vec<_> =
        all_codes(format).map(|code| value(format, code) + 0.0).filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

#[test]
fn values_ascend_with_magnitudes() {
    for format in listable() {
        let positive: Vec<_> = all_codes(format)
            .take_while(|&code| format.sign_bit() == 0 || code < format.sign_bit())
            .collect();
        let values: Vec<_> = positive
            .into_iter()
            .map(|code| format.to_f64(code))
            .take_while(|value| !value.is_nan())
            .collect();
        assert!(values.is_sorted_by(|a, b| a < b), "{format}");
        assert!(values[0] >= 0.0 && values.len() > 1, "{format}");
    }
}

#[test]
fn next_up_and_next_down_visit_every_value_in_order() {
    for format in listable() {
        let values = ascending(format);
        let find = |value: f64| format.encode(Value::from(value), &Policy::IEEE, 0);
        let walk = |from: f64, step: fn(&Format, u64) -> Option<u64>| -> Vec<f64> {
            let codes = std::iter::successors(Some(find(from)), |&code| step(&format, code));
            // One more than there are: a walk that goes in circles ends, too.
            codes.take(values.len() + 1).map(|code| value(format, code) + 0.0).collect()
        };
        let (first, last) = (values[0], values[values.len() - 1]);
        assert_eq!(walk(first, Format::next_up), values, "{format}");
        let descending: Vec<_> = values.iter().rev().copied().collect();
        assert_eq!(walk(last, Format::next_down), descending, "{format}");
    }
}

#[test]
fn next_up_and_next_down_undo_each_other() {
    for format in ALL {
        for code in codes(format) {
            let here = value(format, code);
            let up_and_back = format.next_up(code).and_then(|up| format.next_down(up));
            let down_and_back = format.next_down(code).and_then(|down| format.next_up(down));
            for back in [up_and_back, down_and_back].into_iter().flatten() {
                assert_eq!(value(format, back), here, "{format} {}", format.hex(code));
                assert!(back == code || here == 0.0, "{format} {}", format.hex(code));
            }
        }
    }
}

#[test]
fn next_up_and_next_down_are_those_of_binary32() {
    let next = |code: Option<u64>, expected: f32, from: f32| match code {
        // Where nothing follows, IEEE 754 stays; here there is no code.
        None => assert!(from.is_nan() || from == expected),
        Some(code) => assert_eq!(f32::from_bits(code as u32), expected),
    };
    for bits in codes(F32) {
        let float = f32::from_bits(bits as u32);
        next(F32.next_up(bits), float.next_up(), float);
        next(F32.next_down(bits), float.next_down(), float);
    }
}

#[test]
fn zeros_of_both_signs_step_alike() {
    for format in ALL.into_iter().filter(Format::has_negative_zero) {
        for zero in [0, format.sign_bit()] {
            assert_eq!(format.next_up(zero), Some(format.min_positive()), "{format}");
            assert_eq!(format.next_down(zero), Some(format.min_positive() | format.sign_bit()), "{format}");
        }
    }
}

#[test]
fn nothing_lies_beyond_the_ends_or_beside_nan() {
    for format in ALL {
        let top = format.infinity().unwrap_or(format.max_finite());
        assert_eq!(format.next_up(top), None, "{format}");
        assert_eq!(format.next_up(format.max_finite()), format.infinity(), "{format}");
        let bottom = format.infinity().map_or(format.lowest(), |infinity| infinity | format.sign_bit());
        assert_eq!(format.next_down(bottom), None, "{format}");
        if let Some(nan) = format.canonical_nan() {
            assert_eq!((format.next_up(nan), format.next_down(nan)), (None, None), "{format}");
        }
    }
}

const CLASSES: [Class; 5] = [Class::Nan, Class::Infinite, Class::Zero, Class::Subnormal, Class::Normal];

#[test]
fn every_class_has_as_many_codes_as_the_specification_says() {
    for Printed { format, classes, code_bits, .. } in PRINTED {
        assert_eq!(classes.iter().map(|&count| u128::from(count)).sum::<u128>(), 1 << code_bits, "{format}");
        if code_bits <= 19 {
            let count =
                |class| all_codes(format).filter(|&code| format.classify(code) == class).count() as u64;
            assert_eq!(CLASSES.map(count), classes, "{format}");
        }
    }
}

#[test]
fn classes_of_binary32_and_binary64_are_the_standard_librarys() {
    let class = |class: std::num::FpCategory| CLASSES[class as usize];
    for bits in codes(F32) {
        assert_eq!(F32.classify(bits), class(f32::from_bits(bits as u32).classify()), "{bits:#x}");
    }
    for bits in codes(F64) {
        assert_eq!(F64.classify(bits), class(f64::from_bits(bits).classify()), "{bits:#x}");
    }
}

#[test]
fn names_are_unique_and_found() {
    for format in ALL {
        assert_eq!(Format::by_name(format.name), Some(format));
        assert_eq!(ALL.iter().filter(|other| other.name == format.name).count(), 1, "{format}");
    }
    assert_eq!(Format::by_name("e4m3"), None);
}
