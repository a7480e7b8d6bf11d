//! Softmax and attention: every path gives the definition's bits, they lie within the bound, and
//! small ones have the values that the formulas give in f64.

use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, F16, F32, Format, Policy, Value};
use plumbline_reference::interval::Steps;
use plumbline_reference::ops::{
    Alignment, Attention, Bits32, Causal, FullyMasked, LogSoftmax, Op, Softmax, SoftmaxOrder,
};
use plumbline_reference::{Path, Tensor, TensorType};

fn hash(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn tensor(format: Format, shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let count = shape.iter().product();
    let codes: Vec<_> = (0..count).map(|i| format.encode(Value::from(value(i)), &Policy::IEEE, 0)).collect();
    Tensor::from_codes(TensorType::new(format, shape), &codes).expect("fits")
}

/// From -2 to 2.
fn random(seed: u64) -> impl Fn(usize) -> f64 {
    move |i| (hash(seed << 32 | i as u64) >> 40) as f64 / f64::from(1 << 22) - 2.0
}

/// The outputs of the definition, having compared all paths and the bound with them.
fn checked(op: &Op, inputs: &[Tensor]) -> Vec<f64> {
    let right = op.evaluate(inputs, Path::Definition).expect("fits").remove(0);
    for path in Simd::all().map(Path::Simd).chain([Path::Parallel]) {
        assert_eq!(op.evaluate(inputs, path).expect("fits")[0], right, "{op:?} on {path:?}");
    }
    let format = right.dtype().format().expect("numbers");
    let positions: Vec<_> = (0..right.len()).collect();
    let [real, reached] =
        [Steps::Real, Steps::F32].map(|steps| op.enclosure(inputs, 0, &positions, steps).expect("has one"));
    let limits = op.limits(inputs, 0);
    let encoded = |x: f64| format.ordinal(format.encode(Value::from(x), &Policy::IEEE, 0));
    for (i, code) in right.codes().enumerate() {
        if format.decode(code).is_nan() {
            assert!(!reached[i].is_number(), "{op:?} [{i}]: NaN, bound {:?}", reached[i]);
            continue;
        }
        let got = format.ordinal(code);
        assert!(
            encoded(reached[i].low) <= got && got <= encoded(reached[i].high),
            "{op:?} [{i}]: {} is not in {:?}, exactly {:?}",
            format.to_f64(code),
            reached[i],
            real[i],
        );
        let y = format.to_f64(code);
        if format == F32 && y.is_finite() && right.len() < 10_000 {
            // The bound is of use: it refuses what is wrong by a hundredth of what is summed.
            let holds =
                |y: f64| encoded(reached[i].low) <= encoded(y) && encoded(y) <= encoded(reached[i].high);
            let error = if matches!(op, Op::Attention(_)) { 0.02 } else { (y.abs() * 0.01).max(1e-5) };
            for wrong in [y + error, y - error, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(wrong == y || !holds(wrong), "{op:?} [{i}]: {wrong} for {y} is in {:?}", reached[i]);
            }
        }
        if let Some(limits) = &limits {
            assert!(limits[i].low <= y && y <= limits[i].high, "{op:?} [{i}]: {y} is beyond {:?}", limits[i]);
        }
    }
    right.codes().map(|code| format.to_f64(code)).collect()
}

#[test]
fn widths_from_one_on() {
    for n in (1..70).chain([127, 128, 129, 255, 256, 257, 511, 513, 1000, 1023, 1024, 1025]) {
        for (from, to) in [(F32, F32), (BF16, BF16), (F16, F32)] {
            // All logits negative, and a row of them far off.
            let x = tensor(from, &[2, n], |i| random(n as u64)(i) - 3.0 - if i >= n { 60.0 } else { 0.0 });
            let y = checked(&Softmax::new(from, to).into(), std::slice::from_ref(&x));
            let log = checked(&LogSoftmax::new(from, to).into(), std::slice::from_ref(&x));
            for (y, log) in y.chunks(n).zip(log.chunks(n)) {
                let tolerance = if to == F32 { 1e-5 } else { 0.05 };
                assert!((y.iter().sum::<f64>() - 1.0).abs() <= tolerance, "{n}");
                for (y, log) in y.iter().zip(log) {
                    assert!((y.ln() - log).abs() <= tolerance, "{y} {log}");
                }
            }
        }
    }
}

#[test]
fn a_large_offset_cancels() {
    // <https://github.com/pytorch/pytorch/issues/38839>
    let x = tensor(F32, &[3], |i| -(i as f64) - 1e7);
    let log = checked(&LogSoftmax::new(F32, F32).into(), std::slice::from_ref(&x));
    for (got, right) in log.iter().zip([-0.407_606, -1.407_606, -2.407_606]) {
        assert!((got - right).abs() < 1e-6, "{got} {right}");
    }
}

#[test]
fn a_long_row() {
    let n = 1_000_000;
    let x = tensor(F32, &[n], random(3));
    let y = checked(&Softmax::new(F32, F32).into(), &[x]);
    assert!((y.iter().sum::<f64>() - 1.0).abs() < 1e-4);
}

#[test]
fn huge_elements_have_a_bound() {
    // Differences are far beyond the range of exponentials; some are lost in the roundings of the
    // products.
    for size in [1e3, 1e10, 1e19, 1e30] {
        for scale in [1.0, 0.1, -0.5] {
            let x = tensor(F32, &[4, 33], |i| size * random(5)(i));
            let scale = Bits32(scale);
            let softmax = Op::from(Softmax { scale, ..Softmax::new(F32, F32) });
            let reached = |op: &Op| {
                op.enclosure(std::slice::from_ref(&x), 0, &(0..x.len()).collect::<Vec<_>>(), Steps::F32)
                    .expect("has one")
            };
            let y = softmax.evaluate(std::slice::from_ref(&x), Path::Definition).expect("fits").remove(0);
            for (code, reached) in y.codes().zip(reached(&softmax)) {
                let y = F32.to_f64(code);
                assert!(
                    reached.low <= y && y <= reached.high && reached.high <= 1.000_001,
                    "{size} {scale:?}: {y} {reached:?}"
                );
            }
            let log = Op::from(LogSoftmax { scale, ..LogSoftmax::new(F32, F32) });
            assert!(reached(&log).iter().all(|log| log.is_number() && log.high <= 1e-6), "{size} {scale:?}");
        }
    }
    // -Inf with a scale.
    let x = tensor(F32, &[1, 3], |i| if i == 1 { f64::NEG_INFINITY } else { i as f64 });
    for scale in [0.125, 8.0] {
        let scale = Bits32(scale);
        let y = checked(&Softmax { scale, ..Softmax::new(F32, F32) }.into(), std::slice::from_ref(&x));
        assert_eq!(y[1].to_bits(), 0);
        let log =
            checked(&LogSoftmax { scale, ..LogSoftmax::new(F32, F32) }.into(), std::slice::from_ref(&x));
        assert_eq!(log[1], f64::NEG_INFINITY);
    }
}

#[test]
fn attention_of_huge_products_has_a_bound() {
    for size in [1.0, 1e2, 2e3, 2e4] {
        let inputs = [
            tensor(F16, &[2, 3, 128], |i| size * random(1)(i)),
            tensor(F16, &[1, 9, 128], |i| size * random(2)(i)),
            tensor(F16, &[1, 9, 128], |i| random(3)(i) + 3.0),
        ];
        for softmax in [SoftmaxOrder::TwoPass, SoftmaxOrder::Online(4)] {
            let op = Op::from(Attention { softmax, ..Attention::new(F16, F16, F32) });
            let right = op.evaluate(&inputs, Path::Definition).expect("fits").remove(0);
            let positions: Vec<_> = (0..right.len()).collect();
            for (code, reached) in
                right.codes().zip(op.enclosure(&inputs, 0, &positions, Steps::F32).expect("has one"))
            {
                let y = F32.to_f64(code);
                assert!(reached.low <= y && y <= reached.high, "{size}: {y} {reached:?}");
                assert!(reached.low > 0.9 && reached.high < 5.1, "{size}: {reached:?}");
            }
        }
    }
}

#[test]
fn masks_and_special_values() {
    let inf = f64::INFINITY;
    let zeros = Softmax::new(F32, F32);
    let nan = Softmax { fully_masked: FullyMasked::Nan, ..zeros };
    let none = tensor(F32, &[2, 3], |i| if i < 3 { -inf } else { i as f64 });
    assert_eq!(checked(&zeros.into(), std::slice::from_ref(&none))[..3], [0.0; 3]);
    let y = checked(&nan.into(), std::slice::from_ref(&none));
    assert!(y[..3].iter().all(|y| y.is_nan()) && y[3] > 0.0);
    let y = checked(&LogSoftmax::new(F32, F32).into(), std::slice::from_ref(&none));
    assert_eq!(y[..3], [-inf; 3]);
    // Leading tiles of -Inf.
    let x = tensor(F32, &[1, 130], |i| if i < 64 { -inf } else { (i % 5) as f64 });
    let y = checked(&zeros.into(), &[x]);
    assert!(y[..64].iter().all(|y| *y == 0.0) && y[64..].iter().all(|y| *y > 0.0));
    // NaN spreads over its row alone.
    let x = tensor(F32, &[2, 5], |i| if i == 2 { f64::NAN } else { 1.0 });
    let y = checked(&zeros.into(), &[x]);
    assert!(y[..5].iter().all(|y| y.is_nan()) && y[5..].iter().all(|y| *y == f64::from(0.2f32)));
    // Queries 3 and 4 of 5: an offset of 3.
    let causal = Softmax { causal: Some(Causal { offset: 3 }), ..zeros };
    let x = tensor(F32, &[2, 5], |i| if i == 4 { f64::NAN } else { 0.0 });
    assert_eq!(
        checked(&causal.into(), &[x]),
        [0.25, 0.25, 0.25, 0.25, 0.0].into_iter().chain([f64::from(0.2f32); 5]).collect::<Vec<_>>()
    );
    let above = Softmax { causal: Some(Causal { offset: -1 }), ..nan };
    let y = checked(&above.into(), &[tensor(F32, &[2, 2], |_| 1.0)]);
    assert!(y[0].is_nan() && y[1].is_nan() && y[2..] == [1.0, 0.0]);
    let scaled = LogSoftmax { scale: Bits32(0.5), ..LogSoftmax::new(F32, F32) };
    let y = checked(&scaled.into(), &[tensor(F32, &[2], |i| 2.0 * i as f64)]);
    assert!((y[0] + 1.313_261_7).abs() < 1e-6 && (y[1] + 0.313_261_7).abs() < 1e-6);
}

/// The formula in f64.
fn naive(op: &Attention, inputs: &[Tensor]) -> Vec<f64> {
    let [q, k, v] = [0, 1, 2].map(|i| {
        let format = inputs[i].dtype().format().expect("numbers");
        inputs[i].codes().map(|code| format.to_f64(code)).collect::<Vec<_>>()
    });
    let (&[heads, queries, d], &[kv_heads, slots, _]) = (inputs[0].shape(), inputs[1].shape()) else {
        panic!("of three dimensions")
    };
    let scale = f64::from(op.factor(d));
    let mut y = Vec::new();
    for h in 0..heads {
        let kv = h * kv_heads / heads;
        for i in 0..queries {
            let sees = |j: usize| {
                j < op.used(slots)
                    && op.offset(queries, slots).is_none_or(|offset| j as i64 <= i as i64 + offset)
            };
            let visible: Vec<_> = (0..slots).filter(|&j| sees(j)).collect();
            let s = |j: usize| -> f64 {
                scale
                    * (0..d).map(|c| q[(h * queries + i) * d + c] * k[(kv * slots + j) * d + c]).sum::<f64>()
            };
            let s: Vec<_> = visible.iter().map(|&j| s(j)).collect();
            let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<_> = s.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = e.iter().sum();
            for c in 0..d {
                let total: f64 = visible.iter().zip(&e).map(|(j, e)| e * v[(kv * slots + j) * d + c]).sum();
                y.push(if visible.is_empty() { 0.0 } else { total / sum });
            }
        }
    }
    y
}

fn qkv(formats: [Format; 2], [heads, kv_heads, queries, slots, d]: [usize; 5], used: usize) -> [Tensor; 3] {
    // Slots that are not in use hold NaN.
    let cache = |seed| {
        tensor(formats[1], &[kv_heads, slots, d], move |i| {
            if i / d % slots < used { random(seed)(i) } else { f64::NAN }
        })
    };
    [tensor(formats[0], &[heads, queries, d], random(7)), cache(8), cache(9)]
}

#[test]
fn attention_is_the_formula() {
    let alignments = [
        Alignment::None,
        Alignment::TopLeft,
        Alignment::BottomRight,
        Alignment::Offset(-2),
        Alignment::Offset(2),
    ];
    for shape in [
        [1, 1, 1, 1, 1],
        [4, 2, 3, 5, 8],
        [6, 2, 2, 5, 16],
        [2, 2, 9, 4, 3],
        [8, 1, 1, 300, 80],
        [2, 1, 2, 70, 256],
    ] {
        for causal in alignments {
            for softmax in [SoftmaxOrder::TwoPass, SoftmaxOrder::Online(1), SoftmaxOrder::Online(64)] {
                let used = shape[3] - shape[3] / 4;
                let op = Attention { causal, softmax, length: Some(used), ..Attention::new(F32, F16, F32) };
                let inputs = qkv([F32, F16], shape, used);
                let got = checked(&op.into(), &inputs);
                for (got, right) in got.iter().zip(naive(&op, &inputs)) {
                    assert!((got - right).abs() <= 1e-5, "{op:?} {shape:?}: {got}, {right}");
                }
            }
        }
    }
}

#[test]
fn both_alignments_of_a_rectangle() {
    // <https://github.com/NVIDIA/cutlass/issues/2336>: values are slots, keys do not matter.
    let inputs = [
        tensor(F32, &[1, 2, 1], |_| 0.0),
        tensor(F32, &[1, 5, 1], |_| 1.0),
        tensor(F32, &[1, 5, 1], |i| i as f64),
    ];
    let of = |causal| checked(&Attention { causal, ..Attention::new(F32, F32, F32) }.into(), &inputs);
    assert_eq!(of(Alignment::TopLeft), [0.0, 0.5]);
    assert_eq!(of(Alignment::BottomRight), [1.5, 2.0]);
}

#[test]
fn large_products_and_narrow_formats() {
    // 24 * 24 * 128 is beyond f16.
    for probabilities in [F32, F16, BF16] {
        let op = Attention { probabilities, ..Attention::new(F16, F16, F16) };
        let inputs = [
            tensor(F16, &[1, 2, 128], |_| 24.0),
            tensor(F16, &[1, 3, 128], |_| 24.0),
            tensor(F16, &[1, 3, 128], |i| (i / 128) as f64),
        ];
        assert_eq!(checked(&op.into(), &inputs), [1.0; 256]);
        let inputs = qkv([BF16, BF16], [2, 1, 4, 100, 64], 100);
        checked(
            &Attention { q: BF16, kv: BF16, out: BF16, causal: Alignment::BottomRight, ..op }.into(),
            &inputs,
        );
    }
}
