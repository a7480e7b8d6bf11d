//! Rows of blocks times vectors of f32, in the order of a warp: 32 lanes, lane l adding the
//! products of the values k with `k % 32 = l` by fma, then the lanes in halves.

use super::{Format, Values, With, as_out, decode_one, with_format};
use crate::block::{BlockFormat, MAX_VALUES};
use crate::fast::lanes::Lanes;
use crate::fast::{Kernel, Simd};
use std::marker::PhantomData;

const LANES: usize = 32;

/// Vectors of little-endian f32, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<'a> {
    /// All of them.
    pub(crate) x: &'a [u8],
    /// How many.
    pub(crate) count: usize,
}

impl Vectors<'_> {
    /// The products of each with a row of blocks of as many values.
    pub(crate) fn times(self, simd: Simd, format: BlockFormat, row: &[u8]) -> Vec<f32> {
        with_format(format, Row { simd, row, vectors: self })
    }
}

struct Row<'a> {
    simd: Simd,
    row: &'a [u8],
    vectors: Vectors<'a>,
}

impl With for Row<'_> {
    type Output = Vec<f32>;

    fn with<F: Format>(self) -> Vec<f32> {
        let mut lanes = vec![[0; LANES]; self.vectors.count];
        self.simd.run(Products::<F> {
            row: self.row,
            vectors: self.vectors,
            lanes: &mut lanes,
            format: PhantomData,
        });
        lanes.into_iter().map(|lanes| tree(lanes.map(f32::from_bits))).collect()
    }
}

/// `__shfl_xor_sync` by 16, 8, 4, 2, 1.
fn tree(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

struct Products<'a, F> {
    row: &'a [u8],
    vectors: Vectors<'a>,
    lanes: &'a mut [[u32; LANES]],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Products<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut values: Values = [0; 4 * MAX_VALUES];
        let width = 4 * F::FORMAT.values();
        let stride = self.vectors.x.len().checked_div(self.vectors.count).unwrap_or(0);
        for (i, block) in self.row.chunks_exact(F::FORMAT.bytes()).enumerate() {
            // SAFETY: whole values are written, and nothing uninitialised.
            decode_one::<L, F>(l, block, unsafe { as_out(&mut values) });
            for (m, lanes) in self.lanes.iter_mut().enumerate() {
                let x = &self.vectors.x[m * stride + i * width..][..width];
                for lane in (0..LANES).step_by(L::N) {
                    let mut sums = l.load_words(&lanes[lane..]);
                    for at in (4 * lane..width).step_by(4 * LANES) {
                        sums = l.fused(l.load::<4>(&values[at..]), l.load::<4>(&x[at..]), sums);
                    }
                    l.store_words(sums, &mut lanes[lane..]);
                }
            }
        }
    }
}
