//! Whole matrix products in a given order of accumulation.
//!
//! Operands are widened to f32, which holds every number of their formats, and packed in the
//! order that products are taken in: rows of a one by one, columns of b side by side in panels
//! of [`LANES`]. A tile is some rows and one panel; each leaf of the order runs over it, and
//! sums of parts are added tile by tile.
//!
//! Infinities and NaNs take no part in blocks here: elements that meet any are left to the
//! definition.

mod digits;
mod general;
mod leaf;
mod narrow;
mod pack;
mod plan;

pub(crate) use digits::exact;
pub(crate) use plan::Plan;

use super::Simd;
use crate::format::{F32, F64, Format, Policy};
use crate::ops::arithmetic;
use leaf::Tile;
use pack::{BIAS, Extent, Panels, Rows, ZERO};
use plan::Node;
use rayon::prelude::*;
use std::ops::Range;

/// Columns of a panel.
const LANES: usize = 32;
/// Words that hold an exponent of each column of a panel.
const PAIRS: usize = LANES / 2;
/// Rows of a tile: few, so that its partial sums stay in the caches.
const ROWS: usize = 16;
/// Rows of a tile are a multiple of it.
const GROUP: usize = 4;
/// Multiply-adds that are worth a task.
const TASK: usize = 1 << 18;

/// One factor of a product: rows whose numbers meet those of the other factor's rows.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    /// f32 bits.
    pub(crate) values: &'a [u32],
    /// The format whose numbers they are.
    pub(crate) format: Format,
    pub(crate) rows: usize,
    /// From one row to the next.
    pub(crate) row_stride: usize,
    /// From one number of a row to the next.
    pub(crate) stride: usize,
}

impl Factor<'_> {
    fn bits(&self, row: usize, k: usize) -> u32 {
        self.values[row * self.row_stride + k * self.stride]
    }

    fn min_exponent(&self) -> i16 {
        self.format.min_exponent() as i16
    }
}

/// The sums of every element.
pub(crate) struct Sums {
    /// Panel by panel, row by row.
    values: Vec<[u32; LANES]>,
    rows: usize,
    special_rows: Vec<bool>,
    special_columns: Vec<bool>,
    /// Rows are the second factor's.
    swapped: bool,
}

impl Sums {
    /// The sum of a row of the first factor and a row of the second. NaN is of any payload;
    /// `None` where the definition is to be asked.
    #[inline]
    pub(crate) fn get(&self, row: usize, column: usize) -> Option<f32> {
        let (row, column) = if self.swapped { (column, row) } else { (row, column) };
        if self.special_rows[row] || self.special_columns[column] {
            return None;
        }
        Some(f32::from_bits(self.values[column / LANES * self.rows + row][column % LANES]))
    }
}

impl Plan {
    /// The sums of every row of `a` with every row of `b`. `start`, for blocks alone, says what
    /// an element's chain starts from: a finite f32 for each, row by row of `a`.
    pub(crate) fn evaluate(&self, simd: Simd, a: Factor<'_>, b: Factor<'_>, start: Option<&[f32]>) -> Sums {
        // Products commute, and the wider side fills the lanes.
        let swapped = b.rows < LANES && a.rows > b.rows;
        let [row, column] = if swapped { [b, a] } else { [a, b] };
        let height = ROWS.min(row.rows.next_multiple_of(GROUP)).max(GROUP);
        let rows = row.rows.next_multiple_of(height);
        let (packed, panels) = (Rows::new(&row, self, rows), Panels::new(&column, self));
        let fraction_bits = [row.format.fraction_bits, column.format.fraction_bits];
        let mut values = vec![[0; LANES]; panels.extents.len() * rows];
        if let Some(start) = start {
            for (i, start) in start.iter().enumerate() {
                let (m, n) = (i / b.rows, i % b.rows);
                let (m, n) = if swapped { (n, m) } else { (m, n) };
                values[n / LANES * rows + m][n % LANES] = start.to_bits();
            }
        }
        let length = self.order.len();
        let job = Job { simd, rows: &packed, panels: &panels, length, fraction_bits };
        let enough = 1 + TASK / (height * LANES * length.max(1));
        values.par_chunks_mut(height).enumerate().with_min_len(enough).for_each(|(i, out)| {
            let (panel, row) = (i * height / rows, i * height % rows);
            job.node(&self.root, row, panel, out);
        });
        let no = |special: Vec<bool>| if self.has_blocks { special } else { vec![false; special.len()] };
        Sums { values, rows, special_rows: no(packed.special), special_columns: no(panels.special), swapped }
    }
}

struct Job<'a> {
    simd: Simd,
    rows: &'a Rows,
    panels: &'a Panels,
    /// Products of a packed row.
    length: usize,
    fraction_bits: [u32; 2],
}

type Partial = Vec<[u32; LANES]>;

impl Job<'_> {
    /// The sums of a tile, on top of what `out` holds where the node is a chain.
    fn node(&self, node: &Node, row: usize, panel: usize, out: &mut [[u32; LANES]]) {
        match node {
            Node::Leaf(leaf, products) => {
                self.tile(row, out.len(), panel, products).evaluate(self.simd, *leaf, out);
            }
            Node::Sum { parts, sum } => {
                let part = |(i, part)| {
                    let mut sums: Partial = vec![[0; LANES]; out.len()];
                    self.node(part, row, panel, &mut sums);
                    round(sum.partials, &mut sums);
                    if i == 0 {
                        round(sum.sums, &mut sums);
                    }
                    sums
                };
                let parts = parts.iter().enumerate().map(part).collect();
                out.copy_from_slice(&sum.reduce.add(parts, |a, b| add(sum.sums, a, b)));
            }
        }
    }

    fn tile(&self, row: usize, rows: usize, panel: usize, products: &Range<usize>) -> Tile<'_> {
        let (of_rows, of_panel) = (row * self.length + products.start, panel * self.length);
        let columns = of_panel + products.start..of_panel + products.end;
        Tile {
            rows: self.rows.values.get(of_rows..).unwrap_or_default(),
            row_exponents: self.rows.exponents.get(of_rows..).unwrap_or_default(),
            stride: self.length,
            columns: &self.panels.values[columns.clone()],
            column_exponents: self.panels.exponents.get(columns).unwrap_or_default(),
            length: products.len(),
            extents: [Extent::union(&self.rows.extents[row..][..rows]), self.panels.extents[panel]],
            fraction_bits: self.fraction_bits,
        }
    }
}

/// Rounds to the format, to nearest even. f32 and f64 hold every sum of f32.
fn round(format: Format, sums: &mut [[u32; LANES]]) {
    if [F32, F64].contains(&format) {
        return;
    }
    for sum in sums.as_flattened_mut() {
        let code = format.encode(arithmetic(f32::from_bits(*sum)), &Policy::IEEE, 0);
        *sum = F32.encode(format.decode(code), &Policy::IEEE, 0) as u32;
    }
}

/// Elementwise; a partial without elements is of zeros.
fn add(format: Format, mut a: Partial, mut b: Partial) -> Partial {
    let len = a.len().max(b.len());
    a.resize(len, [0; LANES]);
    b.resize(len, [0; LANES]);
    for (a, b) in a.as_flattened_mut().iter_mut().zip(b.as_flattened()) {
        *a = (f32::from_bits(*a) + f32::from_bits(*b)).to_bits();
    }
    round(format, &mut a);
    a
}
