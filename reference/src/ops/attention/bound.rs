//! Attention over intervals, and the limits that its values set.

use super::{Attention, Cache, Extents};
use crate::fast::Simd;
use crate::format::F32;
use crate::interval::{Interval, Steps, U};
use crate::ops::activation::floats;
use crate::ops::{FullyMasked, SoftmaxOrder};
use crate::{Path, Tensor};
use rayon::prelude::*;

/// Slots after which an implementation may rescale what it has.
const RESCALED: usize = 16;
/// Roundings of a rescaling: four of an exponential near 1, and a product.
const ROUNDINGS: f64 = 5.0;

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
            // An online softmax rescales after each tile.
            let tile = match self.softmax {
                SoftmaxOrder::Online(tile) => tile.min(RESCALED),
                SoftmaxOrder::TwoPass => RESCALED,
            };
            let rescalings = if steps == Steps::Real { 0.0 } else { ROUNDINGS * (seen / tile) as f64 };
            let sum = sum.rounded(steps, rescalings);
            // The largest adds 1.
            let whole = Interval { low: 1.0 - 8.0 * U, high: f64::INFINITY };
            let sum = if steps == Steps::F32 { sum.within(whole) } else { sum };
            let narrowed = if self.probabilities == F32 || steps == Steps::Real {
                0.0
            } else {
                2f64.powi(-(self.probabilities.fraction_bits as i32) - 1)
            };
            let column = |c: usize| {
                // A product may be rounded before it is added, to zero of its sign too.
                let product = |(weight, v): (&Interval, &[f32])| (*weight * v[c].into()).rounded(steps, 1.0);
                let terms: Vec<_> = weights.iter().zip(v.chunks_exact(d)).map(product).collect();
                let magnitude: f64 = terms.iter().map(|term| term.magnitude()).sum();
                let values = v.iter().skip(c).step_by(d).map(|&v| Interval::from(v));
                let values = values.reduce(Interval::hull).unwrap_or(f64::NAN.into());
                // Narrow exponentials, and subnormal ones of them.
                let tiny = if narrowed > 0.0 { seen as f64 * self.probabilities.to_f64(1) } else { 0.0 };
                let error = magnitude * (narrowed + rescalings * U) + tiny * values.magnitude();
                // Each product with 1 / sum, or one division; a mean of the values in any case.
                let mean = (Interval::sum(&terms, steps).widened(error) / sum).rounded(steps, 2.0);
                mean.within(self.mean_of(values, seen))
            };
            // A partial sum that may overflow has no bound.
            let largest = v.iter().fold(0.0, |most: f64, v| most.max(f64::from(v.abs())));
            let weight: f64 = weights.iter().map(|weight| weight.magnitude()).sum();
            if steps == Steps::F32 && largest * weight >= f64::from(f32::MAX) / 2.0 {
                let canonical = self.query(q, &head, seen, Path::Definition);
                return columns.map(|c| canonical[c].into()).collect();
            }
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
            let error = if magnitude >= f64::from(f32::MAX) / 2.0 {
                // A partial sum may overflow.
                f64::INFINITY
            } else {
                magnitude * (roundings + q.len() as f64 * f64::EPSILON)
            };
            Interval::from(sum).widened(error)
        };
        let products: Vec<_> = k.chunks_exact(q.len()).map(product).collect();
        let s: Vec<_> = products.iter().map(|product| (*product * scale).rounded(steps, 1.0)).collect();
        let max = s.iter().copied().reduce(Interval::max)?;
        let in_range = s.iter().all(|s| s.magnitude() <= f64::from(f32::MAX));
        // Whatever errors the products have, no product is above the largest that is found.
        let weight = Interval { low: 0.0, high: 1.0 + 4.0 * U };
        if steps == Steps::Real {
            // Real weights are as well those of differences from any one product, which are narrower.
            let largest = (0..s.len()).max_by(|&i, &j| s[i].middle().total_cmp(&s[j].middle()))?;
            let weight_of = |j: usize| match j == largest {
                true => Interval::from(1.0),
                false => ((products[j] - products[largest]) * scale).exp(steps),
            };
            return in_range.then(|| (0..s.len()).map(weight_of).collect());
        }
        in_range.then(|| s.iter().map(|s| (*s - max).rounded(steps, 1.0).exp(steps).within(weight)).collect())
    }

    /// What a mean of so many values within these extremes may be, roundings included.
    fn mean_of(&self, values: Interval, count: usize) -> Interval {
        let narrowed = if self.probabilities == F32 {
            0.0
        } else {
            2f64.powi(-(self.probabilities.fraction_bits as i32))
        };
        let slack = 8.0 * (count as f64 + 16.0) * U + narrowed;
        values.widened(values.magnitude() * slack + (count as f64 + 1.0) * f64::from(f32::from_bits(1)))
    }

    /// Results are means of the values that a query sees: within their extremes, but for roundings.
    /// Unlimited where a query, a key or a value is not finite, or a product may not be.
    pub(super) fn hull(&self, inputs: &[Tensor]) -> Vec<Interval> {
        let extents = Self::extents(inputs);
        let Extents { heads, kv_heads, queries, slots, d } = extents;
        let q = floats(Simd::best(), self.q, &inputs[0].packed());
        let cache = Cache::new(self, inputs, Path::Definition);
        let any = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
        let masked = if self.fully_masked == FullyMasked::Nan { f64::NAN } else { 0.0 };
        // For each kv head, up to each slot: the largest key and the extremes of the values.
        let prefixes = |head: usize| {
            let head = cache.head(head);
            let (mut key, mut extremes) =
                (0f64, vec![Interval { low: f64::INFINITY, high: f64::NEG_INFINITY }; d]);
            let (mut keys, mut all) = (vec![key], extremes.clone());
            for (k, v) in head.k.chunks_exact(d).zip(head.v.chunks_exact(d)).take(self.used(slots)) {
                key = larger(key, largest(k));
                keys.push(key);
                for (extreme, &v) in extremes.iter_mut().zip(v) {
                    *extreme = extreme.hull(if v.is_finite() { v.into() } else { any });
                }
                all.extend_from_slice(&extremes);
            }
            (keys, all)
        };
        let prefixes: Vec<_> = (0..kv_heads).into_par_iter().map(prefixes).collect();
        let factor = f64::from(self.factor(d).abs()).max(1.0);
        let row = |row: usize| -> Vec<Interval> {
            let seen = self.seen(row % queries, &extents);
            if seen == 0 {
                return vec![masked.into(); d];
            }
            let (keys, extremes) = &prefixes[row / queries * kv_heads / heads];
            let product = largest(&q[row * d..(row + 1) * d]) * keys[seen] * d as f64 * factor;
            let limit = |values: &Interval| {
                // Written so that NaN is no limit.
                if product <= 1e37 && values.magnitude() <= 1e37 { self.mean_of(*values, seen) } else { any }
            };
            extremes[seen * d..(seen + 1) * d].iter().map(limit).collect()
        };
        (0..heads * queries).into_par_iter().flat_map_iter(row).collect()
    }
}

/// The larger; NaN where one is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The largest magnitude; NaN where one is NaN.
fn largest(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(x.abs())).fold(0.0, larger)
}
