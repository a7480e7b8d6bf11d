//! Blocks that ggml wrote, and what it reads from them.

use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{BlockConversion, Dequantize, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};
use safetensors::SafeTensors;

/// The formats that were recorded.
pub(crate) fn formats() -> impl Iterator<Item = BlockFormat> {
    BlockFormat::ALL.into_iter().filter(|format| ![BlockFormat::Q8_1, BlockFormat::Q8K].contains(format))
}

pub(crate) struct Recorded {
    pub(crate) source: Vec<f32>,
    pub(crate) blocks: Vec<u8>,
    pub(crate) values: Vec<u8>,
}

impl Recorded {
    pub(crate) fn of(format: BlockFormat) -> Self {
        let file = read("blocks");
        let file = SafeTensors::deserialize(&file).unwrap();
        let bytes = |part| file.tensor(&format!("{format}.{part}")).unwrap().data().to_vec();
        Self { source: singles(&bytes("source")), blocks: bytes("blocks"), values: bytes("values") }
    }
}

/// A file of `fixtures/ggml`.
fn read(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/ggml");
    std::fs::read(format!("{folder}/{name}.safetensors")).unwrap()
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    let (singles, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    singles.iter().copied().map(f32::from_le_bytes).collect()
}

/// Blocks as a tensor of one row.
pub(crate) fn row(format: BlockFormat, bytes: &[u8]) -> Tensor {
    let shape = [bytes.len() / format.bytes(), format.bytes()];
    Tensor::from_bytes(TensorType::new(DType::U8, shape), bytes.to_vec()).unwrap()
}

#[test]
fn every_value_is_what_ggml_reads() {
    for format in formats() {
        let recorded = Recorded::of(format);
        assert_eq!(recorded.source.len(), 8192, "{format}");
        let op: Op = Dequantize { from: format, to: F32, conversion: BlockConversion::Direct }.into();
        let blocks = row(format, &recorded.blocks);
        for path in [Path::Definition, Path::Parallel, Path::fastest()] {
            let values = op.evaluate(std::slice::from_ref(&blocks), path).unwrap();
            assert!(values[0].bytes() == recorded.values, "{format} on {path:?}");
        }
    }
}

/// What the NumPy code of ggml's `gguf` package makes of random bytes, with every code of every
/// scale and factors at the ends of f16, and of numbers.
#[test]
fn the_gguf_package_agrees() {
    let file = read("gguf_package");
    let file = SafeTensors::deserialize(&file).unwrap();
    let bytes = |name: &str| file.tensor(name).map(|tensor| tensor.data().to_vec());
    let source = singles(&bytes("source").unwrap());
    let mut quantized = 0;
    for format in formats() {
        let blocks = row(format, &bytes(&format!("{format}.blocks")).unwrap());
        let op: Op = Dequantize { from: format, to: F32, conversion: BlockConversion::Direct }.into();
        for path in [Path::Definition, Path::Parallel, Path::fastest()] {
            let values = op.evaluate(std::slice::from_ref(&blocks), path).unwrap();
            assert!(values[0].bytes() == bytes(&format!("{format}.values")).unwrap(), "{format} on {path:?}");
        }
        let Ok(expected) = bytes(&format!("{format}.quantized")) else { continue };
        let expected = expected.chunks_exact(format.bytes());
        for (i, (values, block)) in source.chunks_exact(format.values()).zip(expected).enumerate() {
            assert_eq!(format.quantize(values), block, "block {i} of {format}");
        }
        quantized += 1;
    }
    assert_eq!(quantized, 8);
}

/// Largest magnitudes just below a power of two that have its exponent in MXFP4, because the
/// logarithm rounds up to it: the package's recording holds both kinds.
#[test]
fn mxfp4_exponents_that_carry_are_recorded() {
    let file = read("gguf_package");
    let file = SafeTensors::deserialize(&file).unwrap();
    let bytes = |name: &str| file.tensor(name).unwrap().data().to_vec();
    let (source, blocks) = (singles(&bytes("source")), bytes("mxfp4.quantized"));
    let mut carry = Vec::new();
    for (values, block) in source.chunks_exact(32).zip(blocks.chunks_exact(17)) {
        let amax = values.iter().fold(0f32, |max, x| max.max(x.abs()));
        let exponent = (amax.to_bits() >> 23) as i32 - 127;
        if amax.next_up().to_bits() << 9 == 0 {
            carry.push((exponent + 1, i32::from(block[0]) - 125 == exponent + 1));
        }
    }
    let expected =
        [(-4, true), (-3, true), (-2, true), (-1, false), (0, false), (1, false), (2, false), (3, true)];
    assert_eq!(carry, expected);
}
