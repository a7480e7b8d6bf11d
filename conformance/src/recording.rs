//! Tensors of safetensors and GGUF files.

use crate::weights::Rows;
use plumbline_gguf::Model;
use plumbline_reference::{DType, Tensor, TensorType};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Files that have been read, so that a file named by many cases is read once.
#[derive(Default)]
pub(crate) struct Recordings {
    files: HashMap<PathBuf, File>,
    models: HashMap<PathBuf, Model>,
}

/// A file and where its tensors lie.
struct File {
    bytes: Vec<u8>,
    tensors: HashMap<String, Found>,
}

struct Found {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl File {
    fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let bytes = fs::read(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let parsed = SafeTensors::deserialize(&bytes)
            .map_err(|error| format!("{shown} is not a valid safetensors file: {error}"))?;
        let start = bytes.as_ptr() as usize;
        let found = parsed.iter().map(|(name, view)| {
            let at = view.data().as_ptr() as usize - start;
            let bytes = at..at + view.data().len();
            (name.to_owned(), Found { dtype: view.dtype(), shape: view.shape().to_vec(), bytes })
        });
        let tensors = found.collect();
        Ok(Self { bytes, tensors })
    }
}

impl Recordings {
    /// The tensor `name` of `path` as `dtype`, checked against `shape`.
    pub(crate) fn tensor(
        &mut self,
        path: &Path,
        name: &str,
        dtype: DType,
        shape: Option<&[usize]>,
    ) -> Result<Tensor, String> {
        self.with_view(path, name, |found, bytes, found_shape| {
            if !stores(found, dtype) {
                return Err(format!("tensor `{name}` is {found:?} in the file, which does not hold {dtype}"));
            }
            if shape.is_some_and(|shape| shape != found_shape) {
                return Err(format!(
                    "tensor `{name}` has shape {found_shape:?} in the file, the case says {shape:?}"
                ));
            }
            let tensor = Tensor::from_bytes(TensorType::new(dtype, found_shape), bytes.to_vec());
            tensor.map_err(|error| error.to_string())
        })
    }

    /// The tensor `name` of `path`, of that type or a list of as many elements.
    pub(crate) fn flat(&mut self, path: &Path, name: &str, ty: &TensorType) -> Result<Tensor, String> {
        let tensor = self.tensor(path, name, ty.dtype, None)?;
        let (found, expected) = (tensor.shape(), &ty.shape);
        if found != expected && (found.len() > 1 || Ok(tensor.len()) != ty.elements()) {
            return Err(format!(
                "tensor `{name}` has shape {found:?} in the file, the case says {expected:?}"
            ));
        }
        Tensor::from_bytes(ty.clone(), tensor.bytes().to_vec()).map_err(|error| error.to_string())
    }

    /// The tensor `name` of `path` as linear positions.
    pub(crate) fn positions(&mut self, path: &Path, name: &str) -> Result<Vec<usize>, String> {
        self.with_view(path, name, |found, bytes, _| {
            let width = match found {
                Dtype::I64 | Dtype::U64 => 8,
                Dtype::I32 | Dtype::U32 => 4,
                _ => return Err(format!("tensor `{name}` is {found:?} in the file, positions are integers")),
            };
            bytes
                .chunks_exact(width)
                .map(|chunk| {
                    let mut word = [0; 8];
                    word[..width].copy_from_slice(chunk);
                    usize::try_from(u64::from_le_bytes(word))
                        .map_err(|_| "a position is too large".to_owned())
                })
                .collect()
        })
    }

    /// Rows of the tensor `name` of a GGUF file, which are not read yet.
    pub(crate) fn rows(&mut self, path: &Path, name: &str, rows: Option<[usize; 2]>) -> Result<Rows, String> {
        if !self.models.contains_key(path) {
            let model = Model::open(path).map_err(|error| with_sources(&error))?;
            self.models.insert(path.to_owned(), model);
        }
        Rows::of(&self.models[path], name, rows)
    }

    fn with_view<T>(
        &mut self,
        path: &Path,
        name: &str,
        f: impl FnOnce(Dtype, &[u8], &[usize]) -> Result<T, String>,
    ) -> Result<T, String> {
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), File::read(path)?);
        }
        let file = &self.files[path];
        let Some(found) = file.tensors.get(name) else {
            let mut names: Vec<_> = file.tensors.keys().map(String::as_str).collect();
            names.sort_unstable();
            names.truncate(20);
            return Err(format!("{} has no tensor `{name}`; it has {}", path.display(), names.join(", ")));
        };
        f(found.dtype, &file.bytes[found.bytes.clone()], &found.shape)
    }
}

/// An error and what it comes from, as one text: that of a case is one.
fn with_sources(error: &dyn Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Whether a file's element type can hold the codes of `dtype`: the type itself, or
/// unsigned integers of its size.
fn stores(found: Dtype, dtype: DType) -> bool {
    match found {
        Dtype::U8 => dtype.bytes() == 1,
        Dtype::U16 => dtype.bytes() == 2,
        Dtype::U32 => dtype.bytes() == 4,
        Dtype::U64 => dtype.bytes() == 8,
        Dtype::F8_E4M3 => dtype.name() == "e4m3fn",
        Dtype::F8_E5M2 => dtype.name() == "e5m2",
        Dtype::F8_E8M0 => dtype.name() == "e8m0",
        Dtype::F16 => dtype.name() == "f16",
        Dtype::BF16 => dtype.name() == "bf16",
        Dtype::F32 => matches!(dtype.name(), "f32" | "tf32"),
        Dtype::F64 => dtype.name() == "f64",
        _ => false,
    }
}
