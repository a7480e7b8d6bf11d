//! A device, played back from its recording.

use super::scalar::{check_policy, check_variant, elementwise, no_conversion, no_operation};
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::format::{E4M3FN, E5M2, F32, Policy};
use plumbline_reference::{Tensor, ops::Op};
use std::sync::LazyLock;

/// The conversion instructions of an NVIDIA H200, f32 to E4M3FN and E5M2, played
/// back from a recording of the inputs at which the result changes.
///
/// A line of the recording is `e4m3 43d80000 7e`: the format, the bits of the
/// smallest f32 that gives the code, the code. Lines of one format are in ascending
/// order and begin at input 0. They are magnitudes: a negative input gives the
/// same code with the sign bit, except that every NaN gives the positive code. Lines
/// that begin with `#` are comments.
#[derive(Clone, Debug)]
pub struct Playback {
    e4m3: Steps,
    e5m2: Steps,
}

/// Magnitudes, ascending from 0, with the code of each and of those up to the next.
type Steps = Vec<(u32, u8)>;

/// Why a recording cannot be played back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaybackError {
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
        input: u32,
    },
    /// A format without lines, or whose first line is not input 0.
    #[error("no line for {format} at input 00000000, where its recording must begin")]
    Missing {
        /// The format.
        format: &'static str,
    },
}

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7f80_0000;

/// Exactly `digits` hex digits; `from_str_radix` alone takes signs and fewer digits.
fn hex(field: &str, digits: usize) -> Option<u32> {
    let valid = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| u32::from_str_radix(field, 16).ok()).flatten()
}

/// Format, magnitude and code of a line.
fn fields(line: &str) -> Option<(&str, u32, u8)> {
    let mut fields = line.split_whitespace();
    let (format, input, code) = (fields.next()?, fields.next()?, fields.next()?);
    let input = hex(input, 8).filter(|input| input & SIGN == 0)?;
    let code = u8::try_from(hex(code, 2)?).ok()?;
    fields.next().is_none().then_some((format, input, code))
}

impl Playback {
    /// The backend's name.
    pub const NAME: &str = "h200";
    /// Its only variant.
    pub const VARIANT: &str = "recorded";

    /// The recording of an H200 that comes with the project.
    pub fn h200() -> &'static Self {
        static H200: LazyLock<Playback> = LazyLock::new(|| {
            let recording = include_str!("../../../fixtures/hardware/h200_cast_breakpoints.txt");
            Playback::parse(recording).expect("the recording that comes with the project is whole")
        });
        &H200
    }

    /// Reads a recording.
    pub fn parse(recording: &str) -> Result<Self, PlaybackError> {
        let (mut e4m3, mut e5m2) = (Steps::new(), Steps::new());
        for (text, line) in recording.lines().zip(1..) {
            if text.trim().is_empty() || text.trim_start().starts_with('#') {
                continue;
            }
            let malformed = || PlaybackError::Malformed { line, text: text.to_owned() };
            let (name, input, code) = fields(text).ok_or_else(malformed)?;
            let (steps, format) = match name {
                "e4m3" => (&mut e4m3, "e4m3"),
                "e5m2" => (&mut e5m2, "e5m2"),
                _ => return Err(malformed()),
            };
            if steps.last().is_some_and(|&(last, _)| last >= input) {
                return Err(PlaybackError::Unsorted { line, format, input });
            }
            steps.push((input, code));
        }
        for (steps, format) in [(&e4m3, "e4m3"), (&e5m2, "e5m2")] {
            if steps.first().is_none_or(|&(first, _)| first != 0) {
                return Err(PlaybackError::Missing { format });
            }
        }
        Ok(Self { e4m3, e5m2 })
    }

    fn steps(&self, op: &Op) -> Result<&Steps, Unsupported> {
        let Op::Cast(cast) = op else { return Err(no_operation(op)) };
        let steps = match (cast.from, cast.to) {
            (F32, E4M3FN) => &self.e4m3,
            (F32, E5M2) => &self.e5m2,
            (from, to) => return Err(no_conversion(op, from, to)),
        };
        check_policy(cast.policy(), Policy::default())?;
        Ok(steps)
    }
}

/// What the device gave for the f32 of these bits.
fn recorded(steps: &[(u32, u8)], bits: u32) -> u8 {
    let magnitude = bits & !SIGN;
    // The steps begin at 0, so one of them is not above the magnitude.
    let above = steps.partition_point(|&(first, _)| first <= magnitude);
    let code = steps[above - 1].1;
    let negative = bits & SIGN != 0 && magnitude <= INFINITY;
    if negative { code | 0x80 } else { code }
}

impl Backend for Playback {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn device(&self) -> Device {
        let properties = [
            ("compute capability", "9.0"),
            ("cuda", "13.0"),
            ("driver", "580.159.04"),
            ("instruction", "cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32"),
            ("source", "recording"),
        ];
        Device {
            name: "NVIDIA H200".to_owned(),
            properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        }
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        self.steps(op).map(drop)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![Self::VARIANT.to_owned()]
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let steps = self.steps(op)?;
        check_variant(op, variant, &[Self::VARIANT])?;
        elementwise(op, inputs, |code| recorded(steps, code as u32).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_agrees, edges};
    use super::*;
    use plumbline_reference::format::{F16, NanPolicy};
    use plumbline_reference::ops::Cast;

    fn h200() -> &'static Playback {
        Playback::h200()
    }

    #[test]
    fn recording_equals_the_reference_at_every_step_and_just_below_it() {
        for (steps, to) in [(&h200().e4m3, E4M3FN), (&h200().e5m2, E5M2)] {
            let magnitudes = steps.iter().flat_map(|&(first, _)| [first, first.saturating_sub(1)]);
            let inputs: Vec<_> = magnitudes.flat_map(|x| [x, x | SIGN]).map(u64::from).collect();
            assert!(inputs.len() > 4 * 120, "the recording of {to} is short");
            assert_agrees(h200(), &Cast::new(F32, to).into(), &inputs);
        }
    }

    #[test]
    fn recording_equals_the_reference_at_edges_and_everywhere_between() {
        for to in [E4M3FN, E5M2] {
            assert_agrees(h200(), &Cast::new(F32, to).into(), &edges(F32, to));
            let sample: Vec<_> = (0..1 << 32).step_by(99_991).collect();
            assert_agrees(h200(), &Cast::new(F32, to).into(), &sample);
        }
    }

    #[test]
    fn every_nan_gives_the_positive_nan() {
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0xffc0_0000, 0xffff_ffff] {
            assert_eq!(recorded(&h200().e4m3, bits), 0x7f);
            assert_eq!(recorded(&h200().e5m2, bits), 0x7f);
        }
        assert_eq!(recorded(&h200().e5m2, 0xff80_0000), 0xfb);
    }

    #[test]
    fn other_casts_and_policies_are_unsupported() {
        let why = |op: Op| h200().supports(&op).unwrap_err().0;
        assert_eq!(why(Cast::new(F16, E4M3FN).into()), "has no cast from f16 to e4m3fn");
        let sign_kept = Cast { nan: NanPolicy::SignKept, ..Cast::new(F32, E4M3FN) };
        assert_eq!(why(sign_kept.into()), "implements one policy; declare nan: canonical");
    }

    #[test]
    fn parse_errors_name_the_line() {
        let start = "# comment\n\ne4m3 00000000 00\ne5m2 00000000 00\n";
        let parse = |rest: &str| Playback::parse(&format!("{start}{rest}"));
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
            let expected = PlaybackError::Malformed { line: 5, text: text.to_owned() };
            assert_eq!(parse(text).unwrap_err(), expected);
        }
        assert_eq!(
            parse("e5m2 37000001 01\ne5m2 37000001 02").unwrap_err(),
            PlaybackError::Unsorted { line: 6, format: "e5m2", input: 0x3700_0001 }
        );
        let e4m3 = "e4m3 00000000 00\n";
        for recording in [e4m3.to_owned(), format!("{e4m3}e5m2 37000001 01")] {
            let expected = PlaybackError::Missing { format: "e5m2" };
            assert_eq!(Playback::parse(&recording).unwrap_err(), expected);
        }
    }
}
