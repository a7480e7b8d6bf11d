//! Blocks of 32 values with one factor each.

use super::{BlockFormat, Format, half, scaled, splat, word};
use crate::fast::lanes::{Lanes, Out};

/// The numbers of 32 lanes.
const INDEX: [u32; 32] = {
    let mut index = [0; 32];
    let mut i = 0;
    while i < 32 {
        index[i] = i as u32;
        i += 1;
    }
    index
};

/// Nibbles, with fifth bits where there are: `(q - offset) * d`, and `m` more where there is one.
#[derive(Clone, Copy)]
struct Nibbles {
    d: f32,
    offset: u32,
    m: Option<f32>,
    fifths: Option<u32>,
}

impl Nibbles {
    #[inline(always)]
    fn decode<L: Lanes>(self, l: L, qs: &[u8], y: &mut Out) {
        for i in (0..16).step_by(L::N) {
            let bytes = l.load::<1>(&qs[i..]);
            self.put(l, l.and(bytes, l.splat(15)), i, y);
            self.put(l, l.shr(bytes, 4), i + 16, y);
        }
    }

    /// Values from `at` on, from their nibbles.
    #[inline(always)]
    fn put<L: Lanes>(self, l: L, mut q: L::V, at: usize, y: &mut Out) {
        if let Some(fifths) = self.fifths {
            let bits = l.shr_each(l.splat(fifths), l.load_words(&INDEX[at..]));
            q = l.or(q, l.shl(l.and(bits, l.splat(1)), 4));
        }
        let mut values = scaled(l, l.sub(q, l.splat(self.offset)), splat(l, self.d));
        if let Some(m) = self.m {
            values = l.fadd(values, splat(l, m));
        }
        l.write(values, &mut y[4 * at..]);
    }
}

macro_rules! nibbles {
    ($($Format:ident offset $offset:literal $(m $m:literal)? $(fifths $qh:literal)?;)*) => {
        $(pub(super) struct $Format;

        impl Format for $Format {
            const FORMAT: BlockFormat = BlockFormat::$Format;

            #[inline(always)]
            fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
                let layout = Self::FORMAT.layout();
                let d = half(block, at!($Format, "d"))?;
                // One or none.
                let m = <[f32]>::first(&[$(half(block, at!($Format, $m))?)?]).copied();
                let fifths = <[u32]>::first(&[$(word(block, at!($Format, $qh)))?]).copied();
                let nibbles = Nibbles { d, offset: $offset, m, fifths };
                nibbles.decode(l, &block[layout.bytes - 16..], y);
                Some(())
            }
        })*
    };
}

nibbles! {
    Q4_0 offset 8;
    Q4_1 offset 0 m "m";
    Q5_0 offset 16 fifths "qh";
    Q5_1 offset 0 m "m" fifths "qh";
}

/// `d * q` of bytes.
macro_rules! bytes {
    ($($Format:ident;)*) => {
        $(pub(super) struct $Format;

        impl Format for $Format {
            const FORMAT: BlockFormat = BlockFormat::$Format;

            #[inline(always)]
            fn decode<L: Lanes>(l: L, block: &[u8], y: &mut Out) -> Option<()> {
                let d = splat(l, half(block, at!($Format, "d"))?);
                let qs = &block[at!($Format, "qs")..];
                for i in (0..32).step_by(L::N) {
                    l.write(scaled(l, l.load_signed(&qs[i..]), d), &mut y[4 * i..]);
                }
                Some(())
            }
        })*
    };
}

bytes! {
    Q8_0;
    Q8_1;
}
