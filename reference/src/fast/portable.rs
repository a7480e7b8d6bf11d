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

/// All ones for true, so that a selection is three bit operations.
#[inline(always)]
fn mask(truth: bool) -> u32 {
    if truth { u32::MAX } else { 0 }
}

impl Lanes for Portable {
    type V = V;
    type M = V;
    const N: usize = N;
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
}
