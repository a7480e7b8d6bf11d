//! `rms_norm` and `layer_norm`: every path gives the definition's bits; the bound holds the
//! algorithms that it is said to hold, and not the others.

use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, F16, F32, Format, Policy, Value};
use plumbline_reference::interval::Steps;
use plumbline_reference::ops::{Bits32, LayerNorm, Op, RmsNorm};
use plumbline_reference::{Path, Tensor, TensorType};

fn code(format: Format, x: f32) -> u64 {
    format.encode(Value::from(x), &Policy::IEEE, 0)
}

fn tensor(format: Format, shape: &[usize], x: &[f32]) -> Tensor {
    let codes: Vec<_> = x.iter().map(|&x| code(format, x)).collect();
    Tensor::from_codes(TensorType::new(format, shape), &codes).expect("fits")
}

/// Numbers from -1 to 1.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn rms(eps: f32) -> RmsNorm {
    RmsNorm { from: F32, weight: None, to: F32, eps: Bits32(eps), compensated: false }
}

fn layer(eps: f32) -> LayerNorm {
    LayerNorm { from: F32, weight: None, bias: None, to: F32, eps: Bits32(eps), compensated: false }
}

/// Every operation on rows with these inputs.
fn operations(from: Format, to: Format, eps: f32) -> Vec<(Op, usize)> {
    let mut all = Vec::new();
    for compensated in [false, true] {
        for weight in [None, Some(from), Some(F32)] {
            let op = RmsNorm { from, weight, to, compensated, ..rms(eps) };
            all.push((op.into(), usize::from(weight.is_some())));
            for bias in [None, Some(to)] {
                let op = LayerNorm { from, weight, bias, to, compensated, ..layer(eps) };
                all.push((op.into(), usize::from(weight.is_some()) + usize::from(bias.is_some())));
            }
        }
    }
    all
}

/// How many elements are outside the bound.
fn outside(op: &Op, inputs: &[Tensor], format: Format, got: &[f32]) -> usize {
    let positions: Vec<_> = (0..got.len()).collect();
    let reached = op.enclosure(inputs, 0, &positions, Steps::F32).expect("has one");
    let encoded = |x: f64| format.ordinal(format.encode(Value::from(x), &Policy::IEEE, 0));
    let is_outside = |&i: &usize| {
        if !reached[i].is_number() || got[i].is_nan() {
            return reached[i].is_number() || !got[i].is_nan();
        }
        let got = format.ordinal(code(format, got[i]));
        !(encoded(reached[i].low) <= got && got <= encoded(reached[i].high))
    };
    positions.iter().filter(|i| is_outside(i)).count()
}

fn numbers(format: Format, tensor: &Tensor) -> Vec<f32> {
    tensor.codes().map(|code| format.to_f64(code) as f32).collect()
}

fn check(op: &Op, inputs: &[Tensor], to: Format) {
    let right = op.evaluate(inputs, Path::Definition).expect("fits").remove(0);
    for path in Simd::all().map(Path::Simd).chain([Path::Parallel]) {
        let got = op.evaluate(inputs, path).expect("fits").remove(0);
        let differing = (0..right.len()).find(|&i| got.code(i) != right.code(i));
        assert_eq!(differing, None, "{op:?} on {path:?}, shape {:?}", right.shape());
    }
    assert_eq!(outside(op, inputs, to, &numbers(to, &right)), 0, "{op:?}, shape {:?}", right.shape());
    let positions: Vec<_> = (0..right.len()).collect();
    let [real, reached] =
        [Steps::Real, Steps::F32].map(|steps| op.enclosure(inputs, 0, &positions, steps).expect("has one"));
    for (i, (real, reached)) in real.iter().zip(&reached).enumerate() {
        let holds = !real.is_number() || reached.low <= real.low && real.high <= reached.high;
        assert!(holds, "{op:?}, element {i}: {real:?} is not in {reached:?}");
    }
}

#[test]
fn every_path_gives_the_same_bits_within_the_bound() {
    for n in [1, 2, 31, 32, 33, 255, 256, 257, 300, 513, 1025] {
        for (from, to) in [(F32, F32), (F16, F16), (BF16, F32), (F32, BF16)] {
            for (op, vectors) in operations(from, to, 1e-5) {
                let mut inputs = vec![tensor(from, &[3, n], &noise(3 * n, n as u64))];
                let types = op.input_names();
                for i in 0..vectors {
                    let format = match (&op, types[i + 1]) {
                        (Op::RmsNorm(op), _) => op.weight,
                        (Op::LayerNorm(op), "weight") => op.weight,
                        (Op::LayerNorm(op), _) => op.bias,
                        _ => None,
                    };
                    inputs.push(tensor(format.expect("given"), &[n], &noise(n, 77 + i as u64)));
                }
                check(&op, &inputs, to);
            }
        }
    }
}

#[test]
fn special_rows_do_too() {
    let n = 260;
    let with = |at: usize, x: f32| {
        let mut row = noise(n, 5);
        row[at] = x;
        row
    };
    let signs: Vec<_> = (0..n).map(|i| if i % 2 == 0 { 0.0 } else { -0.0 }).collect();
    let rows = [
        vec![0.0; n],
        signs,
        vec![3.25; n],
        with(7, f32::NAN),
        with(259, f32::INFINITY),
        with(0, f32::NEG_INFINITY),
        noise(n, 6).iter().map(|x| x * 1e20).collect(),
        noise(n, 6).iter().map(|x| x * 3e38).collect(),
        noise(n, 6).iter().map(|x| x * 1e-30).collect(),
        noise(n, 6).iter().map(|x| x * 1e-44).collect(),
        noise(n, 6).iter().map(|x| 1000.0 + x).collect(),
    ];
    for eps in [0.0, 1e-5, 1.0] {
        for compensated in [false, true] {
            for row in &rows {
                let x = [tensor(F32, &[n], row)];
                check(&RmsNorm { compensated, ..rms(eps) }.into(), &x, F32);
                check(&LayerNorm { compensated, ..layer(eps) }.into(), &x, F32);
            }
        }
    }
}

fn evaluated(op: impl Into<Op>, shape: &[usize], x: &[f32]) -> Vec<f32> {
    let y = op.into().evaluate(&[tensor(F32, shape, x)], Path::Definition).expect("fits").remove(0);
    numbers(F32, &y)
}

#[test]
fn special_values_are_those_that_are_documented() {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    // Zeros keep their sign.
    assert_eq!(bits(evaluated(rms(1e-5), &[2], &[0.0, -0.0])), [0, 0x8000_0000]);
    assert!(evaluated(rms(0.0), &[2], &[0.0, -0.0]).iter().all(|y| y.is_nan()));
    // Where squares overflow, everything is 0.
    assert_eq!(bits(evaluated(rms(1e-5), &[2], &[1e20, -1e20])), [0, 0x8000_0000]);
    let infinite = evaluated(rms(1e-5), &[2], &[f32::INFINITY, -1.0]);
    assert!(infinite[0].is_nan() && infinite[1].to_bits() == 0x8000_0000);
    // With an eps inside the root.
    assert_eq!(evaluated(rms(7.0), &[2], &[3.0, 3.0]), [0.75, 0.75]);
    assert_eq!(evaluated(layer(0.0), &[2], &[1.0, 5.0]), [-1.0, 1.0]);
    assert_eq!(evaluated(layer(12.0), &[2], &[1.0, 5.0]), [-0.5, 0.5]);
    assert_eq!(evaluated(layer(1e-5), &[3], &[4.0, 4.0, 4.0]), [0.0, 0.0, 0.0]);
    assert!(evaluated(layer(1e-5), &[2], &[f32::INFINITY, 1.0]).iter().all(|y| y.is_nan()));
    for shape in [[0, 5], [5, 0]] {
        assert!(evaluated(rms(0.0), &shape, &[]).is_empty());
        assert!(evaluated(layer(0.0), &shape, &[]).is_empty());
    }
}

#[test]
fn compensated_sums_are_nearer() {
    // Lane 0 gets a 1 and then squares of half its last bit each, which a plain sum loses.
    let n = 256 * 4096;
    let small = 2f32.powi(-12);
    let row: Vec<_> = (0..n)
        .map(|i| match i {
            0 => 1.0,
            i if i % 256 == 0 => small,
            _ => 0.0,
        })
        .collect();
    let exact = 1.0 / ((1.0 + 4095.0 * f64::from(small) * f64::from(small)) / n as f64).sqrt();
    let error = |compensated| {
        let y = evaluated(RmsNorm { compensated, ..rms(0.0) }, &[n], &row)[0];
        (f64::from(y) / exact - 1.0).abs()
    };
    assert!(error(false) > 1e-4, "{}", error(false));
    assert!(error(true) < 2e-7, "{}", error(true));
    // And only theirs are within their bound.
    let op: Op = RmsNorm { compensated: true, ..rms(0.0) }.into();
    let plain = evaluated(rms(0.0), &[n], &row);
    assert!(outside(&op, &[tensor(F32, &[n], &row)], F32, &plain) > 0);
}

/// Mean and variance by Welford's updates.
fn welford(x: &[f32]) -> (f32, f32) {
    let (mut mean, mut squares) = (0f32, 0f32);
    for (i, &x) in x.iter().enumerate() {
        let d = x - mean;
        mean += d / (i + 1) as f32;
        squares += d * (x - mean);
    }
    (mean, squares / x.len() as f32)
}

fn two_passes(x: &[f32]) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    (mean, x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n)
}

fn one_pass(x: &[f32]) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    (mean, x.iter().map(|x| x * x).sum::<f32>() / n - mean * mean)
}

fn by(x: &[f32], eps: f32, moments: fn(&[f32]) -> (f32, f32)) -> Vec<f32> {
    let (mean, variance) = moments(x);
    let r = 1.0 / (variance + eps).sqrt();
    x.iter().map(|x| (x - mean) * r).collect()
}

#[test]
fn two_passes_and_updates_are_within_the_bound_and_one_pass_is_not() {
    let op: Op = layer(1e-5).into();
    let n = 64;
    for offset in [0.0, 1.0, 100.0, 3000.0, -20_000.0, 1e6] {
        let mut seen = 0;
        for seed in 0..50 {
            let row: Vec<_> = noise(n, 1 + seed).iter().map(|x| x + offset).collect();
            let x = [tensor(F32, &[n], &row)];
            for moments in [two_passes, welford] {
                assert_eq!(outside(&op, &x, F32, &by(&row, 1e-5, moments)), 0, "{offset} {seed}");
            }
            seen += usize::from(outside(&op, &x, F32, &by(&row, 1e-5, one_pass)) > 0);
        }
        // It is as good as the others where the mean is small; where it is so large that the others
        // are hardly better, the bound is wide.
        let (least, most) = match offset.abs() {
            0.0 => (0, 0),
            1e3..1e5 => (40, 50),
            _ => (0, 50),
        };
        assert!((least..=most).contains(&seen), "{offset}: {seen} of 50");
    }
}

#[test]
fn sums_in_other_orders_are_within_the_bound_and_wrong_rows_are_not() {
    let op: Op = rms(1e-5).into();
    for n in [5, 64, 1000] {
        let row = noise(n, 9);
        let x = [tensor(F32, &[n], &row)];
        let with = |squares: f32, count: usize, eps: f32| -> Vec<f32> {
            let r = (squares / count as f32 + eps).sqrt();
            row.iter().map(|x| x / r).collect()
        };
        let ascending: f32 = row.iter().map(|x| x * x).sum();
        let descending: f32 = row.iter().rev().map(|x| x * x).sum();
        for squares in [ascending, descending] {
            assert_eq!(outside(&op, &x, F32, &with(squares, n, 1e-5)), 0);
            assert!(outside(&op, &x, F32, &with(squares, n - 1, 1e-5)) > n / 2);
            assert!(outside(&op, &x, F32, &with(squares, n, 1.2e-3)) > n / 2);
        }
        let without_last: f32 = row[..n - 1].iter().map(|x| x * x).sum();
        assert!(outside(&op, &x, F32, &with(without_last, n, 1e-5)) > 0);
    }
}

#[test]
fn errors_name_what_does_not_fit() {
    let error = |op: &Op, shapes: &[&[usize]]| {
        let types: Vec<_> = shapes.iter().map(|&shape| TensorType::new(F32, shape)).collect();
        op.signature(&types).expect_err("does not fit").to_string()
    };
    let weighted: Op = RmsNorm { weight: Some(F32), ..rms(0.0) }.into();
    assert_eq!(error(&weighted, &[&[2, 8], &[7]]), "rms_norm: input `weight` has shape [7], expected [8]");
    assert_eq!(error(&rms(0.0).into(), &[&[]]), "rms_norm: input `x` has shape [], expected [.., n]");
    assert!(error(&weighted, &[&[8]]).contains("1 inputs given, expected 2: x, weight"));
    assert!(error(&rms(-1.0).into(), &[&[8]]).contains("`eps`: is -1, expected a number from 0"));
    assert!(error(&layer(f32::NAN).into(), &[&[8]]).contains("`eps`: is NaN"));
    let biased: Op = LayerNorm { bias: Some(F32), ..layer(0.0) }.into();
    assert_eq!(error(&biased, &[&[2, 8], &[2]]), "layer_norm: input `bias` has shape [2], expected [8]");
}
