//! Operands in the order that products are taken in.

use super::plan::Plan;
use super::{Factor, LANES, PAIRS};
use rayon::prelude::*;

/// The exponent of zero: below that of any number, even when two of them are added.
pub(super) const ZERO: i16 = -8192;
/// What f32 adds to an exponent.
pub(super) const BIAS: i16 = 127;

/// What is known of some rows or columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The least exponent of a number that is not zero.
    pub(super) least: i32,
    /// The largest.
    pub(super) largest: i32,
}

impl Extent {
    const NONE: Self = Self { least: i32::MAX, largest: i32::MIN };

    fn include(&mut self, exponent: i16) {
        if exponent != ZERO {
            self.least = self.least.min(exponent.into());
            self.largest = self.largest.max(exponent.into());
        }
    }

    pub(super) fn union(extents: &[Self]) -> Self {
        extents.iter().fold(Self::NONE, |all, extent| Self {
            least: all.least.min(extent.least),
            largest: all.largest.max(extent.largest),
        })
    }

    /// Whether all numbers are zero.
    pub(super) fn is_empty(self) -> bool {
        self.largest < self.least
    }
}

/// The rows of a: f32 bits and exponents of each, in the order of the plan.
pub(super) struct Rows {
    pub(super) values: Vec<u32>,
    /// With f32's bias, in both halves of a word.
    pub(super) exponents: Vec<u32>,
    pub(super) extents: Vec<Extent>,
    /// Rows that hold infinities or NaNs.
    pub(super) special: Vec<bool>,
}

/// The columns of b, [`LANES`] of them side by side: a panel.
pub(super) struct Panels {
    pub(super) values: Vec<[u32; LANES]>,
    /// Column `i` in the lower half of word `i`, column `i + PAIRS` in the upper.
    pub(super) exponents: Vec<[u32; PAIRS]>,
    pub(super) extents: Vec<Extent>,
    /// Columns that hold infinities or NaNs.
    pub(super) special: Vec<bool>,
}

impl Rows {
    /// As many rows as `padded` says, those beyond the factor's of zeros.
    pub(super) fn new(factor: &Factor<'_>, plan: &Plan, padded: usize) -> Self {
        let length = plan.order.len();
        let mut rows = Self {
            values: vec![0; padded * length],
            exponents: vec![0; if plan.has_blocks { padded * length } else { 0 }],
            extents: vec![Extent::NONE; padded],
            special: vec![false; padded],
        };
        if length == 0 {
            return rows;
        }
        rows.values
            .par_chunks_mut(length)
            .zip(&mut rows.special)
            .enumerate()
            .take(factor.rows)
            .with_min_len(1 + (1 << 13) / length)
            .for_each(|(row, (values, special))| {
                for (value, k) in values.iter_mut().zip(&plan.order) {
                    if let Some(k) = *k {
                        *value = factor.bits(row, k);
                        *special |= is_special(*value);
                    }
                }
            });
        if plan.has_blocks {
            let min = factor.min_exponent();
            rows.exponents
                .par_chunks_mut(length)
                .zip(rows.values.par_chunks(length))
                .zip(&mut rows.extents)
                .with_min_len(1 + (1 << 13) / length)
                .for_each(|((exponents, values), extent)| {
                    for (exponent, value) in exponents.iter_mut().zip(values) {
                        let e = exponent_of(*value, min);
                        extent.include(e);
                        *exponent = u32::from((e + BIAS) as u16) * 0x1_0001;
                    }
                });
        }
        rows
    }
}

impl Panels {
    pub(super) fn new(factor: &Factor<'_>, plan: &Plan) -> Self {
        let length = plan.order.len();
        let panels = factor.rows.div_ceil(LANES);
        let mut packed = Self {
            values: vec![[0; LANES]; panels * length],
            exponents: vec![[0; PAIRS]; if plan.has_blocks { panels * length } else { 0 }],
            extents: vec![Extent::NONE; panels],
            special: vec![false; panels * LANES],
        };
        if length == 0 {
            return packed;
        }
        packed.values.par_chunks_mut(length).zip(packed.special.par_chunks_mut(LANES)).enumerate().for_each(
            |(panel, (values, special))| {
                let columns = LANES.min(factor.rows - panel * LANES);
                for (values, k) in values.iter_mut().zip(&plan.order) {
                    let Some(k) = *k else { continue };
                    for (lane, value) in values[..columns].iter_mut().enumerate() {
                        *value = factor.bits(panel * LANES + lane, k);
                        special[lane] |= is_special(*value);
                    }
                }
            },
        );
        if plan.has_blocks {
            let min = factor.min_exponent();
            packed
                .exponents
                .par_chunks_mut(length)
                .zip(packed.values.par_chunks(length))
                .zip(&mut packed.extents)
                .for_each(|((exponents, values), extent)| {
                    for (exponents, values) in exponents.iter_mut().zip(values) {
                        for (i, pair) in exponents.iter_mut().enumerate() {
                            let [low, high] = [i, i + PAIRS].map(|i| exponent_of(values[i], min));
                            extent.include(low);
                            extent.include(high);
                            *pair = u32::from(high as u16) << 16 | u32::from(low as u16);
                        }
                    }
                });
        }
        packed
    }
}

fn is_special(bits: u32) -> bool {
    bits >> 23 & 0xff == 0xff
}

/// `max(floor(log2 |x|), min)`, [`ZERO`] for zero.
fn exponent_of(bits: u32, min: i16) -> i16 {
    if bits << 1 == 0 { ZERO } else { ((bits >> 23 & 0xff) as i16 - BIAS).max(min) }
}
