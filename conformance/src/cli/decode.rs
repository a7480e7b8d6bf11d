//! `plumbline decode`: what a code stands for, and what rounds to it.

use super::number::{aligned, code_row, line, parse_code, parse_format, row, same};
use plumbline_reference::format::{BF16, Decimal, F16, F32, F64, Format, HexFloat, Policy, Value};

/// Shows what a code stands for, its neighbours, and what rounds to it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DecodeArgs {
    /// Codes in hex, separated by commas or spaces: 0x7e,0x7f
    #[arg(required = true, value_delimiter = ',', value_name = "CODE")]
    pub(super) codes: Vec<String>,
    /// The format of the codes
    #[arg(long, value_parser = parse_format, value_name = "FORMAT")]
    pub(super) from: Format,
}

/// The text to print.
pub(super) fn run(args: &DecodeArgs) -> anyhow::Result<String> {
    let codes: Result<Vec<_>, _> = args.codes.iter().map(|text| parse_code(text, args.from)).collect();
    let pages: Vec<_> = codes?.into_iter().map(|code| page(args.from, code)).collect();
    Ok(pages.join("\n"))
}

fn page(format: Format, code: u64) -> String {
    let mut rows = vec![code_row("value", format, code, format.name)];
    for (label, neighbour) in [("below", format.next_down(code)), ("above", format.next_up(code))] {
        rows.push(match neighbour {
            Some(neighbour) => code_row(label, format, neighbour, ""),
            None => row(label, ["none".to_owned()]),
        });
    }
    rows.extend([F32, F16, BF16, F64].map(|wide| decoded_row(format.decode(code), wide)));
    let class = line("class", &signed_class(format, code));
    aligned(&rows) + &class + &field_lines(format, code) + &interval_lines(format, code)
}

/// The value as operation `decode` gives it.
fn decoded_row(value: Value, to: Format) -> Vec<String> {
    let code = to.encode(value, &Policy::IEEE, 0);
    let remark = match value {
        Value::Nan { .. } => "canonical",
        _ if same(to.decode(code), value) => "exact",
        _ => "inexact",
    };
    code_row(to.name, to, code, remark)
}

/// `subnormal, negative`
fn signed_class(format: Format, code: u64) -> String {
    let sign = match (format.signed, format.decode(code).is_negative()) {
        (false, _) => "no sign",
        (true, false) => "positive",
        (true, true) => "negative",
    };
    format!("{}, {sign}", class_name(format, code))
}

/// `subnormal`
pub(super) fn class_name(format: Format, code: u64) -> String {
    format!("{:?}", format.classify(code)).to_lowercase()
}

/// The names of the fields that the format has, and below them their bits.
fn field_lines(format: Format, code: u64) -> String {
    let mut rest = code >> format.low_padding;
    let mut cells = Vec::new();
    for (name, bits) in [
        ("fraction", format.fraction_bits),
        ("exponent", format.exponent_bits),
        ("sign", format.signed.into()),
    ] {
        if bits > 0 {
            let field = rest & ((1 << bits) - 1);
            let field = format!("{field:0bits$b}", bits = bits as usize);
            let width = name.len().max(field.len());
            cells.insert(0, (format!("{name:>width$}"), format!("{field:>width$}")));
            rest >>= bits;
        }
    }
    let (names, fields): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
    line("fields", &names.join(" | ")) + &line("", &fields.join(" | "))
}

/// The reals that round to a code under nearest even, were there no largest value.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: End,
    high: End,
}

/// One end: where it is, and whether it belongs to the interval.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Value,
    closed: bool,
}

impl Interval {
    /// Of a finite code.
    fn of(format: Format, code: u64) -> Option<Self> {
        let value = format.decode(code);
        let Value::Finite { negative, significand, .. } = value else {
            return None;
        };
        let (away, toward) = match negative {
            false => (format.next_up(code), format.next_down(code)),
            true => (format.next_down(code), format.next_up(code)),
        };
        let even = significand & 1 == 0;
        let far = away
            .map(|code| format.decode(code))
            .filter(|value| matches!(value, Value::Finite { .. }))
            .map_or_else(|| threshold(value), |away| midpoint(value, away));
        let far = End { at: far, closed: even };
        let near = match toward.map(|code| format.decode(code)) {
            _ if significand == 0 && !format.has_negative_zero() => End { at: negated(far.at), closed: even },
            Some(toward) if significand != 0 => {
                // With one bit of precision ties go to the larger magnitude.
                End { at: midpoint(value, toward), closed: even || format.fraction_bits == 0 }
            }
            _ => End { at: Value::Finite { negative, significand: 0, exponent: 0 }, closed: true },
        };
        Some(if negative { Self { low: far, high: near } } else { Self { low: near, high: far } })
    }

    fn show(&self, number: impl Fn(Value) -> String) -> String {
        let open = if self.low.closed { '[' } else { '(' };
        let close = if self.high.closed { ']' } else { ')' };
        format!("{open}{}, {}{close}", number(self.low.at), number(self.high.at))
    }
}

/// What rounds to the code, in decimal where that is exact, and in hex.
fn interval_lines(format: Format, code: u64) -> String {
    let Some(interval) = Interval::of(format, code) else {
        return line("rounds here", &special_interval(format, code));
    };
    let is_f64 = |end: End| same(Value::from(end.at.to_f64()), end.at);
    let hex = interval.show(|value| HexFloat(value).to_string());
    let mut lines = String::new();
    if is_f64(interval.low) && is_f64(interval.high) {
        lines += &line("rounds here", &interval.show(|value| Decimal(value).to_string()));
        lines += &line("", &hex);
    } else {
        lines += &line("rounds here", &hex);
    }
    if code == format.lowest() {
        lines += &line("", "and all below, as overflow saturates by default");
    }
    if code == format.max_finite() {
        lines += &line("", "and all above, as overflow saturates by default");
    }
    lines
}

/// What rounds to an infinity or NaN.
fn special_interval(format: Format, code: u64) -> String {
    if !format.has_infinity() || format.decode(code).is_nan() {
        return "no number".to_owned();
    }
    let largest = format.decode(format.max_finite());
    let (negative, from) = (format.decode(code).is_negative(), HexFloat(threshold(largest)));
    // Every IEEE format's largest significand is odd: the tie leaves it.
    if negative {
        format!("[-inf, -{from}], unless overflow saturates, as it does by default")
    } else {
        format!("[{from}, inf], unless overflow saturates, as it does by default")
    }
}

/// Halfway between two neighbours.
pub(super) fn midpoint(a: Value, b: Value) -> Value {
    match (a, b) {
        (
            Value::Finite { negative: a_negative, significand: a, exponent: a_exponent },
            Value::Finite { negative: b_negative, significand: b, exponent: b_exponent },
        ) => {
            // Neighbours are at most one binade apart, and never on two sides of zero.
            let exponent = a_exponent.min(b_exponent);
            let sum = (a << (a_exponent - exponent)) + (b << (b_exponent - exponent));
            Value::Finite {
                negative: if a == 0 { b_negative } else { a_negative },
                significand: sum,
                exponent: exponent - 1,
            }
        }
        (special, Value::Finite { .. }) | (_, special) => special,
    }
}

/// Half a unit of the last place beyond a largest value: where overflow begins.
pub(super) fn threshold(largest: Value) -> Value {
    match largest {
        Value::Finite { negative, significand, exponent } => {
            Value::Finite { negative, significand: 2 * significand + 1, exponent: exponent - 1 }
        }
        special => special,
    }
}

fn negated(value: Value) -> Value {
    match value {
        Value::Nan { negative } => Value::Nan { negative: !negative },
        Value::Infinite { negative } => Value::Infinite { negative: !negative },
        Value::Finite { negative, significand, exponent } => {
            Value::Finite { negative: !negative, significand, exponent }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::{ALL, E4M3FN, E4M3FNUZ, E8M0};

    fn decode(codes: &[&str], from: Format) -> anyhow::Result<String> {
        run(&DecodeArgs { codes: codes.iter().map(|&code| code.to_owned()).collect(), from })
    }

    #[test]
    fn largest_of_e4m3fn() {
        let expected = "\
value        448.0  0x1.cp+8  0x7e                e4m3fn
below        416.0  0x1.ap+8  0x7d
above        none
f32          448.0  0x1.cp+8  0x43e00000          exact
f16          448.0  0x1.cp+8  0x5f00              exact
bf16         448.0  0x1.cp+8  0x43e0              exact
f64          448.0  0x1.cp+8  0x407c000000000000  exact
class        normal, positive
fields       sign | exponent | fraction
                0 |     1111 |      110
rounds here  [432.0, 464.0]
             [0x1.bp+8, 0x1.dp+8]
             and all above, as overflow saturates by default
";
        assert_eq!(decode(&["0x7e"], E4M3FN).unwrap(), expected);
    }

    #[test]
    fn nan_of_e4m3fn() {
        let expected = "\
value        NaN   nan  0x7f                e4m3fn
below        none
above        none
f32          NaN   nan  0x7fffffff          canonical
f16          NaN   nan  0x7fff              canonical
bf16         NaN   nan  0x7fff              canonical
f64          NaN   nan  0x7fffffffffffffff  canonical
class        nan, positive
fields       sign | exponent | fraction
                0 |     1111 |      111
rounds here  no number
";
        assert_eq!(decode(&["0x7f"], E4M3FN).unwrap(), expected);
    }

    #[test]
    fn zero_and_nan_of_e4m3fnuz() {
        let expected = "\
value        0.0            0x0p+0    0x00                e4m3fnuz
below        -0.0009765625  -0x1p-10  0x81
above        0.0009765625   0x1p-10   0x01
f32          0.0            0x0p+0    0x00000000          exact
f16          0.0            0x0p+0    0x0000              exact
bf16         0.0            0x0p+0    0x0000              exact
f64          0.0            0x0p+0    0x0000000000000000  exact
class        zero, positive
fields       sign | exponent | fraction
                0 |     0000 |      000
rounds here  [-0.00048828125, 0.00048828125]
             [-0x1p-11, 0x1p-11]

value        -NaN  -nan  0x80                e4m3fnuz
below        none
above        none
f32          NaN   nan   0x7fffffff          canonical
f16          NaN   nan   0x7fff              canonical
bf16         NaN   nan   0x7fff              canonical
f64          NaN   nan   0x7fffffffffffffff  canonical
class        nan, negative
fields       sign | exponent | fraction
                1 |     0000 |      000
rounds here  no number
";
        assert_eq!(decode(&["0x00", "0x80"], E4M3FNUZ).unwrap(), expected);
    }

    #[test]
    fn smallest_of_e8m0() {
        let expected = "\
value        5.877471754111438e-39   0x1p-127  0x00                e8m0
below        none
above        1.1754943508222875e-38  0x1p-126  0x01
f32          5.877471754111438e-39   0x1p-127  0x00400000          exact
f16          0.0                     0x0p+0    0x0000              inexact
bf16         5.877471754111438e-39   0x1p-127  0x0040              exact
f64          5.877471754111438e-39   0x1p-127  0x3800000000000000  exact
class        normal, no sign
fields       exponent
             00000000
rounds here  [0.0, 8.816207631167156e-39)
             [0x0p+0, 0x1.8p-127)
             and all below, as overflow saturates by default
";
        assert_eq!(decode(&["0x00"], E8M0).unwrap(), expected);
    }

    #[test]
    fn infinity_of_f16() {
        let text = decode(&["0xfc00"], F16).unwrap();
        let expected =
            "rounds here  [-inf, -0x1.ffep+15], unless overflow saturates, as it does by default\n";
        assert!(text.ends_with(expected), "{text}");
    }

    /// Codes at the edges of a format, or all of them.
    fn codes(format: Format) -> Vec<u64> {
        let count = u64::try_from(format.code_count()).unwrap_or(u64::MAX);
        if count <= 1 << 16 {
            return (0..count).map(|index| format.code_at(index)).collect();
        }
        let edges = [0, format.min_normal(), format.max_finite(), 1 << 40 & format.code_mask()];
        let near = |code: u64| [code.wrapping_sub(format.code_at(1)), code, code + format.code_at(1)];
        let positive = edges.into_iter().flat_map(near).map(|code| code & format.code_mask());
        positive.flat_map(|code| [code, code ^ format.sign_bit()]).collect()
    }

    /// The value moved by a small part of itself.
    fn nudged(value: Value, up: bool) -> Value {
        let Value::Finite { negative, significand, exponent } = value else { panic!("not finite") };
        let wide = significand << 8;
        let significand = if up == negative { wide - 1 } else { wide + 1 };
        Value::Finite { negative, significand, exponent: exponent - 8 }
    }

    #[test]
    fn intervals_are_what_the_encoder_rounds() {
        let is_zero = |value| matches!(value, Value::Finite { significand: 0, .. });
        for format in ALL {
            for code in codes(format) {
                let Some(Interval { low, high }) = Interval::of(format, code) else { continue };
                for (end, inward) in [(low, true), (high, false)] {
                    if is_zero(end.at) {
                        assert!(end.closed);
                        continue;
                    }
                    let hits = |value| format.encode(value, &Policy::IEEE, 0) == code;
                    let bounded = format.has_infinity() || code != format.max_finite();
                    if bounded && code & !format.sign_bit() != format.max_finite() {
                        assert_eq!(hits(end.at), end.closed, "{format} {code:#x} {end:?}");
                        assert!(!hits(nudged(end.at, !inward)), "{format} {code:#x} {end:?}");
                    }
                    assert!(hits(nudged(end.at, inward)), "{format} {code:#x} {end:?}");
                }
            }
        }
    }

    #[test]
    fn fits_a_terminal() {
        for format in ALL {
            for code in codes(format).into_iter().step_by(7) {
                let text = page(format, code);
                assert!(text.is_ascii());
                assert!(text.lines().all(|line| line.len() < 100 && line.trim_end() == line), "{text}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_code() {
        let message = |text| decode(&["0x7e", text], E4M3FN).unwrap_err().to_string();
        assert_eq!(
            message("126"),
            "`126` is not a code: write its bits in hex, without sign or point, as 0x38"
        );
        assert_eq!(message("0x1ff"), "`0x1ff` has 3 hex digits, but a code of e4m3fn has 2: write at most 2");
        for text in ["", "0x", "-0x1", "0x+1", "0x1p3", "\u{664}"] {
            assert!(message(text).contains("is not a code"), "{text}");
        }
    }
}
