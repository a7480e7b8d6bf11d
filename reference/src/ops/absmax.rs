//! `absmax`: largest magnitude.
//!
//! `y = max(abs(x))` as f32, over the tensor (shape `[]`), each row (`[M]`) or each
//! block of n elements of a row (`[M, K / n]`). Of no elements it is 0. A NaN makes
//! the result the canonical NaN (`propagate`) or counts as absent (`ignore`; all NaN
//! gives 0). Infinity is a magnitude like any other. The maximum is of bit patterns,
//! so no order of evaluation changes it.

use super::encoding::{Granularity, check_f32_source, f32_at};
use super::{Inputs, Operation, SignatureError};
use crate::fast::Magnitude;
use crate::format::{F32, Format};
use crate::{Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Absmax {
    /// Format of the input; any but f64.
    pub from: Format,
    /// What a NaN does.
    #[serde(default)]
    pub nan: AbsmaxNan,
    /// Over the tensor, each row, or each block of a row.
    #[serde(default)]
    pub granularity: Granularity,
}

/// What a NaN does to a maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AbsmaxNan {
    /// Makes the result NaN.
    #[default]
    Propagate,
    /// Counts as absent.
    Ignore,
}

impl Absmax {
    fn fast_magnitude(&self) -> Option<Magnitude> {
        Magnitude::new(self.from, self.nan)
    }

    /// Magnitude of an element as f32 bits, which order as the numbers do, NaN last.
    fn magnitude(&self, x: &Tensor, i: usize) -> u32 {
        let magnitude = f32_at(x, self.from, i).abs();
        match (magnitude.is_nan(), self.nan) {
            (false, _) => magnitude.to_bits(),
            (true, AbsmaxNan::Propagate) => NAN,
            (true, AbsmaxNan::Ignore) => 0,
        }
    }
}

/// The canonical NaN, above every other pattern of a magnitude.
const NAN: u32 = 0x7fff_ffff;

impl Operation for Absmax {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(1)?;
        check_f32_source(inputs, self.from)?;
        inputs.dtype(0, self.from)?;
        Ok(vec![TensorType::new(F32, self.granularity.scale_shape(inputs, 0)?)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let x = &inputs[0];
        let shape = self.granularity.groups(x.shape());
        let groups = shape.iter().product::<usize>();
        let extent = x.len().checked_div(groups).unwrap_or(0);
        let ty = TensorType::new(F32, shape);
        if let (Path::Simd(simd), Some(magnitude)) = (path, self.fast_magnitude()) {
            let (codes, width) = (x.packed(), x.dtype().bytes() * extent);
            let y = Tensor::from_fn(ty, path, |group| {
                magnitude.of(simd, &codes[group * width..][..width]).into()
            })?;
            return Ok(vec![y]);
        }
        let y = Tensor::from_fn(ty, path, |group| {
            let elements = group * extent..(group + 1) * extent;
            let max = match path {
                Path::Definition => elements.map(|i| self.magnitude(x, i)).max(),
                Path::Parallel | Path::Simd(_) => {
                    elements.into_par_iter().map(|i| self.magnitude(x, i)).max()
                }
            };
            max.unwrap_or(0).into()
        })?;
        Ok(vec![y])
    }

    fn has_fast_path(&self) -> bool {
        self.fast_magnitude().is_some()
    }

    fn sources(&self, _: &[Tensor], _: usize, _: usize) -> Vec<(usize, usize)> {
        Vec::new()
    }
}
