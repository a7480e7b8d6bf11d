//! Deliberately wrong backends, to show what a failure looks like and that the harness
//! finds it and goes on.

mod blocks;
mod cast;
mod cpu;
mod functions;
mod layers;
mod mistaken;
mod product;
mod quantize;
mod steps;

use crate::adapter::{Engine, EngineFault};
pub use cast::cast_465_to_nan;
use clap::ValueEnum;
use cpu::Faulty;
use plumbline_gpu::Defect;
use plumbline_reference::Backend;
use std::fmt;
use std::sync::Arc;

/// What a deliberately wrong backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum DemoFault {
    /// Casts f32 to E4M3FN with numbers between 464 and 496 becoming NaN
    #[value(name = "cast_465_to_nan")]
    Cast465ToNan,
    /// Aborts the process
    Abort,
    /// Ends the process with exit code 0
    Exit,
    /// Never returns
    Hang,
    /// Loses its device
    Lost,
    /// Panics
    Panic,
    /// Asks for more memory than there is
    OutOfMemory,
    /// Writes a byte past the end of an output
    WritePastEnd,
    /// Changes an input
    WriteInput,
    /// Leaves the last element of an output unwritten
    Unwritten,
    /// Gives another result at every call
    Nondeterministic,
    /// Gives a result that depends on the byte before an input
    ReadsOutside,
    /// Products: leaves out what is left of K after whole tiles of 64, or the last 16
    TailDropped,
    /// Products: takes a tile of 64 of K twice
    BlockTwice,
    /// Products: leaves out a scale
    ScaleDropped,
    /// Products: applies a scale twice
    ScaleTwice,
    /// Products: adds c although beta is 0
    BetaRead,
    /// Products: adds the bias of the row in place of that of the column
    BiasOfRows,
    /// Products: swaps two rows
    RowsSwapped,
    /// Products: computes f32 in TF32
    Tf32,
    /// Products: the tensor core keeps one bit less of every term
    FractionBits,
    /// Products: the tensor core rounds where it cuts off
    RoundedBlocks,
    /// Products: takes the operands of the first of the batch for all
    FirstBatch,
    /// Blocks: takes the high nibbles of Q4_0 and Q4_K for the low ones
    NibblesSwapped,
    /// Blocks: swaps the scales of neighbouring groups of Q6_K
    GroupsSwapped,
    /// Blocks: takes the fifth bits of Q5_K from the next group
    FifthBit,
    /// Blocks: leaves out the two high bits of scales of 6 bits
    HighScaleBits,
    /// Blocks: adds mins that are to be subtracted, and the other way round
    MinSign,
    /// Blocks: reads the first block of each row alone
    FirstBlockOnly,
    /// Blocks: takes the header of Q4_1 for 2 bytes shorter
    ShortHeader,
    /// Blocks: cuts off what is left of K after whole blocks, in place of an error
    DepthCut,
    /// Blocks: reads the sums that Q8_1 stores in f16
    StoredSum,
    /// Blocks: loses the sum of one lane
    LaneLost,
    /// Blocks: writes rows of several products at the wrong distance
    RowStride,
    /// Quantizing: takes the high nibble of packed MX codes for that of the even index
    PackedSwapped,
    /// Quantizing: takes the scale rule `floor` for `ceil`
    FloorForCeil,
    /// Quantizing: takes the code 255 of a scale, NaN, for 2^128
    NanScaleLarge,
    /// Quantizing: leaves out the tensor scale of NVFP4
    TensorScaleDropped,
    /// Quantizing: rounds ties of Q8_0 to even in place of away from zero
    TiesToEven,
    /// Quantizing: integers of 8 bits become -128 where they are too large
    Wraps,
    /// Quantizing: stores each sum of Q8_K one group too far
    SumsShifted,
    /// Quantizing: makes the sum of Q8_1 from the factor as it is stored, in f16
    SumOfStoredFactor,
    /// Quantizing: makes the factor of Q4_0 from the largest magnitude without its sign
    SignDropped,
    /// Quantizing: takes the last group of a super-block for zeros
    LastGroupZero,
    /// Sequences: finds converted weights by their address alone
    StaleWeightCache,
    /// Sequences: takes converted activations again after the buffer was overwritten in place
    StaleActivationCache,
    /// Sequences: finds kernels by their shapes alone, with the first call's parameters built in
    BakedConstant,
    /// Sequences: graphs hold scratch memory that was freed when it grew
    ScratchGrowth,
    /// Sequences: graphs compute from what inputs held when they were recorded
    GraphBakesInputs,
    /// Sequences: sums in another order where there is no workspace
    WorkspaceDependent,
    /// Sequences: streams do not wait for one another
    MissingStreamOrder,
    /// Sequences: one of a thousand calls gives another bit
    NondeterministicRepeat,
    /// Sequences: clears the accumulator of a maximum at its first use alone
    AbsmaxNotCleared,
    /// Sequences: copies in graphs read memory of the host that was used again
    GoneHostSource,
    /// Steps: adds the bias of the row in place of that of the column
    FusedBiasOfRows,
    /// Steps: adds a bias to the first 256 columns alone
    #[value(name = "bias_of_256")]
    BiasOf256,
    /// Steps: an activation makes 0 of NaN
    NanSwallowed,
    /// Steps: takes the tanh approximation of GELU for GELU
    GeluSwapped,
    /// Steps: what is in padded rows counts for the absmax
    PaddingInAbsmax,
    /// Steps: leaves out the last block of K
    LastBlockDropped,
    /// Steps: writes the rows in the opposite order
    RowsReversed,
    /// Steps: leaves out the scale of FP8 weights
    AlphaDropped,
    /// Steps: leaves out the scale of FP8 activations
    ActivationScaleDropped,
    /// Steps: a sum beyond f16 becomes the largest f16
    #[value(name = "saturated_in_f16")]
    SaturatedInF16,
    /// Steps: takes the other product at the threshold
    ThresholdOffByOne,
    /// Functions: computes GELU with 1 + tanh or 1 + erf, which is 0 for large negative numbers
    GeluTailLost,
    /// Functions: computes tanh from exponentials that overflow
    TanhOverflows,
    /// Functions: takes the one GELU for the other
    GeluVariantSwapped,
    /// Functions: multiplies -Inf with a sigmoid of 0
    MinusInfinityIsNan,
    /// Functions: ReLU makes 0 of NaN
    ReluSwallowsNan,
    /// Functions: takes the gate for what is gated
    GateSwapped,
    /// Functions: subnormal exponentials become 0
    ExpFlushed,
    /// Functions: reduces angles in f32
    #[value(name = "angles_of_f32")]
    AnglesOfF32,
    /// Functions: softmax without its maximum
    WithoutMaximum,
    /// Functions: the maximum of a softmax is at least 0
    MaximumFromZero,
    /// Functions: softmax over 32 elements each
    PerWarp,
    /// Functions: the sum of a softmax leaves out what is left after groups of 32
    RowRestDropped,
    /// Functions: an online softmax whose first tile is all -Inf becomes NaN
    LeadingTileIsNan,
    /// Functions: a causal mask hides the diagonal
    MaskOffByOne,
    /// Functions: a row that sees nothing is NaN though zeros were asked for
    FullyMaskedIsNan,
    /// Functions: takes the logarithm of a softmax
    LogOfQuotient,
    /// Functions: attention with the other alignment of the mask
    AlignmentSwapped,
    /// Functions: attention without its scale
    HeadScaleDropped,
    /// Functions: attention without the last slot in use
    LastSlotDropped,
    /// Functions: head h reads kv head h mod kv_heads
    GroupsInterleaved,
    /// Functions: masked and unused slots are read, and weighted with 0
    UnusedSlotsRead,
    /// Functions: products of queries and keys overflow f16
    #[value(name = "products_in_f16")]
    ProductsInF16,
    /// Functions: an online softmax rescales its sum but not what it has added up
    RescaleDropped,
    /// Layers: adds the eps of a norm outside the root
    EpsOutside,
    /// Layers: leaves out the weight of a norm
    WeightDropped,
    /// Layers: counts the elements of a row of a norm up to a multiple of 32
    MeanOverWarps,
    /// Layers: sums a row of a norm without what is left after whole groups of 32
    RowTailDropped,
    /// Layers: computes the variance in one pass, as the mean square without the square of the mean
    OnePassVariance,
    /// Layers: takes the other pairs for a rotation
    PairingSwapped,
    /// Layers: computes angles of rotations in f32
    AngleF32,
    /// Layers: rounds angles of rotations to f16
    AngleF16,
    /// Layers: rotates by the angles of the next position
    PositionOffByOne,
    /// Layers: rotates the other way round
    SinSign,
    /// Layers: rotates all of a head where a part of it is asked for
    TailRotated,
    /// Layers: scatters each row one place late
    RowLate,
    /// Layers: scatters a row whose position is out of range to the last place
    PositionClamped,
    /// Layers: takes the heads of rows for their tokens
    HeadsTransposed,
}

impl DemoFault {
    /// Whether the process in which it runs ends or never answers again.
    #[must_use]
    pub const fn ends_process(self) -> bool {
        matches!(self, Self::Abort | Self::Exit | Self::Hang)
    }

    /// Whether it is a fault of matrix products.
    #[must_use]
    pub const fn is_of_products(self) -> bool {
        matches!(
            self,
            Self::TailDropped
                | Self::BlockTwice
                | Self::ScaleDropped
                | Self::ScaleTwice
                | Self::BetaRead
                | Self::BiasOfRows
                | Self::RowsSwapped
                | Self::Tf32
                | Self::FractionBits
                | Self::RoundedBlocks
                | Self::FirstBatch
        )
    }

    /// Whether it is a fault of GGML blocks.
    #[must_use]
    pub const fn is_of_blocks(self) -> bool {
        matches!(
            self,
            Self::NibblesSwapped
                | Self::GroupsSwapped
                | Self::FifthBit
                | Self::HighScaleBits
                | Self::MinSign
                | Self::FirstBlockOnly
                | Self::ShortHeader
                | Self::DepthCut
                | Self::StoredSum
                | Self::LaneLost
                | Self::RowStride
        )
    }

    /// Whether it is a fault of quantizing, or of reading what `mx_quantize` makes.
    #[must_use]
    pub const fn is_of_quantizing(self) -> bool {
        matches!(
            self,
            Self::PackedSwapped
                | Self::FloorForCeil
                | Self::NanScaleLarge
                | Self::TensorScaleDropped
                | Self::TiesToEven
                | Self::Wraps
                | Self::SumsShifted
                | Self::SumOfStoredFactor
                | Self::SignDropped
                | Self::LastGroupZero
        )
    }

    /// The fault of an engine that only shows across calls, where it is one.
    #[must_use]
    pub const fn of_engine(self) -> Option<EngineFault> {
        match self {
            Self::StaleWeightCache => Some(EngineFault::StaleWeightCache),
            Self::StaleActivationCache => Some(EngineFault::StaleActivationCache),
            Self::BakedConstant => Some(EngineFault::BakedConstant),
            Self::ScratchGrowth => Some(EngineFault::ScratchGrowth),
            Self::GraphBakesInputs => Some(EngineFault::GraphBakesInputs),
            Self::WorkspaceDependent => Some(EngineFault::WorkspaceDependent),
            Self::MissingStreamOrder => Some(EngineFault::MissingStreamOrder),
            Self::NondeterministicRepeat => Some(EngineFault::NondeterministicRepeat),
            Self::AbsmaxNotCleared => Some(EngineFault::AbsmaxNotCleared),
            Self::GoneHostSource => Some(EngineFault::GoneHostSource),
            _ => None,
        }
    }

    /// Whether it is a fault of operations that are made of others.
    #[must_use]
    pub const fn is_of_steps(self) -> bool {
        matches!(
            self,
            Self::FusedBiasOfRows
                | Self::BiasOf256
                | Self::NanSwallowed
                | Self::GeluSwapped
                | Self::PaddingInAbsmax
                | Self::LastBlockDropped
                | Self::RowsReversed
                | Self::AlphaDropped
                | Self::ActivationScaleDropped
                | Self::SaturatedInF16
                | Self::ThresholdOffByOne
        )
    }

    /// Whether it is a fault of functions of elements and rows, or of attention.
    #[must_use]
    pub const fn is_of_functions(self) -> bool {
        matches!(
            self,
            Self::GeluTailLost
                | Self::TanhOverflows
                | Self::GeluVariantSwapped
                | Self::MinusInfinityIsNan
                | Self::ReluSwallowsNan
                | Self::GateSwapped
                | Self::ExpFlushed
                | Self::AnglesOfF32
                | Self::WithoutMaximum
                | Self::MaximumFromZero
                | Self::PerWarp
                | Self::RowRestDropped
                | Self::LeadingTileIsNan
                | Self::MaskOffByOne
                | Self::FullyMaskedIsNan
                | Self::LogOfQuotient
                | Self::AlignmentSwapped
                | Self::HeadScaleDropped
                | Self::LastSlotDropped
                | Self::GroupsInterleaved
                | Self::UnusedSlotsRead
                | Self::ProductsInF16
                | Self::RescaleDropped
        )
    }

    /// Whether it is a fault of layers.
    #[must_use]
    pub const fn is_of_layers(self) -> bool {
        matches!(
            self,
            Self::EpsOutside
                | Self::WeightDropped
                | Self::MeanOverWarps
                | Self::RowTailDropped
                | Self::OnePassVariance
                | Self::PairingSwapped
                | Self::AngleF32
                | Self::AngleF16
                | Self::PositionOffByOne
                | Self::SinSign
                | Self::TailRotated
                | Self::RowLate
                | Self::PositionClamped
                | Self::HeadsTransposed
        )
    }

    /// Whether it spoils later calls in its process.
    #[must_use]
    pub const fn needs_isolation(self) -> bool {
        self.ends_process() || matches!(self, Self::Lost)
    }
}

impl DemoFault {
    /// The kernel with the same fault, if there is one.
    #[must_use]
    pub const fn on_cuda(self) -> Option<Defect> {
        match self {
            Self::Lost => Some(Defect::IllegalAddress),
            Self::Hang => Some(Defect::InfiniteLoop),
            Self::Exit => Some(Defect::Exit),
            Self::OutOfMemory => Some(Defect::OutOfMemory),
            Self::WritePastEnd => Some(Defect::WritePastEnd),
            Self::WriteInput => Some(Defect::WriteInput),
            Self::Unwritten => Some(Defect::Unwritten),
            Self::Nondeterministic => Some(Defect::Nondeterministic),
            _ => None,
        }
    }

    pub(crate) fn names_on_cuda() -> String {
        let there = Self::value_variants().iter().filter(|fault| fault.on_cuda().is_some());
        there.map(Self::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// As the command line writes it.
impl fmt::Display for DemoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A backend on the CPU that has the fault.
#[must_use]
pub fn demo_fault(fault: DemoFault) -> Arc<dyn Backend> {
    if let Some(fault) = fault.of_engine() {
        return Arc::new(Engine::with_fault(fault));
    }
    match fault {
        DemoFault::Cast465ToNan => Arc::new(cast_465_to_nan()),
        fault if fault.is_of_products() => Arc::new(product::mistaken(fault)),
        fault if fault.is_of_blocks() => Arc::new(blocks::mistaken(fault)),
        fault if fault.is_of_quantizing() => Arc::new(quantize::mistaken(fault)),
        fault if fault.is_of_steps() => Arc::new(steps::mistaken(fault)),
        fault if fault.is_of_functions() => Arc::new(functions::mistaken(fault)),
        fault if fault.is_of_layers() => Arc::new(layers::mistaken(fault)),
        fault => Arc::new(Faulty::new(fault)),
    }
}
