//! Microscaling: blocks of narrow floats with one narrow scale.
//!
//! Of a row of K elements, each run of 16 or 32 is a block. Codes and scales are
//! tensors of their own: codes `[..., K]`, scales `[..., K / block]`.
//!
//! Sources: OCP Microscaling Formats (MX) Specification 1.0 (5.4.1 E8M0,
//! 6.3 conversion) for those with a power of two as scale; NVIDIA's PTX
//! ISA and cuDNN's block scaling for NVFP4.

use crate::format::{E2M1, E2M3, E3M2, E4M3FN, E5M2, E8M0, Format, Policy, Rounder, Rounding, UE4M3, Value};
use crate::{DType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A microscaling format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MxFormat {
    /// 32 x E4M3, scale E8M0.
    Mxfp8E4m3,
    /// 32 x E5M2, scale E8M0.
    Mxfp8E5m2,
    /// 32 x E2M3, scale E8M0.
    Mxfp6E2m3,
    /// 32 x E3M2, scale E8M0.
    Mxfp6E3m2,
    /// 32 x E2M1, scale E8M0.
    Mxfp4,
    /// 16 x E2M1, scale UE4M3, and one f32 scale for the tensor.
    Nvfp4,
}

/// What a block is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Format of the elements.
    pub element: Format,
    /// Format of the scale.
    pub scale: Format,
    /// Elements of a block.
    pub block: usize,
    /// Whether the tensor has an f32 scale too.
    pub tensor_scale: bool,
}

impl MxFormat {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Mxfp8E4m3, Self::Mxfp8E5m2, Self::Mxfp6E2m3, Self::Mxfp6E3m2, Self::Mxfp4, Self::Nvfp4];

    /// Its blocks.
    #[must_use]
    pub const fn layout(self) -> Layout {
        const fn mx(element: Format) -> Layout {
            Layout { element, scale: E8M0, block: 32, tensor_scale: false }
        }
        match self {
            Self::Mxfp8E4m3 => mx(E4M3FN),
            Self::Mxfp8E5m2 => mx(E5M2),
            Self::Mxfp6E2m3 => mx(E2M3),
            Self::Mxfp6E3m2 => mx(E3M2),
            Self::Mxfp4 => mx(E2M1),
            Self::Nvfp4 => Layout { element: E2M1, scale: UE4M3, block: 16, tensor_scale: true },
        }
    }
}

impl Layout {
    /// Bits of a block as it is usually stored: those of its elements' codes, packed, and a byte
    /// of scale.
    #[must_use]
    pub const fn bits(&self) -> usize {
        self.block * self.element.code_bits() as usize + self.scale.storage_bits as usize
    }

    /// Whether two codes fit into a byte.
    #[must_use]
    pub const fn packs(&self) -> bool {
        self.element.code_bits() == 4
    }
}

const _: () = {
    assert!(MxFormat::Mxfp8E4m3.layout().bits() == 264 && MxFormat::Mxfp8E5m2.layout().bits() == 264);
    assert!(MxFormat::Mxfp6E2m3.layout().bits() == 200 && MxFormat::Mxfp6E3m2.layout().bits() == 200);
    assert!(MxFormat::Mxfp4.layout().bits() == 136 && MxFormat::Nvfp4.layout().bits() == 72);
    assert!(MxFormat::Mxfp4.layout().packs() && MxFormat::Nvfp4.layout().packs());
};

/// Two codes in a byte: that of the even index in the low nibble, as PyTorch's
/// `float4_e2m1fn_x2` and NVIDIA's `e2m1x2` have them.
#[must_use]
pub const fn packed(even: u64, odd: u64) -> u64 {
    even | odd << 4
}

/// The element type of codes, packed or not.
#[must_use]
pub const fn dtype(element: Format, packed: bool) -> DType {
    if packed { DType::U8 } else { DType::Float(element) }
}

/// Code `i` of a tensor of codes.
#[must_use]
#[inline]
pub fn code(codes: &Tensor, packed: bool, i: usize) -> u64 {
    if packed { codes.code(i / 2) >> (4 * (i % 2)) & 0xf } else { codes.code(i) }
}

/// How the exponent of an E8M0 scale follows from a block's largest magnitude `a`, with `max` the
/// element format's largest value, `emax = floor(log2(max))` and `f` its fraction bits. A finite
/// `a` never needs an exponent above 127; one below -127 becomes -127.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRule {
    /// `floor(log2(a)) - emax`, as OCP MX 1.0, 6.3, says. Elements above `max` times the scale
    /// saturate.
    #[default]
    Floor,
    /// The least `e` with `a <= max * 2^e`, exactly: no finite element saturates. cuDNN's
    /// `quantize_round_up(amax / vmax)` without the division's own rounding.
    Ceil,
    /// `floor(log2(r)) - emax` with `r` the `a` rounded to nearest even at `f` fraction bits: the
    /// exponent of `floor`, and one more from `(2 - 2^-(f+1)) * 2^floor(log2(a))` on. torchao's
    /// EVEN and vLLM's MXFP4, which add half an ulp to the bits of `a` (nearest away): the
    /// one tie that carries into the next binade has an odd last bit, so it is the same.
    Even,
    /// `q = a * (1 / max)`, reciprocal and product each rounded to f32, then the least `e` with
    /// `q <= 2^e`: NVIDIA's `cvt.rp.ue8m0x2.f32` and torchao's RCEIL. It differs from `ceil` only
    /// where the two roundings carry `q` across a power of two.
    Rceil,
    /// `ceil(log2(a)) - emax`, torchao's CEIL.
    CeilLog2,
}

impl ScaleRule {
    /// Every rule.
    pub const ALL: [Self; 5] = [Self::Floor, Self::Ceil, Self::Even, Self::Rceil, Self::CeilLog2];

    /// The code of the scale of a block whose largest magnitude is `a`: of 0 the smallest, 2^-127;
    /// of infinity the largest, 2^127; of NaN NaN.
    #[must_use]
    pub fn scale(self, a: f32, element: Format) -> u64 {
        let scale = match Value::from(a) {
            Value::Finite { significand, exponent, .. } if significand != 0 => Value::Finite {
                negative: false,
                significand: 1,
                exponent: self.exponent(a, significand, exponent, element),
            },
            zero_or_special => zero_or_special,
        };
        // It saturates at both ends.
        E8M0.encode(scale, &Policy::default(), 0)
    }

    /// The exponent for `a = significand * 2^exponent`.
    fn exponent(self, a: f32, significand: u64, exponent: i32, element: Format) -> i32 {
        let leading_zeros = significand.leading_zeros();
        let log2 = exponent + 63 - leading_zeros as i32;
        let floor = log2 - element.max_exponent();
        let max = element.to_f64(element.max_finite());
        match self {
            Self::Floor => floor,
            Self::Ceil => floor + i32::from(f64::from(a) > max * 2f64.powi(floor)),
            Self::Even => {
                // From 64 bits, the first of them 1, to 1 + f.
                let rounder = Rounder { rounding: Rounding::NearestEven, negative: false, random: 0 };
                let rounded = rounder.round(significand << leading_zeros, 63 - element.fraction_bits);
                floor + i32::from(rounded >> element.fraction_bits == 2)
            }
            Self::Rceil => {
                // The largest values are exact in f32.
                let quotient = Value::from(a * (1.0 / max as f32));
                let up = Policy { rounding: Rounding::Up, ..Policy::default() };
                E8M0.encode(quotient, &up, 0) as i32 - E8M0.bias
            }
            Self::CeilLog2 => floor + i32::from(!significand.is_power_of_two()),
        }
    }
}
