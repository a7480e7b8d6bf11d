//! GGML blocks to f32, and products with them.
//!
//! Every format has its own loop over registers, which shares nothing with the definition but the
//! layout and the tables. A block with a factor that is not finite is left to the definition.
#![allow(unsafe_code)] // Results are not zeroed before they are written.

/// The byte at which a field begins.
macro_rules! at {
    ($Format:ident, $field:literal) => {
        const { crate::block::BlockFormat::$Format.layout().at($field) }
    };
}

mod gemv;
mod k;
mod legacy;
mod nonlinear;
mod ternary;

pub(crate) use gemv::Vectors;

use super::lanes::{Lanes, Out};
use super::output::{as_out, written};
use super::{Kernel, Simd};
use crate::block::{BlockFormat, MAX_VALUES};
use crate::format::{F32, Policy};
use rayon::prelude::*;
use std::marker::PhantomData;

/// A format's loop.
trait Format {
    /// The format.
    const FORMAT: BlockFormat;

    /// Writes the values of a block; `None`, with some of them written, where a factor is not
    /// finite.
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()>;
}

/// Does something with the loop of a format.
trait With {
    type Output;

    fn with<F: Format>(self) -> Self::Output;
}

fn with_format<W: With>(format: BlockFormat, w: W) -> W::Output {
    match format {
        BlockFormat::Q4_0 => w.with::<legacy::Q4_0>(),
        BlockFormat::Q4_1 => w.with::<legacy::Q4_1>(),
        BlockFormat::Q5_0 => w.with::<legacy::Q5_0>(),
        BlockFormat::Q5_1 => w.with::<legacy::Q5_1>(),
        BlockFormat::Q8_0 => w.with::<legacy::Q8_0>(),
        BlockFormat::Q8_1 => w.with::<legacy::Q8_1>(),
        BlockFormat::Q2K => w.with::<k::Q2K>(),
        BlockFormat::Q3K => w.with::<k::Q3K>(),
        BlockFormat::Q4K => w.with::<k::Q4K>(),
        BlockFormat::Q5K => w.with::<k::Q5K>(),
        BlockFormat::Q6K => w.with::<k::Q6K>(),
        BlockFormat::Q8K => w.with::<k::Q8K>(),
        BlockFormat::Iq4Nl => w.with::<nonlinear::Iq4Nl>(),
        BlockFormat::Iq4Xs => w.with::<nonlinear::Iq4Xs>(),
        BlockFormat::Tq1_0 => w.with::<ternary::Tq1_0>(),
        BlockFormat::Tq2_0 => w.with::<ternary::Tq2_0>(),
        BlockFormat::Mxfp4 => w.with::<nonlinear::Mxfp4>(),
    }
}

/// Decodes blocks on this thread to as many little-endian f32.
///
/// # Panics
/// If `y` does not hold the values of whole blocks.
pub fn dequantize(simd: Simd, format: BlockFormat, blocks: &[u8], y: &mut [u8]) {
    check(format, blocks, y.len());
    // SAFETY: the loops write whole values, and nothing uninitialised.
    decode(simd, format, blocks, unsafe { as_out(y) });
}

/// The same on rayon's threads.
///
/// # Panics
/// If `y` does not hold the values of whole blocks.
pub fn dequantize_parallel(simd: Simd, format: BlockFormat, blocks: &[u8], y: &mut [u8]) {
    check(format, blocks, y.len());
    // SAFETY: as in `dequantize`.
    parallel(simd, format, blocks, unsafe { as_out(y) });
}

/// The same into new memory.
pub(crate) fn dequantized(simd: Simd, format: BlockFormat, blocks: &[u8]) -> Vec<u8> {
    let len = blocks.len() / format.bytes() * format.values() * 4;
    check(format, blocks, len);
    // SAFETY: every value of every block is written.
    unsafe { written(len, |y| parallel(simd, format, blocks, y)) }
}

fn check(format: BlockFormat, blocks: &[u8], len: usize) {
    let count = blocks.len() / format.bytes();
    let fits = (count * format.bytes(), count * format.values() * 4) == (blocks.len(), len);
    assert!(fits, "input and output are not the same number of whole blocks");
}

/// Values of one task.
const CHUNK: usize = 1 << 15;

fn parallel(simd: Simd, format: BlockFormat, blocks: &[u8], y: &mut Out) {
    let count = CHUNK / format.values();
    let pairs = y.par_chunks_mut(4 * CHUNK).zip(blocks.par_chunks(count * format.bytes()));
    pairs.for_each(|(y, blocks)| decode(simd, format, blocks, y));
}

fn decode(simd: Simd, format: BlockFormat, blocks: &[u8], y: &mut Out) {
    struct All<'a>(Simd, &'a [u8], &'a mut Out);

    impl With for All<'_> {
        type Output = ();

        fn with<F: Format>(self) {
            self.0.run(Decode::<F> { blocks: self.1, y: self.2, format: PhantomData });
        }
    }

    with_format(format, All(simd, blocks, y));
}

struct Decode<'a, F> {
    blocks: &'a [u8],
    y: &'a mut Out,
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Decode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let blocks = self.blocks.chunks_exact(F::FORMAT.bytes());
        for (block, y) in blocks.zip(self.y.chunks_exact_mut(4 * F::FORMAT.values())) {
            decode_one::<L, F>(l, block, y);
        }
    }
}

#[inline(always)]
fn decode_one<L: Lanes, F: Format>(l: L, block: &[u8], y: &mut Out) {
    if F::decode(l, block, y).is_none() {
        by_definition(F::FORMAT, block, y);
    }
}

#[cold]
#[inline(never)]
fn by_definition(format: BlockFormat, block: &[u8], y: &mut Out) {
    let unpacked = format.unpack(block);
    for (j, slot) in y.as_chunks_mut::<4>().0.iter_mut().take(format.values()).enumerate() {
        let code = F32.encode(unpacked.value(j).into(), &Policy::IEEE, 0) as u32;
        slot.write_copy_of_slice(&code.to_le_bytes());
    }
}

/// Room for the values of a block.
type Values = [u8; 4 * MAX_VALUES];

/// The f16 at a place, if it is finite.
#[inline(always)]
fn half(block: &[u8], at: usize) -> Option<f32> {
    let code = u32::from(u16::from_le_bytes([block[at], block[at + 1]]));
    if code & 0x7c00 == 0x7c00 {
        return None;
    }
    // The exponent's bias is 112 less; subnormal numbers come out right, since this is exact.
    let magnitude = f32::from_bits((code & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    Some(f32::from_bits(magnitude.to_bits() | (code & 0x8000) << 16))
}

/// The u32 at a place.
#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// f32 in every lane.
#[inline(always)]
fn splat<L: Lanes>(l: L, x: f32) -> L::V {
    l.splat(x.to_bits())
}

/// `integers * factor`.
#[inline(always)]
fn scaled<L: Lanes>(l: L, integers: L::V, factor: L::V) -> L::V {
    l.fmul(l.to_float(integers), factor)
}

/// The products of a factor with 16 signed or unsigned bytes: scales.
#[inline(always)]
fn scales<L: Lanes>(l: L, bytes: &[u8], offset: u32, factor: f32) -> [u32; 16] {
    let mut products = [0; 16];
    for i in (0..16).step_by(L::N) {
        let integers = l.sub(l.load::<1>(&bytes[i..]), l.splat(offset));
        l.store_words(scaled(l, integers, splat(l, factor)), &mut products[i..]);
    }
    products
}
