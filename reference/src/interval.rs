//! Intervals that certainly hold a real number: exact values of functions that no format can
//! write down, and all that an implementation in f32 may reach.
//!
//! A definition is written once, over intervals. With [`Steps::Real`] its value is narrower than
//! any output format and judges by ulp. With [`Steps::F32`] each step is widened by the error
//! that f32 arithmetic may make there, so that the result is a bound of correct implementations
//! that compute step by step in f32, in any order of summation.
//!
//! Infinite and NaN arguments have no interval: results that they make are those of the canonical
//! definition, and an end is infinite where a finite number may overflow. Ends are f64, moved outward
//! after every operation; a zero keeps its sign and stays. Functions are those of `libm`, within an ulp
//! of f64, widened by sixteen.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// How precise the steps of a definition are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Real numbers.
    Real,
    /// Results rounded to f32, or near: see [`Interval::rounded`] and [`Interval::exp`].
    F32,
}

/// The real numbers from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lowest; -0 is below +0.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

/// Unit roundoff of f32.
pub(crate) const U: f64 = 1.0 / (1u64 << 24) as f64;
/// What f32 rounds to zero, also times its largest number, and f64 does not, also times f32's smallest.
const ABOVE_ZERO: f64 = f64::from_bits((1023 - 400) << 52);
/// Half the smallest f32.
const TINY: f64 = f64::from_bits((1023 - 150) << 52);

/// `g(n) = n u / (1 - n u)`: the relative error of n roundings in f32, infinite for too many.
fn g(n: f64) -> f64 {
    let nu = n * U;
    if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
}

impl From<f64> for Interval {
    fn from(x: f64) -> Self {
        Self { low: x, high: x }
    }
}

impl From<f32> for Interval {
    fn from(x: f32) -> Self {
        f64::from(x).into()
    }
}

/// The interval around these, each end moved outward by a relative error and the next f64.
fn outward(low: f64, high: f64, relative: f64) -> Interval {
    let stays = |x: f64| x == 0.0 || x.is_infinite();
    let down = |x: f64| if stays(x) { x } else { (x - x.abs() * relative).next_down() };
    let up = |x: f64| if stays(x) { x } else { (x + x.abs() * relative).next_up() };
    Interval { low: down(low), high: up(high) }
}

/// Relative error of a function of libm.
const LIBM: f64 = 16.0 * f64::EPSILON;

impl Interval {
    /// Whether no end is NaN: a definition of special values gives no interval.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.low <= self.high
    }

    /// A number in the middle.
    #[must_use]
    pub fn middle(self) -> f64 {
        if self.low == self.high { self.low } else { self.low / 2.0 + self.high / 2.0 }
    }

    /// Half the distance of the ends.
    #[must_use]
    pub fn radius(self) -> f64 {
        if self.low == self.high { 0.0 } else { self.high / 2.0 - self.low / 2.0 }
    }

    /// The largest magnitude.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Widened on both sides.
    #[must_use]
    pub fn widened(self, error: f64) -> Self {
        if error == 0.0 {
            return self;
        }
        Self { low: self.low - error, high: self.high + error }
    }

    /// After `n` roundings to f32 (of `n` half ulps), where steps are in f32: relative, but for
    /// subnormal results, and infinite where it may overflow. An exact zero stays.
    #[must_use]
    pub fn rounded(self, steps: Steps, n: f64) -> Self {
        if steps == Steps::Real || self.low == 0.0 && self.high == 0.0 {
            return self;
        }
        self.within_f32(g(n), n)
    }

    /// Widened by a relative error and subnormal roundings, and to infinity beyond f32's range. Zero
    /// and infinity stay, and a result keeps its sign: rounding never crosses zero.
    fn within_f32(self, relative: f64, tiny: f64) -> Self {
        let stays = |x: f64| x == 0.0 || x.is_infinite();
        let reach = |x: f64| x.abs() * relative + tiny * TINY;
        let beyond = |x: f64| if x.abs() >= f64::from(f32::MAX) { f64::INFINITY.copysign(x) } else { x };
        let low = match self.low {
            low if stays(low) => low,
            low if low > 0.0 => (low - reach(low)).max(0.0),
            low => beyond(low - reach(low)),
        };
        let high = match self.high {
            high if stays(high) => high,
            high if high < 0.0 => (high + reach(high)).min(-0.0),
            high => beyond(high + reach(high)),
        };
        Self { low, high }
    }

    /// The same with infinity for what is beyond f32's range, as the result of a step may be.
    #[must_use]
    pub fn in_f32(self) -> Self {
        self.within_f32(0.0, 0.0)
    }

    /// What both hold; the other where this is no number.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        if both.is_number() { both } else { other }
    }

    /// A function that grows.
    fn monotone(self, f: impl Fn(f64) -> f64) -> Self {
        outward(f(self.low), f(self.high), LIBM)
    }

    /// `e^x`. In f32 an implementation may be off by `2 + 1.173 abs(x)` ulp, what CUDA documents
    /// of its `__expf`, which multiplies by `log2(e)` first.
    #[must_use]
    pub fn exp(self, steps: Steps) -> Self {
        let exp = self.monotone(libm::exp);
        let exp = Self { low: exp.low.max(0.0), high: exp.high.max(0.0) };
        match steps {
            Steps::Real => exp,
            Steps::F32 => {
                let argument = self.magnitude().min(120.0);
                let exp = exp.within_f32(2.0 * U * (2.0 + 1.173 * argument), 4.0);
                // It is above zero where f64 says 0: products with it have a sign.
                Self { high: exp.high.max(ABOVE_ZERO), ..exp }
            }
        }
    }

    /// The natural logarithm. In f32: 2 ulp, or 2^-22 near 1 for kernels that scale a log2.
    #[must_use]
    pub fn log(self, steps: Steps) -> Self {
        let log = self.monotone(libm::log);
        match steps {
            Steps::Real => log,
            Steps::F32 => log.rounded(steps, 4.0).widened(4.0 * U),
        }
    }

    /// The square root, at least 0.
    #[must_use]
    pub fn sqrt(self) -> Self {
        Self { low: self.low.max(0.0), ..self }.monotone(libm::sqrt)
    }

    /// The distribution function of the standard normal distribution.
    #[must_use]
    pub fn normal_cdf(self) -> Self {
        self.monotone(|x| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2))
            .conditioned(self.magnitude())
    }

    /// Room for the error of a product with `1 / sqrt(2)` in the argument of `erfc`.
    fn conditioned(self, argument: f64) -> Self {
        let relative = (argument * argument).min(1e4) * 4.0 * f64::EPSILON;
        outward(self.low, self.high, relative)
    }

    /// `tanh`, `sin` and the like, of an argument that is one number: with that relative error.
    #[must_use]
    pub fn at(x: f64, f: impl Fn(f64) -> f64, relative: f64) -> Self {
        outward(f(x), f(x), relative)
    }

    /// The larger.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { low: self.low.max(other.low), high: self.high.max(other.high) }
    }

    /// The smallest that holds both; as wide as need be where definitions allow either way.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The sum, with any order of additions in f32.
    #[must_use]
    pub fn sum(terms: &[Self], steps: Steps) -> Self {
        let sum = terms.iter().fold(Self::from(0.0), |sum, &term| sum + term);
        if steps == Steps::Real || !sum.is_number() {
            return sum;
        }
        let magnitudes: f64 = terms.iter().map(|term| term.magnitude()).sum();
        let additions = terms.iter().filter(|term| term.magnitude() > 0.0).count().saturating_sub(1) as f64;
        if additions == 0.0 {
            return sum;
        }
        if magnitudes * (1.0 + g(additions)) >= f64::from(f32::MAX) {
            // A partial sum may overflow, and the next one be NaN.
            return Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        // Sums of terms of one sign keep it.
        let wide = sum.widened(g(additions) * magnitudes * (1.0 + 1e-9));
        if terms.iter().all(|term| term.low >= 0.0) {
            return Self { low: wide.low.max(0.0), ..wide };
        }
        wide
    }
}

impl Neg for Interval {
    type Output = Self;

    fn neg(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

impl Add for Interval {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let exact = |a: f64, b: f64| a == 0.0 || b == 0.0;
        let (low, high) = (self.low + other.low, self.high + other.high);
        if exact(self.low, other.low) && exact(self.high, other.high) {
            return Self { low, high };
        }
        outward(low, high, 0.0)
    }
}

impl Sub for Interval {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

/// The range of four products or quotients of ends; NaN where one is.
fn range(ends: [f64; 4]) -> Interval {
    if ends.iter().any(|end| end.is_nan()) {
        return f64::NAN.into();
    }
    // total_cmp tells -0 from +0.
    let low = ends.into_iter().min_by(f64::total_cmp).unwrap_or(f64::NAN);
    let high = ends.into_iter().max_by(f64::total_cmp).unwrap_or(f64::NAN);
    outward(low, high, 0.0)
}

impl Mul for Interval {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        range([self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high])
    }
}

impl Div for Interval {
    type Output = Self;

    /// The divisor is of one sign, else there is no interval.
    fn div(self, other: Self) -> Self {
        if other.low < 0.0 && other.high > 0.0 {
            return f64::NAN.into();
        }
        range([self.low / other.low, self.low / other.high, self.high / other.low, self.high / other.high])
    }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Steps};

    const INF: f64 = f64::INFINITY;

    fn interval(low: f64, high: f64) -> Interval {
        Interval { low, high }
    }

    /// Tells -0 from +0.
    fn bits(x: Interval) -> [u64; 2] {
        [x.low.to_bits(), x.high.to_bits()]
    }

    #[test]
    fn infinities_and_zeros_stay_what_they_are() {
        for x in [
            interval(INF, INF),
            interval(-INF, -INF),
            interval(-INF, INF),
            interval(0.0, 0.0),
            interval(-0.0, -0.0),
        ] {
            assert_eq!(bits(x.rounded(Steps::F32, 3.0)), bits(x), "{x:?}");
        }
        // Each end by itself.
        let x = interval(-INF, 2.0).rounded(Steps::F32, 2.0);
        assert!(x.low == -INF && x.high > 2.0 && x.high < 2.000_001);
        let x = interval(-1e-30, -0.0).rounded(Steps::F32, 1.0);
        assert!(x.low < -1e-30 && x.high == 0.0 && x.high.is_sign_negative());
        // Rounding never crosses zero, and overflows beyond the largest.
        let x = interval(1e-46, 3.5e38).rounded(Steps::F32, 1.0);
        assert_eq!(bits(x), bits(interval(0.0, INF)));
    }

    #[test]
    fn exponentials_and_quotients_of_large_arguments() {
        let small = Interval::from(-1000.0).exp(Steps::F32);
        assert!(small.low == 0.0 && small.high > 0.0 && (small.high * f64::from(f32::MAX)) as f32 == 0.0);
        let product = small * f64::from(-f32::from_bits(1)).into();
        assert!(product.low < 0.0 && bits(product)[1] == (-0f64).to_bits());
        let e = Interval::from(1000.0).exp(Steps::F32);
        assert!(e.low > 1e38 && e.high == INF);
        let quotient = Interval::from(-1000.0) / (Interval::from(1.0) + e).rounded(Steps::F32, 1.0);
        assert!(quotient.low > -1e-34 && bits(quotient)[1] == (-0f64).to_bits(), "{quotient:?}");
        assert!(!(Interval::from(1.0) / interval(-1.0, 1.0)).is_number());
    }

    #[test]
    fn sums_in_any_order() {
        let terms = [1.0, 1e-8, -1.0].map(Interval::from);
        let sum = Interval::sum(&terms, Steps::F32);
        assert!(sum.low <= 0.0 && sum.high >= 1.1e-7 && sum.high < 5e-7, "{sum:?}");
        assert!((Interval::sum(&terms, Steps::Real).middle() - 1e-8).abs() < 1e-15);
        let large = [3e38, 3e38, -3e38].map(Interval::from);
        assert_eq!(bits(Interval::sum(&large, Steps::F32)), bits(interval(-INF, INF)));
        let positive = [1e-30, 2e-30].map(Interval::from);
        assert!(Interval::sum(&positive, Steps::F32).low > 0.0);
    }
}
