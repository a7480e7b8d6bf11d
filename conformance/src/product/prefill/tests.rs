use super::*;
use crate::case::Criterion;
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::{Dispatch, PrefillLinear, Product as Choice};
use plumbline_reference::{DType, TensorType};

fn judge(op: &Op, inputs: &[Tensor], y: &Tensor) -> Judged {
    let product = PrefillProduct::of(op, inputs).unwrap().unwrap();
    product.judge(Criterion::Bound, None, &Hints::default(), y)
}

/// Weights of Q8_0 with this factor and quants, and activations.
fn inputs(
    [m, n, k]: [usize; 3],
    d: u16,
    quant: impl Fn(usize) -> i8,
    x: impl Fn(usize) -> f32 + Sync,
) -> [Tensor; 2] {
    let blocks = n * k / 32;
    let block = |block: usize| {
        let quants = (0..32).map(move |j| (block * 32 + j, ())).map(|(i, ())| quant(i) as u8);
        d.to_le_bytes().into_iter().chain(quants.collect::<Vec<_>>())
    };
    let bytes = (0..blocks).flat_map(block).collect();
    let w = Tensor::from_bytes(TensorType::new(DType::U8, [n, k / 32, 34]), bytes).unwrap();
    let x =
        Tensor::from_fn(TensorType::new(F32, [m, k]), Path::Definition, |i| x(i).to_bits().into()).unwrap();
    [w, x]
}

fn moderate(shape: [usize; 3]) -> [Tensor; 2] {
    let x = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 17.0;
    inputs(shape, 0x2e66, |i| (i * 29 % 251) as i8, x)
}

fn linear(route: Route) -> PrefillLinear {
    PrefillLinear::new(BlockFormat::Q8_0, route)
}

fn evaluate(op: impl Into<Op>, inputs: &[Tensor]) -> Tensor {
    op.into().evaluate(inputs, Path::fastest()).unwrap().remove(0)
}

fn changed(y: &Tensor, at: usize, change: impl Fn(f32) -> f32 + Sync) -> Tensor {
    let code = |i: usize| {
        let value = f32::from_bits(y.code(i) as u32);
        if i == at { change(value).to_bits().into() } else { y.code(i) }
    };
    Tensor::from_fn(y.ty().clone(), Path::Definition, code).unwrap()
}

#[test]
fn results_in_any_order_are_within_the_bound_and_others_are_not() {
    let inputs = moderate([3, 5, 96]);
    for route in Route::ALL.into_iter().filter(|&route| route != Route::Fused) {
        let exact = linear(route);
        let op = Op::from(exact.clone());
        let orders = [
            None,
            Some(Accumulation::Fma),
            Some(Accumulation::Pairwise),
            Some(Accumulation::Chain(Block::HOPPER)),
        ];
        // A chain of 25 fraction bits is no arithmetic of f32 operands.
        let orders = orders
            .into_iter()
            .filter(|order| route != Route::Dequantized || !matches!(order, Some(Accumulation::Chain(_))));
        for accumulate in orders {
            for pad in [false, true] {
                let y =
                    evaluate(PrefillLinear { accumulate: accumulate.clone(), pad, ..exact.clone() }, &inputs);
                let judged = judge(&op, &inputs, &y);
                assert!(judged.wrong.is_empty(), "{route:?} {accumulate:?}");
                assert!(judged.max_error_over_bound.is_some_and(|ratio| ratio <= 1.0));
            }
        }
        let y = evaluate(exact, &inputs);
        for at in [0, 7, 14] {
            for wrong in [
                changed(&y, at, |y| y * 1.2 + 8.0),
                changed(&y, at, |_| f32::NAN),
                changed(&y, at, |_| f32::INFINITY),
            ] {
                let judged = judge(&op, &inputs, &wrong);
                assert_eq!(judged.wrong.len(), 1, "{route:?}");
                assert_eq!(judged.wrong[0].position, at);
            }
        }
    }
}

#[test]
fn a_result_after_f16_is_a_product_of_an_f16() {
    let inputs = moderate([3, 5, 96]);
    let op = Op::from(linear(Route::Fp8ViaF16));
    let y = evaluate(op.clone(), &inputs);
    // One ulp of f32 more is far less than half an ulp of f16, and no f16 times the scale.
    let wrong = changed(&y, 4, |y| f32::from_bits(y.to_bits() + 1));
    assert_eq!(judge(&op, &inputs, &wrong).wrong.len(), 1);
    // Another f16 is, as far as the bound of the product allows.
    let scale = linear(Route::Fp8ViaF16).scale_after(&inputs, Path::Definition).unwrap().unwrap();
    let magnitude = y.code(4) & 0x7fff_ffff;
    let d = (0..0x7c00).find(|&d| scaled(d, scale) == magnitude).unwrap();
    let moved = |by: u64| changed(&y, 4, |y| f32::from_bits(scaled(d + by, scale) as u32).copysign(y));
    assert!(judge(&op, &inputs, &moved(1)).wrong.is_empty());
    assert_eq!(judge(&op, &inputs, &moved(400)).wrong.len(), 1);
}

#[test]
fn an_overflow_in_f16_is_infinite_and_noted() {
    // 160 products of codes 448 and 448: see the case `overflow`.
    let inputs = inputs([2, 3, 160], 0x3c00, |_| 1, |_| 1.0);
    let op = Op::from(linear(Route::Fp8ViaF16));
    let y = evaluate(op.clone(), &inputs);
    assert!(y.codes().all(|code| code == 0x7f80_0000));
    assert!(judge(&op, &inputs, &y).wrong.is_empty());
    // Saturated in f16, and never in f16 at all.
    for wrong in [65504.0 / 448.0, 160.0] {
        assert_eq!(judge(&op, &inputs, &changed(&y, 2, |_| wrong)).wrong.len(), 1, "{wrong}");
    }
    let notes = op.notes(&inputs, 0);
    assert_eq!(notes.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(notes[0].1.contains("overflows: exactly it is 7.168"), "{}", notes[0].1);
    let below = self::inputs([2, 3, 128], 0x3c00, |_| 1, |_| 1.0);
    assert!(op.notes(&below, 0).is_empty());
    assert!(Op::from(linear(Route::Fp8)).notes(&inputs, 0).is_empty());
    // By an infinite activation every other is zero, and it is NaN: there is no number that overflows.
    let special = self::inputs([2, 3, 160], 0x3c00, |_| 1, |i| if i == 7 { f32::INFINITY } else { 1.0 });
    assert!(op.notes(&special, 0).is_empty());
}

#[test]
fn the_nearest_f16_is_found_among_several_that_give_the_same() {
    // A factor so small that products are subnormal, or zero.
    for (scale, got, d, expected) in [
        (1.0, 0x3f80_0000, 0x4000, Some(0x3c00)),
        (1.0, 0x3f80_0001, 0x4000, None),
        (1.0, 0x8000_0000, 0x0000, Some(0x8000)),
        (1.0, 0x7f80_0000, 0x7bff, Some(0x7c00)),
        (1.0, 0xff80_0000, 0x7bff, Some(0xfc00)),
        (1e-45, 0x0000_0001, 0x3c00, Some(0x3c00)),
        (1e-45, 0x0000_0001, 0x0001, Some(0x3801)),
        (1e-45, 0x0000_0001, 0x4400, Some(0x3dff)),
        (1e-45, 0x0000_0000, 0x4400, Some(0x3800)),
        (f32::MAX, 0x7f80_0000, 0x3c00, Some(0x3c01)),
    ] {
        assert_eq!(nearest(d, |d| scaled(d, scale), got), expected, "{scale:e} {got:#x} {d:#x}");
    }
}

#[test]
fn both_products_of_a_dispatch_are_within_the_joint_bound() {
    let format = BlockFormat::Q8_0;
    for m in [1, 2, 3, 4, 5, 8, 9, 16, 17] {
        let inputs = moderate([m, 5, 96]);
        let op = Op::from(Dispatch::new(format, 4, Choice::Gemv, Route::Dequantized));
        let many = PrefillLinear { accumulate: Some(Accumulation::Fma), ..linear(Route::Dequantized) };
        let few = Dispatch::new(format, 16, Choice::Gemv, Route::Dequantized).of_few();
        let order = plumbline_reference::ops::gemv::warp_order(format, few.activations);
        let few = plumbline_reference::ops::BatchedGemv { accumulate: Some(order), ..few };
        let products = [Op::from(many)].into_iter().chain((m <= 16).then(|| few.into()));
        for product in products {
            let y = evaluate(product.clone(), &inputs);
            let judge = |y: &Tensor| super::super::BlockProduct::of(&op, &inputs).unwrap().judge(y);
            assert!(judge(&y).wrong.is_empty(), "{m} {product:?}");
            assert_eq!(judge(&changed(&y, 3, |y| y * 1.001 + 1e-3)).wrong.len(), 1, "{m} {product:?}");
        }
    }
}
