use super::*;
use plumbline_reference::block::mx::MxFormat;
use plumbline_reference::format::{
    ALL, BF16, E2M1, E4M3FN, E4M3FNUZ, E5M2, E8M0, F16, F32, F64, Policy, Rounding, TF32,
};
use plumbline_reference::ops::{
    Cast, Classify, Decode, DeviceScaledCast, Granularity, MxQuantize, ScaleOp, ScaledCast,
};
use plumbline_reference::{Path, TensorType};
use std::collections::{HashMap, HashSet};

fn request<'a>(class: &'a Class, dtype: impl Into<DType>, op: &'a Op) -> Request<'a> {
    Request {
        class,
        dtype: dtype.into(),
        shape: None,
        blocks: None,
        lanes: 1,
        seed: 1,
        op,
        input: 0,
        others: &[],
    }
}

/// The codes of a class for a cast.
fn cast_inputs(class: Class, from: Format, to: Format) -> Vec<u64> {
    let op = Cast::new(from, to).into();
    generate(&request(&class, from, &op)).unwrap().codes().collect()
}

fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    let codes: Vec<_> = values.iter().map(|x| u64::from(x.to_bits())).collect();
    Tensor::from_codes(TensorType::new(F32, shape), &codes).unwrap()
}

fn error(request: &Request<'_>) -> String {
    generate(request).unwrap_err().to_string()
}

fn refuses(request: Request<'_>, why: &str) {
    let message = error(&request);
    assert!(message.contains(why), "{:?}: {message}", request.class);
}

fn hold_all(class: &Class, to: Format, values: &[u64]) {
    let codes: HashSet<_> = cast_inputs(class.clone(), F32, to).into_iter().collect();
    for &value in values {
        assert!(codes.contains(&value), "{value:#x} is not in {class:?} for f32 to {to}");
    }
}

#[test]
fn reported_inputs_are_generated() {
    let bits = |x: f32| u64::from(x.to_bits());
    hold_all(&Class::DoubleRounding, E4M3FN, &[0x3f88_0001, 0x3a80_0008, 0x3d77_ffff]);
    hold_all(&Class::Midpoints, E4M3FN, &[0x43e8_0000, 0x43e8_0001, 0x3f88_0001, bits(1.9375)]);
    hold_all(&Class::Midpoints, E2M1, &[0.25, 0.75, 1.25, 2.5, 3.5, 5.0, -0.25, -5.0].map(bits));
    hold_all(&Class::Midpoints, E2M1, &[0x3e80_0001]);
    hold_all(&Class::Midpoints, F16, &[bits(520.25), bits(2f32.powi(-25))]);
    hold_all(&Class::Midpoints, E5M2, &[bits(1.125), bits(1.625), bits(2f32.powi(-17))]);
    hold_all(&Class::Representable, E5M2, &[bits(2f32.powi(-16))]);
    hold_all(&Class::Extremes, E4M3FNUZ, &[0x7f80_0000, 0xff80_0000, 0x8000_0000, bits(240.0)]);
    hold_all(&Class::Edges, E4M3FN, &[0x3f88_0001, 0x3a80_0008, 0x3d77_ffff, 0x43e8_0001, 0x7f80_0000]);
}

/// An H200 changes its result at these f32 patterns, to these codes; either the pattern
/// is a tie that goes up, or the one before it is a tie that goes down.
#[test]
fn midpoints_straddle_every_change_of_the_hardware() {
    let changes = [
        (E4M3FN, 0x3a80_0001, 0x01),
        (E4M3FN, 0x3b40_0000, 0x02),
        (E4M3FN, 0x3ba0_0001, 0x03),
        (E4M3FN, 0x3c10_0001, 0x05),
        (E4M3FN, 0x43d8_0000, 0x7e),
        (E5M2, 0x3700_0001, 0x01),
        (E5M2, 0x37c0_0000, 0x02),
        (E5M2, 0x39d0_0001, 0x0f),
    ];
    for (to, change, code) in changes {
        hold_all(&Class::Midpoints, to, &[change - 1, change]);
        let cast = |bits| to.encode(F32.decode(bits), &Policy::default(), 0);
        assert_eq!([cast(change - 1), cast(change)], [code - 1, code], "{to} {change:#x}");
    }
}

#[test]
fn an_f32_list_has_every_midpoint_and_its_neighbours_with_both_signs() {
    let codes = cast_inputs(Class::Midpoints, F32, E4M3FN);
    // 127 midpoints, each exact in f32.
    assert_eq!(codes.len(), 127 * 3 * 2);
    assert_eq!(codes[..6], [0x3a7f_ffff, 0xba7f_ffff, 0x3a80_0000, 0xba80_0000, 0x3a80_0001, 0xba80_0001]);
}

#[test]
fn double_rounding_through_a_narrower_format_shows() {
    for class in [Class::DoubleRounding, Class::Edges] {
        for (from, via, to) in [
            (F32, F16, E4M3FN),
            (F32, BF16, E4M3FN),
            (F32, F16, E5M2),
            (F32, BF16, E5M2),
            (F32, F16, E2M1),
            (F16, BF16, E4M3FN),
            (F32, F16, BF16),
            (F64, F32, F16),
        ] {
            let wrong = cast_inputs(class.clone(), from, to).into_iter().filter(|&code| {
                let value = from.decode(code);
                let twice = via.decode(via.encode(value, &Policy::IEEE, 0));
                let [once, twice] = [value, twice].map(|value| to.encode(value, &Policy::default(), 0));
                once != twice
            });
            let wrong = wrong.count();
            assert!(wrong >= 14, "{class:?} {from} via {via} to {to}: {wrong}");
        }
    }
}

#[test]
fn nans_are_nans_of_both_signs_quiet_and_signalling() {
    let op = Op::from(Decode { from: F16, to: F32 });
    for format in ALL.into_iter().filter(Format::has_nan) {
        let nans: Vec<_> = generate(&request(&Class::Nans, format, &op)).unwrap().codes().collect();
        assert!(nans.iter().all(|&code| format.decode(code).is_nan()), "{format}");
        assert!(!format.signed || nans.iter().any(|&code| format.decode(code).is_negative()), "{format}");
    }
    let nans = cast_inputs(Class::Nans, F32, E4M3FN);
    for nan in [0x7fc0_0000, 0x7fff_ffff, 0x7f80_0001, 0x7fa0_0000, 0x7fbf_ffff, 0xff80_0001, 0xffc0_0001] {
        assert!(nans.contains(&nan), "{nan:#x}");
    }
}

#[test]
fn edges_are_the_union_without_repetition() {
    let edges = cast_inputs(Class::Edges, F32, E4M3FN);
    let set: HashSet<_> = edges.iter().copied().collect();
    assert_eq!(set.len(), edges.len());
    for class in [
        Class::Midpoints,
        Class::Representable,
        Class::BinadeEdges,
        Class::Subnormals,
        Class::Extremes,
        Class::Nans,
        Class::DoubleRounding,
    ] {
        let part = cast_inputs(class.clone(), F32, E4M3FN);
        assert!(part.iter().all(|code| set.contains(code)), "{class:?}");
    }
    assert!((4_000..20_000).contains(&edges.len()), "{}", edges.len());
}

#[test]
fn every_pair_of_formats_has_edges_of_moderate_number() {
    for from in ALL {
        for to in ALL {
            let edges = cast_inputs(Class::Edges, from, to);
            assert!(edges.len() < 600_000, "{from} to {to}: {}", edges.len());
            assert!(edges.iter().all(|code| code & !from.code_mask() == 0), "{from} to {to}");
        }
    }
}

#[test]
fn small_sources_have_all_their_codes_among_the_edges() {
    let op = Op::from(Decode { from: E4M3FN, to: F16 });
    assert_eq!(generate(&request(&Class::Edges, E4M3FN, &op)).unwrap().len(), 256);
}

#[test]
fn each_value_stands_in_every_lane() {
    let op = Cast::new(F32, E2M1).into();
    for class in [Class::Midpoints, Class::Nans, Class::AllCodes { part: 0, parts: 1 << 24 }] {
        let values: HashSet<u64> = generate(&request(&class, F32, &op)).unwrap().codes().collect();
        for lanes in [2, 4, 16] {
            let spread = generate(&Request { lanes, ..request(&class, F32, &op) }).unwrap();
            let mut seen: HashMap<u64, HashSet<usize>> = HashMap::new();
            for (i, code) in spread.codes().enumerate() {
                seen.entry(code).or_default().insert(i % lanes);
            }
            assert!(values.iter().all(|code| seen[code].len() == lanes), "{class:?} in {lanes} lanes");
            assert_eq!(seen.len(), values.len());
        }
    }
}

#[test]
fn a_shape_is_filled_by_starting_over() {
    let op = Cast::new(F32, E2M1).into();
    let class = Class::AllCodes { part: 0, parts: 1 };
    let filled = generate(&Request { shape: Some(&[2, 20]), ..request(&class, E2M1, &op) }).unwrap();
    assert_eq!(filled.shape(), [2, 20]);
    assert!(filled.codes().eq((0..40).map(|i| i % 16)));
    let message = error(&Request { shape: Some(&[3, 5]), ..request(&class, E2M1, &op) });
    assert_eq!(
        message,
        "class `all_codes` has 16 values, but shape [3, 5] holds 15; leave out `shape` or enlarge it"
    );
}

#[test]
fn parts_of_all_codes_join_to_all_codes() {
    let op = Cast::new(F16, E4M3FN).into();
    let part = |part| {
        let class = Class::AllCodes { part, parts: 3 };
        generate(&request(&class, F16, &op)).unwrap().codes().collect::<Vec<_>>()
    };
    assert!((0..3).flat_map(part).eq(0..1 << 16));
    let class = Class::AllCodes { part: 1 << 20, parts: 1 << 21 };
    let tf32 = generate(&request(&Class::AllCodes { part: 1, parts: 4 }, TF32, &op)).unwrap();
    assert_eq!([tf32.code(0), tf32.code(1)], [0x4000_0000, 0x4000_2000]);
    assert_eq!(generate(&request(&class, DType::U32, &op)).unwrap().code(0), 1 << 31);
}

/// What an operation makes of its `scaled_edges` under a rounding.
fn scaled(
    op: impl Fn(Rounding) -> Op,
    from: Format,
    shape: Option<&[usize]>,
    scales: Tensor,
) -> Vec<Vec<u64>> {
    let class = Class::ScaledEdges;
    let nearest_even = op(Rounding::NearestEven);
    let others = [None, Some(scales.clone())];
    let x = generate(&Request { shape, others: &others, ..request(&class, from, &nearest_even) }).unwrap();
    [Rounding::NearestEven, Rounding::NearestAway, Rounding::TowardZero]
        .map(|rounding| {
            let y = op(rounding).evaluate(&[x.clone(), scales.clone()], Path::Parallel).unwrap();
            y[0].codes().collect()
        })
        .into()
}

fn differences(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

#[test]
fn scaled_edges_hit_ties_through_an_odd_scale() {
    for scale_op in [ScaleOp::Multiply, ScaleOp::Divide, ScaleOp::Reciprocal] {
        let plain = |rounding| {
            let op = ScaledCast { scale_op, ..ScaledCast::new(F32, E4M3FN) };
            Op::from(op.with_policy(Policy { rounding, ..Policy::default() }))
        };
        let device = |rounding| {
            let op = DeviceScaledCast { scale_op, ..DeviceScaledCast::new(F32, E4M3FN) };
            Op::from(op.with_policy(Policy { rounding, ..Policy::default() }))
        };
        for (name, y) in [
            ("scaled_cast", scaled(plain, F32, None, f32s(&[], &[0.37]))),
            ("device_scaled_cast", scaled(device, F32, None, f32s(&[1], &[3.3]))),
        ] {
            // 254 midpoints of both signs, half of which even and away decide differently.
            let [even, away, zero] = [&y[0], &y[1], &y[2]];
            assert!(differences(even, away) >= 64, "{name} {scale_op:?}: {}", differences(even, away));
            assert!(differences(even, zero) >= 254, "{name} {scale_op:?}: {}", differences(even, zero));
        }
    }
}

#[test]
fn scaled_edges_use_the_scale_of_the_row_and_of_the_block() {
    let op = |granularity| {
        move |rounding| {
            let op = ScaledCast { granularity, ..ScaledCast::new(F32, E4M3FN) };
            Op::from(op.with_policy(Policy { rounding, ..Policy::default() }))
        }
    };
    let shape: &[usize] = &[4, 512];
    // A zero, an infinite and a NaN scale must only not break the others.
    let rows = f32s(&[4], &[0.37, 1e-30, 0.0, 3e5]);
    let scales = [0.37, 1.9, f32::INFINITY, f32::NAN, 1.0, 0.0, -0.1, 7e-9];
    let blocks = f32s(&[4, 2], &scales);
    for (granularity, scales, group) in
        [(Granularity::Row, rows, 512), (Granularity::Block(256), blocks, 256)]
    {
        let y = scaled(op(granularity), F32, Some(shape), scales.clone());
        for (scale, (even, zero)) in
            scales.codes().zip(y[0].chunks_exact(group).zip(y[2].chunks_exact(group)))
        {
            let scale = f32::from_bits(scale as u32);
            let usual = scale.is_finite() && (1e-10..1e10).contains(&scale.abs());
            assert!(!usual || differences(even, zero) > group / 8, "{granularity:?} {scale}");
        }
    }
}

#[test]
fn the_quotient_168_is_met_exactly_and_just_above() {
    let op = DeviceScaledCast { scale_op: ScaleOp::Divide, ..DeviceScaledCast::new(F32, E4M3FN) };
    let a = f32s(&[], &[5.3]);
    let others = [None, Some(a.clone())];
    let op = Op::from(op);
    let x = generate(&Request { others: &others, ..request(&Class::ScaledEdges, F32, &op) }).unwrap();
    let len = x.len();
    let inputs = [x, a];
    let quotients: Vec<_> = (0..len).filter_map(|i| op.exact(&inputs, 0, i)).map(|q| q as f32).collect();
    assert!(quotients.contains(&168.0));
    assert!(quotients.iter().any(|q| (168.00001..168.00004).contains(q)));
    assert!(quotients.iter().any(|q| (167.99996..168.0).contains(q)));
}

#[test]
fn the_same_request_gives_the_same_values_and_another_seed_others() {
    let op = ScaledCast { granularity: Granularity::Row, ..ScaledCast::new(F32, E4M3FN) }.into();
    let others = [None, Some(f32s(&[2], &[0.37, 1.5]))];
    for class in [
        Class::RandomBits,
        Class::RandomFinite,
        Class::Needle { bits: "0x7fc00000".into(), at: 3 },
        Class::ScaledEdges,
        Class::SplitmixCodes,
    ] {
        let request = Request { shape: Some(&[2, 32]), others: &others, ..request(&class, F32, &op) };
        let first = generate(&request).unwrap();
        assert_eq!(first, generate(&request).unwrap());
        assert_ne!(first, generate(&Request { seed: 2, ..request }).unwrap(), "{class:?}");
    }
}

#[test]
fn splitmix_codes_begin_as_in_the_recordings() {
    let op = Cast::new(F32, E4M3FN).into();
    for (dtype, first) in [
        (F16, [0x2df4, 0x4749, 0xb0c1, 0xb664]),
        (BF16, [0x3df4, 0x40c9, 0xbe41, 0xbee4]),
        (E4M3FN, [0x1c, 0x49, 0xa1, 0xac]),
        (F32, [0x3dd5_91f4, 0x40a9_7349, 0xbe5a_f8c1, 0xbeb9_8a64]),
    ] {
        let codes =
            generate(&Request { shape: Some(&[4]), seed: 11, ..request(&Class::SplitmixCodes, dtype, &op) });
        assert!(codes.unwrap().codes().eq(first), "{dtype}");
    }
}

#[test]
fn random_finite_values_are_finite_and_moderate() {
    let op = Cast::new(F32, E4M3FN).into();
    for format in ALL {
        let x =
            generate(&Request { shape: Some(&[999]), ..request(&Class::RandomFinite, format, &op) }).unwrap();
        for value in x.codes().map(|code| format.to_f64(code)) {
            assert!(
                value.abs() < 512.0 && (value == 0.0 || value.abs() > 2f64.powi(-17)),
                "{format} {value}"
            );
        }
        let negative = x.codes().filter(|&code| format.decode(code).is_negative()).count();
        assert_eq!(negative > 300, format.signed, "{format} {negative}");
    }
}

#[test]
fn a_needle_is_alone_in_its_haystack() {
    let op = Cast::new(F32, E4M3FN).into();
    let class = Class::Needle { bits: "0xff800001".into(), at: 77 };
    let needle = Request { shape: Some(&[10, 10]), ..request(&class, F32, &op) };
    let x = generate(&needle).unwrap();
    let hay = generate(&Request { class: &Class::RandomFinite, ..needle }).unwrap();
    assert_eq!(x.code(77), 0xff80_0001);
    assert!((0..100).all(|i| (x.code(i) == hay.code(i)) == (i != 77)));
}

#[test]
fn words_and_bits_take_the_shape_of_the_first_input() {
    let op = Cast::new(F32, E4M3FN).into();
    let others = [Some(f32s(&[2, 3], &[0.0; 6]))];
    let words =
        generate(&Request { others: &others, ..request(&Class::RoundingWords, DType::U32, &op) }).unwrap();
    assert_eq!(words.shape(), [2, 3]);
    assert_eq!([words.code(0), words.code(1), words.code(3)], [0, u32::MAX.into(), 0]);
    let bits = generate(&Request { others: &others, ..request(&Class::RandomBits, E2M1, &op) }).unwrap();
    assert!(bits.shape() == [2, 3] && bits.codes().all(|code| code < 16));
}

#[test]
fn what_cannot_be_made_is_an_error_that_says_what_to_do() {
    let cast = Op::from(Cast::new(F32, E4M3FN));
    let classify = Op::from(Classify { format: E4M3FN });
    let rows = Op::from(ScaledCast { granularity: Granularity::Row, ..ScaledCast::new(F32, E4M3FN) });
    let no_blocks =
        Op::from(ScaledCast { granularity: Granularity::Block(0), ..ScaledCast::new(F32, E4M3FN) });
    let needle = |bits: &str, at| Class::Needle { bits: bits.into(), at };
    let scale = [None, Some(f32s(&[1], &[0.5]))];
    let shape: Option<&[usize]> = Some(&[2, 2]);
    let huge: Option<&[usize]> = Some(&[usize::MAX, 2]);
    let part = |part, parts| Class::AllCodes { part, parts };
    refuses(request(&Class::Midpoints, E4M3FN, &classify), "`classify` has none; use `edges`");
    refuses(request(&Class::DoubleRounding, F16, &classify), "class `double_rounding` needs a format");
    refuses(
        request(&Class::DoubleRounding, F32, &Cast::new(F32, F16).into()),
        "has no values from f32 to f16",
    );
    refuses(request(&Class::Nans, E2M1, &cast), "class `nans` has no values from e2m1");
    refuses(request(&Class::Subnormals, E8M0, &classify), "has no values from e8m0");
    refuses(request(&Class::Edges, DType::U32, &cast), "u32 is not a number format");
    refuses(request(&Class::RandomFinite, F32, &cast), "give the input a `shape`");
    refuses(request(&Class::RandomBits, F32, &cast), "shape of the first input");
    refuses(request(&Class::RoundingWords, F32, &cast), "use `dtype: u32`");
    refuses(request(&Class::SplitmixCodes, E5M2, &cast), "f16, bf16, e4m3fn and f32, not e5m2");
    refuses(request(&part(0, 1), F32, &cast), "use `parts: 16` or more");
    refuses(request(&part(0, 1), F64, &cast), "use `parts: 68719476736` or more");
    refuses(request(&part(3, 3), F16, &cast), "parts count from 0");
    refuses(request(&part(0, 0), F16, &cast), "parts count from 0");
    refuses(request(&part(0, 257), E4M3FN, &cast), "more than the 256 codes");
    refuses(Request { shape, ..request(&needle("0x0", 0), F32, &cast) }, "1 hex digits, f32 has 8");
    refuses(Request { shape, ..request(&needle("0x+1234567", 0), F32, &cast) }, "is not a bit pattern");
    refuses(Request { shape, ..request(&needle("0x10", 0), E2M1, &cast) }, "outside the 4 of e2m1");
    refuses(Request { shape, ..request(&needle("0x00000000", 4), F32, &cast) }, "holds 4 elements");
    refuses(Request { shape: huge, ..request(&Class::RandomBits, F32, &cast) }, "largest tensor");
    refuses(Request { shape: huge, ..request(&Class::Edges, F32, &cast) }, "largest tensor");
    refuses(Request { lanes: 3, ..request(&Class::Edges, F32, &cast) }, "lanes must be a power of two");
    refuses(Request { lanes: 0, ..request(&Class::Edges, F32, &cast) }, "lanes must be a power of two");
    refuses(Request { lanes: 1 << 63, ..request(&Class::Edges, F32, &cast) }, "use fewer lanes");
    refuses(Request { lanes: 4, shape, ..request(&Class::RandomBits, F32, &cast) }, "leave out `lanes`");
    refuses(request(&Class::ScaledEdges, F32, &cast), "`cast` does not; use `edges`");
    refuses(request(&Class::ScaledEdges, F32, &rows), "needs a `shape` [M, K]");
    refuses(Request { shape, ..request(&Class::ScaledEdges, F32, &rows) }, "needs the second input");
    refuses(Request { shape, others: &scale, ..request(&Class::ScaledEdges, F32, &rows) }, "has shape [1]");
    refuses(
        Request { shape, others: &scale, ..request(&Class::ScaledEdges, F32, &no_blocks) },
        "a block has",
    );
    refuses(
        Request { shape, others: &scale, ..request(&Class::ScaledEdges, F16, &rows) },
        "is f16, expected f32",
    );
}

/// The blocks that `mx_blocks` makes for a format.
fn mx_blocks(from: Format, format: MxFormat, blocks: usize) -> Vec<Vec<u64>> {
    let op = MxQuantize::new(from, format).into();
    let shape = [blocks, format.layout().block];
    let codes: Vec<_> = generate(&Request { shape: Some(&shape), ..request(&Class::MxBlocks, from, &op) })
        .unwrap()
        .codes()
        .collect();
    codes.chunks(shape[1]).map(<[u64]>::to_vec).collect()
}

#[test]
fn mx_blocks_hold_thresholds_midpoints_and_needles() {
    for format in MxFormat::ALL {
        let element = format.layout().element;
        let max = element.to_f64(element.max_finite());
        let blocks = mx_blocks(F32, format, 4000);
        let number = |code: u64| f64::from(f32::from_bits(code as u32));
        let largest = |block: &[u64]| block.iter().map(|&code| number(code).abs()).fold(0.0, f64::max);
        // A value by a power of two.
        let times = |block: &[u64], value: f64| {
            let ratio = largest(block) / value;
            ratio > 0.0 && ratio.is_finite() && ratio.log2().fract() == 0.0
        };
        if !format.layout().tensor_scale {
            assert!(blocks.iter().filter(|block| times(block, max)).count() > 100, "{format:?}");
            let above = max * (1.0 + 2f64.powi(-23) / (max / 2f64.powi(element.max_exponent())));
            assert!(blocks.iter().filter(|block| times(block, above)).count() > 10, "{format:?}");
        }
        let special = |at: usize| {
            let is_special = |code: u64| code & 0x7f80_0000 == 0x7f80_0000;
            blocks.iter().filter(move |block| {
                is_special(block[at]) && block.iter().filter(|&&code| is_special(code)).count() == 1
            })
        };
        let last = format.layout().block - 1;
        assert!(special(0).count() > 10 && special(last).count() > 10, "{format:?}");
        let all_subnormal = |block: &&Vec<u64>| block.iter().all(|code| code & 0x7f80_0000 == 0);
        assert!(blocks.iter().filter(all_subnormal).count() > 100, "{format:?}");
    }
}

#[test]
fn mx_blocks_of_narrow_sources_have_scales_of_all_kinds() {
    for from in [F16, BF16] {
        let blocks = mx_blocks(from, MxFormat::Mxfp8E4m3, 2000);
        let exponents: HashSet<_> = blocks.iter().flatten().map(|code| code >> from.fraction_bits).collect();
        assert!(exponents.len() as u64 > from.code_count() as u64 >> from.fraction_bits >> 1, "{from}");
    }
}

#[test]
fn mx_blocks_are_for_the_elements_of_their_operation() {
    let (cast, quantize) = (Cast::new(F32, E4M3FN).into(), MxQuantize::new(F16, MxFormat::Mxfp4).into());
    refuses(request(&Class::MxBlocks, F32, &cast), "is for `mx_quantize`, not `cast`");
    refuses(request(&Class::MxBlocks, F32, &quantize), "is for `x`, which is f16");
    refuses(request(&Class::MxBlocks, F16, &quantize), "give the input a `shape`");
}

#[test]
fn an_offset_is_common_to_numbers_that_differ_by_less_than_2() {
    let op = Cast::new(F32, F16).into();
    for by in [0, 1, 4096, -20_000] {
        let class = Class::Offset { by };
        let numbers = generate(&Request { shape: Some(&[300]), ..request(&class, F32, &op) }).unwrap();
        let numbers: Vec<_> = numbers.codes().map(|code| F32.to_f64(code) - by as f64).collect();
        assert!(numbers.iter().all(|x| x.abs() <= 1.0), "{by}");
        let beyond = |sign: f64| numbers.iter().filter(|&&x| x * sign > 0.5).count();
        assert!(beyond(1.0) > 40 && beyond(-1.0) > 40, "{by}");
    }
    let class = Class::Offset { by: 1 << 25 };
    refuses(Request { shape: Some(&[3]), ..request(&class, F32, &op) }, "give one of at most 16777216");
}

#[test]
fn positions_differ_and_are_below_their_limit() {
    let op = Cast::new(F32, F16).into();
    for (count, below) in [(7, 7), (5, 6), (64, 1_000_000), (1, 1), (0, 0)] {
        let class = Class::Positions { below };
        let shape = [count];
        let positions =
            generate(&Request { shape: Some(&shape), ..request(&class, DType::U32, &op) }).unwrap();
        let distinct: HashSet<_> = positions.codes().collect();
        assert_eq!(distinct.len(), count);
        assert!(distinct.iter().all(|&position| position < u64::from(below)));
        // Large ones among them.
        assert!(count < 5 || distinct.iter().any(|&position| position > u64::from(below) / 2));
    }
    let class = Class::Positions { below: 3 };
    let few = Request { shape: Some(&[4]), ..request(&class, DType::U32, &op) };
    refuses(few, "has `below: 3`, and shape [4] wants 4");
    refuses(Request { dtype: F32.into(), ..few }, "makes u32, not f32");
}
