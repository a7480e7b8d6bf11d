//! Wrong decoding and classification.

use super::{Fault, bits, elementwise};
use plumbline_reference::format::{BF16, E4M3FN, E4M3FNUZ, E5M2, E8M0, F32, Format, Policy, Specials};
use plumbline_reference::ops::{Classify, Decode};

/// Decodes as another format that shares the bits of `from`.
fn misread(
    id: &'static str,
    about: &'static str,
    (from, read_as): (Format, Format),
    to: Format,
    examples: &[(u64, u64, u64)],
) -> Fault {
    let decode = move |code| to.encode(read_as.decode(code), &Policy::IEEE, 0);
    elementwise(id, about, Decode { from, to }, decode, examples)
}

/// The same fields, every code a finite number.
const fn all_finite(format: Format) -> Format {
    Format { specials: Specials::None, ..format }
}

pub(super) fn faults() -> Vec<Fault> {
    vec![
        misread(
            "e4m3fn-nan-becomes-480",
            "NaN decodes as a number",
            (E4M3FN, all_finite(E4M3FN)),
            BF16,
            &[(0x7f, 0x7fff, 0x43f0), (0xff, 0x7fff, 0xc3f0)],
        )
        .reported("intel/intel-xpu-backend-for-triton#7771"),
        misread(
            "e5m2-infinity-becomes-finite",
            "infinity and NaN decode as numbers",
            (E5M2, all_finite(E5M2)),
            BF16,
            &[(0x7c, 0x7f80, 0x4780), (0xfc, 0xff80, 0xc780), (0x7e, 0x7fff, 0x47c0)],
        )
        .reported("intel/intel-xpu-backend-for-triton#7771"),
        misread(
            "fnuz-nan-decodes-to-zero",
            "the only NaN decodes as -0",
            (E4M3FNUZ, all_finite(E4M3FNUZ)),
            F32,
            &[(0x80, 0x7fff_ffff, 0x8000_0000)],
        )
        .reported("triton-lang/triton#10745"),
        elementwise(
            "subnormals-fixed-exponent",
            "subnormals decode with a leading one, as normal numbers",
            Decode { from: E4M3FN, to: F32 },
            |code| {
                let without_subnormals = Format { subnormals: false, ..E4M3FN };
                let format = if code & 0x7f == 0 { E4M3FN } else { without_subnormals };
                F32.encode(format.decode(code), &Policy::IEEE, 0)
            },
            &[(0x01, bits(0.001953125), bits(0.0087890625)), (0x07, bits(0.013671875), bits(0.0146484375))],
        )
        .reported("1bit-MONSTER/1bit-MONSTER#300"),
        elementwise(
            "e8m0-ends",
            "the code is shifted into the exponent of an f32: 0 at one end, infinity at the other",
            Decode { from: E8M0, to: F32 },
            |code| code << 23,
            &[(0x00, 0x0040_0000, 0), (0xff, 0x7fff_ffff, 0x7f80_0000)],
        )
        .reported("NVIDIA/TransformerEngine#3262"),
        elementwise(
            "is-nan-incomplete",
            "one of the three NaN payloads is known",
            Classify { format: E5M2 },
            |code| {
                let class = match (code >> 2 & 0x1f, code & 3) {
                    (0, 0) => 4,
                    (0, _) => 8,
                    (0x1f, 0) => 2,
                    (0x1f, 2) => 1,
                    _ => 16,
                };
                class | code & 0x80
            },
            &[
                (0x7d, 1, 16),
                (0x7e, 1, 1),
                (0x7f, 1, 16),
                (0xfd, 129, 144),
                (0xfe, 129, 129),
                (0xff, 129, 144),
            ],
        )
        .reported("EricLBuehler/float8#8"),
        elementwise(
            "largest-counts-as-infinite",
            "448 classifies as infinity",
            Classify { format: E4M3FN },
            |code| {
                let class = match code & 0x7f {
                    0 => 4,
                    0x7f => 1,
                    0x7e => 2,
                    magnitude if magnitude < 8 => 8,
                    _ => 16,
                };
                class | code & 0x80
            },
            &[(0x7e, 16, 2), (0xfe, 144, 130), (0x7d, 16, 16)],
        )
        .reported("EricLBuehler/float8#8"),
    ]
}
