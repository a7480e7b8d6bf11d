//! Numbers as people type them, the codes they stand for, and the tables that the
//! commands print them in.
//!
//! - `0x43e88000`: the bits of a code.
//! - `465`, `-0`, `1e-8`, `4.5e2`, `inf`, `-nan`: decimal.
//! - `0x1.d1p+8`: hexadecimal floating point, told from bits by its `p`.
//!
//! A number that is not a value of the format is rounded to nearest even, once: the
//! text is read to 62 bits, more than any format has, and one more bit says whether
//! anything is left below them. Going through f64 would round twice.

use plumbline_reference::DType;
use plumbline_reference::format::{ALL, Decimal, Format, HexFloat, NanPolicy, Policy, Value};
use rustc_apfloat::ieee::Quad;
use rustc_apfloat::{Float, Round, Status};

/// Longer than any decimal that matters: the midpoints of f64 have up to 1,075
/// digits after the point. The time to read a number grows with its length squared.
const MAX_LENGTH: usize = 4096;

/// Width of the first column of what the commands print.
const LABEL_WIDTH: usize = 11;

/// A number that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The code.
    pub(super) code: u64,
    /// The code's value is the number itself, not only the nearest to it.
    pub(super) exact: bool,
}

/// Why a text is not a number of a format, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {}", shown(text), self.reason())]
pub(super) struct NumberError {
    /// The text.
    pub(super) text: String,
    /// The format.
    pub(super) format: Format,
    /// What is wrong.
    pub(super) kind: NumberErrorKind,
}

/// What is wrong with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberErrorKind {
    /// Neither decimal, hex float nor bits.
    Unreadable,
    /// Not the bits of a code, where nothing else will do.
    NotBits,
    /// Longer than any number that matters.
    TooLong,
    /// That many hex digits, more than the format's codes have.
    TooManyDigits(usize),
    /// Bits that no code has.
    OutsideFormat(u64),
    /// Too large, or too small for a format without zero or without sign.
    OutOfRange,
    /// An infinity or NaN where the format has none.
    NoSuchSpecial,
}

impl NumberError {
    /// The end of the sentence that the text begins.
    fn reason(&self) -> String {
        let format = self.format;
        let example = format.hex(format.encode(Value::from(1f32), &Policy::default(), 0));
        let [lowest, largest] =
            [format.lowest(), format.max_finite()].map(|code| Decimal(format.decode(code)));
        match self.kind {
            NumberErrorKind::Unreadable => format!(
                "is not a number: write a decimal (465, 1e-8, -inf, nan), a hex float (0x1.d1p+8), \
                 or the bits of a code ({example})"
            ),
            NumberErrorKind::NotBits => {
                format!("is not a code: write its bits in hex, without sign or point, as {example}")
            }
            NumberErrorKind::TooLong => {
                format!("is {} bytes long: write at most {MAX_LENGTH}", self.text.len())
            }
            NumberErrorKind::TooManyDigits(given) => {
                let digits = format.hex_digits();
                format!("has {given} hex digits, but a code of {format} has {digits}: write at most {digits}")
            }
            NumberErrorKind::OutsideFormat(outside) => format!(
                "sets bits that {format} does not have, {}: clear them, its codes use {}",
                format.hex(outside),
                format.hex(format.code_mask()),
            ),
            NumberErrorKind::OutOfRange => {
                format!("is outside {format}: write a number from {lowest} to {largest}")
            }
            NumberErrorKind::NoSuchSpecial => {
                format!("is not a value of {format}: write a number from {lowest} to {largest}")
            }
        }
    }
}

impl Number {
    /// What to tell the user where the number is not exact, unless the code's value
    /// is printed as that very number: 0.1 in f64.
    #[must_use]
    pub(super) fn note(&self, text: &str, format: Format) -> Option<String> {
        let printed = read(&Decimal(format.decode(self.code)).to_string());
        if self.exact || printed.zip(read(text)).is_some_and(|(printed, typed)| same(printed, typed)) {
            return None;
        }
        let (claim, nearest) =
            (format!("{} is not exact in {format};", shown(text)), DType::Float(format).describe(self.code));
        let line = format!("{claim} the nearest is {nearest}");
        Some(if line.len() < 100 { line } else { format!("{claim} the nearest is\n  {nearest}") })
    }
}

/// The code of the number that `text` says, rounded once to nearest even if the
/// format lacks it. Too large a number becomes an infinity where there is one.
pub(super) fn parse(text: &str, format: Format) -> Result<Number, NumberError> {
    let error = |kind| NumberError { text: text.to_owned(), format, kind };
    if text.len() > MAX_LENGTH {
        return Err(error(NumberErrorKind::TooLong));
    }
    if hex_digits(text).is_some_and(|digits| is_digits(digits, 16)) {
        return Ok(Number { code: parse_code(text, format)?, exact: true });
    }
    let value = read(text).ok_or_else(|| error(NumberErrorKind::Unreadable))?;
    check_range(value, format).map_err(error)?;
    let code = format.encode(value, &Policy { nan: NanPolicy::SignKept, ..Policy::IEEE }, 0);
    Ok(Number { code, exact: value.is_nan() || same(format.decode(code), value) })
}

/// The code whose bits `text` says in hex.
pub(super) fn parse_code(text: &str, format: Format) -> Result<u64, NumberError> {
    let error = |kind| NumberError { text: text.to_owned(), format, kind };
    let digits = hex_digits(text).filter(|digits| is_digits(digits, 16));
    let digits = digits.ok_or_else(|| error(NumberErrorKind::NotBits))?;
    if digits.len() > format.hex_digits() {
        return Err(error(NumberErrorKind::TooManyDigits(digits.len())));
    }
    let code = u64::from_str_radix(digits, 16).map_err(|_| error(NumberErrorKind::NotBits))?;
    match code & !format.code_mask() {
        0 => Ok(code),
        outside => Err(error(NumberErrorKind::OutsideFormat(outside))),
    }
}

/// The format of that name; the error lists all names. For `value_parser` of
/// arguments.
pub(super) fn parse_format(name: &str) -> Result<Format, String> {
    Format::by_name(name).ok_or_else(|| {
        format!("unknown format, expected one of {}", ALL.map(|format| format.name).join(", "))
    })
}

/// The exact value of a decimal or hex float, or one so close that every format
/// rounds it alike.
fn read(text: &str) -> Option<Value> {
    let negative = text.starts_with('-');
    let magnitude = text.strip_prefix(['-', '+']).unwrap_or(text);
    match magnitude.to_ascii_lowercase().as_str() {
        "nan" => return Some(Value::Nan { negative }),
        "inf" | "infinity" => return Some(Value::Infinite { negative }),
        _ => {}
    }
    let well_formed = match hex_digits(magnitude) {
        Some(digits) => is_literal(digits, 16),
        None => is_literal(magnitude, 10),
    };
    // binary128 has room for twice the digits and 16 times the exponents of f64.
    let read = well_formed.then(|| Quad::from_str_r(magnitude, Round::TowardZero))?.ok()?;
    Some(rounded_to_odd(read.value.to_bits(), read.status != Status::OK, negative))
}

/// The leading 62 bits of a binary128 and a last bit that is set if anything,
/// `more` included, is left below them. To round that again is to round once.
fn rounded_to_odd(bits: u128, more: bool, negative: bool) -> Value {
    const FRACTION_BITS: u32 = 112;
    let field = (bits >> FRACTION_BITS) as i32;
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let significand = if field == 0 { fraction } else { 1 << FRACTION_BITS | fraction };
    let shift = (128 - significand.leading_zeros()).saturating_sub(62);
    let more = more || significand & ((1 << shift) - 1) != 0;
    let exponent = field.max(1) - 0x3fff - FRACTION_BITS as i32 + shift as i32 - 1;
    Value::Finite {
        negative,
        significand: ((significand >> shift) as u64) << 1 | u64::from(more),
        // To [2^1024, 2^1025), beyond every format, and to less than any can tell
        // from zero: exponents of this size do not overflow in an encoder.
        exponent: exponent.clamp(-1300, 1024 - 62),
    }
}

/// Digits with at most one point, then an exponent, which hex cannot do without.
fn is_literal(text: &str, radix: u32) -> bool {
    let mark = if radix == 16 { ['p', 'P'] } else { ['e', 'E'] };
    let (significand, exponent) = match text.split_once(mark) {
        Some((significand, exponent)) => (significand, Some(exponent)),
        None => (text, None),
    };
    let exponent_fits = match exponent {
        Some(exponent) => is_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent), 10),
        None => radix == 10,
    };
    exponent_fits && is_digits(&significand.replacen('.', "", 1), radix)
}

/// Whether the text is digits of that radix and nothing else.
pub(super) fn is_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn hex_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Refuses what has no code at all.
fn check_range(value: Value, format: Format) -> Result<(), NumberErrorKind> {
    match value {
        Value::Nan { .. } if !format.has_nan() => Err(NumberErrorKind::NoSuchSpecial),
        Value::Infinite { .. } if !format.has_infinity() => Err(NumberErrorKind::NoSuchSpecial),
        Value::Finite { .. } if !format.has_infinity() => {
            let range = format.to_f64(format.lowest())..=format.to_f64(format.max_finite());
            if range.contains(&value.to_f64()) { Ok(()) } else { Err(NumberErrorKind::OutOfRange) }
        }
        _ => Ok(()),
    }
}

/// A user's text for a message: in ASCII, and not too long.
fn shown(text: &str) -> String {
    const WIDTH: usize = 40;
    let mut escaped = text.chars().take(WIDTH + 1).flat_map(char::escape_default).collect::<String>();
    if escaped.len() > WIDTH {
        escaped.truncate(WIDTH - 3);
        escaped.push_str("...");
    }
    escaped
}

/// Whether two values are the same number, signs of zeros included.
pub(super) fn same(a: Value, b: Value) -> bool {
    reduced(a) == reduced(b)
}

/// The value with an odd significand.
fn reduced(value: Value) -> Value {
    match value {
        Value::Finite { negative, significand: 0, .. } => {
            Value::Finite { negative, significand: 0, exponent: 0 }
        }
        Value::Finite { negative, significand, exponent } => {
            let zeros = significand.trailing_zeros();
            Value::Finite { negative, significand: significand >> zeros, exponent: exponent + zeros as i32 }
        }
        special => special,
    }
}

/// A line under a label.
pub(super) fn line(label: &str, text: &str) -> String {
    format!("{label:LABEL_WIDTH$}  {text}\n")
}

/// A row for [`aligned`]: a label and cells.
pub(super) fn row<const N: usize>(label: &str, cells: [String; N]) -> Vec<String> {
    std::iter::once(format!("{label:LABEL_WIDTH$}")).chain(cells).collect()
}

/// A row for [`aligned`]: a value as decimal and hex float.
pub(super) fn value_row(label: &str, value: Value) -> Vec<String> {
    row(label, [Decimal(value).to_string(), HexFloat(value).to_string()])
}

/// A row for [`aligned`]: a code's value, its bits and a remark.
pub(super) fn code_row(label: &str, format: Format, code: u64, remark: &str) -> Vec<String> {
    let mut row = value_row(label, format.decode(code));
    row.extend([format.hex(code), remark.to_owned()]);
    row
}

/// Rows with their columns aligned, one line each.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::{BF16, E2M1, E4M3FN, E4M3FNUZ, E8M0, F16, F32, F64, TF32, UE4M3};
    use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

    fn code(text: &str, format: Format) -> u64 {
        parse(text, format).unwrap().code
    }

    fn message(text: &str, format: Format) -> String {
        parse(text, format).unwrap_err().to_string()
    }

    #[test]
    fn bits() {
        assert_eq!(parse("0x43e88000", F32), Ok(Number { code: 0x43e8_8000, exact: true }));
        assert_eq!(parse("0X7E", E4M3FN), Ok(Number { code: 0x7e, exact: true }));
        assert_eq!(parse("0xffffffffffffffff", F64), Ok(Number { code: u64::MAX, exact: true }));
        assert_eq!(
            message("0x1ff", E4M3FN),
            "`0x1ff` has 3 hex digits, but a code of e4m3fn has 2: write at most 2"
        );
        assert_eq!(
            message("0x1f", E2M1),
            "`0x1f` sets bits that e2m1 does not have, 0x10: clear them, its codes use 0x0f"
        );
        assert_eq!(
            message("0x3f801000", TF32),
            "`0x3f801000` sets bits that tf32 does not have, 0x00001000: clear them, its codes use 0xffffe000"
        );
    }

    #[test]
    fn decimals_and_hex_floats() {
        for (text, bits) in [
            ("465", 0x43e8_8000),
            ("4.65e2", 0x43e8_8000),
            ("+.465E+3", 0x43e8_8000),
            ("465.", 0x43e8_8000),
            ("0x1.d1p+8", 0x43e8_8000),
            ("0X1D1P0", 0x43e8_8000),
            ("-0x.8p-1", 0xbe80_0000),
            ("0", 0),
            ("-0", 0x8000_0000),
            ("-0e99", 0x8000_0000),
            ("inf", 0x7f80_0000),
            ("-Infinity", 0xff80_0000),
            ("nan", 0x7fff_ffff),
            ("-NaN", 0xffff_ffff),
        ] {
            assert_eq!(parse(text, F32), Ok(Number { code: bits, exact: true }), "{text}");
        }
        assert_eq!(parse("1e-8", F32), Ok(Number { code: 0x322b_cc77, exact: false }));
    }

    #[test]
    fn specials_of_small_formats() {
        assert_eq!((code("nan", E4M3FN), code("-nan", E4M3FN)), (0x7f, 0xff));
        assert_eq!((code("nan", E4M3FNUZ), code("-nan", E4M3FNUZ)), (0x80, 0x80));
        assert_eq!((code("nan", E8M0), code("-nan", E8M0)), (0xff, 0xff));
        assert_eq!(parse("-0", E4M3FNUZ), Ok(Number { code: 0, exact: false }));
        assert_eq!(
            message("inf", E4M3FN),
            "`inf` is not a value of e4m3fn: write a number from -448.0 to 448.0"
        );
        assert_eq!(message("nan", E2M1), "`nan` is not a value of e2m1: write a number from -6.0 to 6.0");
    }

    #[test]
    fn range() {
        assert_eq!(parse("1e39", F32), Ok(Number { code: 0x7f80_0000, exact: false }));
        assert_eq!(parse("-1e999999999999", F64), Ok(Number { code: 0xfff << 52, exact: false }));
        assert_eq!(parse("-0x1p-999999999999", F64), Ok(Number { code: 1 << 63, exact: false }));
        assert_eq!(message("450", E4M3FN), "`450` is outside e4m3fn: write a number from -448.0 to 448.0");
        assert_eq!(message("-1", UE4M3), "`-1` is outside ue4m3: write a number from 0.0 to 448.0");
        for text in ["0", "-0", "-1", "1e-99", "1e39"] {
            assert!(message(text, E8M0).contains("is outside e8m0"), "{text}");
        }
    }

    #[test]
    fn rounds_once() {
        // A digit too far beyond the midpoint for f64 to see.
        let long = |digits: &str, last: char| format!("{digits}{}{last}", "0".repeat(40));
        let above = |digits| long(digits, '1');
        assert_eq!(code("1.00048828125", F16), 0x3c00);
        assert_eq!(code(&above("1.00048828125"), F16), 0x3c01);
        assert_eq!(code(&above("2049."), F16), 0x6801);
        assert_eq!(code("2.98023223876953125e-8", F16), 0);
        assert_eq!(code("0.0000000298023223876953125000000000000000000000000001", F16), 1);
        assert_eq!(code(&above("65519."), F16), 0x7bff);
        assert_eq!(code(&above("1.00390625"), BF16), 0x3f81);
        assert_eq!(code(&above("1.000000059604644775390625"), F32), 0x3f80_0001);
        assert_eq!(code(&above("17."), E4M3FN), 0x59);
        assert_eq!(code("17", E4M3FN), 0x58);
        assert_eq!(code("0x1.00000000000008000000000000000000000000000001p0", F64), 0x3ff0_0000_0000_0001);
        assert_eq!(code("0x1p-1075", F64), 0);
        assert_eq!(code(&format!("0x1.{}1p-1075", "0".repeat(40)), F64), 1);
    }

    /// Another implementation's reading of the text.
    fn apfloat(text: &str, format: Format) -> u64 {
        fn bits<T: Float>(text: &str) -> u64 {
            u64::try_from(text.parse::<T>().ok().unwrap().to_bits()).unwrap()
        }
        match format {
            F16 => bits::<Half>(text),
            BF16 => bits::<BFloat>(text),
            F32 => bits::<Single>(text),
            _ => bits::<Double>(text),
        }
    }

    #[test]
    fn agrees_with_apfloat_and_std() {
        for i in 0..4000 {
            let [a, b] = [0, 1].map(|j| crate::seed::mix(i, j));
            let exponent = (b % 700) as i32 - 350;
            let narrow = (b >> 32) as i32 % 50 - 10;
            for text in [
                format!("{a}e{exponent}"),
                format!("-{a}.{b}e{narrow}"),
                format!("0x{a:x}.{b:x}p{}", narrow - 80),
                format!(
                    "0x1.{:03x}{}p{narrow}",
                    a % 4096,
                    ["", "8", "80000000000000000000000000001"][(b % 3) as usize]
                ),
            ] {
                for format in [F16, BF16, F32, F64] {
                    assert_eq!(code(&text, format), apfloat(&text, format), "{text} {format}");
                }
            }
            let text = format!("{a}e{exponent}");
            assert_eq!(code(&text, F64), text.parse::<f64>().unwrap().to_bits());
            assert_eq!(code(&text, F32), u64::from(text.parse::<f32>().unwrap().to_bits()));
        }
    }

    #[test]
    fn printed_values_read_back() {
        for format in ALL {
            let codes = (0..1 << 12).map(|i| crate::seed::mix(7, i) & format.code_mask());
            for value in codes.map(|code| format.decode(code)).filter(|value| !value.is_nan()) {
                let code = format.encode(value, &Policy::IEEE, 0);
                let hex = HexFloat(value).to_string();
                assert_eq!(parse(&hex, format), Ok(Number { code, exact: true }), "{hex}");
                let decimal = Decimal(value).to_string();
                let number = parse(&decimal, format).unwrap();
                assert_eq!((number.code, number.note(&decimal, format)), (code, None), "{decimal}");
            }
        }
    }

    #[test]
    fn notes() {
        let note = |text: &str, format| parse(text, format).unwrap().note(text, format);
        assert_eq!(note("465", F32), None);
        assert_eq!(
            note("465.1", F32).as_deref(),
            Some("465.1 is not exact in f32; the nearest is 465.1000061035156 (0x1.d1199ap+8, 0x43e88ccd)")
        );
        assert_eq!(note("0.1", F64), None);
        let long = "0.".to_owned() + &"3".repeat(60);
        assert_eq!(
            note(&long, F64).as_deref(),
            Some(
                "0.33333333333333333333333333333333333... is not exact in f64; the nearest is\n  \
                 0.3333333333333333 (0x1.5555555555555p-2, 0x3fd5555555555555)"
            )
        );
    }

    #[test]
    fn refuses_what_is_no_number() {
        assert_eq!(
            message("x", F32),
            "`x` is not a number: write a decimal (465, 1e-8, -inf, nan), a hex float (0x1.d1p+8), \
             or the bits of a code (0x3f800000)"
        );
        for text in [
            "",
            "-",
            "+",
            ".",
            "-.",
            "e",
            "e5",
            "1e",
            "1e+",
            "1e5e",
            "1e5.0",
            "1.2.3",
            "1..",
            "--1",
            "+-1",
            " 1",
            "1 ",
            "1_000",
            "1,5",
            "0x",
            "0x.p1",
            "0xp1",
            "0x1.8",
            "-0x1",
            "0x1p",
            "0x1p+",
            "0x1pf",
            "0x+1",
            "0xg",
            "snan",
            "nan(1)",
            "infinit",
            "++inf",
            "\u{2212}1",
            "\u{664}",
            "\u{1f600}",
            "\0",
            "1\u{0}",
            "0x\u{664}",
            "1e\u{664}",
        ] {
            assert!(message(text, F16).contains("is not a number"), "{text}");
        }
        assert!(message("\u{2212}1\n", F16).starts_with("`\\u{2212}1\\n` is not"));
        assert!(message(&"9".repeat(5000), F16).ends_with("9...` is 5000 bytes long: write at most 4096"));
    }

    #[test]
    fn no_text_panics() {
        let alphabet: Vec<_> = "0123456789abcdefxXpPeE+-..inftyNA_ \u{e9}\u{1f600}".chars().collect();
        for i in 0..200_000 {
            let length = crate::seed::mix(1, i) % 12;
            let prefix = ["", "0x", "-", "1e", "0x1p", "-0x."][crate::seed::mix(2, i) as usize % 6];
            let pick = |j| alphabet[crate::seed::mix(i, j) as usize % alphabet.len()];
            let text = format!("{prefix}{}", (0..length).map(pick).collect::<String>());
            let format = ALL[crate::seed::mix(3, i) as usize % ALL.len()];
            if let Ok(number) = parse(&text, format) {
                assert_eq!(number.code & !format.code_mask(), 0, "{text}");
                let _ = number.note(&text, format);
            }
        }
        for text in
            ["1e2147483647", "1e-2147483648", "1e99999999999999999999", "0x1p2147483647", "0x1p-2147483648"]
        {
            for zeros in [0, 1, 4000] {
                let padded = text.replacen('1', &format!("{0}.{0}1", "0".repeat(zeros / 2)), 1);
                assert!(
                    ALL.iter().all(|&format| parse(&padded, format).map_or(true, |number| !number.exact))
                );
            }
        }
        for text in
            ["9".repeat(4096), format!("0.{}", "3".repeat(4094)), format!("{}e-4000", "7".repeat(4090))]
        {
            assert!(parse(&text, F64).is_ok());
        }
    }
}
