//! What an algorithm may do with a register.

use std::fmt::Debug;
use std::mem::MaybeUninit;

/// Memory to be written, as bytes.
pub(super) type Out = [MaybeUninit<u8>];

/// An instruction set as a value: whoever holds one may use it.
///
/// Lanes are `u32`; the floating-point operations take them as the bits of an f32
/// and round to nearest even.
pub(super) trait Lanes: Copy + Debug {
    /// A register of [`Lanes::N`] lanes.
    type V: Copy;
    /// A truth value for each lane.
    type M: Copy;
    /// Lanes of a register.
    const N: usize;
    /// A register of [`Lanes::DOUBLES`] f64.
    type D: Copy;
    /// Half as many as [`Lanes::N`].
    const DOUBLES: usize;
    /// Whether [`Lanes::to_f16`] is an instruction; it is not to be called otherwise.
    const HAS_TO_F16: bool;

    /// The same number in every lane.
    fn splat(self, x: u32) -> Self::V;

    /// `N` little-endian numbers of `W` bytes (1, 2 or 4) from the start of
    /// `memory`.
    fn load<const W: usize>(self, memory: &[u8]) -> Self::V;
    /// The first `N` bytes of memory as i8.
    fn load_signed(self, memory: &[u8]) -> Self::V;
    /// Four registers of numbers that fit `W` bytes, to the start of `memory`: with `past`
    /// past the caches, where the instruction set can and the memory begins at a multiple of
    /// a register's bytes. [`Lanes::fence`] then makes it visible to other threads.
    fn store<const W: usize>(self, v: [Self::V; 4], memory: &mut Out, past: bool);
    /// Orders what went past the caches before all that follows.
    fn fence(self);
    /// Hints that the memory there, if any, is read soon.
    fn prefetch(self, memory: *const u8);

    /// `a + b`, wrapping.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`, wrapping.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a & b`.
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a | b`.
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a << count`, the same count (below 32) in every lane.
    fn shl(self, a: Self::V, count: u32) -> Self::V;
    /// `a >> count`, the same count (below 32) in every lane.
    fn shr(self, a: Self::V, count: u32) -> Self::V;
    /// `a << counts`; 0 for counts of 32 or more.
    fn shl_each(self, a: Self::V, counts: Self::V) -> Self::V;
    /// `a >> counts`; 0 for counts of 32 or more.
    fn shr_each(self, a: Self::V, counts: Self::V) -> Self::V;

    /// `a < b`, for numbers below 2^31.
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a == b`.
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    /// Whether the top bit is set.
    fn top_bit(self, a: Self::V) -> Self::M;
    /// `a ? yes : no`.
    fn select(self, a: Self::M, yes: Self::V, no: Self::V) -> Self::V;

    /// The f16 nearest to an f32 as IEEE 754 has it; NaNs are of any payload.
    fn to_f16(self, a: Self::V) -> Self::V;
    /// `a + b` of f32.
    fn fadd(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b` of f32.
    fn fsub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b` of f32.
    fn fmul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b` of f32.
    fn fdiv(self, a: Self::V, b: Self::V) -> Self::V;

    /// The first `N` words of memory.
    fn load_words(self, memory: &[u32]) -> Self::V;
    /// To the first `N` words of memory.
    fn store_words(self, v: Self::V, memory: &mut [u32]);
    /// `a >> count` of i32, the same count (below 32) in every lane.
    fn shr_signed(self, a: Self::V, count: u32) -> Self::V;
    /// The larger i32.
    fn max_signed(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a + b` of the two i16 in each lane, wrapping.
    fn add_i16(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger of the two i16 in each lane.
    fn max_i16(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c` of f32, rounded once.
    fn fused(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The f32 nearest to an i32.
    fn to_float(self, a: Self::V) -> Self::V;
    /// The entry of a table that the low four bits name.
    fn lookup(self, table: &[u32; 16], a: Self::V) -> Self::V;
    /// All 4 `N` bytes, to the start of memory.
    fn write(self, v: Self::V, memory: &mut Out);
    /// The i32 of an f32 below 2^31 in magnitude, toward zero.
    fn to_int(self, a: Self::V) -> Self::V;
    /// The f32 of the exact sum of two i32, toward zero.
    fn sum_toward_zero(self, a: Self::V, b: Self::V) -> Self::V;

    /// The same f64 everywhere.
    fn splat_double(self, x: f64) -> Self::D;
    /// The first `DOUBLES` f64 of memory.
    fn load_doubles(self, memory: &[f64]) -> Self::D;
    /// To the first `DOUBLES` f64 of memory.
    fn store_doubles(self, d: Self::D, memory: &mut [f64]);
    /// `a * b + c`, where product and sum are exact.
    fn exact_multiply_add(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
}
