//! `plumbline doctor`: what this machine has and lacks.

use crate::adapter::{Float8, Half, Playback};
use crate::load::load;
use crate::setup::fixtures;
use plumbline_reference::Backend;
use std::fmt::Write;
use std::thread::available_parallelism;

/// A line per finding.
pub(super) fn run() -> anyhow::Result<String> {
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<10} {value}");
    };
    line("plumbline", env!("CARGO_PKG_VERSION").to_owned());
    let threads = available_parallelism().map_or(1, usize::from);
    line("machine", format!("{} {}, {threads} threads", std::env::consts::OS, std::env::consts::ARCH));
    line("vectors", vector_extensions());
    line("cuda", plumbline_gpu::device::probe().to_string());
    match fixtures() {
        Err(error) => line("fixtures", format!("missing: {error}")),
        Ok(folder) => {
            let cases = match load(&folder.join("cases")) {
                Ok(cases) => format!("{} cases", cases.len()),
                Err(error) => format!("unusable: {error}"),
            };
            line("fixtures", format!("{}: {cases}", folder.display()));
        }
    }
    for backend in [&Float8 as &dyn Backend, &Half, Playback::h200()] {
        line("opinion", format!("{}: {}", backend.name(), backend.device().name));
    }
    Ok(text)
}

#[cfg(target_arch = "x86_64")]
fn vector_extensions() -> String {
    let found = [
        ("AVX2", std::arch::is_x86_feature_detected!("avx2")),
        ("FMA", std::arch::is_x86_feature_detected!("fma")),
        ("F16C", std::arch::is_x86_feature_detected!("f16c")),
        ("AVX-512F", std::arch::is_x86_feature_detected!("avx512f")),
        ("AVX-512BW", std::arch::is_x86_feature_detected!("avx512bw")),
    ];
    let names: Vec<_> = found.into_iter().filter(|&(_, has)| has).map(|(name, _)| name).collect();
    if names.is_empty() { "SSE2".to_owned() } else { names.join(", ") }
}

#[cfg(not(target_arch = "x86_64"))]
fn vector_extensions() -> String {
    "portable".to_owned()
}
