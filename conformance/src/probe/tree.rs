//! Trees of summation: which products meet where.

use super::notation::runs;
use crate::seed::mix;
use plumbline_reference::accumulate::Accumulation;
use std::collections::HashSet;
use std::fmt;

/// An order of summation. A node adds its children; one of more than two adds them at once,
/// as a fused block does.
#[derive(Clone, Debug)]
pub struct Tree {
    leaves: usize,
    nodes: Vec<Vec<Child>>,
    root: Child,
}

/// What a node adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// The product of that k.
    Leaf(usize),
    /// The sum of that node.
    Node(usize),
}

/// The leaves below a node, told apart by number and hash: a tree is the set of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    leaves: usize,
    hash: u64,
}

impl Key {
    pub(super) fn of(leaves: &[usize]) -> Self {
        let hash = leaves.iter().fold(0, |hash: u64, &leaf| hash.wrapping_add(mix(0, leaf as u64)));
        Self { leaves: leaves.len(), hash }
    }
}

/// The same tree; the order of a node's children does not matter.
impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.leaves == other.leaves && self.sorted_keys() == other.sorted_keys()
    }
}

impl Tree {
    pub(super) fn new(leaves: usize, nodes: Vec<Vec<Child>>, root: Child) -> Self {
        Self { leaves, nodes, root }
    }

    /// The tree of `len` products under an order of accumulation.
    #[must_use]
    pub fn of(accumulation: &Accumulation, len: usize) -> Self {
        let mut growing = Growing::default();
        let root = growing.sum(accumulation, &(0..len).collect::<Vec<_>>());
        Self::new(len, growing.nodes, root.unwrap_or(Child::Leaf(0)))
    }

    /// How many products there are.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Nodes, each after those that it adds.
    fn upward(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut stack = vec![self.root];
        while let Some(child) = stack.pop() {
            if let Child::Node(node) = child {
                order.push(node);
                stack.extend(&self.nodes[node]);
            }
        }
        order.reverse();
        order
    }

    /// The key of every node.
    fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key { leaves: 0, hash: 0 }; self.nodes.len()];
        for node in self.upward() {
            let of = |child: &Child| match *child {
                Child::Leaf(leaf) => Key::of(&[leaf]),
                Child::Node(node) => keys[node],
            };
            keys[node] = self.nodes[node].iter().map(of).fold(Key { leaves: 0, hash: 0 }, |sum, key| Key {
                leaves: sum.leaves + key.leaves,
                hash: sum.hash.wrapping_add(key.hash),
            });
        }
        keys
    }

    fn sorted_keys(&self) -> Vec<Key> {
        let keys = self.keys();
        let mut keys: Vec<_> = self.upward().into_iter().map(|node| keys[node]).collect();
        keys.sort_unstable();
        keys
    }

    /// What is summed by itself, single products included.
    pub(super) fn sums(&self) -> HashSet<Key> {
        let leaves = (0..self.leaves).map(|leaf| Key::of(&[leaf]));
        self.sorted_keys().into_iter().chain(leaves).collect()
    }

    /// The path from a product to the root: the product and the nodes above it.
    fn path(&self, leaf: usize) -> Vec<Child> {
        let mut above = vec![None; self.nodes.len()];
        let mut path = vec![Child::Leaf(leaf)];
        for (node, children) in self.nodes.iter().enumerate() {
            for child in children {
                match *child {
                    Child::Leaf(own) if own == leaf => path.push(Child::Node(node)),
                    Child::Node(below) => above[below] = Some(Child::Node(node)),
                    Child::Leaf(_) => (),
                }
            }
        }
        while let Some(&Child::Node(node)) = path.last() {
            let Some(next) = above[node] else { break };
            path.push(next);
        }
        path
    }

    /// The leaves below, ascending.
    pub(super) fn leaves_of(&self, top: Child) -> Vec<usize> {
        let (mut stack, mut leaves) = (vec![top], Vec::new());
        while let Some(child) = stack.pop() {
            match child {
                Child::Leaf(leaf) => leaves.push(leaf),
                Child::Node(node) => stack.extend(&self.nodes[node]),
            }
        }
        leaves.sort_unstable();
        leaves
    }

    /// The products of what the first product belongs to, from itself up to, but not with,
    /// the whole sum.
    pub(super) fn parts_of_first(&self) -> impl Iterator<Item = (Child, Vec<usize>)> + '_ {
        let mut path = self.path(0);
        path.retain(|&child| child != self.root);
        path.into_iter().map(|child| (child, self.leaves_of(child)))
    }

    /// A part as a tree of its own; its products are numbered from 0.
    pub(super) fn part(&self, top: Child) -> Self {
        let leaves = self.leaves_of(top);
        let renumbered = |child: &Child| match *child {
            Child::Leaf(leaf) => Child::Leaf(leaves.binary_search(&leaf).unwrap_or(0)),
            node @ Child::Node(_) => node,
        };
        let mut nodes = vec![Vec::new(); self.nodes.len()];
        for node in (Self { root: top, ..self.clone() }).upward() {
            nodes[node] = self.nodes[node].iter().map(renumbered).collect();
        }
        Self::new(leaves.len(), nodes, renumbered(&top))
    }

    /// The first chain of fused blocks. `None` where nothing is fused.
    pub(super) fn blocks(&self) -> Option<Blocks> {
        let singles = |child: &Child| -> Vec<usize> {
            let Child::Node(node) = *child else { return vec![] };
            let leaf = |child: &Child| match *child {
                Child::Leaf(leaf) => Some(leaf),
                Child::Node(_) => None,
            };
            let mut leaves: Vec<_> = self.nodes[node].iter().filter_map(leaf).collect();
            leaves.sort_unstable();
            leaves
        };
        let path = self.path(0);
        let first = path.get(1).map(singles).filter(|singles| singles.len() >= 3)?;
        if first.len() < self.leaves_of(path[1]).len() {
            return None;
        }
        let above: Vec<_> = path[2..].iter().map(singles).take_while(|it| it.len() >= 2).collect();
        let last = above.last().unwrap_or(&first).clone();
        Some(Blocks { next: above.into_iter().next(), first, last })
    }
}

/// Single products that fused blocks of one chain add, ascending.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) first: Vec<usize>,
    /// Those of the block that takes the first one's result.
    pub(super) next: Option<Vec<usize>>,
    /// Those of the block whose result is the chain's.
    pub(super) last: Vec<usize>,
}

/// Nodes of a tree as they are made.
#[derive(Default)]
struct Growing {
    nodes: Vec<Vec<Child>>,
}

impl Growing {
    fn add(&mut self, mut children: Vec<Child>) -> Option<Child> {
        if children.len() < 2 {
            return children.pop();
        }
        self.nodes.push(children);
        Some(Child::Node(self.nodes.len() - 1))
    }

    /// Each step on top of the sum before.
    fn chain(&mut self, steps: impl Iterator<Item = Vec<Child>>) -> Option<Child> {
        steps.fold(None, |sum, step| self.add(sum.into_iter().chain(step).collect()))
    }

    fn sum(&mut self, accumulation: &Accumulation, leaves: &[usize]) -> Option<Child> {
        let fused = |leaves: &[usize]| leaves.iter().map(|&leaf| Child::Leaf(leaf)).collect::<Vec<_>>();
        match accumulation {
            Accumulation::Fma | Accumulation::MultiplyAdd => self.chain(leaves.chunks(1).map(fused)),
            Accumulation::Chain(block) => {
                self.chain(leaves.chunks(block.products.max(1) as usize).map(fused))
            }
            Accumulation::ResidueFirst { tile, block } => {
                let (first, rest) = leaves.split_at(leaves.len() % tile);
                let tiles = std::iter::once(first).chain(rest.chunks(*tile));
                self.chain(tiles.flat_map(|tile| tile.chunks(block.products.max(1) as usize)).map(fused))
            }
            Accumulation::Pairwise if leaves.len() < 2 => self.add(fused(leaves)),
            Accumulation::Pairwise => {
                let (first, second) = leaves.split_at(leaves.len().div_ceil(2));
                let halves = [first, second].map(|half| self.sum(accumulation, half));
                self.add(halves.into_iter().flatten().collect())
            }
            Accumulation::HalvesThenAdd(_) => {
                let instruction = |leaves: &[usize], growing: &mut Self| {
                    let half = |upper: bool| {
                        let own = leaves.iter().enumerate().filter(move |(k, _)| (k % 4 >= 2) == upper);
                        own.map(|(_, &leaf)| Child::Leaf(leaf)).collect::<Vec<_>>()
                    };
                    growing.chain([half(false), half(true)].into_iter())
                };
                let sums: Vec<_> = leaves.chunks(32).filter_map(|leaves| instruction(leaves, self)).collect();
                self.chain(sums.into_iter().map(|sum| vec![sum]))
            }
            Accumulation::Sum(sum) => {
                let parts = sum.split.of(leaves.len());
                let parts: Vec<_> = parts
                    .iter()
                    .map(|part| self.sum(&sum.each, &part.iter().map(|&k| leaves[k]).collect::<Vec<_>>()))
                    .collect();
                let growing = std::cell::RefCell::new(self);
                sum.reduce.add(parts, |a, b| growing.borrow_mut().add(a.into_iter().chain(b).collect()))
            }
        }
    }
}

/// Along the largest child of every node, from the innermost sum outward: `(0..=15, 16..=31)`
/// adds the second block on top of the first. What is added at once is joined by `+`.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(self.root, &self.keys()))
    }
}

impl Tree {
    fn text(&self, top: Child, keys: &[Key]) -> String {
        let size = |child: &Child| match *child {
            Child::Leaf(_) => 1,
            Child::Node(node) => keys[node].leaves,
        };
        let mut steps = Vec::new();
        let mut at = top;
        while let Child::Node(node) = at {
            let children = &self.nodes[node];
            let largest = children.iter().map(size).max().filter(|&size| size > 1);
            let inner = largest.and_then(|largest| children.iter().position(|child| size(child) == largest));
            let others = children.iter().enumerate().filter(|&(i, _)| Some(i) != inner);
            let (mut leaves, mut sums) = (Vec::new(), Vec::new());
            for (_, &child) in others {
                match child {
                    Child::Leaf(leaf) => leaves.push(leaf),
                    sum @ Child::Node(_) => sums.push(self.text(sum, keys)),
                }
            }
            leaves.sort_unstable();
            match (&leaves[..], inner) {
                // Two products: one after the other.
                (&[first, second], None) if sums.is_empty() => {
                    steps.extend([(vec![second], vec![]), (vec![first], vec![])]);
                }
                _ => steps.push((leaves, sums)),
            }
            match inner {
                Some(inner) => at = children[inner],
                None => break,
            }
        }
        if let Child::Leaf(leaf) = at {
            steps.push((vec![leaf], vec![]));
        }
        steps.reverse();
        format!("({})", runs(&steps))
    }
}
