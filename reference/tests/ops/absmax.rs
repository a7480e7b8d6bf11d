//! `absmax`.

use crate::noise::noise;
use crate::support::{codes, evaluate, f32s, first, first_f32, tensor, vector};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, E8M0, F16, F32, TF32, UE4M3};
use plumbline_reference::ops::{Absmax, AbsmaxNan, Granularity, Op};
use plumbline_reference::{Path, Tensor, TensorType};

const PROPAGATE: Absmax = Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity: Granularity::Tensor };
const IGNORE: Absmax = Absmax { nan: AbsmaxNan::Ignore, ..PROPAGATE };
const CANONICAL_NAN: u64 = 0x7fff_ffff;

#[test]
fn the_largest_magnitude_is_found_at_every_position() {
    for n in [1, 2, 31, 32, 33, 257, 20_000] {
        for position in [0, n / 3, n / 2, n - 1] {
            let mut values: Vec<_> = (0..n).map(|i| (noise(i as u64) % 1000) as f32 / -10.0).collect();
            values[position] = -123.5;
            assert_eq!(first_f32(PROPAGATE, &[vector(&values)]), [123.5], "{position} of {n}");
        }
    }
}

#[test]
fn order_changes_nothing() {
    let mut values: Vec<_> = (0..5000).map(|i| f32::from_bits(noise(i) as u32)).collect();
    let (propagated, ignored) = (first(PROPAGATE, &[vector(&values)]), first(IGNORE, &[vector(&values)]));
    assert_eq!(propagated, [CANONICAL_NAN]);
    for turn in 0..20 {
        values.rotate_left(251);
        values.swap(turn, 4999 - turn);
        values[turn..].reverse();
        assert_eq!(first(PROPAGATE, &[vector(&values)]), propagated);
        assert_eq!(first(IGNORE, &[vector(&values)]), ignored);
    }
}

#[test]
fn nan_propagates_from_every_position_or_is_ignored() {
    for n in [1, 2, 4, 33, 20_000] {
        for position in [0, n / 2, n - 1] {
            for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
                let mut values = vec![-1.5; n];
                values[position] = nan;
                assert_eq!(first(PROPAGATE, &[vector(&values)]), [CANONICAL_NAN], "{position} of {n}");
                let rest = if n == 1 { 0.0 } else { 1.5 };
                assert_eq!(first_f32(IGNORE, &[vector(&values)]), [rest], "{position} of {n}");
            }
        }
    }
}

#[test]
fn of_nothing_and_of_nan_alone() {
    assert_eq!(first(PROPAGATE, &[vector(&[])]), [0]);
    assert_eq!(first(IGNORE, &[vector(&[])]), [0]);
    assert_eq!(first(PROPAGATE, &[vector(&[f32::NAN; 40])]), [CANONICAL_NAN]);
    assert_eq!(first(IGNORE, &[vector(&[f32::NAN; 40])]), [0]);
}

#[test]
fn zero_is_positive_and_infinity_is_a_magnitude() {
    assert_eq!(first(PROPAGATE, &[vector(&[-0.0; 3])]), [0]);
    assert_eq!(first_f32(PROPAGATE, &[vector(&[1.0, f32::NEG_INFINITY, f32::MAX])]), [f32::INFINITY]);
    assert_eq!(first_f32(IGNORE, &[vector(&[f32::NAN, f32::NEG_INFINITY])]), [f32::INFINITY]);
    assert_eq!(first(PROPAGATE, &[vector(&[f32::INFINITY, f32::NAN])]), [CANONICAL_NAN]);
}

#[test]
fn subnormals_count() {
    let smallest = f32::from_bits(1);
    assert_eq!(first(PROPAGATE, &[vector(&[0.0, -smallest])]), [1]);
    let two = codes(BF16, &[0x8001, 0x0000]);
    assert_eq!(first(Absmax { from: BF16, ..PROPAGATE }, &[two]), [0x0001_0000]);
}

#[test]
fn rows_and_blocks_have_their_own_maximum() {
    let x = f32s(&[2, 4], &[1.0, -2.0, 3.0, f32::NAN, -8.0, 7.0, 0.5, -0.25]);
    let by =
        |granularity| evaluate(Absmax { granularity, ..IGNORE }, std::slice::from_ref(&x)).swap_remove(0);
    assert_eq!(by(Granularity::Row), f32s(&[2], &[3.0, 8.0]));
    assert_eq!(by(Granularity::Block(2)), f32s(&[2, 2], &[2.0, 3.0, 8.0, 0.5]));
    assert_eq!(by(Granularity::Block(4)), f32s(&[2, 1], &[3.0, 8.0]));
    let ones = [1.0, 2.0, 3.0, 0.0, 8.0, 7.0, 0.5, 0.25];
    assert_eq!(by(Granularity::Block(1)), f32s(&[2, 4], &ones));
    let propagate = Absmax { granularity: Granularity::Row, ..PROPAGATE };
    assert_eq!(first(propagate, &[x]), [CANONICAL_NAN, 8f32.to_bits().into()]);
}

#[test]
fn empty_rows_have_maximum_zero_and_no_rows_have_none() {
    let empty = |shape: [usize; 2]| Tensor::from_bytes(TensorType::new(F32, shape), vec![]).unwrap();
    let shape_and_codes = |granularity, shape| {
        let y = evaluate(Absmax { granularity, ..PROPAGATE }, &[empty(shape)]).swap_remove(0);
        (y.shape().to_vec(), y.codes().collect::<Vec<_>>())
    };
    assert_eq!(shape_and_codes(Granularity::Tensor, [0, 0]), (vec![], vec![0]));
    assert_eq!(shape_and_codes(Granularity::Row, [3, 0]), (vec![3], vec![0, 0, 0]));
    assert_eq!(shape_and_codes(Granularity::Row, [0, 3]), (vec![0], vec![]));
    assert_eq!(shape_and_codes(Granularity::Block(32), [3, 0]), (vec![3, 0], vec![]));
    assert_eq!(shape_and_codes(Granularity::Block(32), [0, 64]), (vec![0, 2], vec![]));
}

#[test]
fn every_source_is_read_in_its_own_format() {
    let of = |from, all: &[u64]| first_f32(Absmax { from, ..PROPAGATE }, &[codes(from, all)]);
    assert_eq!(of(E4M3FN, &[0xfe, 0x00]), [448.0]);
    assert_eq!(of(E5M2, &[0xfc, 0x7b]), [f32::INFINITY]);
    assert_eq!(of(F16, &[0x0001, 0xfbff]), [65504.0]);
    assert_eq!(of(TF32, &[0xc080_2000]), [4.0 + 1.0 / 256.0]);
    assert_eq!(of(E8M0, &[0x00, 0x7f]), [1.0]);
    // The top bit is padding, not a sign.
    assert_eq!(of(UE4M3, &[0xfe]), [448.0]);
}

#[test]
fn one_nan_among_many_is_found_by_every_number_of_threads() {
    let mut values = vec![1.0; 100_003];
    values[77_777] = f32::NAN;
    let x = [tensor(F32, &[100_003], &values.iter().map(|v: &f32| v.to_bits().into()).collect::<Vec<_>>())];
    for threads in [1, 2, 3, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let y = pool.install(|| Op::from(PROPAGATE).evaluate(&x, Path::Parallel)).unwrap();
        assert_eq!(y[0].code(0), CANONICAL_NAN);
    }
}
