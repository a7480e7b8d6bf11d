//! The k-quants.

use super::{BlockFormat, Format, half, scaled, scales, splat, word};
use crate::fast::lanes::{Lanes, Out};

/// The eight scales and eight mins of Q4_K and Q5_K, a byte each.
#[inline(always)]
fn scales_and_mins(s: &[u8]) -> [u8; 16] {
    let (a, b, c) = (word(s, 0), word(s, 4), word(s, 8));
    let (low, two) = (0x0f0f_0f0f, 0x3030_3030);
    let words = [a & 0x3f3f_3f3f, c & low | a >> 2 & two, b & 0x3f3f_3f3f, c >> 4 & low | b >> 2 & two];
    let mut bytes = [0; 16];
    for (i, word) in words.into_iter().enumerate() {
        bytes[4 * i..][..4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Q4_K, and Q5_K with its fifth bits.
#[inline(always)]
fn four_or_five_bits<L: Lanes>(l: L, factors: [f32; 2], s: &[u8], qs: &[u8], qh: Option<&[u8]>, y: &mut Out) {
    let bytes = scales_and_mins(s);
    let [d, dmin] = factors;
    let (scales, mins) = (scales(l, &bytes, 0, d), scales(l, &bytes, 0, dmin));
    for chunk in 0..4 {
        for i in (0..32).step_by(L::N) {
            let both = l.load::<1>(&qs[32 * chunk + i..]);
            let nibbles = [l.and(both, l.splat(15)), l.shr(both, 4)];
            for (half, mut q) in nibbles.into_iter().enumerate() {
                let sub = 2 * chunk + half;
                if let Some(qh) = qh {
                    let bits = l.shr(l.load::<1>(&qh[i..]), sub as u32);
                    q = l.or(q, l.shl(l.and(bits, l.splat(1)), 4));
                }
                let products = scaled(l, q, l.splat(scales[sub]));
                l.write(l.fsub(products, l.splat(mins[8 + sub])), &mut y[4 * (32 * sub + i)..]);
            }
        }
    }
}

pub(super) struct Q4K;

impl Format for Q4K {
    const FORMAT: BlockFormat = BlockFormat::Q4K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let factors = [half(block, at!(Q4K, "d"))?, half(block, at!(Q4K, "dmin"))?];
        let (s, qs) = (&block[at!(Q4K, "scales")..], &block[at!(Q4K, "qs")..]);
        four_or_five_bits(l, factors, s, qs, None, y);
        Some(())
    }
}

pub(super) struct Q5K;

impl Format for Q5K {
    const FORMAT: BlockFormat = BlockFormat::Q5K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let factors = [half(block, at!(Q5K, "d"))?, half(block, at!(Q5K, "dmin"))?];
        let (s, qs) = (&block[at!(Q5K, "scales")..], &block[at!(Q5K, "qs")..]);
        four_or_five_bits(l, factors, s, qs, Some(&block[at!(Q5K, "qh")..]), y);
        Some(())
    }
}

pub(super) struct Q2K;

impl Format for Q2K {
    const FORMAT: BlockFormat = BlockFormat::Q2K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let [d, dmin] = [half(block, at!(Q2K, "d"))?, half(block, at!(Q2K, "dmin"))?];
        let both = &block[at!(Q2K, "scales")..];
        let (mut low, mut high) = ([0; 16], [0; 16]);
        for i in 0..16 {
            (low[i], high[i]) = (both[i] & 15, both[i] >> 4);
        }
        let (scales, mins) = (scales(l, &low, 0, d), scales(l, &high, 0, dmin));
        let qs = &block[at!(Q2K, "qs")..];
        for part in 0..2 {
            for i in (0..32).step_by(L::N) {
                let bytes = l.load::<1>(&qs[32 * part + i..]);
                for run in 0..4 {
                    let at = 128 * part + 32 * run + i;
                    let q = l.and(l.shr(bytes, 2 * run as u32), l.splat(3));
                    let products = scaled(l, q, l.splat(scales[at / 16]));
                    l.write(l.fsub(products, l.splat(mins[at / 16])), &mut y[4 * at..]);
                }
            }
        }
        Some(())
    }
}

pub(super) struct Q3K;

impl Format for Q3K {
    const FORMAT: BlockFormat = BlockFormat::Q3K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = half(block, at!(Q3K, "d"))?;
        let s = &block[at!(Q3K, "scales")..];
        let (a, b, c) = (word(s, 0), word(s, 4), word(s, 8));
        let (low, two) = (0x0f0f_0f0f, 0x0303_0303);
        let words = [
            a & low | (c & two) << 4,
            b & low | (c >> 2 & two) << 4,
            a >> 4 & low | (c >> 4 & two) << 4,
            b >> 4 & low | (c >> 6 & two) << 4,
        ];
        let mut bytes = [0; 16];
        for (i, word) in words.into_iter().enumerate() {
            bytes[4 * i..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let scales = scales(l, &bytes, 32, d);
        let (hmask, qs) = (&block[at!(Q3K, "hmask")..], &block[at!(Q3K, "qs")..]);
        for part in 0..2 {
            for i in (0..32).step_by(L::N) {
                let (bytes, high) = (l.load::<1>(&qs[32 * part + i..]), l.load::<1>(&hmask[i..]));
                for run in 0..4 {
                    let at = 128 * part + 32 * run + i;
                    let q = l.and(l.shr(bytes, 2 * run as u32), l.splat(3));
                    let bit = l.and(l.shr(high, (4 * part + run) as u32), l.splat(1));
                    let q = l.sub(l.or(q, l.shl(bit, 2)), l.splat(4));
                    l.write(scaled(l, q, l.splat(scales[at / 16])), &mut y[4 * at..]);
                }
            }
        }
        Some(())
    }
}

pub(super) struct Q6K;

impl Format for Q6K {
    const FORMAT: BlockFormat = BlockFormat::Q6K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = splat(l, half(block, at!(Q6K, "d"))?);
        let mut scales = [0; 16];
        for i in (0..16).step_by(L::N) {
            let integers = l.load_signed(&block[at!(Q6K, "scales") + i..]);
            l.store_words(scaled(l, integers, d), &mut scales[i..]);
        }
        let (ql, qh) = (&block[at!(Q6K, "ql")..], &block[at!(Q6K, "qh")..]);
        for part in 0..2 {
            for i in (0..32).step_by(L::N) {
                let high = l.load::<1>(&qh[32 * part + i..]);
                for run in 0..4 {
                    let at = 128 * part + 32 * run + i;
                    let low = l.load::<1>(&ql[64 * part + run % 2 * 32 + i..]);
                    let low = l.and(l.shr(low, run as u32 / 2 * 4), l.splat(15));
                    let two = l.and(l.shr(high, 2 * run as u32), l.splat(3));
                    let q = l.sub(l.or(low, l.shl(two, 4)), l.splat(32));
                    l.write(scaled(l, q, l.splat(scales[at / 16])), &mut y[4 * at..]);
                }
            }
        }
        Some(())
    }
}

pub(super) struct Q8K;

impl Format for Q8K {
    const FORMAT: BlockFormat = BlockFormat::Q8K;

    #[inline(always)]
    fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
        let d = f32::from_bits(word(block, at!(Q8K, "d")));
        if !d.is_finite() {
            return None;
        }
        let (d, qs) = (splat(l, d), &block[at!(Q8K, "qs")..]);
        for i in (0..256).step_by(L::N) {
            l.write(scaled(l, l.load_signed(&qs[i..]), d), &mut y[4 * i..]);
        }
        Some(())
    }
}
