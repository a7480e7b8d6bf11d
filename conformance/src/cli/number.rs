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
use std::cmp::Ordering;

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
    match hex_digits(magnitude) {
        Some(digits) => {
            // binary128 has room for twice the digits and 16 times the exponents of f64.
            let read =
                is_literal(digits, 16).then(|| Quad::from_str_r(magnitude, Round::TowardZero))?.ok()?;
            Some(rounded_to_odd(read.value.to_bits(), read.status != Status::OK, negative))
        }
        None => is_literal(magnitude, 10).then(|| decimal(magnitude, negative))?,
    }
}

/// A decimal as its nearest f64, moved a quarter of an ulp toward the decimal where they
/// differ: any rounding then decides as for the decimal itself, since what it compares
/// with (a midpoint of a narrower format, or of f64) is that f64 or at least half an ulp
/// away.
fn decimal(magnitude: &str, negative: bool) -> Option<Value> {
    let nearest: f64 = magnitude.parse().ok()?;
    let finite = |significand, exponent| Some(Value::Finite { negative, significand, exponent });
    // Every f64 has at most 1074 digits after the point, and this prints them all.
    let order = Digits::of(magnitude).cmp(&Digits::of(&format!("{nearest:.1074}")));
    match (Value::from(nearest), order) {
        (Value::Infinite { .. }, _) => finite(1, 2000),
        (Value::Finite { significand, exponent, .. }, Ordering::Equal) => finite(significand, exponent),
        (Value::Finite { significand: 0, .. }, _) => finite(1, -2000),
        (Value::Finite { significand, exponent, .. }, Ordering::Greater) => {
            finite(4 * significand + 1, exponent - 2)
        }
        (Value::Finite { significand, exponent, .. }, Ordering::Less) => {
            finite(4 * significand - 1, exponent - 2)
        }
        (Value::Nan { .. }, _) => None,
    }
}

/// A decimal as `0.digits * 10^point`, without zeros at either end: ordered as numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Digits {
    point: i64,
    digits: String,
}

impl Digits {
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        // One too long to be a number is beyond every f64 in its direction.
        let beyond = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
        let exponent = exponent.parse().unwrap_or(beyond).clamp(i64::MIN / 2, i64::MAX / 2);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let point = exponent + whole.len() as i64 - (all.len() - digits.len()) as i64;
        let digits = digits.trim_end_matches('0').to_owned();
        Self { point: if digits.is_empty() { i64::MIN } else { point }, digits }
    }
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
mod tests;
