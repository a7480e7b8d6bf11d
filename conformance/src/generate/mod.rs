//! Named classes of inputs.
//!
//! - `ladder`: a format as the ascending list of its exact magnitudes, and where
//!   any exact number stands on it. Midpoints and neighbours are integer arithmetic.
//! - `edges`: the classes that are lists of codes, each a few lines over ladders.
//! - `scaled`: edges as they look before the operation scales them.
//! - `positional`: classes whose element `i` is a function of seed and `i`.
//! - `mx`: blocks by their kinds, for operations with a scale per block.
//! - `products`, `ties`: classes for sums of products, over `lines`, which tell where a sum
//!   runs along an operand.
//! - `blocks`: GGML blocks, field by field.
//! - `layout`: how a list fills lanes and a shape.

mod blocks;
mod edges;
mod ladder;
mod layout;
mod lines;
mod mx;
mod positional;
mod products;
mod scaled;
#[cfg(test)]
mod tests;
mod ties;

pub(crate) use mx::Blocks;
pub(crate) use scaled::unit;

use crate::case::Class;
use ladder::{Exact, Ladder, Sampling};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::Format;
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Tensor, TensorError};

/// What a class is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The class.
    pub class: &'a Class,
    /// Element type of the input.
    pub dtype: DType,
    /// Shape, where the case gives one.
    pub shape: Option<&'a [usize]>,
    /// Format of the blocks, where the elements are the bytes of some.
    pub blocks: Option<BlockFormat>,
    /// Lanes that each value must stand in, at least 1.
    pub lanes: usize,
    /// Seed of random classes.
    pub seed: u64,
    /// The operation, for the target format and how it scales.
    pub op: &'a Op,
    /// Which of the operation's inputs it is.
    pub input: usize,
    /// Inputs already made (all literal and recorded ones), by position.
    pub others: &'a [Option<Tensor>],
}

/// Why a class cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The class and the case do not go together.
    #[error("{0}")]
    Mismatch(String),
    /// The tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The values of a class.
///
/// A class that is a list of values (every one but the random ones, those for products and blocks,
/// `needle` and `splitmix_codes`) gives the shape `[n]`, or fills the shape asked for by starting
/// over; it never leaves values out. The same request gives the same values.
pub fn generate(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    match request.class {
        Class::Midpoints
        | Class::Representable
        | Class::BinadeEdges
        | Class::Subnormals
        | Class::Extremes
        | Class::Nans
        | Class::DoubleRounding
        | Class::Edges => layout::list(request, &edges::codes(request)?),
        &Class::AllCodes { part, parts } => layout::all_codes(request, part, parts),
        Class::ScaledEdges => scaled::generate(request),
        Class::RandomBits => positional::random_bits(request),
        Class::RoundingWords => positional::rounding_words(request),
        Class::RandomFinite => positional::random_finite(request),
        Class::Needle { bits, at } => positional::needle(request, bits, *at),
        Class::SplitmixCodes => positional::splitmix_codes(request),
        Class::Ones => products::ones(request),
        &Class::Integers { max } => products::integers(request, max),
        &Class::SparseIntegers { max, per_row } => products::sparse_integers(request, max, per_row),
        Class::WideExponents => products::wide_exponents(request),
        &Class::Pairs { negate } => products::pairs(request, negate),
        &Class::Ramp { ascending } => products::ramp(request, ascending),
        Class::Specials => products::specials(request),
        &Class::Offset { by } => positional::offset(request, by),
        &Class::Positions { below } => positional::positions(request, below),
        Class::Ties => ties::generate(request),
        Class::Blocks => blocks::random(request),
        Class::BlockEdges => blocks::edges(request),
        Class::BlockIntegers => blocks::integers(request),
        Class::BlockFields(fields) => blocks::alike(request, fields),
        Class::MxBlocks => mx::generate(request),
        Class::Logits => positional::logits(request),
        Class::Uniform => positional::uniform(request),
        &Class::Cache { used } => positional::cache(request, used),
    }
}

/// Code bits up to which fuzzing takes every value of a target: its lists are made anew
/// again and again with other samples of the larger formats.
const WHOLE_IN_FUZZING: u32 = 8;

/// The list that `edges` is, shorter for targets of more than 8 bits.
pub(crate) fn sampled_edges(from: Format, to: Option<Format>, seed: u64) -> Vec<u64> {
    edges::all(from, to, WHOLE_IN_FUZZING, seed)
}

/// The midpoints of a format, sampled where it has more than 8 bits.
pub(crate) fn sampled_midpoints(to: Format, seed: u64) -> Vec<f64> {
    let sampling = Sampling { whole_up_to: WHOLE_IN_FUZZING, seed };
    sampling.midpoints(Ladder::new(to)).map(Exact::to_f64).collect()
}

impl Request<'_> {
    /// The source format, which all but the integer classes need.
    fn source(&self) -> Result<Format, GenerateError> {
        self.dtype.format().ok_or_else(|| {
            self.mismatch(format!(
                "makes numbers, and {} is not a number format; use `random_bits`",
                self.dtype
            ))
        })
    }

    /// The format that the operation encodes to, if it encodes.
    fn target(&self) -> Option<Format> {
        match self.op {
            Op::Cast(op) => Some(op.to),
            Op::Decode(op) => Some(op.to),
            Op::ScaledCast(op) => Some(op.to),
            Op::DeviceScaledCast(op) => Some(op.to),
            Op::MxQuantize(op) => Some(op.format.layout().element),
            _ => None,
        }
    }

    /// An error that begins with the class's name: ``class `edges` {why}``.
    fn mismatch(&self, why: impl AsRef<str>) -> GenerateError {
        GenerateError::Mismatch(format!("class `{}` {}", name(self.class), why.as_ref()))
    }
}

/// A class as case files write it.
fn name(class: &Class) -> &'static str {
    match class {
        Class::Midpoints => "midpoints",
        Class::Representable => "representable",
        Class::BinadeEdges => "binade_edges",
        Class::Subnormals => "subnormals",
        Class::Extremes => "extremes",
        Class::Nans => "nans",
        Class::DoubleRounding => "double_rounding",
        Class::Edges => "edges",
        Class::AllCodes { .. } => "all_codes",
        Class::RandomBits => "random_bits",
        Class::RoundingWords => "rounding_words",
        Class::RandomFinite => "random_finite",
        Class::Needle { .. } => "needle",
        Class::ScaledEdges => "scaled_edges",
        Class::SplitmixCodes => "splitmix_codes",
        Class::Ones => "ones",
        Class::Integers { .. } => "integers",
        Class::SparseIntegers { .. } => "sparse_integers",
        Class::WideExponents => "wide_exponents",
        Class::Pairs { .. } => "pairs",
        Class::Ramp { .. } => "ramp",
        Class::Specials => "specials",
        Class::Offset { .. } => "offset",
        Class::Positions { .. } => "positions",
        Class::Ties => "ties",
        Class::Blocks => "blocks",
        Class::BlockEdges => "block_edges",
        Class::BlockIntegers => "block_integers",
        Class::BlockFields(_) => "block_fields",
        Class::MxBlocks => "mx_blocks",
        Class::Logits => "logits",
        Class::Uniform => "uniform",
        Class::Cache { .. } => "cache",
    }
}
