//! Operations of layers: their inputs by extents, their parameters, and what is left of them without
//! some slices.
//!
//! | operation | shape of a sample |
//! |---|---|
//! | `rms_norm`, `layer_norm` | `[rows, n]` |
//! | `rope` | `[tokens, heads, head_dim]` |
//! | `kv_scatter` | `[tokens, kv_heads, max_len, head_dim]` |

use super::bits::Random;
use super::product::numbers;
use super::sample::Sample;
use plumbline_reference::format::{BF16, E4M3FN, F16, F32, Format};
use plumbline_reference::ops::{Bits32, KvScatter, LayerNorm, Op, Pairing, RmsNorm, Rope};
use plumbline_reference::{DType, TensorType};
use proptest::prelude::*;
use proptest::sample::select;

/// An input.
struct Input {
    dtype: DType,
    /// Which of the sample's extents it has, in order.
    dimensions: &'static [usize],
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Numbers,
    /// Any bits.
    Bits,
    /// Any positions.
    Positions,
    /// Different ones below the extent of that dimension.
    Slots(usize),
}

impl Input {
    fn ty(&self, shape: &[usize]) -> TensorType {
        let extents = self.dimensions.iter().map(|&dimension| shape[dimension]);
        TensorType::new(self.dtype, extents.collect::<Vec<_>>())
    }
}

/// The inputs; `None` for other operations.
fn inputs(op: &Op) -> Option<Vec<Input>> {
    let numbers = |format: Format, dimensions: &'static [usize]| Input {
        dtype: format.into(),
        dimensions,
        kind: Kind::Numbers,
    };
    let row_inputs = |from: Format, vectors: [Option<Format>; 2]| {
        let vectors = vectors.into_iter().flatten().map(|format| numbers(format, &[1]));
        [numbers(from, &[0, 1])].into_iter().chain(vectors).collect()
    };
    let positions = |kind| Input { dtype: DType::U32, dimensions: &[0], kind };
    match op {
        Op::RmsNorm(op) => Some(row_inputs(op.from, [op.weight, None])),
        Op::LayerNorm(op) => Some(row_inputs(op.from, [op.weight, op.bias])),
        Op::Rope(op) => Some(vec![numbers(op.from, &[0, 1, 2]), positions(Kind::Positions)]),
        Op::KvScatter(op) => {
            let bits = |dimensions| Input { dtype: op.dtype, dimensions, kind: Kind::Bits };
            Some(vec![bits(&[0, 1, 3]), positions(Kind::Slots(2)), bits(&[1, 2, 3])])
        }
        _ => None,
    }
}

/// Whether it is one of these operations.
pub(super) fn is_of_layers(op: &Op) -> bool {
    inputs(op).is_some()
}

/// Types of the inputs; `None` for other operations.
pub(super) fn types(op: &Op, shape: &[usize]) -> Option<Vec<TensorType>> {
    Some(inputs(op)?.iter().map(|input| input.ty(shape)).collect())
}

const FORMATS: [Format; 3] = [F32, F16, BF16];
/// 0, 1e-6, 1e-5 and 1.
const EPS: [u32; 4] = [0, 0x3586_37bd, 0x3727_c5ac, 0x3f80_0000];

/// Formats of x, vector and result, and the other parameters of a norm.
fn norms() -> impl Iterator<Item = (Format, Option<Format>, Format, Bits32, bool)> {
    let formats = FORMATS.into_iter().flat_map(|from| FORMATS.map(|to| (from, to)));
    let vectors =
        formats.flat_map(|(from, to)| [None, Some(from), Some(F32)].map(|vector| (from, vector, to)));
    vectors.flat_map(|(from, vector, to)| {
        EPS.into_iter().flat_map(move |eps| {
            [false, true].map(|compensated| (from, vector, to, Bits32(f32::from_bits(eps)), compensated))
        })
    })
}

pub(super) fn rms_norms() -> Vec<Op> {
    norms()
        .map(|(from, weight, to, eps, compensated)| RmsNorm { from, weight, to, eps, compensated }.into())
        .collect()
}

pub(super) fn layer_norms() -> Vec<Op> {
    let with_bias = norms().flat_map(|(from, weight, to, eps, compensated)| {
        [None, weight].map(|bias| LayerNorm { from, weight, bias, to, eps, compensated }.into())
    });
    with_bias.collect()
}

pub(super) fn ropes() -> Vec<Op> {
    let mut all = Vec::new();
    for pairing in Pairing::ALL {
        for from in FORMATS {
            for to in FORMATS {
                for rotary_dim in [None, Some(0), Some(2), Some(6)] {
                    for inverse in [false, true] {
                        for base in [10_000.0, 1.0, 500_000.0].map(Bits32) {
                            let usual = Rope::new(pairing);
                            all.push(Rope { from, to, rotary_dim, inverse, base, ..usual }.into());
                        }
                    }
                }
            }
        }
    }
    all
}

pub(super) fn kv_scatters() -> Vec<Op> {
    let types = [DType::U8, E4M3FN.into(), F16.into(), BF16.into(), F32.into(), DType::U32];
    types.map(|dtype| KvScatter { dtype }.into()).to_vec()
}

/// Extents at and around those where lanes, warps and blocks of threads end.
pub(super) fn shapes(op: &Op) -> BoxedStrategy<Vec<usize>> {
    let few = || prop_oneof![1 => Just(0usize), 20 => 1..=3usize, 2 => select(&[5usize, 8, 17][..])];
    match op {
        Op::RmsNorm(_) | Op::LayerNorm(_) => {
            let around = select(&[31usize, 32, 33, 255, 256, 257, 511, 512, 513, 1025][..]);
            let n = prop_oneof![1 => Just(0usize), 10 => 1..=9usize, 6 => around, 4 => 1..=600usize];
            (few(), n).prop_map(|(rows, n)| vec![rows, n]).boxed()
        }
        Op::Rope(op) => {
            let least = op.rotary_dim.unwrap_or(0);
            let halves = prop_oneof![10 => 0..=5usize, 2 => select(&[16usize, 32, 64][..])];
            (few(), few(), halves, 0..=1usize)
                .prop_map(move |(tokens, heads, half, odd)| {
                    // All of a head is rotated where nothing else is said, which takes an even one.
                    let odd = if least == 0 { 0 } else { odd };
                    vec![tokens, heads, (2 * half).max(least) + odd]
                })
                .boxed()
        }
        _ => {
            let dim = prop_oneof![8 => 0..=9usize, 2 => select(&[64usize, 80, 128][..])];
            (few(), few(), 0..=20usize, dim)
                .prop_map(|(tokens, heads, free, dim)| vec![tokens, heads, tokens + free, dim])
                .boxed()
        }
    }
}

/// The codes of all inputs.
pub(super) fn fill(op: &Op, shape: &[usize], seed: u64) -> Vec<Vec<u64>> {
    let mut random = Random::new(seed);
    let inputs = inputs(op).unwrap_or_default();
    let codes = inputs.iter().map(|input| {
        let count = input.ty(shape).shape.iter().product();
        match (input.kind, input.dtype.format()) {
            (Kind::Numbers, Some(format)) => numbers(format, count, &mut random),
            (Kind::Slots(dimension), _) => slots(count, shape[dimension], &mut random),
            (Kind::Positions, _) => (0..count).map(|_| position(&mut random)).collect(),
            (Kind::Numbers | Kind::Bits, _) => {
                (0..count).map(|_| random.word() & input.dtype.code_mask()).collect()
            }
        }
    });
    codes.collect()
}

/// Small, large, or at a power of two.
fn position(random: &mut Random) -> u64 {
    let power = 1 << random.below(24);
    match random.below(4) {
        0 => random.below(4) as u64,
        1 => random.below(1 << 21) as u64,
        2 => power - 1,
        _ => power,
    }
}

/// The first of all slots in a random order.
fn slots(count: usize, slots: usize, random: &mut Random) -> Vec<u64> {
    let mut free: Vec<_> = (0..slots as u64).collect();
    (0..count.min(slots)).map(|_| free.swap_remove(random.below(free.len()))).collect()
}

/// The sample with some of one extent's slices, never without any.
pub(super) fn keep(sample: &Sample, dimension: usize, keeps: impl Fn(usize) -> bool) -> Option<Sample> {
    let extent = *sample.shape.get(dimension)?;
    let kept: Vec<_> = (0..extent).filter(|&i| keeps(i)).collect();
    if kept.is_empty() {
        return None;
    }
    let inputs = inputs(&sample.op)?;
    let codes = inputs.iter().zip(&sample.codes).map(|(input, codes)| {
        let codes: Vec<_> = match input.dimensions.iter().position(|&own| own == dimension) {
            None => codes.clone(),
            Some(axis) => {
                let inner: usize =
                    input.dimensions[axis + 1..].iter().map(|&own| sample.shape[own]).product();
                let all = codes.len().checked_div(inner * extent).unwrap_or(0);
                let firsts = (0..all).flat_map(|all| kept.iter().map(move |i| (all * extent + i) * inner));
                firsts.flat_map(|first| codes[first..first + inner].iter().copied()).collect()
            }
        };
        // Slots move with what is left of the cache; one that is left out stays and does not fit.
        let is_moved = input.kind == Kind::Slots(dimension);
        let moved =
            |code: u64| kept.iter().position(|&i| i as u64 == code).map_or(u64::MAX >> 32, |i| i as u64);
        if is_moved { codes.into_iter().map(moved).collect() } else { codes }
    });
    let codes = codes.collect();
    let mut shape = sample.shape.clone();
    shape[dimension] = kept.len();
    Some(Sample { op: sample.op.clone(), shape, codes })
}

/// The sample with other parameters, if its inputs are of the same types.
pub(super) fn with_op(sample: &Sample, op: Op) -> Option<Sample> {
    (types(&op, &sample.shape) == types(&sample.op, &sample.shape)).then(|| Sample { op, ..sample.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_are_left_out_take_their_rows_with_them() {
        // Two tokens, one head of two elements, and a cache of three places.
        let op: Op = KvScatter { dtype: DType::U8 }.into();
        let codes = vec![vec![1, 2, 3, 4], vec![2, 0], vec![10, 11, 12, 13, 14, 15]];
        let sample = Sample { op, shape: vec![2, 1, 3, 2], codes };
        let without_place = keep(&sample, 2, |place| place != 1).unwrap();
        assert_eq!(without_place.shape, [2, 1, 2, 2]);
        assert_eq!(without_place.codes[1..], [vec![1, 0], vec![10, 11, 14, 15]]);
        assert!(without_place.fits());
        assert!(!keep(&sample, 2, |place| place != 0).unwrap().fits());
        let without_token = keep(&sample, 0, |token| token != 0).unwrap();
        assert_eq!(without_token.codes[..2], [vec![3, 4], vec![0]]);
        assert!(keep(&sample, 0, |_| false).is_none());
    }

    #[test]
    fn every_shape_fits_and_is_filled() {
        let runner = &mut proptest::test_runner::TestRunner::deterministic();
        for op in [rms_norms(), layer_norms(), ropes(), kv_scatters()].concat() {
            let shape = shapes(&op).new_tree(runner).unwrap().current();
            let codes = fill(&op, &shape, 1);
            let sample = Sample { op, shape, codes };
            assert!(sample.fits(), "{sample:?}");
        }
    }
}
