//! An order of accumulation, laid out for whole matrices.

use crate::accumulate::{Accumulation, Block, Split, Sum};
use std::ops::Range;

/// An order of accumulation over `k` products, and the order that operands are packed in for
/// it: those of every leaf side by side.
pub(crate) struct Plan {
    pub(super) root: Node,
    /// Which product is packed where; nothing where a block is filled up with zeros.
    pub(super) order: Vec<Option<usize>>,
    /// Whether leaves are blocks, which infinities and NaNs take no part in.
    pub(super) has_blocks: bool,
}

pub(super) enum Node {
    /// Products in ascending order, by their places.
    Leaf(Leaf, Range<usize>),
    /// Sums of parts, added.
    Sum { parts: Vec<Node>, sum: Sum },
}

#[derive(Clone, Copy)]
pub(super) enum Leaf {
    Fma,
    MultiplyAdd,
    Blocks(Blocks),
}

/// A chain of blocks.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) block: Block,
    /// Products of one block.
    pub(super) length: usize,
    /// Two blocks make a result, which is added to the others in f32.
    pub(super) pairs: bool,
}

/// Leaves of one plan: beyond, the partial sums of a tile would take too much memory.
const MAX_LEAVES: usize = 1 << 12;

impl Plan {
    /// `None` where there is no fast path: pairwise sums, and sums of thousands of parts.
    pub(crate) fn new(accumulation: &Accumulation, k: usize) -> Option<Self> {
        if leaves(accumulation, k)? > MAX_LEAVES {
            return None;
        }
        let mut order = Vec::with_capacity(k);
        let mut has_blocks = false;
        let root = node(accumulation, &(0..k).collect::<Vec<_>>(), &mut order, &mut has_blocks)?;
        Some(Self { root, order, has_blocks })
    }

    /// Whether there is a fast path, for some number of products.
    pub(crate) fn exists(accumulation: &Accumulation) -> bool {
        leaves(accumulation, 0).is_some_and(|leaves| leaves <= MAX_LEAVES)
    }
}

/// At most so many leaves.
fn leaves(accumulation: &Accumulation, k: usize) -> Option<usize> {
    match accumulation {
        Accumulation::Pairwise => None,
        Accumulation::Fma
        | Accumulation::MultiplyAdd
        | Accumulation::Chain(_)
        | Accumulation::ResidueFirst { .. }
        | Accumulation::HalvesThenAdd(_) => Some(1),
        Accumulation::Sum(sum) => {
            let longest = match sum.split {
                Split::Every(n) => n.min(k),
                Split::Contiguous { .. } | Split::Interleaved { .. } => k,
            };
            leaves(&sum.each, longest)?.checked_mul(sum.split.parts(k))
        }
    }
}

fn node(
    accumulation: &Accumulation,
    products: &[usize],
    order: &mut Vec<Option<usize>>,
    has_blocks: &mut bool,
) -> Option<Node> {
    let start = order.len();
    let leaf = match accumulation {
        Accumulation::Pairwise => return None,
        Accumulation::Fma => Leaf::Fma,
        Accumulation::MultiplyAdd => Leaf::MultiplyAdd,
        &Accumulation::Chain(block) | &Accumulation::ResidueFirst { block, .. } => {
            Leaf::Blocks(Blocks { block, length: block.products as usize, pairs: false })
        }
        &Accumulation::HalvesThenAdd(block) => Leaf::Blocks(Blocks { block, length: 16, pairs: true }),
        Accumulation::Sum(sum) => {
            let parts = sum.split.of(products.len()).into_iter().map(|part| {
                let part: Vec<_> = part.into_iter().map(|k| products[k]).collect();
                node(&sum.each, &part, order, has_blocks)
            });
            let parts = parts.collect::<Option<Vec<_>>>()?;
            return Some(Node::Sum { parts, sum: (**sum).clone() });
        }
    };
    match leaf {
        Leaf::Fma | Leaf::MultiplyAdd => order.extend(products.iter().copied().map(Some)),
        Leaf::Blocks(Blocks { pairs: true, .. }) => {
            for chunk in products.chunks(32) {
                for upper in [false, true] {
                    let half = (0..chunk.len()).filter(|k| (k % 4 >= 2) == upper);
                    let end = order.len() + 16;
                    order.extend(half.map(|k| Some(chunk[k])));
                    order.resize(end, None);
                }
            }
        }
        Leaf::Blocks(Blocks { length, .. }) => {
            let tile = match accumulation {
                Accumulation::ResidueFirst { tile, .. } => *tile,
                _ => products.len().max(1),
            };
            let (residue, tiles) = products.split_at(products.len() % tile);
            for tile in std::iter::once(residue).chain(tiles.chunks(tile)) {
                let end = order.len() + tile.len().next_multiple_of(length);
                order.extend(tile.iter().copied().map(Some));
                order.resize(end, None);
            }
        }
    }
    *has_blocks |= matches!(leaf, Leaf::Blocks(_));
    Some(Node::Leaf(leaf, start..order.len()))
}
