//! Sums of products without any rounding.
//!
//! The numbers of a row are integers times the weight of the last bit that any of them has.
//! Such an integer is cut into digits of [`DIGIT`] bits; products of digits are summed in f64,
//! exactly, as many as fit, and sums of digits of the same weight in i64. The whole is an i128.
#![expect(clippy::needless_range_loop, reason = "an index is that of several arrays at once")]

use super::{Factor, GROUP, ROWS, TASK};
use crate::fast::lanes::Lanes;
use crate::fast::{Kernel, Simd};
use rayon::prelude::*;

/// Bits of a digit.
const DIGIT: u32 = 20;
/// Bits of an integer at most; a row that needs more is left to the definition.
const INTEGER: u32 = 52;
/// Digits of such an integer.
const DIGITS: usize = INTEGER.div_ceil(DIGIT) as usize;
/// Products of two digits whose sum an f64 holds.
const EXACT: usize = 1 << (53 - 2 * DIGIT);
/// Columns of a panel.
const LANES: usize = 16;
/// Fewer products than it have sums of digits that fit an i64, of three pairs each.
const MAX_K: usize = 1 << (62 - 2 * DIGIT - 1);
/// Bits of a sum at most.
const SUM: u32 = 126;

/// The exact sums of every element.
pub(crate) struct ExactSums {
    /// Panel by panel, row by row.
    values: Vec<[i128; LANES]>,
    rows: usize,
    row_units: Vec<Option<i32>>,
    column_units: Vec<Option<i32>>,
}

impl ExactSums {
    /// The sum of a row of each factor, as `integer * 2^exponent`; `None` where the definition
    /// is to be asked.
    pub(crate) fn get(&self, row: usize, column: usize) -> Option<(i128, i32)> {
        let exponent = self.row_units[row]? + self.column_units[column]?;
        Some((self.values[column / LANES * self.rows + row][column % LANES], exponent))
    }
}

/// The rows of a factor as integers.
struct Integers {
    /// Digits of each, the least first.
    digits: usize,
    /// Digit by digit of each group of rows; where the group is one row, its numbers side by side.
    values: Vec<f64>,
    /// The weight of a row's last bit; `None` for infinities, NaNs and too many bits.
    units: Vec<Option<i32>>,
    bits: u32,
}

impl Integers {
    /// Groups of `width` rows, their numbers of the same k side by side.
    fn new(factor: &Factor<'_>, k: usize, width: usize, padded: usize) -> Self {
        let row = |row: usize| {
            let mut range = Some((i32::MAX, i32::MIN));
            for i in 0..k {
                range = range.and_then(|range| include(range, factor.bits(row, i)));
            }
            match range {
                None => (None, 0),
                Some((last, first)) if first < last => (Some(0), 0),
                Some((last, first)) => {
                    let bits = (first - last + 1) as u32;
                    if bits <= INTEGER { (Some(last), bits) } else { (None, 0) }
                }
            }
        };
        let (mut units, bits): (Vec<_>, Vec<_>) = (0..factor.rows).into_par_iter().map(row).unzip();
        let bits = bits.into_iter().max().unwrap_or(0);
        units.resize(padded, None);
        let digits = bits.div_ceil(DIGIT).max(1) as usize;
        let mut values = vec![0.0; padded * digits * k];
        if values.is_empty() {
            return Self { digits, values, units, bits };
        }
        values.par_chunks_mut(width * digits * k).enumerate().for_each(|(group, values)| {
            for lane in 0..width {
                let row = group * width + lane;
                let Some(Some(unit)) = units.get(row).filter(|_| row < factor.rows) else { continue };
                for i in 0..k {
                    let mut rest = integer(factor.bits(row, i), *unit);
                    let negative = rest < 0;
                    for digit in 0..digits {
                        let magnitude = (rest.unsigned_abs() & ((1 << DIGIT) - 1)) as f64;
                        values[(digit * k + i) * width + lane] =
                            if negative { -magnitude } else { magnitude };
                        rest /= 1 << DIGIT;
                    }
                }
            }
        });
        Self { digits, values, units, bits }
    }
}

/// Widens a range of weights, from that of a last bit to that of a first one.
fn include((last, first): (i32, i32), bits: u32) -> Option<(i32, i32)> {
    let (significand, unit) = parts(bits)?;
    if significand == 0 {
        return Some((last, first));
    }
    let own_last = unit + significand.trailing_zeros() as i32;
    let own_first = unit + significand.ilog2() as i32;
    Some((last.min(own_last), first.max(own_first)))
}

/// `significand * 2^unit`, if it is a number.
fn parts(bits: u32) -> Option<(u32, i32)> {
    let field = bits >> 23 & 0xff;
    let hidden = if field > 0 { 1 << 23 } else { 0 };
    (field < 0xff).then_some((bits & 0x7f_ffff | hidden, field.max(1) as i32 - 150))
}

/// The number in that unit, of which it is a multiple.
fn integer(bits: u32, unit: i32) -> i64 {
    let Some((significand, own)) = parts(bits) else { return 0 };
    if significand == 0 {
        return 0;
    }
    let significand = i64::from(significand);
    let magnitude = match own - unit {
        left @ 0.. => significand << left,
        right => significand >> right.unsigned_abs(),
    };
    if (bits as i32) < 0 { -magnitude } else { magnitude }
}

/// The sums of every row of `a` with every row of `b`, each over `k` products. `None` where
/// they may be too large.
pub(crate) fn exact(simd: Simd, a: Factor<'_>, b: Factor<'_>, k: usize) -> Option<ExactSums> {
    let height = ROWS.min(a.rows.next_multiple_of(GROUP)).max(GROUP);
    let rows = a.rows.next_multiple_of(height);
    let columns = b.rows.next_multiple_of(LANES);
    let (a, b) = (Integers::new(&a, k, 1, rows), Integers::new(&b, k, LANES, columns));
    if a.bits + b.bits + k.max(1).ilog2() + 1 > SUM || k >= MAX_K {
        return None;
    }
    let mut values = vec![[0; LANES]; columns / LANES * rows];
    let (of_row, of_panel) = (a.digits * k, b.digits * k * LANES);
    let enough = 1 + TASK / (height * of_panel.max(1));
    values.par_chunks_mut(height).enumerate().with_min_len(enough).for_each(|(i, out)| {
        let (panel, row) = (i * height / rows, i * height % rows);
        simd.run(Digits {
            k,
            digits: [a.digits, b.digits],
            rows: &a.values[row * of_row..][..out.len() * of_row],
            panel: b.values[panel * of_panel..][..of_panel].as_chunks().0,
            out,
        });
    });
    Some(ExactSums { values, rows, row_units: a.units, column_units: b.units })
}

/// The exact sums of one tile.
struct Digits<'a> {
    k: usize,
    digits: [usize; 2],
    rows: &'a [f64],
    panel: &'a [[f64; LANES]],
    out: &'a mut [[i128; LANES]],
}

impl Kernel for Digits<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { k, digits: [da, db], .. } = self;
        for group in (0..self.out.len()).step_by(GROUP) {
            let mut sums = [[[0i64; LANES]; GROUP]; 2 * DIGITS - 1];
            for i in 0..da {
                for j in 0..db {
                    for start in (0..k).step_by(EXACT) {
                        let count = EXACT.min(k - start);
                        let mut rows = [self.rows; GROUP];
                        for r in 0..GROUP {
                            rows[r] = &self.rows[((group + r) * da + i) * k + start..][..count];
                        }
                        let panel = &self.panel[j * k + start..][..count];
                        for lane in (0..LANES).step_by(2 * L::DOUBLES) {
                            products(l, rows, panel, lane, &mut sums[i + j]);
                        }
                    }
                }
            }
            for r in 0..GROUP {
                for lane in 0..LANES {
                    let mut whole = 0i128;
                    for weight in (0..da + db - 1).rev() {
                        whole = (whole << DIGIT) + i128::from(sums[weight][r][lane]);
                    }
                    self.out[group + r][lane] = whole;
                }
            }
        }
    }
}

/// Adds the products of digits of four rows and two registers of columns.
#[inline(always)]
fn products<L: Lanes>(
    l: L,
    rows: [&[f64]; GROUP],
    panel: &[[f64; LANES]],
    lane: usize,
    sums: &mut [[i64; LANES]; GROUP],
) {
    let mut registers = [[l.splat_double(0.0); 2]; GROUP];
    for (k, b) in panel.iter().enumerate() {
        let b = [l.load_doubles(&b[lane..]), l.load_doubles(&b[lane + L::DOUBLES..])];
        for r in 0..GROUP {
            let a = l.splat_double(rows[r][k]);
            for h in 0..2 {
                registers[r][h] = l.exact_multiply_add(a, b[h], registers[r][h]);
            }
        }
    }
    for r in 0..GROUP {
        for h in 0..2 {
            let mut stored = [0.0; LANES];
            l.store_doubles(registers[r][h], &mut stored);
            for i in 0..L::DOUBLES {
                sums[r][lane + h * L::DOUBLES + i] += stored[i] as i64;
            }
        }
    }
}
