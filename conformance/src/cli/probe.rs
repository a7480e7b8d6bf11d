//! `plumbline probe`: in which order a backend sums, and what its fused blocks do.

use crate::probe::{Extents, ProbeError, Target, find};
use crate::setup::{BackendChoice, Selection, subjects};
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::format::{F16, F32};
use plumbline_reference::ops::{Gemm, Op};
use plumbline_reference::{Backend, BackendError, Cpu};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(subcommand)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// A matrix product: the tree of its sums, its blocks, and the order of accumulation with its bits
    #[command(
        after_help = "Exit codes: 0 an order of accumulation gives the backend's bits, 1 none of those \
                            known does, 2 a usage or environment error."
    )]
    Gemm(GemmArgs),
}

#[derive(Debug, Args)]
struct GemmArgs {
    /// What is probed
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Probed,
    /// The variant of the backend; default: its usual one
    #[arg(long)]
    variant: Option<String>,
    /// Name the ways in which the backend can make the product, cuBLASLt's algorithms for the
    /// shape among them, and probe none
    #[arg(long)]
    list: bool,
    /// The parameters of `gemm` as YAML or JSON: "{a: f16, b: f16, out: f32}"; default: these, and for the CPU one
    /// chain of Hopper's blocks
    #[arg(long, value_name = "YAML", value_parser = parse_op)]
    op: Option<Box<Gemm>>,
    /// Rows of the output; more make fewer calls
    #[arg(long, default_value_t = 64)]
    m: usize,
    /// Columns of the output
    #[arg(long, default_value_t = 64)]
    n: usize,
    /// Products of an element
    #[arg(long, default_value_t = 256)]
    k: usize,
    /// The GPU to use, by CUDA's number for it; default: the first
    #[arg(long, env = "PLUMBLINE_DEVICE", value_name = "N")]
    device: Option<u32>,
    /// Write what was found to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Probed {
    /// The reference: finds the `accumulate` of --op again
    Cpu,
    /// The CUDA backend
    Cuda,
}

fn parse_op(text: &str) -> Result<Box<Gemm>, String> {
    let value: serde_json::Value =
        serde_yaml::from_str(text).map_err(|error| format!("not YAML: {error}"))?;
    serde_path_to_error::deserialize(value).map_err(|error| format!("{}: {}", error.path(), error.inner()))
}

/// Probes; 1 where no order has the backend's bits.
pub(super) fn run(args: &ProbeArgs) -> anyhow::Result<u8> {
    let Of::Gemm(args) = &args.of;
    let (backend, gemm) = (backend(args)?, op(args)?);
    let variant = match &args.variant {
        Some(variant) => variant.clone(),
        None => {
            let op = Op::from(gemm.clone());
            backend.supports(&op).map_err(|why| anyhow!("--op: {} does not do it: {why}", backend.name()))?;
            backend.variants(&op).into_iter().next().context("the backend has no variant of --op")?
        }
    };
    let extents = Extents { m: args.m, n: args.n, k: args.k };
    let target = Target::new(backend.as_ref(), &variant, gemm, extents).map_err(with_flag)?;
    if args.list {
        for (way, how) in target.ways().map_err(with_flag)? {
            let how: Vec<_> = how.into_iter().map(|(name, value)| format!("{name} {value}")).collect();
            super::print(&format!("{way:<24} {}", how.join(", ")))?;
        }
        return Ok(0);
    }
    let found = find(&target).map_err(with_flag)?;
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(&found)? + "\n";
        fs::write(file, json).with_context(|| format!("--json: {} cannot be written", file.display()))?;
    }
    super::print(&found.text())?;
    Ok(u8::from(found.explained().next().is_none()))
}

/// An error with the options that it is about.
fn with_flag(error: ProbeError) -> anyhow::Error {
    let flag = match &error {
        ProbeError::Operation(_) => "--op",
        ProbeError::Shape(_) => "--m, --n, --k",
        ProbeError::Backend(BackendError::Variant { .. }) => "--variant",
        ProbeError::Backend(BackendError::Signature(_) | BackendError::Unsupported(_)) => "--op",
        _ => return error.into(),
    };
    anyhow!("{flag}: {error}")
}

fn backend(args: &GemmArgs) -> anyhow::Result<Arc<dyn Backend>> {
    match args.backend {
        Probed::Cpu => Ok(Arc::new(Cpu)),
        Probed::Cuda => {
            let selection =
                Selection { backend: BackendChoice::Cuda, device: args.device, ..Selection::default() };
            let subject = subjects(&selection)?.into_iter().next().context("there is no CUDA backend")?;
            Ok(subject.backend)
        }
    }
}

/// The reference has an order only where `accumulate` names one.
fn op(args: &GemmArgs) -> anyhow::Result<Gemm> {
    let plain = Gemm::new(F16, F16, F32);
    match (&args.op, args.backend) {
        (None, Probed::Cpu) => Ok(plain.accumulated(None, Accumulation::Chain(Block::HOPPER))),
        (None, Probed::Cuda) => Ok(plain),
        (Some(op), Probed::Cpu) if op.accumulate.is_none() => Err(anyhow!(
            "--op without `accumulate` is exact on the CPU and has no order; add one, like `accumulate: fma`, or \
             choose --backend cuda"
        )),
        (Some(op), _) => Ok((**op).clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_yaml_or_json() {
        let yaml = parse_op("{a: f16, b: f16, out: f32, accumulate: fma}").unwrap();
        assert_eq!(yaml.accumulate, Some(Accumulation::Fma));
        assert_eq!(parse_op(r#"{"a": "f16", "b": "f16", "out": "f32", "accumulate": "fma"}"#), Ok(yaml));
        let error = |text| parse_op(text).unwrap_err();
        assert!(error("{a: f17, b: f16, out: f32}").starts_with("a: unknown"), "{}", error("{a: f17}"));
        assert!(error("{a: ").starts_with("not YAML"));
        assert!(error("{a: f16, b: f16, out: f32, accumulate: up}").starts_with("accumulate"));
    }
}
