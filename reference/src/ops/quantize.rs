//! `quantize`: numbers to GGML blocks.
//!
//! `blocks[.., b, byte]` is the block of format `to` that ggml makes, without an importance matrix, of
//! `x[.., b * values]` and the values that follow: `x` is f32 `[.., K]`, `blocks` is
//! `u8[.., K / values, bytes]`. [`block::quantize`](crate::block::quantize) says what each format's
//! quantizer computes, in which order, and what becomes of zeros, of NaN and infinities, and of
//! factors that leave the range of f16.
//!
//! Every block depends on its own values alone.
//!
//! Errors: K that is no multiple of a block's values is refused, never cut off or padded.
//!
//! Sources: ggml's `quantize_row_*_ref`, and `quantize_iq4_nl` for IQ4_NL. Recordings of ggml agree for
//! all formats but Q8_1 and Q8_K, of which there are none.

use super::{Inputs, Operation, SignatureError};
use crate::block::BlockFormat;
use crate::format::F32;
use crate::{DType, Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers to GGML blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quantize {
    /// Format of the blocks.
    pub to: BlockFormat,
}

impl Operation for Quantize {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        signature(inputs, self.to)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        evaluate(&inputs[0], self.to, path, |x, block| self.to.quantize_into(x, block))
    }

    fn sources(&self, _: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        sources(self.to, index)
    }
}

/// Requires f32 `[.., K]` of whole blocks; returns the type of the blocks.
pub(super) fn signature(inputs: &Inputs<'_>, format: BlockFormat) -> Result<Vec<TensorType>, SignatureError> {
    inputs.count(1)?;
    let values = format.values();
    match inputs.dtype(0, F32)? {
        [outer @ .., k] if k % values == 0 => {
            Ok(vec![TensorType::new(DType::U8, [outer, &[k / values, format.bytes()]].concat())])
        }
        _ => {
            let expected =
                format!("[.., K] with K a multiple of {values}, the values of a block of {format}");
            Err(inputs.shape_error(0, expected))
        }
    }
}

/// The blocks that `quantizer` makes.
pub(super) fn evaluate(
    x: &Tensor,
    format: BlockFormat,
    path: Path,
    quantizer: impl Fn(&[f32], &mut [u8]) + Sync,
) -> Result<Vec<Tensor>, TensorError> {
    let [outer @ .., k] = x.shape() else { return Ok(Vec::new()) };
    let (values, bytes) = (format.values(), format.bytes());
    let ty = TensorType::new(DType::U8, [outer, &[k / values, bytes]].concat());
    let mut blocks = vec![0; ty.elements()?];
    let x = x.packed();
    let block = |(x, block): (&[u8], &mut [u8])| {
        let x: Vec<_> = x.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect();
        quantizer(&x, block);
    };
    match path {
        Path::Definition => x.chunks_exact(4 * values).zip(blocks.chunks_exact_mut(bytes)).for_each(block),
        Path::Parallel | Path::Simd(_) => {
            let pairs = x.par_chunks_exact(4 * values).zip(blocks.par_chunks_exact_mut(bytes));
            pairs.with_min_len(8).for_each(block);
        }
    }
    Ok(vec![Tensor::from_bytes(ty, blocks)?])
}

/// The values of which byte `index` is made: those of its block.
pub(super) fn sources(format: BlockFormat, index: usize) -> Vec<(usize, usize)> {
    let first = index / format.bytes() * format.values();
    (first..first + format.values()).map(|value| (0, value)).collect()
}
