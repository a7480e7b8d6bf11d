//! Operations that are made of others: each is what its steps give one by one.

use crate::noise::noise;
use crate::support::{evaluate, f32s};
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{E4M3FN, F16, F32, Policy};
use plumbline_reference::ops::gemv::warp_order;
use plumbline_reference::ops::{
    Absmax, Activations, BatchedGemv, BlockConversion, Cast, Dequantize, DeviceScaledCast, Dispatch,
    FusedActivation, GeluErf, Gemm, GemmFused, GemmScale, Op, PrefillLinear, Product, Relu, Route,
    ScaledDecode,
};
use plumbline_reference::{DType, Path, Tensor, TensorType};

const FORMATS: [BlockFormat; 3] = [BlockFormat::Q4K, BlockFormat::Q8_0, BlockFormat::Q4_1];

/// Weights of random quants, with moderate factors, and activations.
fn inputs(format: BlockFormat, [m, n, k]: [usize; 3]) -> [Tensor; 2] {
    let (blocks, bytes) = (k / format.values(), format.bytes());
    let w = Tensor::from_fn(TensorType::new(DType::U8, [n, blocks, bytes]), Path::Definition, |i| {
        match (format, i % bytes) {
            // d and m are in the first 4 bytes of all but Q8_0, where d is alone.
            (BlockFormat::Q8_0, 1) | (BlockFormat::Q4K | BlockFormat::Q4_1, 1 | 3) => {
                0x28 | noise(i as u64) & 3
            }
            _ => noise(i as u64) & 0xff,
        }
    });
    let x = |i: usize| (noise(1000 + i as u64) % 4096) as f32 / 1024.0 - 2.0;
    let x = f32s(&[m, k], &(0..m * k).map(x).collect::<Vec<_>>());
    [w.unwrap(), x]
}

fn linear(weights: BlockFormat, route: Route, accumulate: Option<Accumulation>) -> PrefillLinear {
    PrefillLinear { accumulate, ..PrefillLinear::new(weights, route) }
}

fn one(op: impl Into<Op>, inputs: &[Tensor]) -> Tensor {
    evaluate(op, inputs).swap_remove(0)
}

/// Codes and what they are multiplied by to read them.
fn scaled(x: &Tensor) -> [Tensor; 2] {
    let absmax = Absmax { from: F32, nan: Default::default(), granularity: Default::default() };
    let a = one(absmax, std::slice::from_ref(x));
    evaluate(DeviceScaledCast::new(F32, E4M3FN), &[x.clone(), a]).try_into().unwrap()
}

/// What a route says, written out.
fn by_steps(op: &PrefillLinear, [w, x]: &[Tensor; 2]) -> Tensor {
    let weights = |to| {
        let dequantize = Dequantize { from: op.weights, to, conversion: op.conversion };
        one(dequantize, std::slice::from_ref(w))
    };
    let gemm = |format, out| Gemm {
        transpose_b: true,
        accumulate: op.accumulate.clone(),
        ..Gemm::new(format, format, out)
    };
    let tensor = GemmScale::Tensor;
    match op.route {
        Route::Dequantized | Route::Fused => one(gemm(F32, F32), &[x.clone(), weights(F32)]),
        Route::F16 | Route::F16Tiles => {
            let x = one(Cast::new(F32, F16).with_policy(Policy::IEEE), std::slice::from_ref(x));
            one(gemm(F16, F32), &[x, weights(F16)])
        }
        Route::Fp8ViaF16 => {
            let ([w, of_w], [x, of_x]) = (scaled(&weights(F32)), scaled(x));
            let d = one(Gemm { scale_b: tensor, ..gemm(E4M3FN, F16) }, &[x, w, of_w]);
            one(ScaledDecode { from: F16, granularity: Default::default() }, &[d, of_x])
        }
        Route::Fp8 => {
            let ([w, of_w], [x, of_x]) = (scaled(&weights(F32)), scaled(x));
            one(Gemm { scale_a: tensor, scale_b: tensor, ..gemm(E4M3FN, F32) }, &[x, w, of_x, of_w])
        }
    }
}

fn routes(weights: BlockFormat) -> impl Iterator<Item = Route> {
    Route::ALL.into_iter().filter(move |&route| route != Route::Fused || weights == BlockFormat::Q4K)
}

#[test]
fn a_route_is_its_steps() {
    let orders = [None, Some(Accumulation::Fma), Some(Accumulation::Chain(Block::HOPPER))];
    for format in FORMATS {
        let inputs = inputs(format, [5, 3, 512]);
        for route in routes(format) {
            for accumulate in &orders {
                let op = linear(format, route, accumulate.clone());
                assert!(one(op.clone(), &inputs) == by_steps(&op, &inputs), "{op:?}");
            }
        }
        for route in [Route::F16, Route::F16Tiles] {
            let conversion = BlockConversion::ViaF32;
            let op = PrefillLinear { conversion, ..linear(format, route, Some(Accumulation::Fma)) };
            assert!(one(op.clone(), &inputs) == by_steps(&op, &inputs), "{op:?}");
        }
    }
}

#[test]
fn every_path_gives_the_same() {
    let inputs = inputs(BlockFormat::Q4K, [17, 5, 256]);
    for route in Route::ALL {
        for accumulate in [None, Some(Accumulation::Fma)] {
            let op = Op::from(PrefillLinear { pad: true, ..linear(BlockFormat::Q4K, route, accumulate) });
            assert!(op.has_fast_path());
            let right = op.evaluate(&inputs, Path::Definition).unwrap();
            assert!(op.evaluate(&inputs, Path::fastest()).unwrap() == right, "{op:?}");
        }
    }
}

#[test]
fn padding_changes_no_row() {
    for m in [0, 1, 15, 16, 17, 31] {
        let inputs = inputs(BlockFormat::Q4K, [m, 3, 256]);
        for route in Route::ALL {
            let plain = linear(BlockFormat::Q4K, route, Some(Accumulation::Fma));
            let padded = PrefillLinear { pad: true, ..plain.clone() };
            assert!(one(padded, &inputs) == one(plain, &inputs), "{m} rows by {route:?}");
        }
    }
}

#[test]
fn padding_is_up_to_a_multiple_of_16() {
    for (m, rows) in [(1, 16), (16, 16), (17, 32)] {
        let types = inputs(BlockFormat::Q4K, [m, 3, 256]).map(|input| input.ty().clone());
        let op = PrefillLinear { pad: true, ..linear(BlockFormat::Q4K, Route::Fp8, None) };
        let program = Op::from(op).program(&types).unwrap().unwrap();
        let codes = program.types().iter().filter(|ty| ty.dtype == E4M3FN.into()).map(|ty| ty.shape[0]);
        assert_eq!(codes.collect::<Vec<_>>(), [3, rows], "{m} rows");
    }
}

#[test]
fn a_dispatch_is_one_of_its_products() {
    let (format, gemm) = (BlockFormat::Q4K, Some(Accumulation::Fma));
    let gemv = Some(warp_order(format, Activations::F32));
    let few = BatchedGemv { weights: format, activations: Activations::F32, accumulate: gemv.clone() };
    let many = linear(format, Route::Dequantized, gemm.clone());
    for m in [1, 2, 3, 4, 5, 8, 9, 16, 17] {
        let inputs = inputs(format, [m, 3, 512]);
        let of_many = one(many.clone(), &inputs);
        let of_few = (m <= 16).then(|| one(few.clone(), &inputs));
        assert_ne!(of_few.as_ref(), Some(&of_many), "orders that cannot be told apart");
        for threshold in [0, 1, 2, 4, 8, 16] {
            for at in [Product::Gemv, Product::Gemm] {
                let plain = Dispatch::new(format, threshold, at, Route::Dequantized);
                let op = Dispatch { gemv: gemv.clone(), gemm: gemm.clone(), ..plain };
                let takes_few = m < threshold || m == threshold && at == Product::Gemv;
                let expected = if takes_few { of_few.as_ref() } else { Some(&of_many) };
                assert!(Some(&one(op, &inputs)) == expected, "{m} rows at {threshold}, {at:?}");
            }
        }
    }
}

#[test]
fn a_fused_product_is_product_bias_and_activation() {
    let of = |count: usize, seed: u64| -> Vec<f32> {
        (0..count).map(|i| (noise(seed + i as u64) % 4096) as f32 / 1024.0 - 2.0).collect()
    };
    let (m, n, k) = (5, 7, 40);
    let (a, b) = (f32s(&[m, k], &of(m * k, 0)), f32s(&[k, n], &of(k * n, 9000)));
    let bias = of(n, 20_000);
    let accumulate = Some(Accumulation::Fma);
    let v = one(Gemm { accumulate: accumulate.clone(), ..Gemm::new(F32, F32, F32) }, &[a.clone(), b.clone()]);
    let t: Vec<_> = v.codes().enumerate().map(|(i, v)| f32::from_bits(v as u32) + bias[i % n]).collect();
    let t = [f32s(&[m, n], &t)];
    let inputs = [a, b, f32s(&[n], &bias)];
    let fused = |activation| {
        one(GemmFused { accumulate: accumulate.clone(), ..GemmFused::new(F32, F32, activation) }, &inputs)
    };
    assert!(fused(FusedActivation::None) == t[0]);
    assert!(fused(FusedActivation::Relu) == one(Relu { from: F32, to: F32 }, &t));
    assert!(fused(FusedActivation::GeluErf) == one(GeluErf { from: F32, to: F32 }, &t));
    for &activation in FusedActivation::ALL {
        let y = fused(activation);
        for (y, t) in y.codes().zip(t[0].codes()) {
            let expected = activation.of(f32::from_bits(t as u32));
            assert_eq!(y, u64::from(expected.to_bits()), "{activation:?}");
        }
    }
}

fn refusal(op: impl Into<Op>, shapes: &[(DType, &[usize])]) -> String {
    let types: Vec<_> = shapes.iter().map(|&(dtype, shape)| TensorType::new(dtype, shape)).collect();
    let op = op.into();
    let error = op.signature(&types).unwrap_err();
    assert_eq!(op.program(&types).err(), op.program(&types).is_err().then_some(error.clone()));
    error.to_string()
}

#[test]
fn what_does_not_fit_is_named() {
    let f32 = DType::from(F32);
    let w = |n: usize| (DType::U8, vec![n, 2, 144]);
    let linear = |op: PrefillLinear, x: &[usize]| {
        let (dtype, shape) = w(3);
        refusal(op, &[(dtype, &shape), (f32, x)])
    };
    let plain = PrefillLinear::new(BlockFormat::Q4K, Route::Dequantized);
    let fits = [2, 512];
    let cases = [
        (
            plain.clone(),
            &[2, 256][..],
            "prefill_linear: input `x` has shape [2, 256], expected K = 512, that of w",
        ),
        (plain.clone(), &[512], "prefill_linear: input `x` has shape [512], expected rows in one dimension"),
        (
            PrefillLinear { conversion: BlockConversion::ViaF32, ..plain.clone() },
            &fits,
            "prefill_linear: `conversion`: is for weights that become f16",
        ),
        (
            PrefillLinear { fast_accumulation: true, ..plain.clone() },
            &fits,
            "prefill_linear: `fast_accumulation`: is for products of FP8",
        ),
        (
            PrefillLinear::new(BlockFormat::Q6K, Route::Fused),
            &fits,
            "prefill_linear: `weights`: is q4_K with route `fused`, and not q6_K",
        ),
    ];
    for (op, x, words) in cases {
        let refused = linear(op, x);
        assert!(refused.starts_with(words), "{refused}");
    }
    let fused = GemmFused::new(F32, F32, FusedActivation::Relu);
    for (bias, words) in [
        (&[2][..], "has shape [2], expected [4]"),
        (&[], "has shape [], expected [4]"),
        (&[4, 1], "has shape [4, 1], expected [4]"),
    ] {
        let refused = refusal(fused.clone(), &[(f32, &[2, 3]), (f32, &[3, 4]), (f32, bias)]);
        assert!(refused.starts_with(&format!("gemm_fused: input `bias` {words}")), "{refused}");
    }
    let (dtype, shape) = w(3);
    let dispatch = Dispatch::new(BlockFormat::Q4K, 17, Product::Gemv, Route::Dequantized);
    let refused = refusal(dispatch, &[(dtype, &shape), (f32, &fits)]);
    assert_eq!(refused, "dispatch: `threshold`: is at most 16, the most vectors of batched_gemv");
}
