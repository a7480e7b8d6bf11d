//! Attention over intervals, and the limits that its values set.

use super::{Attention, Cache, Extents};
use crate::fast::Simd;
use crate::format::F32;
use crate::interval::{Interval, Steps};
use crate::ops::activation::floats;
use crate::{Path, Tensor};
use rayon::prelude::*;

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// Slots after which an implementation may rescale what it has.
const RESCALED: f64 = 16.0;

impl Attention {
    /// Intervals of the elements at ascending positions.
    pub(super) fn bounds(&self, inputs: &[Tensor], positions: &[usize], steps: Steps) -> Vec<Interval> {
        let extents = Self::extents(inputs);
        let Extents { heads, kv_heads, queries, d, .. } = extents;
        let q = floats(Simd::best(), self.q, &inputs[0].packed());
        let cache = Cache::new(self, inputs, Path::Definition);
        let row = |positions: &[usize]| -> Vec<Interval> {
            let row = positions[0] / d;
            let head = cache.head(row / queries * kv_heads / heads);
            let seen = self.seen(row % queries, &extents);
            let q = &q[row * d..(row + 1) * d];
            let columns = positions.iter().map(|position| position % d);
            let (k, v) = (&head.k[..seen * d], &head.v[..seen * d]);
            let weights = self.exponentials(q, k, steps);
            let is_finite = v.iter().all(|v| v.is_finite());
            let Some(weights) = weights.filter(|_| seen > 0 && is_finite) else {
                let canonical = self.query(q, &head, seen, Path::Definition);
                return columns.map(|c| canonical[c].into()).collect();
            };
            let sum = Interval::sum(&weights, steps);
            let rescalings = if steps == Steps::Real { 0.0 } else { 3.0 * (seen as f64 / RESCALED).floor() };
            let narrowed = if self.probabilities == F32 || steps == Steps::Real {
                0.0
            } else {
                2f64.powi(-(self.probabilities.fraction_bits as i32) - 1)
            };
            let column = |c: usize| {
                let terms: Vec<_> =
                    weights.iter().zip(v.chunks_exact(d)).map(|(weight, v)| *weight * v[c].into()).collect();
                let magnitude: f64 = terms.iter().map(|term| term.magnitude()).sum();
                let total = Interval::sum(&terms, steps);
                // Narrow exponentials, and subnormal ones of them.
                let tiny = if narrowed > 0.0 { seen as f64 * self.probabilities.to_f64(1) } else { 0.0 };
                let largest =
                    v.iter().skip(c).step_by(d).fold(0.0, |most: f64, v| most.max(f64::from(v.abs())));
                let error = magnitude * (narrowed + rescalings * U) + tiny * largest;
                let sum = if rescalings > 0.0 { sum.rounded(steps, rescalings) } else { sum };
                // Each product with 1 / sum, or one division.
                (total.widened(error) / sum).rounded(steps, 2.0)
            };
            columns.map(column).collect()
        };
        let rows: Vec<_> = positions.chunk_by(|a, b| a / d == b / d).collect();
        rows.into_par_iter().flat_map_iter(row).collect()
    }

    /// The exponentials of a query; `None` where some product is not finite.
    fn exponentials(&self, q: &[f32], k: &[f32], steps: Steps) -> Option<Vec<Interval>> {
        let scale = match self.scale {
            Some(scale) => Interval::from(scale.0),
            None if steps == Steps::Real => {
                Interval::at((q.len() as f64).sqrt().recip(), |x| x, 4.0 * f64::EPSILON)
            }
            None => Interval::from(self.factor(q.len())).rounded(steps, 2.0),
        };
        let product = |k: &[f32]| {
            // Products of f32 are exact in f64.
            let (mut sum, mut magnitude) = (0f64, 0f64);
            for (q, k) in q.iter().zip(k) {
                let product = f64::from(*q) * f64::from(*k);
                sum += product;
                magnitude += product.abs();
            }
            let roundings = if steps == Steps::Real { 0.0 } else { (q.len() as f64 + 1.0) * U * 1.001 };
            let error = magnitude * (roundings + q.len() as f64 * f64::EPSILON);
            Interval::from(sum).widened(error)
        };
        let s: Vec<_> = k.chunks_exact(q.len()).map(|k| (product(k) * scale).rounded(steps, 1.0)).collect();
        let max = s.iter().copied().reduce(Interval::max)?;
        let in_range = s.iter().all(|s| s.magnitude() <= f64::from(f32::MAX));
        in_range.then(|| s.iter().map(|s| (*s - max).rounded(steps, 1.0).exp(steps)).collect())
    }

    /// Results are means of the values that a query sees: within their extremes, but for roundings.
    pub(super) fn hull(&self, inputs: &[Tensor]) -> Vec<Interval> {
        let extents = Self::extents(inputs);
        let Extents { heads, kv_heads, queries, slots, d } = extents;
        let q = floats(Simd::best(), self.q, &inputs[0].packed());
        let cache = Cache::new(self, inputs, Path::Definition);
        let used = self.used(slots);
        let any = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
        let largest = |x: &[f32]| {
            x.iter().map(|x| f64::from(x.abs())).fold(0.0, |a, b| if a < b || b.is_nan() { b } else { a })
        };
        // The extremes of the values up to each slot, for each kv head. A value that is not finite,
        // or a key with which a product may not be, sets no limit.
        let most = 1e37 / (d as f64 * largest(&q).max(1.0) * f64::from(self.factor(d).abs()).max(1.0));
        let extremes = |head: usize| {
            let mut extremes = vec![Interval { low: f64::INFINITY, high: f64::NEG_INFINITY }; d];
            let mut all = Vec::with_capacity((used + 1) * d);
            all.extend_from_slice(&extremes);
            let head = cache.head(head);
            for (k, v) in head.k.chunks_exact(d).zip(head.v.chunks_exact(d)).take(used) {
                let is_small = largest(k) <= most;
                for (extreme, &v) in extremes.iter_mut().zip(v) {
                    let value = if v.is_finite() && is_small { v.into() } else { any };
                    *extreme = extreme.hull(value);
                }
                all.extend_from_slice(&extremes);
            }
            all
        };
        let extremes: Vec<_> = (0..kv_heads).into_par_iter().map(extremes).collect();
        let narrowed = 2f64.powi(-(self.probabilities.fraction_bits as i32));
        let slack = 8.0 * (used as f64 + 16.0) * U + narrowed;
        let row = |row: usize| {
            let seen = self.seen(row % queries, &extents);
            let own = &extremes[row / queries * kv_heads / heads][seen * d..(seen + 1) * d];
            let widened = move |limits: &Interval| {
                if seen == 0 || !limits.magnitude().is_finite() {
                    return any;
                }
                limits.widened(limits.magnitude() * slack + 1e-45)
            };
            own.iter().map(widened).collect::<Vec<_>>()
        };
        (0..heads * queries).into_par_iter().flat_map_iter(row).collect()
    }
}
