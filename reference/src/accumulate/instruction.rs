//! Matrix instructions by name: their formats, shapes and arithmetic.

use super::{Accumulation, Block};
use crate::format::{BF16, E4M3FN, E5M2, F16, F32, Format, TF32};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A matrix instruction of sm_90, all of them measured on an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names say it: family, operands, accumulator.
pub enum Instruction {
    MmaF16F16,
    MmaF16F32,
    MmaBf16F32,
    MmaTf32F32,
    MmaE4m3F32,
    MmaE5m2F32,
    WgmmaF16F16,
    WgmmaF16F32,
    WgmmaBf16F32,
    WgmmaTf32F32,
    WgmmaE4m3F16,
    WgmmaE4m3F32,
    WgmmaE5m2F32,
    WgmmaE4m3e5m2F32,
}

/// Rows, columns and depth of one instruction. `wgmma` has n from 8 to 256; 8 is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of a and d.
    pub m: usize,
    /// Columns of d.
    pub n: usize,
    /// Products of a dot product.
    pub k: usize,
}

impl Instruction {
    /// Every instruction.
    pub const ALL: [Self; 14] = [
        Self::MmaF16F16,
        Self::MmaF16F32,
        Self::MmaBf16F32,
        Self::MmaTf32F32,
        Self::MmaE4m3F32,
        Self::MmaE5m2F32,
        Self::WgmmaF16F16,
        Self::WgmmaF16F32,
        Self::WgmmaBf16F32,
        Self::WgmmaTf32F32,
        Self::WgmmaE4m3F16,
        Self::WgmmaE4m3F32,
        Self::WgmmaE5m2F32,
        Self::WgmmaE4m3e5m2F32,
    ];

    /// Whether it is a warpgroup's instruction (`wgmma`), not a warp's (`mma.sync`).
    #[must_use]
    pub const fn is_warpgroup(self) -> bool {
        !matches!(
            self,
            Self::MmaF16F16
                | Self::MmaF16F32
                | Self::MmaBf16F32
                | Self::MmaTf32F32
                | Self::MmaE4m3F32
                | Self::MmaE5m2F32
        )
    }

    /// Formats of a and b.
    #[must_use]
    pub const fn operands(self) -> [Format; 2] {
        match self {
            Self::MmaF16F16 | Self::MmaF16F32 | Self::WgmmaF16F16 | Self::WgmmaF16F32 => [F16, F16],
            Self::MmaBf16F32 | Self::WgmmaBf16F32 => [BF16, BF16],
            Self::MmaTf32F32 | Self::WgmmaTf32F32 => [TF32, TF32],
            Self::MmaE4m3F32 | Self::WgmmaE4m3F16 | Self::WgmmaE4m3F32 => [E4M3FN, E4M3FN],
            Self::MmaE5m2F32 | Self::WgmmaE5m2F32 => [E5M2, E5M2],
            Self::WgmmaE4m3e5m2F32 => [E4M3FN, E5M2],
        }
    }

    /// Format of c and d.
    #[must_use]
    pub const fn accumulator(self) -> Format {
        match self {
            Self::MmaF16F16 | Self::WgmmaF16F16 | Self::WgmmaE4m3F16 => F16,
            _ => F32,
        }
    }

    /// Its shape.
    #[must_use]
    pub const fn shape(self) -> Shape {
        // A row of 32 bytes.
        let k = 256 / self.operands()[0].storage_bits as usize;
        Shape { m: if self.is_warpgroup() { 64 } else { 16 }, n: 8, k }
    }

    /// How a chain of them accumulates.
    #[must_use]
    pub const fn arithmetic(self) -> Accumulation {
        match self {
            Self::MmaF16F16 | Self::WgmmaF16F16 => Accumulation::Chain(Block::HOPPER_F16),
            Self::MmaF16F32 | Self::WgmmaF16F32 | Self::MmaBf16F32 | Self::WgmmaBf16F32 => {
                Accumulation::Chain(Block::HOPPER)
            }
            Self::MmaTf32F32 | Self::WgmmaTf32F32 => Accumulation::Chain(Block::HOPPER_TF32),
            Self::MmaE4m3F32 | Self::MmaE5m2F32 => Accumulation::HalvesThenAdd(Block::HOPPER),
            Self::WgmmaE4m3F32 | Self::WgmmaE5m2F32 | Self::WgmmaE4m3e5m2F32 => {
                Accumulation::Chain(Block::HOPPER_FP8)
            }
            Self::WgmmaE4m3F16 => Accumulation::Chain(Block::HOPPER_FP8_F16),
        }
    }
}
