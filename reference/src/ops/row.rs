//! Sums over a row, in the order that all operations on rows share.
//!
//! Term `i` is added to lane `i mod 256`, in ascending order, from +0; then the upper half of the
//! lanes is added to the lower half until one is left: `lane[l] + lane[l + 128]`, `... + 64]`,
//! down to 1. That is one block of 256 threads with a tree in shared memory. Lanes without terms
//! hold +0 and are added all the same.

/// Lanes of a row.
pub(crate) const LANES: usize = 256;

/// The lanes' sum.
pub(crate) fn tree(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        let (lower, upper) = lanes.split_at_mut(half);
        for (lower, upper) in lower.iter_mut().zip(upper) {
            *lower += *upper;
        }
        half /= 2;
    }
    lanes[0]
}

/// What adding the terms lane by lane gives, before the tree.
pub(crate) fn lanes<T: Copy>(terms: &[T], add: impl Fn(f32, T) -> f32) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    for row in terms.chunks(LANES) {
        for (lane, &term) in lanes.iter_mut().zip(row) {
            *lane = add(*lane, term);
        }
    }
    lanes
}

/// The sum.
pub(crate) fn sum(terms: &[f32]) -> f32 {
    tree(lanes(terms, |lane, term| lane + term))
}

/// The sum of squares, each an fma.
pub(crate) fn sum_of_squares(terms: &[f32]) -> f32 {
    tree(lanes(terms, |lane, term| term.mul_add(term, lane)))
}
