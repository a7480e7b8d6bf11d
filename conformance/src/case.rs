//! What a case file says: the schema, one struct per YAML mapping.
//!
//! A file holds a list of cases. Each names an operation, how its inputs are made
//! and what judges its outputs. With a `matrix`, one entry expands into one case
//! per combination of values, `$name` standing for the value of that dimension.
//!
//! - *literal*: inputs and expected outputs as bit patterns.
//! - *recorded*: inputs or outputs from a safetensors file.
//! - *generated*: inputs from a named class; where `expect` is left out, the
//!   reference's definition (or the device named by `against`) says what is right.
//! - *refused*: inputs that do not fit, for which an error is right.
//!
//! A file may also hold a list of [sequences](crate::sequence) of calls.

use crate::sequence::SequenceSpec;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A file of cases: a list of one call each, a list of sequences of calls, or both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// The cases.
    #[serde(default)]
    pub cases: Vec<CaseSpec>,
    /// Cases of several calls, whose faults only show across them.
    #[serde(default)]
    pub sequences: Vec<SequenceSpec>,
}

/// One case, or with a `matrix` one per combination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseSpec {
    /// Unique within the file. Values of the matrix are appended: `edges/f32/e4m3fn`.
    pub name: String,
    /// What the case is about, and a link if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Dimensions to combine. `$name` in `op`, `inputs`, `expect` and `refused` stands for
    /// the value of dimension `name`, and `${name}` for it within a longer text. Dimensions combine
    /// in alphabetical order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matrix: BTreeMap<String, Vec<Scalar>>,
    /// The operation and its parameters.
    pub op: Op,
    /// The inputs, in the operation's order.
    #[serde(default)]
    pub inputs: Vec<TensorSpec>,
    /// Strides of each output, in elements, in the operation's order; `null` for one without
    /// gaps. They are for backends whose memory the caller lays out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_strides: Option<Vec<Option<Vec<usize>>>>,
    /// The right outputs, in the operation's order. Left out: what `against` computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Vec<ExpectSpec>>,
    /// The inputs do not fit the operation, and an implementation must say so instead of computing
    /// something: from a part of them, for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Who computes the right outputs where `expect` does not give them.
    #[serde(default)]
    pub against: Against,
    /// Default criterion of the outputs.
    #[serde(default)]
    pub judge: Criterion,
    /// Other cases of this file, of the same operation, that reject the wrong outputs which this one
    /// rightly accepts, because its bound allows them, for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// For backends on a device only: on a processor the case would take long and find nothing
    /// that smaller ones do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device_only: bool,
    /// The smallest profile that runs the case.
    #[serde(default)]
    pub profile: Profile,
}

/// Why inputs must be refused.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Words of the error that the reference gives. Others may put it otherwise.
    pub because: String,
    /// What one that does not refuse would write to. Nothing of it may be written.
    pub outputs: Vec<OutputSpec>,
}

/// The type of an output.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

/// A value of a matrix dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a value of a dimension is a string, an integer or a boolean")]
pub enum Scalar {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A string.
    String(String),
}

/// Who says what is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The reference's definition.
    #[default]
    Definition,
    /// The recording of an H200's conversion instructions.
    H200,
}

/// How much of the cases is run.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Seconds: every operation, format and policy, at its edges.
    #[default]
    Quick,
    /// Minutes: larger matrices.
    Full,
    /// Every input there is.
    Exhaustive,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Exhaustive => "exhaustive",
        })
    }
}

/// How an input is made: exactly one of `bits`, `file` and `generate`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape. Needed with `bits`; with `file` it is checked; a class that sets its own
    /// length does without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// The bytes are GGML blocks of this format. The last dimension of `shape` then counts
    /// values: `[4, 512]` of `q4_K` is `u8[4, 2, 144]`. A recorded tensor may be a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockFormat>,
    /// Bit patterns in row-major order, as quoted hex with all digits: `"0x43e80000"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Vec<String>>,
    /// A safetensors file, or for `blocks` a GGUF file (`.gguf`), relative to the case file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The tensor in `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// Of a tensor in a GGUF file: the first row, and the one after the last. Left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<[usize; 2]>,
    /// A class of inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Class>,
    /// Seed of a class. Left out: derived from the case's name and the run's seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Repeat the class's values so that each one stands in every lane of a vector of
    /// this many elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<usize>,
    /// Strides in elements, one per dimension. Left out: row-major without gaps. The first
    /// of three dimensions, a batch, may have stride 0; the values of its first entry then
    /// count for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strides: Option<Vec<usize>>,
}

impl TensorSpec {
    /// The tensor, bit by bit.
    pub(crate) fn literal(tensor: &Tensor) -> Self {
        let dtype = tensor.dtype();
        Self {
            dtype,
            shape: Some(tensor.shape().to_vec()),
            blocks: None,
            bits: Some(tensor.codes().map(|code| dtype.hex(code)).collect()),
            file: None,
            tensor: None,
            rows: None,
            generate: None,
            seed: None,
            lanes: None,
            strides: None,
        }
    }
}

/// A named class of inputs. `dtype` is the source format; the target format is the
/// operation's. "Every" is meant for targets of up to 19 bits (16 within `edges`); wider
/// ones are sampled in every binade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Class {
    /// Every rounding midpoint of the target, the one above the largest value
    /// included, with its neighbours in the source format, both signs.
    Midpoints,
    /// Every value of the target, with its neighbours in the source format.
    Representable,
    /// First and last value of every binade of source and target, with neighbours.
    BinadeEdges,
    /// Subnormals of the source and sources of subnormal results.
    Subnormals,
    /// Zeros, infinities, largest and smallest values of both signs.
    Extremes,
    /// NaNs of both signs with varied payload, quiet and signalling.
    Nans,
    /// Values that rounding twice, through f16, bf16 or f32, gets wrong.
    DoubleRounding,
    /// All of the above.
    Edges,
    /// Every code of `dtype`, or part `part` of `parts` of them.
    AllCodes {
        /// Which part, from 0.
        #[serde(default)]
        part: u64,
        /// How many parts.
        #[serde(default = "one")]
        parts: u64,
    },
    /// Uniformly random bit patterns of `dtype`. Without `shape`: the first input's.
    RandomBits,
    /// Random words for stochastic rounding: 0, all ones and random ones in turn.
    /// Without `shape`: the first input's.
    RoundingWords,
    /// Random finite values of moderate size.
    RandomFinite,
    /// Random finite values of moderate size with `bits` at linear index `at`.
    Needle {
        /// The pattern.
        bits: String,
        /// Where.
        at: usize,
    },
    /// Values that land on, just below and just above midpoints of the target once
    /// the operation has scaled them. The scales are the literal second input.
    ScaledEdges,
    /// Codes by the SplitMix64 formula of the hardware recordings.
    SplitmixCodes,
    /// Ones.
    Ones,
    /// Random integers from `-max` to `max`, each a hash of its position: sums of their
    /// products are exact, and wrong where an element is missing or misplaced.
    Integers {
        /// The largest.
        max: u64,
    },
    /// Integers, few of them not zero, for sums that stay exact in narrow outputs. The rows
    /// are those of `op(a)` and the columns of `op(b)` in a product, else the last dimension.
    SparseIntegers {
        /// The largest magnitude.
        max: u64,
        /// How many of a row are not zero. Over the rows, each place along them is in turn.
        per_row: u64,
    },
    /// Random sign and fraction, exponents over the whole finite range, subnormals included;
    /// where the exponent has 8 bits, below 2^60, so that products stay in the range of f32.
    WideExponents,
    /// Pairs of neighbours along the sum, equal; with `negate` opposite, some one ulp off. A
    /// sum of products of the one with the other cancels almost wholly.
    Pairs {
        /// Whether the second of a pair has the other sign.
        #[serde(default)]
        negate: bool,
    },
    /// Magnitudes that rise along the sum by orders of magnitude, or fall.
    Ramp {
        /// Whether they rise.
        ascending: bool,
    },
    /// Moderate values with zeros of both signs and subnormals strewn in, and NaN, an
    /// infinity or the largest value in some rows (columns of `op(b)`): the other sums stay
    /// finite.
    Specials,
    /// Numbers within 1 of a common one, whose spread is small beside it.
    Offset {
        /// The common number.
        by: i64,
    },
    /// Positions of tokens, as u32: different numbers below a limit, spread over what is below it.
    Positions {
        /// The limit.
        below: u32,
    },
    /// For one operand of a product, with `ones` for the other: terms whose sum is a midpoint
    /// of the output's format, or one tiny term more or less, among zeros.
    Ties,
    /// GGML blocks of random bytes, whose factors are moderate and differ from one another, and
    /// whose scales and mins take every code in turn. Sums that are stored in blocks are wrong:
    /// nothing may read them.
    Blocks,
    /// The same with factors at the ends of their formats in every second block: zeros,
    /// subnormals, largest values, infinities and NaNs of both signs. Quants are all 0 or all
    /// ones in some.
    BlockEdges,
    /// GGML blocks of integers: factors 1, 2, -1 and -2, small scales, mins and quants. Sums of
    /// their products with small integers are exact.
    BlockIntegers,
    /// GGML blocks alike: the fields that are given, their elements as quoted hex, over and
    /// over where there are fewer than the field has. Other fields are 0.
    BlockFields(BTreeMap<String, Vec<String>>),
    /// Blocks for `mx_quantize`: largest magnitudes around where a rule changes its mind, elements
    /// around midpoints under their scale, close exponents, any bits, subnormals, and special values
    /// at the first or last place or anywhere.
    MxBlocks,
    /// Rows as softmax meets them, eight kinds in turn: moderate, all negative, near -10^7, with
    /// leading -Inf, of nothing but -Inf, with -Inf here and there, with one far above the others,
    /// and with a NaN or +Inf.
    Logits,
    /// Uniform from -1 to 1: products of queries and keys for which no weight is negligible.
    Uniform,
    /// The same in the first slots (the second dimension of three); the others hold NaN and any
    /// bits, as memory that nothing was written to may.
    Cache {
        /// Slots in use.
        used: usize,
    },
}

const fn one() -> u64 {
    1
}

/// A right output: dense (`bits`, `all`, or `file` and `tensor`) or sparse (`file`,
/// `values` and `at`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape; with `file` and `tensor` it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// Bit patterns in row-major order, as quoted hex with all digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Vec<String>>,
    /// The bit pattern of every element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<String>,
    /// A safetensors file, relative to the case file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The tensor in `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// The tensor in `file` that holds the values at the positions `at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
    /// The tensor in `file` that holds row-major linear positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Criterion of this output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<Criterion>,
    /// How NaNs compare. Left out: bit for bit between Plumbline's own backends, as a
    /// class for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nan: Option<NanJudge>,
}

/// When an output is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Criterion {
    /// The same bits.
    #[default]
    BitExact,
    /// `abs(got - exact) <= n * ulp(exact)`.
    Ulp(f64),
    /// `abs(got - expected) <= atol + rtol * abs(expected)`.
    Allclose {
        /// Relative tolerance.
        rtol: f64,
        /// Absolute tolerance.
        atol: f64,
    },
    /// Matrix products, those of GGML blocks, and layers: within the error that is derived, element
    /// by element, from what the operation lets an implementation do.
    Bound,
    /// Matrix products: the bits of one of the declared orders of accumulation, which the
    /// report names.
    Explained,
    /// Matrix products of integers whose sums are exact: every element, by Freivalds' check.
    Freivalds,
}

impl Criterion {
    /// Whether it says what is right by itself, so that nothing is computed beforehand.
    #[must_use]
    pub const fn is_of_products(self) -> bool {
        matches!(self, Self::Bound | Self::Explained | Self::Freivalds)
    }
}

/// How NaNs compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NanJudge {
    /// Any NaN equals any NaN.
    Class,
    /// Bit for bit.
    Bits,
}
