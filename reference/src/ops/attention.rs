//! `attention`: `y = softmax(scale * q k^T) v`, head by head.
//!
//! - `q` is `[heads, queries, d]`, `k` and `v` are `[kv_heads, slots, d]`, `y` is as `q`; d from 1
//!   to 256. `heads` is a multiple of `kv_heads`; head `h` reads kv head
//!   `h * kv_heads / heads` (grouped queries). q, the cache (k and v) and y are f32, f16 or bf16
//!   each. Decoding is a call with few queries.
//! - `length`: only the first so many slots of the cache are in use; others may hold anything, NaN
//!   included, and are not read.
//! - `causal`: query `i` sees slot `j <= i + offset`, offset 0 where the alignment is `top_left` and
//!   `length - queries` where it is `bottom_right`. For 2 queries of 5 slots these are rows
//!   `10000, 11000` and `11110, 11111`.
//! - `scale`: f32 bits; left out: `1 / sqrt(d)`, to the nearest f32.
//! - A query that sees nothing is `fully_masked`: zeros or NaN. A NaN that it sees makes its
//!   results NaN.
//!
//! Canonical, in f32, for a query:
//! 1. `s[j] = scale * sum_c q[c] * k[j][c]`: c ascending from +0, each step an fma, then one
//!    product.
//! 2. `two_pass`: the largest s of all it sees; `e = exp(s - max)` by [`math::exp`]; the sum of all
//!    e in the order of 256 lanes (element `j` to lane `j mod 256`, then halves); and for each c
//!    `acc = fma(e', v[j][c], acc)`, j ascending from +0.
//!    `online: T`: tile after tile of T slots. The largest of the tile and all before it, `new`;
//!    `f = exp(old - new)`; e of the tile; `sum = fma(sum, f, its sum in lanes)`,
//!    `acc = acc * f` and then as above. A tile in which all is -Inf, when all before was, is
//!    passed over. T is from 1 to 256.
//! 3. `e'` is e rounded to the format `probabilities`, which the sum is not.
//! 4. `y = acc / sum`, one rounding to the output's format.
//!
//! Sums overflow where f32 does: of values near the largest, the result may be infinite though their
//! mean is not.
//!
//! A bound holds both ways, any order of sums, and rescaling as often as every 16 slots. It grows with
//! the number of slots and the size of the products, up to the extremes of the values.
//!
//! Errors name the input or parameter: heads that do not divide, d beyond 256, a length beyond the
//! slots.
//!
//! Source: Vaswani et al., "Attention is all you need" (2017); grouped queries: Ainslie et al.,
//! "GQA" (2023); online softmax: Milakov, Gimelshein, "Online normalizer calculation for softmax"
//! (2018). Both alignments are in use: <https://github.com/NVIDIA/cutlass/issues/2336>.

mod bound;

use super::activation::{check_format, floats, rounded};
use super::softmax::{exponentials, larger};
use super::{Bits32, FullyMasked, Inputs, Operation, SignatureError, row};
use crate::fast::{Simd, add_weighted, scores};
use crate::format::{F32, Format, Policy};
use crate::interval::{Interval, Steps};
use crate::{Path, Tensor, TensorError, TensorType, math};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Weighted means of values by the softmax of products of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Format of the queries.
    pub q: Format,
    /// Format of keys and values.
    pub kv: Format,
    /// Format of the result.
    pub out: Format,
    /// Factor of the products; left out: `1 / sqrt(d)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Bits32>,
    /// Which slots a query sees.
    #[serde(default)]
    pub causal: Alignment,
    /// Slots in use; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// The order of the canonical softmax.
    #[serde(default)]
    pub softmax: SoftmaxOrder,
    /// The format that exponentials are rounded to before they are multiplied with values.
    #[serde(default = "f32_format")]
    pub probabilities: Format,
    /// The result of a query that sees nothing.
    #[serde(default)]
    pub fully_masked: FullyMasked,
}

fn f32_format() -> Format {
    F32
}

/// How a causal mask lies on a rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// No mask.
    #[default]
    None,
    /// Query `i` sees slots up to `i`.
    TopLeft,
    /// The last query sees all slots in use.
    BottomRight,
    /// Query `i` sees slots up to `i` plus this.
    Offset(i64),
}

/// How maximum and sum are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SoftmaxOrder {
    /// First the largest, then the sum.
    #[default]
    TwoPass,
    /// Both at once, tiles of so many slots.
    Online(usize),
}

/// Elements of the largest head, and of the largest tile.
const MOST: usize = 256;

/// Extents of a call.
#[derive(Clone, Copy)]
struct Extents {
    heads: usize,
    kv_heads: usize,
    queries: usize,
    slots: usize,
    d: usize,
}

impl Attention {
    /// In f32 throughout.
    #[must_use]
    pub fn new(q: Format, kv: Format, out: Format) -> Self {
        Self {
            q,
            kv,
            out,
            scale: None,
            causal: Alignment::None,
            length: None,
            softmax: SoftmaxOrder::TwoPass,
            probabilities: F32,
            fully_masked: FullyMasked::Zeros,
        }
    }

    fn extents(inputs: &[Tensor]) -> Extents {
        let ([heads, queries, d], [kv_heads, slots, _]) = (shape(&inputs[0]), shape(&inputs[1]));
        Extents { heads, kv_heads, queries, slots, d }
    }

    /// The factor of products.
    #[must_use]
    pub fn factor(&self, d: usize) -> f32 {
        self.scale.map_or_else(|| (1.0 / (d as f64).sqrt()) as f32, |scale| scale.0)
    }

    /// How many slots are in use, of those of the cache.
    #[must_use]
    pub fn used(&self, slots: usize) -> usize {
        self.length.unwrap_or(slots)
    }

    /// How many slots the first query sees beyond itself; `None` without a mask.
    #[must_use]
    pub fn offset(&self, queries: usize, slots: usize) -> Option<i64> {
        match self.causal {
            Alignment::None => None,
            Alignment::TopLeft => Some(0),
            Alignment::BottomRight => Some(self.used(slots) as i64 - queries as i64),
            Alignment::Offset(offset) => Some(offset),
        }
    }

    /// How many slots a query sees: the first ones.
    fn seen(&self, query: usize, extents: &Extents) -> usize {
        let used = self.used(extents.slots);
        match self.offset(extents.queries, extents.slots) {
            None => used,
            Some(offset) => (query as i128 + i128::from(offset) + 1).clamp(0, used as i128) as usize,
        }
    }

    /// e, rounded to the format that it is multiplied in.
    fn weights(&self, e: &[f32]) -> Vec<f32> {
        if self.probabilities == F32 {
            return e.to_vec();
        }
        let format = self.probabilities;
        e.iter()
            .map(|&e| format.to_f64(format.encode(super::arithmetic(e), &Policy::IEEE, 0)) as f32)
            .collect()
    }

    /// The results of a query in f32.
    fn query(&self, q: &[f32], head: &Head<'_>, seen: usize, path: Path) -> Vec<f32> {
        let d = q.len();
        let factor = self.factor(d);
        let s: Vec<_> = head.products(q, seen, path).into_iter().map(|product| product * factor).collect();
        let tile = match self.softmax {
            SoftmaxOrder::TwoPass => seen.max(1),
            SoftmaxOrder::Online(tile) => tile,
        };
        let (mut max, mut sum, mut acc) = (f32::NEG_INFINITY, 0f32, vec![0f32; d]);
        for (i, s) in s.chunks(tile).enumerate() {
            let new = s.iter().copied().fold(max, larger);
            if new == f32::NEG_INFINITY {
                continue;
            }
            let e = exponentials(s, new, path);
            if i == 0 {
                sum = row::sum(&e);
            } else {
                let factor = math::exp(max - new);
                sum = sum.mul_add(factor, row::sum(&e));
                acc.iter_mut().for_each(|acc| *acc *= factor);
            }
            head.add(&self.weights(&e), i * tile, &mut acc, path);
            max = new;
        }
        if max == f32::NEG_INFINITY {
            let masked = if self.fully_masked == FullyMasked::Nan { f32::NAN } else { 0.0 };
            return vec![masked; d];
        }
        acc.iter().map(|acc| acc / sum).collect()
    }
}

fn shape(tensor: &Tensor) -> [usize; 3] {
    tensor.shape().try_into().expect("the signature has been checked")
}

/// Keys and values of a kv head, as f32.
struct Head<'a> {
    /// `[slots, d]`.
    k: &'a [f32],
    /// `[d, slots]`, for the fast path.
    transposed: &'a [f32],
    /// `[slots, d]`.
    v: &'a [f32],
    slots: usize,
}

impl Head<'_> {
    /// The products of a query with the first keys.
    fn products(&self, q: &[f32], seen: usize, path: Path) -> Vec<f32> {
        if let Path::Simd(simd) = path {
            let mut s = vec![0.0; seen];
            scores(simd, q, self.transposed, self.slots, &mut s);
            return s;
        }
        let keys = self.k.chunks_exact(q.len()).take(seen);
        keys.map(|k| q.iter().zip(k).fold(0.0, |sum, (q, k)| q.mul_add(*k, sum))).collect()
    }

    /// Adds values from slot `first` on, each times its weight.
    fn add(&self, weights: &[f32], first: usize, acc: &mut [f32], path: Path) {
        let v = &self.v[first * acc.len()..];
        if let Path::Simd(simd) = path {
            add_weighted(simd, weights, v, acc);
            return;
        }
        for (weight, v) in weights.iter().zip(v.chunks_exact(acc.len())) {
            acc.iter_mut().zip(v).for_each(|(acc, v)| *acc = weight.mul_add(*v, *acc));
        }
    }
}

/// All keys and values as f32.
struct Cache {
    k: Vec<f32>,
    transposed: Vec<f32>,
    v: Vec<f32>,
    slots: usize,
    d: usize,
}

impl Cache {
    fn new(op: &Attention, inputs: &[Tensor], path: Path) -> Self {
        let Extents { kv_heads, slots, d, .. } = Attention::extents(inputs);
        let [k, v] = [1, 2].map(|input| floats(Simd::best(), op.kv, &inputs[input].packed()));
        let mut transposed = Vec::new();
        if matches!(path, Path::Simd(_)) {
            transposed = vec![0.0; k.len()];
            for head in 0..kv_heads {
                let (k, transposed) = (&k[head * slots * d..], &mut transposed[head * slots * d..]);
                for j in 0..slots {
                    for c in 0..d {
                        transposed[c * slots + j] = k[j * d + c];
                    }
                }
            }
        }
        Self { k, transposed, v, slots, d }
    }

    fn head(&self, head: usize) -> Head<'_> {
        let range = head * self.slots * self.d..(head + 1) * self.slots * self.d;
        let transposed = self.transposed.get(range.clone()).unwrap_or_default();
        Head { k: &self.k[range.clone()], transposed, v: &self.v[range], slots: self.slots }
    }
}

impl Operation for Attention {
    const INPUTS: &'static [&'static str] = &["q", "k", "v"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(3)?;
        let formats =
            [("q", self.q), ("kv", self.kv), ("out", self.out), ("probabilities", self.probabilities)];
        for (field, format) in formats {
            check_format(inputs, field, format)?;
        }
        let (q, k) = (inputs.dtype(0, self.q)?, inputs.dtype(1, self.kv)?);
        let &[heads, queries, d] = q else {
            return Err(inputs.shape_error(0, "[heads, queries, d]".to_owned()));
        };
        if !(1..=MOST).contains(&d) {
            return Err(inputs.shape_error(0, format!("[heads, queries, d] with d from 1 to {MOST}")));
        }
        let &[kv_heads, slots, _] = k else {
            return Err(inputs.shape_error(1, format!("[kv_heads, slots, {d}]")));
        };
        if k[2] != d {
            return Err(inputs.shape_error(1, format!("[{kv_heads}, {slots}, {d}], d as in `q`")));
        }
        if kv_heads == 0 && heads > 0 || kv_heads > 0 && heads % kv_heads != 0 {
            return Err(
                inputs.shape_error(1, format!("[kv_heads, slots, d] with kv_heads a divisor of {heads}"))
            );
        }
        inputs.exactly(2, self.kv, &[k])?;
        if self.used(slots) > slots {
            let why = format!("is {}, the cache has {slots} slots", self.used(slots));
            return Err(inputs.parameter_error("length", why));
        }
        if matches!(self.softmax, SoftmaxOrder::Online(tile) if !(1..=MOST).contains(&tile)) {
            return Err(inputs.parameter_error("softmax", format!("a tile has from 1 to {MOST} slots")));
        }
        Ok(vec![TensorType::new(self.out, [heads, queries, d])])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let extents = Self::extents(inputs);
        let Extents { heads, kv_heads, queries, d, .. } = extents;
        let ty = TensorType::new(self.out, [heads, queries, d]);
        let q = floats(Simd::best(), self.q, &inputs[0].packed());
        let cache = Cache::new(self, inputs, path);
        let codes = |row: usize| {
            let (head, query) = (row / queries, row % queries);
            let y = self.query(
                &q[row * d..(row + 1) * d],
                &cache.head(head * kv_heads / heads),
                self.seen(query, &extents),
                path,
            );
            y.into_iter().map(|y| rounded(self.out, y)).collect::<Vec<_>>()
        };
        let rows = heads * queries;
        let codes: Vec<_> = match path {
            Path::Definition => (0..rows).flat_map(codes).collect(),
            Path::Parallel | Path::Simd(_) => (0..rows).into_par_iter().flat_map_iter(codes).collect(),
        };
        Ok(vec![Tensor::from_codes(ty, &codes)?])
    }

    fn has_fast_path(&self) -> bool {
        true
    }

    fn has_enclosure(&self) -> bool {
        true
    }

    fn enclosure(
        &self,
        inputs: &[Tensor],
        _: usize,
        positions: &[usize],
        steps: Steps,
    ) -> Option<Vec<Interval>> {
        Some(self.bounds(inputs, positions, steps))
    }

    fn terms(&self, inputs: &[Tensor]) -> usize {
        2 * self.used(Self::extents(inputs).slots)
    }

    fn limits(&self, inputs: &[Tensor], _: usize) -> Option<Vec<Interval>> {
        Some(self.hull(inputs))
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        // Its query, and the first keys and values at its place.
        let Extents { heads, kv_heads, queries, slots, d } = Self::extents(inputs);
        let (row, c) = (index / d, index % d);
        let first = row / queries * kv_heads / heads * slots * d;
        let keys = (0..slots.min(2)).flat_map(|j| [(1, first + j * d + c), (2, first + j * d + c)]);
        std::iter::once((0, index)).chain(keys).collect()
    }
}
