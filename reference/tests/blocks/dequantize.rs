//! What blocks decode to.

use crate::noise::noise;
use crate::recorded::row;
use plumbline_reference::block::{BlockFormat, pack_scales, pack_scales_and_mins};
use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, F16, F32, Format};
use plumbline_reference::ops::{BlockConversion, Dequantize, Op, SignatureError};
use plumbline_reference::{DType, Path, Tensor, TensorType};

fn dequantize(from: BlockFormat, to: Format, conversion: BlockConversion, bytes: &[u8]) -> Vec<u64> {
    let op: Op = Dequantize { from, to, conversion }.into();
    op.evaluate(&[row(from, bytes)], Path::Definition).unwrap()[0].codes().collect()
}

fn singles(from: BlockFormat, bytes: &[u8]) -> Vec<f32> {
    let codes = dequantize(from, F32, BlockConversion::Direct, bytes);
    codes.into_iter().map(|code| f32::from_bits(code as u32)).collect()
}

/// A block of these fields, the others 0.
fn block(format: BlockFormat, fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; format.bytes()];
    for (name, value) in fields {
        let (start, field) = format.layout().field(name);
        assert!(value.len() <= field.bytes());
        bytes[start..start + value.len()].copy_from_slice(value);
    }
    bytes
}

const ONE: &[u8] = &[0x00, 0x3c];

#[test]
fn layouts_are_those_of_the_table() {
    let sizes = BlockFormat::ALL.map(|format| (format.name(), format.bytes(), format.values()));
    let expected = [
        ("q4_0", 18, 32),
        ("q4_1", 20, 32),
        ("q5_0", 22, 32),
        ("q5_1", 24, 32),
        ("q8_0", 34, 32),
        ("q8_1", 36, 32),
        ("q2_K", 84, 256),
        ("q3_K", 110, 256),
        ("q4_K", 144, 256),
        ("q5_K", 176, 256),
        ("q6_K", 210, 256),
        ("q8_K", 292, 256),
        ("iq4_nl", 18, 32),
        ("iq4_xs", 136, 256),
        ("tq1_0", 54, 256),
        ("tq2_0", 66, 256),
        ("mxfp4", 17, 32),
    ];
    assert_eq!(sizes, expected);
}

/// A scale of 63 in 6 bits is 31, not 7 of its low four.
#[test]
fn scales_of_q3_k_have_six_bits() {
    let q3 = [0b11; 64];
    let bytes = block(
        BlockFormat::Q3K,
        &[("hmask", &[0xff; 32]), ("qs", &q3.map(|q: u8| q * 0x55)), ("scales", &[0xff; 12]), ("d", ONE)],
    );
    assert_eq!(singles(BlockFormat::Q3K, &bytes), [93.0; 256]);
}

/// Every code at every place, among others.
#[test]
fn packed_scales_are_read_again() {
    for code in 0..64 {
        let numbers: [u8; 16] = std::array::from_fn(|j| (code + 11 * j as u8) % 64);
        // A seventh and eighth bit are left out.
        let high = numbers.map(|number| number | 0xc0);
        let read =
            |format: BlockFormat, scales: [u8; 12]| format.unpack(&block(format, &[("scales", &scales)]));
        assert_eq!(
            read(BlockFormat::Q3K, pack_scales(&high)).scales,
            numbers.map(|number| i16::from(number) - 32)
        );
        let (scales, mins) = (numbers.first_chunk().unwrap(), numbers.last_chunk().unwrap());
        for format in [BlockFormat::Q4K, BlockFormat::Q5K] {
            let packed = pack_scales_and_mins(scales, mins);
            let with_more = pack_scales_and_mins(high.first_chunk().unwrap(), high.last_chunk().unwrap());
            assert_eq!(packed, with_more);
            let unpacked = read(format, packed);
            assert_eq!(unpacked.scales[..8], scales.map(i16::from));
            assert_eq!(unpacked.mins[..8], mins.map(i16::from));
        }
    }
    // Scale 4 is 63: its low nibble in byte 8, its high bits in byte 0.
    assert_eq!(
        pack_scales_and_mins(&[0, 0, 0, 0, 63, 0, 0, 0], &[0; 8])[..9],
        [0xc0, 0, 0, 0, 0, 0, 0, 0, 0x0f]
    );
    assert_eq!(
        pack_scales(&std::array::from_fn(|j| if j == 9 { 63 } else { 0 }))[..10],
        [0, 0xf0, 0, 0, 0, 0, 0, 0, 0, 0x30]
    );
}

/// 2^127 and no NaN: 1 times it is finite, 2 times it beyond f32.
#[test]
fn an_mxfp4_scale_of_255_is_no_nan() {
    let mut bytes = [0x12; 17];
    bytes[0] = 255;
    let values = singles(BlockFormat::Mxfp4, &bytes);
    assert_eq!(values[..16], [f32::INFINITY; 16]);
    assert_eq!(values[16..], [2f32.powi(127); 16]);
    // The smallest: 2^-128 times 1, a subnormal number.
    bytes[0] = 0;
    assert_eq!(singles(BlockFormat::Mxfp4, &bytes)[16], f32::from_bits(0x0020_0000));
}

#[test]
fn infinite_and_nan_factors() {
    let nan = 0x7fff_ffff;
    let q8 = |d: [u8; 2]| {
        let bytes = block(BlockFormat::Q8_0, &[("d", &d), ("qs", &[1, 0xff, 0])]);
        dequantize(BlockFormat::Q8_0, F32, BlockConversion::Direct, &bytes)
    };
    assert_eq!(q8([0x00, 0x7c])[..3], [0x7f80_0000, 0xff80_0000, nan]);
    assert_eq!(q8([0x01, 0xfc])[..3], [nan; 3]);
    // Zeros have the sign of the product.
    assert_eq!(q8([0x00, 0x80])[..3], [0x8000_0000, 0, 0x8000_0000]);
    assert_eq!(q8([0x00, 0xbc])[..3], [0xbf80_0000, 0x3f80_0000, 0x8000_0000]);
}

/// 3 * 1025/1024 is midway between two f16, the odd one below. A little less rounds down;
/// rounded to f32 first the little is lost, and the tie goes up.
#[test]
fn rounding_to_f16_once_or_twice() {
    let bytes = block(BlockFormat::Q4_1, &[("d", &[0x01, 0x3c]), ("m", &[0x01, 0x80]), ("qs", &[0x33; 16])]);
    let first = |conversion| dequantize(BlockFormat::Q4_1, F16, conversion, &bytes)[0];
    assert_eq!(first(BlockConversion::Direct), 0x4201);
    assert_eq!(first(BlockConversion::ViaF32), 0x4202);
}

#[test]
fn all_paths_agree_on_random_bytes() {
    for from in BlockFormat::ALL {
        for to in [F32, F16, BF16] {
            for conversion in BlockConversion::ALL {
                let op: Op = Dequantize { from, to, conversion }.into();
                let count = 3 * 33;
                let bytes: Vec<_> = (0..count * from.bytes() as u64).map(|i| noise(i) as u8).collect();
                let shape = [3, 33, from.bytes()];
                let blocks = Tensor::from_bytes(TensorType::new(DType::U8, shape), bytes).unwrap();
                let run = |path| op.evaluate(std::slice::from_ref(&blocks), path).unwrap().remove(0);
                let definition = run(Path::Definition);
                assert_eq!(definition.shape(), [3, 33 * from.values()]);
                for path in [Path::Parallel].into_iter().chain(Simd::all().map(Path::Simd)) {
                    assert!(run(path) == definition, "{from} to {to} on {path:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_row_of_blocks_is_refused() {
    let op: Op = Dequantize { from: BlockFormat::Q6K, to: F32, conversion: BlockConversion::Direct }.into();
    for shape in [&[2, 209][..], &[2, 211], &[210], &[0, 0]] {
        let error = op.signature(&[TensorType::new(DType::U8, shape)]).unwrap_err();
        assert!(matches!(error, SignatureError::Shape { .. }), "{shape:?}: {error}");
    }
    let error = op.signature(&[TensorType::new(DType::U8, [2, 144])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dequantize: input `blocks` has shape [2, 144], expected [.., K / 256, 210], blocks of q6_K"
    );
    let shape =
        |shape: &[usize]| op.signature(&[TensorType::new(DType::U8, shape)]).unwrap()[0].shape.clone();
    assert_eq!(shape(&[0, 210]), [0]);
    assert_eq!(shape(&[3, 2, 210]), [3, 512]);
}
