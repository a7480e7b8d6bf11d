//! Contenders in turn, many times over: what disturbs one disturbs all.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use crate::conversion::{Conversion, Named};

/// A conversion of so many elements on so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub conversion: Conversion,
    pub log2: u32,
    pub threads: usize,
}

/// How fast each contender was.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub conversion: String,
    pub elements: usize,
    pub threads: usize,
    pub rounds: usize,
    /// Read and written for each element.
    pub bytes: usize,
    /// The reference first.
    pub contenders: Vec<Measured>,
}

/// How fast one contender was, in 10^9 elements per second.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: &'static str,
    pub median: f64,
    pub best: f64,
    /// How many times as fast the reference is: the median over rounds, each compared with
    /// its own.
    pub ratio: f64,
    /// Elements whose code is not the reference's.
    pub differing: usize,
    pub first_differing: Option<usize>,
}

/// Calls of a visit. What fits a cache is called more often, after one call that fills it.
const CALLS_IN_CACHE: usize = 12;

impl Setting {
    pub fn name(self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}/2^{}/{}-thread{plural}", self.conversion.name(), self.log2, self.threads)
    }

    /// Measures on the current thread pool.
    pub fn measure(self, rounds: usize) -> Result<Comparison> {
        let n = 1usize << self.log2;
        let x = self.conversion.input(n)?;
        let contenders = self.conversion.contenders(x.bytes(), self.threads)?;
        let calls = if n * self.conversion.bytes() > 32 << 20 { 1 } else { CALLS_IN_CACHE };
        let contenders = compare(contenders, n, n, calls, rounds);
        Ok(Comparison {
            conversion: self.conversion.name(),
            elements: n,
            threads: self.threads,
            rounds,
            bytes: self.conversion.bytes(),
            contenders,
        })
    }
}

/// Contenders, the reference first, that each convert `elements` with a call; the first `results` of
/// their results are compared.
pub fn compare(
    mut contenders: Vec<Named<'_>>,
    elements: usize,
    results: usize,
    calls: usize,
    rounds: usize,
) -> Vec<Measured> {
    // The first call also gives each its memory.
    contenders.iter_mut().for_each(|(_, contender)| contender.convert());
    let agreement: Vec<_> =
        contenders.iter().map(|contender| disagreement(&contenders[0], contender, results)).collect();
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let who = (round + turn) % contenders.len();
            times[who].push(visit(&mut contenders[who], calls));
        }
    }
    let measured =
        contenders.iter().zip(&times).zip(agreement).map(|(((name, _), visits), (differing, first))| {
            let all = visits.iter().flatten().copied();
            let ratios = visits.iter().zip(&times[0]).map(|(its, ours)| median(its) / median(ours));
            Measured {
                name,
                median: rate(elements, median(&all.clone().collect::<Vec<_>>())),
                best: rate(elements, all.fold(f64::INFINITY, f64::min)),
                ratio: median(&ratios.collect::<Vec<_>>()),
                differing,
                first_differing: first,
            }
        });
    measured.collect()
}

/// Seconds of each call.
fn visit((_, contender): &mut Named<'_>, calls: usize) -> Vec<f64> {
    if calls > 1 {
        contender.convert();
    }
    let timed = |_| {
        let start = Instant::now();
        contender.convert();
        start.elapsed().as_secs_f64()
    };
    (0..calls).map(timed).collect()
}

/// How many results differ, and the first that does.
fn disagreement((_, ours): &Named<'_>, (_, other): &Named<'_>, n: usize) -> (usize, Option<usize>) {
    let mut differing = (0..n).filter(|&i| ours.code(i) != other.code(i));
    let first = differing.next();
    (usize::from(first.is_some()) + differing.count(), first)
}

fn rate(elements: usize, seconds: f64) -> f64 {
    elements as f64 / seconds / 1e9
}

/// The upper of the two where there is no middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversion::ALL;

    #[test]
    fn every_contender_gives_the_same_codes() -> Result<()> {
        for conversion in ALL {
            let compared = Setting { conversion, log2: 12, threads: 2 }.measure(1)?;
            assert!(compared.contenders.len() > 2, "{}", compared.conversion);
            for contender in compared.contenders {
                assert_eq!(contender.differing, 0, "{} {contender:?}", compared.conversion);
            }
        }
        Ok(())
    }

    #[test]
    fn a_median_needs_no_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(median(&[]).is_nan());
    }
}
