//! The bytes of a file: mapped into memory, or read.

use memmap2::Mmap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file, all or some: cheap to clone, freed with the last clone.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    range: Range<usize>,
}

enum Source {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file into memory, where it costs nothing until it is looked at.
    ///
    /// The file must not change meanwhile. Where another process shortens it, looking beyond
    /// its new end ends this process by a signal (`SIGBUS`; on Windows the other process is
    /// refused instead); where one writes to it, bytes change between two looks at them: what
    /// was checked may no longer hold, though every place is still inside, and every text that
    /// was taken out is still UTF-8. [`Bytes::read`] has neither problem.
    pub fn map(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = open(path.as_ref())?;
        // Of no bytes there is no map.
        if file.metadata()?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        Ok(Self::whole(Source::Mapped(map(&file)?)))
    }

    /// Reads a file into memory.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut open(path.as_ref())?, &mut bytes)?;
        Ok(Self::from(bytes))
    }

    /// Some of these bytes; `None` where they do not have them all.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Self { source: Arc::clone(&self.source), range: start + range.start..start + range.end })
    }

    fn whole(source: Source) -> Self {
        let range = 0..source.len();
        Self { source: Arc::new(source), range }
    }
}

/// Opens what has a length. A pipe would let us wait, and a device may have no end.
fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file; give the path of a file"))
    }
}

#[allow(unsafe_code, reason = "a file's bytes in memory are only as constant as the file")]
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: that the file stays as it is while it is mapped is the caller's to see to, as
    // `Bytes::map` says, for no program can hold off all others. Where another process writes
    // to it all the same, bytes may change between two looks at them, and nothing in this crate
    // relies on their staying the same: numbers and texts are copied, the copies are checked,
    // and no length or offset is looked up twice. Where one shortens it, the next look beyond
    // its end ends this process by a signal.
    unsafe { Mmap::map(file) }
}

impl Deref for Source {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.source[self.range.clone()]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::whole(Source::Owned(bytes))
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside() {
        let bytes = Bytes::from(&[0, 1, 2, 3, 4][..]);
        let slice = bytes.slice(1..4).unwrap();
        assert_eq!(*slice, [1, 2, 3]);
        assert_eq!(*slice.slice(1..3).unwrap(), [2, 3]);
        assert!(slice.slice(3..3).unwrap().is_empty());
        assert!(slice.slice(2..4).is_none());
        assert!(slice.slice(usize::MAX..usize::MAX).is_none());
    }

    #[test]
    fn mapped_and_read_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for content in [&b""[..], b"GGUF"] {
            let path = folder.path().join("file");
            fs::write(&path, content).unwrap();
            assert_eq!(*Bytes::map(&path).unwrap(), *content);
            assert_eq!(*Bytes::read(&path).unwrap(), *content);
        }
        let error = Bytes::map(folder.path()).unwrap_err();
        assert!(error.to_string().contains("give the path of a file"), "{error}");
    }
}
