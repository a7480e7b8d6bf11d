//! Which elements of a large product are judged.

use crate::seed::mix;
use std::collections::BTreeSet;

/// Multiply-adds up to which every element is judged.
const WHOLE: u128 = 1 << 24;
/// Elements of a sample.
const SAMPLED: usize = 4096;

/// Elements to judge, and what that finds.
pub(super) struct Sample {
    /// Row-major positions, ascending.
    pub(super) positions: Vec<usize>,
    /// Elements of the output.
    elements: usize,
    /// How many of the positions are independent, uniform draws; the others are corners,
    /// edges and the borders of tiles.
    drawn: usize,
}

impl Sample {
    /// All elements of a small product; else the corners, elements of first and last rows and
    /// columns and of rows and columns at the borders of tiles, and uniform draws.
    pub(super) fn of([batch, m, n, k]: [usize; 4], seed: u64) -> Self {
        let elements = batch * m * n;
        if [batch, m, n, k].map(|extent| extent as u128).iter().product::<u128>() <= WHOLE
            || elements <= SAMPLED
        {
            return Self { positions: (0..elements).collect(), elements, drawn: elements };
        }
        let draw = |i: u64, extent: usize| (mix(seed, i) % extent as u64) as usize;
        let mut positions: BTreeSet<usize> = (0..batch.min(64))
            .map(|first| if first == 63 { batch - 1 } else { first })
            .flat_map(|batch| {
                edges(m, n).into_iter().map(move |(row, column)| (batch * m + row) * n + column)
            })
            .collect();
        let edges = positions.len();
        let drawn = SAMPLED.saturating_sub(edges).max(SAMPLED / 2);
        positions.extend((0..drawn as u64).map(|i| draw(i, elements)));
        Self { positions: positions.into_iter().collect(), elements, drawn }
    }

    /// What the sample guarantees, in words.
    pub(super) fn guarantee(&self) -> String {
        if self.positions.len() == self.elements {
            return format!("all {} elements judged", self.elements);
        }
        // (1 - share)^drawn = 1/1000
        let share = 1.0 - 0.001f64.powf(1.0 / self.drawn as f64);
        format!(
            "{} of {} elements judged, {} of them drawn uniformly: a fault of {:.2}% of the elements is found \
             with 99.9%",
            self.positions.len(),
            self.elements,
            self.drawn,
            100.0 * share
        )
    }

    /// A few positions of the sample, spread over it.
    pub(super) fn spread(&self, count: usize) -> Vec<usize> {
        let len = self.positions.len();
        let count = count.min(len);
        (0..count).map(|i| self.positions[i * len / count]).collect()
    }
}

/// Corners, and one element at each side of the borders of tiles along both edges.
fn edges(m: usize, n: usize) -> Vec<(usize, usize)> {
    let borders = |extent: usize| -> Vec<usize> {
        let inner =
            [8, 16, 32, 64, 128, 256].into_iter().flat_map(|tile| [tile - 1, tile, extent / tile * tile]);
        let all = inner.chain([0, extent / 2, extent - 1]);
        all.filter(|&at| at < extent).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let (rows, columns) = (borders(m), borders(n));
    let along_rows = rows.iter().flat_map(|&row| [(row, 0), (row, n - 1), (row, n / 3)]);
    let along_columns = columns.iter().flat_map(|&column| [(0, column), (m - 1, column), (m / 3, column)]);
    along_rows.chain(along_columns).collect()
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn a_small_product_is_judged_whole_and_a_large_one_at_its_edges() {
        let small = Sample::of([1, 17, 40, 136], 1);
        assert_eq!(small.positions, (0..17 * 40).collect::<Vec<_>>());
        let (m, n) = (5000, 7000);
        let large = Sample::of([1, m, n, 100], 1);
        assert!((4000..4600).contains(&large.positions.len()));
        for corner in [0, n - 1, (m - 1) * n, m * n - 1, 127 * n, 128 * n, 4992 * n] {
            assert!(large.positions.binary_search(&corner).is_ok(), "{corner}");
        }
        assert!(large.positions.iter().all(|&position| position < m * n));
        assert!(large.guarantee().contains("0.17% of the elements"), "{}", large.guarantee());
        assert_ne!(large.positions, Sample::of([1, m, n, 100], 2).positions);
    }
}
