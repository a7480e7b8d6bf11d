//! GGML blocks: random bytes, over which factors, scales and mins are set on purpose.
//!
//! Uniformly random bytes make every 64th f16 an infinity or NaN and others tens of thousands
//! of times larger than the rest, so that sums of such blocks show nothing.

use super::positional::shape;
use super::{GenerateError, Request};
use crate::seed::{hash, mix};
use plumbline_reference::block::{BlockFormat, Field, Kind};
use plumbline_reference::format::F16;
use plumbline_reference::{DType, Tensor, TensorType};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Moderate factors.
pub(super) fn random(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    fill(request, |format, number, bytes| {
        randomise(request.seed, number, bytes);
        set_every_scale(format, request.seed, number, bytes);
        set_factors(format, bytes, |kind, place| moderate(kind, request.seed, 2 * number + place));
    })
}

/// Every second block with extreme factors.
pub(super) fn edges(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    fill(request, |format, number, bytes| {
        randomise(request.seed, number, bytes);
        let edge = number / 2;
        match edge % 7 {
            3 if number % 2 == 1 => set_quants(format, bytes, 0),
            5 if number % 2 == 1 => set_quants(format, bytes, 0xff),
            _ => (),
        }
        set_every_scale(format, request.seed, number, bytes);
        set_factors(format, bytes, |kind, place| match number % 2 {
            0 => moderate(kind, request.seed, 2 * number + place),
            _ => {
                let edges = extremes(kind);
                // Over as many rounds as there are edges, every pair of two factors.
                let (round, at) = (edge / edges.len() as u64, edge % edges.len() as u64);
                edges[((at + place * (round + 1)) % edges.len() as u64) as usize]
            }
        });
    })
}

/// Small integers.
pub(super) fn integers(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    fill(request, |format, number, bytes| {
        randomise(request.seed, number, bytes);
        for (first, field) in format.layout().offsets().filter(|(_, field)| field.name == "qs") {
            for byte in bytes[first..first + field.bytes()].iter_mut().filter(|_| field.kind == Kind::I8) {
                *byte = (i16::from(*byte) % 15 - 7) as u8;
            }
        }
        let small = |j: usize, n: u64| mix(mix(request.seed, number), 1000 + j as u64) % n;
        set_scales(format, bytes, |j| match format {
            // 29 to 35, less 32.
            BlockFormat::Q3K => 29 + small(j, 7),
            // 1 or -1.
            BlockFormat::Iq4Xs => 31 + 2 * small(j, 2),
            // 2 to -2.
            BlockFormat::Q6K => small(j, 5).wrapping_sub(2),
            BlockFormat::Q2K => (1 + small(j, 3)) | small(j + 16, 4) << 4,
            _ => 1 + small(j, 4),
        });
        set_factors(format, bytes, |kind, place| {
            let values = match kind {
                Kind::F16 => [0x3c00, 0x4000, 0xbc00, 0xc000],
                Kind::F32 => [0x3f80_0000, 0x4000_0000, 0xbf80_0000, 0xc000_0000],
                // ggml halves them.
                _ => [128, 129, 128, 129],
            };
            values[(mix(request.seed ^ hash("factors"), 2 * number + place) % 4) as usize]
        });
    })
}

/// The same block everywhere.
pub(super) fn alike(
    request: &Request<'_>,
    fields: &BTreeMap<String, Vec<String>>,
) -> Result<Tensor, GenerateError> {
    let format = format(request)?;
    let mut block = vec![0; format.bytes()];
    for (name, elements) in fields {
        let Some((first, field)) = format.layout().offsets().find(|(_, field)| field.name == name) else {
            let there: Vec<_> = format.layout().fields.iter().map(|field| field.name).collect();
            return Err(request.mismatch(format!(
                "has `{name}`, which {format} has not; its fields are {}",
                there.join(", ")
            )));
        };
        let given = elements.len();
        if given == 0 || given > field.count {
            let why =
                format!("has {given} elements of `{name}`, a field of {}; give 1 to so many", field.count);
            return Err(request.mismatch(why));
        }
        let dtype = match field.kind.bytes() {
            1 => DType::U8,
            2 => DType::Float(F16),
            _ => DType::U32,
        };
        for (i, slot) in block[first..first + field.bytes()].chunks_exact_mut(field.kind.bytes()).enumerate()
        {
            let code = dtype.parse_hex(&elements[i % given]);
            let code = code.map_err(|why| request.mismatch(format!("has `{name}`: {why}")))?;
            slot.copy_from_slice(&code.to_le_bytes()[..slot.len()]);
        }
    }
    fill(request, |_, _, bytes| bytes.copy_from_slice(&block))
}

fn format(request: &Request<'_>) -> Result<BlockFormat, GenerateError> {
    let needs = || request.mismatch("makes GGML blocks; give the input `blocks`, their format");
    request.blocks.filter(|_| request.dtype == DType::U8).ok_or_else(needs)
}

/// Blocks by their number.
fn fill(
    request: &Request<'_>,
    block: impl Fn(BlockFormat, u64, &mut [u8]) + Sync,
) -> Result<Tensor, GenerateError> {
    let format = format(request)?;
    let ty = TensorType::new(request.dtype, shape(request)?);
    if ty.shape.last() != Some(&format.bytes()) {
        let why = format!("makes blocks of {} bytes, and the shape is {:?}", format.bytes(), ty.shape);
        return Err(request.mismatch(why));
    }
    if request.lanes != 1 {
        return Err(request.mismatch("fills a shape and has no list to repeat; leave out `lanes`"));
    }
    let mut bytes = vec![0; ty.elements()?];
    let blocks = bytes.par_chunks_exact_mut(format.bytes()).enumerate();
    blocks.for_each(|(number, bytes)| block(format, number as u64, bytes));
    Ok(Tensor::from_bytes(ty, bytes)?)
}

fn randomise(seed: u64, number: u64, bytes: &mut [u8]) {
    let seed = mix(seed, number);
    for (i, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(&mix(seed, i as u64).to_le_bytes()[..word.len()]);
    }
}

/// A factor by its kind and its number, which is another for each field of each block: 2^-7 to
/// 2^-3 of either sign, all different where there are no more than 8192 of f16, and E8M0's in turn.
fn moderate(kind: Kind, seed: u64, number: u64) -> u64 {
    let n = number.wrapping_mul(5077).wrapping_add(seed) % 8192;
    let (sign, exponent, fraction) = (n >> 12, n >> 10 & 3, n & 1023);
    match kind {
        Kind::F16 => sign << 15 | (8 + exponent) << 10 | fraction,
        Kind::F32 => sign << 31 | (120 + exponent) << 23 | fraction << 13 | mix(seed, number) & 0x1fff,
        _ => 120 + number.wrapping_mul(7).wrapping_add(seed) % 15,
    }
}

/// Ends of a factor's format: subnormals, normal numbers, zeros, infinities and NaNs.
fn extremes(kind: Kind) -> &'static [u64] {
    match kind {
        Kind::F16 => &[
            0x0001, 0x83ff, 0x0400, 0x7bff, 0x8000, 0x7c00, 0x7e00, 0xbc00, 0x8001, 0x03ff, 0x8400, 0xfbff,
            0x0000, 0xfc00, 0xfd01, 0x3c01,
        ],
        Kind::F32 => &[
            0x0000_0001,
            0x807f_ffff,
            0x0080_0000,
            0x7f7f_ffff,
            0x8000_0000,
            0x7f80_0000,
            0x7fc0_0000,
            0xbf80_0000,
            0x8000_0001,
            0x007f_ffff,
            0x8080_0000,
            0xff7f_ffff,
            0x0000_0000,
            0xff80_0000,
            0xffa0_0001,
            0x3f80_0001,
        ],
        _ => &[0, 255, 1, 254, 2, 253, 127, 128],
    }
}

/// Whether a field is a sum of the block's values, which nothing reads.
fn is_sum(field: &Field) -> bool {
    ["s", "bsums"].contains(&field.name)
}

/// Sets the factors by kind and place, and makes stored sums wrong.
fn set_factors(format: BlockFormat, bytes: &mut [u8], factor: impl Fn(Kind, u64) -> u64) {
    let mut place = 0;
    for (first, field) in format.layout().offsets() {
        let bytes = &mut bytes[first..first + field.bytes()];
        match field.kind {
            // Infinity; with the sign, which random bytes before it have left.
            Kind::F16 if is_sum(&field) => bytes.copy_from_slice(&[0, 0x7c | bytes[1] & 0x80]),
            // Sums of 16 quants are below 2^11.
            Kind::I16 if is_sum(&field) => bytes.as_chunks_mut().0.iter_mut().for_each(|sum| {
                *sum = [sum[0], 0x40 | sum[1] & 0x3f];
            }),
            kind @ (Kind::F16 | Kind::F32 | Kind::E8M0) => {
                bytes.copy_from_slice(&factor(kind, place).to_le_bytes()[..kind.bytes()]);
                place += 1;
            }
            Kind::U8 | Kind::I8 | Kind::U16 | Kind::I16 | Kind::U32 => (),
        }
    }
}

/// Sets every byte of quants.
fn set_quants(format: BlockFormat, bytes: &mut [u8], value: u8) {
    for (first, field) in format.layout().offsets() {
        if ["qs", "qh", "ql", "hmask"].contains(&field.name) {
            bytes[first..first + field.bytes()].fill(value);
        }
    }
}

/// Scales and mins that go through all their codes, the high bits too, neighbours far apart.
fn set_every_scale(format: BlockFormat, seed: u64, number: u64, bytes: &mut [u8]) {
    let groups = match format {
        BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Iq4Xs => 8,
        _ => 16,
    };
    set_scales(format, bytes, |j| {
        let (j, is_min) = (j as u64 % groups, j as u64 / groups == 1);
        // Coprime to the number of codes.
        let step = if is_min { 23 } else { 37 };
        (number * groups + j).wrapping_mul(step).wrapping_add(seed)
    });
}

/// Sets the scales by their number, and the mins by theirs, which come after them; a scale of Q2_K
/// is one number with its min.
fn set_scales(format: BlockFormat, bytes: &mut [u8], code: impl Fn(usize) -> u64) {
    let code = |j: usize| code(j) as u8;
    let start = |name: &str| format.layout().field(name).0;
    match format {
        BlockFormat::Q2K | BlockFormat::Q6K => {
            let first = start("scales");
            (0..16).for_each(|j| bytes[first + j] = code(j));
        }
        BlockFormat::Q3K => {
            let s = &mut bytes[start("scales")..][..12];
            s.fill(0);
            for j in 0..16 {
                s[j % 8] |= (code(j) & 15) << (j / 8 * 4);
                s[8 + j % 4] |= (code(j) >> 4 & 3) << (j / 4 * 2);
            }
        }
        BlockFormat::Q4K | BlockFormat::Q5K => {
            let s = &mut bytes[start("scales")..][..12];
            for j in 0..4 {
                let (low, high) = (code(j), code(j + 4));
                let (low_min, high_min) = (code(j + 8), code(j + 12));
                s[j] = low & 63 | (high >> 4) << 6;
                s[j + 4] = low_min & 63 | (high_min >> 4) << 6;
                s[j + 8] = high & 15 | high_min << 4;
            }
        }
        BlockFormat::Iq4Xs => {
            let (low, high) = (start("scales_l"), start("scales_h"));
            let mut highs = 0u16;
            for j in 0..8 {
                let nibble = code(j) & 15;
                let byte = &mut bytes[low + j / 2];
                *byte = if j % 2 == 0 { nibble } else { *byte | nibble << 4 };
                highs |= u16::from(code(j) >> 4 & 3) << (2 * j);
            }
            bytes[high..high + 2].copy_from_slice(&highs.to_le_bytes());
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests;
