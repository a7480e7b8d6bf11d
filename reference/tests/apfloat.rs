//! A second opinion: LLVM's arbitrary-precision floating point, as `rustc_apfloat`.
//!
//! It has every rounding but the stochastic one, overflows to infinity or NaN,
//! keeps subnormals and -0, and gives a NaN the sign of its source.

#[path = "common/codes.rs"]
mod codes;
#[path = "common/noise.rs"]
mod noise;
#[path = "common/value.rs"]
mod value;

use codes::all_codes;
use noise::noise;
use plumbline_reference::format::{
    BF16, E4M3FN, E5M2, F16, F32, F64, Format, NanPolicy, Policy, Rounding, Value,
};
use rayon::prelude::*;
use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};
use value::value;

const ROUNDINGS: [(Rounding, Round); 5] = [
    (Rounding::NearestEven, Round::NearestTiesToEven),
    (Rounding::NearestAway, Round::NearestTiesToAway),
    (Rounding::TowardZero, Round::TowardZero),
    (Rounding::Up, Round::TowardPositive),
    (Rounding::Down, Round::TowardNegative),
];

/// A format and what apfloat calls it.
trait Known: Float {
    const FORMAT: Format;
}

macro_rules! known {
    ($($Type:ty: $FORMAT:ident,)*) => {
        $(impl Known for $Type {
            const FORMAT: Format = $FORMAT;
        })*
    };
}

known! {
    Float8E4M3FN: E4M3FN,
    Float8E5M2: E5M2,
    Half: F16,
    BFloat: BF16,
    Single: F32,
    Double: F64,
}

fn apfloat<Source: Known + FloatConvert<Target>, Target: Known>(code: u64, round: Round) -> u64 {
    Source::from_bits(code.into()).convert_r(round, &mut false).value.to_bits() as u64
}

/// Whether apfloat is known to be wrong: from a negative number whose magnitude
/// rounds to E4M3's NaN code (480 and up to 512) it goes as if the number were positive.
///
/// IEEE 754-2019, 7.4: an overflow goes to -infinity under roundTowardNegative and
/// to the most negative finite number under roundTowardPositive. apfloat does so
/// for E4M3 from -512 on, and for every other format; above -512 it exchanges the two.
fn known_to_be_exchanged(target: Format, x: f64, rounding: Rounding) -> bool {
    target == E4M3FN
        && match rounding {
            Rounding::Down => -512.0 < x && x < -448.0,
            Rounding::Up => -512.0 < x && x <= -480.0,
            _ => false,
        }
}

fn check<Source: Known + FloatConvert<Target>, Target: Known>(code: u64) {
    let (source, target) = (Source::FORMAT, Target::FORMAT);
    let x = value(source, code);
    for (rounding, round) in ROUNDINGS {
        let policy = Policy { rounding, nan: NanPolicy::SignKept, ..Policy::IEEE };
        let got = target.encode(source.decode(code), &policy, 0);
        let expected = apfloat::<Source, Target>(code, round);
        let context = || {
            let hex = |code| target.hex(code);
            format!(
                "{source} {code:#x} ({x:e}) to {target}, {rounding:?}: {} and {}",
                hex(got),
                hex(expected)
            )
        };
        if known_to_be_exchanged(target, x, rounding) {
            let mirrored = apfloat::<Source, Target>(code ^ source.sign_bit(), -round);
            assert_ne!(got, expected, "apfloat has learnt: {}", context());
            assert_eq!(got, mirrored | target.sign_bit(), "{}", context());
        } else if x.is_nan() {
            // apfloat keeps the payload; the sign and being a NaN are what can be compared.
            let (got, expected) = (target.decode(got), target.decode(expected));
            assert!(got.is_nan() && got == expected, "{}", context());
        } else {
            assert_eq!(got, expected, "{}", context());
        }
    }
}

/// The middle of a code and the next, and with the last finite code the middle to
/// where the next value would be. Exact in f64 for up to 32 bits.
fn midpoint(format: Format, code: u64) -> f64 {
    let here = value(format, code);
    let step_down = here - value(format, code - format.code_at(1));
    match value(format, code + format.code_at(1)) {
        next if next.is_finite() => (here + next) / 2.0,
        _ => here + step_down / 2.0,
    }
}

/// Checks both signs of each number and of its two neighbours on either side, where
/// `Source` holds the number.
fn check_around<Source: Known + FloatConvert<Target>, Target: Known>(x: f64) {
    let source = Source::FORMAT;
    let code = source.encode(Value::from(x), &Policy::IEEE, 0);
    if value(source, code) == x {
        for code in code.saturating_sub(2)..=code + 2 {
            check::<Source, Target>(code);
            check::<Source, Target>(code | source.sign_bit());
        }
    }
}

/// The positive finite codes of a format.
fn positive(format: Format) -> impl ParallelIterator<Item = u64> {
    (1..=format.max_finite()).into_par_iter()
}

fn check_all_values_and_midpoints<Target: Known>()
where
    Double: FloatConvert<Target>,
    Single: FloatConvert<Target>,
{
    positive(Target::FORMAT).for_each(|code| {
        for x in [value(Target::FORMAT, code), midpoint(Target::FORMAT, code)] {
            check_around::<Double, Target>(x);
            check_around::<Single, Target>(x);
        }
    });
    let below_the_smallest = value(Target::FORMAT, 1) / 2.0;
    check_around::<Double, Target>(below_the_smallest);
    check_around::<Single, Target>(below_the_smallest);
}

/// Zero, infinities, NaN, the ends of the source's range, powers of two far beyond
/// the target's, and noise.
fn check_far_and_special<Source: Known + FloatConvert<Target>, Target: Known>() {
    let source = Source::FORMAT;
    let infinity = source.infinity().expect("a source with infinity");
    let ends = [0, 1, 2, source.min_normal(), source.max_finite(), infinity];
    let nans = [infinity + 1, infinity | source.min_normal() >> 1, source.canonical_nan().expect("a NaN")];
    let powers = (0..1 << source.exponent_bits).map(|field| field << source.fraction_bits);
    let noise = (0..20_000).map(|i| noise(i) & source.code_mask());
    for code in ends.into_iter().chain(nans).chain(powers).chain(noise) {
        check::<Source, Target>(code);
        check::<Source, Target>(code ^ source.sign_bit());
    }
}

macro_rules! for_targets {
    ($($name:ident: $Target:ident,)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn around_every_value_and_midpoint() {
                check_all_values_and_midpoints::<$Target>();
            }

            #[test]
            fn far_and_special() {
                check_far_and_special::<Double, $Target>();
                check_far_and_special::<Single, $Target>();
            }
        })*
    };
}

for_targets! {
    e4m3fn: Float8E4M3FN,
    e5m2: Float8E5M2,
    f16: Half,
    bf16: BFloat,
}

#[test]
fn f32_from_f64_around_midpoints_of_every_binade() {
    let fractions = [0, 1, 2, 0x2a_aaaa, 0x3f_ffff, 0x40_0000, 0x55_5555, 0x7f_fffd, 0x7f_fffe, 0x7f_ffff];
    (0..255u64).into_par_iter().for_each(|exponent| {
        let random = (0..400).map(|i| noise(exponent << 9 | i) & 0x7f_ffff);
        for code in fractions.into_iter().chain(random).map(|fraction| exponent << 23 | fraction) {
            if code > 0 {
                check_around::<Double, Single>(midpoint(F32, code));
            }
            check_around::<Double, Single>(value(F32, code));
        }
    });
    check_around::<Double, Single>(value(F32, 1) / 2.0);
    check_far_and_special::<Double, Single>();
}

#[test]
fn sixteen_bit_formats_from_each_other_and_to_eight_bits() {
    (0..1 << 16).into_par_iter().for_each(|code| {
        check::<Half, BFloat>(code);
        check::<Half, Float8E4M3FN>(code);
        check::<Half, Float8E5M2>(code);
        check::<BFloat, Half>(code);
        check::<BFloat, Float8E4M3FN>(code);
        check::<BFloat, Float8E5M2>(code);
    });
}

#[test]
fn widening_is_exact() {
    fn check_codes<Source: Known + FloatConvert<Target>, Target: Known>(codes: impl Iterator<Item = u64>) {
        codes.for_each(|code| check::<Source, Target>(code));
    }
    check_codes::<Float8E4M3FN, Half>(all_codes(E4M3FN));
    check_codes::<Float8E4M3FN, BFloat>(all_codes(E4M3FN));
    check_codes::<Float8E4M3FN, Single>(all_codes(E4M3FN));
    check_codes::<Float8E5M2, Half>(all_codes(E5M2));
    check_codes::<Float8E5M2, BFloat>(all_codes(E5M2));
    check_codes::<Float8E5M2, Double>(all_codes(E5M2));
    check_codes::<Half, Single>(all_codes(F16));
    check_codes::<Half, Double>(all_codes(F16));
    check_codes::<BFloat, Single>(all_codes(BF16));
    check_codes::<BFloat, Double>(all_codes(BF16));
    check_codes::<Single, Double>((0..100_000).map(|i| noise(i) & 0xffff_ffff));
}

/// What `known_to_be_exchanged` says, once in figures.
#[test]
fn overflow_of_negative_numbers_to_e4m3_goes_outward_only_when_rounded_down() {
    let code = |x: f64, rounding| {
        let policy = Policy { rounding, nan: NanPolicy::SignKept, ..Policy::IEEE };
        E4M3FN.encode(Value::from(x), &policy, 0)
    };
    let apfloat = |x: f64, round| apfloat::<Double, Float8E4M3FN>(x.to_bits(), round);
    for x in [-480.0, -500.0] {
        assert_eq!((code(x, Rounding::Down), code(x, Rounding::Up)), (0xff, 0xfe));
        assert_eq!((apfloat(x, Round::TowardNegative), apfloat(x, Round::TowardPositive)), (0xfe, 0xff));
    }
    for x in [-512.0, -1e9] {
        assert_eq!((code(x, Rounding::Down), code(x, Rounding::Up)), (0xff, 0xfe));
        assert_eq!((apfloat(x, Round::TowardNegative), apfloat(x, Round::TowardPositive)), (0xff, 0xfe));
    }
}
