//! The `plumbline` executable.

fn main() -> std::process::ExitCode {
    plumbline_conformance::cli::main()
}
