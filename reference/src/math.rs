//! Canonical elementary functions: fixed sequences of IEEE 754 operations.
//!
//! Libraries differ in the last bits of `exp`, and a processor's may differ from a GPU's. These
//! functions are made of `+ - * / sqrt fma`, conversions and integer steps alone, in the order
//! that is written here, with no contraction and no flush to zero, so that every machine gives the
//! same bits; `math.cuh` of the CUDA backend has the same steps and takes its constants from here.
//!
//! | function | method | error at most, in ulp |
//! |---|---|---|
//! | [`exp`], [`exp2`] | `2^n * p(r)`, r in half a unit around 0 | 1 |
//! | [`tanh`] | odd polynomial below 0.55, else `1 - 2 / (exp(2x) + 1)` | 1.6 |
//! | [`erf`] | odd polynomial below 1, else `1 - exp(-p(x))` | 1.25 |
//! | [`normal_cdf`] | `exp(-x^2 / 2)` with its rounding error put right, times a polynomial; near 0 an odd one | 6 |
//! | [`sin`], [`cos`] | reduced to a sum of two f32, any argument | 1 |
//! | [`log`] | `n ln(2) + f + f^2 p(f)`, `f = m - 1`, m from 2/3 to 4/3 | 1 |
//! | [`rsqrt`] | `1 / sqrt(x)`, each rounded | 1.5 |
//!
//! The errors hold for every f32, results that are subnormal included, and are verified against
//! correctly rounded functions (`tests/math.rs`).
//!
//! Special values are those of C's Annex F; a NaN gives some NaN. Coefficients are minimax fits
//! of the relative error, rounded one after the other to f32, the rest fitted again each time.

/// [`ERRORS`]: the function's name and its largest error in ulp.
pub type Stated = (&'static str, f64);

/// What the table above says.
pub const ERRORS: [Stated; 9] = [
    ("exp", 1.0),
    ("exp2", 1.0),
    ("tanh", 1.6),
    ("erf", 1.25),
    ("normal_cdf", 6.0),
    ("sin", 1.0),
    ("cos", 1.0),
    ("log", 1.0),
    ("rsqrt", 1.5),
];

/// `log2(e)`.
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln(2)` to 15 bits, whose product with an n of 8 bits is exact, and what is left of it.
pub const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// `exp(r)`, r within `ln(2) / 2`; 2^-28.2.
pub const EXP: [f32; 7] =
    [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_262, 0.008_368_671, 0.001_382_099_9];
/// `2^r`, r within 1/2; 2^-28.3.
pub const EXP2: [f32; 7] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_48,
    0.055_503_596,
    0.009_618_499,
    0.001_339_097_2,
    0.000_153_292_89,
];
/// `(tanh(x) / x - 1) / x^2` of `x^2`, x below 0.55; 2^-29.7 of tanh.
pub const TANH: [f32; 5] = [-0.333_333_16, 0.133_325_44, -0.053_847_548, 0.021_050_712, -0.006_242_842];
/// `erf(x) / x - 1` of `x^2`, x below 1; 2^-29.4 of erf.
pub const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_26,
    0.112_835_79,
    -0.026_853_347,
    0.005_187_162,
    -0.000_799_785_3,
    7.806_903e-5,
];
/// `-log(1 - erf(x))`, x from 1 to 3.93, from where erf is 1 in f32; 2^-29.8 of erf.
pub const ERF_TAIL: [f32; 7] = [
    0.000_341_465_2,
    1.127_089_4,
    0.638_144_6,
    0.103_106_84,
    -0.021_838_047,
    0.002_947_637_4,
    -0.000_186_375_21,
];
/// `(normal_cdf(x) - 1/2) / x` of `x^2`, x below 1; 2^-28.4 of normal_cdf.
pub const NORMAL: [f32; 6] =
    [0.398_942_3, -0.066_490_54, 0.009_974_163, -0.001_188_019_6, 0.000_115_018_025, -8.169_102e-6];
/// `normal_cdf(-x) * exp(x^2 / 2) * (x + 4)` of `(x - 4) / (x + 4)`, x from 1 to 14.5; 2^-25.7.
pub const NORMAL_TAIL: [f32; 9] = [
    0.755_285_14,
    -0.607_896_6,
    0.387_136_7,
    -0.186_523_38,
    0.060_403_5,
    -0.007_513_515,
    -0.003_505_244_9,
    0.001_491_015_3,
    0.000_166_294_83,
];
/// `(log(1 + f) - f) / f^2`, f from -1/3 to 1/3; 2^-30 of log.
pub const LOG: [f32; 10] = [
    -0.5,
    0.333_333_34,
    -0.249_998_27,
    0.199_996_81,
    -0.166_792_96,
    0.143_027_17,
    -0.121_994_18,
    0.107_695_56,
    -0.128_301_1,
    0.119_584_6,
];
/// `2 / pi`, and `pi / 2` as the sum of three.
pub const TWO_OVER_PI: f32 = std::f32::consts::FRAC_2_PI;
/// See [`TWO_OVER_PI`].
pub const PI_HALVES: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_9e-15];
/// The first 224 bits of `2 / pi` behind the point, and 32 before it.
pub const TWO_OVER_PI_BITS: [u32; 8] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];
/// `(sin(r) / r - 1) / r^2` of `r^2`, r within 0.81; 2^-32.3 of sin.
pub const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_377, -0.000_198_515_41, 2.813_800_6e-6];
/// `(cos(r) - 1 + r^2 / 2) / r^4` of `r^2`, r within 0.81; 2^-32.4 of cos.
pub const COS: [f32; 3] = [0.041_666_64, -0.001_388_712_4, 2.441_101_4e-5];
/// [`TWO_OVER_PI`] in f64.
pub const TWO_OVER_PI_F64: f64 = std::f64::consts::FRAC_2_PI;
/// `pi / 2` as the sum of two f64.
pub const PI_HALVES_F64: [f64; 2] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17];
/// [`SIN`] in f64, r within `pi / 4`; 2^-37.4 of sin.
pub const SIN_F64: [f64; 4] = [
    -0.166_666_666_416_080_77,
    0.008_333_329_383_690_182,
    -0.000_198_393_341_139_375_45,
    2.718_304_510_131_421_8e-6,
];
/// [`COS`] in f64, r within `pi / 4`; 2^-42.7 of cos.
pub const COS_F64: [f64; 4] = [
    0.041_666_666_622_794_54,
    -0.001_388_888_375_049_791_8,
    2.479_951_923_557_763e-5,
    -2.721_017_344_255_875_7e-7,
];
/// `exp(r)` in f64, r within `ln(2) / 2`: `1 / n!`; 2^-46.6.
pub const EXP_F64: [f64; 12] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5040.0,
    1.0 / 40320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
];
/// `atanh(s) / s` of `s^2`: `1 / (2 n + 1)`, s from -1/7 to 1/5; 2^-45.9.
pub const ATANH: [f64; 9] =
    [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0];

/// 2/3 as an f32.
const TWO_THIRDS: u32 = 0x3f2a_aaab;
/// Added and taken away again, it rounds an f32 below 2^22 to the nearest integer, ties to even;
/// in between, its last bits are that integer.
const ROUND: f32 = (3 << 22) as f32;
/// The same for an f64 below 2^51.
const ROUND_F64: f64 = (3u64 << 51) as f64;

/// Horner's scheme, each step one fma.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: &[f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum.mul_add(x, coefficients[i]);
    }
    sum
}

#[inline(always)]
fn polynomial_f64<const N: usize>(x: f64, coefficients: &[f64; N]) -> f64 {
    let mut sum = coefficients[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum.mul_add(x, coefficients[i]);
    }
    sum
}

/// `x`, but no less than `low`; NaN stays.
#[inline(always)]
pub(crate) fn maximum(x: f32, low: f32) -> f32 {
    if x < low { low } else { x }
}

/// `x`, but no more than `high`; NaN stays.
#[inline(always)]
fn minimum(x: f32, high: f32) -> f32 {
    if x > high { high } else { x }
}

/// `x`, but no less than `low` and no more than `high`; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    minimum(maximum(x, low), high)
}

/// The integer nearest to `x`, as a number and as an integer.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let rounded = x + ROUND;
    (rounded - ROUND, rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// `2^n`; n from -126 to 127.
#[inline(always)]
fn power(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `p * 2^n`, rounded once; n from -252 to 254.
#[inline(always)]
fn scale(p: f32, n: i32) -> f32 {
    let half = n >> 1;
    p * power(half) * power(n.wrapping_sub(half))
}

/// `e^x` as `p * 2^n`, p from 0.7 to 1.42; x from -104 to 89.
#[inline(always)]
fn exp_scaled(x: f32) -> (f32, i32) {
    let (n, integer) = nearest(x * LOG2_E);
    let r = n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], x));
    (polynomial(r, &EXP), integer)
}

/// `e^x`.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // Beyond, results are 0 and infinite all the same.
    let (p, n) = exp_scaled(clamp(x, -104.0, 89.0));
    scale(p, n)
}

/// `e^x`, x from -104 to 0: [`exp`]'s value in fewer operations, but of NaN some number.
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    let (p, n) = exp_scaled(x);
    // p * 2^(n + 64) by its exponent alone, since it is normal.
    let normal = f32::from_bits(p.to_bits().wrapping_add((n.wrapping_add(64) as u32) << 23));
    normal * power(-64)
}

/// `2^x`.
#[inline(always)]
#[must_use]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, integer) = nearest(x);
    scale(polynomial(x - n, &EXP2), integer)
}

/// The hyperbolic tangent.
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let s = x * x;
    let small = (x * s).mul_add(polynomial(s, &TANH), x);
    // From 9.02 on it is 1.
    let (p, n) = exp_scaled(2.0 * minimum(a, 16.0));
    let large = 1.0 - 2.0 / (p * power(n) + 1.0);
    let tanh = if a < 0.55 { small } else { large };
    tanh.copysign(x)
}

/// The error function.
#[inline(always)]
#[must_use]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let small = x.mul_add(polynomial(x * x, &ERF), x);
    let large = 1.0 - exp_of_negative(-polynomial(minimum(a, 4.0), &ERF_TAIL));
    // NaN is in `small`.
    if a >= 1.0 { large.copysign(x) } else { small }
}

/// The distribution function of the standard normal distribution, `(1 + erf(x / sqrt(2))) / 2`,
/// with a small relative error where it is tiny.
#[inline(always)]
#[must_use]
pub fn normal_cdf(x: f32) -> f32 {
    let a = minimum(x.abs(), 14.5);
    let q = 1.0 / (a + 4.0);
    let ratio = q * polynomial((a - 4.0) * q, &NORMAL_TAIL);
    // x^2 / 2 is s + low.
    let half = 0.5 * a;
    let s = half * a;
    let low = half.mul_add(a, -s);
    let tail = exp_of_negative(maximum(-s, -104.0)) * ratio;
    let tail = tail.mul_add(-low, tail);
    let small = x.mul_add(polynomial(x * x, &NORMAL), 0.5);
    let large = if x > 0.0 { 1.0 - tail } else { tail };
    if x.abs() < 1.0 { small } else { large }
}

/// `1 / sqrt(x)`.
#[inline(always)]
#[must_use]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// The natural logarithm.
#[inline(always)]
#[must_use]
pub fn log(x: f32) -> f32 {
    // A subnormal number times 2^23 is normal.
    let is_small = x < f32::MIN_POSITIVE;
    let bits = (if is_small { x * 8_388_608.0 } else { x }).to_bits();
    // x = (1 + f) * 2^n, 1 + f from 2/3 to 4/3.
    let n = (bits.wrapping_sub(TWO_THIRDS) as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub((n as u32) << 23)) - 1.0;
    let n = n as f32 - if is_small { 23.0 } else { 0.0 };
    let log = n.mul_add(std::f32::consts::LN_2, (f * f).mul_add(polynomial(f, &LOG), f));
    if x > 0.0 && x < f32::INFINITY {
        log
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        f32::NAN
    }
}

/// The natural logarithm of an f64 that is normal, zero, infinite or NaN; 2^-45.4, which it is
/// just below 3/4.
#[must_use]
pub fn log_f64(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 || x == f64::INFINITY {
        return if x == 0.0 { f64::NEG_INFINITY } else { x };
    }
    // x = m * 2^n, m from 3/4 to 3/2.
    let bits = x.to_bits();
    let n = (bits.wrapping_sub(0x3fe8_0000_0000_0000) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((n as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let log_m = 2.0 * s * polynomial_f64(s * s, &ATANH);
    (n as f64).mul_add(std::f64::consts::LN_2, log_m)
}

/// `e^x` of an f64 from -700 to 700; 2^-44.
#[must_use]
pub fn exp_f64(x: f64) -> f64 {
    let rounded = x * std::f64::consts::LOG2_E + ROUND_F64;
    let n = rounded.to_bits().wrapping_sub(ROUND_F64.to_bits());
    let r = (rounded - ROUND_F64).mul_add(-std::f64::consts::LN_2, x);
    polynomial_f64(r, &EXP_F64) * f64::from_bits(n.wrapping_add(1023) << 52)
}

/// An angle in quarter turns, and what is left as the sum of two.
struct Angle {
    quarters: u32,
    high: f32,
    low: f32,
}

/// An angle below 2^20 either way; the rest is within 0.81.
#[inline(always)]
fn reduce(x: f32) -> Angle {
    let rounded = x.mul_add(TWO_OVER_PI, ROUND);
    let n = rounded - ROUND;
    // Exact, and the product after it is the sum of two.
    let first = n.mul_add(-PI_HALVES[0], x);
    let product = n * PI_HALVES[1];
    let rest = n.mul_add(PI_HALVES[1], -product);
    let high = first - product;
    let low = n.mul_add(-PI_HALVES[2], first - high - product - rest);
    Angle { quarters: rounded.to_bits(), high, low }
}

/// An angle of at least 2^20 either way: its product with those bits of `2 / pi` that make
/// less than four quarter turns.
#[cold]
fn reduce_huge(x: f32) -> Angle {
    if !x.is_finite() {
        return Angle { quarters: 0, high: f32::NAN, low: f32::NAN };
    }
    let bits = x.to_bits();
    let m = u64::from(bits & 0x7f_ffff | 0x80_0000);
    // x is m * 2^(e - 150) of its exponent e; earlier bits of 2 / pi make whole turns.
    let first = (bits >> 23 & 0xff) - 120;
    let (word, shift) = (first / 32, first % 32);
    let at = |i: u32| {
        let pair = |i: u32| {
            u64::from(TWO_OVER_PI_BITS[i as usize]) << 32 | u64::from(TWO_OVER_PI_BITS[i as usize + 1])
        };
        pair(word + i) << shift >> 32
    };
    let low = m * at(2);
    let middle = m * at(1) + (low >> 32);
    let high = (m * at(0) + (middle >> 32)) as u32;
    let fraction = u64::from(high) << 34 | (middle & 0xffff_ffff) << 2 | (low & 0xffff_ffff) >> 30;
    // To the nearest quarter: a fraction of a half or more is negative.
    let quarters = (high >> 30).wrapping_add((fraction >> 63) as u32);
    let rest = fraction as i64 as f64 * (PI_HALVES_F64[0] / 18_446_744_073_709_551_616.0);
    let (quarters, rest) = if x < 0.0 { (quarters.wrapping_neg(), -rest) } else { (quarters, rest) };
    let high = rest as f32;
    Angle { quarters, high, low: (rest - f64::from(high)) as f32 }
}

/// The sine of an angle plus so many quarter turns.
#[inline(always)]
fn shifted_sine(x: f32, quarters: u32) -> f32 {
    let angle = if x.abs() < 1_048_576.0 { reduce(x) } else { reduce_huge(x) };
    let Angle { high, low, .. } = angle;
    // The square of both together.
    let s = high.mul_add(high, 2.0 * low * high);
    let sin = high + (high * s).mul_add(polynomial(s, &SIN), low);
    let cos = s.mul_add(s.mul_add(polynomial(s, &COS), -0.5), 1.0);
    let quarters = angle.quarters.wrapping_add(quarters);
    let value = if quarters & 1 == 0 { sin } else { cos };
    if quarters & 2 == 0 { value } else { -value }
}

/// The sine of an angle in radians.
#[inline(always)]
#[must_use]
pub fn sin(x: f32) -> f32 {
    // The steps would give -0 as +0.
    if x == 0.0 { x } else { shifted_sine(x, 0) }
}

/// The cosine of an angle in radians.
#[inline(always)]
#[must_use]
pub fn cos(x: f32) -> f32 {
    shifted_sine(x, 1)
}

/// An angle as a multiple of a quarter turn, and the rest, within `pi / 4` but for what rounding the
/// quotient adds, in f64.
#[inline(always)]
fn reduce_f64(x: f64) -> (u32, f64) {
    let rounded = x * TWO_OVER_PI_F64 + ROUND_F64;
    let n = rounded - ROUND_F64;
    let r = n.mul_add(-PI_HALVES_F64[1], n.mul_add(-PI_HALVES_F64[0], x));
    (rounded.to_bits() as u32, r)
}

/// The sine of `r` plus so many quarter turns, in f64; r within `pi / 4`.
#[inline(always)]
fn sine_f64(quarters: u32, r: f64) -> f64 {
    let s = r * r;
    let sin = (r * s).mul_add(polynomial_f64(s, &SIN_F64), r);
    let cos = (s * s).mul_add(polynomial_f64(s, &COS_F64), s.mul_add(-0.5, 1.0));
    let value = if quarters & 1 == 0 { sin } else { cos };
    if quarters & 2 == 0 { value } else { -value }
}

/// Sine and cosine in f64 of an angle of at most 2^40 either way, each within 2^-37 of itself and
/// 2^-109 of the angle. Errors grow beyond, since the rest is no longer within `pi / 4`: to 2^-25 below
/// 2^51, from where on nothing is right.
#[inline(always)]
#[must_use]
pub fn sin_cos_f64(x: f64) -> (f64, f64) {
    let (n, r) = reduce_f64(x);
    (sine_f64(n, r), sine_f64(n.wrapping_add(1), r))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_of_a_negative_number_has_fewer_steps_and_the_same_bits() {
        let (least, most) = ((-0.0f32).to_bits(), (-104.0f32).to_bits());
        for x in (least..=most).step_by(997).chain([least, most]).map(f32::from_bits) {
            assert_eq!(exp_of_negative(x).to_bits(), exp(x).to_bits(), "{x}");
        }
        assert_eq!(exp_of_negative(0.0), 1.0);
    }
}
