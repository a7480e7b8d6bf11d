//! The older form of a recording: f32 to E4M3FN and E5M2, by magnitudes.
//!
//! A line is `e4m3 43d80000 7e`: the format, the bits of the smallest f32 that gives the code,
//! the code. Lines of one format are in ascending order and begin at input 0. They are
//! magnitudes: a negative input gives the same code with the sign bit, except that every NaN
//! gives the positive code. Lines that begin with `#` are comments.

use super::file::hex;
use crate::sweep::Staircase;
use plumbline_reference::format::{E4M3FN, E5M2, F32, Format};
use plumbline_reference::ops::Cast;

/// Why a recording cannot be played back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MagnitudesError {
    /// A line that is not a format, an input and a code.
    #[error("line {line}: `{text}` is not of the form `e4m3 43d80000 7e`")]
    Malformed {
        /// The line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// An input that is not above the one before.
    #[error("line {line}: input {input:08x} of {format} is not above the one before it")]
    Unsorted {
        /// The line, from 1.
        line: usize,
        /// The format.
        format: &'static str,
        /// The input.
        input: u64,
    },
    /// A format without lines, or whose first line is not input 0.
    #[error("no line for {format} at input 00000000, where its recording must begin")]
    Missing {
        /// The format.
        format: &'static str,
    },
}

const SIGN: u64 = 1 << 31;
const INFINITY: u64 = 0x7f80_0000;

/// Names of the formats in lines.
const FORMATS: [(&str, Format); 2] = [("e4m3", E4M3FN), ("e5m2", E5M2)];

/// Format, magnitude and code of a line.
fn fields(line: &str) -> Option<(usize, u64, u64)> {
    let mut fields = line.split_whitespace();
    let (name, input, code) = (fields.next()?, fields.next()?, fields.next()?);
    let format = FORMATS.iter().position(|(known, _)| *known == name)?;
    let input = hex(input, 8).filter(|input| input & SIGN == 0)?;
    let code = hex(code, 2)?;
    fields.next().is_none().then_some((format, input, code))
}

/// Reads a recording.
pub fn parse(recording: &str) -> Result<[(Cast, Staircase); 2], MagnitudesError> {
    let mut magnitudes = [Vec::new(), Vec::new()];
    for (text, line) in recording.lines().zip(1..) {
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        let malformed = || MagnitudesError::Malformed { line, text: text.to_owned() };
        let (of, input, code) = fields(text).ok_or_else(malformed)?;
        if magnitudes[of].last().is_some_and(|&(last, _)| last >= input) {
            return Err(MagnitudesError::Unsorted { line, format: FORMATS[of].0, input });
        }
        magnitudes[of].push((input, code));
    }
    for (magnitudes, (format, _)) in magnitudes.iter().zip(FORMATS) {
        if magnitudes.first().is_none_or(|&(first, _)| first != 0) {
            return Err(MagnitudesError::Missing { format });
        }
    }
    let [e4m3, e5m2] = magnitudes;
    Ok([signed(e4m3, E4M3FN), signed(e5m2, E5M2)])
}

/// The steps of both signs.
fn signed(magnitudes: Vec<(u64, u64)>, to: Format) -> (Cast, Staircase) {
    let negative = magnitudes.iter().map(|&(magnitude, code)| {
        let sign = if magnitude <= INFINITY { to.sign_bit() } else { 0 };
        (magnitude | SIGN, code | sign)
    });
    let negative: Vec<_> = negative.collect();
    (Cast::new(F32, to), Staircase::of(to, [magnitudes, negative].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signs_have_steps_and_a_nan_has_none() {
        let text = "e4m3 00000000 00\ne4m3 3a800001 01\ne4m3 7f800001 7f\ne5m2 00000000 00\n";
        let [(cast, e4m3), _] = parse(text).unwrap();
        assert_eq!(cast, Cast::new(F32, E4M3FN));
        let steps = [
            (0, 0),
            (0x3a80_0001, 1),
            (0x7f80_0001, 0x7f),
            (0x8000_0000, 0x80),
            (0xba80_0001, 0x81),
            (0xff80_0001, 0x7f),
        ];
        assert_eq!(e4m3.steps(), steps);
    }

    #[test]
    fn errors_name_the_line() {
        let start = "# comment\n\ne4m3 00000000 00\ne5m2 00000000 00\n";
        let parse = |rest: &str| parse(&format!("{start}{rest}"));
        assert!(parse("").is_ok());
        for text in [
            "e4m3 3a800001",
            "e4m3 3a80001 01",
            "e4m3 +a800001 01",
            "e4m3 3a800001 101",
            "e4m3 3a800001 01 02",
            "e4m3 80000001 01",
            "e3m4 3a800001 01",
            "e4m3 3a800001 é",
        ] {
            let expected = MagnitudesError::Malformed { line: 5, text: text.to_owned() };
            assert_eq!(parse(text).unwrap_err(), expected);
        }
        assert_eq!(
            parse("e5m2 37000001 01\ne5m2 37000001 02").unwrap_err(),
            MagnitudesError::Unsorted { line: 6, format: "e5m2", input: 0x3700_0001 }
        );
        let e4m3 = "e4m3 00000000 00\n";
        for recording in [e4m3.to_owned(), format!("{e4m3}e5m2 37000001 01")] {
            let expected = MagnitudesError::Missing { format: "e5m2" };
            assert_eq!(super::parse(&recording).unwrap_err(), expected);
        }
    }
}
