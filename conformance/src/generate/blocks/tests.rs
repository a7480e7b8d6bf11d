use super::super::{Request, generate};
use crate::case::Class;
use plumbline_reference::block::{BlockFormat, Kind, Unpacked};
use plumbline_reference::ops::{BlockConversion, Dequantize, Op};
use plumbline_reference::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

fn try_make(class: &Class, format: BlockFormat, blocks: usize) -> Result<Tensor, String> {
    let op: Op = Dequantize {
        from: format,
        to: plumbline_reference::format::F32,
        conversion: BlockConversion::Direct,
    }
    .into();
    let request = Request {
        class,
        dtype: DType::U8,
        shape: Some(&[blocks, format.bytes()]),
        blocks: Some(format),
        lanes: 1,
        seed: 3,
        op: &op,
        input: 0,
        others: &[],
    };
    generate(&request).map_err(|error| error.to_string())
}

fn make(class: &Class, format: BlockFormat, blocks: usize) -> Vec<Unpacked> {
    let tensor = try_make(class, format, blocks).unwrap();
    tensor.bytes().chunks_exact(format.bytes()).map(|block| format.unpack(block)).collect()
}

/// Groups with a scale, and the codes that a scale has.
fn scales(format: BlockFormat) -> (usize, usize) {
    match format {
        BlockFormat::Q2K => (16, 16),
        BlockFormat::Q3K => (16, 64),
        BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Iq4Xs => (8, 64),
        BlockFormat::Q6K => (16, 256),
        _ => (1, 1),
    }
}

#[test]
fn blocks_differ_in_factors_and_take_every_scale() {
    for format in BlockFormat::ALL {
        let blocks = make(&Class::Blocks, format, 256);
        for block in &blocks {
            assert!(block.d != 0.0 && block.d.abs() < 130.0, "{format}: {}", block.d);
            assert!(block.m.is_none_or(|m| m != 0.0 && m.abs() < 0.125), "{format}");
        }
        let factors = blocks.iter().flat_map(|block| [Some(block.d), block.m]).flatten();
        let distinct = factors.map(f64::to_bits).collect::<BTreeSet<_>>().len();
        let expected = match format {
            BlockFormat::Mxfp4 => 15,
            _ => 256 * (1 + usize::from(format.has_mins())),
        };
        assert_eq!(distinct, expected, "{format}");
        let (groups, codes) = scales(format);
        let all: BTreeSet<_> = blocks.iter().flat_map(|block| block.scales[..groups].to_vec()).collect();
        assert_eq!(all.len(), codes, "{format}");
        let is_distinct = |block: &Unpacked| block.scales[..groups].windows(2).all(|two| two[0] != two[1]);
        assert!(blocks.iter().all(is_distinct), "{format}");
        if [BlockFormat::Q2K, BlockFormat::Q4K, BlockFormat::Q5K].contains(&format) {
            let mins: BTreeSet<_> = blocks.iter().flat_map(|block| block.mins[..groups].to_vec()).collect();
            assert_eq!(mins.len(), codes, "{format}");
        }
        let quants: BTreeSet<_> = blocks.iter().flat_map(|block| block.quants[..32].to_vec()).collect();
        let least = blocks.iter().flat_map(|block| block.quants).min();
        assert!(quants.len() >= 3 && least <= Some(0), "{format}: {quants:?}");
    }
}

#[test]
fn stored_sums_are_wrong() {
    for class in [Class::Blocks, Class::BlockEdges, Class::BlockIntegers] {
        let q8_1 = try_make(&class, BlockFormat::Q8_1, 32).unwrap();
        assert!(q8_1.bytes().chunks_exact(36).all(|block| block[2] == 0 && block[3] & 0x7f == 0x7c));
        let q8_k = try_make(&class, BlockFormat::Q8K, 32).unwrap();
        for block in q8_k.bytes().chunks_exact(292) {
            let sums = block[260..].chunks_exact(2).map(|sum| i16::from_le_bytes([sum[0], sum[1]]));
            let quants = block[4..260].chunks_exact(16);
            let right = quants.map(|quants| quants.iter().map(|&q| i16::from(q as i8)).sum::<i16>());
            assert!(sums.zip(right).all(|(given, right)| given != right));
        }
    }
}

#[test]
fn every_end_of_every_factor_is_there() {
    for format in BlockFormat::ALL {
        let blocks = try_make(&Class::BlockEdges, format, 1024).unwrap();
        let layout = format.layout();
        let fields: Vec<_> = layout.offsets().filter(|(_, field)| !super::is_sum(field)).collect();
        let factors =
            fields.iter().filter(|(_, field)| [Kind::F16, Kind::F32, Kind::E8M0].contains(&field.kind));
        let factors: Vec<_> = factors.collect();
        let code = |block: &[u8], (first, field): &(usize, super::Field)| {
            let bytes = &block[*first..first + field.bytes()];
            bytes.iter().rev().fold(0u64, |code, &byte| code << 8 | u64::from(byte))
        };
        for factor in &factors {
            let all: BTreeSet<_> =
                blocks.bytes().chunks_exact(layout.bytes).map(|block| code(block, factor)).collect();
            for edge in super::extremes(factor.1.kind) {
                assert!(all.contains(edge), "{format} {}: {edge:#x}", factor.1.name);
            }
            assert!(all.len() > super::extremes(factor.1.kind).len(), "{format}: moderate ones too");
        }
        if let [first, second] = factors[..] {
            let pairs: BTreeSet<_> = blocks
                .bytes()
                .chunks_exact(layout.bytes)
                .skip(1)
                .step_by(2)
                .map(|block| (code(block, first), code(block, second)))
                .collect();
            assert_eq!(pairs.len(), 256, "{format}");
        }
    }
}

#[test]
fn integers_are_small_and_their_sums_exact() {
    for format in BlockFormat::ALL {
        let blocks = make(&Class::BlockIntegers, format, 64);
        let values: Vec<_> =
            blocks.iter().flat_map(|block| (0..format.values()).map(|j| block.value(j))).collect();
        let most = values.iter().map(|x| x.abs()).fold(0.0, f64::max);
        assert!(values.iter().all(|x| x.fract() == 0.0), "{format}");
        // With activations up to 14 and K of 4096.
        assert!(most >= 2.0 && most * 14.0 * 4096.0 <= 2f64.powi(24), "{format}: {most}");
        let factors: BTreeSet<_> = blocks.iter().map(|block| block.d as i64).collect();
        assert!(factors.len() == if format == BlockFormat::Mxfp4 { 2 } else { 4 }, "{format}: {factors:?}");
    }
}

#[test]
fn alike_blocks_hold_the_fields_that_are_given() {
    let class = |fields: &[(&str, &[&str])]| {
        let list = |elements: &[&str]| elements.iter().map(|&element| element.to_owned()).collect();
        Class::BlockFields(
            fields
                .iter()
                .map(|(name, elements)| ((*name).to_owned(), list(elements)))
                .collect::<BTreeMap<_, _>>(),
        )
    };
    let ones = class(&[("d", &["0x3c00"]), ("qs", &["0x01", "0xff"])]);
    for block in make(&ones, BlockFormat::Q8_1, 3) {
        assert_eq!((block.d, &block.quants[..4]), (1.0, &[1, -1, 1, -1][..]));
    }
    let refused = |fields: &[(&str, &[&str])]| try_make(&class(fields), BlockFormat::Q8_1, 1).unwrap_err();
    assert!(refused(&[("dmin", &["0x3c00"])]).contains("its fields are d, s, qs"));
    assert!(refused(&[("d", &["0x3c00", "0x3c00"])]).contains("has 2 elements of `d`, a field of 1"));
    assert!(refused(&[("d", &[])]).contains("has 0 elements"));
    assert!(refused(&[("qs", &["0x100"])]).contains("has `qs`: `0x100` has 3 hex digits"));
}

#[test]
fn what_is_no_block_is_refused() {
    let op: Op = Dequantize {
        from: BlockFormat::Q4K,
        to: plumbline_reference::format::F32,
        conversion: BlockConversion::Direct,
    }
    .into();
    let request = Request {
        class: &Class::Blocks,
        dtype: DType::U8,
        shape: Some(&[2, 144]),
        blocks: None,
        lanes: 1,
        seed: 0,
        op: &op,
        input: 0,
        others: &[],
    };
    let refused = |request: Request<'_>, why: &str| {
        let error = generate(&request).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(request, "give the input `blocks`");
    let blocks = Some(BlockFormat::Q4K);
    refused(Request { blocks, shape: Some(&[2, 143]), ..request }, "blocks of 144 bytes");
    refused(Request { blocks, lanes: 2, ..request }, "leave out `lanes`");
    refused(Request { blocks, shape: None, ..request }, "give the input a `shape`");
}
