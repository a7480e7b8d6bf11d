//! From where products meet to the tree of their sums.
//!
//! The meetings of one product i with all others of a sum give the path from i to the root:
//! who meets i in a sum of the same size is added there. Those form one sum, or several
//! where the node adds more than two; each is found in the same way. Sums that are
//! independent of each other are asked about in the same calls.

use super::ProbeError;
use super::mask::Masks;
use super::tree::{Child, Tree};
use std::collections::BTreeMap;

/// Products of which it is known that a node adds them, not yet into how many sums they
/// divide.
struct Open {
    products: Vec<usize>,
    /// The products of the node; more than there are for the root's place.
    size: usize,
    node: usize,
}

/// The tree of a target's sums.
pub(super) fn tree(masks: &Masks<'_>, len: usize) -> Result<Tree, ProbeError> {
    // The node 0 stands above the root.
    let mut nodes = vec![vec![]];
    let mut open = vec![Open { products: (0..len).collect(), size: len + 1, node: 0 }];
    while !open.is_empty() {
        let pairs: Vec<_> = open
            .iter()
            .flat_map(|open| open.products[1..].iter().map(|&other| (open.products[0], other)))
            .collect();
        let mut meetings = masks.meetings(&pairs)?.into_iter();
        let mut next = Vec::new();
        for Open { products, size, node } in open {
            let first = products[0];
            // By the size of the sum in which they meet the first.
            let mut levels = BTreeMap::<_, Vec<_>>::new();
            for (&other, met) in products[1..].iter().zip(&mut meetings) {
                let valid = (2..=size.min(len)).contains(&met);
                if !valid {
                    return Err(ProbeError::NotATree { pair: (first, other), met });
                }
                levels.entry(met).or_default().push(other);
            }
            let beside = levels.remove(&size);
            let mut below = Child::Leaf(first);
            let mut count = 1;
            for (met, others) in levels {
                count += others.len();
                if count != met {
                    return Err(ProbeError::NotATree { pair: (first, others[0]), met });
                }
                let own = nodes.len();
                nodes.push(vec![below]);
                next.extend(settle(&mut nodes, Open { products: others, size: met, node: own }));
                below = Child::Node(own);
            }
            nodes[node].push(below);
            next.extend(beside.and_then(|products| settle(&mut nodes, Open { products, size, node })));
        }
        open = next;
    }
    let root = nodes[0][0];
    Ok(Tree::new(len, nodes, root))
}

/// A single product needs no question.
fn settle(nodes: &mut [Vec<Child>], open: Open) -> Option<Open> {
    if let [product] = open.products[..] {
        nodes[open.node].push(Child::Leaf(product));
        return None;
    }
    Some(open)
}
