//! `int8_quantize`: activations to blocks of 8-bit integers.
//!
//! As [`quantize`](super::quantize) to Q8_0, Q8_1 or Q8_K, with the rounding to integers as a
//! parameter: `x` is f32 `[.., K]`, `blocks` is `u8[.., K / values, bytes]`. In f32, each operation
//! rounded to nearest even:
//!
//! | | d | q | |
//! |---|---|---|---|
//! | Q8_0 | `amax / 127`, in f16 | `round(x * id)`, `id = 1 / d` of the f32 | |
//! | Q8_1 | the same | the same | `s = d * sum(q)`, of the f32 `d`, in f16 |
//! | Q8_K | `1 / iscale`, in f32 | `round(iscale * x)`, `iscale = -127 / max` | `bsums`, of 16 `q` each |
//!
//! `amax` is the largest magnitude and `max` the first value that has it. An integer saturates at
//! -127 and 127, and a NaN, which only `0 * Inf` makes, is 0. Where `amax` is 0, all of the block is.
//! An `amax` below about 3.7e-37 has no finite inverse: d is 0 and q -127, 0 or 127 by its sign; but
//! Q8_0 and Q8_1 have zeros alone up to 63 * 2^-149, where `amax / 127` is 0 in f32
//! ([`block::quantize`](crate::block::quantize) has the table).
//! A NaN or an infinity among the values makes `d` and `s` NaN and all else 0. A `d` or `s` beyond
//! f16 is an infinity; so that sums stay finite, `gemv` never reads `s`.
//!
//! Without `rounding` it is that of ggml's reference: half away from zero for Q8_0 and Q8_1, half
//! to even for Q8_K.
//!
//! Errors: K that is no multiple of a block's values is refused, never cut off or padded.
//!
//! Sources: ggml's `quantize_row_q8_0_ref`, `quantize_row_q8_1_ref` and `quantize_row_q8_K_ref`. A
//! recording of ggml agrees for Q8_0; of the others there is none.

use super::quantize::{evaluate, signature, sources};
use super::{Inputs, Operation, SignatureError};
use crate::block::{Int8Format, Int8Rounding};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Activations to blocks of 8-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Int8Quantize {
    /// Format of the blocks.
    pub to: Int8Format,
    /// How a number becomes an integer; left out: as in ggml's reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Int8Rounding>,
}

impl Int8Quantize {
    /// The rounding that is used.
    #[must_use]
    pub fn rounding(&self) -> Int8Rounding {
        self.rounding.unwrap_or(self.to.rounding())
    }
}

impl Operation for Int8Quantize {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        signature(inputs, self.to.blocks())
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let rounding = self.rounding();
        evaluate(&inputs[0], self.to.blocks(), path, |x, block| self.to.quantize_into(x, rounding, block))
    }

    fn sources(&self, _: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        sources(self.to.blocks(), index)
    }
}
