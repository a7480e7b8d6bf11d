//! What a code stands for, by the textbook formula.

use plumbline_reference::format::{F64, Format, Specials};

/// `(-1)^s * (1.f or 0.f) * 2^(e - bias)` of the fields of a code. Exact in f64 for
/// every format.
pub(crate) fn value(format: Format, code: u64) -> f64 {
    if format == F64 {
        return f64::from_bits(code);
    }
    let fraction_bits = format.low_padding..format.low_padding + format.fraction_bits;
    let exponent_bits = fraction_bits.end..fraction_bits.end + format.exponent_bits;
    let sign_bits = exponent_bits.end..exponent_bits.end + u32::from(format.signed);
    let field = |bits: std::ops::Range<u32>| code >> bits.start & ((1 << bits.len()) - 1);

    let (fraction, exponent) = (field(fraction_bits), field(exponent_bits));
    let (fraction_ones, exponent_ones) = ((1 << format.fraction_bits) - 1, (1 << format.exponent_bits) - 1);
    let sign = if field(sign_bits) == 1 { -1.0 } else { 1.0 };
    match format.specials {
        Specials::Ieee if exponent == exponent_ones && fraction == 0 => return sign * f64::INFINITY,
        Specials::Ieee if exponent == exponent_ones => return f64::NAN.copysign(sign),
        Specials::NanAllOnes if exponent == exponent_ones && fraction == fraction_ones => {
            return f64::NAN.copysign(sign);
        }
        Specials::NanNegativeZero if sign < 0.0 && exponent == 0 && fraction == 0 => {
            return f64::NAN.copysign(sign);
        }
        _ => {}
    }
    let subnormal = format.subnormals && exponent == 0;
    let leading = if subnormal { 0 } else { 1 << format.fraction_bits };
    let scale = exponent.max(u64::from(subnormal)) as i32 - format.bias - format.fraction_bits as i32;
    sign * (leading + fraction) as f64 * power_of_two(scale)
}

/// `2^exponent` for the exponents of normal f64.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
