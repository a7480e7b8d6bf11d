//! Blocks that ggml wrote, written again, and what quantizers promise.

use crate::recorded::{Recorded, formats};

#[test]
fn every_block_is_what_ggml_writes() {
    for format in formats() {
        let recorded = Recorded::of(format);
        let values = recorded.source.chunks_exact(format.values());
        let blocks = recorded.blocks.chunks_exact(format.bytes());
        assert_eq!(values.len(), blocks.len(), "{format}");
        for (i, (values, block)) in values.zip(blocks).enumerate() {
            assert_eq!(format.quantize(values), block, "block {i} of {format}");
        }
    }
}
