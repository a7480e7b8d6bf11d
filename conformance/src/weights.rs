//! Tensors of a GGUF model: as inputs of cases, and cases of their own for `--weights`.

use crate::case::Profile;
use crate::load::LoadError;
use crate::recording::Recordings;
use crate::source::{Case, Place};
use plumbline_gguf::{Model, OpenError, Shown};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{F16, F32};
use plumbline_reference::ops::gemv::{Gemv, warp_order};
use plumbline_reference::ops::{Activations, BlockConversion, Dequantize, Op};
use plumbline_reference::{DType, Tensor, TensorType};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Rows of blocks of a model's tensor. They stay in the file until a case is built.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    tensor: plumbline_gguf::Tensor,
    format: BlockFormat,
    rows: Range<usize>,
    /// Values of a row.
    k: usize,
}

impl Rows {
    /// Rows of the tensor of that name: all, or from the first to before the second.
    pub(crate) fn of(model: &Model, name: &str, rows: Option<[usize; 2]>) -> Result<Self, String> {
        let tensor = model.tensor(name).ok_or_else(|| {
            let names = model.tensors().iter().take(20).map(|tensor| Shown(tensor.name()).to_string());
            format!(
                "the model has no tensor `{}`; `plumbline gguf ls` lists what it has: {}",
                Shown(name),
                names.collect::<Vec<_>>().join(", ")
            )
        })?;
        let (name, ty) = (Shown(name), tensor.ty().name);
        let format = BlockFormat::by_name(ty).ok_or_else(|| {
            let formats = BlockFormat::ALL.map(BlockFormat::name).join(", ");
            format!("tensor `{name}` is of type {ty}, which has no blocks here; take one of type {formats}")
        })?;
        let (k, all) = extents(tensor.shape());
        let [first, end] = rows.unwrap_or([0, all]);
        if first > end || end > all {
            return Err(format!(
                "rows: [{first}, {end}] is not within the {all} rows of tensor `{name}`; write the first, \
                 from 0, and the one after the last"
            ));
        }
        let rows = first..end;
        Ok(Self { tensor: tensor.clone(), format, rows, k })
    }

    /// `u8[rows, K / values, bytes]`.
    pub(crate) fn ty(&self) -> TensorType {
        let (values, bytes) = (self.format.values(), self.format.bytes());
        TensorType::new(DType::U8, [self.rows.len(), self.k / values, bytes])
    }

    /// The format of the blocks.
    pub(crate) const fn format(&self) -> BlockFormat {
        self.format
    }

    /// Reads them.
    pub(crate) fn read(&self) -> Result<Tensor, String> {
        let row = self.k / self.format.values() * self.format.bytes();
        let bytes = &self.tensor.data()[self.rows.start * row..self.rows.end * row];
        Tensor::from_bytes(self.ty(), bytes.to_vec()).map_err(|error| error.to_string())
    }
}

/// Values of a row, and how many rows all outer dimensions make. A shape without values has no
/// rows; without that, the product of its other dimensions could be any.
fn extents(shape: &[usize]) -> (usize, usize) {
    let (&k, outer) = shape.split_last().unwrap_or((&1, &[]));
    (k, if shape.contains(&0) { 0 } else { outer.iter().product() })
}

/// Why there are no cases of a model.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file is missing or is no GGUF file that can be used.
    #[error("--weights needs a GGUF model")]
    Open(#[from] OpenError),
    /// What a case names is looked for beside its file, so that the path has to be absolute.
    #[error("--weights: {} cannot be made absolute; give an absolute path", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Cases are text.
    #[error("--weights: {} is no text in UTF-8, as paths of cases are; rename the file", .0.display())]
    NotUtf8(PathBuf),
    /// The file has no blocks.
    #[error(
        "--weights: {} has no tensor of blocks, but {types}; give a model that is quantized",
        path.display()
    )]
    NoBlocks {
        /// The file.
        path: PathBuf,
        /// What its tensors are.
        types: String,
    },
    /// A case is not as cases are.
    #[error("--weights: a case of tensor `{tensor}` is none; please report it")]
    Case {
        /// The tensor.
        tensor: String,
        /// What is wrong with the case.
        source: serde_json::Error,
    },
    /// A case could not be made.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Cases on tensors of a model, and how many tensors of which type have none.
pub(crate) struct Weights {
    pub(crate) cases: Vec<Case>,
    pub(crate) left_out: BTreeMap<String, usize>,
}

/// Rows of a case: at the start and at the end of a tensor in the quick and the full profile, all
/// of them in the exhaustive one.
const fn rows_of_case(profile: Profile) -> usize {
    match profile {
        Profile::Quick => 8,
        Profile::Full => 128,
        Profile::Exhaustive => 1024,
    }
}

/// Decoding and products of every tensor of blocks.
pub(crate) fn cases(path: &Path, profile: Profile) -> Result<Weights, WeightsError> {
    let model = Model::open(path)?;
    let path = &std::path::absolute(path)
        .map_err(|source| WeightsError::Relative { path: path.to_owned(), source })?;
    let file = path.to_str().ok_or_else(|| WeightsError::NotUtf8(path.clone()))?;
    let mut recordings = Recordings::default();
    let mut weights = Weights { cases: Vec::new(), left_out: BTreeMap::new() };
    for tensor in model.tensors() {
        let ty = tensor.ty().name;
        let (k, rows) = extents(tensor.shape());
        let format = match BlockFormat::by_name(ty) {
            Some(format) if rows > 0 => format,
            found => {
                let empty = if found.is_some() { "empty " } else { "" };
                *weights.left_out.entry(format!("{empty}tensors of type {ty}")).or_default() += 1;
                continue;
            }
        };
        for part in parts(rows, profile) {
            for (what, op, vector) in operations(format, k) {
                let rows = format!("rows_{}_{}", part.start, part.end);
                let name = format!("weights/{}/{what}/{rows}", tensor.name().escape_debug());
                let matrix = json!({
                    "dtype": "u8",
                    "file": file,
                    "tensor": tensor.name(),
                    "blocks": format,
                    "rows": [part.start, part.end],
                });
                let inputs: Vec<_> = [Some(matrix), vector].into_iter().flatten().collect();
                let spec = json!({ "name": name, "op": op, "inputs": inputs, "profile": profile });
                let spec = serde_json::from_value(spec).map_err(|source| {
                    let tensor = Shown(tensor.name()).to_string();
                    WeightsError::Case { tensor, source }
                })?;
                let place = Place { file: path.as_path().into(), text: "".into(), path: Vec::new() };
                weights.cases.push(Case::new(name, spec, place, 0, &mut recordings)?);
            }
        }
    }
    if weights.cases.is_empty() {
        let types = weights.left_out.iter().map(|(what, count)| format!("{count} {what}"));
        let types = types.collect::<Vec<_>>().join(", ");
        let types = if types.is_empty() { "no tensors at all".to_owned() } else { types };
        return Err(WeightsError::NoBlocks { path: path.clone(), types });
    }
    Ok(weights)
}

/// The rows of each case: one part at the start and one at the end, or all of them in parts.
fn parts(rows: usize, profile: Profile) -> Vec<Range<usize>> {
    let most = rows_of_case(profile);
    match profile {
        Profile::Quick | Profile::Full if rows > most => vec![0..most, rows - most..rows],
        _ => (0..rows).step_by(most).map(|first| first..rows.min(first + most)).collect(),
    }
}

/// What is done with rows of K values: the operation, and the vector it takes.
fn operations(format: BlockFormat, k: usize) -> Vec<(String, Op, Option<Value>)> {
    let dequantize = [F32, F16].map(|to| {
        let op = Dequantize { from: format, to, conversion: BlockConversion::Direct };
        (format!("dequantize_{to}"), op.into(), None)
    });
    let vectors = [
        (Activations::F32, json!({ "dtype": "f32", "shape": [k], "generate": "random_finite" })),
        (Activations::Q8_1, json!({ "dtype": "u8", "shape": [k], "blocks": "q8_1", "generate": "blocks" })),
    ];
    let products = vectors.map(|(activations, vector)| {
        let accumulate = Some(warp_order(format, activations));
        let op = Gemv { accumulate, ..Gemv::new(format, activations) };
        let name = activations.blocks().map_or("f32", BlockFormat::name);
        (format!("gemv_{name}"), op.into(), Some(vector))
    });
    dequantize.into_iter().chain(products).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_both_ends_or_all() {
        assert_eq!(parts(8, Profile::Quick), Vec::from_iter(std::iter::once(0..8)));
        assert_eq!(parts(9, Profile::Quick), [0..8, 1..9]);
        assert_eq!(parts(4096, Profile::Full), [0..128, 3968..4096]);
        assert_eq!(parts(2049, Profile::Exhaustive), [0..1024, 1024..2048, 2048..2049]);
        assert!(parts(0, Profile::Quick).is_empty());
    }

    #[test]
    fn extents_of_a_shape() {
        assert_eq!(extents(&[]), (1, 1));
        assert_eq!(extents(&[512]), (512, 1));
        assert_eq!(extents(&[2, 3, 512]), (512, 6));
        assert_eq!(extents(&[1 << 40, 1 << 40, 0, 256]), (256, 0));
        assert_eq!(extents(&[1 << 40, 1 << 40, 0]), (0, 0));
    }
}
