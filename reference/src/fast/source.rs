//! From codes to the bits of f32, exactly.

use super::Simd;
use super::lanes::{Lanes, Out};
use super::target::{Map, Step};
use crate::fast::Kernel;
use crate::format::{E4M3FN, F16, F32, F64, Format, Specials};

const INFINITY: u32 = 0x7f80_0000;
const CANONICAL_NAN: u32 = 0x7fff_ffff;

/// How the codes of a format become f32.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// They are f32 already.
    Bits,
    /// They lie where f32 has its upper bits: bf16, tf32.
    Upper(Upper),
    /// Sign, exponent and fraction with fewer bits each.
    Fields(Fields),
    /// E8M0.
    PowersOfTwo,
    /// f64, rounded to odd. Not exact, but a second rounding to 22 bits or fewer
    /// gives what one rounding would: the odd last bit remembers that something
    /// was cut off, and on which side of every midpoint the value lies.
    Doubles,
}

impl Source {
    pub(super) fn new(format: Format) -> Self {
        if format == F32 {
            return Self::Bits;
        }
        if format == F64 {
            return Self::Doubles;
        }
        if !format.subnormals {
            return Self::PowersOfTwo;
        }
        if format.bias == F32.bias && format.exponent_bits == F32.exponent_bits {
            return Self::Upper(Upper {
                shift: F32.storage_bits - format.storage_bits,
                mask: u32::MAX << (F32.fraction_bits - format.fraction_bits),
            });
        }
        Self::Fields(Fields::new(format))
    }

    /// f32 bits of all codes, NaN of its sign. `bits` takes four bytes for each.
    pub(super) fn widen(&self, simd: Simd, width: usize, codes: &[u8], bits: &mut Out) {
        match *self {
            Self::Bits => {
                bits.write_copy_of_slice(codes);
            }
            Self::Upper(step) if width == 2 => simd.run(Map::<_, 2, 4>::new(step, codes, bits)),
            Self::Upper(step) => simd.run(Map::<_, 4, 4>::new(step, codes, bits)),
            Self::Fields(step) if width == 1 => simd.run(Map::<_, 1, 4>::new(step, codes, bits)),
            Self::Fields(step) => simd.run(Map::<_, 2, 4>::new(step, codes, bits)),
            Self::PowersOfTwo => simd.run(Map::<_, 1, 4>::new(PowersOfTwo, codes, bits)),
            Self::Doubles => simd.run(RoundToOdd { doubles: codes, bits }),
        }
    }

    /// The same, NaN canonical; perhaps past the caches.
    pub(super) fn widen_canonical(&self, simd: Simd, width: usize, codes: &[u8], bits: &mut Out, past: bool) {
        match *self {
            Self::Bits => {
                let step = Canonical(Upper { shift: 0, mask: u32::MAX });
                simd.run(Map::<_, 4, 4>::new(step, codes, bits).past(past));
            }
            Self::Upper(step) if width == 2 => {
                simd.run(Map::<_, 2, 4>::new(Canonical(step), codes, bits).past(past))
            }
            Self::Upper(step) => simd.run(Map::<_, 4, 4>::new(Canonical(step), codes, bits).past(past)),
            Self::Fields(step) if width == 1 => {
                simd.run(Map::<_, 1, 4>::new(Canonical(step), codes, bits).past(past))
            }
            Self::Fields(step) => simd.run(Map::<_, 2, 4>::new(Canonical(step), codes, bits).past(past)),
            Self::PowersOfTwo => {
                simd.run(Map::<_, 1, 4>::new(Canonical(PowersOfTwo), codes, bits).past(past))
            }
            Self::Doubles => unreachable!("f64 is not widened to f32"),
        }
    }
}

/// A step whose NaNs are made canonical.
#[derive(Clone, Copy)]
struct Canonical<S>(S);

impl<S: Step> Step for Canonical<S> {
    const SECOND: bool = S::SECOND;

    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, second: L::V) -> L::V {
        let bits = self.0.apply(l, x, second);
        let magnitude = l.and(bits, l.splat(0x7fff_ffff));
        l.select(l.lt(l.splat(INFINITY), magnitude), l.splat(CANONICAL_NAN), bits)
    }
}

/// Codes that are the upper bits of an f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upper {
    shift: u32,
    mask: u32,
}

impl Step for Upper {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, code: L::V, _: L::V) -> L::V {
        l.and(l.shl(code, self.shift), l.splat(self.mask))
    }
}

/// Codes of fewer exponent and fraction bits than f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    sign: u32,
    sign_shift: u32,
    magnitude: u32,
    fraction_shift: u32,
    /// Added to the exponent field of a normal number.
    rebias: u32,
    /// The smallest normal magnitude.
    normal_from: u32,
    /// The smallest magnitude that is infinity or NaN; beyond all where none is.
    special_from: u32,
    /// The one code that is NaN although its magnitude is 0; no code where none is.
    nan_code: u32,
}

impl Fields {
    fn new(format: Format) -> Self {
        let magnitude = format.magnitude_mask() as u32;
        let sign = format.sign_bit() as u32;
        Self {
            sign,
            sign_shift: if format.signed { 31 - sign.trailing_zeros() } else { 0 },
            magnitude,
            fraction_shift: F32.fraction_bits - format.fraction_bits,
            rebias: ((F32.bias - format.bias) as u32) << F32.fraction_bits,
            normal_from: 1 << format.fraction_bits,
            special_from: match format.specials {
                Specials::Ieee => (format.exponent_mask() << format.fraction_bits) as u32,
                Specials::NanAllOnes => magnitude,
                Specials::NanNegativeZero | Specials::None => magnitude + 1,
            },
            nan_code: if format.specials == Specials::NanNegativeZero { sign } else { u32::MAX },
        }
    }
}

impl Step for Fields {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, code: L::V, _: L::V) -> L::V {
        let magnitude = l.and(code, l.splat(self.magnitude));
        let normal = l.add(l.shl(magnitude, self.fraction_shift), l.splat(self.rebias));
        // A subnormal is the fraction of the smallest normal binade without its leading 1:
        // put it there, one exponent up, and subtract the 1. Both are normal f32.
        let one = 1 << F32.fraction_bits;
        let leading = self.rebias + one;
        let subnormal = l.fsub(l.add(normal, l.splat(one)), l.splat(leading));
        let finite = l.select(l.lt(magnitude, l.splat(self.normal_from)), subnormal, normal);
        let special = l.or(finite, l.splat(INFINITY));
        let bits = l.select(l.lt(magnitude, l.splat(self.special_from)), finite, special);
        let sign = l.and(code, l.splat(self.sign));
        let bits = l.or(bits, l.shl(sign, self.sign_shift));
        let stored = l.and(code, l.splat(self.sign | self.magnitude));
        l.select(l.eq(stored, l.splat(self.nan_code)), l.splat(0xffc0_0000), bits)
    }
}

/// E8M0: the code is the exponent field of f32, but 0 is 2^-127 and 255 is NaN.
#[derive(Clone, Copy)]
struct PowersOfTwo;

impl Step for PowersOfTwo {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, code: L::V, _: L::V) -> L::V {
        let bits = l.shl(code, F32.fraction_bits);
        let bits = l.select(l.eq(code, l.splat(0)), l.splat(0x0040_0000), bits);
        l.select(l.eq(code, l.splat(255)), l.splat(0x7fc0_0000), bits)
    }
}

/// E4M3FN to f16, NaN canonical. f16 has codes for all values, none of them subnormal.
#[derive(Clone, Copy)]
pub(super) struct E4m3ToF16;

impl E4m3ToF16 {
    /// The code in f16 if the magnitude, in steps of a code of E4M3FN, has that many leading
    /// zeros.
    #[inline(always)]
    fn line<L: Lanes>(l: L, magnitude: L::V, zeros: u32) -> L::V {
        let exponents = (F16.bias - E4M3FN.bias) as u32 - zeros;
        l.add(l.shl(magnitude, 7 + zeros), l.splat(exponents << F16.fraction_bits))
    }
}

impl Step for E4m3ToF16 {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, code: L::V, _: L::V) -> L::V {
        let magnitude = l.and(code, l.splat(0x7f));
        // Within a binade of f16 codes are linear in the magnitude: one exponent lower for
        // each leading zero of a subnormal, and twice as steep. They bend downwards, so of
        // the lines of all binades the lowest is the right one.
        let normal = Self::line(l, magnitude, 0);
        let one_or_two = l.min(Self::line(l, magnitude, 1), Self::line(l, magnitude, 2));
        let positive = l.min(l.min(normal, one_or_two), Self::line(l, magnitude, 3));
        let positive = l.select(l.eq(magnitude, l.splat(0)), magnitude, positive);
        let bits = l.or(positive, l.shl(l.and(code, l.splat(0x80)), 8));
        l.select(l.eq(magnitude, l.splat(0x7f)), l.splat(0x7fff), bits)
    }
}

/// f64 to f32, rounded to odd: of the two neighbours of an inexact value, the one
/// whose last bit is 1.
struct RoundToOdd<'a> {
    doubles: &'a [u8],
    bits: &'a mut Out,
}

impl Kernel for RoundToOdd<'_> {
    type Output = ();

    // A plain loop: the compiler vectorises it for the instruction set.
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        for (double, slot) in self.doubles.as_chunks::<8>().0.iter().zip(self.bits.as_chunks_mut::<4>().0) {
            let x = f64::from_le_bytes(*double);
            let nearest = x as f32;
            let back = f64::from(nearest);
            let bits = nearest.to_bits();
            let steps = back != x && !x.is_nan() && bits & 1 == 0;
            let step = if back.abs() > x.abs() { u32::MAX } else { 1 };
            let odd = bits.wrapping_add(if steps { step } else { 0 });
            slot.write_copy_of_slice(&odd.to_le_bytes());
        }
    }
}
