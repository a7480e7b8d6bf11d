//! What an ELF executable needs of the machine that runs it.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionTable};
use object::{Endianness, StringTable};

type Header = FileHeader64<Endianness>;

/// A version of the GNU C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// Reads `GLIBC_2.28`, the form of symbol versions.
impl FromStr for Glibc {
    type Err = anyhow::Error;

    fn from_str(symbol_version: &str) -> Result<Self> {
        let parse = || {
            let mut parts = symbol_version.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok());
            let version = Self {
                major: parts.next()??,
                minor: parts.next()??,
                patch: parts.next().unwrap_or(Some(0))?,
            };
            parts.next().is_none().then_some(version)
        };
        parse().with_context(|| format!("{symbol_version} is no version of glibc"))
    }
}

/// What the dynamic linker is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Needs {
    /// The newest glibc that any symbol is taken from.
    pub glibc: Glibc,
    /// The shared libraries, by the names that they are looked for under.
    pub libraries: Vec<String>,
}

impl Needs {
    /// Reads the tables of an executable.
    pub fn of(executable: &[u8]) -> Result<Self> {
        let header = Header::parse(executable)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, executable)?;
        let versions = symbol_versions(endian, &sections, executable)?;
        let glibc = versions.iter().filter(|version| version.starts_with("GLIBC_"));
        let Some(glibc) = glibc.map(|version| version.parse()).collect::<Result<Vec<_>>>()?.into_iter().max()
        else {
            bail!("the executable takes no symbol from glibc");
        };
        Ok(Self { glibc, libraries: libraries(endian, &sections, executable)? })
    }
}

/// The versions of symbols that other libraries have to have.
fn symbol_versions(
    endian: Endianness,
    sections: &SectionTable<'_, Header>,
    executable: &[u8],
) -> Result<Vec<String>> {
    let mut versions = Vec::new();
    if let Some((mut libraries, strings)) = sections.gnu_verneed(endian, executable)? {
        let strings = sections.strings(endian, executable, strings)?;
        while let Some((_, mut of_library)) = libraries.next()? {
            while let Some(version) = of_library.next()? {
                versions.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
            }
        }
    }
    Ok(versions)
}

fn libraries(
    endian: Endianness,
    sections: &SectionTable<'_, Header>,
    executable: &[u8],
) -> Result<Vec<String>> {
    let Some((entries, strings)) = sections.dynamic(endian, executable)? else { return Ok(Vec::new()) };
    let strings: StringTable<'_> = sections.strings(endian, executable, strings)?;
    entries
        .iter()
        .filter(|entry| entry.tag(endian) == DT_NEEDED)
        .map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_numbers() {
        let version = |text: &str| text.parse::<Glibc>().ok();
        assert!(version("GLIBC_2.9") < version("GLIBC_2.28"));
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.3"));
        let shown = ["GLIBC_2.28", "GLIBC_2.2.5"].map(|text| version(text).map(|it| it.to_string()));
        assert_eq!(shown, [Some("2.28".to_owned()), Some("2.2.5".to_owned())]);
    }

    #[test]
    fn other_symbol_versions_are_refused() {
        for text in ["GLIBC_PRIVATE", "GCC_3.0", "GLIBC_2", "GLIBC_2.x", "GLIBC_2.2.5.1", ""] {
            let error = text.parse::<Glibc>().expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    fn this_test_needs_the_glibc_that_it_runs_on_or_an_older_one() {
        let this = std::env::current_exe().and_then(std::fs::read).expect("a test can read itself");
        let needs = Needs::of(&this).expect("a test is an ELF executable");
        assert!(needs.glibc.major == 2 && needs.glibc.minor > 2, "{needs:?}");
        assert!(needs.libraries.iter().any(|library| library == "libc.so.6"), "{needs:?}");
    }

    #[test]
    fn what_is_no_executable_is_an_error() {
        assert!(Needs::of(b"#!/bin/sh\n").is_err());
    }
}
