//! Matrix products: the reference's fast path on each instruction set, and its definition.
//!
//! A multiply-add counts once. Every call computes a whole `gemm`, from codes to codes: operands
//! are decoded and packed, sums finished and rounded. The definition is the plain loop over
//! scalars that says what is right; of a large product it computes the first rows, which are
//! compared with the same rows of the others. Two sizes show that time grows as M * N * K.
//!
//! Figures of public emulators of tensor cores, in millions of multiply-adds per second on two
//! cores at 2.8 GHz: mmasim 15 to 20, Hawkeye 29 to 36, hardware_rounding_error_predictor (bf16)
//! 190 to 211, mmaemu (FP8) 198 to 377.

use std::time::Instant;

use anyhow::Result;
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, E4M3FN, F16, F32, Format, Rounding, TF32};
use plumbline_reference::ops::{Gemm, Op, Operands};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};
use serde::Serialize;

use crate::measure::median;

/// A product to measure.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub name: &'static str,
    format: Format,
    /// The block of a tensor core, fused multiply-adds, or no rounding at all.
    order: Order,
    numbers: Numbers,
}

#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// Eight binades around 1/4.
    Moderate,
    /// Any finite number.
    Any,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Chain(Block),
    Fma,
    Exact,
}

/// What inference multiplies in, and the sums that judge it.
pub const ALL: [Product; 8] = [
    Product::chain("f16-hopper", F16, Block::HOPPER),
    Product::chain("bf16-hopper", BF16, Block::HOPPER),
    Product { numbers: Numbers::Any, ..Product::chain("bf16-hopper-any", BF16, Block::HOPPER) },
    Product::chain("e4m3-hopper_fp8", E4M3FN, Block::HOPPER_FP8),
    Product::chain("tf32-hopper_tf32", F32, Block::HOPPER_TF32),
    Product { name: "f32-fma", format: F32, order: Order::Fma, numbers: Numbers::Moderate },
    Product { name: "e4m3-exact", format: E4M3FN, order: Order::Exact, numbers: Numbers::Any },
    Product { name: "f16-exact", format: F16, order: Order::Exact, numbers: Numbers::Any },
];

/// M, N and K.
pub const SIZES: [[usize; 3]; 2] = [[256, 256, 256], [512, 512, 2048]];

/// A product of that size on so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub product: Product,
    pub size: [usize; 3],
    pub threads: usize,
}

/// How fast each contender was.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub product: &'static str,
    pub size: [usize; 3],
    pub threads: usize,
    pub rounds: usize,
    /// The fastest instruction set first, the definition last.
    pub contenders: Vec<Measured>,
}

/// How fast one contender was, in 10^6 multiply-adds per second.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: &'static str,
    pub median: f64,
    pub best: f64,
    /// Results of the definition's rows that are not the definition's.
    pub differing: usize,
}

/// Multiply-adds that the definition computes at most.
const BY_DEFINITION: usize = 1 << 24;
/// Visits of the definition, which is slow.
const ROUNDS_BY_DEFINITION: usize = 3;

impl Product {
    const fn chain(name: &'static str, format: Format, block: Block) -> Self {
        Self { name, format, order: Order::Chain(block), numbers: Numbers::Moderate }
    }

    fn gemm(self) -> Gemm {
        let gemm = Gemm::new(self.format, self.format, F32);
        match self.order {
            Order::Exact => gemm,
            Order::Fma => gemm.accumulated(None, Accumulation::Fma),
            Order::Chain(block) => {
                let tf32 = Operands { to: TF32, rounding: Rounding::NearestEven };
                let operands = (self.format == F32).then_some(tf32);
                gemm.accumulated(operands, Accumulation::Chain(block))
            }
        }
    }

    fn code(self, seed: u64, i: usize) -> u64 {
        let random = mix(seed, i as u64);
        let format = self.format;
        let magnitude = match self.numbers {
            Numbers::Any => random % (format.max_finite() + 1),
            Numbers::Moderate => {
                let field = (format.bias - 5) as u64 + (random >> 20 & 7);
                field << format.fraction_bits | random >> 30 & ((1 << format.fraction_bits) - 1)
            }
        };
        if random >> 63 == 1 { magnitude | format.sign_bit() } else { magnitude }
    }

    fn inputs(self, [m, n, k]: [usize; 3]) -> Result<[Tensor; 2], TensorError> {
        let tensor = |shape: [usize; 2], seed| {
            Tensor::from_fn(TensorType::new(self.format, shape), Path::Parallel, |i| self.code(seed, i))
        };
        Ok([tensor([m, k], 11)?, tensor([k, n], 22)?])
    }
}

/// SplitMix64.
fn mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Setting {
    pub fn name(self) -> String {
        let [m, n, k] = self.size;
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("product/{}/{m}x{n}x{k}/{}-thread{plural}", self.product.name, self.threads)
    }

    /// Measures on the current thread pool.
    pub fn measure(self, rounds: usize) -> Result<Comparison> {
        let [m, n, k] = self.size;
        let op = Op::from(self.product.gemm());
        let inputs = self.product.inputs(self.size)?;
        // The first rows, as many as the definition computes in some seconds.
        let few = m.min(BY_DEFINITION / (n * k)).max(1);
        let width = inputs[0].dtype().bytes();
        let first = inputs[0].bytes()[..few * k * width].to_vec();
        let rows =
            [Tensor::from_bytes(TensorType::new(self.product.format, [few, k]), first)?, inputs[1].clone()];

        let instruction_sets = instruction_sets();
        let mut times = vec![Vec::new(); instruction_sets.len()];
        let mut results = Vec::new();
        for &simd in &instruction_sets {
            // This call also fills the caches.
            results.push(op.evaluate(&inputs, Path::Simd(simd))?.remove(0));
        }
        for round in 0..rounds {
            for turn in 0..instruction_sets.len() {
                let who = (round + turn) % instruction_sets.len();
                times[who].push(timed(&op, &inputs, Path::Simd(instruction_sets[who]))?);
            }
        }
        let expected = op.evaluate(&rows, Path::Parallel)?.remove(0);
        let by_definition = (0..rounds.min(ROUNDS_BY_DEFINITION))
            .map(|_| timed(&op, &rows, Path::Parallel))
            .collect::<Result<Vec<_>>>()?;

        let measured = |name, times: &[f64], multiply_adds: usize, result: &Tensor| {
            let rate = |seconds: f64| multiply_adds as f64 / seconds / 1e6;
            let differing = (0..few * n).filter(|&i| result.code(i) != expected.code(i)).count();
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            Measured { name, median: rate(median(times)), best: rate(best), differing }
        };
        let mut contenders: Vec<_> = instruction_sets
            .iter()
            .zip(&times)
            .zip(&results)
            .map(|((simd, times), result)| measured(simd.name(), times, m * n * k, result))
            .collect();
        contenders.push(measured("definition", &by_definition, few * n * k, &expected));
        Ok(Comparison {
            product: self.product.name,
            size: self.size,
            threads: self.threads,
            rounds,
            contenders,
        })
    }
}

/// Those of this processor beyond its baseline, if there are any.
fn instruction_sets() -> Vec<Simd> {
    let mut all: Vec<_> = Simd::all().collect();
    if all.len() > 1 {
        all.pop();
    }
    all
}

fn timed(op: &Op, inputs: &[Tensor], path: Path) -> Result<f64> {
    let start = Instant::now();
    op.evaluate(inputs, path)?;
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_results_of_the_definition() -> Result<()> {
        for product in ALL {
            let compared = Setting { product, size: [20, 40, 100], threads: 2 }.measure(1)?;
            assert!(compared.contenders.len() > 1);
            for contender in compared.contenders {
                assert_eq!(contender.differing, 0, "{} {contender:?}", compared.product);
            }
        }
        Ok(())
    }
}
