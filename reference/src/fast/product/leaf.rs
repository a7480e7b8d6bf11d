//! One leaf of a plan on one tile.
#![expect(clippy::needless_range_loop, reason = "an index is that of several arrays at once")]

use super::general::General;
use super::narrow::Narrow;
use super::pack::Extent;
use super::plan::{Blocks, Leaf};
use super::{LANES, PAIRS};
use crate::accumulate::BlockOutput;
use crate::fast::lanes::Lanes;
use crate::fast::{Kernel, Simd};

/// Rows and one panel of columns, packed in the order of one leaf.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// From the first product of the leaf on; rows lie `stride` apart.
    pub(super) rows: &'a [u32],
    pub(super) row_exponents: &'a [u32],
    pub(super) stride: usize,
    pub(super) columns: &'a [[u32; LANES]],
    pub(super) column_exponents: &'a [[u32; PAIRS]],
    /// Products of the leaf.
    pub(super) length: usize,
    /// Of all rows and of all columns.
    pub(super) extents: [Extent; 2],
    /// The most fraction bits of a row's and of a column's number.
    pub(super) fraction_bits: [u32; 2],
}

impl<'a> Tile<'a> {
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [u32] {
        &self.rows[row * self.stride..][..self.length]
    }

    #[inline(always)]
    pub(super) fn row_exponents(&self, row: usize) -> &'a [u32] {
        &self.row_exponents[row * self.stride..][..self.length]
    }

    /// Whether every number of a chain of blocks, from these numbers on, fits the registers:
    /// products and their multiples are normal f32, terms fit an i32, no sum is too large.
    fn is_narrow(&self, blocks: Blocks, start: &[[u32; LANES]]) -> bool {
        let BlockOutput::Truncate(_) = blocks.block.output else { return false };
        let [fa, fb] = self.fraction_bits;
        let largest = (2.0 - 0.5f64.powi(fa as i32)) * (2.0 - 0.5f64.powi(fb as i32));
        let bits = blocks.block.fraction_bits as i32;
        let sum = largest * 2f64.powi(bits) * blocks.length as f64;
        let fits = fa + fb <= 22 && bits <= 28 && sum < 2f64.powi(31) && blocks.block.min_exponent <= 60;
        if !fits {
            return false;
        }
        // In a chain, each result is the next block's c.
        let field = |bits: u32| (bits >> 23 & 0xff) as i32;
        let fits = |&c: &u32| c << 1 == 0 || (bits + 1..254).contains(&field(c));
        if !blocks.pairs && !start.as_flattened().iter().all(fits) {
            return false;
        }
        let [a, b] = self.extents;
        if a.is_empty() || b.is_empty() {
            return true;
        }
        let room = self.length.ilog2() as i32 + 3;
        a.least + b.least >= 2 * bits - 126 && a.largest + b.largest + room <= 126
    }

    /// The results go to `out`, which holds what chains start from.
    pub(super) fn evaluate(&self, simd: Simd, leaf: Leaf, out: &mut [[u32; LANES]]) {
        match leaf {
            _ if self.length == 0 => (),
            Leaf::Fma => simd.run(Singles::<true> { tile: *self, out }),
            Leaf::MultiplyAdd => {
                // -0 is what changes no first product.
                out.as_flattened_mut().fill(1 << 31);
                simd.run(Singles::<false> { tile: *self, out });
            }
            Leaf::Blocks(blocks) if self.is_narrow(blocks, out) => {
                simd.run(Narrow { blocks, tile: *self, out });
            }
            Leaf::Blocks(blocks) => simd.run(General { blocks, tile: *self, out }),
        }
    }
}

/// f32 products in ascending order, added fused or not.
struct Singles<'a, const FUSED: bool> {
    tile: Tile<'a>,
    out: &'a mut [[u32; LANES]],
}

impl<const FUSED: bool> Kernel for Singles<'_, FUSED> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        self.rows::<L, 4>(l);
    }
}

impl<const FUSED: bool> Singles<'_, FUSED> {
    #[inline(always)]
    fn rows<L: Lanes, const R: usize>(self, l: L) {
        for row in (0..self.out.len()).step_by(R) {
            for lane in (0..LANES).step_by(2 * L::N) {
                let mut sums = [[l.splat(0); 2]; R];
                for r in 0..R {
                    for h in 0..2 {
                        sums[r][h] = l.load_words(&self.out[row + r][lane + h * L::N..]);
                    }
                }
                for (k, b) in self.tile.columns[..self.tile.length].iter().enumerate() {
                    let b = [l.load_words(&b[lane..]), l.load_words(&b[lane + L::N..])];
                    for r in 0..R {
                        let a = l.splat(self.tile.row(row + r)[k]);
                        for h in 0..2 {
                            sums[r][h] = if FUSED {
                                l.fused(a, b[h], sums[r][h])
                            } else {
                                l.fadd(sums[r][h], l.fmul(a, b[h]))
                            };
                        }
                    }
                }
                for r in 0..R {
                    for h in 0..2 {
                        l.store_words(sums[r][h], &mut self.out[row + r][lane + h * L::N..]);
                    }
                }
            }
        }
    }
}
