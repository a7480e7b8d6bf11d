//! `plumbline record`: what a device's conversion instructions give for every input, written
//! for machines without the device.

use crate::hardware::{Conversion, Recording, record};
use crate::report::brief;
use crate::setup::fixtures;
use plumbline_gpu::{Cuda, device, module::Cache};
use plumbline_reference::ops::Op;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Options of `record`.
#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    /// What is recorded: the first CUDA device
    #[arg(long, value_enum, default_value = "cuda")]
    backend: Recorded,
    /// The file to write, replaced if it is there, or a folder for a file named after the
    /// device; default: the folder hardware of the fixtures
    #[arg(long, value_name = "FILE|DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Recorded {
    /// The first CUDA device
    Cuda,
}

/// What was recorded, and where it was written.
pub(super) fn run(args: &RecordArgs) -> anyhow::Result<String> {
    let Recorded::Cuda = args.backend;
    let device = device::require()?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fixtures()?.join("hardware"),
    };
    // A folder may be one yet to be made: then its name ends with a slash.
    let is_folder = out.is_dir() || args.out.is_none() || out.as_os_str().as_encoded_bytes().ends_with(b"/");
    let name = file_name(&device.name, &device.compute_capability.to_string());
    let file = if is_folder { out.join(name) } else { out };
    let cuda = Cuda::new(device::probe(), device, Cache::of_user());
    let mut text = String::new();
    let recording = record(&cuda, "cargo xtask record --backend cuda", &mut |conversion| {
        let _ = writeln!(text, "{}", line(conversion));
    })?;
    let replaced = file.exists();
    recording.write(&file)?;
    text += &written(&recording, &file, replaced);
    Ok(text)
}

/// `nvidia_h200_sm_90_cast.json`.
fn file_name(device: &str, arch: &str) -> String {
    let words = device.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(str::to_ascii_lowercase).collect();
    format!("{}_{arch}_cast.json", words.join("_"))
}

fn line(conversion: &Conversion) -> String {
    let Conversion { cast, instruction, digest, staircase } = conversion;
    let steps = staircase.as_ref().map_or(String::new(), |it| format!(", {} steps", it.steps().len()));
    format!("{} by {instruction}: digest {digest:016x}{steps}", brief(&Op::from(*cast)))
}

fn written(recording: &Recording, file: &Path, replaced: bool) -> String {
    let conversions = &recording.conversions;
    let staircases = conversions.iter().filter(|conversion| conversion.staircase.is_some()).count();
    format!(
        "{} {}: {} conversions of {}, {staircases} of them with every step",
        if replaced { "replaced" } else { "wrote" },
        file.display(),
        conversions.len(),
        recording.device.name
    )
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn files_are_named_after_the_device() {
        assert_eq!(file_name("NVIDIA H200", "sm_90"), "nvidia_h200_sm_90_cast.json");
        let name = "NVIDIA RTX PRO 6000 Blackwell (Max-Q)";
        assert_eq!(file_name(name, "sm_120"), "nvidia_rtx_pro_6000_blackwell_max_q_sm_120_cast.json");
    }
}
