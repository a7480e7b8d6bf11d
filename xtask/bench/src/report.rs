//! Tables for people, JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::measure::{Comparison, Measured};
use crate::product;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    /// The processor, where the system names it.
    pub processor: Option<String>,
    /// The instruction set of the reference's fast path.
    pub simd: &'static str,
    pub comparisons: Vec<Comparison>,
    pub blocks: Vec<Comparison>,
    pub layers: Vec<Comparison>,
    pub products: Vec<product::Comparison>,
}

impl Report {
    /// A table for each size and number of threads.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "plumbline {}, {} on {}, the median of rounds (and the best).",
            self.version,
            self.simd,
            self.processor.as_deref().unwrap_or("an unnamed processor"),
        );
        if !self.comparisons.is_empty() {
            let _ = writeln!(
                text,
                "\nConversions in 10^9 elements per second; `x` is how many times as fast Plumbline is."
            );
        }
        let mut shown: Vec<(usize, usize)> = Vec::new();
        for comparison in &self.comparisons {
            let table = (comparison.elements, comparison.threads);
            if !shown.contains(&table) {
                shown.push(table);
                self.table(&mut text, table);
            }
        }
        if !self.blocks.is_empty() {
            self.blocks(&mut text);
        }
        for comparison in self.comparisons.iter().chain(&self.blocks) {
            for contender in comparison.contenders.iter().filter(|contender| contender.differing > 0) {
                let _ = writeln!(
                    text,
                    "\n{} differs from Plumbline in {} of {} results of {}, the first of element {}.",
                    contender.name,
                    contender.differing,
                    comparison.elements,
                    comparison.conversion,
                    contender.first_differing.unwrap_or_default(),
                );
            }
        }
        if !self.layers.is_empty() {
            self.layers(&mut text);
        }
        if !self.products.is_empty() {
            self.products(&mut text);
        }
        text
    }

    fn blocks(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nGGML blocks, 2^20 values to f32 in GB/s of them, 4096 x 4096 products with f32 vectors in 10^9 \
             multiply-adds per second; `x` is how many times as fast Plumbline is.\n"
        );
        let _ = writeln!(text, "| blocks | threads | Plumbline | others |\n|---|---|---|---|");
        for it in &self.blocks {
            let Some((ours, others)) = it.contenders.split_first() else { continue };
            let unit = it.bytes.max(1) as f64;
            let speed = |it: &Measured| format!("{:.1} ({:.1})", it.median * unit, it.best * unit);
            let other = |it: &Measured| format!("{} {}: {:.2}x", it.name, speed(it), it.ratio);
            let others = others.iter().map(other).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "| {} | {} | {} | {others} |", it.conversion, it.threads, speed(ours));
        }
    }

    fn layers(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nLayers of f32 in 10^9 elements per second, memory for the results included; `x` is how many times as \
             fast Plumbline is. candle-core computes on one thread.\n"
        );
        let _ = writeln!(
            text,
            "| layer | elements | threads | Plumbline | GB/s | others |\n|---|---|---|---|---|---|"
        );
        for it in &self.layers {
            let Some((ours, others)) = it.contenders.split_first() else { continue };
            let other = |it: &Measured| format!("{} {}: {:.2}x", it.name, speed(it), it.ratio);
            let others = others.iter().map(other).collect::<Vec<_>>().join(", ");
            let rate = ours.median * it.bytes as f64;
            let _ = writeln!(
                text,
                "| {} | 2^{} | {} | {} | {rate:.1} | {others} |",
                it.conversion,
                it.elements.ilog2(),
                it.threads,
                speed(ours)
            );
        }
    }

    fn products(&self, text: &mut String) {
        let _ = writeln!(text, "\nMatrix products in 10^6 multiply-adds per second:\n");
        let _ = writeln!(text, "| product | M x N x K | threads | speed |\n|---|---|---|---|");
        for it in &self.products {
            let speed = |it: &product::Measured| format!("{} {:.0} ({:.0})", it.name, it.median, it.best);
            let speeds = it.contenders.iter().map(speed).collect::<Vec<_>>().join(", ");
            let [m, n, k] = it.size;
            let _ = writeln!(text, "| {} | {m} x {n} x {k} | {} | {speeds} |", it.product, it.threads);
        }
        for it in &self.products {
            for contender in it.contenders.iter().filter(|contender| contender.differing > 0) {
                let _ = writeln!(
                    text,
                    "\n{} differs from the definition in {} results of {}.",
                    contender.name, contender.differing, it.product
                );
            }
        }
    }

    fn table(&self, text: &mut String, (elements, threads): (usize, usize)) {
        let plural = if threads == 1 { "" } else { "s" };
        let _ = writeln!(text, "\n2^{} elements, {threads} thread{plural}:\n", elements.ilog2());
        let _ = writeln!(text, "| conversion | Plumbline | GB/s | others |\n|---|---|---|---|");
        for it in &self.comparisons {
            if (it.elements, it.threads) != (elements, threads) {
                continue;
            }
            let Some((ours, others)) = it.contenders.split_first() else { continue };
            let other = |it: &Measured| format!("{} {}: {:.2}x", it.name, speed(it), it.ratio);
            let others = others.iter().map(other).collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {others} |",
                it.conversion,
                speed(ours),
                ours.median * it.bytes as f64,
            );
        }
    }
}

fn speed(measured: &Measured) -> String {
    format!("{:.2} ({:.2})", measured.median, measured.best)
}

/// As Linux names it.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(name.trim_start_matches([' ', '\t', ':']).to_owned())
}
