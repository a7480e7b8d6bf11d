//! The `plumbline` command line.

mod bandwidth;
mod cast;
mod check;
mod conform;
mod decode;
mod doctor;
mod fuzz;
mod gguf;
mod kernels;
mod mutants;
mod number;
mod probe;
mod record;
mod schema;
mod sweep;
mod worker;

use crate::setup::start_threads;
use clap::{Parser, Subcommand};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Know that a GPU inference kernel is right.
#[derive(Parser)]
#[command(
    name = "plumbline",
    version,
    about,
    after_help = "Exit codes: 0 all passed, 1 a conformance failure, a mistrusted case, or something not covered that must be, 2 a usage or environment error."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the conformance cases: the main job
    Conform(conform::ConformArgs),
    /// Judge a cast or a function on every input there is
    Sweep(sweep::SweepArgs),
    /// Search for inputs on which a backend differs from the definition
    Fuzz(fuzz::FuzzArgs),
    /// Count how many seeded faults the cases find
    Mutants(mutants::MutantsArgs),
    /// Show what a cast must give, under every policy
    Cast(cast::CastArgs),
    /// Show what a code stands for
    Decode(decode::DecodeArgs),
    /// Validate case files without running them
    Check(check::CheckArgs),
    /// Say what this machine has and lacks
    Doctor,
    /// Compile the CUDA kernels, on any machine that has NVRTC
    Kernels(kernels::KernelsArgs),
    /// Measure how fast the CUDA kernels move memory, beside a copy
    Bandwidth(bandwidth::BandwidthArgs),
    /// Record what a device's conversion instructions give for every input
    Record(record::RecordArgs),
    /// Find out in which order and how a backend sums
    Probe(probe::ProbeArgs),
    /// Look into a GGUF model file
    Gguf(gguf::GgufArgs),
    /// Write the JSON Schema of case files, results.jsonl, recordings, or coverage.yaml
    Schema(schema::SchemaArgs),
    /// Run trials for a parent process, which names them on standard input
    Worker(worker::WorkerArgs),
}

/// Runs the command line; errors are one line on stderr and exit code 2.
pub fn main() -> ExitCode {
    let print = |text: anyhow::Result<String>| {
        print(&text?)?;
        Ok(0)
    };
    let command = Cli::parse().command;
    start_threads();
    let result = match command {
        Command::Conform(args) => conform::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Cast(args) => print(cast::run(&args)),
        Command::Decode(args) => print(decode::run(&args)),
        Command::Check(args) => print(check::run(&args)),
        Command::Doctor => print(doctor::run()),
        Command::Kernels(args) => kernels::run(&args),
        Command::Bandwidth(args) => print(bandwidth::run(&args)),
        Command::Record(args) => print(record::run(&args)),
        Command::Probe(args) => probe::run(&args),
        Command::Gguf(args) => print(gguf::run(&args)),
        Command::Schema(args) => print(schema::run(&args)),
        Command::Worker(args) => worker::run(&args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints lines. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
