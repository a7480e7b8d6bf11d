//! The two loops of attention, on SIMD registers: the same sums in the same order, side by side.

use super::lanes::Lanes;
use super::{Kernel, Simd};

/// `s[j] = sum_c q[c] * k[c][j]`, c ascending, from +0, each step an fma; k has rows of `stride`.
struct Scores<'a> {
    q: &'a [f32],
    k: &'a [f32],
    stride: usize,
    s: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Self { q, k, stride, s } = self;
        // A few registers of sums stay where they are over all of c.
        const BLOCK: usize = 64;
        let mut first = 0;
        while first < s.len() {
            let count = BLOCK.min(s.len() - first);
            let mut sums = [0f32; BLOCK];
            for (c, &q) in q.iter().enumerate() {
                let k = &k[c * stride + first..][..count];
                if count == BLOCK {
                    for i in 0..BLOCK {
                        sums[i] = q.mul_add(k[i], sums[i]);
                    }
                } else {
                    for i in 0..count {
                        sums[i] = q.mul_add(k[i], sums[i]);
                    }
                }
            }
            s[first..first + count].copy_from_slice(&sums[..count]);
            first += count;
        }
    }
}

/// `y[c] = fma(p[j], v[j][c], y[c])`, j ascending.
struct Weighted<'a> {
    p: &'a [f32],
    v: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Weighted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Self { p, v, y } = self;
        let width = y.len();
        const BLOCK: usize = 64;
        let mut first = 0;
        while first < width {
            let count = BLOCK.min(width - first);
            let mut sums = [0f32; BLOCK];
            sums[..count].copy_from_slice(&y[first..first + count]);
            for (j, &p) in p.iter().enumerate() {
                let v = &v[j * width + first..][..count];
                if count == BLOCK {
                    for i in 0..BLOCK {
                        sums[i] = p.mul_add(v[i], sums[i]);
                    }
                } else {
                    for i in 0..count {
                        sums[i] = p.mul_add(v[i], sums[i]);
                    }
                }
            }
            y[first..first + count].copy_from_slice(&sums[..count]);
            first += count;
        }
    }
}

/// Products of a query with as many keys as there are scores; keys are columns of `k`.
pub(crate) fn scores(simd: Simd, q: &[f32], k: &[f32], stride: usize, s: &mut [f32]) {
    simd.run(Scores { q, k, stride, s });
}

/// Adds rows of `v`, each times its weight.
pub(crate) fn add_weighted(simd: Simd, p: &[f32], v: &[f32], y: &mut [f32]) {
    simd.run(Weighted { p, v, y });
}
