//! Inputs that tell right from nearly right.

use crate::noise::noise;
use plumbline_reference::format::{F32, Format};

/// Every code where there are few; else the codes around the ends and the middle of
/// every binade. Positive ones only.
pub(crate) fn landmarks(format: Format) -> Vec<u64> {
    let magnitudes = 1 << (format.exponent_bits + format.fraction_bits);
    if magnitudes <= 256 {
        return (0..magnitudes).map(|index| format.code_at(index)).collect();
    }
    let last = (1 << format.fraction_bits) - 1;
    let fractions = [0, 1, 2, last / 2, last / 2 + 1, last - 1, last];
    let field =
        |exponent: u64| fractions.map(|fraction| format.code_at(exponent << format.fraction_bits | fraction));
    (0..1 << format.exponent_bits).flat_map(field).collect()
}

/// Every positive code of a format of up to 16 bits.
pub(crate) fn positive_codes(format: Format) -> Vec<u64> {
    (0..1 << (format.exponent_bits + format.fraction_bits)).map(|index| format.code_at(index)).collect()
}

/// f32 patterns within 2 of the values of `codes`, and of the midpoints between each
/// and the next value of the format, of both signs; infinities, NaNs and zeros with
/// their neighbours; and some noise.
pub(crate) fn around(format: Format, codes: &[u64]) -> Vec<u64> {
    let mut centres = vec![0, 0x7f80_0000, 0x7fff_fffd, 0x7fc0_0000, 0x0080_0000];
    for &code in codes {
        let value = format.to_f64(code);
        if !value.is_finite() {
            continue;
        }
        let above = format.next_up(code).map_or(f64::INFINITY, |next| format.to_f64(next));
        // Beyond the largest value the midpoint is where its last binade would go on.
        let step =
            if above.is_finite() { above - value } else { value - format.to_f64(code - format.code_at(1)) };
        centres.extend([value, value + step / 2.0].map(|x| u64::from((x as f32).to_bits())));
    }
    let near = |centre: u64| (0..5).map(move |distance| (centre + distance).saturating_sub(2) & 0x7fff_ffff);
    let positive = centres.into_iter().flat_map(near).chain((0..1000).map(|i| noise(i) >> 33));
    positive.flat_map(|bits| [bits, bits | F32.sign_bit()]).collect()
}

/// f64 patterns that are, or lie just beside, those f32.
pub(crate) fn as_doubles(bits: &[u64]) -> Vec<u64> {
    let double = |&bits: &u64| f64::from(f32::from_bits(bits as u32)).to_bits();
    let near = |bits: u64| [bits.saturating_sub(1), bits, bits + 1, bits ^ 1 << 28];
    let tiny =
        [1, 0x000f_ffff_ffff_ffff, 0x3680_0000_0000_0001, 0x7fef_ffff_ffff_ffff, 0xffef_ffff_ffff_ffff];
    bits.iter().map(double).flat_map(near).chain(tiny).collect()
}
