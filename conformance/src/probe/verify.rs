//! Orders of accumulation against a backend, bit for bit on random inputs.

use super::ProbeError;
use super::target::{Extents, Target, nearest};
use crate::seed::mix;
use plumbline_reference::accumulate::{Accumulation, Sum};
use plumbline_reference::format::{BF16, F16, Format, Rounding, TF32};
use plumbline_reference::ops::{Compute, Operands};
use plumbline_reference::{Path, Tensor};
use serde::Serialize;

/// An order of accumulation, and on how many elements it gives a backend's bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The order.
    pub accumulate: Accumulation,
    /// What operands are converted to first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operands: Option<Operands>,
    /// Elements with the same bits.
    pub equal: usize,
    /// Elements compared.
    pub of: usize,
}

impl Fit {
    /// Whether every element has the same bits.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.equal == self.of && self.of > 0
    }
}

/// Products computed by the definition for one order.
const BUDGET: usize = 1 << 24;

/// Compares; the orders that fit best come first.
pub(super) fn verify(target: &Target<'_>, orders: Vec<Accumulation>) -> Result<Vec<Fit>, ProbeError> {
    let Extents { m, n, k } = target.extents();
    let gemm = target.gemm();
    let inputs = target.inputs(
        |row, column| random(gemm.a, 1, row * k + column),
        |row, column| random(gemm.b, 2, column * k + row),
        |_, _| 0.0,
    )?;
    let got = target.run(&inputs)?;
    let positions = sample(m * n, (BUDGET / k).max(1));
    let mut fits = Vec::new();
    for order in orders {
        for accumulate in with_narrow_partials(order) {
            for operands in conversions(target) {
                let equal = equal(target, &inputs, &got, &positions, operands, &accumulate);
                fits.push(Fit { accumulate: accumulate.clone(), operands, equal, of: positions.len() });
            }
        }
    }
    fits.sort_by_key(|fit| fit.of - fit.equal);
    Ok(fits)
}

fn equal(
    target: &Target<'_>,
    inputs: &[Tensor],
    got: &Tensor,
    positions: &[usize],
    operands: Option<Operands>,
    accumulate: &Accumulation,
) -> usize {
    let expected =
        target.gemm().accumulated(operands, accumulate.clone()).at(inputs, positions, Path::fastest());
    positions.iter().zip(expected).filter(|&(&position, code)| got.code(position) == code).count()
}

/// Partial sums may be rounded before they are added, and so may what additions give.
fn with_narrow_partials(order: Accumulation) -> Vec<Accumulation> {
    let mut orders = vec![order];
    if let Accumulation::Sum(sum) = &orders[0] {
        let narrow = [BF16, F16].into_iter().flat_map(|format| {
            let sum = || (**sum).clone();
            [Sum { partials: format, ..sum() }, Sum { sums: format, ..sum() }]
        });
        let narrow: Vec<_> = narrow.map(Accumulation::from).collect();
        orders.extend(narrow);
    }
    orders
}

/// What a and b may be converted to.
fn conversions(target: &Target<'_>) -> Vec<Option<Operands>> {
    let gemm = target.gemm();
    if gemm.operands.is_some() || gemm.compute != Compute::Tf32 {
        return vec![gemm.operands];
    }
    let tf32 = |rounding| Some(Operands { to: TF32, rounding });
    vec![tf32(Rounding::NearestEven), tf32(Rounding::TowardZero)]
}

/// Evenly spread positions, not in step with rows.
fn sample(len: usize, most: usize) -> Vec<usize> {
    if len <= most {
        return (0..len).collect();
    }
    (0..most).map(|i| (mix(3, i as u64) % len as u64) as usize).collect()
}

/// A value of either sign from 2^-4 to 2^4.
fn random(format: Format, seed: u64, index: usize) -> u64 {
    let bits = mix(seed, index as u64);
    let significand = 1.0 + (bits >> 40) as f64 / f64::from(1 << 24);
    let magnitude = significand * super::target::power((bits & 7) as i32 - 4);
    nearest(format, if bits & 8 == 0 { magnitude } else { -magnitude })
}
