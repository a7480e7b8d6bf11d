//! `plumbline kernels`: compiles the CUDA kernels, on any machine that has NVRTC.

use anyhow::{bail, ensure};
use plumbline_gpu::CudaError;
use plumbline_gpu::device::ComputeCapability;
use plumbline_gpu::module::{ARCHITECTURES, Cache, Unit, compiler};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Options of `kernels`.
#[derive(Debug, clap::Args)]
pub struct KernelsArgs {
    /// Compile every kernel for every combination of formats, not only for each format once
    #[arg(long)]
    all: bool,
    /// Compile for these architectures, like sm_90
    #[arg(long = "arch", value_parser = parse_arch, value_name = "ARCH", default_values_t = ARCHITECTURES)]
    architectures: Vec<ComputeCapability>,
}

fn parse_arch(text: &str) -> Result<ComputeCapability, String> {
    let is_number = |digits: &&str| digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let digits = text.strip_prefix("sm_").filter(is_number);
    let split = digits.map(|digits| digits.split_at(digits.len() - 1));
    let parsed = split.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (major, minor) = parsed.ok_or("write an architecture like sm_90")?;
    Ok(ComputeCapability { major, minor })
}

/// Compiles; 1 where any kernel does not.
pub(super) fn run(args: &KernelsArgs) -> anyhow::Result<u8> {
    let nvrtc = compiler()?;
    let mut units = plumbline_gpu::units();
    if !args.all {
        units = covering(units);
    }
    let jobs: Vec<_> = args
        .architectures
        .iter()
        .flat_map(|&arch| units.iter().filter(move |unit| unit.is_for(arch)).map(move |unit| (arch, unit)))
        .collect();
    ensure!(!jobs.is_empty(), "no kernel is for any of these architectures");
    // Nothing is taken from the cache: the point is that it compiles.
    let compiled = jobs.par_iter().map(|(arch, unit)| unit.compile(*arch, &Cache::none()));
    let results: Vec<_> = jobs.iter().zip(compiled.collect::<Vec<_>>()).collect();

    let mut text = format!("NVRTC {}\n", nvrtc.version);
    let mut compiled: BTreeMap<(&str, ComputeCapability), (usize, usize)> = BTreeMap::new();
    let mut failed = 0;
    for (&(arch, unit), result) in results {
        match result {
            Ok(cubin) => {
                let (count, bytes) = compiled.entry((unit.source.name, arch)).or_default();
                *count += 1;
                *bytes += cubin.len();
            }
            Err(error @ CudaError::Compile { .. }) => {
                failed += 1;
                let _ = writeln!(text, "FAILED {error}");
            }
            Err(error) => bail!(error),
        }
    }
    for ((name, arch), (count, bytes)) in compiled {
        let _ = writeln!(text, "{name:<20} {arch:<7} {count:>4} compiled, {bytes:>9} bytes");
    }
    let _ = writeln!(text, "{} of {} compiled", jobs.len() - failed, jobs.len());
    super::print(&text)?;
    Ok(u8::from(failed > 0))
}

/// Units in which every constant of every source has each of its values at least once:
/// again and again the one with the most that are new.
fn covering(mut units: Vec<Unit>) -> Vec<Unit> {
    let values = |unit: &Unit| -> Vec<(&'static str, String)> {
        let defines = unit.defines.iter().map(|(name, value)| (unit.source.name, format!("{name}={value}")));
        defines.chain([(unit.source.name, String::new())]).collect()
    };
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    loop {
        let new = |unit: &Unit| values(unit).into_iter().filter(|value| !seen.contains(value)).count();
        let best = (0..units.len()).max_by_key(|&i| (new(&units[i]), std::cmp::Reverse(i)));
        match best.filter(|&i| new(&units[i]) > 0) {
            None => return chosen,
            Some(i) => {
                let unit = units.swap_remove(i);
                seen.extend(values(&unit));
                chosen.push(unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read() {
        assert_eq!(parse_arch("sm_90"), Ok(ComputeCapability { major: 9, minor: 0 }));
        assert_eq!(parse_arch("sm_120"), Ok(ComputeCapability { major: 12, minor: 0 }));
        for text in ["", "90", "sm_9", "sm_x0", "sm_9x", "sm_+90"] {
            assert!(parse_arch(text).is_err(), "{text}");
        }
    }

    /// Each source, and each value of each constant, that any unit has.
    #[test]
    fn the_smaller_set_leaves_no_value_out() {
        let values = |units: &[Unit]| -> BTreeSet<_> {
            let of = |unit: &Unit| {
                let defines = unit.defines.iter().map(|(name, value)| format!("{name}={value}"));
                defines.chain([String::new()]).map(|value| (unit.source.name, value)).collect::<Vec<_>>()
            };
            units.iter().flat_map(of).collect()
        };
        let all = plumbline_gpu::units();
        let some = covering(all.clone());
        assert_eq!(values(&some), values(&all));
        assert!(some.len() < all.len() / 5, "{} of {}", some.len(), all.len());
    }
}
