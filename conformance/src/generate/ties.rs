//! `ties`: terms whose sum lies on a midpoint of the output's format, or just beside it.

use super::ladder::Ladder;
use super::lines::Lines;
use super::positional::{fill, shape};
use super::products::fraction;
use super::{Exact, GenerateError, Request};
use crate::seed::mix;
use plumbline_reference::Tensor;
use plumbline_reference::format::Format;
use plumbline_reference::ops::Op;

/// How far the exponents of midpoints go from that of 1: sums and their tiny terms stay in
/// the normal range of an f32.
const RANGE: i32 = 60;

/// Fraction bits that a sum in f32 keeps.
const KEPT: u32 = 23;

pub(super) fn generate(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let (source, shape) = (request.source()?, shape(request)?);
    let (Op::Gemm(gemm), 0 | 1) = (request.op, request.input) else {
        return Err(request.mismatch("is for an operand of `gemm`, with `ones` for the other"));
    };
    let lines = Lines::of(request, shape);
    let midpoints = Midpoints::new(source, gemm.out).ok_or_else(|| {
        request.mismatch(format!(
            "cannot write midpoints of {} as sums of {source}, whose range is too small",
            gemm.out
        ))
    })?;
    let terms = midpoints.most_terms();
    if lines.len < terms {
        let len = lines.len;
        return Err(request.mismatch(format!("needs sums of {terms} terms or more, and K is {len}")));
    }
    let (ladder, seed, stride) = (Ladder::new(source), request.seed, lines.stride());
    fill(request, shape, |i| {
        let (line, place) = lines.place(i);
        let random = mix(seed, line);
        // Terms stand in an order and at places of their line's own.
        let number = (place * stride + random % lines.len) % lines.len;
        match midpoints.term(random, line % 3, number) {
            Some((magnitude, negative)) => match ladder.locate(magnitude) {
                Some(place) => ladder.code(place.floor, negative),
                None => 0,
            },
            None => 0,
        }
    })
}

/// The midpoints of a format that a source can write as sums.
struct Midpoints {
    /// Bits of a midpoint's significand.
    bits: u32,
    /// Bits of a term's significand.
    term_bits: u32,
    /// Exponents of the leading bit.
    lowest: i32,
    highest: i32,
    /// How far below the last bit of a midpoint the tiny term may be.
    furthest: u32,
    fraction: Format,
    /// The least power of two of the source.
    unit: i32,
}

impl Midpoints {
    /// `None` where the range of the source holds none.
    fn new(source: Format, out: Format) -> Option<Self> {
        let bits = out.fraction_bits + 2;
        let unit = source.min_exponent() - if source.subnormals { source.fraction_bits as i32 } else { 0 };
        // The last bit of a midpoint, one more below it for the tiny term.
        let lowest = out.min_exponent().max(unit + bits as i32).max(-RANGE);
        // In the last binade not every significand is a number.
        let highest = out.max_exponent().min(source.max_exponent() - 1).min(RANGE);
        (source.signed && lowest <= highest).then_some(Self {
            bits,
            term_bits: source.fraction_bits + 1,
            lowest,
            highest,
            furthest: KEPT.saturating_sub(bits - 1).max(1),
            fraction: out,
            unit,
        })
    }

    /// Terms of a midpoint with its tiny one.
    fn most_terms(&self) -> u64 {
        u64::from(self.bits.div_ceil(self.term_bits)) + 1
    }

    /// The `number`-th term of a midpoint, and whether it is negative: `side` 0 is the
    /// midpoint, 1 a tiny term away from zero, 2 one toward zero.
    fn term(&self, random: u64, side: u64, number: u64) -> Option<(Exact, bool)> {
        let negative = random >> 63 == 1;
        let leading = self.lowest + ((random >> 40) % (self.highest - self.lowest + 1) as u64) as i32;
        let last = leading + 1 - self.bits as i32;
        let significand = 2 * (1 << self.fraction.fraction_bits | fraction(self.fraction, random >> 8)) + 1;
        let number = u32::try_from(number).ok()?;
        let chunks = self.bits.div_ceil(self.term_bits);
        if number == chunks && side != 0 {
            let below = 1 + (random >> 32) as u32 % self.furthest;
            let exponent = (last - below as i32).max(self.unit);
            return Some((Exact { significand: 1, exponent }, negative != (side == 2)));
        }
        // Chunks of a term's bits, the least first.
        let shift = number.checked_mul(self.term_bits).filter(|shift| *shift < self.bits)?;
        let chunk = significand >> shift & ((1 << self.term_bits) - 1);
        Some((Exact { significand: chunk, exponent: last + shift as i32 }, negative))
    }
}
