//! Microscaling: what single blocks give, computed by hand, and what is refused.

use crate::support::{codes, evaluate, first, first_f32, scalar, tensor, vector};
use plumbline_reference::block::mx::{MxFormat, ScaleRule};
use plumbline_reference::format::{
    E2M1, E4M3FN, E5M2, E8M0, F16, F32, F64, Infinities, Policy, Rounding, UE4M3,
};
use plumbline_reference::ops::{MxDequantize, MxElementOp, MxOrder, MxOutput, MxQuantize, NonFinite, Op};
use plumbline_reference::{DType, Tensor, TensorType};

/// A block of that format that begins with these values and goes on with zeros.
fn block(format: MxFormat, begin: &[f32]) -> Tensor {
    let mut x = vec![0.0; format.layout().block];
    x[..begin.len()].copy_from_slice(begin);
    vector(&x)
}

/// The scale and the first codes of an MX block.
fn quantized(op: MxQuantize, begin: &[f32]) -> (u64, Vec<u64>) {
    let outputs = evaluate(op, &[block(op.format, begin)]);
    (outputs[1].code(0), outputs[0].codes().take(begin.len()).collect())
}

fn nvfp4(op: MxQuantize, begin: &[f32], t: f32) -> (u64, Vec<u64>) {
    let outputs = evaluate(op, &[block(op.format, begin), scalar(t)]);
    (outputs[1].code(0), outputs[0].codes().take(begin.len()).collect())
}

fn rule(format: MxFormat, scale_rule: ScaleRule) -> MxQuantize {
    MxQuantize { scale_rule, ..MxQuantize::new(F32, format) }
}

const NV: MxFormat = MxFormat::Nvfp4;

#[test]
fn rules_part_where_they_should() {
    use ScaleRule::*;
    // Largest magnitude and scale code (127 is 1) by floor, ceil, even, rceil and ceil_log2.
    let table: [(MxFormat, f32, [u64; 5]); 15] = [
        (MxFormat::Mxfp4, 4.0, [127, 127, 127, 127, 127]),
        (MxFormat::Mxfp4, 4.0f32.next_up(), [127, 127, 127, 127, 128]),
        (MxFormat::Mxfp4, 6.0, [127, 127, 127, 127, 128]),
        (MxFormat::Mxfp4, 6.0f32.next_up(), [127, 128, 127, 128, 128]),
        (MxFormat::Mxfp4, 7.0f32.next_down(), [127, 128, 127, 128, 128]),
        (MxFormat::Mxfp4, 7.0, [127, 128, 128, 128, 128]),
        (MxFormat::Mxfp8E4m3, 448.0, [127, 127, 127, 127, 128]),
        (MxFormat::Mxfp8E4m3, 448.0f32.next_up(), [127, 128, 127, 128, 128]),
        (MxFormat::Mxfp8E4m3, 496.0f32.next_down(), [127, 128, 127, 128, 128]),
        (MxFormat::Mxfp8E4m3, 496.0, [127, 128, 128, 128, 128]),
        (MxFormat::Mxfp8E5m2, 57344.0, [127, 127, 127, 127, 128]),
        (MxFormat::Mxfp8E5m2, 61440.0, [127, 128, 128, 128, 128]),
        (MxFormat::Mxfp6E2m3, 7.5, [127, 127, 127, 127, 128]),
        (MxFormat::Mxfp6E2m3, 7.75, [127, 128, 128, 128, 128]),
        (MxFormat::Mxfp6E3m2, 28.0f32.next_up(), [127, 128, 127, 128, 128]),
    ];
    for (format, a, expected) in table {
        let got = [Floor, Ceil, Even, Rceil, CeilLog2]
            .map(|scale_rule| quantized(rule(format, scale_rule), &[a]).0);
        assert_eq!(got, expected, "{format:?} {a}");
    }
}

#[test]
fn scales_end_at_both_ends_of_their_format() {
    for format in MxFormat::ALL.into_iter().filter(|&format| format != NV) {
        for scale_rule in ScaleRule::ALL {
            let op = rule(format, scale_rule);
            for tiny in [0.0, -0.0, f32::from_bits(1), f32::from_bits(0x007f_ffff), f32::MIN_POSITIVE] {
                assert_eq!(quantized(op, &[tiny]).0, 0, "{op:?} {tiny}");
            }
            // 2^128 less an ulp, over the largest element; `even` rounds it up to 2^128.
            let emax = format.layout().element.max_exponent() as u64;
            let up = u64::from(scale_rule != ScaleRule::Floor);
            assert_eq!(quantized(op, &[f32::MAX]).0, 254 - emax + up, "{op:?}");
        }
    }
}

#[test]
fn quotients_by_powers_of_two_are_exact_and_rounded_once() {
    // The scale is 2^-127 and the smallest subnormal f32 is 2^-22 of it; 2^-127 itself is 1.
    let tiny = [f32::from_bits(1), f32::from_bits(0x0040_0000), f32::from_bits(0x8020_0000)];
    assert_eq!(quantized(rule(MxFormat::Mxfp8E4m3, ScaleRule::Floor), &tiny), (0, vec![0x00, 0x38, 0xb0]));
    assert_eq!(quantized(rule(MxFormat::Mxfp8E5m2, ScaleRule::Floor), &tiny), (0, vec![0x00, 0x3c, 0xb8]));
    assert_eq!(quantized(rule(MxFormat::Mxfp4, ScaleRule::Floor), &tiny), (0, vec![0x0, 0x2, 0x9]));
    // Scale 2^120: 2^-149 over it is 2^-269, far below every element and its half.
    let wide = [f32::from_bits(0x7b80_0000), f32::from_bits(1), f32::from_bits(0x8000_0001)];
    assert_eq!(quantized(rule(MxFormat::Mxfp4, ScaleRule::Floor), &wide), (245, vec![0x6, 0x0, 0x8]));
    let up = rule(MxFormat::Mxfp4, ScaleRule::Floor)
        .with_policy(Policy { rounding: Rounding::Up, ..Policy::default() });
    assert_eq!(quantized(up, &wide), (245, vec![0x6, 0x1, 0x8]));
}

#[test]
fn not_a_number_and_infinity_by_policy() {
    let x = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -3.0];
    let op = |format, non_finite| MxQuantize { non_finite, ..MxQuantize::new(F32, format) };
    let e4m3 = |non_finite| quantized(op(MxFormat::Mxfp8E4m3, non_finite), &x);
    assert_eq!(e4m3(NonFinite::NanScale), (0xff, vec![0x7f; 5]));
    // 3 is 1.5 * 2^1: scale 2^-7, and 384.
    assert_eq!(e4m3(NonFinite::PerElement), (120, vec![0x7f, 0x7f, 0x7e, 0xfe, 0xfc]));
    assert_eq!(e4m3(NonFinite::Saturate), (254, vec![0x7f, 0x7f, 0x7e, 0xfe, 0x80]));
    let e2m1 = |non_finite| quantized(op(MxFormat::Mxfp4, non_finite), &x);
    assert_eq!(e2m1(NonFinite::NanScale), (0xff, vec![0x7; 5]));
    assert_eq!(e2m1(NonFinite::PerElement), (126, vec![0x7, 0x7, 0x7, 0xf, 0xf]));
    assert_eq!(e2m1(NonFinite::Saturate), (254, vec![0x7, 0x7, 0x7, 0xf, 0x8]));
    let nv = |non_finite| nvfp4(op(NV, non_finite), &x, 1.0);
    assert_eq!(nv(NonFinite::NanScale), (0x7f, vec![0x7; 5]));
    assert_eq!(nv(NonFinite::PerElement), (0x30, vec![0x7, 0x7, 0x7, 0xf, 0xf]));
    assert_eq!(nv(NonFinite::Saturate), (0x7e, vec![0x7, 0x7, 0x7, 0xf, 0x8]));
    let kept = op(MxFormat::Mxfp8E5m2, NonFinite::PerElement);
    let kept = kept.with_policy(Policy { infinities: Infinities::Propagate, ..Policy::default() });
    assert_eq!(quantized(kept, &x[2..]).1, [0x7c, 0xfc, 0xfa]);
}

#[test]
fn infinity_alone_decides_only_its_own_block() {
    let mut x = vec![1.0; 96];
    x[63] = f32::NEG_INFINITY;
    let outputs = evaluate(MxQuantize::new(F32, MxFormat::Mxfp4), &[vector(&x)]);
    assert_eq!(outputs[1].bytes(), [125, 0xff, 125]);
}

#[test]
fn zeros_keep_their_signs() {
    for format in MxFormat::ALL {
        let op = MxQuantize::new(F32, format);
        let minus_zero = format.layout().element.sign_bit();
        let got = if format == NV { nvfp4(op, &[0.0, -0.0], 0.3) } else { quantized(op, &[0.0, -0.0]) };
        assert_eq!(got, (0, vec![0, minus_zero]), "{format:?}");
    }
}

#[test]
fn nvfp4_divides_by_six_and_by_the_scale_of_the_tensor() {
    let op = MxQuantize::new(F32, NV);
    assert_eq!(nvfp4(op, &[6.0, -3.0, 0.25, 5.0], 1.0), (0x38, vec![0x7, 0xd, 0x0, 0x6]));
    // 10 / 6 / 0.5 is 3.33, 3.25 as a scale: elements are divided by 1.625.
    assert_eq!(nvfp4(op, &[10.0, 4.0625], 0.5), (0x45, vec![0x7, 0x4]));
    // 2.5 is a tie; its neighbour goes up.
    assert_eq!(nvfp4(op, &[10.0, 4.0625f32.next_up()], 0.5), (0x45, vec![0x7, 0x5]));
    // Beyond 448 the scale saturates, and so do the elements.
    assert_eq!(nvfp4(op, &[1e6, -2688.0], 1.0), (0x7e, vec![0x7, 0xf]));
    // Below 2^-10 it is 0, and the elements are zeros with their signs.
    assert_eq!(nvfp4(op, &[0.005, -0.005], 1.0), (0x00, vec![0x0, 0x8]));
    assert_eq!(nvfp4(op, &[0.006, -0.006], 1.0), (0x01, vec![0x5, 0xd]));
}

#[test]
fn nvfp4_by_the_reciprocal_is_another_operation() {
    let [divide, reciprocal] = [MxElementOp::Divide, MxElementOp::Reciprocal]
        .map(|element_op| MxQuantize { element_op, ..MxQuantize::new(F32, NV) });
    // Of the factor 1.875 the reciprocal is above 8/15 in f32, and takes ties up that a quotient has
    // go down to the even code; 0.5 and 1.75 times the factor it leaves where they are.
    let x = [11.25, 2.34375, 4.6875, 9.375, -2.34375, 0.9375, 3.28125];
    let (scale, divided) = nvfp4(divide, &x, 1.0);
    assert_eq!((scale, &*divided), (0x3f, &[0x7, 0x2, 0x4, 0x6, 0xa, 0x1, 0x4][..]));
    let (scale, multiplied) = nvfp4(reciprocal, &x, 1.0);
    assert_eq!((scale, &*multiplied), (0x3f, &[0x7, 0x3, 0x5, 0x7, 0xb, 0x1, 0x4][..]));
    assert_ne!(divided, multiplied);
}

#[test]
fn scales_of_tensors_at_the_edges() {
    // The codes of 3, -3 and 0; then those of a block of zeros, 0 and -0.
    type Expected = ((u64, [u64; 3]), (u64, [u64; 2]));
    let nan = [0x7; 2];
    let table: [(f32, Expected); 10] = [
        // 0.5 / 0 is infinite, 448 * 0 no factor; 0 / 0 is NaN.
        (0.0, ((0x7e, [0x0, 0x8, 0x0]), (0x7f, nan))),
        // No scale is negative, -Inf becomes 0, and 0 * -0 is -0.
        (-0.0, ((0x00, [0x8, 0x0, 0x8]), (0x7f, nan))),
        (f32::NAN, ((0x7f, [0x7; 3]), (0x7f, nan))),
        // 0 * Inf is NaN.
        (f32::INFINITY, ((0x00, [0x7; 3]), (0x00, nan))),
        (f32::NEG_INFINITY, ((0x00, [0x7; 3]), (0x00, nan))),
        // 0 * -1 is -0.
        (-1.0, ((0x00, [0x8, 0x0, 0x8]), (0x00, [0x8, 0x0]))),
        (-f32::from_bits(1), ((0x00, [0x8, 0x0, 0x8]), (0x00, [0x8, 0x0]))),
        (f32::MIN, ((0x00, [0x8, 0x0, 0x8]), (0x00, [0x8, 0x0]))),
        (f32::MAX, ((0x00, [0x0, 0x8, 0x0]), (0x00, [0x0, 0x8]))),
        // 448 * 2^-149 is subnormal, and its reciprocal no f32.
        (f32::from_bits(1), ((0x7e, [0x7, 0xf, 0x0]), (0x00, [0x0, 0x8]))),
    ];
    for element_op in [MxElementOp::Divide, MxElementOp::Reciprocal] {
        let op = MxQuantize { element_op, ..MxQuantize::new(F32, NV) };
        for (t, ((scale, codes), (scale_of_zeros, codes_of_zeros))) in table {
            assert_eq!(nvfp4(op, &[3.0, -3.0, 0.0], t), (scale, codes.to_vec()), "{t} {element_op:?}");
            let zeros = nvfp4(op, &[0.0, -0.0], t);
            assert_eq!(zeros, (scale_of_zeros, codes_of_zeros.to_vec()), "zeros, {t} {element_op:?}");
        }
        // A sixth of 3 * 2^-149 is half of the smallest f32, a tie that goes to 0; of more it is not.
        let [tie, above] = [3, 4].map(f32::from_bits);
        assert_eq!(nvfp4(op, &[tie], 0.0), (0x7f, vec![0x7]));
        assert_eq!(nvfp4(op, &[above], 0.0), (0x7e, vec![0x0]));
        // An infinity that counts: over t it is infinite, or NaN; 448 * t may be infinite, no NaN.
        let saturate = MxQuantize { non_finite: NonFinite::Saturate, ..op };
        let x = [f32::NEG_INFINITY, 3.0, -3.0];
        assert_eq!(nvfp4(saturate, &x, f32::MAX), (0x7e, vec![0xf, 0x0, 0x8]));
        assert_eq!(nvfp4(saturate, &x, f32::INFINITY), (0x7f, vec![0x7; 3]));
        assert_eq!(nvfp4(saturate, &x, 0.0), (0x7e, vec![0xf, 0x0, 0x8]));
    }
}

#[test]
fn packed_codes_have_the_even_index_in_the_low_nibble() {
    let x = [1.0, -6.0, 0.5];
    for format in [MxFormat::Mxfp4, NV] {
        let op = MxQuantize { packed: true, ..MxQuantize::new(F32, format) };
        let outputs = if format == NV { nvfp4(op, &x, 1.0) } else { quantized(op, &x) };
        assert_eq!(outputs.1[..2], [0xf2, 0x01], "{format:?}");
    }
    let op = MxDequantize { packed: true, ..MxDequantize::new(MxFormat::Mxfp4, F32) };
    let back = first_f32(op, &[tensor(DType::U8, &[16], &[0xf2; 16]), codes(E8M0, &[128])]);
    assert_eq!(back[..4], [2.0, -12.0, 2.0, -12.0]);
}

/// The first element of a block all of whose codes are this one.
fn dequantized(op: MxDequantize, code: u64, scale: u64) -> u64 {
    let layout = op.format.layout();
    first(op, &[codes(layout.element, &vec![code; layout.block]), codes(layout.scale, &[scale])])[0]
}

#[test]
fn the_ends_of_e8m0_are_a_subnormal_and_nan() {
    let op = MxDequantize::new(MxFormat::Mxfp8E4m3, F32);
    assert_eq!(dequantized(op, 0x38, 0), 0x0040_0000);
    assert_eq!(dequantized(op, 0x81, 0), 0x8000_2000, "2^-9 * 2^-127");
    assert_eq!(dequantized(op, 0x38, 254), 0x7f00_0000);
    assert_eq!(dequantized(op, 0xfe, 254), 0xff80_0000, "448 * 2^127 is beyond f32");
    for code in [0x00, 0x38, 0x80] {
        assert_eq!(dequantized(op, code, 255), 0x7fff_ffff);
    }
    assert_eq!(dequantized(op, 0xff, 127), 0x7fff_ffff);
    let e5m2 = MxDequantize::new(MxFormat::Mxfp8E5m2, F32);
    assert_eq!(dequantized(e5m2, 0xfc, 0), 0xff80_0000);
    assert_eq!(dequantized(e5m2, 0x01, 0), 0x0000_0040, "2^-16 * 2^-127");
    assert_eq!(dequantized(e5m2, 0x7c, 255), 0x7fff_ffff);
}

#[test]
fn f16_keeps_its_subnormals() {
    let op = MxDequantize::new(MxFormat::Mxfp4, F16);
    // 1.5 * 2^-24 is a tie between 1 and 2 ulp, 0.5 * 2^-24 one between 0 and 1.
    assert_eq!(
        [0x3, 0xb, 0x1, 0x2].map(|code| dequantized(op, code, 127 - 24)),
        [0x0002, 0x8002, 0x0000, 0x0001]
    );
    assert_eq!(dequantized(op, 0x7, 127 + 14), 0x7c00, "6 * 2^14 is beyond f16");
}

#[test]
fn orders_and_roundings_of_nvfp4_differ() {
    let inputs = |t: u32| [codes(E2M1, &[0x5; 16]), codes(UE4M3, &[0x3b]), scalar(f32::from_bits(t))];
    let run = |op, t| first(op, &inputs(t))[0];
    let direct = MxDequantize::new(NV, F32);
    let scales_first = MxDequantize { order: MxOrder::ScalesFirst, ..direct };
    // 3 * 1.375 * t: 4.125 * (1 + 3 * 2^-23) is 4.125 + 12.375 ulp of 2^-23, of which 4 make one
    // there; 1.375 * t first is rounded from 4.125 to 4 of its own.
    assert_eq!(run(direct, 0x3f80_0003), 0x4084_0003);
    assert_eq!(run(scales_first, 0x3f80_0003), 0x4084_0003);
    let differing =
        (0..64).filter(|&low| run(direct, 0x3f80_0000 + low) != run(scales_first, 0x3f80_0000 + low));
    assert!(differing.count() > 0);
    // 4.125 * t just above a tie of f16, which rounding to f32 makes a tie.
    let f16 = MxDequantize::new(NV, F16);
    let via = MxDequantize { output: MxOutput::ViaF32, ..f16 };
    let twice =
        (0x3f80_0000..0x3f90_0000u32).find(|&t| run(f16, t) != run(via, t)).expect("a double rounding");
    let exact = 4.125 * f64::from(f32::from_bits(twice));
    assert_eq!(run(f16, twice), F16.encode(exact.into(), &Policy::IEEE, 0));
    assert_eq!(run(via, twice), F16.encode((exact as f32).into(), &Policy::IEEE, 0));
}

#[test]
fn nan_and_infinite_scales_of_tensors() {
    let run = |code, scale, t| {
        let inputs = [codes(E2M1, &[code; 16]), codes(UE4M3, &[scale]), scalar(t)];
        first(MxDequantize::new(NV, F32), &inputs)[0]
    };
    assert_eq!(run(0x2, 0x7f, 1.0), 0x7fff_ffff);
    assert_eq!(run(0x2, 0xff, 1.0), 0x7fff_ffff, "the top bit is padding");
    assert_eq!(run(0xa, 0xb8, 1.0), 0xbf80_0000);
    assert_eq!(run(0x2, 0x38, f32::NAN), 0x7fff_ffff);
    assert_eq!(run(0xa, 0x38, f32::INFINITY), 0xff80_0000);
    assert_eq!(run(0x0, 0x38, f32::INFINITY), 0x7fff_ffff);
    assert_eq!(run(0x8, 0x38, 1.0), 0x8000_0000);
    assert_eq!(run(0x1, 0x01, f32::from_bits(1)), 0x0000_0000);
}

fn refusal(op: impl Into<Op>, inputs: &[(DType, &[usize])]) -> String {
    let inputs: Vec<_> = inputs.iter().map(|&(dtype, shape)| TensorType::new(dtype, shape)).collect();
    op.into().signature(&inputs).unwrap_err().to_string()
}

#[test]
fn rows_that_are_no_whole_blocks_are_refused() {
    let f32 = DType::from(F32);
    let mxfp8 = MxQuantize::new(F32, MxFormat::Mxfp8E4m3);
    let refused = |given| {
        format!("mx_quantize: input `x` has shape {given}, expected [..., K] with K a multiple of 32")
    };
    for shape in [&[2, 33][..], &[2, 16], &[1], &[]] {
        assert_eq!(refusal(mxfp8, &[(f32, shape)]), refused(format!("{shape:?}")));
    }
    let op = MxDequantize { packed: true, ..MxDequantize::new(MxFormat::Mxfp4, F32) };
    assert_eq!(
        refusal(op, &[(DType::U8, &[24]), (E8M0.into(), &[1])]),
        "mx_dequantize: input `codes` has shape [24], expected [..., K / 2] with K a multiple of 32"
    );
    assert_eq!(
        refusal(
            MxDequantize::new(MxFormat::Mxfp8E5m2, F32),
            &[(E5M2.into(), &[2, 64]), (E8M0.into(), &[2, 1])]
        ),
        "mx_dequantize: input `scales` has shape [2, 1], expected [2, 2]"
    );
}

#[test]
fn parameters_that_mean_nothing_are_refused() {
    let f32 = DType::from(F32);
    let x = (f32, &[32][..]);
    let nv = MxQuantize::new(F32, NV);
    let mxfp8 = MxQuantize::new(F32, MxFormat::Mxfp8E4m3);
    for (op, inputs, field) in [
        (Op::from(MxQuantize { packed: true, ..mxfp8 }), vec![x], "packed"),
        (MxQuantize { element_op: MxElementOp::Reciprocal, ..mxfp8 }.into(), vec![x], "element_op"),
        (MxQuantize { scale_rule: ScaleRule::Ceil, ..nv }.into(), vec![x, (f32, &[])], "scale_rule"),
        (MxQuantize::new(F64, NV).into(), vec![(F64.into(), &[32]), (f32, &[])], "from"),
        (MxQuantize::new(E4M3FN, NV).into(), vec![(E4M3FN.into(), &[32]), (f32, &[])], "from"),
        (
            MxDequantize { order: MxOrder::ScalesFirst, ..MxDequantize::new(MxFormat::Mxfp4, F32) }.into(),
            vec![(E2M1.into(), &[32]), (E8M0.into(), &[1])],
            "order",
        ),
        (
            MxDequantize::new(MxFormat::Mxfp4, E4M3FN).into(),
            vec![(E2M1.into(), &[32]), (E8M0.into(), &[1])],
            "to",
        ),
    ] {
        let name = op.name();
        let message = refusal(op, &inputs);
        assert!(message.starts_with(&format!("{name}: `{field}`: ")), "{message}");
    }
    assert_eq!(refusal(nv, &[x]), "mx_quantize: 1 inputs given, expected 2: x, tensor_scale");
}

#[test]
fn empty_rows_have_no_blocks() {
    for format in MxFormat::ALL {
        let x = Tensor::from_codes(TensorType::new(F32, [3, 0]), &[]).unwrap();
        let scale = (format == NV).then(|| scalar(1.0));
        let inputs: Vec<_> = [x].into_iter().chain(scale.clone()).collect();
        let outputs = evaluate(MxQuantize::new(F32, format), &inputs);
        assert_eq!([outputs[0].shape(), outputs[1].shape()], [[3, 0]; 2]);
        let inputs: Vec<_> = outputs.into_iter().chain(scale).collect();
        assert_eq!(evaluate(MxDequantize::new(format, F16), &inputs)[0].shape(), [3, 0]);
    }
}
