//! `cargo xtask`: the commands of a checkout, each a thin layer over cargo and
//! the `plumbline` executable.

mod build;
mod dist;
mod elf;
mod kernels;
mod licences;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Parser;

/// The exit code of everything that kept the asked-for work from being done:
/// the executable's own code for the same, and clap's for a wrong command line.
const COULD_NOT_RUN: u8 = 2;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "Developer commands of Plumbline")]
enum Xtask {
    /// Build the plumbline executable and run `plumbline conform ARGS...`
    ///
    /// Results go to target/conform unless --out or PLUMBLINE_OUT says otherwise.
    /// `cargo xtask conform --help` lists what ARGS may be. Exit code: 0 conforms,
    /// 1 does not, 2 could not be built or run.
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Conform(PassedOn),

    /// Build the plumbline executable and run `plumbline fuzz ARGS...`
    ///
    /// `cargo xtask fuzz --help` lists what ARGS may be. Exit code: 0 nothing found,
    /// 1 a backend differs from the definition, 2 could not be built or run.
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Fuzz(PassedOn),

    /// Build the plumbline executable and run `plumbline mutants ARGS...`
    ///
    /// Results go to target/mutants unless --out or PLUMBLINE_OUT says otherwise.
    /// `cargo xtask mutants --help` lists what ARGS may be. Exit code: 0 the cases find enough
    /// of the seeded faults, 1 too few, 2 could not be built or run.
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Mutants(PassedOn),

    /// Build the plumbline executable and run `plumbline sweep ARGS...`
    ///
    /// `cargo xtask sweep --help` lists what ARGS may be. Exit code: 0 every result is
    /// right, 1 some differ, 2 could not be built or run.
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Sweep(PassedOn),

    /// Build the plumbline executable and run `plumbline record ARGS...`
    ///
    /// `cargo xtask record --help` lists what ARGS may be. Exit code: 0 written, 2 could not
    /// be built, run or recorded.
    #[command(disable_help_flag = true, verbatim_doc_comment)]
    Record(PassedOn),

    /// Build the plumbline executable and run `plumbline ARGS...`
    ///
    /// `cargo xtask plumbline --help` lists its commands.
    #[command(disable_help_flag = true)]
    Plumbline(PassedOn),

    /// Build the plumbline executable and run `plumbline kernels ARGS...` with NVRTC from PyPI
    ///
    /// Compiles every CUDA kernel for each of its architectures; needs no GPU. With --system
    /// it takes the machine's own NVRTC.
    #[command(disable_help_flag = true)]
    Kernels(PassedOn),

    /// Build and run the benchmark: conversions of the CPU reference beside those of other crates
    ///
    /// `cargo xtask bench --help` lists what ARGS may be.
    #[command(disable_help_flag = true)]
    Bench(PassedOn),

    /// Write a folder that runs on Linux machines without Rust, CUDA or this checkout
    ///
    /// It holds the executable, the fixtures and the licences, for x86-64 with glibc 2.28 or
    /// newer. Needs `pip install cargo-zigbuild ziglang`, or --native.
    Dist(dist::Dist),

    /// Run the checks of continuous integration, installing nothing
    ///
    /// Tools that are not there are named, and their checks skipped.
    Ci,
}

/// Arguments of the executable. clap only has to accept them: it would drop a
/// leading `--`, so what is passed on is the command line itself.
#[derive(clap::Args)]
struct PassedOn {
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    _args: Vec<OsString>,
}

fn main() -> ExitCode {
    let command = Xtask::parse();
    let args: Vec<OsString> = env::args_os().skip(2).collect();
    let outcome = match command {
        Xtask::Conform(_) => with_results("conform", &args),
        Xtask::Fuzz(_) => plumbline("cargo xtask").and_then(|mut built| run(built.arg("fuzz").args(&args))),
        Xtask::Mutants(_) => with_results("mutants", &args),
        Xtask::Sweep(_) => plumbline("cargo xtask").and_then(|mut built| run(built.arg("sweep").args(&args))),
        Xtask::Record(_) => {
            plumbline("cargo xtask").and_then(|mut built| run(built.arg("record").args(&args)))
        }
        Xtask::Plumbline(_) => {
            plumbline("cargo xtask plumbline").and_then(|mut built| run(built.args(&args)))
        }
        Xtask::Kernels(_) => kernels::kernels(&args),
        Xtask::Bench(_) => bench(&args),
        Xtask::Dist(dist) => dist::dist(&dist),
        Xtask::Ci => run(Command::new("bash").args([".ci/run", "--no-install"]).current_dir(workspace())),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(COULD_NOT_RUN)
    })
}

/// A command that writes results, to a folder of its own in `target`.
fn with_results(name: &str, args: &[OsString]) -> Result<ExitCode> {
    let mut command = plumbline("cargo xtask")?;
    command.arg(name).args(args);
    if env::var_os("PLUMBLINE_OUT").is_none() && !names_out(args) {
        command.env("PLUMBLINE_OUT", default_out(name));
    }
    run(&mut command)
}

/// Other crates leave vector instructions to the compiler, so all is compiled for this
/// processor; Plumbline's fast paths choose theirs when they run.
fn bench(args: &[OsString]) -> Result<ExitCode> {
    let flags = env::var("RUSTFLAGS").unwrap_or_default() + " -C target-cpu=native";
    let mut build = Command::new(build::cargo());
    build.args(["build", "--release", "--package", "plumbline-bench"]).env("RUSTFLAGS", flags.trim());
    run(Command::new(build::executable(&mut build, &[], "plumbline-bench")?).args(args))
}

/// Whether `--out DIR` or `--out=DIR` is among the arguments.
fn names_out(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "--out" || arg.as_encoded_bytes().starts_with(b"--out="))
}

/// `target/NAME` of the workspace: short where it is printed in its root,
/// the same directory from everywhere else.
fn default_out(name: &str) -> PathBuf {
    let out = Path::new("target").join(name);
    match env::current_dir().and_then(|here| here.canonicalize()) {
        Ok(here) if workspace().canonicalize().is_ok_and(|root| root == here) => out,
        _ => workspace().join(out),
    }
}

/// The freshly built executable, to be run in the user's directory.
/// `invoked_as` is what its replay lines begin with.
fn plumbline(invoked_as: &str) -> Result<Command> {
    let mut command = Command::new(build::release("plumbline-conformance", "plumbline")?);
    command.env("PLUMBLINE_INVOKED_AS", invoked_as);
    Ok(command)
}

/// Runs a command to its end and takes over its exit code.
fn run(command: &mut Command) -> Result<ExitCode> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("{program} was killed ({status})"),
    }
}

/// The directory that has the workspace's Cargo.toml.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}
