//! GGUF model files: tensors and metadata in one file, made to be mapped into memory.
//!
//! ```text
//! magic "GGUF", version u32, tensor count u64, metadata count u64
//! metadata     key, type u32, value
//! tensors      name, number of dimensions u32, dimensions u64, type u32, offset u64
//! zeros        up to a multiple of the alignment
//! data         each tensor at its offset, a multiple of the alignment
//! ```
//! Numbers are little-endian; a text is its length as u64 and that many bytes of UTF-8. The
//! format is defined in `docs/gguf.md` of ggml, and where that is silent by `gguf.cpp` there.
//! Versions 2 and 3 are read, which differ only in that 3 may be big-endian, and such files
//! are refused.
//!
//! ```
//! use plumbline_gguf::{Model, Type, Writer};
//! let file = Writer::new().tensor("bias", Type::F32, [2], vec![0; 8]).to_bytes()?;
//! let model = Model::parse(file)?;
//! let bias = model.tensor("bias").expect("it was written");
//! assert_eq!((bias.ty().name, bias.shape(), bias.data()), ("f32", &[2][..], &[0; 8][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file is judged whole before any of it is used: after [`Model::parse`] every tensor lies
//! inside the file, apart from all others, and holds whole blocks. No count in a file is
//! believed: memory is taken only for what its bytes have been seen. Of the tensors' data no
//! byte is read.

mod bytes;
mod cursor;
mod error;
mod model;
mod types;
mod value;
mod writer;

pub use bytes::Bytes;
pub use error::{Error, OpenError, Problem, Shown, What};
pub use model::{Entry, Model, Tensor};
pub use types::{ALL, ShapeError, Type};
pub use value::{Array, Elements, MixedArray, Value, ValueType};
pub use writer::{WriteError, Writer};

/// The key that says what tensors are aligned to, a power of two as a `u32`.
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// What tensors are aligned to where the file does not say.
pub const DEFAULT_ALIGNMENT: u32 = 32;
/// The most dimensions that a tensor has.
pub const MAX_DIMENSIONS: usize = 4;
/// How deep arrays may be nested in arrays. The format has no limit; ggml reads depth 1.
pub const MAX_DEPTH: usize = 8;
/// The most bytes of a key, by the format, and of a tensor's name.
pub const MAX_NAME: usize = 65_535;
/// The most bytes of a text, as in ggml.
pub const MAX_TEXT: usize = 64 << 20;
