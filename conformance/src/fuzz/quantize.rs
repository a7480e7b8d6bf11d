//! Blocks of numbers to quantize: an operation's parameters, and numbers between which a
//! quantizer has to choose.

use super::bits::Random;
use plumbline_reference::block::{BlockFormat, Int8Format, Int8Rounding};
use plumbline_reference::ops::{Int8Quantize, Op, Quantize};

/// Every `quantize`.
pub(super) fn block_quantizes() -> Vec<Op> {
    BlockFormat::ALL.into_iter().map(|to| Quantize { to }.into()).collect()
}

/// Every `int8_quantize`.
pub(super) fn int8_quantizes() -> Vec<Op> {
    let roundings = || [None].into_iter().chain(Int8Rounding::ALL.map(Some));
    let all = Int8Format::ALL
        .into_iter()
        .flat_map(|to| roundings().map(move |rounding| Int8Quantize { to, rounding }));
    all.map(Op::from).collect()
}

/// The format that an operation quantizes to; `None` for other operations.
pub(super) fn format(op: &Op) -> Option<BlockFormat> {
    match op {
        Op::Quantize(op) => Some(op.to),
        Op::Int8Quantize(op) => Some(op.to.blocks()),
        _ => None,
    }
}

/// The numbers of some blocks, as bits of f32.
pub(super) fn fill(format: BlockFormat, count: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let blocks = count / format.values();
    (0..blocks).flat_map(|_| block(format.values(), &mut random)).collect()
}

/// One block's.
fn block(values: usize, random: &mut Random) -> Vec<u64> {
    let (exponent, kind) = (random.below(254) as i32 - 126, random.below(8));
    let scale = 2f32.powi(exponent) * (1.0 + random.below(1 << 20) as f32 / 2f32.powi(20));
    let mut number = |j: usize| -> f32 {
        let word = random.word();
        let signed = word as i32 as f32 / 2f32.powi(31);
        match kind {
            // Any bits.
            0 => f32::from_bits(word as u32),
            // Numbers of one size, and of any.
            1 | 2 => signed * scale,
            3 => f32::from_bits((word as u32 & 0x807f_ffff) | ((word >> 32) as u32 % 254) << 23),
            // Halves of a 127th, and their neighbours.
            4 | 5 => {
                let half = ((word >> 32) % 255) as f32 / 2.0;
                let near = (if j == 0 { 127.0 } else { half } * scale).to_bits() + (word >> 8) as u32 % 3;
                f32::from_bits(near.saturating_sub(1) | (word as u32 & 1) << 31)
            }
            // Few values, so that candidates tie.
            6 => (word % 9) as f32 * scale - 4.0 * scale,
            // Zeros of both signs.
            _ => f32::from_bits((word as u32 & 1) << 31),
        }
    };
    let mut numbers: Vec<_> = (0..values).map(&mut number).collect();
    // One that decides, or a fault.
    if random.below(4) == 0 {
        let needle =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -3.0 * scale, 1e-45, 0.0];
        numbers[random.below(values)] = needle[random.below(needle.len())];
    }
    numbers.into_iter().map(|number| number.to_bits().into()).collect()
}
