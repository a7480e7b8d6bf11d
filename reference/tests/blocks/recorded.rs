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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/ggml/blocks.safetensors");
        let file = std::fs::read(path).unwrap();
        let file = SafeTensors::deserialize(&file).unwrap();
        let bytes = |part| file.tensor(&format!("{format}.{part}")).unwrap().data().to_vec();
        let single = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        Self {
            source: bytes("source").chunks_exact(4).map(single).collect(),
            blocks: bytes("blocks"),
            values: bytes("values"),
        }
    }
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
