//! Classes for sums of products. Element `i` is a function of the seed, of `i`, and of where
//! `i` stands along the sum.

use super::ladder::Ladder;
use super::lines::Lines;
use super::positional::{fill, moderate, shape};
use super::{GenerateError, Request};
use crate::seed::{hash, mix};
use plumbline_reference::Tensor;
use plumbline_reference::format::{Format, Policy, Value};

/// Ones.
pub(super) fn ones(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let one = integer(request.source()?, 1);
    fill(request, shape(request)?, |_| one)
}

/// Random integers of `-max..=max`.
pub(super) fn integers(request: &Request<'_>, max: u64) -> Result<Tensor, GenerateError> {
    let (format, seed) = (exact(request, max)?, request.seed);
    fill(request, shape(request)?, |i| integer(format, (mix(seed, i) % (2 * max + 1)) as i64 - max as i64))
}

/// Integers, of which `per_row` of a line are not zero.
///
/// The places of a line count from where those of the line before ended, so that lines
/// together come to every place; a stride spreads them.
pub(super) fn sparse_integers(
    request: &Request<'_>,
    max: u64,
    per_row: u64,
) -> Result<Tensor, GenerateError> {
    let (format, seed, shape) = (exact(request, max)?, request.seed, shape(request)?);
    if per_row == 0 {
        return Err(request.mismatch("has `per_row: 0`, which makes zeros alone; give at least 1"));
    }
    let lines = Lines::of(request, shape);
    let stride = lines.stride();
    fill(request, shape, |i| {
        let (line, place) = lines.place(i);
        let from_first = (place * stride + line * (lines.len - per_row % lines.len)) % lines.len;
        let random = mix(seed, i);
        let magnitude = (random % max + 1) as i64;
        match (from_first < per_row, random >> 63 == 1) {
            (false, _) => 0,
            (true, false) => integer(format, magnitude),
            (true, true) => integer(format, -magnitude),
        }
    })
}

/// Exponent that `wide_exponents` ends below where the exponent has 8 bits or more.
const WIDEST: i32 = 60;

/// Random sign, fraction and binade.
pub(super) fn wide_exponents(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let (format, seed) = (request.source()?, request.seed);
    let ladder = Ladder::new(format);
    // Each leading bit of a subnormal is a binade; then come those of the exponent field.
    let subnormal = if format.subnormals { u64::from(format.fraction_bits) } else { 0 };
    let highest =
        if format.exponent_bits < 8 { ladder.max >> format.fraction_bits } else { field(format, WIDEST - 1) };
    fill(request, shape(request)?, |i| {
        let random = mix(seed, i);
        let binade = (random >> 32) % (subnormal + highest);
        let index = match binade.checked_sub(subnormal) {
            None => 1 << binade | random & ((1 << binade) - 1),
            Some(normal) => (normal + 1) << format.fraction_bits | fraction(format, random),
        };
        ladder.code(index.min(ladder.max), random >> 63 == 1)
    })
}

/// One pair in so many is not quite opposite.
const OFF: u64 = 4;

/// Pairs of neighbours along the sum; the last of an odd number is zero.
pub(super) fn pairs(request: &Request<'_>, negate: bool) -> Result<Tensor, GenerateError> {
    let (format, seed, shape) = (request.source()?, request.seed, shape(request)?);
    if negate && !format.signed {
        return Err(request.mismatch(format!("needs a sign for `negate`, and {format} has none")));
    }
    let lines = Lines::of(request, shape);
    let ladder = Ladder::new(format);
    fill(request, shape, |i| {
        let (line, place) = lines.place(i);
        if place ^ 1 >= lines.len {
            return ladder.code(0, false);
        }
        let random = mix(mix(seed, line), place / 2);
        let code = moderate(format, random);
        if !negate || place % 2 == 0 {
            return code;
        }
        let index = ladder.index(code);
        let off = u64::from(random >> 40 & 0xff < 0x100 / OFF && index < ladder.max);
        ladder.code(index + off, code & format.sign_bit() == 0)
    })
}

/// How far the exponent of [`ramp`] goes from that of 1.
const RAMP: i32 = 30;

/// Exponents that rise or fall along the sum, from one end of the format's range, or of
/// 2^-30 to 2^30, to the other.
pub(super) fn ramp(request: &Request<'_>, ascending: bool) -> Result<Tensor, GenerateError> {
    let (format, seed, shape) = (request.source()?, request.seed, shape(request)?);
    let lines = Lines::of(request, shape);
    let ladder = Ladder::new(format);
    let lowest = field(format, -RAMP).max(1);
    let highest = field(format, RAMP).min(ladder.max >> format.fraction_bits);
    fill(request, shape, |i| {
        let (_, place) = lines.place(i);
        let rise = if ascending { place } else { lines.len - 1 - place };
        let exponent = lowest + (highest - lowest) * rise / (lines.len - 1).max(1);
        let random = mix(seed, i);
        let index = exponent << format.fraction_bits | fraction(format, random);
        ladder.code(index.min(ladder.max), random >> 63 == 1)
    })
}

/// Of so many lines some hold one value that is not moderate; and of so many elements one is
/// a zero or a subnormal.
const SPECIAL: u64 = 16;

/// Moderate values and few special ones.
pub(super) fn specials(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let (format, seed, shape) = (request.source()?, request.seed, shape(request)?);
    let lines = Lines::of(request, shape);
    let ladder = Ladder::new(format);
    fill(request, shape, |i| {
        let (line, place) = lines.place(i);
        let random = mix(seed, i);
        let of_line = mix(seed ^ hash("specials"), line);
        let negative = of_line >> 63 == 1;
        if place == (of_line >> 8) % lines.len {
            match of_line % SPECIAL {
                0 => return nan(format, of_line >> 20).unwrap_or(ladder.code(ladder.max, negative)),
                1 | 2 => return ladder.code(ladder.top(), negative),
                3 => return ladder.code(ladder.max, negative),
                _ => (),
            }
        }
        match random >> 40 & (4 * SPECIAL - 1) {
            0 => ladder.code(0, false),
            1 => ladder.code(0, true),
            2 | 3 if format.subnormals && format.fraction_bits > 0 => {
                ladder.code(fraction(format, random).max(1), random >> 63 == 1)
            }
            _ => moderate(format, random),
        }
    })
}

/// A NaN of the format with a random payload.
fn nan(format: Format, random: u64) -> Option<u64> {
    let canonical = format.canonical_nan()?;
    let varied = canonical ^ fraction(format, random) << format.low_padding;
    Some(if format.decode(varied).is_nan() { varied } else { canonical })
}

/// Random bits of a fraction.
pub(super) fn fraction(format: Format, random: u64) -> u64 {
    random & ((1 << format.fraction_bits) - 1)
}

/// The exponent field of `2^exponent`; 0 where the format begins above it.
fn field(format: Format, exponent: i32) -> u64 {
    (exponent + format.bias).max(0) as u64
}

/// The code of an integer that the format has; zero is positive.
fn integer(format: Format, x: i64) -> u64 {
    let value = Value::Finite { negative: x < 0, significand: x.unsigned_abs(), exponent: 0 };
    format.encode(value, &Policy::default(), 0)
}

/// The format, if it has all integers up to `max` of both signs.
fn exact(request: &Request<'_>, max: u64) -> Result<Format, GenerateError> {
    let format = request.source()?;
    let largest = format.to_f64(format.max_finite());
    let limit = if format.signed { largest.min((2u64 << format.fraction_bits) as f64) as u64 } else { 0 };
    if !(1..=limit).contains(&max) {
        return Err(request.mismatch(match limit {
            0 => format!("needs integers of both signs, which {format} does not have"),
            _ => format!("has `max: {max}`; {format} has all integers up to {limit}, give one from 1 to it"),
        }));
    }
    Ok(format)
}

#[cfg(test)]
mod tests;
