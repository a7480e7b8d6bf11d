//! Three values: TQ1_0 and TQ2_0.
//!
//! Formulas and edges are in the documentation of the [module above](super).

use super::k::two_bits;
use super::{Fields, extreme, reciprocal};

/// Writes `d`; returns codes 0, 1, 2.
fn codes(x: &[f32], block: &mut Fields<'_>) -> Vec<u8> {
    let d = extreme(x).abs();
    let id = reciprocal(d);
    block.f16("d", d);
    x.iter().map(|x| ((x * id).round() as i8).clamp(-1, 1) + 1).map(|code| code as u8).collect()
}

/// Five digits, the most significant first, as a fraction of 256 rounded up.
fn fraction(digits: impl Iterator<Item = u8>) -> u8 {
    let number = digits.fold(0, |number: u16, digit| 3 * number + u16::from(digit));
    (number * 256).div_ceil(243) as u8
}

pub(super) fn tq1_0(x: &[f32], block: &mut Fields<'_>) {
    let codes = codes(x, block);
    // Byte i of a part of n bytes holds every n-th code from i on.
    let part = |from: usize, bytes: usize, digits: usize| {
        let codes = &codes[from..][..bytes * digits];
        (0..bytes).map(move |i| {
            let digits = codes[i..].iter().step_by(bytes).copied();
            fraction(digits.chain([0]).take(5))
        })
    };
    block.set("qs", part(0, 32, 5).chain(part(160, 16, 5)));
    block.set("qh", part(240, 4, 4));
}

pub(super) fn tq2_0(x: &[f32], block: &mut Fields<'_>) {
    let codes = codes(x, block);
    block.set("qs", two_bits(&codes));
}
