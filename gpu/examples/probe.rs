//! Prints what this machine offers for CUDA: one line, or JSON with `--json`.
//! Exits with 1 where no device is usable.

use plumbline_gpu::device;
use std::process::ExitCode;

fn main() -> ExitCode {
    let probe = device::probe();
    if std::env::args().any(|argument| argument == "--json") {
        match serde_json::to_string_pretty(probe) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("error: {error}"),
        }
    } else {
        println!("{probe}");
    }
    match probe.require() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
