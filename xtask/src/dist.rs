//! `cargo xtask dist`: a folder that runs where there is no Rust.

use std::{
    env,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::build::{self, cargo};
use crate::elf::{Glibc, Needs};
use crate::licences;
use crate::workspace;

/// What the folder runs on when it is linked by zig, which has the symbols of every glibc.
const OLDEST_GLIBC: Glibc = Glibc { major: 2, minor: 28, patch: 0 };
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The most that the folder may hold.
const MAX_BYTES: u64 = 64 << 20;
const PACKAGE: &str = "plumbline-conformance";
const EXECUTABLE: &str = "plumbline";
/// By this file a folder is known as an earlier result, which may be replaced.
const VERSION: &str = "VERSION";

const README: &str = "\
Plumbline: know that a GPU inference kernel is right.

  ./plumbline conform    judge everything that this machine can run
  ./plumbline doctor     say what this machine has and lacks
  ./plumbline --help     the other commands

The folder may lie anywhere and be run from anywhere; the executable finds `fixtures` beside
itself. Exit codes: 0 all passed, 1 a conformance failure, 2 a usage or environment error.
VERSION says what this is and which glibc it needs. Plumbline is licensed under either of
LICENSE-APACHE or LICENSE-MIT, at your option; `licences` has those of what it is built from.
";

#[derive(clap::Args)]
pub struct Dist {
    /// The folder to write; default: target/dist/plumbline-x86_64-linux
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Link with this machine's linker, against this machine's glibc
    #[arg(long)]
    native: bool,
}

pub fn dist(args: &Dist) -> Result<ExitCode> {
    let metadata = build::metadata(if args.native { build::host()? } else { TRIPLE.to_owned() })?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_out(&metadata, args.native)?,
    };
    check_replaceable(&out)?;
    let executable = build_stripped(args.native)?;
    let bytes = fs::read(&executable).with_context(|| format!("cannot read {}", executable.display()))?;
    let needs = Needs::of(&bytes).with_context(|| format!("cannot inspect {}", executable.display()))?;
    ensure!(
        args.native || needs.glibc <= OLDEST_GLIBC,
        "the executable needs glibc {}, newer than {OLDEST_GLIBC}; update cargo-zigbuild",
        needs.glibc
    );
    assemble(&out, &executable, &version_text(&needs, args.native), &metadata)?;
    let size = folder_size(&out)?;
    ensure!(
        size <= MAX_BYTES,
        "{} holds {size} bytes, more than the {MAX_BYTES} it may; look for a large file in it",
        out.display()
    );
    println!("{}: {:.1} MiB, needs glibc {}", out.display(), size as f64 / f64::from(1 << 20), needs.glibc);
    Ok(ExitCode::SUCCESS)
}

fn default_out(metadata: &Value, native: bool) -> Result<PathBuf> {
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(Path::new(target).join("dist").join(format!("plumbline-{}-linux", architecture(native))))
}

/// What is there already must be nothing, or an earlier result.
fn check_replaceable(out: &Path) -> Result<()> {
    let empty = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| format!("cannot write to {}", out.display())),
    };
    ensure!(
        empty || fs::read_to_string(out.join(VERSION)).is_ok_and(|text| text.starts_with(EXECUTABLE)),
        "{} holds something other than an earlier result; empty it or give another --out",
        out.display()
    );
    Ok(())
}

/// The release executable without symbols: dependencies are those of every release build, and
/// only the last link differs.
fn build_stripped(native: bool) -> Result<PathBuf> {
    let mut command = if native { Command::new(cargo()) } else { Command::new("cargo-zigbuild") };
    command.args(["rustc", "--release", "--package", PACKAGE, "--bin", EXECUTABLE]);
    if !native {
        command.arg("--target").arg(format!("{TRIPLE}.{OLDEST_GLIBC}"));
    }
    build::executable(&mut command, &["--", "-C", "strip=symbols"], EXECUTABLE).with_context(|| {
        if native {
            "cannot build with this machine's linker".to_owned()
        } else {
            format!(
                "cannot build for glibc {OLDEST_GLIBC}: that needs `pip install cargo-zigbuild ziglang` and \
                 `rustup target add {TRIPLE}`; --native does without, for this machine's glibc or a newer one"
            )
        }
    })
}

fn version_text(needs: &Needs, native: bool) -> String {
    let mut text = format!("plumbline {}\n", env!("CARGO_PKG_VERSION"));
    // A source archive has no commit to name.
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        let changed = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty());
        let _ = writeln!(text, "commit    {commit}{}", if changed { ", with changes" } else { "" });
    }
    let _ = writeln!(text, "machine   {} Linux", architecture(native));
    let _ = writeln!(text, "glibc     {} or newer", needs.glibc);
    let _ = writeln!(text, "libraries {}", needs.libraries.join(" "));
    text
}

/// The processor that the executable is for.
fn architecture(native: bool) -> &'static str {
    if native { env::consts::ARCH } else { TRIPLE.split('-').next().unwrap_or(TRIPLE) }
}

fn git(args: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(args).current_dir(workspace()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn assemble(out: &Path, executable: &Path, version: &str, metadata: &Value) -> Result<()> {
    let written = || -> Result<()> {
        if out.exists() {
            fs::remove_dir_all(out)?;
        }
        fs::create_dir_all(out)?;
        // First, so that what is left by an interruption is known as an earlier result.
        fs::write(out.join(VERSION), version)?;
        fs::copy(executable, out.join(EXECUTABLE))?;
        fs::write(out.join("README"), README)?;
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(workspace().join(licence), out.join(licence))?;
        }
        copy_folder(&workspace().join("fixtures"), &out.join("fixtures"))?;
        // What ran elsewhere is for those who read, not for those who run.
        fs::remove_dir_all(out.join("fixtures/records"))?;
        licences::collect(metadata, PACKAGE, &out.join("licences"))
    };
    written().with_context(|| format!("cannot fill {}", out.display()))
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn folder_size(folder: &Path) -> io::Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        size +=
            if entry.file_type()?.is_dir() { folder_size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_result_is_replaced() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("out");
        check_replaceable(&out)?;
        fs::create_dir(&out)?;
        check_replaceable(&out)?;
        fs::write(out.join("thesis.txt"), "years of work")?;
        let refusal = check_replaceable(&out).expect_err("that is no earlier result").to_string();
        assert!(refusal.contains("--out"), "{refusal}");
        fs::write(out.join(VERSION), "plumbline 0.1.0\n")?;
        check_replaceable(&out)
    }

    #[test]
    fn the_folder_holds_all_that_it_should() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (executable, out) = (folder.path().join("built"), folder.path().join("out"));
        fs::write(&executable, "a program")?;
        let metadata = build::metadata(TRIPLE)?;
        assemble(&out, &executable, "plumbline 0.1.0\n", &metadata)?;
        for file in [
            "VERSION",
            "README",
            "LICENSE-MIT",
            "fixtures/cases/cast.yaml",
            "fixtures/coverage.yaml",
            "fixtures/waivers.yaml",
        ] {
            assert!(out.join(file).is_file(), "{file}");
        }
        assert_eq!(fs::read_to_string(out.join(EXECUTABLE))?, "a program");
        let licences = fs::read_dir(out.join("licences"))?.flatten();
        assert!(licences.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("serde-1")));
        assert!(folder_size(&out)? < MAX_BYTES);
        assemble(&out, &executable, "plumbline 0.1.1\n", &metadata)
    }
}
