//! Writing a file.

use crate::error::{Problem, Shown, What};
use crate::value::write_text;
use crate::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAX_DEPTH, MAX_DIMENSIONS, MAX_NAME, MAX_TEXT};
use crate::{Bytes, ShapeError, Type, Value, cursor};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file in the making.
///
/// ```
/// use plumbline_gguf::{Type, Writer};
/// let file = Writer::new()
///     .metadata("general.architecture", "llama")
///     .alignment(64)
///     .tensor("blk.0.attn_q.weight", Type::Q8_0, [2, 32], vec![0; 2 * 34])
///     .to_bytes()?;
/// assert_eq!(file.len() % 64, 0);
/// # Ok::<(), plumbline_gguf::WriteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Planned>,
}

/// A tensor to be written.
#[derive(Clone, Debug)]
struct Planned {
    name: String,
    ty: Type,
    shape: Vec<usize>,
    /// `None` for zeros.
    data: Option<Vec<u8>>,
}

/// Where a tensor goes.
struct Place {
    /// From the start of the data.
    offset: u64,
    bytes: u64,
}

/// What is written besides the tensors' data.
struct Plan {
    /// Everything before the data, without padding.
    header: Vec<u8>,
    places: Vec<Place>,
    alignment: u64,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Neither 2 nor 3.
    #[error("version {0} of the format is not written; ask for 2 or 3")]
    Version(u32),
    /// A key twice.
    #[error("the key `{}` was given twice; give it once", Shown(.0))]
    DuplicateKey(String),
    /// A name twice.
    #[error("tensor `{}` was given twice; give each a name of its own", Shown(.0))]
    DuplicateTensor(String),
    /// A key or a name longer than the format allows.
    #[error("`{}` is longer than {MAX_NAME} bytes; give a shorter name", Shown(.0))]
    LongName(String),
    /// A text longer than ggml reads.
    #[error("a text of `{}` is longer than {} MiB; give a shorter one", Shown(.0), MAX_TEXT >> 20)]
    LongText(String),
    /// Arrays in arrays in arrays.
    #[error("`{}` nests arrays deeper than {MAX_DEPTH}; give flatter ones", Shown(.0))]
    Depth(String),
    /// An array of a mapped file whose bytes are no longer those that were read.
    #[error("`{}` is of a file that was changed meanwhile; read that file anew", Shown(.0))]
    Changed(String),
    /// The alignment is no power of two.
    #[error("{ALIGNMENT_KEY} must be a power of two, as a u32; 32 is usual")]
    Alignment,
    /// Too many dimensions.
    #[error("tensor `{}` has {dimensions} dimensions; give at most {MAX_DIMENSIONS}", Shown(name))]
    Dimensions {
        /// The tensor.
        name: String,
        /// How many.
        dimensions: usize,
    },
    /// A shape that the type cannot have.
    #[error("tensor `{}` {problem}; give another shape or type", Shown(name))]
    Shape {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        problem: ShapeError,
    },
    /// The data is not what the shape takes.
    #[error("tensor `{}` takes {expected} bytes, {given} were given; give whole blocks", Shown(name))]
    Data {
        /// The tensor.
        name: String,
        /// Bytes of its type and shape.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The system takes no bytes.
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
    /// The system takes no bytes for the file of that path.
    #[error("{} cannot be written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// An empty file of version 3.
    #[must_use]
    pub fn new() -> Self {
        Self { version: 3, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Sets the version: 2 or 3.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Adds an entry of metadata.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds the entry that says what tensors are aligned to: a power of two.
    #[must_use]
    pub fn alignment(self, bytes: u32) -> Self {
        self.metadata(ALIGNMENT_KEY, bytes)
    }

    /// Adds a tensor: its shape outermost dimension first, and its blocks.
    #[must_use]
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        ty: Type,
        shape: impl Into<Vec<usize>>,
        data: impl Into<Vec<u8>>,
    ) -> Self {
        let (name, shape, data) = (name.into(), shape.into(), Some(data.into()));
        self.tensors.push(Planned { name, ty, shape, data });
        self
    }

    /// Adds a tensor whose bytes are all 0. A file system that can does not store them.
    #[must_use]
    pub fn zeros(mut self, name: impl Into<String>, ty: Type, shape: impl Into<Vec<usize>>) -> Self {
        self.tensors.push(Planned { name: name.into(), ty, shape: shape.into(), data: None });
        self
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut out = Cursor::new(Vec::new());
        self.write_to(&mut out)?;
        Ok(out.into_inner())
    }

    /// Writes a new file, or over an old one, which is left as it is where this one cannot be
    /// written at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        let (path, plan) = (path.as_ref(), self.plan()?);
        let written = File::create(path).and_then(|file| self.put(&plan, &mut io::BufWriter::new(file)));
        written.map_err(|source| WriteError::File { path: path.to_owned(), source })
    }

    /// Writes the file from where `out` is. Zeros are skipped over, the last byte is written.
    pub fn write_to(&self, out: &mut (impl Write + Seek)) -> Result<(), WriteError> {
        Ok(self.put(&self.plan()?, out)?)
    }

    /// Header and places, if everything can be written.
    fn plan(&self) -> Result<Plan, WriteError> {
        let alignment = self.checked_alignment()?.into();
        let entries = self.checked_entries()?;
        let places = self.checked_tensors(alignment)?;
        Ok(Plan { header: self.header(&entries, &places), places, alignment })
    }

    fn put(&self, plan: &Plan, out: &mut (impl Write + Seek)) -> io::Result<()> {
        let Plan { header, places, alignment } = plan;
        out.write_all(header)?;
        // Bytes that were skipped and that no byte after them has made real yet.
        let mut skipped = padding(header.len() as u64, *alignment);
        for (tensor, place) in self.tensors.iter().zip(places) {
            match &tensor.data {
                Some(data) if !data.is_empty() => {
                    skip(out, skipped)?;
                    out.write_all(data)?;
                    skipped = 0;
                }
                _ => skipped += place.bytes,
            }
            skipped += padding(place.bytes, *alignment);
        }
        if let Some(before_last) = skipped.checked_sub(1) {
            skip(out, before_last)?;
            out.write_all(&[0])?;
        }
        out.flush()
    }

    /// Everything before the data, without padding.
    fn header(&self, entries: &[u8], places: &[Place]) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        out.extend(entries);
        for (tensor, place) in self.tensors.iter().zip(places) {
            write_text(&tensor.name, &mut out);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            for &extent in tensor.shape.iter().rev() {
                out.extend((extent as u64).to_le_bytes());
            }
            out.extend(tensor.ty.number.to_le_bytes());
            out.extend(place.offset.to_le_bytes());
        }
        out
    }

    /// The metadata as the file has it, if it can be written.
    fn checked_entries(&self) -> Result<Vec<u8>, WriteError> {
        if !matches!(self.version, 2 | 3) {
            return Err(WriteError::Version(self.version));
        }
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        for (key, value) in &self.metadata {
            if !seen.insert(key) {
                return Err(WriteError::DuplicateKey(key.clone()));
            }
            if key.len() > MAX_NAME {
                return Err(WriteError::LongName(key.clone()));
            }
            write_text(key, &mut entries);
            entries.extend(value.ty().number().to_le_bytes());
            entries.extend_from_slice(&checked_value(key, value)?);
        }
        Ok(entries)
    }

    /// Where each tensor goes, if all can be written.
    fn checked_tensors(&self, alignment: u64) -> Result<Vec<Place>, WriteError> {
        let (mut places, mut end, mut seen) = (Vec::new(), 0u64, HashSet::new());
        for tensor in &self.tensors {
            let name = || tensor.name.clone();
            if !seen.insert(&tensor.name) {
                return Err(WriteError::DuplicateTensor(name()));
            }
            let bytes = tensor.checked()?;
            places.push(Place { offset: end, bytes });
            end = end
                .checked_add(bytes + padding(bytes, alignment))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| WriteError::Shape { name: name(), problem: ShapeError::TooLarge })?;
        }
        Ok(places)
    }

    fn checked_alignment(&self) -> Result<u32, WriteError> {
        match self.metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some(&(_, Value::U32(alignment))) if alignment.is_power_of_two() => Ok(alignment),
            Some(_) => Err(WriteError::Alignment),
        }
    }
}

impl Planned {
    /// Its bytes, if it can be written.
    fn checked(&self) -> Result<u64, WriteError> {
        let name = self.name.clone();
        if name.len() > MAX_NAME {
            return Err(WriteError::LongName(name));
        }
        if self.shape.len() > MAX_DIMENSIONS {
            return Err(WriteError::Dimensions { name, dimensions: self.shape.len() });
        }
        let expected = match self.ty.bytes_of(&self.shape) {
            Ok(expected) => expected,
            Err(problem) => return Err(WriteError::Shape { name, problem }),
        };
        match &self.data {
            Some(data) if data.len() != expected => {
                Err(WriteError::Data { name, expected, given: data.len() })
            }
            _ => Ok(expected as u64),
        }
    }
}

/// A value as the file has it, which the reader accepts: it has read it.
fn checked_value(key: &str, value: &Value) -> Result<Bytes, WriteError> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    let bytes = Bytes::from(bytes);
    match cursor::Cursor::new(&bytes).value(value.ty(), &What::Value(key.into())) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.problem {
            Problem::LongText { .. } => WriteError::LongText(key.to_owned()),
            Problem::Depth { .. } => WriteError::Depth(key.to_owned()),
            _ => WriteError::Changed(key.to_owned()),
        }),
    }
}

/// From a place to the next multiple of the alignment.
fn padding(at: u64, alignment: u64) -> u64 {
    at.next_multiple_of(alignment) - at
}

/// Goes on by so many bytes.
fn skip(out: &mut impl Seek, bytes: u64) -> io::Result<()> {
    if bytes > 0 {
        out.seek(SeekFrom::Current(i64::try_from(bytes).map_err(io::Error::other)?))?;
    }
    Ok(())
}
