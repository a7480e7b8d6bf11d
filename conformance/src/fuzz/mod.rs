//! Fuzzing: random parameters and random bits near rounding edges, compared with the
//! definition until a backend differs.
//!
//! - `operation`, `shape`, `bits`: strategies, one concern each; `strategy` puts a
//!   [`Sample`] together from them.
//! - `product`: the same for matrix products, whose inputs have extents in common.
//! - `mx`: the same for blocks with scales of their own.
//! - `quantize`: numbers for blocks of integers.
//! - `blocks`: the same for operations on GGML blocks; `prefill` has the parameters of those that are
//!   made of others.
//! - `layers`: the same for operations of layers; `functions` has the parameters of those of elements
//!   and rows.
//! - `shrink`: from a failing sample to the simplest one.
//! - `target`: what is fuzzed, and the search.
//! - `regression`: a finding as a literal case that every later run replays.

mod bits;
mod blocks;
mod functions;
mod layers;
mod mx;
mod operation;
mod prefill;
mod product;
mod quantize;
mod regression;
mod sample;
mod shape;
mod shrink;
mod strategy;
mod target;
#[cfg(test)]
mod tests;

pub use regression::{Regression, RegressionError, record};
pub use sample::Sample;
pub use target::{Finding, Search, Target, Targets};

use plumbline_reference::ops::Op;

/// Whether an operation is a product without an order of accumulation: others may add it up in any.
pub(crate) fn is_exact(op: &Op) -> bool {
    product::is_exact(op) || blocks::is_exact(op)
}
