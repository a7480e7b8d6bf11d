//! What cargo builds, and what it knows.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// The cargo that runs this.
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds an executable in release and returns its path.
pub fn release(package: &str, bin: &str) -> Result<PathBuf> {
    let mut command = Command::new(cargo());
    executable(command.args(["build", "--release", "--package", package, "--bin", bin]), &[], bin)
}

/// Runs a cargo command that builds an executable, and returns the path, which cargo knows
/// whatever the target directory is. `last` ends the command line.
pub fn executable(command: &mut Command, last: &[&str], bin: &str) -> Result<PathBuf> {
    let built = command
        .arg("--message-format=json-render-diagnostics")
        .arg("--manifest-path")
        .arg(workspace().join("Cargo.toml"))
        .args(last)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !built.status.success() {
        bail!("`{bin}` was not built, so nothing ran; cargo says why above");
    }
    String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == bin)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built `{bin}` without saying where it is"))
}

/// The target that rustc builds for where none is named.
pub fn host() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// What `cargo metadata` says of the workspace, its dependencies those of a target.
pub fn metadata(target: impl AsRef<OsStr>) -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version=1", "--filter-platform"])
        .arg(target)
        .arg("--manifest-path")
        .arg(workspace().join("Cargo.toml"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed; it says why above");
    }
    serde_json::from_slice(&output.stdout).context("`cargo metadata` did not give JSON")
}
