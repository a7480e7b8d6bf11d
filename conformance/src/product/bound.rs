//! A-priori bounds of the error of a product, element by element.
//!
//! With `u` the unit roundoff of the accumulator and `S = sum abs(a_i * b_i)`:
//!
//! - n products summed in f32 in any order: `g(n) * S`, `g(n) = n * u / (1 - n * u)`, for
//!   n - 1 additions and one rounding of the product, and `n * 2^-150` for underflow.
//! - a tensor core's block of L products: `(L + 1) * 2^(Emax - F)` for what is cut off the
//!   terms, and one unit of the encoded result. Emax is that of the block's own products and
//!   of the accumulator, which is at most the sum of the magnitudes before it.
//! - converted operands: `(2 v + v^2) * S`, v the unit roundoff of the conversion.
//! - the epilogue: one u for every multiplication and addition that it makes.
//! - the output: half an ulp.
//!
//! - split-K: one u for each of up to 36 partial sums, which are in f32. Partial sums in the
//!   output's format are beyond the bound.
//!
//! A bound of an operation is the largest over the arithmetics that it allows, partial sums in
//! f32. All arithmetic here is f64, with a slack of 2^-30 for its own roundings.

use super::models::{MOST_PARTS, Model, arithmetics};
use super::sample::Sample;
use plumbline_reference::accumulate::{self, Accumulation, Block, BlockOutput, Sum};
use plumbline_reference::format::{F16, F32, Format, Rounding, Value};
use plumbline_reference::ops::gemm::{Gemm, GemmScale, Geometry};
use plumbline_reference::{Exact, Tensor};
use rayon::prelude::*;

/// Unit roundoff of f32, to nearest.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Partial sums of split-K that a bound allows for: as many as are searched.
const PARTS: f64 = MOST_PARTS as f64;

/// A product of two operands: its magnitude and the sum of the operands' exponents.
#[derive(Clone, Copy)]
struct Term {
    magnitude: f64,
    exponent: i32,
}

/// What is known of an output element.
pub(super) struct Judged {
    pub(super) position: usize,
    pub(super) right: u64,
    pub(super) got: u64,
    pub(super) ok: bool,
    /// Error over bound, where both are finite.
    pub(super) ratio: Option<f64>,
    /// The magnitudes may leave the accumulator's range, so that nothing is promised.
    pub(super) unbounded: bool,
}

/// The right value of an output element, and how far it may be off before it is rounded.
pub(super) struct Element {
    pub(super) position: usize,
    pub(super) exact: Exact,
    pub(super) right: u64,
    pub(super) error: f64,
}

/// The sampled elements with their bounds.
pub(super) fn errors(
    gemm: &Gemm,
    inputs: &[Tensor],
    sample: &Sample,
    architecture: Option<&str>,
) -> Vec<Element> {
    let geometry = Geometry::of(gemm, inputs);
    let models = arithmetics(gemm, architecture);
    let element = |&position: &usize| {
        let exact = gemm.exact_value(inputs, position);
        let right = gemm.out.encode(exact.value(), &gemm.policy(), 0);
        Element { position, exact, right, error: error(gemm, inputs, &geometry, &models, position) }
    };
    sample.positions.par_iter().map(element).collect()
}

/// Judges the sampled elements.
pub(super) fn judge(
    gemm: &Gemm,
    inputs: &[Tensor],
    sample: &Sample,
    architecture: Option<&str>,
    got: impl Fn(usize) -> u64,
) -> Vec<Judged> {
    let element = |Element { position, exact, right, error }| {
        let got = got(position);
        let (ok, ratio) = accepts(gemm.out, right, got, &exact, error);
        let is_finite = matches!(exact.value(), Value::Finite { .. });
        Judged { position, right, got, ok, ratio, unbounded: is_finite && !error.is_finite() }
    };
    errors(gemm, inputs, sample, architecture).into_iter().map(element).collect()
}

/// Whether `got` is within `error` of the exact value and half an ulp of the output. The error is NaN
/// where a sum that may have either sign is multiplied by infinity.
pub(super) fn accepts(out: Format, right: u64, got: u64, exact: &Exact, error: f64) -> (bool, Option<f64>) {
    let (right_value, got_value) = (out.decode(right), out.decode(got));
    if !matches!(exact.value(), Value::Finite { .. }) {
        // What NaN and infinite operands give does not depend on rounding, but where the other terms may
        // leave the range: then an infinity meets another. FP8 has its own codes for both, which `right`
        // holds.
        let may_be_nan = right_value.is_nan() || !error.is_finite();
        let either_sign = error.is_nan() && right ^ got == out.sign_bit();
        return (right == got || may_be_nan && got_value.is_nan() || either_sign, None);
    }
    if !error.is_finite() {
        return (true, None);
    }
    let zero = |value: Value| matches!(value, Value::Finite { significand: 0, .. });
    if error == 0.0 && zero(right_value) && zero(got_value) {
        return (right == got, None);
    }
    let magnitude = exact.to_f64_up();
    let max = out.to_f64(out.max_finite());
    let half_ulp = ulp(out, magnitude + error) / 2.0;
    let bound = error + half_ulp;
    let distance = match got_value {
        Value::Nan { .. } => return (false, None),
        // Outputs of 8 bits saturate.
        Value::Infinite { .. } if out.storage_bits == 8 => return (false, None),
        // An infinity stands for every number from the midpoint beyond the largest on.
        Value::Infinite { negative } => {
            let beyond = max + ulp(out, max) / 2.0;
            let is_beyond = exact.value().is_negative() == negative && magnitude >= beyond;
            if is_beyond { 0.0 } else { exact.distance(Value::from(if negative { -beyond } else { beyond })) }
        }
        // A format without infinity, or one that saturates, holds the largest for all beyond.
        got_value if out.storage_bits == 8 && magnitude > max && got_value == right_value => 0.0,
        got_value => exact.distance(got_value),
    };
    let ratio = if distance == 0.0 { 0.0 } else { distance / bound };
    (distance <= bound, Some(ratio))
}

/// The distance of neighbouring numbers of a format at a magnitude.
pub(super) fn ulp(format: Format, magnitude: f64) -> f64 {
    let exponent = exponent(magnitude).clamp(format.min_exponent(), format.max_exponent());
    power(exponent - format.fraction_bits as i32)
}

/// `floor(log2)`; far below every format for 0.
fn exponent(magnitude: f64) -> i32 {
    match Value::from(magnitude) {
        Value::Finite { significand, exponent, .. } if significand > 0 => {
            exponent + significand.ilog2() as i32
        }
        Value::Finite { .. } => -2000,
        Value::Nan { .. } | Value::Infinite { .. } => 2000,
    }
}

/// `2^exponent`.
fn power(exponent: i32) -> f64 {
    Value::Finite { negative: false, significand: 1, exponent }.to_f64()
}

/// How far an output may be off before it is rounded to its format: the largest error of any
/// model, scaled, and that of the epilogue. Infinite where f32 may overflow on the way, be it by the
/// finite terms beside infinite ones. NaN where infinity is a factor of a sum that is not exact.
fn error(gemm: &Gemm, inputs: &[Tensor], geometry: &Geometry, models: &[Model], position: usize) -> f64 {
    let (mut largest_operand, mut sum_of_operands) = (0f64, 0f64);
    // The smallest factor of an infinity, and whether every product is -0 or below.
    let (mut with_infinity, mut all_negative) = (f64::INFINITY, geometry.k > 0);
    let terms: Vec<_> = (0..geometry.k)
        .map(|k| {
            let a = accumulate::Term::of(gemm.a, inputs[0].code(geometry.a(position, k)));
            let b = accumulate::Term::of(gemm.b, inputs[1].code(geometry.b(position, k)));
            let [x, y] = [a, b].map(|operand| operand.value.to_f64());
            all_negative &= (x * y).is_sign_negative();
            let [x, y] = [x, y].map(f64::abs);
            if !(x * y).is_finite() {
                with_infinity = with_infinity.min(x).min(y);
                return Term { magnitude: 0.0, exponent: 0 };
            }
            largest_operand = largest_operand.max(x).max(y);
            sum_of_operands += x + y;
            Term { magnitude: x * y, exponent: a.exponent + b.exponent }
        })
        .collect();
    let (_, m, n) = geometry.coordinates(position);
    let scale = |name, scale: GemmScale, index: usize| match (gemm.input(inputs, name), scale) {
        (Some(tensor), GemmScale::Row) => F32.to_f64(tensor.code(index)).abs(),
        (Some(tensor), _) => F32.to_f64(tensor.code(0)).abs(),
        (None, _) => 1.0,
    };
    let scale_a = scale("scale_a", gemm.scale_a, m);
    let scale_b = scale("scale_b", gemm.scale_b, n);
    let scale_out = scale("scale_out", GemmScale::Tensor, 0);
    let first_factor = f64::from(gemm.alpha.0).abs() * scale_a;
    let factor = first_factor * scale_b;
    // A sum that is not exact may have either sign, and what is infinite times it too.
    let unbounded = if (factor * scale_out).is_infinite() { f64::NAN } else { f64::INFINITY };
    let sum: f64 = terms.iter().map(|term| term.magnitude).sum();
    let mut largest = 0f64;
    for model in models {
        let Some(accumulate) = &model.accumulate else { continue };
        let (own, limit) = match model.operands {
            None => of_accumulation(accumulate, &terms),
            Some(operands) => {
                if largest_operand >= operands.to.to_f64(operands.to.max_finite()) {
                    // A conversion to nearest may overflow.
                    return unbounded;
                }
                if with_infinity < operands.to.to_f64(operands.to.min_positive()) {
                    // Infinity may meet zero.
                    return f64::INFINITY;
                }
                // Each operand may be rounded up to the next power of two.
                let up = |term: &Term| Term { exponent: term.exponent + 2, ..*term };
                let (own, limit) = of_accumulation(accumulate, &terms.iter().map(up).collect::<Vec<_>>());
                let nearest = matches!(operands.rounding, Rounding::NearestEven | Rounding::NearestAway);
                let v = power(-(operands.to.fraction_bits as i32) - i32::from(nearest));
                let subnormal = power(operands.to.min_exponent() - operands.to.fraction_bits as i32);
                let converted =
                    if sum > 0.0 { (2.0 * v + v * v) * sum + subnormal * sum_of_operands } else { 0.0 };
                (own + converted, limit + converted)
            }
        };
        largest = largest.max(own + PARTS * U * limit);
        if limit >= power(accumulate.format().max_exponent()) {
            return unbounded;
        }
    }
    if factor.is_infinite() && largest > 0.0 {
        return unbounded;
    }
    let is_tiny = |factor: f64| 0.0 < factor && factor < power(-126);
    if with_infinity.is_finite() && (is_tiny(first_factor) || is_tiny(factor)) {
        // A product of scales may be zero, and that of zero and infinity is NaN.
        return f64::INFINITY;
    }
    let at = |name: &str, format: Option<Format>, index: usize| {
        let magnitude = format?.to_f64(gemm.input(inputs, name)?.code(index)).abs();
        Some(magnitude).filter(|magnitude| magnitude.is_finite())
    };
    let c = if gemm.reads_c() {
        f64::from(gemm.beta.0).abs() * at("c", gemm.c, position).unwrap_or(0.0)
    } else {
        0.0
    };
    let bias = at("bias", gemm.bias, n).unwrap_or(0.0);
    // Roundings of the product's own factor, of each addition, and of the output's scale.
    let is_scaled = [factor != 1.0, gemm.scale_a != GemmScale::None, gemm.scale_b != GemmScale::None];
    let multiplications = is_scaled.into_iter().filter(|&is| is).count() as f64;
    let product = factor * (sum + largest);
    let mut error = factor * largest + multiplications * U * product;
    if multiplications > 0.0 && product > 0.0 {
        // Products of scales and sums may be subnormal.
        error += power(-149) * (1.0 + (1.0 + scale_b) * (sum + largest));
    }
    let mut magnitude = product;
    if gemm.reads_c() {
        magnitude += c;
        error += U * c + U * magnitude + power(-149);
        if gemm.beta.0 == 1.0 && gemm.out.storage_bits == 16 {
            // The product may be rounded to the output's format before c is added.
            error += ulp(gemm.out, product) / 2.0;
        }
    }
    if gemm.bias.is_some() {
        magnitude += bias;
        error += U * magnitude;
    }
    let mut in_range = factor.max(first_factor) < power(127) && magnitude < power(127);
    // Products that are all -0 have a sum of either sign, by where it begins.
    let is_exact = largest == 0.0 && error == 0.0 && !all_negative;
    if gemm.scale_out {
        if scale_out.is_infinite() && !is_exact {
            return unbounded;
        }
        error = (error + U * magnitude) * scale_out;
        magnitude *= scale_out;
        if magnitude > 0.0 {
            error += power(-149);
        }
        in_range &= magnitude < power(127);
    }
    if !in_range {
        return unbounded;
    }
    // The product of zero and a sum that is not exact has either sign.
    if is_exact { error } else { error.max(f64::MIN_POSITIVE) * (1.0 + power(-30)) }
}

/// The error of an order of accumulation, and the largest magnitude of a sum on the way.
fn of_accumulation(accumulate: &Accumulation, terms: &[Term]) -> (f64, f64) {
    let sum: f64 = terms.iter().map(|term| term.magnitude).sum();
    let count = terms.iter().filter(|term| term.magnitude != 0.0).count() as f64;
    let g = |n: f64, u: f64| n * u / (1.0 - n * u);
    match accumulate {
        Accumulation::Fma | Accumulation::MultiplyAdd => {
            (g(count, U) * sum + count * power(-150), sum * (1.0 + g(count, U)))
        }
        Accumulation::Pairwise => {
            let height = f64::from(terms.len().max(1).next_power_of_two().ilog2()) + 1.0;
            (g(height.min(count), U) * sum + count * power(-150), sum * (1.0 + g(height, U)))
        }
        Accumulation::Chain(block) => {
            let blocks = terms.chunks(block.products as usize);
            blocks.fold((0.0, 0.0), |before, terms| of_block(block, before, terms))
        }
        Accumulation::ResidueFirst { tile, block } => {
            let (first, rest) = terms.split_at(terms.len() % tile);
            let tiles = std::iter::once(first).chain(rest.chunks(*tile));
            let blocks = tiles.flat_map(|tile| tile.chunks(block.products as usize));
            blocks.fold((0.0, 0.0), |before, terms| of_block(block, before, terms))
        }
        Accumulation::HalvesThenAdd(block) => terms.chunks(32).fold((0.0, 0.0), |(error, limit), terms| {
            let half = |upper: bool| -> Vec<Term> {
                let own = terms.iter().enumerate().filter(|(k, _)| (k % 4 >= 2) == upper);
                own.map(|(_, term)| *term).collect()
            };
            let halves = [half(false), half(true)];
            let halves = halves.iter().fold((0.0, 0.0), |before, half| of_block(block, before, half));
            let limit = limit + halves.1;
            (error + halves.0 + U * limit, limit)
        }),
        Accumulation::Sum(sum) => of_sum(sum, terms),
    }
}

/// Error and magnitude after a block, from those before it.
fn of_block(block: &Block, (error, limit): (f64, f64), terms: &[Term]) -> (f64, f64) {
    let present = terms.iter().filter(|term| term.magnitude != 0.0);
    let largest = present.clone().map(|term| term.exponent).max();
    if largest.is_none() && limit == 0.0 {
        return (error, limit);
    }
    // Zeros change nothing: the accumulator passes through but for its encoding.
    let emax = largest.unwrap_or(-2000).max(exponent(limit)).max(block.min_exponent);
    let limit = limit + present.clone().map(|term| term.magnitude).sum::<f64>();
    let cut = (present.count() as f64 + 1.0) * power(emax - block.fraction_bits as i32);
    let limit = limit + cut;
    let unit = match block.output {
        BlockOutput::Truncate(bits) => power(exponent(limit).max(-126) - bits as i32),
        BlockOutput::NearestF32 => power(exponent(limit).max(-126) - 24),
        BlockOutput::NearestF16 => power(exponent(limit).max(F16.min_exponent()) - 11),
    };
    (error + cut + unit, limit + unit)
}

/// Error and magnitude of sums of parts.
fn of_sum(sum: &Sum, terms: &[Term]) -> (f64, f64) {
    let roundoff =
        |format: Format| if format == F32 { 0.0 } else { power(-(format.fraction_bits as i32) - 1) };
    let parts = sum.split.of(terms.len());
    let (mut error, mut limit) = (0.0, 0.0);
    for part in &parts {
        let own: Vec<_> = part.iter().map(|&k| terms[k]).collect();
        let (own_error, own_limit) = of_accumulation(&sum.each, &own);
        error += own_error;
        limit += own_limit;
    }
    // Each partial sum is rounded, and each addition, to f32 and to the format of sums.
    if limit == 0.0 {
        return (error, limit);
    }
    let additions = (parts.len().max(1) - 1) as f64;
    let n = additions + 1.0;
    let roundings = n * (roundoff(sum.partials) + roundoff(sum.sums) + U);
    (error + roundings / (1.0 - roundings).max(0.5) * limit + n * power(sum.sums.min_exponent() - 25), limit)
}
