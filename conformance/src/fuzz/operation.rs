//! Strategies over the parameters of operations.

use super::blocks::{any_batched_gemv, any_gemv, block_dequantizes, simple_batched_gemvs, simple_gemvs};
use super::functions::{
    any_attention, gelu_erfs, gelu_tanhs, log_softmaxes, maths, quick_gelus, relus, silus, simple_attentions,
    softmaxes, swiglus,
};
use super::layers::{kv_scatters, layer_norms, rms_norms, ropes};
use super::mx::{any_mx_quantize, mx_dequantizes, mx_quantizes};
use super::prefill::{any_dispatch, any_prefill_linear, simple_dispatches, simple_prefill_linears};
use super::product::{any_gemm, any_gemm_fused, instructions, simple_gemm_fuseds, simple_gemms};
use super::quantize::{block_quantizes, int8_quantizes};
use plumbline_reference::format::{ALL, BF16, E4M3FN, E5M2, F16, F32, F64, Format, Policy};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, Cast, Classify, Decode, DeviceScaledCast, FormatInfo, Granularity, Op, ScaleOp,
    ScaledCast, ScaledDecode, Special, Tiny,
};
use proptest::prelude::*;
use proptest::sample::select;

/// How the parameters of one operation are drawn.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Name of the operation.
    pub(super) name: &'static str,
    /// Any parameters.
    pub(super) any: fn() -> BoxedStrategy<Op>,
    /// Every pair of formats, one other parameter varied at a time: where to look for
    /// what a backend with few operations does.
    pub(super) simple: fn() -> Vec<Op>,
}

/// Every operation that is fuzzed.
pub(super) const KINDS: [Kind; 34] = [
    Kind { name: "cast", any: any_cast, simple: simple_casts },
    Kind { name: "decode", any: || select(decodes()).boxed(), simple: decodes },
    Kind { name: "classify", any: || select(classifies()).boxed(), simple: classifies },
    Kind { name: "format_info", any: || select(format_infos()).boxed(), simple: format_infos },
    Kind { name: "scaled_cast", any: any_scaled_cast, simple: simple_scaled_casts },
    Kind { name: "absmax", any: any_absmax, simple: simple_absmaxes },
    Kind { name: "device_scaled_cast", any: any_device_scaled_cast, simple: simple_device_scaled_casts },
    Kind { name: "scaled_decode", any: any_scaled_decode, simple: simple_scaled_decodes },
    Kind { name: "mx_quantize", any: any_mx_quantize, simple: mx_quantizes },
    Kind { name: "mx_dequantize", any: || select(mx_dequantizes()).boxed(), simple: mx_dequantizes },
    Kind { name: "mma", any: || select(instructions()).boxed(), simple: instructions },
    Kind { name: "gemm", any: any_gemm, simple: simple_gemms },
    Kind { name: "gemm_fused", any: any_gemm_fused, simple: simple_gemm_fuseds },
    Kind { name: "quantize", any: || select(block_quantizes()).boxed(), simple: block_quantizes },
    Kind { name: "int8_quantize", any: || select(int8_quantizes()).boxed(), simple: int8_quantizes },
    Kind { name: "dequantize", any: || select(block_dequantizes()).boxed(), simple: block_dequantizes },
    Kind { name: "gemv", any: any_gemv, simple: simple_gemvs },
    Kind { name: "batched_gemv", any: any_batched_gemv, simple: simple_batched_gemvs },
    Kind { name: "prefill_linear", any: any_prefill_linear, simple: simple_prefill_linears },
    Kind { name: "dispatch", any: any_dispatch, simple: simple_dispatches },
    Kind { name: "math", any: || select(maths()).boxed(), simple: maths },
    Kind { name: "relu", any: || select(relus()).boxed(), simple: relus },
    Kind { name: "silu", any: || select(silus()).boxed(), simple: silus },
    Kind { name: "gelu_tanh", any: || select(gelu_tanhs()).boxed(), simple: gelu_tanhs },
    Kind { name: "gelu_erf", any: || select(gelu_erfs()).boxed(), simple: gelu_erfs },
    Kind { name: "quick_gelu", any: || select(quick_gelus()).boxed(), simple: quick_gelus },
    Kind { name: "swiglu", any: || select(swiglus()).boxed(), simple: swiglus },
    Kind { name: "softmax", any: || select(softmaxes()).boxed(), simple: softmaxes },
    Kind { name: "log_softmax", any: || select(log_softmaxes()).boxed(), simple: log_softmaxes },
    Kind { name: "attention", any: any_attention, simple: simple_attentions },
    Kind { name: "rms_norm", any: || select(rms_norms()).boxed(), simple: rms_norms },
    Kind { name: "layer_norm", any: || select(layer_norms()).boxed(), simple: layer_norms },
    Kind { name: "rope", any: || select(ropes()).boxed(), simple: ropes },
    Kind { name: "kv_scatter", any: || select(kv_scatters()).boxed(), simple: kv_scatters },
];

const SCALE_OPS: [ScaleOp; 3] = [ScaleOp::Multiply, ScaleOp::Divide, ScaleOp::Reciprocal];
const GRANULARITIES: [Granularity; 7] = [
    Granularity::Tensor,
    Granularity::Row,
    Granularity::Block(1),
    Granularity::Block(3),
    Granularity::Block(16),
    Granularity::Block(32),
    Granularity::Block(128),
];

/// Formats whose values f32 holds, for operations that compute in f32.
fn within_f32() -> impl Iterator<Item = Format> + Clone {
    ALL.into_iter().filter(|&format| format != F64)
}

fn pairs(
    from: impl Iterator<Item = Format> + Clone,
    to: impl Iterator<Item = Format> + Clone,
) -> impl Iterator<Item = (Format, Format)> {
    to.flat_map(move |to| from.clone().map(move |from| (from, to)))
}

/// Policies that differ in at most one field from the default or from IEEE 754's.
fn near_usual_policies() -> Vec<Policy> {
    let usual = [Policy::default(), Policy::IEEE];
    Policy::all().filter(|policy| usual.iter().any(|usual| differing_fields(policy, usual) <= 1)).collect()
}

fn differing_fields(a: &Policy, b: &Policy) -> usize {
    let fields = [
        a.rounding != b.rounding,
        a.overflow != b.overflow,
        a.infinities != b.infinities,
        a.nan != b.nan,
        a.subnormals != b.subnormals,
        a.negative_zero != b.negative_zero,
    ];
    fields.into_iter().filter(|&differs| differs).count()
}

fn sources() -> impl Strategy<Value = Format> {
    prop_oneof![2 => select(vec![F32, F16, BF16]), 1 => select(&ALL[..])]
}

fn sources_within_f32() -> impl Strategy<Value = Format> {
    prop_oneof![2 => select(vec![F32, F16, BF16]), 1 => select(within_f32().collect::<Vec<_>>())]
}

fn targets() -> impl Strategy<Value = Format> {
    prop_oneof![1 => select(vec![E4M3FN, E5M2]), 1 => select(&ALL[..])]
}

fn targets_within_f32() -> impl Strategy<Value = Format> {
    prop_oneof![1 => select(vec![E4M3FN, E5M2]), 1 => select(within_f32().collect::<Vec<_>>())]
}

pub(super) fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::default()),
        select(near_usual_policies()),
        select(Policy::all().collect::<Vec<_>>()),
    ]
}

fn granularities() -> impl Strategy<Value = Granularity> {
    prop_oneof![1 => Just(Granularity::Tensor), 1 => select(&GRANULARITIES[..])]
}

fn any_cast() -> BoxedStrategy<Op> {
    (sources(), targets(), policies())
        .prop_map(|(from, to, policy)| Cast::new(from, to).with_policy(policy).into())
        .boxed()
}

fn simple_casts() -> Vec<Op> {
    let policies = near_usual_policies();
    let casts = pairs(ALL.into_iter(), ALL.into_iter()).map(|(from, to)| Cast::new(from, to));
    casts.flat_map(|cast| policies.iter().map(move |&policy| cast.with_policy(policy).into())).collect()
}

fn decodes() -> Vec<Op> {
    let to = [F16, BF16, F32, F64].into_iter();
    pairs(ALL.into_iter(), to).map(|(from, to)| Decode { from, to }.into()).collect()
}

fn classifies() -> Vec<Op> {
    ALL.into_iter().map(|format| Classify { format }.into()).collect()
}

fn format_infos() -> Vec<Op> {
    ALL.into_iter().map(|format| FormatInfo { format }.into()).collect()
}

fn any_scaled_cast() -> BoxedStrategy<Op> {
    (sources_within_f32(), targets(), granularities(), select(&SCALE_OPS[..]), policies())
        .prop_map(|(from, to, granularity, scale_op, policy)| {
            ScaledCast { granularity, scale_op, ..ScaledCast::new(from, to) }.with_policy(policy).into()
        })
        .boxed()
}

fn simple_scaled_casts() -> Vec<Op> {
    let policies = near_usual_policies();
    let all = pairs(within_f32(), ALL.into_iter()).flat_map(|(from, to)| {
        let usual = ScaledCast::new(from, to);
        let policies = policies.iter().map(move |&policy| usual.with_policy(policy));
        let scale_ops = SCALE_OPS.into_iter().map(move |scale_op| ScaledCast { scale_op, ..usual });
        let groups = GRANULARITIES.into_iter().map(move |granularity| ScaledCast { granularity, ..usual });
        policies.chain(scale_ops).chain(groups)
    });
    all.map(Op::from).collect()
}

fn any_absmax() -> BoxedStrategy<Op> {
    (sources_within_f32(), select(vec![AbsmaxNan::Propagate, AbsmaxNan::Ignore]), granularities())
        .prop_map(|(from, nan, granularity)| Absmax { from, nan, granularity }.into())
        .boxed()
}

fn simple_absmaxes() -> Vec<Op> {
    let all = within_f32().flat_map(|from| {
        [AbsmaxNan::Propagate, AbsmaxNan::Ignore].into_iter().flat_map(move |nan| {
            GRANULARITIES.into_iter().map(move |granularity| Absmax { from, nan, granularity })
        })
    });
    all.map(Op::from).collect()
}

fn any_device_scaled_cast() -> BoxedStrategy<Op> {
    let edges =
        (select(vec![Tiny::Reciprocal, Tiny::Quotient]), select(vec![Special::Propagate, Special::Unit]));
    let formats = (sources_within_f32(), targets_within_f32());
    (formats, granularities(), select(&SCALE_OPS[..]), edges, policies())
        .prop_map(|((from, to), granularity, scale_op, (tiny, special), policy)| {
            let usual = DeviceScaledCast::new(from, to);
            DeviceScaledCast { granularity, scale_op, tiny, special, ..usual }.with_policy(policy).into()
        })
        .boxed()
}

fn simple_device_scaled_casts() -> Vec<Op> {
    let policies = near_usual_policies();
    let all = pairs(within_f32(), within_f32()).flat_map(|(from, to)| {
        let usual = DeviceScaledCast::new(from, to);
        let policies = policies.iter().map(move |&policy| usual.with_policy(policy));
        let scale_ops = SCALE_OPS.into_iter().map(move |scale_op| DeviceScaledCast { scale_op, ..usual });
        let groups =
            GRANULARITIES.into_iter().map(move |granularity| DeviceScaledCast { granularity, ..usual });
        let edges = [
            DeviceScaledCast { tiny: Tiny::Quotient, ..usual },
            DeviceScaledCast { special: Special::Unit, ..usual },
        ];
        policies.chain(scale_ops).chain(groups).chain(edges)
    });
    all.map(Op::from).collect()
}

fn any_scaled_decode() -> BoxedStrategy<Op> {
    (select(within_f32().collect::<Vec<_>>()), granularities())
        .prop_map(|(from, granularity)| ScaledDecode { from, granularity }.into())
        .boxed()
}

fn simple_scaled_decodes() -> Vec<Op> {
    let all = within_f32().flat_map(|from| {
        GRANULARITIES.into_iter().map(move |granularity| ScaledDecode { from, granularity })
    });
    all.map(Op::from).collect()
}
