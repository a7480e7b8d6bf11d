//! What holds of every encoding, on random values, formats and policies.

#[path = "common/value.rs"]
mod value;

use plumbline_reference::format::{
    ALL, F32, F64, Format, Infinities, NegativeZero, Overflow, Policy, Rounder, Rounding, Subnormals, Value,
};
use proptest::prelude::*;
use proptest::sample::select;
use value::value;

fn formats() -> impl Strategy<Value = Format> {
    select(&ALL[..])
}

fn signed_formats() -> impl Strategy<Value = Format> {
    select(ALL.into_iter().filter(|format| format.signed).collect::<Vec<_>>())
}

fn policies() -> impl Strategy<Value = Policy> {
    select(Policy::all().collect::<Vec<_>>())
}

/// Any f64 that is a number: any pattern, the magnitude of any f32, or near a value
/// of a small format.
fn numbers() -> impl Strategy<Value = f64> {
    let near_small = (-600i32..600, -40i32..20, -3i64..=3).prop_map(|(significand, exponent, ulps)| {
        let value = f64::from(significand) * 2f64.powi(exponent);
        f64::from_bits(value.to_bits().saturating_add_signed(ulps))
    });
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        any::<u32>().prop_map(|bits| f64::from(f32::from_bits(bits))),
        near_small,
    ]
    .prop_filter("a number", |x| !x.is_nan())
}

/// The encoding of `x` as a number. A NaN stands for an overflow, as an infinity does.
fn encoded(format: Format, x: f64, policy: &Policy, random: u32) -> f64 {
    let result = value(format, format.encode(Value::from(x), policy, random));
    if result.is_nan() { f64::INFINITY.copysign(x) } else { result }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 20_000,
        max_global_rejects: u32::MAX,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encode_is_monotone(
        format in formats(), policy in policies(), random: u32, x in numbers(), y in numbers(),
    ) {
        let (low, high) = if x <= y { (x, y) } else { (y, x) };
        prop_assert!(encoded(format, low, &policy, random) <= encoded(format, high, &policy, random));
    }

    #[test]
    fn encode_is_monotone_between_neighbours(
        format in formats(), policy in policies(), random: u32, x in numbers(),
    ) {
        let above = encoded(format, x.next_up(), &policy, random);
        prop_assert!(encoded(format, x, &policy, random) <= above);
    }

    #[test]
    fn negation_mirrors(format in signed_formats(), policy in policies(), random: u32, x in numbers()) {
        let rounding = match policy.rounding {
            Rounding::Up => Rounding::Down,
            Rounding::Down => Rounding::Up,
            other => other,
        };
        let mirrored = Policy { rounding, ..policy };
        let (here, there) = (encoded(format, x, &policy, random), encoded(format, -x, &mirrored, random));
        prop_assert_eq!(here, -there);
        if here == 0.0 && format.has_negative_zero() && policy.negative_zero == NegativeZero::Kept {
            prop_assert_eq!(here.is_sign_negative(), x.is_sign_negative());
            prop_assert_eq!(there.is_sign_negative(), !x.is_sign_negative());
        } else if here == 0.0 {
            prop_assert!(here.is_sign_positive() && there.is_sign_positive());
        }
    }

    #[test]
    fn the_result_is_a_neighbour_on_the_side_that_rounding_says(
        format in formats(), rounding in select(&Rounding::ALL[..]), random: u32, x in numbers(),
    ) {
        let policy = Policy { rounding, ..Policy::default() };
        let (least, largest) = (value(format, format.lowest()), value(format, format.max_finite()));
        let x = x.clamp(least, largest);
        let code = format.encode(Value::from(x), &policy, random);
        let result = value(format, code);
        let between = match result.total_cmp(&x) {
            std::cmp::Ordering::Less => format.next_up(code).is_none_or(|next| value(format, next) > x),
            _ => format.next_down(code).is_none_or(|next| value(format, next) < x),
        };
        prop_assert!(result == x || between, "{} to {}", x, result);
        match rounding {
            Rounding::Up => prop_assert!(result >= x),
            Rounding::Down => prop_assert!(result <= x),
            Rounding::TowardZero => prop_assert!(result.abs() <= x.abs()),
            _ => {}
        }
    }

    #[test]
    fn saturation_gives_finite_results(format in formats(), policy in policies(), random: u32, x in numbers()) {
        let policy = Policy { overflow: Overflow::Saturate, infinities: Infinities::Saturate, ..policy };
        let result = value(format, format.encode(Value::from(x), &policy, random));
        prop_assert!(result.is_finite(), "{} to {}", x, result);
    }

    #[test]
    fn exact_values_stay(format in formats(), policy in policies(), random: u32, bits: u64) {
        let policy = Policy { subnormals: Subnormals::Kept, negative_zero: NegativeZero::Kept, ..policy };
        let code = bits & format.code_mask();
        prop_assume!(value(format, code).is_finite());
        prop_assert_eq!(format.encode(format.decode(code), &policy, random), code);
    }

    #[test]
    fn encoding_what_was_encoded_changes_nothing(
        format in formats(), policy in policies(), random: u32, x in numbers(),
    ) {
        let once = format.encode(Value::from(x), &policy, random);
        prop_assume!(value(format, once).is_finite());
        prop_assert_eq!(format.encode(format.decode(once), &policy, random), once);
    }

    #[test]
    fn flushing_leaves_no_subnormal_number(
        format in formats(), policy in policies(), random: u32, x in numbers(),
    ) {
        let smallest = value(format, format.min_normal());
        for subnormals in [Subnormals::FlushedBefore, Subnormals::FlushedAfter] {
            let result = encoded(format, x, &Policy { subnormals, ..policy }, random);
            prop_assert!(result == 0.0 || result.abs() >= smallest, "{} to {}", x, result);
        }
    }

    /// A value may be written with any significand and any exponent.
    #[test]
    fn the_representation_of_a_value_does_not_matter(
        format in formats(), policy in policies(), random: u32, negative: bool,
        significand in 1u64..1 << 40, exponent in prop_oneof![any::<i32>(), -1100i32..1100], shift in 0u32..24,
    ) {
        prop_assume!(exponent.checked_sub(shift as i32).is_some());
        let value = Value::Finite { negative, significand, exponent };
        let shifted =
            Value::Finite { negative, significand: significand << shift, exponent: exponent - shift as i32 };
        prop_assert_eq!(format.encode(value, &policy, random), format.encode(shifted, &policy, random));
    }

    /// `significand / 2^shift` in units of `2^-32`, to which a random word or a half is
    /// added before the fraction is dropped.
    #[test]
    fn integers_round_by_adding_and_dropping(
        significand in prop_oneof![any::<u64>(), Just(u64::MAX)], shift in 1u32..120,
        random in prop_oneof![any::<u32>(), Just(u32::MAX)], negative: bool,
    ) {
        let round = |rounding| Rounder { rounding, negative, random }.round(significand, shift);
        let wide = u128::from(significand);
        prop_assert_eq!(u128::from(round(Rounding::Stochastic)), (((wide << 32) >> shift) + u128::from(random)) >> 32);
        prop_assert_eq!(u128::from(round(Rounding::NearestAway)), (((wide << 1) >> shift) + 1) >> 1);
        prop_assert_eq!(u128::from(round(Rounding::TowardZero)), wide >> shift);
    }

    #[test]
    fn random_words_matter_to_stochastic_rounding_only(
        format in formats(), policy in policies(), random: u32, x in numbers(),
    ) {
        prop_assume!(policy.rounding != Rounding::Stochastic);
        let value = Value::from(x);
        prop_assert_eq!(format.encode(value, &policy, random), format.encode(value, &policy, 0));
    }

    #[test]
    fn binary32_and_binary64_round_as_the_processor_does(x in numbers()) {
        prop_assert_eq!(F32.encode(Value::from(x), &Policy::IEEE, 0), u64::from((x as f32).to_bits()));
        prop_assert_eq!(F64.encode(Value::from(x), &Policy::IEEE, 0), x.to_bits());
    }
}

/// Of the 2^16 evenly spaced random words, as many round away as the discarded
/// fraction says.
#[test]
fn stochastic_rounding_is_unbiased() {
    let policy = Policy { rounding: Rounding::Stochastic, ..Policy::default() };
    let format = plumbline_reference::format::E4M3FN;
    for sixteenths in 0..16u32 {
        let x = 1.0 + f64::from(sixteenths) / 16.0 * 0.125;
        let away = (0..1u32 << 16).filter(|word| format.encode(Value::from(x), &policy, word << 16) != 0x38);
        assert_eq!(away.count() as u32, sixteenths << 12, "{x}");
    }
}

/// Far beyond the exponents of any format, where the arithmetic on exponents ends.
#[test]
fn absurd_exponents_overflow_or_vanish() {
    for format in ALL {
        for significand in [1, 3, 1 << 52, u64::MAX] {
            for policy in Policy::all() {
                let encode = |exponent| {
                    let value = Value::Finite { negative: false, significand, exponent };
                    format.encode(value, &policy, 7)
                };
                assert_eq!(encode(i32::MAX), encode(2000), "{format} {policy:?}");
                assert_eq!(encode(i32::MIN), encode(-2000), "{format} {policy:?}");
            }
        }
    }
}
