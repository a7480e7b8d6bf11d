//! Blocks whose products fit f32: every step on registers.
//!
//! The exponents of products are small integers, two to a lane. A product of two significands
//! of up to 12 bits is exact in f32, and so is its multiple by the power of two that makes
//! `2^(E - F)` one: the conversion to an integer then cuts it as the block does.
#![expect(clippy::needless_range_loop, reason = "an index is that of several arrays at once")]

use super::leaf::Tile;
use super::plan::Blocks;
use super::{LANES, PAIRS, ZERO};
use crate::accumulate::BlockOutput;
use crate::fast::Kernel;
use crate::fast::lanes::Lanes;

/// Products that all rows of a tile go through before the next ones: a panel's numbers stay in
/// the first-level cache.
const STEP: usize = 128;

/// Chains of blocks of one tile; [`Tile::is_narrow`] holds.
pub(super) struct Narrow<'a> {
    pub(super) blocks: Blocks,
    pub(super) tile: Tile<'a>,
    /// The results; at first what the chains start from.
    pub(super) out: &'a mut [[u32; LANES]],
}

impl Kernel for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        // As many rows as registers hold the sums and scales of.
        if L::N == 16 { self.rows::<L, 4>(l) } else { self.rows::<L, 2>(l) }
    }
}

impl Narrow<'_> {
    #[inline(always)]
    fn rows<L: Lanes, const R: usize>(mut self, l: L) {
        let Blocks { length, pairs, .. } = self.blocks;
        let unit = if pairs { 2 * length } else { length };
        let step = (STEP / unit).max(1) * unit;
        for start in (0..self.tile.length).step_by(step) {
            let end = (start + step).min(self.tile.length);
            for row in (0..self.out.len()).step_by(R) {
                for lane in (0..PAIRS).step_by(L::N) {
                    if pairs {
                        self.pairs::<L, R>(l, row, lane, start, end);
                    } else {
                        self.chain::<L, R>(l, row, lane, start, end);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn chain<L: Lanes, const R: usize>(&mut self, l: L, row: usize, lane: usize, start: usize, end: usize) {
        let mut c = [[l.splat(0); 2]; R];
        for r in 0..R {
            c[r][0] = l.load_words(&self.out[row + r][lane..]);
            c[r][1] = l.load_words(&self.out[row + r][PAIRS + lane..]);
        }
        for start in (start..end).step_by(self.blocks.length) {
            c = self.block(l, row, lane, start, c);
        }
        for r in 0..R {
            l.store_words(c[r][0], &mut self.out[row + r][lane..]);
            l.store_words(c[r][1], &mut self.out[row + r][PAIRS + lane..]);
        }
    }

    /// Pairs of blocks from zero, their results added in f32.
    #[inline(always)]
    fn pairs<L: Lanes, const R: usize>(&mut self, l: L, row: usize, lane: usize, start: usize, end: usize) {
        for start in (start..end).step_by(2 * self.blocks.length) {
            let half = self.block(l, row, lane, start, [[l.splat(0); 2]; R]);
            let result = self.block(l, row, lane, start + self.blocks.length, half);
            for r in 0..R {
                for h in 0..2 {
                    let at = PAIRS * h + lane;
                    let sum = l.fadd(l.load_words(&self.out[row + r][at..]), result[r][h]);
                    l.store_words(sum, &mut self.out[row + r][at..]);
                }
            }
        }
    }

    /// One block of `R` rows and two registers of columns.
    #[inline(always)]
    fn block<L: Lanes, const R: usize>(
        &self,
        l: L,
        row: usize,
        lane: usize,
        start: usize,
        c: [[L::V; 2]; R],
    ) -> [[L::V; 2]; R] {
        let (block, length) = (self.blocks.block, self.blocks.length);
        let fraction_bits = block.fraction_bits as i32;
        let b = &self.tile.columns[start..][..length];
        let b_exponents = &self.tile.column_exponents[start..][..length];

        let (mut a, mut a_exponents) = ([self.tile.rows; R], [self.tile.rows; R]);
        for r in 0..R {
            a[r] = &self.tile.row(row + r)[start..][..length];
            a_exponents[r] = &self.tile.row_exponents(row + r)[start..][..length];
        }

        // E of products, two to a lane.
        let lowest = (2 * ZERO) as u16 as u32 * 0x1_0001;
        let mut exponents = [l.splat(lowest); R];
        for k in 0..length {
            let eb = l.load_words(&b_exponents[k][lane..]);
            for r in 0..R {
                let ea = l.splat(a_exponents[r][k]);
                exponents[r] = l.max_i16(exponents[r], l.add_i16(ea, eb));
            }
        }
        // 2^(F - E), with E at least what keeps it finite: that is below any term's exponent.
        let floor = l.splat((block.min_exponent + 127).max(fraction_bits + 1) as u32);
        let mut scale = c;
        for r in 0..R {
            let low = l.shr_signed(l.shl(exponents[r], 16), 16);
            let high = l.shr_signed(exponents[r], 16);
            for h in 0..2 {
                let of_c = l.and(l.shr(c[r][h], 23), l.splat(0xff));
                let of_products = if h == 0 { low } else { high };
                let e = l.max_signed(l.max_signed(of_products, of_c), floor);
                scale[r][h] = l.shl(l.sub(l.splat((254 + fraction_bits) as u32), e), 23);
            }
        }
        let mut sum = [[l.splat(0); 2]; R];
        for k in 0..length {
            let b = [l.load_words(&b[k][lane..]), l.load_words(&b[k][PAIRS + lane..])];
            for r in 0..R {
                let a = l.splat(a[r][k]);
                for h in 0..2 {
                    let term = l.to_int(l.fmul(l.fmul(a, b[h]), scale[r][h]));
                    sum[r][h] = l.add(sum[r][h], term);
                }
            }
        }
        let kept = match block.output {
            BlockOutput::Truncate(bits) => u32::MAX << (23 - bits),
            BlockOutput::NearestF32 | BlockOutput::NearestF16 => unreachable!("is not narrow"),
        };
        let mut result = c;
        for r in 0..R {
            for h in 0..2 {
                let of_c = l.to_int(l.fmul(c[r][h], scale[r][h]));
                let unit = l.sub(l.splat(254 << 23), scale[r][h]);
                result[r][h] = l.and(l.fmul(l.sum_toward_zero(sum[r][h], of_c), unit), l.splat(kept));
            }
        }
        result
    }
}
