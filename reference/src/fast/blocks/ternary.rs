//! Three values.

use super::{BlockFormat, Format, half, scaled, splat};
use crate::fast::lanes::{Lanes, Out};

pub(super) struct Tq1_0;

/// `DIGITS` ternary digits of each of 16 bytes: the values of digit n begin `stride` after those
/// of the one before.
#[inline(always)]
fn digits<L: Lanes>(l: L, bytes: &[u8], digits: usize, stride: usize, d: L::V, y: &mut Out) {
    for i in (0..16).step_by(L::N) {
        let mut fraction = l.load::<1>(&bytes[i..]);
        for n in 0..digits {
            // Three times the fraction of 256: the digit, and the fraction of the next.
            let tripled = l.add(fraction, l.shl(fraction, 1));
            let q = l.sub(l.shr(tripled, 8), l.splat(1));
            l.write(scaled(l, q, d), &mut y[4 * (stride * n + i)..]);
            fraction = l.and(tripled, l.splat(255));
        }
    }
}

impl Format for Tq1_0 {
    const FORMAT: BlockFormat = BlockFormat::Tq1_0;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let factor = half(block, at!(Tq1_0, "d"))?;
        let d = splat(l, factor);
        for first in [0, 16] {
            digits(l, &block[first..], 5, 32, d, &mut y[4 * first..]);
        }
        digits(l, &block[32..], 5, 16, d, &mut y[4 * 160..]);
        // Four bytes are less than a register.
        for i in 0..4 {
            let mut fraction = u16::from(block[48 + i]);
            for n in 0..4 {
                let tripled = 3 * fraction;
                let value = factor * (f32::from(tripled >> 8) - 1.0);
                y[4 * (240 + 4 * n + i)..][..4].write_copy_of_slice(&value.to_le_bytes());
                fraction = tripled & 255;
            }
        }
        Some(())
    }
}

pub(super) struct Tq2_0;

impl Format for Tq2_0 {
    const FORMAT: BlockFormat = BlockFormat::Tq2_0;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = splat(l, half(block, at!(Tq2_0, "d"))?);
        for part in 0..2 {
            for i in (0..32).step_by(L::N) {
                let bytes = l.load::<1>(&block[32 * part + i..]);
                for run in 0..4 {
                    let q = l.sub(l.and(l.shr(bytes, 2 * run as u32), l.splat(3)), l.splat(1));
                    l.write(scaled(l, q, d), &mut y[4 * (128 * part + 32 * run + i)..]);
                }
            }
        }
        Some(())
    }
}
