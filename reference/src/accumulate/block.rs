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
