//! `cargo xtask kernels`: the CUDA kernels compiled by NVRTC, which needs no GPU.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

use crate::{plumbline, run, workspace};

/// The compiler that the kernels are checked with where none is installed.
const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// With `--system`, uses the NVRTC on the loader's path and installs none from PyPI.
pub fn kernels(args: &[OsString]) -> Result<ExitCode> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let needs_none = has("--system") || has("--help") || has("-h");
    let mut command = plumbline("cargo xtask")?;
    command.arg("kernels").args(args.iter().filter(|arg| *arg != "--system"));
    if !needs_none {
        let mut folders = vec![installed()?];
        folders.extend(env::split_paths(&env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
        command.env("LD_LIBRARY_PATH", env::join_paths(folders).context("LD_LIBRARY_PATH")?);
    }
    run(&mut command)
}

/// The folder of NVRTC's library, installed from PyPI into the target directory if need be.
fn installed() -> Result<PathBuf> {
    let target = workspace().join("target/nvrtc").join(PACKAGE.replace("==", "-"));
    if let Some(folder) = library(&target) {
        return Ok(folder);
    }
    let remedy = "give pip a network, or install NVIDIA's CUDA toolkit and give --system";
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&target).arg(PACKAGE);
    let status = pip.status().with_context(|| format!("cannot run python3; {remedy}"))?;
    if !status.success() {
        bail!("pip did not install {PACKAGE}; {remedy}");
    }
    library(&target).with_context(|| format!("{PACKAGE} has no libnvrtc.so.13; {remedy}"))
}

/// The folder below `folder` that holds the library.
fn library(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    if paths.iter().any(|path| path.file_name().is_some_and(|name| name == "libnvrtc.so.13")) {
        return Some(folder.to_owned());
    }
    paths.iter().filter(|path| path.is_dir()).find_map(|path| library(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_below_a_folder() {
        let folder = env::temp_dir().join(format!("plumbline-xtask-{}", std::process::id()));
        let deep = folder.join("nvidia/cu13/lib");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(library(&folder), None);
        fs::write(deep.join("libnvrtc.so.13"), "").unwrap();
        assert_eq!(library(&folder), Some(deep));
        fs::remove_dir_all(&folder).unwrap();
    }
}
