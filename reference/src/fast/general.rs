//! Encoding under any policy into any format of up to 32 bits.

use super::lanes::Lanes;
use super::target::{Codes, Step};
use crate::format::{F32, Format, Policy, Rounding, Subnormals};

/// Parameters of an encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct General {
    fraction_bits: u32,
    /// The f32 exponent field of the smallest normal number.
    min_field: u32,
    /// Sources below this, as f32 bits, count as zero.
    flushed_below: u32,
    /// Results below this magnitude become zero.
    kept_from: u32,
    largest: u32,
    padding: u32,
    /// The sign bit of f32 where the format has a sign, else 0.
    sign: u32,
    sign_shift: u32,
    codes: Codes,
}

impl General {
    pub(super) fn new(format: Format, policy: &Policy, codes: &Codes) -> Self {
        let min_field = (format.min_exponent() + F32.bias) as u32;
        let flushes = |when| format.subnormals && policy.subnormals == when;
        Self {
            fraction_bits: format.fraction_bits,
            min_field,
            flushed_below: if flushes(Subnormals::FlushedBefore) {
                min_field << F32.fraction_bits
            } else {
                0
            },
            kept_from: if flushes(Subnormals::FlushedAfter) { 1 << format.fraction_bits } else { 0 },
            largest: format.max_magnitude() as u32,
            padding: format.low_padding,
            sign: if format.signed { 1 << 31 } else { 0 },
            sign_shift: if format.signed { 31 - format.sign_bit().trailing_zeros() } else { 0 },
            codes: *codes,
        }
    }
}

/// The encoding with one rounding. `ZERO` says that the format has zero and
/// subnormals, as all but E8M0 do.
#[derive(Clone, Copy)]
pub(super) struct GeneralStep<const ROUNDING: u8, const ZERO: bool>(pub(super) General);

/// The code of a value of that sign.
#[inline(always)]
fn by_sign<L: Lanes>(l: L, [positive, minus]: [u32; 2], negative: L::M) -> L::V {
    l.select(negative, l.splat(minus), l.splat(positive))
}

/// A rounding as a constant parameter.
pub(super) const NEAREST_EVEN: u8 = Rounding::NearestEven as u8;
pub(super) const TOWARD_ZERO: u8 = Rounding::TowardZero as u8;
pub(super) const UP: u8 = Rounding::Up as u8;
pub(super) const DOWN: u8 = Rounding::Down as u8;
pub(super) const NEAREST_AWAY: u8 = Rounding::NearestAway as u8;
pub(super) const STOCHASTIC: u8 = Rounding::Stochastic as u8;

impl<const ROUNDING: u8, const ZERO: bool> GeneralStep<ROUNDING, ZERO> {
    /// `significand / 2^shift`, rounded; significands have at most 24 bits.
    #[inline(always)]
    fn round<L: Lanes>(l: L, significand: L::V, shift: L::V, negative: L::M, random: L::V) -> L::V {
        let (zero, one) = (l.splat(0), l.splat(1));
        if ROUNDING == STOCHASTIC {
            // The discarded fraction in units of 2^-32; a shift of 32 or more, either way,
            // leaves nothing of a term.
            let rest = l.and(significand, l.sub(l.shl_each(one, shift), one));
            let high = l.shl_each(rest, l.sub(l.splat(32), shift));
            let low = l.shr_each(rest, l.sub(shift, l.splat(32)));
            let fraction = l.or(high, low);
            let sum = l.add(fraction, random);
            // A sum that wrapped is smaller than what was added.
            let carry = l.select(l.eq(l.max(sum, random), sum), zero, one);
            return l.add(l.shr_each(significand, shift), carry);
        }
        // From 26 bits on all that is left lies below half an ulp, so 31 stand for more.
        let shift = l.min(shift, l.splat(31));
        let ones = l.sub(l.shl_each(one, shift), one);
        // What is added before the cut; nothing where nothing is cut.
        let increment = match ROUNDING {
            NEAREST_EVEN => {
                let odd = l.and(l.shr_each(significand, shift), l.and(ones, one));
                l.add(l.shr(ones, 1), odd)
            }
            NEAREST_AWAY => l.add(l.shr(ones, 1), l.and(ones, one)),
            UP => l.select(negative, zero, ones),
            DOWN => l.select(negative, ones, zero),
            _ => zero,
        };
        l.shr_each(l.add(significand, increment), shift)
    }
}

impl<const ROUNDING: u8, const ZERO: bool> Step for GeneralStep<ROUNDING, ZERO> {
    const SECOND: bool = ROUNDING == STOCHASTIC;

    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, random: L::V) -> L::V {
        let p = &self.0;
        let (zero, one) = (l.splat(0), l.splat(1));
        let source = l.and(x, l.splat(0x7fff_ffff));
        let negative = l.top_bit(x);

        // Magnitude of the source: significand * 2^(field - 150).
        let field = l.shr(source, F32.fraction_bits);
        let hidden = l.splat(1 << F32.fraction_bits);
        let subnormal_source = l.lt(source, hidden);
        let normal = l.or(l.and(source, l.splat((1 << F32.fraction_bits) - 1)), hidden);
        let (significand, field) = if ZERO {
            (l.select(subnormal_source, source, normal), l.max(field, one))
        } else {
            // One binade below f32's normal numbers counts as well.
            (l.select(subnormal_source, l.add(source, source), normal), field)
        };

        // Rounded to the ulp of its binade, or of the smallest normal one below that;
        // exponent and fraction as one integer, into which a carry runs as it should.
        let binade = l.max(field, l.splat(p.min_field));
        let cut = l.splat(F32.fraction_bits - p.fraction_bits);
        let shift = l.add(cut, l.sub(binade, field));
        let rounded = Self::round(l, significand, shift, negative, random);
        let exponent = l.shl(l.sub(binade, l.splat(p.min_field)), p.fraction_bits);
        let magnitude = l.add(exponent, rounded);
        let (magnitude, is_zero) = if ZERO {
            let magnitude = l.select(l.lt(source, l.splat(p.flushed_below)), zero, magnitude);
            let magnitude = l.select(l.lt(magnitude, l.splat(p.kept_from)), zero, magnitude);
            (magnitude, l.eq(magnitude, zero))
        } else {
            // There is no hidden bit to be counted, and nothing below the smallest binade.
            let smallest = l.lt(source, l.splat(1 << (F32.fraction_bits - 1)));
            (l.select(smallest, zero, l.sub(magnitude, one)), l.eq(source, zero))
        };

        let sign = l.shr(l.and(x, l.splat(p.sign)), p.sign_shift);
        let code = l.or(l.shl(magnitude, p.padding), sign);
        // What special values become, from the weakest claim to the strongest.
        let code = l.select(l.lt(l.splat(p.largest), magnitude), by_sign(l, p.codes.beyond, negative), code);
        let unsigned_negative = l.top_bit(l.and(x, l.splat(!p.sign)));
        let code = l.select(unsigned_negative, l.splat(p.codes.beyond[1]), code);
        let code = l.select(is_zero, by_sign(l, p.codes.zero, negative), code);
        let infinity = l.splat(0x7f80_0000);
        let code = l.select(l.eq(source, infinity), by_sign(l, p.codes.infinite, negative), code);
        l.select(l.lt(infinity, source), by_sign(l, p.codes.nan, negative), code)
    }
}
