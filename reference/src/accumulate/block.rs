//! One fused block of a tensor core, in plain integers.
//!
//! `d = encode(c + sum a[i] * b[i])` over `L` products:
//!
//! 1. A NaN among the inputs, `Inf * 0`, or infinities of both signs give the canonical
//!    NaN. Otherwise an infinite term gives that infinity.
//! 2. A value is `s * 2^e` with `e = max(floor(log2 |x|), emin)`: subnormals stay
//!    unnormalised. A product is `sa * sb * 2^(ea + eb)` and is not renormalised. `c` is one
//!    more term.
//! 3. `E = max(e0, exponents of the non-zero terms)`.
//! 4. Every term is cut, toward zero, to a multiple of `2^(E - F)`; their sum is exact.
//! 5. The sum is encoded by the output rule. Zero is `+0`, whatever the signs of the terms.
//!
//! Sources: arXiv:2511.10909 (MMA-Sim), arXiv:2512.07004, Fasi et al. 2021 (numerical
//! behaviour of NVIDIA tensor cores). The Hopper rows are measured on an H200; the recordings
//! in `fixtures/hardware` are reproduced by them.

use crate::format::{F16, F32, Format, Overflow, Policy, Rounding, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The arithmetic of one fused block. Written as the name of a row of [`Block::NAMED`] or
/// as its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// `L`: products of one block.
    pub products: u32,
    /// `F`: fraction bits that are kept of every term, below the largest exponent.
    pub fraction_bits: u32,
    /// `e0`: the least exponent that terms are aligned to.
    pub min_exponent: i32,
    /// How the sum is encoded.
    pub output: BlockOutput,
}

/// How a block's sum is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockOutput {
    /// An f32, cut toward zero to that many fraction bits; infinity from 2^128 on.
    Truncate(u32),
    /// An f32, rounded to nearest even.
    NearestF32,
    /// An f16, rounded to nearest even.
    NearestF16,
}

impl Block {
    const fn f32(products: u32, fraction_bits: u32, min_exponent: i32) -> Self {
        Self { products, fraction_bits, min_exponent, output: BlockOutput::Truncate(23) }
    }

    const fn f16(products: u32, fraction_bits: u32, min_exponent: i32) -> Self {
        Self { products, fraction_bits, min_exponent, output: BlockOutput::NearestF16 }
    }

    /// Volta, f16 into f32.
    pub const VOLTA: Self = Self::f32(4, 23, -131);
    /// Volta, f16 into f16.
    pub const VOLTA_F16: Self = Self::f16(4, 23, -19);
    /// Turing, f16 into f32.
    pub const TURING: Self = Self::f32(8, 24, -132);
    /// Turing, f16 into f16.
    pub const TURING_F16: Self = Self::f16(8, 24, -20);
    /// Ampere and Ada, f16 and bf16 into f32.
    pub const AMPERE: Self = Self::f32(8, 24, -132);
    /// Ampere and Ada, f16 into f16.
    pub const AMPERE_F16: Self = Self::f16(8, 24, -20);
    /// Ampere and Ada, TF32.
    pub const AMPERE_TF32: Self = Self::f32(4, 24, -132);
    /// Ada, FP8 into f32.
    pub const ADA_FP8: Self =
        Self { products: 16, fraction_bits: 13, min_exponent: -132, output: BlockOutput::Truncate(13) };
    /// Hopper, f16 and bf16 into f32 (measured).
    pub const HOPPER: Self = Self::f32(16, 25, -133);
    /// Hopper, f16 into f16 (measured).
    pub const HOPPER_F16: Self = Self::f16(16, 25, -21);
    /// Hopper, TF32 (measured).
    pub const HOPPER_TF32: Self = Self::f32(8, 25, -133);
    /// Hopper's `wgmma`, FP8 into f32 (measured).
    pub const HOPPER_FP8: Self =
        Self { products: 32, fraction_bits: 13, min_exponent: -133, output: BlockOutput::Truncate(13) };
    /// Hopper's `wgmma`, FP8 into f16 (measured).
    pub const HOPPER_FP8_F16: Self = Self::f16(32, 13, -21);
    /// Blackwell (`sm_120`), FP8 into f32; its f16, bf16 and TF32 are Hopper's.
    pub const BLACKWELL_FP8: Self = Self::f32(32, 25, -133);

    /// The rows of the table by name.
    pub const NAMED: [(&'static str, Self); 14] = [
        ("volta", Self::VOLTA),
        ("volta_f16", Self::VOLTA_F16),
        ("turing", Self::TURING),
        ("turing_f16", Self::TURING_F16),
        ("ampere", Self::AMPERE),
        ("ampere_f16", Self::AMPERE_F16),
        ("ampere_tf32", Self::AMPERE_TF32),
        ("ada_fp8", Self::ADA_FP8),
        ("hopper", Self::HOPPER),
        ("hopper_f16", Self::HOPPER_F16),
        ("hopper_tf32", Self::HOPPER_TF32),
        ("hopper_fp8", Self::HOPPER_FP8),
        ("hopper_fp8_f16", Self::HOPPER_FP8_F16),
        ("blackwell_fp8", Self::BLACKWELL_FP8),
    ];

    /// The format of `c` and of the result.
    #[must_use]
    pub const fn accumulator(&self) -> Format {
        match self.output {
            BlockOutput::Truncate(_) | BlockOutput::NearestF32 => F32,
            BlockOutput::NearestF16 => F16,
        }
    }

    /// One block: the code of the result in the accumulator's format. There may be fewer
    /// than `L` products.
    #[must_use]
    pub fn fuse(&self, products: impl Iterator<Item = (Term, Term)> + Clone, c: u64) -> u64 {
        let c = Term::of(self.accumulator(), c);
        match special(products.clone(), c) {
            Some(Value::Finite { .. }) | None => (),
            Some(special) => return self.encode(special),
        }
        let one = Term { value: Value::Finite { negative: false, significand: 1, exponent: 0 }, exponent: 0 };
        let terms = products.chain([(c, one)]).filter_map(|(a, b)| Product::of(a, b));
        let exponent = terms.clone().map(|term| term.exponent).fold(self.min_exponent, i32::max);
        let unit = exponent - self.fraction_bits as i32;
        let sum: i128 = terms.map(|term| term.in_units_of(unit)).sum();
        let significand = u64::try_from(sum.unsigned_abs()).expect("L * 2^(F + 2) is far below 2^64");
        self.encode(Value::Finite { negative: sum < 0, significand, exponent: unit })
    }

    fn encode(&self, value: Value) -> u64 {
        let (format, rounding) = match self.output {
            BlockOutput::Truncate(bits) => {
                (Format { fraction_bits: bits, low_padding: 23 - bits, ..F32 }, Rounding::TowardZero)
            }
            BlockOutput::NearestF32 => (F32, Rounding::NearestEven),
            BlockOutput::NearestF16 => (F16, Rounding::NearestEven),
        };
        if value.is_nan() {
            return self.accumulator().encode(value, &Policy::IEEE, 0);
        }
        let policy = Policy { rounding, overflow: Overflow::ToInfOrNan, ..Policy::IEEE };
        // Cut toward zero, a sum beyond the largest number is infinite all the same.
        if let Value::Finite { negative, significand, exponent } = value
            && significand > 0
            && exponent + significand.ilog2() as i32 > format.max_exponent()
        {
            return format.encode(Value::Infinite { negative }, &policy, 0);
        }
        let code = format.encode(value, &policy, 0);
        if code == format.sign_bit() { 0 } else { code }
    }
}

/// A decoded operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The value.
    pub value: Value,
    /// `max(floor(log2 |x|), emin)`, where the value is finite and not zero.
    pub exponent: i32,
}

impl Term {
    /// The operand of a code.
    #[must_use]
    pub fn of(format: Format, code: u64) -> Self {
        let value = format.decode(code);
        let exponent = match value {
            Value::Finite { exponent, .. } => exponent + format.fraction_bits as i32,
            Value::Nan { .. } | Value::Infinite { .. } => 0,
        };
        Self { value, exponent }
    }
}

/// A finite product that is not zero.
#[derive(Clone, Copy)]
struct Product {
    negative: bool,
    significand: u128,
    /// The weight of the significand's last bit.
    unit: i32,
    /// The sum of the operands' exponents.
    exponent: i32,
}

impl Product {
    fn of(a: Term, b: Term) -> Option<Self> {
        match (a.value, b.value) {
            (
                Value::Finite { negative: na, significand: sa, exponent: ua },
                Value::Finite { negative: nb, significand: sb, exponent: ub },
            ) if sa != 0 && sb != 0 => Some(Self {
                negative: na != nb,
                significand: u128::from(sa) * u128::from(sb),
                unit: ua + ub,
                exponent: a.exponent + b.exponent,
            }),
            _ => None,
        }
    }

    /// Toward zero.
    fn in_units_of(&self, unit: i32) -> i128 {
        let shift = self.unit - unit;
        let magnitude = if shift >= 0 {
            self.significand << shift
        } else {
            self.significand.checked_shr(shift.unsigned_abs()).unwrap_or(0)
        };
        let magnitude = magnitude as i128;
        if self.negative { -magnitude } else { magnitude }
    }
}

/// What terms that are not finite make of a sum: NaN or an infinity. `None` where all are
/// finite.
fn special(products: impl Iterator<Item = (Term, Term)>, c: Term) -> Option<Value> {
    let mut infinities = [false; 2];
    let mut see = |value: Value| match value {
        Value::Infinite { negative } => infinities[usize::from(negative)] = true,
        Value::Nan { .. } | Value::Finite { .. } => (),
    };
    let nan = Some(Value::Nan { negative: false });
    see(c.value);
    let mut is_nan = c.value.is_nan();
    for (a, b) in products {
        let zero = |term: Term| matches!(term.value, Value::Finite { significand: 0, .. });
        let infinite = |term: Term| matches!(term.value, Value::Infinite { .. });
        is_nan |= a.value.is_nan() || b.value.is_nan();
        is_nan |= infinite(a) && zero(b) || zero(a) && infinite(b);
        if infinite(a) || infinite(b) {
            see(Value::Infinite { negative: a.value.is_negative() != b.value.is_negative() });
        }
    }
    match (is_nan, infinities) {
        (true, _) | (_, [true, true]) => nan,
        (_, [true, false]) => Some(Value::Infinite { negative: false }),
        (_, [false, true]) => Some(Value::Infinite { negative: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Term};
    use crate::format::{BF16, E4M3FN, F16, Format, Policy, TF32, Value};

    /// One block on products of numbers of a format.
    fn fused(block: Block, format: Format, products: &[(f64, f64)], c: u64) -> u64 {
        let term = |x: f64| {
            let code = format.encode(Value::from(x), &Policy::IEEE, 0);
            assert_eq!(format.to_f64(code), x, "{format} holds it");
            Term::of(format, code)
        };
        block.fuse(products.iter().map(|&(a, b)| (term(a), term(b))), c)
    }

    fn two(exponent: i32) -> f64 {
        2f64.powi(exponent)
    }

    /// What an H200 gave, each of which a wrong hypothesis does not give.
    #[test]
    fn probes_give_what_the_hardware_gave() {
        let hopper = |format, products: &[_], c: u64| fused(Block::HOPPER, format, products, c);
        // F is 25.
        let cut = [(-two(13), two(10)), (-0.5, 1.0), (-0.25, 1.0), (-0.125, 1.0)];
        assert_eq!(hopper(F16, &cut, 0x4b00_0000), 0xbf40_0000);
        assert_eq!(fused(Block { fraction_bits: 24, ..Block::HOPPER }, F16, &cut, 0x4b00_0000), 0xbf00_0000);
        assert_eq!(fused(Block { fraction_bits: 26, ..Block::HOPPER }, F16, &cut, 0x4b00_0000), 0xbf60_0000);
        // Toward zero, not down; c is a term like the others.
        assert_eq!(hopper(F16, &[(-two(-13), two(-13))], 0x3f80_0000), 0x3f80_0000);
        assert_eq!(hopper(F16, &[(two(-13), two(-13)); 8], 0x3f80_0000), 0x3f80_0000);
        // Products and subnormals are not normalised, zeros do not count.
        let tiny = (two(-12), two(-13));
        assert_eq!(hopper(F16, &[(1.5, 1.5), (1.75 * two(-10), two(-13)), tiny], 0), 0x4010_0001);
        assert_eq!(hopper(F16, &[(two(-24), two(15)), tiny], 0), 0x3b00_0000);
        assert_eq!(hopper(F16, &[(0.0, two(15)), (two(-9), 1.0), tiny], 0), 0x3b00_0080);
        // e0 is -133.
        let low = (255.0 * two(-82), two(-75));
        assert_eq!(hopper(BF16, &[low, (two(-79), two(-79)), (two(-79), two(-79))], 0), 1);
        assert_eq!(hopper(BF16, &[low, (two(-80), two(-79)), (two(-80), two(-79))], 0), 0);
        // Products beyond f32 cancel; sums beyond it are infinite.
        assert_eq!(hopper(BF16, &[(two(127), two(127)), (-two(127), two(127))], 0x3f80_0000), 0);
        assert_eq!(hopper(BF16, &[(two(127), two(127))], 0), 0x7f80_0000);
        assert_eq!(hopper(BF16, &[(two(103), 1.0)], 0x7f7f_ffff), 0x7f7f_ffff);
        assert_eq!(hopper(BF16, &[(two(104), 1.0)], 0x7f7f_ffff), 0x7f80_0000);
        // Subnormal accumulators pass, -0 does not.
        for c in [0x0000_0001, 0x807f_ffff] {
            assert_eq!(hopper(BF16, &[(0.0, 1.0)], c), c);
        }
        assert_eq!(hopper(F16, &[(-0.0, 1.0)], 0x8000_0000), 0);
        // f16 accumulators round to nearest even, and e0 is -21.
        let f16 = |products: &[_], c| fused(Block::HOPPER_F16, F16, products, c);
        assert_eq!(f16(&[(16.0, 1.0)], 0x7bff), 0x7c00);
        assert_eq!(f16(&[(15.992_187_5, 1.0)], 0x7bff), 0x7bff);
        assert_eq!(f16(&[tiny, (two(-23), two(-24))], 0), 0);
        // FP8 keeps 13 fraction bits, of c too.
        let fp8 = |products: &[_], c| fused(Block::HOPPER_FP8, E4M3FN, products, c);
        let kept = [(0x3f80_03ff, 0x3f80_0000), (0x3f80_07ff, 0x3f80_0400), (0x007f_ffff, 0x007f_fc00)];
        for (c, right) in kept.into_iter().chain([(1, 0), (0x8000_0001, 0)]) {
            assert_eq!(fp8(&[(0.0, 1.0)], c), right, "{c:x}");
        }
        assert_eq!(fp8(&[(1.0, 1.0)], 0x3880_0000), 0x3f80_0000);
        let mut ones = [(1.0, 1.0); 32];
        ones[0] = (256.0, 256.0);
        assert_eq!(fp8(&ones, 0), 0x4780_0000);
        assert_eq!(fused(Block::HOPPER_FP8_F16, E4M3FN, &[(-two(-9), two(-9))], 0), 0x8040);
        // TF32 as the f32 whose low bits are dropped.
        let dropped = Term::of(TF32, 0x3f80_3000);
        let one = Term::of(TF32, 0x3f80_0000);
        assert_eq!(Block::HOPPER_TF32.fuse([(dropped, one)].into_iter(), 0), 0x3f80_2000);
    }
}
