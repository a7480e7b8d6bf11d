//! `kv_scatter`: packed rows of K or V into a cache, each at its token's position.
//!
//! `rows` is `[tokens, kv_heads, head_dim]`, `positions` is u32 `[tokens]`, `cache` is
//! `[kv_heads, max_len, head_dim]` of the same type as `rows`: any of 1, 2 or 4 bytes. The result
//! is the cache with `cache[h, positions[t], :] = rows[t, h, :]`, all else as it was; where memory
//! allows, in place. It is a movement of bits: no value means anything, NaNs keep their payload.
//! Any extent may be 0.
//!
//! A position that is not below `max_len`, or that an earlier token has too, is an error that names
//! the token and the position, and nothing is written: a row out of range would lie in the next
//! head, and which of two rows for one place stays is a race on GPUs.
//!
//! Errors also name rows or a cache that have not three dimensions or not the same heads, and
//! positions that are not `[tokens]`.
//!
//! Source: the layout of K and V caches that attention reads head by head; refusals are this project's.

use super::{Inputs, Operation, SignatureError};
use crate::{DType, Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Packed rows of K or V into a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvScatter {
    /// Type of the elements, of 1, 2 or 4 bytes.
    pub dtype: DType,
}

const NAME: &str = "kv_scatter";
const POSITIONS: usize = 1;

impl Operation for KvScatter {
    const INPUTS: &'static [&'static str] = &["rows", "positions", "cache"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(3)?;
        if self.dtype.bytes() > 4 {
            let why = format!("is {}, expected one of 1, 2 or 4 bytes", self.dtype);
            return Err(inputs.parameter_error("dtype", why));
        }
        let &[tokens, heads, head_dim] = inputs.dtype(0, self.dtype)? else {
            return Err(inputs.shape_error(0, "[tokens, kv_heads, head_dim]".to_owned()));
        };
        inputs.exactly(POSITIONS, DType::U32, &[&[tokens]])?;
        let cache = inputs.dtype(2, self.dtype)?;
        match *cache {
            [own_heads, _, own_dim] if own_heads == heads && own_dim == head_dim => {
                Ok(vec![TensorType::new(self.dtype, cache)])
            }
            _ => Err(inputs.shape_error(2, format!("[{heads}, max_len, {head_dim}]"))),
        }
    }

    fn checked(&self) -> &'static [usize] {
        &[POSITIONS]
    }

    fn check_values(&self, inputs: &[TensorType], values: &[Tensor]) -> Result<(), SignatureError> {
        let max_len = inputs[2].shape[1] as u64;
        let mut tokens = HashMap::new();
        for (token, position) in values[0].codes().enumerate() {
            let error = |expected: String| SignatureError::Value {
                op: NAME,
                input: Self::INPUTS[POSITIONS],
                index: token,
                given: position.to_string(),
                expected,
            };
            if position >= max_len {
                return Err(error(format!("a position below max_len, {max_len}")));
            }
            if let Some(earlier) = tokens.insert(position, token) {
                return Err(error(format!("another position than that of token {earlier}")));
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let (rows, positions, cache) = (&inputs[0], &inputs[POSITIONS], &inputs[2]);
        let tokens: HashMap<_, _> = positions.codes().zip(0..).collect();
        let [heads, max_len, head_dim] = *cache.shape() else { return Ok(vec![cache.to_contiguous()]) };
        let element = |index: usize| {
            let (head, slot, column) = place(index, max_len, head_dim);
            match tokens.get(&(slot as u64)) {
                Some(token) => rows.code((token * heads + head) * head_dim + column),
                None => cache.code(index),
            }
        };
        Ok(vec![Tensor::from_fn(cache.ty().clone(), path, element)?])
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let [heads, max_len, head_dim] = *inputs[2].shape() else { return Vec::new() };
        let (head, slot, column) = place(index, max_len, head_dim);
        match inputs[POSITIONS].codes().position(|position| position == slot as u64) {
            Some(token) => vec![(0, (token * heads + head) * head_dim + column), (POSITIONS, token)],
            None => vec![(2, index)],
        }
    }
}

/// Head, slot and column of an element of the cache.
fn place(index: usize, max_len: usize, head_dim: usize) -> (usize, usize, usize) {
    (index / (max_len * head_dim), index / head_dim % max_len, index % head_dim)
}
