//! From where products meet to the tree of their sums.
//!
//! The meetings of one product i with all others of a sum give the path from i to the root:
//! who meets i in a sum of the same size is added there. Those form one sum, or several
//! where the node adds more than two; each is found in the same way. Sums that are
//! independent of each other are asked about in the same calls.

use super::ProbeError;
use super::mask::{Masks, Question};
use super::tree::{Child, Tree};
use std::collections::BTreeMap;

/// Products that a node adds, of which it is not yet known into how many sums they divide.
struct Open {
    products: Vec<usize>,
    node: usize,
    /// A product that the node adds besides: it is part of the sum where two meet only if
    /// that is the node itself. The root has none.
    witness: Option<usize>,
}

/// The tree of a target's sums.
pub(super) fn tree(masks: &Masks<'_>, len: usize) -> Result<Tree, ProbeError> {
    // The node 0 stands above the root.
    let mut nodes = vec![vec![]];
    let mut open = vec![Open { products: (0..len).collect(), node: 0, witness: None }];
    while !open.is_empty() {
        let units: Vec<Vec<_>> =
            open.iter().map(|open| open.products.iter().copied().chain(open.witness).collect()).collect();
        let questions: Vec<_> = open
            .iter()
            .zip(&units)
            .flat_map(|(open, units)| {
                let first = open.products[0];
                open.products[1..].iter().map(move |&other| Question { pair: (first, other), units })
            })
            .collect();
        let mut meetings = masks.meetings(&questions)?.into_iter();
        let mut next = Vec::new();
        for Open { products, node, witness } in open {
            let first = products[0];
            // By the number of products in the sum in which they meet the first.
            let mut levels = BTreeMap::<_, Vec<_>>::new();
            for (&other, met) in products[1..].iter().zip(&mut meetings) {
                levels.entry(met).or_default().push(other);
            }
            let beside = witness.and_then(|_| levels.remove(&(products.len() + 1)));
            let mut below = Child::Leaf(first);
            let mut count = 1;
            for (met, others) in levels {
                count += others.len();
                if count != met {
                    return Err(ProbeError::NotATree { pair: (first, others[0]), met });
                }
                let own = nodes.len();
                nodes.push(vec![below]);
                let others = Open { products: others, node: own, witness: Some(first) };
                next.extend(settle(&mut nodes, others));
                below = Child::Node(own);
            }
            nodes[node].push(below);
            next.extend(beside.and_then(|products| settle(&mut nodes, Open { products, node, witness })));
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
