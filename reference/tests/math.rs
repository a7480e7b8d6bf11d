//! The canonical functions against CORE-MATH's, which are correctly rounded: in f64, so that the
//! error of an f32 is known to a billionth of an ulp.

use core_math as exact;
use plumbline_reference::format::F32;
use plumbline_reference::math;
use rayon::prelude::*;

/// A function: its name, ours, and the correctly rounded one in f64.
type Function = (&'static str, fn(f32) -> f32, fn(f64) -> f64);

const FUNCTIONS: [Function; 9] = [
    ("exp", math::exp, exact::exp),
    ("exp2", math::exp2, exact::exp2),
    ("tanh", math::tanh, exact::tanh),
    ("erf", math::erf, exact::erf),
    ("normal_cdf", math::normal_cdf, |x| 0.5 * exact::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)),
    ("sin", math::sin, exact::sin),
    ("cos", math::cos, exact::cos),
    ("log", math::log, exact::log),
    ("rsqrt", math::rsqrt, exact::rsqrt),
];

/// Neighbouring f32 are so far apart at a value.
fn ulp(x: f64) -> f64 {
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    f64::from_bits(((exponent - 23 + 1023) as u64) << 52)
}

/// The error in ulp; `None` where a special value or the sign of zero is wrong.
fn error(got: f32, exact: f64) -> Option<f64> {
    if exact.is_nan() {
        return got.is_nan().then_some(0.0);
    }
    if exact == 0.0 || exact.is_infinite() {
        return (f64::from(got).to_bits() == exact.to_bits()).then_some(0.0);
    }
    // An infinity stands for the first number beyond the largest.
    let got = match got {
        f32::INFINITY => 2f64.powi(128),
        f32::NEG_INFINITY => -2f64.powi(128),
        got => f64::from(got),
    };
    let beyond = exact.abs() >= F32.to_f64(F32.max_finite()) + ulp(3e38) / 2.0;
    if beyond && got.abs() == 2f64.powi(128) && (got < 0.0) == (exact < 0.0) {
        return Some(0.0);
    }
    (got.is_finite() && got.is_sign_negative() == exact.is_sign_negative())
        .then(|| (got - exact).abs() / ulp(exact))
}

fn check(codes: impl ParallelIterator<Item = u32> + Clone) {
    for ((name, ours, exact), (stated, most)) in FUNCTIONS.into_iter().zip(math::ERRORS) {
        assert_eq!(name, stated);
        let errors = codes.clone().map(|bits| {
            let x = f32::from_bits(bits);
            let (got, right) = (ours(x), exact(f64::from(x)));
            (error(got, right).unwrap_or(f64::INFINITY), bits)
        });
        let (worst, at) = errors.reduce(|| (0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
        let x = f32::from_bits(at);
        println!("{name}: {worst:.4} ulp at {x:e} (0x{at:08x})");
        assert!(
            worst <= most,
            "{name}({x:e} = 0x{at:08x}) = {:e}, exactly {:e}: {worst} ulp, stated {most}",
            ours(x),
            exact(f64::from(x)),
        );
    }
}

#[test]
fn errors_are_as_stated_over_every_binade() {
    // An odd stride, so that all bits vary; every exponent is met a thousand times.
    check((0..1u32 << 20).into_par_iter().map(|i| i.wrapping_mul(4093)));
    // Both ends of every binade, and special values.
    check(
        (0..512u32 * 64)
            .into_par_iter()
            .map(|i| (i / 64) << 23 | (i % 32).wrapping_sub(16 * (i / 32 % 2)) & 0x7f_ffff),
    );
}

#[test]
#[ignore = "every f32: minutes"]
fn errors_are_as_stated_over_every_f32() {
    check((0..=u32::MAX).into_par_iter());
}

/// A function, an argument and the right value.
type Value = (fn(f32) -> f32, f32, f32);

#[test]
fn special_values_are_those_of_annex_f() {
    let inf = f32::INFINITY;
    let cases: [Value; 18] = [
        (math::exp, inf, inf),
        (math::exp, -inf, 0.0),
        (math::exp, -0.0, 1.0),
        (math::exp2, inf, inf),
        (math::exp2, -inf, 0.0),
        (math::exp2, -149.0, f32::from_bits(1)),
        (math::exp2, 127.0, 2f32.powi(127)),
        (math::tanh, -0.0, -0.0),
        (math::tanh, -inf, -1.0),
        (math::erf, -0.0, -0.0),
        (math::erf, inf, 1.0),
        (math::normal_cdf, -inf, 0.0),
        (math::normal_cdf, inf, 1.0),
        (math::normal_cdf, 0.0, 0.5),
        (math::log, -0.0, -inf),
        (math::log, 1.0, 0.0),
        (math::rsqrt, -0.0, -inf),
        (math::sin, -0.0, -0.0),
    ];
    for (i, (f, x, right)) in cases.into_iter().enumerate() {
        assert_eq!(f(x).to_bits(), right.to_bits(), "row {i}: {x}");
    }
    for (name, f, _) in FUNCTIONS {
        assert!(f(f32::NAN).is_nan(), "{name}");
        assert!(f(f32::from_bits(0xff80_0001)).is_nan(), "{name}");
    }
    for f in [math::sin, math::cos] {
        assert!(f(inf).is_nan() && f(-inf).is_nan());
    }
    for f in [math::log, math::rsqrt] {
        assert!(f(-1.0).is_nan() && f(-inf).is_nan());
    }
}

/// The largest relative error of many arguments.
fn worst(xs: impl Iterator<Item = f64>, ours: fn(f64) -> f64, exact: fn(f64) -> f64) -> f64 {
    xs.map(|x| (ours(x) / exact(x) - 1.0).abs()).fold(0.0, f64::max)
}

/// So many numbers from -1 to 1, without 0.
fn within_1(count: i32) -> impl Iterator<Item = f64> {
    (-count..count).map(move |i| (f64::from(i) + 0.5) / f64::from(count))
}

#[test]
fn errors_of_f64_functions_are_as_stated_and_no_less() {
    let sine = |x| math::sin_cos_f64(x).0;
    let cosine = |x| math::sin_cos_f64(x).1;
    let ln_2_halves = std::f64::consts::LN_2 / 2.0;
    let n = 100_000;
    let rows = [
        ("EXP_F64", -46.6, worst(within_1(n).map(|x| x * ln_2_halves), math::exp_f64, exact::exp)),
        ("exp_f64", -44.0, worst(within_1(n).map(|x| x * 700.0), math::exp_f64, exact::exp)),
        ("ATANH", -45.9, worst(within_1(n).map(|x| 1.25 + x * 0.25), math::log_f64, exact::log)),
        ("log_f64", -45.4, worst(within_1(n).map(|x| 1.0 + x * 0.5), math::log_f64, exact::log)),
        ("log_f64", -45.4, worst(within_1(n).map(|x| exact::exp(x * 700.0)), math::log_f64, exact::log)),
        ("SIN_F64", -37.4, worst(within_1(n).map(|x| x * std::f64::consts::FRAC_PI_4), sine, exact::sin)),
        ("COS_F64", -42.7, worst(within_1(n).map(|x| x * std::f64::consts::FRAC_PI_4), cosine, exact::cos)),
    ];
    for (name, stated, worst) in rows {
        let worst = worst.log2();
        println!("{name}: 2^{worst:.3}");
        assert!((stated - 1.0..=stated).contains(&worst), "{name}: 2^{worst}, stated 2^{stated}");
    }
}

/// How far sine and cosine are off, in units of what is stated.
fn sin_cos_error(x: f64) -> f64 {
    let (sin, cos) = math::sin_cos_f64(x);
    let errors = [(sin, exact::sin(x)), (cos, exact::cos(x))]
        .map(|(got, right)| (got - right).abs() / (right.abs() * 2f64.powi(-37) + x.abs() * 2f64.powi(-109)));
    errors[0].max(errors[1])
}

#[test]
fn sine_and_cosine_in_f64_are_as_accurate_as_stated_up_to_2_to_the_40() {
    let most = |exponent: i32| {
        let errors = (0..20_000).into_par_iter().map(|i: u64| {
            let bits = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12;
            let x = f64::from_bits(((1023 + exponent) as u64) << 52 | bits);
            // Its neighbour where one of both is almost 0.
            let quarters = (x * std::f64::consts::FRAC_2_PI).round().max(1.0);
            let turned = quarters * std::f64::consts::FRAC_PI_2;
            [x, -x, turned, -turned].map(sin_cos_error).into_iter().fold(0.0, f64::max)
        });
        errors.reduce(|| 0.0, f64::max)
    };
    for exponent in -60..40 {
        let most = most(exponent);
        assert!(most <= 1.0, "2^{exponent}: {most}");
    }
    assert!(sin_cos_error(2f64.powi(40)) <= 1.0);
    // The limit is a limit.
    assert!(most(45) > 1.0);
    assert!(most(50) <= 2f64.powi(12) && most(51) > 2f64.powi(30));
}
