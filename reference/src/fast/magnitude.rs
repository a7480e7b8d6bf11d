//! The largest magnitude of some codes.
//!
//! Magnitudes of one format order as their codes do, so the maximum is taken of codes
//! and decoded once.
#![allow(unsafe_code)] // Registers are stored as results are.

use super::lanes::Lanes;
use super::output::as_out;
use super::{Kernel, Simd};
use crate::format::{F32, Format, Policy, Specials};
use crate::ops::AbsmaxNan;
use rayon::prelude::*;

/// A maximum that has a fast path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Magnitude {
    format: Format,
    step: Largest,
}

#[derive(Clone, Copy, Debug)]
struct Largest {
    /// Bits of the magnitude.
    magnitude: u32,
    /// Bits of the code.
    code: u32,
    /// The largest magnitude that is a number.
    last: u32,
    /// The one code that is NaN although its magnitude is 0; no code where none is.
    nan_code: u32,
    /// What NaN counts as.
    nan: u32,
}

/// A NaN that is to reach the result: above every magnitude, and below 2^31 as
/// comparisons of lanes want it.
const PROPAGATED: u32 = 0x7fff_ffff;
/// f32 bits of the canonical NaN.
const CANONICAL_NAN: u32 = 0x7fff_ffff;
/// Bytes of one task.
const CHUNK: usize = 1 << 17;

impl Magnitude {
    /// `None` where there is no fast path: f64, and E8M0, whose code 0 is not zero.
    pub(crate) fn new(format: Format, nan: AbsmaxNan) -> Option<Self> {
        if format.storage_bits > 32 || !format.subnormals {
            return None;
        }
        let magnitude = format.code_at(format.magnitude_mask()) as u32;
        let sign = format.sign_bit() as u32;
        let last = format.infinity().unwrap_or(format.max_finite());
        let step = Largest {
            magnitude,
            code: magnitude | sign,
            last: last as u32,
            nan_code: if format.specials == Specials::NanNegativeZero { sign } else { u32::MAX },
            nan: if nan == AbsmaxNan::Propagate { PROPAGATED } else { 0 },
        };
        Some(Self { format, step })
    }

    /// f32 bits of the largest magnitude of some codes; 0 of none.
    pub(crate) fn of(&self, simd: Simd, codes: &[u8]) -> u32 {
        let largest = if codes.len() <= CHUNK {
            self.largest(simd, codes)
        } else {
            codes.par_chunks(CHUNK).map(|codes| self.largest(simd, codes)).max().unwrap_or(0)
        };
        match largest {
            // Every number's magnitude but f32's is far below, and f32's largest is infinity.
            PROPAGATED => CANONICAL_NAN,
            code => F32.encode(self.format.decode(code.into()), &Policy::IEEE, 0) as u32,
        }
    }

    fn largest(&self, simd: Simd, codes: &[u8]) -> u32 {
        match self.format.storage_bits {
            8 => simd.run(Scan::<1> { step: self.step, codes }),
            16 => simd.run(Scan::<2> { step: self.step, codes }),
            _ => simd.run(Scan::<4> { step: self.step, codes }),
        }
    }
}

struct Scan<'a, const W: usize> {
    step: Largest,
    codes: &'a [u8],
}

/// Bytes of four of the largest registers.
const QUAD: usize = 256;

impl<const W: usize> Kernel for Scan<'_, W> {
    type Output = u32;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> u32 {
        let step = self.step;
        let quad = 4 * L::N * W;
        // Four maxima, so that one need not wait for the other.
        let mut largest = [l.splat(0); 4];
        let quads = self.codes.chunks_exact(quad);
        let rest = quads.remainder();
        for quad in quads {
            largest = four_registers::<L, W>(l, step, quad, largest);
        }
        // Missing codes are zeros, which change no maximum.
        let mut last = [0; QUAD];
        last[..rest.len()].copy_from_slice(rest);
        largest = four_registers::<L, W>(l, step, &last, largest);
        let mut lanes = [0; QUAD];
        // SAFETY: a register is written, which is initialised.
        l.store::<4>(largest, unsafe { as_out(&mut lanes) }, false);
        let lanes = lanes.as_chunks::<4>().0.iter();
        lanes.fold(0, |largest, lane| u32::from_le_bytes(*lane).max(largest))
    }
}

#[inline(always)]
fn four_registers<L: Lanes, const W: usize>(
    l: L,
    step: Largest,
    codes: &[u8],
    largest: [L::V; 4],
) -> [L::V; 4] {
    [
        l.max(largest[0], step.apply(l, l.load::<W>(codes))),
        l.max(largest[1], step.apply(l, l.load::<W>(&codes[L::N * W..]))),
        l.max(largest[2], step.apply(l, l.load::<W>(&codes[2 * L::N * W..]))),
        l.max(largest[3], step.apply(l, l.load::<W>(&codes[3 * L::N * W..]))),
    ]
}

impl Largest {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V) -> L::V {
        let magnitude = l.and(x, l.splat(self.magnitude));
        let nan = l.splat(self.nan);
        let number = l.select(l.lt(l.splat(self.last), magnitude), nan, magnitude);
        l.select(l.eq(l.and(x, l.splat(self.code)), l.splat(self.nan_code)), nan, number)
    }
}
