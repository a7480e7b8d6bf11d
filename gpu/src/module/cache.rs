//! Compiled code on disk. A file holds its whole key, so a collision of file names or an
//! older source is never taken for the code that was asked for, and a checksum, so neither
//! is a damaged file. Without a usable folder everything is compiled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A folder of compiled code.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<PathBuf>,
}

const MAGIC: &[u8; 16] = b"plumbline cubin\n";

impl Cache {
    /// In that folder.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// No cache.
    #[must_use]
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// The folder of `PLUMBLINE_CACHE` (none if that is empty), else `plumbline` in
    /// `XDG_CACHE_HOME` or `~/.cache`.
    #[must_use]
    pub fn of_user() -> Self {
        if let Some(folder) = env::var_os("PLUMBLINE_CACHE") {
            return if folder.is_empty() { Self::none() } else { Self::at(folder) };
        }
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        Self { folder: folder.map(|folder| folder.join("plumbline")) }
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.folder.as_ref()?.join(file_name(key))).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let cubin = rest.strip_prefix(&(key.len() as u64).to_le_bytes())?.strip_prefix(key.as_bytes())?;
        (u64::from_le_bytes(*sum) == hash(cubin)).then(|| cubin.to_vec())
    }

    /// Keeps code. The file appears whole or not at all, whoever else writes it.
    pub(super) fn put(&self, key: &str, cubin: &[u8]) {
        let Some(folder) = &self.folder else { return };
        // What cannot be kept is compiled again.
        let _ = write(folder, key, cubin);
    }
}

fn write(folder: &Path, key: &str, cubin: &[u8]) -> std::io::Result<()> {
    static UNIQUE: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(folder)?;
    let unique = format!("{}-{}.tmp", process::id(), UNIQUE.fetch_add(1, Ordering::Relaxed));
    let temporary = folder.join(unique);
    let len = (key.len() as u64).to_le_bytes();
    let parts: [&[u8]; 5] = [MAGIC, &hash(cubin).to_le_bytes(), &len, key.as_bytes(), cubin];
    let written = fs::write(&temporary, parts.concat())
        .and_then(|()| fs::rename(&temporary, folder.join(file_name(key))));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn file_name(key: &str) -> String {
    format!("{:016x}.cubin", hash(key.as_bytes()))
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
