//! Encoding to nearest even: the conversions that kernels do most.

use super::lanes::Lanes;
use super::target::Step;
use crate::format::{F16, F32, Format, NegativeZero, Policy, Rounding, Subnormals};

use super::target::Codes;

/// Parameters of an encoding to nearest even, without flushes, into a signed format
/// that has -0, where an infinity goes the way of any value that is too large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearest {
    /// Fraction bits that are cut off.
    shift: u32,
    /// 1, or 0 where nothing is cut off.
    odd: u32,
    /// Half an ulp less one, and the difference of the biases in the exponent field.
    offset: u32,
    /// The smallest normal number, as f32 bits.
    normal_from: u32,
    /// An f32 whose ulp is that of the format's subnormals.
    magic: u32,
    /// The sign bit, and how far below f32's it lies.
    sign: u32,
    sign_shift: u32,
    largest: u32,
    /// What is beyond the largest: the code of a positive value, and which bits the
    /// sign adds.
    beyond: u32,
    beyond_sign: u32,
    nan: u32,
    nan_sign: u32,
    /// Whether the format is f16, for which some processors have an instruction.
    pub(super) is_f16: bool,
    /// Whether what is beyond the largest becomes the largest.
    pub(super) saturates: bool,
    /// Whether the exponents are f32's own, so that subnormals need nothing special.
    pub(super) same_exponents: bool,
}

impl Nearest {
    /// `None` where the format or the policy asks for more.
    pub(super) fn new(format: Format, policy: &Policy, codes: &Codes) -> Option<Self> {
        let plain = policy.rounding == Rounding::NearestEven
            && policy.subnormals == Subnormals::Kept
            && policy.negative_zero == NegativeZero::Kept
            && format.has_negative_zero()
            && format.low_padding == 0
            && codes.infinite == codes.beyond;
        if !plain {
            return None;
        }
        let (sign, largest) = (format.sign_bit() as u32, format.max_finite() as u32);
        let difference = |[positive, negative]: [u32; 2]| {
            let bits = positive ^ negative;
            (bits == 0 || bits == sign).then_some(bits)
        };
        let shift = F32.fraction_bits - format.fraction_bits;
        let half_less_one = ((1u32 << shift) >> 1).saturating_sub(1);
        let rebias = ((F32.bias - format.bias) as u32) << F32.fraction_bits;
        let field = |exponent: i32| ((exponent + F32.bias) as u32) << F32.fraction_bits;
        let same_exponents = format.bias == F32.bias;
        Some(Self {
            shift,
            odd: u32::from(shift > 0),
            offset: half_less_one.wrapping_sub(rebias),
            normal_from: field(format.min_exponent()),
            magic: field(format.min_exponent() + shift as i32),
            sign,
            sign_shift: 31 - sign.trailing_zeros(),
            largest,
            beyond: codes.beyond[0],
            beyond_sign: difference(codes.beyond)?,
            nan: codes.nan[0],
            nan_sign: difference(codes.nan)?,
            is_f16: format == F16 && [[0x7bff, 0xfbff], [0x7c00, 0xfc00]].contains(&codes.beyond),
            saturates: codes.beyond == [largest, largest | sign],
            same_exponents,
        })
    }
}

/// The encoding, with what is known of the parameters before the loop.
#[derive(Clone, Copy)]
pub(super) struct NearestStep<const SATURATES: bool, const SAME_EXPONENTS: bool>(pub(super) Nearest);

impl<const SATURATES: bool, const SAME_EXPONENTS: bool> Step for NearestStep<SATURATES, SAME_EXPONENTS> {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, _: L::V) -> L::V {
        let p = &self.0;
        let magnitude = l.and(x, l.splat(0x7fff_ffff));
        // Masked where it is used: with an `or` that is one instruction of AVX-512.
        let shifted = l.shr(x, p.sign_shift);
        let sign = l.and(shifted, l.splat(p.sign));

        // Half an ulp, less one where the kept part is even, carries exactly when nearest
        // even rounds away; the carry runs into the exponent as it should.
        let odd = l.and(l.shr(magnitude, p.shift), l.splat(p.odd));
        let normal = l.shr(l.add(l.add(magnitude, l.splat(p.offset)), odd), p.shift);
        let rounded = if SAME_EXPONENTS {
            normal
        } else {
            // Adding a number whose ulp is the subnormals' makes the processor round to it.
            let magic = l.splat(p.magic);
            let subnormal = l.sub(l.fadd(magnitude, magic), magic);
            l.select(l.lt(magnitude, l.splat(p.normal_from)), subnormal, normal)
        };

        let code = if SATURATES {
            l.or(l.min(rounded, l.splat(p.largest)), sign)
        } else {
            let beyond = l.or(l.splat(p.beyond), l.and(shifted, l.splat(p.beyond_sign)));
            l.select(l.lt(l.splat(p.largest), rounded), beyond, l.or(rounded, sign))
        };
        let nan = l.or(l.splat(p.nan), l.and(shifted, l.splat(p.nan_sign)));
        l.select(l.lt(l.splat(0x7f80_0000), magnitude), nan, code)
    }
}

/// The encoding to f16, by an instruction where there is one.
#[derive(Clone, Copy)]
pub(super) struct F16Step<const SATURATES: bool>(pub(super) Nearest);

impl<const SATURATES: bool> Step for F16Step<SATURATES> {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, second: L::V) -> L::V {
        if !L::HAS_TO_F16 {
            return NearestStep::<SATURATES, false>(self.0).apply(l, x, second);
        }
        let p = &self.0;
        let ieee = l.to_f16(x);
        let magnitude = l.and(ieee, l.splat(0x7fff));
        // What is beyond the largest became an infinity, as it should unless it saturates.
        let code = if SATURATES {
            l.or(l.min(magnitude, l.splat(p.largest)), l.and(ieee, l.splat(p.sign)))
        } else {
            ieee
        };
        let nan = l.or(l.splat(p.nan), l.and(ieee, l.splat(p.nan_sign)));
        l.select(l.lt(l.splat(0x7c00), magnitude), nan, code)
    }
}
