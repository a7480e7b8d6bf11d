//! How fast the CPU reference's conversions are, beside those of the crates float8, half and
//! minifloat, how fast it decodes GGML blocks, beside candle-core, and how fast its layers, beside candle-core,
//! and its matrix products:
//! `cargo xtask bench`.
//!
//! All conversions are given the same values and run in turn, in one process, over many rounds in rotating
//! order; so a busy machine slows all alike, and ratios hold. 2^20 elements fit a cache, 2^26
//! do not. Results go to memory that is there already. Peers are used the fastest way that
//! each offers, in parallel chunks of the reference's own size, and compiled for the processor
//! at hand. `copy`, in such chunks, and `memcpy`, one for each thread, are the ceilings of
//! conversions that do no work.

mod block;
mod contender;
mod conversion;
mod layer;
mod measure;
mod product;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use clap::Parser;
use plumbline_reference::fast::Simd;

use crate::measure::Setting;
use crate::report::{Report, processor};

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask bench",
    about = "Measure the speed of conversions, GGML blocks, layers and matrix products, beside other crates"
)]
struct Options {
    /// Only what contains one of these, like `e4m3fn`, `copy`, `f32-f16/2^26`, `block`, `layer`, `product` or `1-thread`
    filters: Vec<String>,
    /// How often each is visited
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the table here too
    #[arg(long, value_name = "FILE.md")]
    out: Option<PathBuf>,
    /// Write all numbers here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Name what would be measured
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let chosen: Vec<_> = settings().into_iter().filter(|setting| options.chooses(&setting.name())).collect();
    let blocks = threads().into_iter().flat_map(block::settings);
    let blocks: Vec<_> = blocks.filter(|setting| options.chooses(&setting.name())).collect();
    let layers = threads().into_iter().flat_map(layer::settings);
    let layers: Vec<_> = layers.filter(|setting| options.chooses(&setting.name())).collect();
    let products: Vec<_> = products().into_iter().filter(|it| options.chooses(&it.name())).collect();
    if chosen.is_empty() && blocks.is_empty() && layers.is_empty() && products.is_empty() {
        bail!("no measurement is called like {}; --list names them", options.filters.join(" or "));
    }
    if options.list {
        chosen.iter().for_each(|setting| println!("{}", setting.name()));
        blocks.iter().for_each(|setting| println!("{}", setting.name()));
        layers.iter().for_each(|setting| println!("{}", setting.name()));
        products.iter().for_each(|setting| println!("{}", setting.name()));
        return Ok(());
    }
    // Before minutes are spent.
    for file in [&options.out, &options.json].into_iter().flatten() {
        write(file, "")?;
    }
    let mut comparisons = Vec::with_capacity(chosen.len());
    for setting in chosen {
        eprintln!("{}", setting.name());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(setting.threads).build()?;
        comparisons.push(pool.install(|| setting.measure(options.rounds as usize))?);
    }
    let mut block_comparisons = Vec::with_capacity(blocks.len());
    for setting in blocks {
        eprintln!("{}", setting.name());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(setting.threads).build()?;
        block_comparisons.push(pool.install(|| setting.measure(options.rounds as usize))?);
    }
    let mut layer_comparisons = Vec::with_capacity(layers.len());
    for setting in layers {
        eprintln!("{}", setting.name());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(setting.threads()).build()?;
        layer_comparisons.push(pool.install(|| setting.measure(options.rounds as usize))?);
    }
    let mut product_comparisons = Vec::with_capacity(products.len());
    for setting in products {
        eprintln!("{}", setting.name());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(setting.threads).build()?;
        product_comparisons.push(pool.install(|| setting.measure(options.rounds as usize))?);
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        processor: processor(),
        simd: Simd::best().name(),
        comparisons,
        blocks: block_comparisons,
        layers: layer_comparisons,
        products: product_comparisons,
    };
    let table = report.markdown();
    print!("{table}");
    if let Some(file) = &options.out {
        write(file, &table)?;
    }
    if let Some(file) = &options.json {
        write(file, &serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

impl Options {
    fn chooses(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }
}

/// One thread, and all.
fn threads() -> Vec<usize> {
    let mut threads = vec![1, available_parallelism().map_or(1, usize::from)];
    threads.dedup();
    threads
}

/// Every product in every size.
fn products() -> Vec<product::Setting> {
    let mut settings = Vec::new();
    for size in product::SIZES {
        for threads in threads() {
            settings.extend(product::ALL.map(|product| product::Setting { product, size, threads }));
        }
    }
    settings
}

/// Every conversion in and out of cache.
fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for log2 in [20, 26] {
        for threads in threads() {
            settings.extend(conversion::ALL.map(|conversion| Setting { conversion, log2, threads }));
        }
    }
    settings
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
