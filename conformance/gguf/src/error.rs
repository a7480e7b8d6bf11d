//! What is wrong with a file, where, and what to do about it.

use crate::{ALIGNMENT_KEY, MAX_DEPTH, MAX_DIMENSIONS, MAX_NAME, ShapeError, Type, ValueType};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system gives no bytes.
    #[error("{} cannot be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bytes are no GGUF file that can be used.
    #[error("{}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// A problem, and the byte of the file where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {problem}")]
pub struct Error {
    /// Offset from the file's start.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The four letters at the start.
    Magic,
    /// The version.
    Version,
    /// One of the two counts.
    Counts,
    /// The key of a metadata entry, by its index.
    Key(usize),
    /// The value of a key.
    Value(Arc<str>),
    /// The name of a tensor, by its index.
    Name(usize),
    /// What is said of a tensor.
    Tensor(Arc<str>),
    /// An array outside a file.
    Array,
}

/// What is wrong with a file. Each text ends with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end too early.
    #[error(
        "the file ends inside {what}, which takes {wanted} bytes where {left} are left; \
             fetch the file again, this copy is not whole"
    )]
    Truncated {
        /// What is not whole.
        what: What,
        /// Bytes that it takes, as far as is known.
        wanted: u64,
        /// Bytes there.
        left: usize,
    },
    /// Not the magic.
    #[error("the file begins with \"{}\", not with \"GGUF\"; give a GGUF file", found.escape_ascii())]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// Numbers are big-endian.
    #[error(
        "version {version} of the format in big-endian order is not read; \
             convert the file with gguf_convert_endian.py of llama.cpp"
    )]
    BigEndian {
        /// The version.
        version: u32,
    },
    /// Neither version 2 nor 3.
    #[error(
        "version {found} of the format is not read, only 2 and 3 are; \
             convert the model again, with a llama.cpp that writes version 3"
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// More things than there is room for.
    #[error(
        "{count} {things} do not fit into the {left} bytes that follow; \
             fetch the file again, this copy is damaged"
    )]
    Count {
        /// What is counted.
        things: &'static str,
        /// How many there should be.
        count: u64,
        /// Bytes there.
        left: usize,
    },
    /// A key or a name that is too long.
    #[error(
        "{what} is {length} bytes long, more than {MAX_NAME}; convert the model again with a shorter one"
    )]
    LongName {
        /// What is too long.
        what: What,
        /// Its length.
        length: u64,
    },
    /// A text that is too long.
    #[error("{what} holds a text of {length} bytes, more than the {} MiB that ggml reads; \
             convert the model again without it", crate::MAX_TEXT >> 20)]
    LongText {
        /// Where it is.
        what: What,
        /// Its length.
        length: u64,
    },
    /// A text that is not UTF-8.
    #[error("{what} is not UTF-8 from this byte on; convert the model again, or fetch the file again")]
    Utf8 {
        /// Where it is.
        what: What,
    },
    /// No such type of value.
    #[error("{what} has the unknown value type {number}; types are 0 to {}, so fetch the file again, \
             this copy is damaged", ValueType::ALL.len() - 1)]
    ValueType {
        /// Of what.
        what: What,
        /// The number.
        number: u32,
    },
    /// A bool that is neither.
    #[error("{what} has a bool of {byte}, which is neither 0 nor 1; convert the model again")]
    Bool {
        /// Where it is.
        what: What,
        /// The byte.
        byte: u8,
    },
    /// Arrays in arrays in arrays.
    #[error("{what} nests arrays deeper than {MAX_DEPTH}; convert the model again without it")]
    Depth {
        /// Where it is.
        what: What,
    },
    /// A key twice.
    #[error("the key `{}` is there twice; convert the model again with each key once", Shown(key))]
    DuplicateKey {
        /// The key.
        key: Arc<str>,
    },
    /// A name twice.
    #[error("tensor `{}` is there twice; convert the model again with each name once", Shown(name))]
    DuplicateTensor {
        /// The name.
        name: Arc<str>,
    },
    /// The alignment is of another type.
    #[error("{ALIGNMENT_KEY} is of type {found}, not u32; convert the model again")]
    AlignmentType {
        /// Its type.
        found: ValueType,
    },
    /// The alignment is no power of two.
    #[error("{ALIGNMENT_KEY} is {alignment}, not a power of two; convert the model again, 32 is usual")]
    Alignment {
        /// Its value.
        alignment: u32,
    },
    /// Too many dimensions.
    #[error(
        "tensor `{}` has {count} dimensions, ggml has at most {MAX_DIMENSIONS}; \
             convert the model again, or fetch the file again",
        Shown(name)
    )]
    Dimensions {
        /// The tensor.
        name: Arc<str>,
        /// How many.
        count: u32,
    },
    /// No such type of tensor.
    #[error("tensor `{}` has the unknown type {number}, ggml has types up to {}; \
             quantize the model to one of those, or fetch the file again", Shown(name),
             crate::ALL.iter().map(|ty| ty.number).max().unwrap_or_default())]
    UnknownType {
        /// The tensor.
        name: Arc<str>,
        /// The number.
        number: u32,
    },
    /// A type that ggml has given up.
    #[error(
        "tensor `{}` has type {removed}, which was removed from ggml; quantize the model again to {instead}",
        Shown(name)
    )]
    RemovedType {
        /// The tensor.
        name: Arc<str>,
        /// The type's name.
        removed: &'static str,
        /// What takes its place.
        instead: &'static str,
    },
    /// A shape that the type cannot have.
    #[error(
        "tensor `{}` of type {ty} {problem}; convert the model again, or fetch the file again",
        Shown(name)
    )]
    Shape {
        /// The tensor.
        name: Arc<str>,
        /// Its type.
        ty: Type,
        /// What is wrong with the shape.
        problem: ShapeError,
    },
    /// Data that begins between two multiples of the alignment.
    #[error(
        "tensor `{}` begins {offset} bytes into the data, not at a multiple of {alignment}; \
             convert the model again",
        Shown(name)
    )]
    Unaligned {
        /// The tensor.
        name: Arc<str>,
        /// Where it begins.
        offset: u64,
        /// The alignment.
        alignment: u32,
    },
    /// Data that ends after the file.
    #[error(
        "tensor `{}` takes {bytes} bytes from byte {start} on, but the file ends at {end}; \
             fetch the file again, this copy is not whole",
        Shown(name)
    )]
    PastEnd {
        /// The tensor.
        name: Arc<str>,
        /// Where it begins, from the file's start.
        start: u128,
        /// Its bytes.
        bytes: usize,
        /// The file's length.
        end: usize,
    },
    /// Two tensors in one place.
    #[error("tensors `{}` and `{}` overlap; convert the model again", Shown(first), Shown(second))]
    Overlap {
        /// The one that begins first.
        first: Arc<str>,
        /// The other.
        second: Arc<str>,
    },
}

impl Problem {
    pub(crate) fn at(self, at: usize) -> Error {
        Error { at, problem: self }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("the magic"),
            Self::Version => f.write_str("the version"),
            Self::Counts => f.write_str("the counts"),
            Self::Key(index) => write!(f, "the key of metadata entry {index}"),
            Self::Value(key) => write!(f, "the value of `{}`", Shown(key)),
            Self::Name(index) => write!(f, "the name of tensor {index}"),
            Self::Tensor(name) => write!(f, "the record of tensor `{}`", Shown(name)),
            Self::Array => f.write_str("the array"),
        }
    }
}

/// A text from a file, which can hold anything, as it is shown to people: on one line, without
/// control characters, and cut off where it is long.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 80;
        let short: String = self.0.chars().take(WIDTH).collect();
        let more = if short.len() < self.0.len() { "..." } else { "" };
        write!(f, "{}{more}", short.escape_debug())
    }
}
