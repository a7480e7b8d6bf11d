//! Reading a file.

use crate::cursor::Cursor;
use crate::error::{Error, OpenError, Problem, What};
use crate::{ALIGNMENT_KEY, Bytes, DEFAULT_ALIGNMENT, MAX_DIMENSIONS, ShapeError, Type, Value};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Least bytes of a metadata entry: an empty key, a type and a byte.
const LEAST_ENTRY: usize = 8 + 4 + 1;
/// Least bytes of a tensor's record: an empty name, no dimensions, a type and an offset.
const LEAST_RECORD: usize = 8 + 4 + 4 + 8;

/// A file that was found good, whole.
#[derive(Clone, Debug)]
pub struct Model {
    version: u32,
    alignment: u32,
    data_offset: usize,
    metadata: Vec<Entry>,
    keys: HashMap<Arc<str>, usize>,
    tensors: Vec<Tensor>,
    names: HashMap<Arc<str>, usize>,
}

/// One entry of the metadata.
#[derive(Clone, Debug)]
pub struct Entry {
    key: Arc<str>,
    value: Value,
}

/// A tensor: what it is, and where its bytes are. It holds on to the file, and may outlive
/// the [`Model`].
#[derive(Clone, Debug)]
pub struct Tensor {
    name: Arc<str>,
    ty: Type,
    shape: Vec<usize>,
    offset: usize,
    bytes: Bytes,
}

/// What a file says of a tensor, before its data is looked for.
struct Record {
    name: Arc<str>,
    ty: Type,
    shape: Vec<usize>,
    bytes: usize,
    /// From the start of the data.
    offset: u64,
    /// Where in the file the offset stands.
    at: usize,
}

impl Model {
    /// Maps a file into memory and parses it. See [`Bytes::map`] for what must not happen to
    /// the file meanwhile.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::of_file(path.as_ref(), |path| Bytes::map(path))
    }

    /// Reads a file into memory and parses it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::of_file(path.as_ref(), |path| Bytes::read(path))
    }

    fn of_file(path: &Path, bytes: impl Fn(&Path) -> io::Result<Bytes>) -> Result<Self, OpenError> {
        let bytes = bytes(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Self::parse(bytes).map_err(|source| OpenError::Malformed { path: path.to_owned(), source })
    }

    /// Parses the bytes of a file. The time is that of going through header, metadata and
    /// records once, and of sorting the records.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let mut cursor = Cursor::new(&bytes);
        let version = version(&mut cursor)?;
        let tensor_count = cursor.count("tensors", LEAST_RECORD, &What::Counts)?;
        let entry_count = cursor.count("metadata entries", LEAST_ENTRY, &What::Counts)?;

        let mut model = Self {
            version,
            alignment: DEFAULT_ALIGNMENT,
            data_offset: 0,
            metadata: Vec::new(),
            keys: HashMap::new(),
            tensors: Vec::new(),
            names: HashMap::new(),
        };
        for index in 0..entry_count {
            model.entry(&mut cursor, index)?;
        }
        let mut records = Vec::new();
        for index in 0..tensor_count {
            records.push(model.record(&mut cursor, index)?);
        }
        // Where the sum overflows, as it can in 32 bits, no tensor is found.
        model.data_offset =
            cursor.at().checked_next_multiple_of(model.alignment as usize).unwrap_or(usize::MAX);
        for record in &records {
            model.tensors.push(record.find(&bytes, model.data_offset)?);
        }
        apart(&records)?;
        Ok(model)
    }

    fn entry(&mut self, cursor: &mut Cursor<'_>, index: usize) -> Result<(), Error> {
        let at = cursor.at();
        let key = cursor.name(&What::Key(index))?;
        if self.keys.insert(Arc::clone(&key), index).is_some() {
            return Err(Problem::DuplicateKey { key }.at(at));
        }
        let what = What::Value(Arc::clone(&key));
        let at = cursor.at();
        let ty = cursor.value_type(&what)?;
        let value_at = cursor.at();
        let value = cursor.value(ty, &what)?;
        if *key == *ALIGNMENT_KEY {
            let Value::U32(alignment) = value else {
                return Err(Problem::AlignmentType { found: ty }.at(at));
            };
            if !alignment.is_power_of_two() {
                return Err(Problem::Alignment { alignment }.at(value_at));
            }
            self.alignment = alignment;
        }
        self.metadata.push(Entry { key, value });
        Ok(())
    }

    fn record(&mut self, cursor: &mut Cursor<'_>, index: usize) -> Result<Record, Error> {
        let at = cursor.at();
        let name = cursor.name(&What::Name(index))?;
        if self.names.insert(Arc::clone(&name), index).is_some() {
            return Err(Problem::DuplicateTensor { name }.at(at));
        }
        let what = What::Tensor(Arc::clone(&name));
        let shape_at = cursor.at();
        let dimensions = dimensions(cursor, &name, &what)?;
        let type_at = cursor.at();
        let number = cursor.u32(&what)?;
        let ty = Type::from_number(number).ok_or_else(|| {
            let name = Arc::clone(&name);
            let problem = match Type::removed(number) {
                Some((removed, instead)) => Problem::RemovedType { name, removed, instead },
                None => Problem::UnknownType { name, number },
            };
            problem.at(type_at)
        })?;
        let shape: Result<Vec<_>, _> = dimensions.into_iter().map(usize::try_from).collect();
        let (shape, bytes) = shape
            .map_err(|_| ShapeError::TooLarge)
            .and_then(|shape| ty.bytes_of(&shape).map(|bytes| (shape, bytes)))
            .map_err(|problem| Problem::Shape { name: Arc::clone(&name), ty, problem }.at(shape_at))?;
        let at = cursor.at();
        let offset = cursor.u64(&what)?;
        if !offset.is_multiple_of(self.alignment.into()) {
            return Err(Problem::Unaligned { name, offset, alignment: self.alignment }.at(at));
        }
        Ok(Record { name, ty, shape, bytes, offset, at })
    }

    /// Version of the format: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensors are aligned to, in bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Where the data begins, from the file's start. Without tensors it may lie beyond the end.
    #[must_use]
    pub fn data_offset(&self) -> usize {
        self.data_offset
    }

    /// The metadata in the file's order.
    #[must_use]
    pub fn metadata(&self) -> &[Entry] {
        &self.metadata
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        Some(&self.metadata[*self.keys.get(key)?].value)
    }

    /// The tensors in the file's order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        Some(&self.tensors[*self.names.get(name)?])
    }
}

impl Entry {
    /// The key: `general.architecture`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Tensor {
    /// The name: `blk.0.attn_q.weight`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its values.
    #[must_use]
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Extent of each dimension, outermost first: `[N, K]` of a weight whose rows are K values
    /// long. Files have them the other way round.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of values.
    #[must_use]
    pub fn values(&self) -> u64 {
        (self.bytes.len() / self.ty.block_bytes) as u64 * self.ty.block_values as u64
    }

    /// Where its bytes begin, from the file's start.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its bytes: whole blocks, rows one after the other without gaps.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.bytes
    }
}

/// Magic and version.
fn version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let found = cursor.array(&What::Magic)?;
    if found != *b"GGUF" {
        return Err(Problem::Magic { found }.at(0));
    }
    let at = cursor.at();
    match cursor.u32(&What::Version)? {
        version @ 2..=3 => Ok(version),
        // Small numbers have their low bytes first.
        found if found != 0 && found & 0xffff == 0 => {
            Err(Problem::BigEndian { version: found.swap_bytes() }.at(at))
        }
        found => Err(Problem::Version { found }.at(at)),
    }
}

/// The dimensions, outermost first.
fn dimensions(cursor: &mut Cursor<'_>, name: &Arc<str>, what: &What) -> Result<Vec<u64>, Error> {
    let at = cursor.at();
    let count = cursor.u32(what)?;
    if count as usize > MAX_DIMENSIONS {
        return Err(Problem::Dimensions { name: Arc::clone(name), count }.at(at));
    }
    let mut dimensions = (0..count).map(|_| cursor.u64(what)).collect::<Result<Vec<_>, _>>()?;
    dimensions.reverse();
    Ok(dimensions)
}

impl Record {
    /// The tensor, with its bytes.
    fn find(&self, file: &Bytes, data_offset: usize) -> Result<Tensor, Error> {
        let offset = usize::try_from(self.offset).ok().and_then(|offset| offset.checked_add(data_offset));
        let range = offset.and_then(|start| Some(start..start.checked_add(self.bytes)?));
        let found = range.and_then(|range| Some((range.start, file.slice(range)?)));
        let (offset, bytes) = found.ok_or_else(|| {
            let start = u128::from(self.offset) + data_offset as u128;
            Problem::PastEnd { name: Arc::clone(&self.name), start, bytes: self.bytes, end: file.len() }
                .at(self.at)
        })?;
        Ok(Tensor { name: Arc::clone(&self.name), ty: self.ty, shape: self.shape.clone(), offset, bytes })
    }
}

/// No byte is of two tensors. Their ends are known to lie inside the file.
fn apart(records: &[Record]) -> Result<(), Error> {
    let mut sorted: Vec<_> = records.iter().filter(|record| record.bytes > 0).collect();
    sorted.sort_by_key(|record| (record.offset, record.at));
    for (first, second) in sorted.iter().zip(sorted.iter().skip(1)) {
        if second.offset - first.offset < first.bytes as u64 {
            let (first, at, second) = (&first.name, second.at, &second.name);
            return Err(Problem::Overlap { first: Arc::clone(first), second: Arc::clone(second) }.at(at));
        }
    }
    Ok(())
}
