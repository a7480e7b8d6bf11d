//! Strategies over shapes: lengths at and around those where loops, vectors and blocks
//! of threads end.

use plumbline_reference::ops::Granularity;
use proptest::prelude::*;
use proptest::sample::select;

const AROUND_VECTORS: [usize; 16] = [0, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257];
const AROUND_THREADS: [usize; 6] = [1023, 1024, 1025, 2049, 4095, 4097];
/// The reference's parallel path takes up to 2^14 elements at a time.
const AROUND_TASKS: [usize; 4] = [16_383, 16_384, 16_385, 32_769];

/// Numbers of elements.
pub(super) fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        80 => 1..=9usize,
        80 => select(&AROUND_VECTORS[..]),
        40 => 1..=300usize,
        8 => select(&AROUND_THREADS[..]),
        1 => select(&AROUND_TASKS[..]),
    ]
}

/// Shapes of the first input of an operation of that granularity.
pub(super) fn shapes(granularity: Granularity) -> BoxedStrategy<Vec<usize>> {
    match granularity {
        Granularity::Tensor => prop_oneof![
            8 => lengths().prop_map(|n| vec![n]),
            1 => Just(vec![]),
            2 => (0..=4usize, 0..=33usize).prop_map(|(m, k)| vec![m, k]),
            1 => (1..=3usize, 1..=3usize, 1..=17usize).prop_map(|(a, b, c)| vec![a, b, c]),
        ]
        .boxed(),
        Granularity::Row => (rows(), lengths()).prop_map(|(m, k)| vec![m, k]).boxed(),
        Granularity::Block(n) => {
            (rows(), 0..=4usize).prop_map(move |(m, blocks)| vec![m, blocks * n]).boxed()
        }
    }
}

fn rows() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..=3usize, 1 => select(vec![0usize, 4, 5, 7])]
}
