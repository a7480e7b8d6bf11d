//! Arrays, which the compiler vectorises for whatever the target has.

use super::lanes::{Lanes, Out};

const N: usize = 8;
type V = [u32; N];

/// No instruction set beyond the target's baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portable;

#[inline(always)]
fn map(a: V, f: impl Fn(u32) -> u32) -> V {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(u32, u32) -> u32) -> V {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn zip_f32(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    zip(a, b, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits())
}

#[inline(always)]
fn zip_i32(a: V, b: V, f: impl Fn(i32, i32) -> i32) -> V {
    zip(a, b, |a, b| f(a as i32, b as i32) as u32)
}

/// Applied to the upper and the lower half of each lane.
#[inline(always)]
fn zip_i16(a: V, b: V, f: impl Fn(i16, i16) -> i16) -> V {
    let half = |a: u32, b: u32, shift: u32| u32::from(f((a >> shift) as i16, (b >> shift) as i16) as u16);
    zip(a, b, |a, b| half(a, b, 16) << 16 | half(a, b, 0))
}

/// All ones for true, so that a selection is three bit operations.
#[inline(always)]
fn mask(truth: bool) -> u32 {
    if truth { u32::MAX } else { 0 }
}

impl Lanes for Portable {
    type V = V;
    type M = V;
    type D = [f64; N / 2];
    const N: usize = N;
    const DOUBLES: usize = N / 2;
    const HAS_TO_F16: bool = false;

    #[inline(always)]
    fn splat(self, x: u32) -> V {
        [x; N]
    }

    #[inline(always)]
    fn load<const W: usize>(self, memory: &[u8]) -> V {
        let memory = &memory[..N * W];
        std::array::from_fn(|i| match W {
            1 => memory[i].into(),
            2 => u16::from_le_bytes([memory[2 * i], memory[2 * i + 1]]).into(),
            _ => u32::from_le_bytes([memory[4 * i], memory[4 * i + 1], memory[4 * i + 2], memory[4 * i + 3]]),
        })
    }

    #[inline(always)]
    fn load_signed(self, memory: &[u8]) -> V {
        let memory = &memory[..N];
        std::array::from_fn(|i| i32::from(memory[i] as i8) as u32)
    }

    #[inline(always)]
    fn store<const W: usize>(self, v: [V; 4], memory: &mut Out, _: bool) {
        for (v, memory) in v.into_iter().zip(memory[..4 * N * W].chunks_exact_mut(N * W)) {
            match W {
                1 => memory.write_copy_of_slice(&v.map(|x| x as u8)),
                2 => memory.write_copy_of_slice(v.map(|x| (x as u16).to_le_bytes()).as_flattened()),
                _ => memory.write_copy_of_slice(v.map(u32::to_le_bytes).as_flattened()),
            };
        }
    }

    #[inline(always)]
    fn fence(self) {}

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, u32::wrapping_add)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, u32::wrapping_sub)
    }

    #[inline(always)]
    fn and(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a | b)
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, u32::min)
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, u32::max)
    }

    #[inline(always)]
    fn shl(self, a: V, count: u32) -> V {
        map(a, |a| a << (count & 31))
    }

    #[inline(always)]
    fn shr(self, a: V, count: u32) -> V {
        map(a, |a| a >> (count & 31))
    }

    #[inline(always)]
    fn shl_each(self, a: V, counts: V) -> V {
        zip(a, counts, |a, count| a.wrapping_shl(count) & mask(count < 32))
    }

    #[inline(always)]
    fn shr_each(self, a: V, counts: V) -> V {
        zip(a, counts, |a, count| a.wrapping_shr(count) & mask(count < 32))
    }

    #[inline(always)]
    fn lt(self, a: V, b: V) -> V {
        // Signed, as SSE2 compares.
        zip(a, b, |a, b| mask((a as i32) < b as i32))
    }

    #[inline(always)]
    fn eq(self, a: V, b: V) -> V {
        zip(a, b, |a, b| mask(a == b))
    }

    #[inline(always)]
    fn top_bit(self, a: V) -> V {
        map(a, |a| mask((a as i32) < 0))
    }

    #[inline(always)]
    fn select(self, a: V, yes: V, no: V) -> V {
        std::array::from_fn(|i| (a[i] & yes[i]) | (!a[i] & no[i]))
    }

    #[inline(always)]
    fn to_f16(self, _: V) -> V {
        unreachable!("there is no such instruction")
    }

    #[inline(always)]
    fn fadd(self, a: V, b: V) -> V {
        zip_f32(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn fsub(self, a: V, b: V) -> V {
        zip_f32(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn fmul(self, a: V, b: V) -> V {
        zip_f32(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn fdiv(self, a: V, b: V) -> V {
        zip_f32(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn load_words(self, memory: &[u32]) -> V {
        let memory = &memory[..N];
        std::array::from_fn(|i| memory[i])
    }

    #[inline(always)]
    fn store_words(self, v: V, memory: &mut [u32]) {
        memory[..N].copy_from_slice(&v);
    }

    #[inline(always)]
    fn shr_signed(self, a: V, count: u32) -> V {
        map(a, |a| (a as i32 >> (count & 31)) as u32)
    }

    #[inline(always)]
    fn max_signed(self, a: V, b: V) -> V {
        zip_i32(a, b, i32::max)
    }

    #[inline(always)]
    fn add_i16(self, a: V, b: V) -> V {
        zip_i16(a, b, i16::wrapping_add)
    }

    #[inline(always)]
    fn max_i16(self, a: V, b: V) -> V {
        zip_i16(a, b, i16::max)
    }

    #[inline(always)]
    fn fused(self, a: V, b: V, c: V) -> V {
        std::array::from_fn(|i| {
            f32::from_bits(a[i]).mul_add(f32::from_bits(b[i]), f32::from_bits(c[i])).to_bits()
        })
    }

    #[inline(always)]
    fn to_float(self, a: V) -> V {
        map(a, |a| (a as i32 as f32).to_bits())
    }

    #[inline(always)]
    fn lookup(self, table: &[u32; 16], a: V) -> V {
        map(a, |a| table[(a & 15) as usize])
    }

    #[inline(always)]
    fn write(self, v: V, memory: &mut Out) {
        memory[..4 * N].write_copy_of_slice(v.map(u32::to_le_bytes).as_flattened());
    }

    #[inline(always)]
    fn to_int(self, a: V) -> V {
        map(a, |a| f32::from_bits(a) as i32 as u32)
    }

    #[inline(always)]
    fn sum_toward_zero(self, a: V, b: V) -> V {
        // The bits of an f64 that an f32 has no room for.
        let cut = |x: f64| f64::from_bits(x.to_bits() & u64::MAX << 29) as f32;
        zip(a, b, |a, b| cut(f64::from(a as i32) + f64::from(b as i32)).to_bits())
    }

    #[inline(always)]
    fn splat_double(self, x: f64) -> Self::D {
        [x; N / 2]
    }

    #[inline(always)]
    fn load_doubles(self, memory: &[f64]) -> Self::D {
        let memory = &memory[..N / 2];
        std::array::from_fn(|i| memory[i])
    }

    #[inline(always)]
    fn store_doubles(self, d: Self::D, memory: &mut [f64]) {
        memory[..N / 2].copy_from_slice(&d);
    }

    #[inline(always)]
    fn exact_multiply_add(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
}
