//! Blocks on any finite operands, in integers of 64 bits.

use super::leaf::Tile;
use super::plan::Blocks;
use super::{BIAS, LANES, PAIRS};
use crate::accumulate::{Block, BlockOutput};
use crate::fast::Kernel;
use crate::fast::lanes::Lanes;

/// Chains of blocks of one tile.
pub(super) struct General<'a> {
    pub(super) blocks: Blocks,
    pub(super) tile: Tile<'a>,
    /// The results; at first what the chains start from.
    pub(super) out: &'a mut [[u32; LANES]],
}

impl Kernel for General<'_> {
    type Output = ();

    // Plain loops over lanes: the compiler vectorises them for the instruction set.
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Blocks { length, pairs, .. } = self.blocks;
        for row in 0..self.out.len() {
            let out = &mut self.out[row];
            if !pairs {
                for start in (0..self.tile.length).step_by(length) {
                    *out = block(&self.tile, self.blocks, row, start, *out);
                }
                continue;
            }
            for start in (0..self.tile.length).step_by(2 * length) {
                let half = block(&self.tile, self.blocks, row, start, [0; LANES]);
                let result = block(&self.tile, self.blocks, row, start + length, half);
                for (sum, result) in out.iter_mut().zip(result) {
                    *sum = (f32::from_bits(*sum) + f32::from_bits(result)).to_bits();
                }
            }
        }
    }
}

/// A number that is not infinite: `significand * 2^unit` of 24 bits, from the bits of an f32.
#[inline(always)]
fn parts(bits: u32) -> (u32, i32) {
    let field = bits >> 23 & 0xff;
    let hidden = if field > 0 { 1 << 23 } else { 0 };
    (bits & 0x7f_ffff | hidden, field.max(1) as i32 - 150)
}

#[inline(always)]
fn block(tile: &Tile<'_>, blocks: Blocks, row: usize, start: usize, c: [u32; LANES]) -> [u32; LANES] {
    let Blocks { block, length, .. } = blocks;
    let a = &tile.row(row)[start..][..length];
    let a_exponents = &tile.row_exponents(row)[start..][..length];
    let b = &tile.columns[start..][..length];
    let b_exponents = &tile.column_exponents[start..][..length];

    let least = if block.output == BlockOutput::NearestF16 { -14 } else { -126 };
    let mut exponents = [block.min_exponent; LANES];
    for lane in 0..LANES {
        let (significand, unit) = parts(c[lane]);
        if significand != 0 {
            exponents[lane] = exponents[lane].max((unit + 23).max(least));
        }
    }
    for k in 0..length {
        let ea = i32::from(a_exponents[k] as i16) - i32::from(BIAS);
        for i in 0..PAIRS {
            let pair = b_exponents[k][i] as i32;
            exponents[i] = exponents[i].max(ea + i32::from(pair as i16));
            exponents[i + PAIRS] = exponents[i + PAIRS].max(ea + (pair >> 16));
        }
    }
    let mut sums = [0i64; LANES];
    for k in 0..length {
        let (sa, ua) = parts(a[k]);
        if sa == 0 {
            continue;
        }
        for lane in 0..LANES {
            let (sb, ub) = parts(b[k][lane]);
            // Significands are of 24 bits and F is at most 40, so it is to the right.
            let shift = (exponents[lane] - block.fraction_bits as i32 - ua - ub).clamp(0, 63);
            let magnitude = (u64::from(sa) * u64::from(sb)) >> shift;
            let sign = i64::from((a[k] ^ b[k][lane]) as i32 >> 31);
            sums[lane] += (magnitude as i64 ^ sign) - sign;
        }
    }
    let mut results = [0; LANES];
    for lane in 0..LANES {
        let unit = exponents[lane] - block.fraction_bits as i32;
        results[lane] = finish(&block, sums[lane], unit, c[lane]);
    }
    results
}

/// The sum of the products, in that unit, on top of c.
fn finish(block: &Block, sum: i64, unit: i32, c: u32) -> u32 {
    if c >> 23 & 0xff == 0xff {
        // Finite products do not change an infinity.
        return c;
    }
    let (significand, own) = parts(c);
    let magnitude = match own - unit {
        // The unit is that of no term at all.
        _ if significand == 0 => 0,
        left @ 0.. => i64::from(significand) << left,
        right => i64::from(significand) >> right.unsigned_abs().min(63),
    };
    let sum = sum + if (c as i32) < 0 { -magnitude } else { magnitude };
    encode(block.output, sum, unit)
}

/// The result of a block as bits of an f32.
fn encode(output: BlockOutput, sum: i64, unit: i32) -> u32 {
    let (bits, least, largest, nearest) = match output {
        BlockOutput::Truncate(bits) => (bits, -126, 127, false),
        BlockOutput::NearestF32 => (23, -126, 127, true),
        BlockOutput::NearestF16 => (10, -14, 15, true),
    };
    if sum == 0 {
        return 0;
    }
    let sign = if sum < 0 { 1 << 31 } else { 0 };
    let infinity = sign | 0x7f80_0000;
    let significand = sum.unsigned_abs();
    let exponent = unit + significand.ilog2() as i32;
    if exponent > largest {
        return infinity;
    }
    let last = exponent.max(least) - bits as i32;
    let kept = match last - unit {
        left @ ..=0 => significand << left.unsigned_abs(),
        right => cut(significand, right as u32, nearest),
    };
    if kept == 0 {
        return 0;
    }
    let power = f64::from_bits(((last + 1023) as u64) << 52);
    // Exact, but for what was rounded up to 2^128.
    let value = (kept as f64 * power) as f32;
    if value >= 2f32.powi(largest) * 2.0 { infinity } else { sign | value.to_bits() }
}

/// `significand / 2^shift` as an integer, to nearest even or toward zero.
fn cut(significand: u64, shift: u32, nearest: bool) -> u64 {
    if shift > 63 {
        // Sums are far below 2^63.
        return 0;
    }
    let kept = significand >> shift;
    let (rest, half) = (significand & ((1 << shift) - 1), 1 << (shift - 1));
    kept + u64::from(nearest && (rest > half || rest == half && kept & 1 == 1))
}
