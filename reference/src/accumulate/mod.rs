//! Orders of accumulation: how the products of a dot product become one number.
//!
//! An [`Accumulation`] is data, so a case file can name one and a search can enumerate many.
//! Models compose: split-K of promoted chains of tensor-core blocks is a [`Sum`] of sums of
//! a chain. [`Accumulation::dot`] is the definition: one dot product, written to be read.

mod block;
mod instruction;
mod written;

pub use block::{Block, BlockOutput, Term};
pub use instruction::{Instruction, Shape};

use crate::format::{F32, Format, Policy};
use crate::ops::arithmetic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An order of accumulation. The result is an f32, or an f16 where the last step says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Accumulation {
    /// Fused multiply-adds of f32 in ascending k, from +0.
    Fma,
    /// Products rounded to f32 and added in ascending k, from the first.
    MultiplyAdd,
    /// Products rounded to f32; each half of them summed alike, then the two sums. The
    /// first half of n is ceil(n / 2) long.
    Pairwise,
    /// Blocks of a tensor core in ascending k, each on top of the result before, from +0.
    Chain(Block),
    /// The same where K is cut into tiles of which the first one holds the rest, `K % tile`
    /// products, so that its last block may be a short one: CUTLASS kernels for ragged K.
    ResidueFirst {
        /// Products of a tile.
        tile: usize,
        /// The block.
        block: Block,
    },
    /// FP8 `mma.sync` of Hopper, which has no FP8 unit: of every 32 products those with
    /// k mod 4 in {0, 1} make one block from +0, those in {2, 3} a second one on top, and
    /// that result is added to the accumulator in f32, to nearest even. The block's own number
    /// of products does not count.
    HalvesThenAdd(Block),
    /// Sums of parts, added.
    Sum(Box<Sum>),
}

/// Sums of parts, added.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Which products belong to which part.
    pub split: Split,
    /// How each part is summed.
    pub each: Accumulation,
    /// In which order parts are added, in f32.
    #[serde(default)]
    pub reduce: Reduce,
    /// Format that the sums of parts are rounded to before they are added.
    #[serde(default = "f32_format")]
    pub partials: Format,
    /// Format that each addition's result is rounded to, and the first part before any.
    #[serde(default = "f32_format")]
    pub sums: Format,
}

impl Sum {
    /// Parts of which each is summed alike, added in ascending order and in f32.
    #[must_use]
    pub fn new(split: Split, each: Accumulation) -> Self {
        Self { split, each, reduce: Reduce::Ascending, partials: F32, sums: F32 }
    }

    /// A part's sum as it is added: an f32.
    #[must_use]
    pub fn partial(&self, sum: u64) -> u64 {
        convert(self.partials, F32, convert(self.each.format(), self.partials, sum))
    }

    /// The sum of two numbers in f32, rounded to the format of sums.
    #[must_use]
    pub fn add(&self, a: u64, b: u64) -> u64 {
        let sum = f32::from_bits(a as u32) + f32::from_bits(b as u32);
        self.rounded(bits(sum))
    }

    /// An f32 rounded to the format of sums, as an f32 again.
    #[must_use]
    pub fn rounded(&self, code: u64) -> u64 {
        convert(self.sums, F32, convert(F32, self.sums, code))
    }
}

impl From<Sum> for Accumulation {
    fn from(sum: Sum) -> Self {
        Self::Sum(Box::new(sum))
    }
}

fn f32_format() -> Format {
    F32
}

/// Which products belong to which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Split {
    /// Contiguous chunks of `ceil(ceil(K / granule) / parts) * granule`; the last ones may
    /// be shorter or missing. Split-K.
    Contiguous {
        /// How many.
        parts: usize,
        /// What their length is a multiple of.
        granule: usize,
    },
    /// A chunk every so many products. Promotion.
    Every(usize),
    /// Runs of products are dealt to parts in turn: k belongs to part `k / run % parts`.
    /// Lanes of a warp, slices of a tile.
    Interleaved {
        /// How many.
        parts: usize,
        /// Products of a run.
        run: usize,
    },
}

/// In which order the sums of parts are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// `((p0 + p1) + p2) + ...`.
    #[default]
    Ascending,
    /// The last first.
    Descending,
    /// Neighbours: `(p0 + p1) + (p2 + p3)`; an odd one is taken over as it is.
    Neighbours,
    /// Halves: `p[i] + p[i + n / 2]` for n a power of two, until one is left; parts are
    /// filled up with +0. What `__shfl_down_sync` and `__shfl_xor_sync` do.
    Halves,
    /// Into so many buffers, part z into buffer `z % buffers`, all but the last part; then the
    /// last part and the buffers in ascending order. Split-K within one kernel.
    Buffers(usize),
}

impl Split {
    /// The part of product `k` of `len`.
    #[must_use]
    pub fn part(self, k: usize, len: usize) -> usize {
        match self {
            Self::Contiguous { parts, granule } => k / (len.div_ceil(granule).div_ceil(parts) * granule),
            Self::Every(n) => k / n,
            Self::Interleaved { parts, run } => k / run % parts,
        }
    }

    /// How many parts `len` products make.
    #[must_use]
    pub fn parts(self, len: usize) -> usize {
        match self {
            Self::Contiguous { parts, .. } | Self::Interleaved { parts, .. } => parts,
            Self::Every(n) => len.div_ceil(n.max(1)).max(1),
        }
    }

    /// How many of the parts of `len` products are not empty.
    #[must_use]
    pub fn filled(self, len: usize) -> usize {
        match self {
            Self::Contiguous { parts, granule } => {
                len.div_ceil((len.div_ceil(granule).div_ceil(parts) * granule).max(1))
            }
            Self::Every(n) => len.div_ceil(n),
            Self::Interleaved { parts, run } => len.div_ceil(run).min(parts),
        }
    }

    /// The products of each part, ascending. Parts may be empty.
    #[must_use]
    pub fn of(self, len: usize) -> Vec<Vec<usize>> {
        let mut parts = vec![Vec::new(); self.parts(len)];
        for k in 0..len {
            parts[self.part(k, len)].push(k);
        }
        parts
    }

    fn check(self) -> Result<(), String> {
        let numbers = match self {
            Self::Contiguous { parts, granule } => [parts, granule],
            Self::Every(n) => [1, n],
            Self::Interleaved { parts, run } => [parts, run],
        };
        if !numbers.iter().all(|number| (1..=1 << 20).contains(number)) {
            return Err("parts, runs and granules are from 1 to 2^20".to_owned());
        }
        Ok(())
    }
}

/// Parts of a sum, those within parts included.
const MOST_PARTS: usize = 1 << 14;

impl Accumulation {
    /// The format of the result.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::Chain(block) => block.accumulator(),
            Self::ResidueFirst { block, .. } => block.accumulator(),
            Self::Fma | Self::MultiplyAdd | Self::Pairwise | Self::HalvesThenAdd(_) | Self::Sum(_) => F32,
        }
    }

    /// Parts within parts, as far as their number does not depend on K.
    fn parts(&self) -> usize {
        let Self::Sum(sum) = self else { return 1 };
        let own = match sum.split {
            Split::Contiguous { parts, .. } | Split::Interleaved { parts, .. } => parts,
            Split::Every(_) => 1,
        };
        own.saturating_mul(sum.each.parts())
    }

    /// Requires parameters that have a meaning.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Fma | Self::MultiplyAdd | Self::Pairwise => Ok(()),
            Self::Chain(block) | Self::HalvesThenAdd(block) | Self::ResidueFirst { block, .. } => {
                let bits = match block.output {
                    BlockOutput::Truncate(bits) => bits,
                    BlockOutput::NearestF32 | BlockOutput::NearestF16 => 23,
                };
                let fits = (1..=256).contains(&block.products)
                    && (1..=40).contains(&block.fraction_bits)
                    && (-300..=300).contains(&block.min_exponent)
                    && (1..=23).contains(&bits);
                let fits = fits && !matches!(self, Self::ResidueFirst { tile: 0, .. });
                if matches!(self, Self::HalvesThenAdd(_)) && block.accumulator() != F32 {
                    return Err("what is added in f32 are blocks of f32".to_owned());
                }
                let why = "a block has 1 to 256 products, 1 to 40 fraction bits, an e0 from -300 to 300 \
                           and keeps 1 to 23 fraction bits; a tile has products";
                if fits { Ok(()) } else { Err(why.to_owned()) }
            }
            Self::Sum(sum) => {
                if sum.reduce == Reduce::Buffers(0) {
                    return Err("there is at least one buffer".to_owned());
                }
                if self.parts() > MOST_PARTS {
                    return Err("sums within sums have at most 2^14 parts in all".to_owned());
                }
                sum.split.check().and_then(|()| sum.each.check())
            }
        }
    }

    /// One dot product: the code of the result in [`Accumulation::format`]. `a` and `b` are
    /// equally long.
    #[must_use]
    pub fn dot(&self, a: &[Operand], b: &[Operand]) -> u64 {
        let f32_products = || a.iter().zip(b).map(|(a, b)| a.f32 * b.f32);
        match self {
            Self::Fma => bits(a.iter().zip(b).fold(0.0, |sum, (a, b)| a.f32.mul_add(b.f32, sum))),
            Self::MultiplyAdd => bits(f32_products().reduce(|sum, product| sum + product).unwrap_or(0.0)),
            Self::Pairwise => bits(pairwise(&f32_products().collect::<Vec<_>>())),
            Self::Chain(block) => chain(block, a, b, 0),
            Self::ResidueFirst { tile, block } => {
                let ((a, more_a), (b, more_b)) = (a.split_at(a.len() % tile), b.split_at(b.len() % tile));
                let of_tile = |c, (a, b)| chain(block, a, b, c);
                more_a.chunks(*tile).zip(more_b.chunks(*tile)).fold(chain(block, a, b, 0), of_tile)
            }
            Self::HalvesThenAdd(block) => {
                let sum = a
                    .chunks(32)
                    .zip(b.chunks(32))
                    .fold(0.0, |sum, (a, b)| sum + f32::from_bits(halves(block, a, b) as u32));
                bits(sum)
            }
            Self::Sum(sum) => {
                let of_part = |part: Vec<usize>| {
                    let pick = |all: &[Operand]| part.iter().map(|&k| all[k]).collect::<Vec<_>>();
                    sum.partial(sum.each.dot(&pick(a), &pick(b)))
                };
                let mut parts: Vec<_> = sum.split.of(a.len()).into_iter().map(of_part).collect();
                if let Some(first) = parts.first_mut() {
                    *first = sum.rounded(*first);
                }
                sum.reduce.add(parts, |a, b| sum.add(a, b))
            }
        }
    }
}

impl Accumulation {
    /// One matrix instruction: the products of one dot product on top of `c`.
    #[must_use]
    pub(crate) fn instruction(&self, a: &[Operand], b: &[Operand], c: u64) -> u64 {
        match self {
            Self::Chain(block) => block.fuse(terms(a, b), c),
            Self::HalvesThenAdd(block) => {
                bits(f32::from_bits(halves(block, a, b) as u32) + f32::from_bits(c as u32))
            }
            _ => unreachable!("no instruction accumulates in another way"),
        }
    }
}

impl Reduce {
    /// All parts as one, by an addition of two.
    pub fn add<T: Clone + Default>(self, mut parts: Vec<T>, add: impl Fn(T, T) -> T) -> T {
        match self {
            Self::Buffers(count) => {
                let Some(last) = parts.pop() else { return T::default() };
                let mut buffers: Vec<T> = Vec::new();
                for (z, part) in parts.into_iter().enumerate() {
                    match buffers.get_mut(z % count) {
                        Some(buffer) => *buffer = add(buffer.clone(), part),
                        None => buffers.push(part),
                    }
                }
                buffers.into_iter().fold(last, add)
            }
            Self::Ascending => parts.into_iter().reduce(add).unwrap_or_default(),
            Self::Descending => parts.into_iter().rev().reduce(add).unwrap_or_default(),
            Self::Neighbours => {
                while parts.len() > 1 {
                    let pairs = parts.chunks(2).map(|pair| match pair {
                        [a, b] => add(a.clone(), b.clone()),
                        alone => alone[0].clone(),
                    });
                    parts = pairs.collect();
                }
                parts.pop().unwrap_or_default()
            }
            Self::Halves => {
                parts.resize(parts.len().next_power_of_two(), T::default());
                while parts.len() > 1 {
                    let upper = parts.split_off(parts.len() / 2);
                    parts = parts.into_iter().zip(upper).map(|(a, b)| add(a, b)).collect();
                }
                parts.pop().unwrap_or_default()
            }
        }
    }
}

/// An element of an operand, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// As a term of a block.
    pub term: Term,
    /// As an f32.
    pub f32: f32,
}

impl Operand {
    /// The element of a code; of any format but f64.
    #[must_use]
    pub fn of(format: Format, code: u64) -> Self {
        let term = Term::of(format, code);
        let bits = if format == F32 { code } else { F32.encode(term.value, &Policy::IEEE, 0) };
        Self { term, f32: f32::from_bits(bits as u32) }
    }
}

fn terms<'a>(a: &'a [Operand], b: &'a [Operand]) -> impl Iterator<Item = (Term, Term)> + Clone + 'a {
    a.iter().zip(b).map(|(a, b)| (a.term, b.term))
}

/// Blocks in ascending k on top of `c`.
fn chain(block: &Block, a: &[Operand], b: &[Operand], c: u64) -> u64 {
    let length = block.products as usize;
    a.chunks(length).zip(b.chunks(length)).fold(c, |c, (a, b)| block.fuse(terms(a, b), c))
}

/// The result of one FP8 `mma.sync` of Hopper before it is added to the accumulator.
fn halves(block: &Block, a: &[Operand], b: &[Operand]) -> u64 {
    let half = |upper: bool| {
        terms(a, b).enumerate().filter(move |(k, _)| (k % 4 >= 2) == upper).map(|(_, term)| term)
    };
    block.fuse(half(true), block.fuse(half(false), 0))
}

fn pairwise(products: &[f32]) -> f32 {
    match products {
        [] => 0.0,
        [product] => *product,
        _ => {
            let (first, second) = products.split_at(products.len().div_ceil(2));
            pairwise(first) + pairwise(second)
        }
    }
}

/// The bits of an f32 sum, NaN canonical.
fn bits(sum: f32) -> u64 {
    F32.encode(arithmetic(sum), &Policy::IEEE, 0)
}

fn convert(from: Format, to: Format, code: u64) -> u64 {
    if from == to { code } else { to.encode(from.decode(code), &Policy::IEEE, 0) }
}

#[cfg(test)]
mod tests {
    use super::Split;

    #[test]
    fn filled_parts_are_those_that_hold_products() {
        let numbers = [1, 2, 3, 7, 16, 64];
        for len in [0, 1, 2, 15, 16, 17, 100] {
            for a in numbers {
                let pairs = numbers.into_iter().flat_map(|b| {
                    [Split::Contiguous { parts: a, granule: b }, Split::Interleaved { parts: a, run: b }]
                });
                for split in pairs.chain([Split::Every(a)]) {
                    let held = split.of(len).iter().filter(|part| !part.is_empty()).count();
                    assert_eq!(split.filled(len), held, "{split:?} of {len}");
                }
            }
        }
    }
}
