//! Strategies over the parameters of products by an engine's steps. Their inputs are those of
//! `blocks`.

use super::product::orders;
use plumbline_reference::accumulate::{Accumulation, Block};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{E4M3FN, F16};
use plumbline_reference::ops::batched_gemv::MAX_VECTORS;
use plumbline_reference::ops::gemv::warp_order;
use plumbline_reference::ops::{Activations, BlockConversion, Dispatch, Op, PrefillLinear, Product, Route};
use proptest::prelude::*;
use proptest::sample::select;

/// Every route of every format that it has.
fn routes() -> impl Iterator<Item = PrefillLinear> {
    let all = BlockFormat::ALL.into_iter().flat_map(|weights| Route::ALL.map(|route| (weights, route)));
    all.filter(|(weights, route)| *route != Route::Fused || *weights == BlockFormat::Q4K)
        .map(|(weights, route)| PrefillLinear::new(weights, route))
}

/// Exact ones, and in the orders of kernels; one other parameter varied at a time.
pub(super) fn simple_prefill_linears() -> Vec<Op> {
    let all = routes().flat_map(|plain| {
        let orders = [None, Some(Accumulation::Fma), Some(Accumulation::Chain(Block::HOPPER))];
        let orders = orders.map(|accumulate| PrefillLinear { accumulate, ..plain.clone() });
        let conversions = if plain.route.operands() == F16 { &BlockConversion::ALL[1..] } else { &[] };
        let conversions =
            conversions.iter().map(|&conversion| PrefillLinear { conversion, ..orders[1].clone() });
        let padded = PrefillLinear { pad: true, ..orders[1].clone() };
        let varied: Vec<_> = conversions.chain([padded]).collect();
        orders.into_iter().chain(varied)
    });
    all.map(Op::from).collect()
}

pub(super) fn any_prefill_linear() -> BoxedStrategy<Op> {
    let order =
        prop_oneof![1 => Just(None), 2 => Just(Some(Accumulation::Fma)), 3 => orders().prop_map(Some)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (select(routes().collect::<Vec<_>>()), order, flags)
        .prop_map(|(plain, accumulate, (pad, via_f32, fast))| {
            let operands = plain.route.operands();
            let via_f32 = via_f32 && operands == F16;
            let conversion = if via_f32 { BlockConversion::ViaF32 } else { BlockConversion::Direct };
            let fast_accumulation = fast && operands == E4M3FN;
            PrefillLinear { pad, conversion, fast_accumulation, accumulate, ..plain }.into()
        })
        .boxed()
}

/// The orders of kernels.
pub(super) fn simple_dispatches() -> Vec<Op> {
    let all = routes().flat_map(|PrefillLinear { weights, route, .. }| {
        [Product::Gemv, Product::Gemm].map(|at_threshold| in_our_orders(weights, 2, at_threshold, route))
    });
    let all: Vec<_> = all.collect();
    let exact: Vec<_> = all.iter().cloned().filter_map(exactly).collect();
    all.into_iter().chain(exact).map(Op::from).collect()
}

/// The same without orders, where a bound judges that.
fn exactly(op: Dispatch) -> Option<Dispatch> {
    let is_judged = matches!(op.route, Route::Dequantized | Route::Fused);
    is_judged.then_some(Dispatch { gemv: None, gemm: None, ..op })
}

fn in_our_orders(weights: BlockFormat, threshold: usize, at_threshold: Product, route: Route) -> Dispatch {
    let gemm = match route {
        Route::F16Tiles => Accumulation::Chain(Block::HOPPER),
        _ => Accumulation::Fma,
    };
    let gemv = Some(warp_order(weights, Activations::F32));
    Dispatch { gemv, gemm: Some(gemm), ..Dispatch::new(weights, threshold, at_threshold, route) }
}

pub(super) fn any_dispatch() -> BoxedStrategy<Op> {
    let thresholds = prop_oneof![4 => 0..=4usize, 1 => 0..=MAX_VECTORS];
    let at = select(&[Product::Gemv, Product::Gemm][..]);
    let other = proptest::option::of((orders(), orders()));
    let is_exact = proptest::bool::weighted(0.3);
    (select(routes().collect::<Vec<_>>()), thresholds, at, any::<bool>(), other, is_exact)
        .prop_map(|(plain, threshold, at, pad, other, is_exact)| {
            let ours = Dispatch { pad, ..in_our_orders(plain.weights, threshold, at, plain.route) };
            if let Some(exact) = exactly(ours.clone()).filter(|_| is_exact) {
                return exact.into();
            }
            match other {
                None => ours.into(),
                Some((gemv, gemm)) => Dispatch { gemv: Some(gemv), gemm: Some(gemm), ..ours }.into(),
            }
        })
        .boxed()
}
