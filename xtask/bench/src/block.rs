//! GGML blocks: to f32, and products with vectors, beside candle-core.
//!
//! 2^20 values are decoded into memory that is there already, in cache. Each matrix-vector product
//! is 4096 x 4096 with f32 activations, in the order of a warp; candle-core's quantizes them to 8
//! bits and multiplies integers, which is other work with other results, and less of it.
//!
//! Figures of ggml on two cores at 2.8 GHz with AVX-512, GB/s of f32 on one thread and two: Q4_K 12.4
//! and 23.3, Q5_K 10.5 and 21.4, Q8_0 19.1 and 21.5, Q6_K 3.3 on one. Products with activations of 8
//! bits, 10^9 multiply-adds per second on two: Q4_K 35, Q6_K 43.

use anyhow::Result;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
    BlockQ8K, GgmlType,
};
use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{Device, Module};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::fast::{Simd, dequantize_parallel};
use plumbline_reference::format::F32;
use plumbline_reference::ops::gemv::{Gemv, warp_order};
use plumbline_reference::ops::{Activations, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};
use rayon::prelude::*;

use crate::contender::Contender;
use crate::conversion::Named;
use crate::measure::{Comparison, compare};

/// Values that are decoded.
const VALUES: usize = 1 << 20;
/// Rows and columns of a product.
const SIDE: usize = 4096;
/// Values of one task.
const CHUNK: usize = 1 << 15;
/// Calls of a visit.
const CALLS: usize = 12;

/// What is done with blocks.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Dequantize,
    Gemv,
}

/// That work on blocks of a format on so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub work: Work,
    pub format: BlockFormat,
    pub threads: usize,
    /// Values that are decoded, or rows and columns of the matrix.
    pub size: usize,
}

/// Every format's values, and products of those that models use most.
pub fn settings(threads: usize) -> Vec<Setting> {
    let of = |work, size| move |format| Setting { work, format, threads, size };
    let products = [BlockFormat::Q4_0, BlockFormat::Q8_0, BlockFormat::Q4K, BlockFormat::Q6K];
    let decoded = BlockFormat::ALL.map(of(Work::Dequantize, VALUES));
    decoded.into_iter().chain(products.map(of(Work::Gemv, SIDE))).collect()
}

impl Setting {
    pub fn name(self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("block/{}/{}-thread{plural}", self.what(), self.threads)
    }

    fn what(self) -> String {
        match self.work {
            Work::Dequantize => format!("{}-f32", self.format),
            Work::Gemv => format!("gemv-{}", self.format),
        }
    }

    /// Measures on the current thread pool.
    pub fn measure(self, rounds: usize) -> Result<Comparison> {
        let (elements, bytes) = match self.work {
            Work::Dequantize => (self.size, 4),
            Work::Gemv => (self.size * self.size, 0),
        };
        let blocks = self.blocks(elements)?;
        let mut contenders: Vec<Named<'_>> = match self.work {
            Work::Dequantize => {
                vec![(
                    "plumbline",
                    Box::new(Ours { format: self.format, blocks: &blocks, y: vec![0; 4 * elements] }),
                )]
            }
            Work::Gemv => vec![("plumbline", Box::new(OurProduct::new(self.format, self.size, &blocks)?))],
        };
        contenders.extend(self.peer(elements)?.map(|peer| ("candle-core", peer)));
        let results = if matches!(self.work, Work::Gemv) { 0 } else { elements };
        let contenders = compare(contenders, elements, results, CALLS, rounds);
        Ok(Comparison { conversion: self.what(), elements, threads: self.threads, rounds, bytes, contenders })
    }

    /// Blocks as candle-core quantizes them, or of random bytes for formats that it has not.
    fn blocks(self, values: usize) -> Result<Vec<u8>> {
        if let Some(quantized) = self.quantized(values)? {
            return Ok(quantized.data()?.to_vec());
        }
        let bytes = values / self.format.values() * self.format.bytes();
        let mut blocks: Vec<u8> =
            (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for block in blocks.chunks_exact_mut(self.format.bytes()) {
            for (at, field) in self.format.layout().offsets() {
                if field.kind == plumbline_reference::block::Kind::F16 {
                    block[at..at + 2].copy_from_slice(&0x2c00u16.to_le_bytes());
                }
            }
        }
        Ok(blocks)
    }

    /// The same values as candle-core's.
    fn quantized(self, values: usize) -> Result<Option<QTensor>> {
        use candle_core::quantized::GgmlDType as Type;
        let ty = match self.format {
            BlockFormat::Q4_0 => Type::Q4_0,
            BlockFormat::Q4_1 => Type::Q4_1,
            BlockFormat::Q5_0 => Type::Q5_0,
            BlockFormat::Q5_1 => Type::Q5_1,
            BlockFormat::Q8_0 => Type::Q8_0,
            BlockFormat::Q2K => Type::Q2K,
            BlockFormat::Q3K => Type::Q3K,
            BlockFormat::Q4K => Type::Q4K,
            BlockFormat::Q5K => Type::Q5K,
            BlockFormat::Q6K => Type::Q6K,
            BlockFormat::Q8K => Type::Q8K,
            _ => return Ok(None),
        };
        let columns = if matches!(self.work, Work::Gemv) { self.size } else { 256 };
        let source =
            candle_core::Tensor::from_vec(numbers(values), (values / columns, columns), &Device::Cpu)?;
        Ok(Some(QTensor::quantize(&source, ty)?))
    }

    fn peer<'a>(self, values: usize) -> Result<Option<Box<dyn Contender + 'a>>> {
        if matches!(self.work, Work::Gemv) {
            let Some(weights) = self.quantized(values)? else { return Ok(None) };
            let x = candle_core::Tensor::from_vec(numbers(self.size), (1, self.size), &Device::Cpu)?;
            let weights = QMatMul::from_qtensor(weights)?;
            let y = product(&weights, &x)?;
            return Ok(Some(Box::new(CandleProduct { weights, x, y })));
        }
        Ok(Some(match self.format {
            BlockFormat::Q4_0 => candle::<BlockQ4_0>(values),
            BlockFormat::Q4_1 => candle::<BlockQ4_1>(values),
            BlockFormat::Q5_0 => candle::<BlockQ5_0>(values),
            BlockFormat::Q5_1 => candle::<BlockQ5_1>(values),
            BlockFormat::Q8_0 => candle::<BlockQ8_0>(values),
            BlockFormat::Q2K => candle::<BlockQ2K>(values),
            BlockFormat::Q3K => candle::<BlockQ3K>(values),
            BlockFormat::Q4K => candle::<BlockQ4K>(values),
            BlockFormat::Q5K => candle::<BlockQ5K>(values),
            BlockFormat::Q6K => candle::<BlockQ6K>(values),
            BlockFormat::Q8K => candle::<BlockQ8K>(values),
            _ => return Ok(None),
        }))
    }
}

/// Numbers between -1 and 1, as weights are.
fn numbers(count: usize) -> Vec<f32> {
    let scattered = |i: u32| i.wrapping_mul(2_654_435_761).cast_signed();
    (0..count as u32).map(|i| scattered(i) as f32 / (1u32 << 31) as f32).collect()
}

/// The reference's loop over a format.
struct Ours<'a> {
    format: BlockFormat,
    blocks: &'a [u8],
    y: Vec<u8>,
}

impl Contender for Ours<'_> {
    fn convert(&mut self) {
        dequantize_parallel(Simd::best(), self.format, self.blocks, &mut self.y);
    }

    fn code(&self, i: usize) -> u64 {
        let bytes = &self.y[4 * i..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into()
    }
}

/// candle-core's, in chunks on rayon's threads.
struct Candle<B> {
    blocks: Vec<B>,
    y: Vec<f32>,
}

fn candle<'a, B: GgmlType + 'a>(values: usize) -> Box<dyn Contender + 'a> {
    let mut blocks = vec![B::zeros(); values / B::BLCK_SIZE];
    B::from_float(&numbers(values), &mut blocks);
    Box::new(Candle { blocks, y: vec![0.0; values] })
}

impl<B: GgmlType> Contender for Candle<B> {
    fn convert(&mut self) {
        let pairs = self.y.par_chunks_mut(CHUNK).zip(self.blocks.par_chunks(CHUNK / B::BLCK_SIZE));
        pairs.for_each(|(y, blocks)| B::to_float(blocks, y));
    }

    fn code(&self, i: usize) -> u64 {
        self.y[i].to_bits().into()
    }
}

/// The reference's product.
struct OurProduct {
    op: Op,
    inputs: [Tensor; 2],
    y: Tensor,
}

impl OurProduct {
    fn new(weights: BlockFormat, side: usize, blocks: &[u8]) -> Result<Self> {
        let activations = Activations::F32;
        let op =
            Gemv { accumulate: Some(warp_order(weights, activations)), ..Gemv::new(weights, activations) };
        let shape = [side, side / weights.values(), weights.bytes()];
        let w = Tensor::from_bytes(TensorType::new(DType::U8, shape), blocks.to_vec())?;
        let x = numbers(side);
        let x = Tensor::from_fn(TensorType::new(F32, [side]), Path::Definition, |i| x[i].to_bits().into())?;
        let (op, inputs) = (Op::from(op), [w, x]);
        let y = op.evaluate(&inputs, Path::fastest())?.remove(0);
        Ok(Self { op, inputs, y })
    }
}

impl Contender for OurProduct {
    fn convert(&mut self) {
        if let Ok(mut y) = self.op.evaluate(&self.inputs, Path::fastest()) {
            self.y = y.remove(0);
        }
    }

    fn code(&self, i: usize) -> u64 {
        self.y.code(i)
    }
}

/// candle-core's product.
struct CandleProduct {
    weights: QMatMul,
    x: candle_core::Tensor,
    y: Vec<f32>,
}

fn product(weights: &QMatMul, x: &candle_core::Tensor) -> candle_core::Result<Vec<f32>> {
    weights.forward(x)?.flatten_all()?.to_vec1()
}

impl Contender for CandleProduct {
    fn convert(&mut self) {
        // The same call has given a result before.
        self.y = product(&self.weights, &self.x).unwrap_or_default();
    }

    fn code(&self, i: usize) -> u64 {
        self.y[i].to_bits().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    /// Except where candle-core has no such format.
    #[test]
    fn values_are_those_of_candle_core() -> Result<()> {
        let mut compared = 0;
        for format in BlockFormat::ALL {
            let setting = Setting { work: Work::Dequantize, format, threads: 2, size: 1 << 15 };
            for contender in setting.measure(1)?.contenders.into_iter().skip(1) {
                assert_eq!(contender.differing, 0, "{format} {contender:?}");
                compared += 1;
            }
        }
        assert_eq!(compared, 11);
        Ok(())
    }

    /// Within what quantizing the activations costs.
    #[test]
    fn products_are_near_those_of_candle_core() -> Result<()> {
        let setting = Setting { work: Work::Gemv, format: BlockFormat::Q4K, threads: 2, size: 256 };
        let mut ours = OurProduct::new(setting.format, 256, &setting.blocks(256 * 256)?)?;
        ours.convert();
        let weights = setting.quantized(256 * 256)?.ok_or_else(|| anyhow!("no such format"))?;
        let x = candle_core::Tensor::from_vec(numbers(256), (1, 256), &Device::Cpu)?;
        let theirs = product(&QMatMul::from_qtensor(weights)?, &x)?;
        let norm = theirs.iter().map(|y| f64::from(y * y)).sum::<f64>();
        let error = theirs
            .iter()
            .enumerate()
            .map(|(i, y)| f64::from(f32::from_bits(ours.code(i) as u32) - y).powi(2));
        let error = error.sum::<f64>();
        assert!(norm > 0.0 && error <= 1e-3 * norm, "{error} of {norm}");
        Ok(())
    }
}
