//! The order finder: what a backend's matrix product does with its products.
//!
//! ```text
//! masked inputs -> where products meet -> tree -> orders with that tree --\
//!                                          \-> a block's arithmetic -------> compared on random inputs
//! ```
//! It needs the backend only to compute: nothing is known about its kernels.

mod block;
mod find;
mod mask;
mod notation;
mod recognise;
mod target;
#[cfg(test)]
mod tests;
mod tree;
mod verify;

pub use block::{Answer, BlockFindings};
pub use recognise::{describe, recognise};
pub use target::{Extents, Target, Way};
pub use tree::Tree;
pub use verify::Fit;

use mask::Masks;
use plumbline_reference::BackendError;
use plumbline_reference::ops::Gemm;
use serde::Serialize;
use std::fmt::Write as _;

/// Why an order was not found.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The operation is not one that can be probed.
    #[error("this product cannot be probed: {0}")]
    Operation(String),
    /// The shape is not one that can be probed.
    #[error("{}x{}x{} cannot be probed: m and n are at least 1, k is from 2 to 65536", .0.m, .0.n, .0.k)]
    Shape(Extents),
    /// Unmasked units are not all counted.
    #[error(
        "the output counts {counted} of {of} products that are one unit each: some are left out or taken twice, \
         or the sum is too narrow to hold so many"
    )]
    Count {
        /// Units in the output.
        counted: usize,
        /// Products.
        of: usize,
    },
    /// An output is not a number of units.
    #[error("with {} the output is {count} units: this is no sum in which large terms cancel", masked(pair))]
    NotACount {
        /// The masked products.
        pair: Option<(usize, usize)>,
        /// The output in units.
        count: f64,
    },
    /// Outputs of the same products differ.
    #[error("with {} outputs 0 and {other} of the same products differ: their orders do", masked(pair))]
    Uneven {
        /// The masked products.
        pair: Option<(usize, usize)>,
        /// The row or column of the other output.
        other: usize,
    },
    /// Where products meet does not make a tree.
    #[error(
        "products {} and {} meet in a sum of {met}, which fits no tree together with the others: the order differs \
         between calls or rows, or large terms do not swallow small ones", pair.0, pair.1
    )]
    NotATree {
        /// The products.
        pair: (usize, usize),
        /// The size of the sum.
        met: usize,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

fn masked(pair: &Option<(usize, usize)>) -> String {
    pair.map_or("nothing masked".to_owned(), |(i, j)| format!("products {i} and {j} masked"))
}

/// What was found about a product.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Backend and variant.
    pub target: String,
    /// What it runs on.
    pub device: String,
    /// The operation.
    pub op: Gemm,
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// Products of an element.
    pub k: usize,
    /// Calls that it took.
    pub calls: usize,
    /// The tree of sums.
    pub tree: String,
    /// What a fused block does, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockFindings>,
    /// Orders of accumulation with that tree, the best first.
    pub fits: Vec<Fit>,
}

/// Finds the order of a target's sums.
pub fn find(target: &Target<'_>) -> Result<Findings, ProbeError> {
    let Extents { m, n, k } = target.extents();
    let masks = Masks::new(target)?;
    masks.check()?;
    let tree = find::tree(&masks, k)?;
    let block = tree.blocks().map(|blocks| block::ask(target, &blocks)).transpose()?;
    let orders = recognise(&tree, block.as_ref().and_then(|found| found.block));
    let fits = verify::verify(target, orders)?;
    Ok(Findings {
        target: target.name(),
        device: target.device(),
        op: target.gemm().clone(),
        m,
        n,
        k,
        calls: target.calls(),
        tree: tree.to_string(),
        block,
        fits,
    })
}

impl Findings {
    /// The orders that give the backend's bits on every element.
    pub fn explained(&self) -> impl Iterator<Item = &Fit> {
        self.fits.iter().filter(|fit| fit.is_whole())
    }

    /// As text for people.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { target, device, m, n, k, calls, tree, .. } = self;
        let mut text = format!("{target} on {device}, {m}x{n}x{k}, {calls} calls\n\ntree\n  {tree}\n");
        if let Some(found) = &self.block {
            text += "\nblock\n";
            for Answer { question, answer } in &found.answers {
                let _ = writeln!(text, "  {question}: {answer}");
            }
            for field in &found.assumed {
                let _ = writeln!(text, "  {field} does not show with these operands; it is assumed");
            }
        }
        text += "\norders with this tree\n";
        if self.fits.is_empty() {
            text += "  none that has a name\n";
        }
        for Fit { accumulate, operands, equal, of } in &self.fits {
            let _ = writeln!(text, "  {}: {equal} of {of} elements equal", describe(accumulate, *k));
            let line = |name: &str, value: serde_json::Result<serde_json::Value>| {
                value.map_or(String::new(), |value| format!("    {name}: {}\n", notation::yaml(&value)))
            };
            text += &line("accumulate", serde_json::to_value(accumulate));
            if let Some(operands) = operands {
                text += &line("operands", serde_json::to_value(operands));
            }
        }
        text
    }
}
