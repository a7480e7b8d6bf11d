//! Faulty products, small ones: every fault is caught by a check that is for it.

use super::{Hints, Judged, Product};
use crate::case::Criterion;
use crate::seed::mix;
use plumbline_reference::accumulate::{Accumulation, Block, Split, Sum};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, Policy, TF32, Value};
use plumbline_reference::ops::Op;
use plumbline_reference::ops::gemm::{Bits32, Compute, EpilogueOrder, Gemm, GemmScale, Operands};
use plumbline_reference::{Path, Tensor, TensorType};

const SHAPE: [usize; 3] = [17, 40, 136];

fn tensor(format: Format, shape: &[usize], seed: u64, value: impl Fn(u64) -> f32) -> Tensor {
    let len: usize = shape.iter().product();
    let code = |i: u64| format.encode(Value::from(value(mix(seed, i))), &Policy::IEEE, 0);
    let codes: Vec<_> = (0..len as u64).map(code).collect();
    Tensor::from_codes(TensorType::new(format, shape), &codes).unwrap()
}

/// Numbers around 1 with all fraction bits of the format in use.
fn real(random: u64) -> f32 {
    let sign = if random >> 63 == 1 { -1.0 } else { 1.0 };
    sign * f32::from_bits(0x3e80_0000 + (random as u32 & 0x00ff_ffff))
}

fn operands(format: Format, value: impl Fn(u64) -> f32 + Copy) -> Vec<Tensor> {
    let [m, n, k] = SHAPE;
    vec![tensor(format, &[m, k], 1, value), tensor(format, &[k, n], 2, value)]
}

fn run(gemm: &Gemm, inputs: &[Tensor]) -> Tensor {
    Op::from(gemm.clone()).evaluate(inputs, Path::Parallel).unwrap().remove(0)
}

fn judge(gemm: &Gemm, inputs: &[Tensor], actual: &Tensor, by: Criterion) -> Judged {
    let hints = Hints::new();
    Product { gemm, inputs, architecture: Some("sm_90"), hints: &hints }.judge(by, actual)
}

fn passes(judged: &Judged) -> bool {
    judged.wrong.is_empty() && judged.impossible.is_none()
}

#[test]
fn every_model_explains_itself_and_is_within_the_bound() {
    let tf32 = Gemm { compute: Compute::Tf32, ..Gemm::new(F32, F32, F32) };
    let fast = Gemm { fast_accumulation: true, ..Gemm::new(E4M3FN, E4M3FN, F32) };
    let products = [
        Gemm::new(F16, F16, F16),
        Gemm::new(BF16, BF16, F32),
        Gemm::new(F32, F32, F32),
        Gemm::new(E4M3FN, E4M3FN, BF16),
        fast,
        tf32,
    ];
    for gemm in products {
        let inputs = operands(gemm.a, real);
        let models = super::models(&gemm, SHAPE[2], Some("sm_90"), &Hints::new());
        // Some of them, so that the test stays short.
        for model in models.iter().step_by(9).take(8) {
            let actual = run(&model.of(&gemm), &inputs);
            let explained = judge(&gemm, &inputs, &actual, Criterion::Explained);
            assert!(passes(&explained), "{}: {:?}", model.name, explained.explanation);
            if !model.name.contains("bf16") && !model.name.contains("f16") {
                let bounded = judge(&gemm, &inputs, &actual, Criterion::Bound);
                assert!(passes(&bounded), "{}: {:?}", model.name, bounded.max_error_over_bound);
            }
        }
    }
}

#[test]
fn wrong_arithmetic_is_not_explained() {
    let gemm = Gemm::new(F16, F16, F32);
    let inputs = operands(F16, real);
    let hopper = Block::HOPPER;
    let faults = [
        Block { fraction_bits: 24, ..hopper },
        Block { fraction_bits: 26, ..hopper },
        Block { products: 8, ..hopper },
        Block { output: plumbline_reference::accumulate::BlockOutput::NearestF32, ..hopper },
    ];
    for block in faults {
        let actual = run(&gemm.accumulated(None, Accumulation::Chain(block)), &inputs);
        let judged = judge(&gemm, &inputs, &actual, Criterion::Explained);
        assert!(!passes(&judged), "{block:?}: {:?}", judged.explanation);
        assert!(judged.explanation.unwrap().contains("chain of hopper"));
    }
}

#[test]
fn tf32_in_place_of_f32_is_beyond_the_bound() {
    let gemm = Gemm::new(F32, F32, F32);
    let inputs = operands(F32, real);
    let convert = Some(Operands { to: TF32, rounding: Default::default() });
    let tf32 = gemm.accumulated(convert, Accumulation::Chain(Block::HOPPER_TF32));
    let actual = run(&tf32, &inputs);
    assert!(!passes(&judge(&gemm, &inputs, &actual, Criterion::Bound)));
    let asked = Gemm { compute: Compute::Tf32, ..gemm };
    assert!(passes(&judge(&asked, &inputs, &actual, Criterion::Bound)));
}

#[test]
fn partial_sums_in_bf16_are_beyond_the_bound_and_explained() {
    let gemm = Gemm::new(BF16, BF16, BF16);
    let inputs = operands(BF16, real);
    let parts = Sum {
        partials: BF16,
        ..Sum::new(Split::Contiguous { parts: 6, granule: 8 }, Accumulation::Chain(Block::HOPPER))
    };
    let actual = run(&gemm.accumulated(None, parts.into()), &inputs);
    assert!(!passes(&judge(&gemm, &inputs, &actual, Criterion::Bound)));
    let explained = judge(&gemm, &inputs, &actual, Criterion::Explained);
    assert!(passes(&explained));
    assert!(explained.explanation.unwrap().contains("parts rounded to bf16"));
}

#[test]
fn freivalds_finds_one_wrong_element_and_names_it() {
    let gemm = Gemm::new(F16, F16, F32);
    let inputs = operands(F16, |random| (random % 17) as f32 - 8.0);
    let right = run(&gemm, &inputs);
    let judged = judge(&gemm, &inputs, &right, Criterion::Freivalds);
    assert!(passes(&judged), "{:?}", judged.impossible);
    for at in [0, 41, right.len() - 1] {
        let mut codes: Vec<_> = right.codes().collect();
        codes[at] ^= 1;
        let wrong = Tensor::from_codes(right.ty().clone(), &codes).unwrap();
        let judged = judge(&gemm, &inputs, &wrong, Criterion::Freivalds);
        assert_eq!(judged.wrong.iter().map(|wrong| wrong.position).collect::<Vec<_>>(), [at]);
    }
    // f32 holds sums of 136 * 225, an FP8 tensor core does not.
    let fp8 = Gemm::new(E4M3FN, E4M3FN, F32);
    let inputs = operands(E4M3FN, |random| (random % 31) as f32 - 15.0);
    assert!(judge(&fp8, &inputs, &run(&fp8, &inputs), Criterion::Freivalds).impossible.is_some());
    let inputs = operands(F16, real);
    assert!(judge(&gemm, &inputs, &run(&gemm, &inputs), Criterion::Freivalds).impossible.is_some());
}

#[test]
fn nan_is_never_within_a_bound() {
    let gemm = Gemm::new(F16, F16, F32);
    let inputs = operands(F16, real);
    let right = run(&gemm, &inputs);
    for code in [0x7fff_ffff, 0x7f80_0000, 0xff80_0000] {
        let mut codes: Vec<_> = right.codes().collect();
        codes[5] = code;
        let wrong = Tensor::from_codes(right.ty().clone(), &codes).unwrap();
        for by in [Criterion::Bound, Criterion::Explained] {
            assert_eq!(judge(&gemm, &inputs, &wrong, by).wrong.len(), 1, "{code:x}");
        }
    }
}

#[test]
fn an_infinity_may_meet_that_of_other_terms_which_leave_the_range() {
    let gemm = Gemm::new(F32, F32, F32);
    let accepts = |a: [f32; 2], b: [f32; 2], y: f32| {
        let of = |shape: [usize; 2], x: &[f32]| {
            let codes: Vec<_> = x.iter().map(|x| u64::from(x.to_bits())).collect();
            Tensor::from_codes(TensorType::new(F32, shape), &codes).unwrap()
        };
        let (inputs, y) = ([of([1, 2], &a), of([2, 1], &b)], of([1, 1], &[y]));
        passes(&judge(&gemm, &inputs, &y, Criterion::Bound))
    };
    let (large, infinity) = (2f32.powi(65), f32::INFINITY);
    for (y, right) in [(infinity, true), (f32::NAN, true), (-infinity, false), (f32::MAX, false)] {
        assert_eq!(accepts([large, infinity], [-large, 1.0], y), right, "{y}");
    }
    for (y, right) in [(infinity, true), (f32::NAN, false), (-infinity, false)] {
        assert_eq!(accepts([1.0, infinity], [-1.0, 1.0], y), right, "{y}");
    }
}

#[test]
fn a_factor_of_zero_or_infinity_leaves_open_the_sign_of_a_sum_that_is_not_exact() {
    let accepts = |a: [f32; 3], scale_out: f32, y: f32| {
        let of = |shape: &[usize], x: &[f32]| {
            let codes: Vec<_> = x.iter().map(|x| u64::from(x.to_bits())).collect();
            Tensor::from_codes(TensorType::new(F32, shape), &codes).unwrap()
        };
        let gemm = Gemm { scale_out: true, ..Gemm::new(F32, F32, F32) };
        let inputs = [of(&[1, 3], &a), of(&[3, 1], &[1.0; 3]), of(&[], &[scale_out])];
        passes(&judge(&gemm, &inputs, &of(&[1, 1], &[y]), Criterion::Bound))
    };
    let cancelling = [1.0, 1e-9, -1.0];
    for y in [f32::INFINITY, -f32::INFINITY, f32::NAN] {
        assert!(accepts(cancelling, f32::INFINITY, y), "{y}");
    }
    assert!(!accepts(cancelling, f32::INFINITY, f32::MAX));
    assert!(
        accepts(cancelling, 0.0, 0.0) && accepts(cancelling, 0.0, -0.0) && !accepts(cancelling, 0.0, 1e-9)
    );
    assert!(accepts([0.0; 3], f32::INFINITY, f32::NAN) && !accepts([0.0; 3], f32::INFINITY, f32::INFINITY));
    assert!(accepts([0.0; 3], 0.0, 0.0) && !accepts([0.0; 3], 0.0, -0.0));
}

#[test]
fn a_product_of_scales_that_underflows_meets_infinity() {
    let accepts = |alpha: f32, y: f32| {
        let of = |x: f32| Tensor::from_codes(TensorType::new(F32, [1, 1]), &[x.to_bits().into()]).unwrap();
        let gemm = Gemm { alpha: Bits32(alpha), ..Gemm::new(F32, F32, F32) };
        let gemm = Gemm { scale_a: GemmScale::Tensor, ..gemm };
        let scale = Tensor::from_codes(TensorType::new(F32, []), &[1e-20f32.to_bits().into()]).unwrap();
        passes(&judge(&gemm, &[of(f32::INFINITY), of(1.0), scale], &of(y), Criterion::Bound))
    };
    assert!(accepts(1e-40, f32::INFINITY) && accepts(1e-40, f32::NAN) && !accepts(1e-40, -f32::INFINITY));
    assert!(accepts(1.0, f32::INFINITY) && !accepts(1.0, f32::NAN));
}

#[test]
fn every_epilogue_is_within_the_bound() {
    let [m, n, _] = SHAPE;
    let orders = [
        EpilogueOrder::FusedProduct,
        EpilogueOrder::FusedAddend,
        EpilogueOrder::FusedBias,
        EpilogueOrder::RoundedProduct,
    ];
    let tiny = f32::from_bits(0x1780_0000); // 2^-80
    for (format, out) in [(F16, F32), (BF16, BF16), (E4M3FN, F16), (F32, F32)] {
        for (alpha, beta, scale) in [(1.0, 1.0, 1.0), (-0.3, 1.7, 1.9), (1.0, 1.0, tiny)] {
            let gemm = Gemm {
                alpha: Bits32(alpha),
                beta: Bits32(beta),
                c: Some(out),
                bias: Some(out),
                scale_a: GemmScale::Tensor,
                scale_b: GemmScale::Row,
                ..Gemm::new(format, format, out)
            };
            let mut inputs = operands(format, real);
            inputs.push(tensor(out, &[m, n], 3, |random| 20.0 * real(random)));
            inputs.push(tensor(F32, &[], 4, |_| scale));
            inputs.push(tensor(F32, &[n], 5, |random| real(random) * scale));
            inputs.push(tensor(out, &[n], 6, real));
            for model in super::arithmetics(&gemm, Some("sm_90")) {
                for epilogue in orders {
                    if epilogue == EpilogueOrder::RoundedProduct && (beta != 1.0 || out.storage_bits != 16) {
                        continue;
                    }
                    let actual = run(&Gemm { epilogue, ..model.of(&gemm) }, &inputs);
                    let judged = judge(&gemm, &inputs, &actual, Criterion::Bound);
                    let what = (&model.name, epilogue, alpha, scale, judged.max_error_over_bound);
                    assert!(passes(&judged), "{format} {out} {what:?}");
                }
            }
        }
    }
}

#[test]
fn a_zero_of_the_wrong_sign_and_what_does_not_saturate_are_beyond_every_bound() {
    for format in [F16, BF16, E4M3FN, F32] {
        let gemm = Gemm::new(format, format, F32);
        let inputs = operands(format, |_| 0.0);
        let right = run(&gemm, &inputs);
        let mut codes: Vec<_> = right.codes().collect();
        codes[7] = 0x8000_0000;
        let wrong = Tensor::from_codes(right.ty().clone(), &codes).unwrap();
        assert_eq!(judge(&gemm, &inputs, &wrong, Criterion::Bound).wrong.len(), 1, "{format}");
    }
    let gemm = Gemm::new(F16, F16, E5M2);
    let inputs = operands(F16, |random| 100.0 * real(random).abs());
    let right = run(&gemm, &inputs);
    assert!(right.codes().all(|code| code == 0x7b));
    assert!(passes(&judge(&gemm, &inputs, &right, Criterion::Bound)));
    let infinite = Tensor::from_codes(right.ty().clone(), &vec![0x7c; right.len()]).unwrap();
    assert_eq!(judge(&gemm, &inputs, &infinite, Criterion::Bound).wrong.len(), right.len());
}
