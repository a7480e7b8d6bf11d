//! Parameters of functions of elements and rows, and of attention.

use plumbline_reference::format::{BF16, F16, F32, Format};
use plumbline_reference::ops::{
    Alignment, Attention, Bits32, Causal, Elementary, FullyMasked, GeluErf, GeluTanh, LogSoftmax, Math, Op,
    QuickGelu, Relu, Silu, Softmax, SoftmaxOrder, Swiglu,
};
use proptest::prelude::*;
use proptest::sample::select;

pub(super) const FORMATS: [Format; 3] = [F32, F16, BF16];

/// Formats of inputs and outputs.
pub(super) fn pairs() -> impl Iterator<Item = (Format, Format)> {
    FORMATS.into_iter().flat_map(|from| FORMATS.map(|to| (from, to)))
}

fn of_pairs(of: impl Fn(Format, Format) -> Op) -> Vec<Op> {
    pairs().map(|(from, to)| of(from, to)).collect()
}

pub(super) fn maths() -> Vec<Op> {
    let all = Elementary::ALL.iter().map(|&function| of_pairs(|from, to| Math { function, from, to }.into()));
    all.flatten().collect()
}

pub(super) fn relus() -> Vec<Op> {
    of_pairs(|from, to| Relu { from, to }.into())
}

pub(super) fn silus() -> Vec<Op> {
    of_pairs(|from, to| Silu { from, to }.into())
}

pub(super) fn gelu_tanhs() -> Vec<Op> {
    of_pairs(|from, to| GeluTanh { from, to }.into())
}

pub(super) fn gelu_erfs() -> Vec<Op> {
    of_pairs(|from, to| GeluErf { from, to }.into())
}

pub(super) fn quick_gelus() -> Vec<Op> {
    of_pairs(|from, to| QuickGelu { from, to }.into())
}

pub(super) fn swiglus() -> Vec<Op> {
    of_pairs(|from, to| Swiglu { from, to }.into())
}

const SCALES: [f32; 6] = [1.0, 0.125, 3.7, -1.0, 0.0, 1e30];
const OFFSETS: [i64; 8] = [0, 1, -1, -2, 5, 31, i64::MIN, i64::MAX];
const MASKED: [FullyMasked; 2] = [FullyMasked::Zeros, FullyMasked::Nan];

/// Formats and the other parameters of a softmax.
fn rows() -> impl Iterator<Item = ((Format, Format), Bits32, Option<Causal>, FullyMasked)> {
    pairs().flat_map(|formats| {
        SCALES.into_iter().flat_map(move |scale| {
            let offsets = OFFSETS.into_iter().map(|offset| Some(Causal { offset }));
            [None].into_iter().chain(offsets).flat_map(move |causal| {
                MASKED.map(|fully_masked| (formats, Bits32(scale), causal, fully_masked))
            })
        })
    })
}

pub(super) fn softmaxes() -> Vec<Op> {
    rows()
        .map(|((from, to), scale, causal, fully_masked)| {
            Softmax { from, to, scale, causal, fully_masked }.into()
        })
        .collect()
}

pub(super) fn log_softmaxes() -> Vec<Op> {
    rows()
        .map(|((from, to), scale, causal, fully_masked)| {
            LogSoftmax { from, to, scale, causal, fully_masked }.into()
        })
        .collect()
}

fn scales() -> impl Iterator<Item = Option<Bits32>> {
    [None].into_iter().chain(SCALES.map(|scale| Some(Bits32(scale))))
}

fn alignments() -> impl Iterator<Item = Alignment> {
    let usual = [Alignment::None, Alignment::TopLeft, Alignment::BottomRight];
    usual.into_iter().chain(OFFSETS.map(Alignment::Offset))
}

const LENGTHS: [Option<usize>; 6] = [None, Some(0), Some(1), Some(5), Some(16), Some(33)];
const ORDERS: [SoftmaxOrder; 7] = [
    SoftmaxOrder::TwoPass,
    SoftmaxOrder::Online(1),
    SoftmaxOrder::Online(2),
    SoftmaxOrder::Online(3),
    SoftmaxOrder::Online(16),
    SoftmaxOrder::Online(32),
    SoftmaxOrder::Online(64),
];

pub(super) fn any_attention() -> BoxedStrategy<Op> {
    let formats = (select(&FORMATS[..]), select(&FORMATS[..]), select(&FORMATS[..]), select(&FORMATS[..]));
    // Most of the time all slots are in use.
    let length = prop_oneof![2 => Just(None), 1 => select(&LENGTHS[..])];
    let scale = prop_oneof![1 => Just(None), 1 => select(scales().collect::<Vec<_>>())];
    let causal = select(alignments().collect::<Vec<_>>());
    (formats, length, scale, causal, select(&ORDERS[..]), select(&MASKED[..]))
        .prop_map(|((q, kv, out, probabilities), length, scale, causal, softmax, fully_masked)| {
            let usual = Attention::new(q, kv, out);
            Attention { scale, causal, length, softmax, probabilities, fully_masked, ..usual }.into()
        })
        .boxed()
}

pub(super) fn simple_attentions() -> Vec<Op> {
    let formats = pairs().flat_map(|(q, kv)| FORMATS.map(|out| Attention::new(q, kv, out)));
    let all = formats.flat_map(|usual| {
        let scales = scales().map(move |scale| Attention { scale, ..usual });
        let masks = alignments()
            .flat_map(move |causal| MASKED.map(|fully_masked| Attention { causal, fully_masked, ..usual }));
        let lengths = LENGTHS.into_iter().map(move |length| Attention { length, ..usual });
        let orders = ORDERS.into_iter().map(move |softmax| Attention { softmax, ..usual });
        let narrow = FORMATS.into_iter().map(move |probabilities| Attention { probabilities, ..usual });
        scales.chain(masks).chain(lengths).chain(orders).chain(narrow)
    });
    all.map(Op::from).collect()
}
