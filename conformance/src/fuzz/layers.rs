//! Operations of layers: their inputs by extents, their parameters, and what is left of them without
//! some slices.
//!
//! | operation | shape of a sample |
//! |---|---|
//! | `math`, `relu`, `silu`, `gelu_tanh`, `gelu_erf`, `quick_gelu`, `swiglu` | `[n]` |
//! | `softmax`, `log_softmax`, `rms_norm`, `layer_norm` | `[rows, n]` |
//! | `attention` | `[kv_heads, heads of each, queries, slots, d]` |
//! | `rope` | `[tokens, heads, head_dim]` |
//! | `kv_scatter` | `[tokens, kv_heads, max_len, head_dim]` |

use super::bits::Random;
use super::functions::{FORMATS, pairs};
use super::product::numbers;
use super::sample::Sample;
use plumbline_reference::format::{BF16, E4M3FN, F16, F32, Format, Policy};
use plumbline_reference::ops::{
    Bits32, GeluErf, GeluTanh, KvScatter, LayerNorm, LogSoftmax, Math, Op, Pairing, QuickGelu, Relu, RmsNorm,
    Rope, Silu, Softmax, Swiglu,
};
use plumbline_reference::{DType, TensorType};
use proptest::prelude::*;
use proptest::sample::select;

/// An input.
struct Input {
    dtype: DType,
    /// Which of the sample's extents it has, in order.
    dimensions: &'static [usize],
    /// Whether the first two of them are one of the input's.
    merged: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Numbers,
    /// Numbers for functions that are about constant almost everywhere.
    Arguments,
    /// Rows of numbers and of -Inf.
    Scores,
    /// Any bits.
    Bits,
    /// Any positions.
    Positions,
    /// Different ones below the extent of that dimension.
    Slots(usize),
}

impl Input {
    fn ty(&self, shape: &[usize]) -> TensorType {
        let mut extents: Vec<_> = self.dimensions.iter().map(|&dimension| shape[dimension]).collect();
        if self.merged {
            let first = extents.remove(0);
            extents[0] *= first;
        }
        TensorType::new(self.dtype, extents)
    }
}

/// The inputs; `None` for other operations.
fn inputs(op: &Op) -> Option<Vec<Input>> {
    let of = |dtype: DType, dimensions, kind| Input { dtype, dimensions, merged: false, kind };
    let numbers = |format: Format, dimensions| of(format.into(), dimensions, Kind::Numbers);
    let positions = |kind| of(DType::U32, &[0], kind);
    let arguments =
        |from: Format, count| (0..count).map(|_| of(from.into(), &[0], Kind::Arguments)).collect();
    let scores = |from: Format| vec![of(from.into(), &[0, 1], Kind::Scores)];
    let row_inputs = |from: Format, vectors: [Option<Format>; 2]| {
        let vectors = vectors.into_iter().flatten().map(|format| numbers(format, &[1]));
        [numbers(from, &[0, 1])].into_iter().chain(vectors).collect()
    };
    match op {
        Op::Math(Math { from, .. })
        | Op::Relu(Relu { from, .. })
        | Op::Silu(Silu { from, .. })
        | Op::GeluTanh(GeluTanh { from, .. })
        | Op::GeluErf(GeluErf { from, .. })
        | Op::QuickGelu(QuickGelu { from, .. }) => Some(arguments(*from, 1)),
        Op::Swiglu(Swiglu { from, .. }) => Some(arguments(*from, 2)),
        Op::Softmax(Softmax { from, .. }) | Op::LogSoftmax(LogSoftmax { from, .. }) => Some(scores(*from)),
        Op::Attention(op) => {
            let q = Input { merged: true, ..numbers(op.q, &[0, 1, 2, 4]) };
            Some(vec![q, numbers(op.kv, &[0, 3, 4]), numbers(op.kv, &[0, 3, 4])])
        }
        Op::RmsNorm(op) => Some(row_inputs(op.from, [op.weight, None])),
        Op::LayerNorm(op) => Some(row_inputs(op.from, [op.weight, op.bias])),
        Op::Rope(op) => Some(vec![numbers(op.from, &[0, 1, 2]), positions(Kind::Positions)]),
        Op::KvScatter(op) => {
            let bits = |dimensions| of(op.dtype, dimensions, Kind::Bits);
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

/// 0, 1e-6, 1e-5 and 1.
const EPS: [u32; 4] = [0, 0x3586_37bd, 0x3727_c5ac, 0x3f80_0000];

/// Formats that a vector beside x may have, and none.
fn vectors(from: Format) -> impl Iterator<Item = Option<Format>> + Clone {
    let other = (from != F32).then_some(Some(F32));
    [None, Some(from)].into_iter().chain(other)
}

/// Formats of x, weight and result, and the other parameters of a norm.
fn norms() -> impl Iterator<Item = (Format, Option<Format>, Format, Bits32, bool)> {
    let weights = pairs().flat_map(|(from, to)| vectors(from).map(move |weight| (from, weight, to)));
    weights.flat_map(|(from, weight, to)| {
        EPS.into_iter().flat_map(move |eps| {
            [false, true].map(|compensated| (from, weight, to, Bits32(f32::from_bits(eps)), compensated))
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
        vectors(from).map(move |bias| LayerNorm { from, weight, bias, to, eps, compensated }.into())
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
        Op::Attention(op) => {
            let used = op.length.unwrap_or(0);
            let slots = prop_oneof![8 => 0..=9usize, 4 => select(&[15usize, 16, 17, 31, 32, 33, 65][..])];
            let d = prop_oneof![8 => 1..=9usize, 2 => select(&[31usize, 32, 64, 80, 128][..])];
            let heads = || prop_oneof![1 => Just(0usize), 20 => 1..=3usize];
            (heads(), heads(), few(), slots, d)
                .prop_map(move |(kv_heads, of_each, queries, slots, d)| {
                    vec![kv_heads, of_each, queries, used + slots, d]
                })
                .boxed()
        }
        Op::RmsNorm(_) | Op::LayerNorm(_) | Op::Softmax(_) | Op::LogSoftmax(_) => {
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
        Op::KvScatter(_) => {
            let dim = prop_oneof![8 => 0..=9usize, 2 => select(&[64usize, 80, 128][..])];
            (few(), few(), 0..=20usize, dim)
                .prop_map(|(tokens, heads, free, dim)| vec![tokens, heads, tokens + free, dim])
                .boxed()
        }
        // Functions of elements.
        _ => super::shape::lengths().prop_map(|n| vec![n]).boxed(),
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
            (Kind::Arguments, Some(format)) => arguments(format, count, &mut random),
            (Kind::Scores, Some(format)) => scores(format, [shape[0], shape[1]], &mut random),
            (Kind::Slots(dimension), _) => slots(count, shape[dimension], &mut random),
            (Kind::Positions, _) => (0..count).map(|_| position(&mut random)).collect(),
            _ => (0..count).map(|_| random.word() & input.dtype.code_mask()).collect(),
        }
    });
    codes.collect()
}

/// Numbers; half of the time within so much of 0 that exponentials of them are neither 0 nor
/// infinite, or only just.
fn arguments(format: Format, count: usize, random: &mut Random) -> Vec<u64> {
    let Some(most) = random.pick(&[None, None, None, Some(2.0), Some(16.0), Some(110.0)]).flatten() else {
        return numbers(format, count, random);
    };
    let argument = |_| {
        let within_1 = random.word() as i64 as f64 / 2f64.powi(63);
        format.encode((most * within_1).into(), &Policy::IEEE, 0)
    };
    (0..count).map(argument).collect()
}

/// Rows of numbers, some of which begin with -Inf, have it anywhere or have nothing else.
fn scores(format: Format, [rows, n]: [usize; 2], random: &mut Random) -> Vec<u64> {
    let mut codes = numbers(format, rows * n, random);
    let masked = format.encode(f64::NEG_INFINITY.into(), &Policy::IEEE, 0);
    for row in codes.chunks_exact_mut(n.max(1)) {
        match random.below(8) {
            0 => row.fill(masked),
            1 => row[..random.below(n)].fill(masked),
            2 => row.iter_mut().filter(|_| random.below(2) == 0).for_each(|code| *code = masked),
            _ => {}
        }
    }
    codes
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
    use super::super::functions::{log_softmaxes, maths, simple_attentions, softmaxes, swiglus};
    use super::*;
    use plumbline_reference::ops::Attention;

    #[test]
    fn parameters_are_drawn_once_each_and_independently() {
        for all in [rms_norms(), layer_norms()] {
            assert!(all.iter().enumerate().all(|(i, op)| !all[..i].contains(op)));
        }
        let formats = |weight, bias| {
            layer_norms().iter().any(
                |op| matches!(op, Op::LayerNorm(op) if (op.from, op.weight, op.bias) == (BF16, weight, bias)),
            )
        };
        assert!(formats(None, Some(BF16)) && formats(Some(BF16), Some(F32)) && formats(Some(F32), None));
    }

    #[test]
    fn heads_go_with_their_keys_and_slots_in_use_stay() {
        // Two kv heads, two heads of each, one query, two slots, one element.
        let op: Op = Attention { length: Some(1), ..Attention::new(F32, F32, F32) }.into();
        let codes = vec![vec![1, 2, 3, 4], vec![10, 11, 20, 21], vec![30, 31, 40, 41]];
        let sample = Sample { op, shape: vec![2, 2, 1, 2, 1], codes };
        assert_eq!(types(&sample.op, &sample.shape).unwrap()[0].shape, [4, 1, 1]);
        let last = keep(&sample, 0, |head| head == 1).unwrap();
        assert_eq!(last.codes, [vec![3, 4], vec![20, 21], vec![40, 41]]);
        let first_of_each = keep(&sample, 1, |head| head == 0).unwrap();
        assert_eq!(first_of_each.codes[0], [1, 3]);
        let one_slot = keep(&sample, 3, |slot| slot == 1).unwrap();
        assert_eq!(one_slot.codes[1..], [vec![11, 21], vec![31, 41]]);
        assert!([last, first_of_each, one_slot].iter().all(Sample::fits));
        let longer =
            Sample { op: Attention { length: Some(3), ..Attention::new(F32, F32, F32) }.into(), ..sample };
        assert!(!longer.fits());
    }

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

    /// How many of 200 fillings have something.
    fn count(op: &Op, shape: &[usize], has: impl Fn(&[Vec<f32>]) -> bool) -> usize {
        let number = |code: &u64| f32::from_bits(*code as u32);
        let all = |codes: Vec<Vec<u64>>| -> Vec<Vec<f32>> {
            codes.iter().map(|codes| codes.iter().map(number).collect()).collect()
        };
        (0..200).filter(|&seed| has(&all(fill(op, shape, seed)))).count()
    }

    #[test]
    fn inputs_have_what_functions_go_wrong_at() {
        fn is_masked(x: &f32) -> bool {
            *x == f32::NEG_INFINITY
        }
        let row = |has: fn(&[f32]) -> bool| {
            let op: Op = Softmax::new(F32, F32).into();
            count(&op, &[3, 100], |inputs| inputs[0].chunks(100).any(has))
        };
        assert!(row(|row| row.iter().all(is_masked)) > 10);
        let leading = row(|row| row[..64].iter().all(is_masked) && row[64..].iter().any(|x| x.is_finite()));
        assert!(leading > 3);
        assert!(row(|row| row.iter().any(|x| x.is_nan())) > 3);
        assert!(row(|row| row.iter().all(|x| x.is_finite() && x.abs() < 40.0)) > 10);

        let element = |has: fn(f32) -> bool| {
            let op: Op = Swiglu { from: F32, to: F32 }.into();
            count(&op, &[200], |inputs| inputs.iter().any(|input| input.iter().any(|&x| has(x))))
        };
        assert!(element(f32::is_nan) > 0 && element(|x| x == f32::NEG_INFINITY) > 0);
        assert!(element(|x| (-14.0..-5.0).contains(&x)) > 3);
        assert!(element(|x| (-103.0..-88.0).contains(&x)) > 0);
        assert!(element(|x| x.is_finite() && x.abs() > 1e6) > 3);
    }

    #[test]
    fn every_shape_fits_and_is_filled() {
        let runner = &mut proptest::test_runner::TestRunner::deterministic();
        let of_functions = [maths(), swiglus(), softmaxes(), log_softmaxes(), simple_attentions()].concat();
        let of_layers = [rms_norms(), layer_norms(), ropes(), kv_scatters()].concat();
        for op in [of_functions, of_layers].concat() {
            let shape = shapes(&op).new_tree(runner).unwrap().current();
            let codes = fill(&op, &shape, 1);
            let sample = Sample { op, shape, codes };
            assert!(sample.fits(), "{sample:?}");
        }
    }
}
