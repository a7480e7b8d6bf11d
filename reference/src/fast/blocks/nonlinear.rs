//! Nibbles that are looked up.

use super::{BlockFormat, Format, half, splat};
use crate::block::nonlinear::{E2M1_DOUBLED, IQ4};
use crate::fast::lanes::{Lanes, Out};

/// Integers as f32.
const fn in_f32(integers: [i16; 16]) -> [u32; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (integers[i] as f32).to_bits();
        i += 1;
    }
    table
}

static IQ4_F32: [u32; 16] = in_f32(IQ4);
static E2M1_F32: [u32; 16] = in_f32(E2M1_DOUBLED);

/// 32 values from 16 bytes.
#[inline(always)]
fn lookup<L: Lanes>(l: L, table: &[u32; 16], d: f32, qs: &[u8], y: &mut Out) {
    let d = splat(l, d);
    for i in (0..16).step_by(L::N) {
        let bytes = l.load::<1>(&qs[i..]);
        l.write(l.fmul(l.lookup(table, bytes), d), &mut y[4 * i..]);
        l.write(l.fmul(l.lookup(table, l.shr(bytes, 4)), d), &mut y[4 * (i + 16)..]);
    }
}

pub(super) struct Iq4Nl;

impl Format for Iq4Nl {
    const FORMAT: BlockFormat = BlockFormat::Iq4Nl;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = half(block, at!(Iq4Nl, "d"))?;
        lookup(l, &IQ4_F32, d, &block[at!(Iq4Nl, "qs")..], y);
        Some(())
    }
}

pub(super) struct Iq4Xs;

impl Format for Iq4Xs {
    const FORMAT: BlockFormat = BlockFormat::Iq4Xs;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = half(block, at!(Iq4Xs, "d"))?;
        let scales_h = at!(Iq4Xs, "scales_h");
        let high = u16::from_le_bytes([block[scales_h], block[scales_h + 1]]);
        for sub in 0..8 {
            let low = block[at!(Iq4Xs, "scales_l") + sub / 2] >> (4 * (sub % 2)) & 15;
            let scale = i32::from(low) + i32::from(high >> (2 * sub) & 3) * 16 - 32;
            lookup(l, &IQ4_F32, d * scale as f32, &block[at!(Iq4Xs, "qs") + 16 * sub..], &mut y[128 * sub..]);
        }
        Some(())
    }
}

pub(super) struct Mxfp4;

impl Format for Mxfp4 {
    const FORMAT: BlockFormat = BlockFormat::Mxfp4;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let e = u32::from(block[at!(Mxfp4, "e")]);
        // 2^(e - 128), the first two of which are subnormal.
        let d = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
        lookup(l, &E2M1_F32, d, &block[at!(Mxfp4, "qs")..], y);
        Some(())
    }
}
