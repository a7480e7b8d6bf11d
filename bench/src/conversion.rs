//! What is converted, and who can.

use float8::{F8E4M3, F8E5M2};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use minifloat as mini;
use plumbline_reference::fast;
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, Policy};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

use crate::contender::{Contender, Fast, copy, elements, slices};

/// A conversion to measure.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub from: Format,
    pub to: Format,
}

/// The conversions that inference does most; the last is a copy, the ceiling of all others.
pub const ALL: [Conversion; 8] = [
    Conversion { from: F32, to: E4M3FN },
    Conversion { from: F32, to: E5M2 },
    Conversion { from: F32, to: F16 },
    Conversion { from: F32, to: BF16 },
    Conversion { from: E4M3FN, to: F32 },
    Conversion { from: E4M3FN, to: F16 },
    Conversion { from: F16, to: F32 },
    Conversion { from: F32, to: F32 },
];

/// A contender under its name.
pub type Named<'a> = (&'static str, Box<dyn Contender + 'a>);

impl Conversion {
    /// As filters and reports call it.
    pub fn name(self) -> String {
        if self.from == self.to { "copy".to_owned() } else { format!("{}-{}", self.from, self.to) }
    }

    /// Bytes read and written for each element.
    pub fn bytes(self) -> usize {
        width(self.from) + width(self.to)
    }

    /// Codes of `n` numbers between -4 and 4, as activations are.
    pub fn input(self, n: usize) -> Result<Tensor, TensorError> {
        let scattered = |i: usize| (i as u32).wrapping_mul(2_654_435_761).cast_signed();
        let value = |i| scattered(i) as f32 / (1u32 << 29) as f32;
        let code = |i| self.from.encode(value(i).into(), &Policy::default(), 0);
        Tensor::from_fn(TensorType::new(self.from, [n]), Path::Parallel, code)
    }

    /// All that can convert, the reference first.
    pub fn contenders(self, x: &[u8], threads: usize) -> anyhow::Result<Vec<Named<'_>>> {
        let fast = if self.from == F32 && self.to != F32 {
            fast::Conversion::cast(self.from, self.to, &Policy::default())
        } else {
            fast::Conversion::decode(self.from, self.to)
        };
        let conversion = fast.ok_or_else(|| anyhow::anyhow!("{} has no fast path", self.name()))?;
        let (n, width) = (x.len() / width(self.from), width(self.to));
        let simd = fast::Simd::best();
        let ours: Box<dyn Contender> = Box::new(Fast { conversion, simd, x, y: vec![0; n * width], width });
        let mut all = vec![("plumbline", ours)];
        all.extend(self.peers(x, threads));
        Ok(all)
    }

    fn peers(self, x: &[u8], threads: usize) -> Vec<Named<'_>> {
        let f32s = || words(x).map(f32::from_bits).collect::<Vec<_>>();
        let f16s = || x.as_chunks().0.iter().map(|&code| u16::from_le_bytes(code));
        match (self.from, self.to) {
            (F32, E4M3FN) => vec![
                ("float8", elements(f32s(), F8E4M3::from_bits(0), F8E4M3::from_f32, |y| y.to_bits().into())),
                (
                    "minifloat",
                    elements(f32s(), mini::F8E4M3FN::ZERO, mini::F8E4M3FN::from_f32, |y| y.to_bits().into()),
                ),
            ],
            (F32, E5M2) => vec![
                ("float8", elements(f32s(), F8E5M2::from_bits(0), F8E5M2::from_f32, |y| y.to_bits().into())),
                (
                    "minifloat",
                    elements(f32s(), mini::F8E5M2::ZERO, mini::F8E5M2::from_f32, |y| y.to_bits().into()),
                ),
            ],
            (F32, F16) => vec![
                (
                    "half",
                    slices(f32s(), f16::ZERO, |x, y| y.convert_from_f32_slice(x), |y| y.to_bits().into()),
                ),
                ("minifloat", elements(f32s(), mini::F16::ZERO, mini::F16::from_f32, |y| y.to_bits().into())),
            ],
            (F32, BF16) => vec![
                (
                    "half",
                    slices(f32s(), bf16::ZERO, |x, y| y.convert_from_f32_slice(x), |y| y.to_bits().into()),
                ),
                (
                    "minifloat",
                    elements(f32s(), mini::BF16::ZERO, mini::BF16::from_f32, |y| y.to_bits().into()),
                ),
            ],
            (E4M3FN, F32) => vec![
                (
                    "float8",
                    elements(
                        x.iter().map(|&code| F8E4M3::from_bits(code)).collect(),
                        0.0,
                        |x: F8E4M3| x.to_f32(),
                        f32_code,
                    ),
                ),
                (
                    "minifloat",
                    elements(
                        x.iter().map(|&code| mini::F8E4M3FN::from_bits(code)).collect(),
                        0.0,
                        mini::F8E4M3FN::to_f32,
                        f32_code,
                    ),
                ),
            ],
            (E4M3FN, F16) => vec![
                (
                    "float8",
                    elements(
                        x.iter().map(|&code| F8E4M3::from_bits(code)).collect(),
                        f16::ZERO,
                        |x: F8E4M3| x.to_f16(),
                        |y| y.to_bits().into(),
                    ),
                ),
                // It has no conversion between its own types but by way of f32.
                (
                    "minifloat",
                    elements(
                        x.iter().map(|&code| mini::F8E4M3FN::from_bits(code)).collect(),
                        mini::F16::ZERO,
                        |x: mini::F8E4M3FN| mini::F16::from_f32(x.to_f32()),
                        |y| y.to_bits().into(),
                    ),
                ),
            ],
            (F16, F32) => vec![
                (
                    "half",
                    slices(
                        f16s().map(f16::from_bits).collect(),
                        0.0,
                        |x, y| x.convert_to_f32_slice(y),
                        f32_code,
                    ),
                ),
                (
                    "minifloat",
                    elements(f16s().map(mini::F16::from_bits).collect(), 0.0, mini::F16::to_f32, f32_code),
                ),
            ],
            _ => {
                let n = x.len() / 4;
                vec![
                    ("copy", copy(words(x).collect(), 1 << 15)),
                    ("memcpy", copy(words(x).collect(), n.div_ceil(threads))),
                ]
            }
        }
    }
}

fn words(x: &[u8]) -> impl Iterator<Item = u32> {
    x.as_chunks().0.iter().map(|&code| u32::from_le_bytes(code))
}

fn f32_code(y: &f32) -> u64 {
    y.to_bits().into()
}

fn width(format: Format) -> usize {
    format.storage_bits as usize / 8
}
