//! `dequantize`: GGML blocks to numbers.
//!
//! `y[.., v]` is value `v % values` of block `v / values` of `blocks[.., block, byte]`, as
//! [`BlockFormat`] defines it: `blocks` is `u8[.., K / values, bytes]`, `y` is `[.., K]` in f32,
//! f16 or bf16.
//!
//! The value is a real number, and `conversion` says how often it is rounded, to nearest even:
//! `direct` once, to the output; `via_f32` to f32 first. A result beyond the output's range is an
//! infinity. NaN, which an infinite or NaN factor makes, is the canonical one. Zeros have the sign
//! that IEEE 754 gives `(d * scale) * q + m * min`.
//!
//! To f32 all correct implementations give the same bits: only formats with mins round at all,
//! once. (Q8_K too, whose `d` is an f32.)
//!
//! Errors: a last dimension of `blocks` that is not the block's bytes; an output format that is none
//! of the three.
//!
//! Source: ggml's `dequantize_row_*`.

use super::{Inputs, Operation, SignatureError};
use crate::block::BlockFormat;
use crate::fast::{Conversion, dequantized};
use crate::format::{BF16, F16, F32, Format, Policy, Value};
use crate::{Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GGML blocks to numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dequantize {
    /// Format of the blocks.
    pub from: BlockFormat,
    /// Format of the result: f32, f16 or bf16.
    pub to: Format,
    /// How often a value is rounded.
    #[serde(default)]
    pub conversion: BlockConversion,
}

/// How often a block's value is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockConversion {
    /// Once.
    #[default]
    Direct,
    /// To f32, then to the output.
    ViaF32,
}

impl BlockConversion {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Direct, Self::ViaF32];
}

impl Dequantize {
    /// The code of a value.
    fn encode(&self, value: f64) -> u64 {
        let value = Value::from(value);
        match self.conversion {
            BlockConversion::Direct => self.to.encode(value, &Policy::IEEE, 0),
            BlockConversion::ViaF32 => {
                let single = F32.decode(F32.encode(value, &Policy::IEEE, 0));
                self.to.encode(single, &Policy::IEEE, 0)
            }
        }
    }

    /// What is left to do after a conversion to f32: nothing, or a conversion to the output.
    /// `None` where the conversion to f32 would be one rounding too many.
    fn narrowing(&self) -> Option<Option<Conversion>> {
        let rounds = self.from.has_mins() || self.from == BlockFormat::Q8K;
        match self.to {
            F32 => Some(None),
            _ if rounds && self.conversion == BlockConversion::Direct => None,
            to => Conversion::cast(F32, to, &Policy::IEEE).map(Some),
        }
    }

    /// The values of a block, in their bytes.
    fn block(&self, bytes: &[u8], values: &mut [u8]) {
        let unpacked = self.from.unpack(bytes);
        let width = values.len() / self.from.values();
        for (j, slot) in values.chunks_exact_mut(width).enumerate() {
            slot.copy_from_slice(&self.encode(unpacked.value(j)).to_le_bytes()[..width]);
        }
    }
}

/// Requires input `i` to be blocks of that format along its last two dimensions; returns the
/// others and how many values a row has.
pub(super) fn blocks<'a>(
    inputs: &Inputs<'a>,
    i: usize,
    format: BlockFormat,
) -> Result<(&'a [usize], usize), SignatureError> {
    let shape = inputs.dtype(i, crate::DType::U8)?;
    match shape {
        [outer @ .., blocks, bytes] if *bytes == format.bytes() => {
            let values = blocks.checked_mul(format.values());
            Ok((outer, values.ok_or_else(|| inputs.shape_error(i, "fewer blocks".to_owned()))?))
        }
        _ => {
            let (values, bytes) = (format.values(), format.bytes());
            Err(inputs.shape_error(i, format!("[.., K / {values}, {bytes}], blocks of {format}")))
        }
    }
}

impl Operation for Dequantize {
    const INPUTS: &'static [&'static str] = &["blocks"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(1)?;
        if ![F32, F16, BF16].contains(&self.to) {
            return Err(inputs.parameter_error("to", format!("is {}, expected f32, f16 or bf16", self.to)));
        }
        let (outer, values) = blocks(inputs, 0, self.from)?;
        Ok(vec![TensorType::new(self.to, [outer, &[values]].concat())])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let [outer @ .., blocks, bytes] = inputs[0].shape() else { return Ok(Vec::new()) };
        let ty = TensorType::new(self.to, [outer, &[blocks * self.from.values()]].concat());
        let packed = inputs[0].packed();
        if let (Path::Simd(simd), Some(narrowing)) = (path, self.narrowing()) {
            let singles = dequantized(simd, self.from, &packed);
            let y = match narrowing {
                None => singles,
                Some(conversion) => conversion.converted(simd, &singles, None, &[]),
            };
            return Ok(vec![Tensor::from_bytes(ty, y)?]);
        }
        let mut y = vec![0; ty.elements()? * ty.dtype.bytes()];
        let width = self.from.values() * ty.dtype.bytes();
        match path {
            Path::Definition => {
                for (block, values) in packed.chunks_exact(*bytes).zip(y.chunks_exact_mut(width)) {
                    self.block(block, values);
                }
            }
            Path::Parallel | Path::Simd(_) => {
                let pairs = packed.par_chunks_exact(*bytes).zip(y.par_chunks_exact_mut(width));
                pairs.with_min_len(8).for_each(|(block, values)| self.block(block, values));
            }
        }
        Ok(vec![Tensor::from_bytes(ty, y)?])
    }

    fn input_blocks(&self, _: usize) -> Option<BlockFormat> {
        Some(self.from)
    }

    fn has_fast_path(&self) -> bool {
        self.narrowing().is_some()
    }

    fn exact(&self, inputs: &[Tensor], _: usize, index: usize) -> Option<f64> {
        let (block, j) = (index / self.from.values(), index % self.from.values());
        Some(self.from.unpack(&block_bytes(&inputs[0], self.from, block)).value(j))
    }

    fn sources(&self, _: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let first = index / self.from.values() * self.from.bytes();
        (first..first + self.from.bytes()).map(|byte| (0, byte)).collect()
    }
}

/// The bytes of a block.
fn block_bytes(tensor: &Tensor, format: BlockFormat, block: usize) -> Vec<u8> {
    let first = block * format.bytes();
    (first..first + format.bytes()).map(|byte| tensor.code(byte) as u8).collect()
}
