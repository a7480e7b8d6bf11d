//! `plumbline bandwidth`: how fast the CUDA kernels move memory, beside a copy.

use anyhow::Context;
use plumbline_gpu::{Bandwidth, Cuda, module::Cache};
use plumbline_reference::Backend;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::{Activations, Gemv};
use std::fmt::Write as _;

/// Options of `bandwidth`.
#[derive(Debug, clap::Args)]
pub struct BandwidthArgs {
    /// Elements of each tensor
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1024..=1 << 31))]
    elements: u64,
    /// Runs of each kernel, of which the median counts
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
}

/// A matrix of a model's feed-forward layer.
const MATRIX: (BlockFormat, [usize; 2]) = (BlockFormat::Q4K, [14336, 4096]);

/// A Markdown table.
pub(super) fn run(args: &BandwidthArgs) -> anyhow::Result<String> {
    let device = plumbline_gpu::device::require()?;
    let cuda = Cuda::new(plumbline_gpu::device::probe(), device, Cache::of_user());
    let rounds = args.rounds.into();
    let mut measured = cuda.bandwidth(args.elements as usize, rounds)?;
    for activations in [Activations::Q8_1, Activations::F32] {
        let of = format!(", {} by {}", MATRIX.0, activations.blocks().map_or("f32", BlockFormat::name));
        let products = cuda.gemv_bandwidth(&Gemv::new(MATRIX.0, activations), MATRIX.1, rounds)?;
        measured.extend(products.into_iter().map(|it| Bandwidth { name: it.name + &of, ..it }));
    }
    let rate =
        |run: &Bandwidth| run.median().map(|millis| (millis, run.bytes as f64 / f64::from(millis) * 1e3));
    let (_, copy) = measured.first().and_then(rate).context("nothing was measured")?;
    let mut text = format!(
        "{}, {} elements, median of {} rounds\n\n\
         | kernel | ms | TB/s | of the copy |\n|---|---:|---:|---:|\n",
        cuda.device().name,
        args.elements,
        args.rounds
    );
    for run in &measured {
        let (millis, rate) = rate(run).context("nothing was measured")?;
        let (terabytes, percent) = (rate / 1e12, 100.0 * rate / copy);
        let _ = writeln!(text, "| {} | {millis:.3} | {terabytes:.2} | {percent:.0}% |", run.name);
    }
    Ok(text)
}
