//! Recordings as JSON files.

use super::{Conversion, Recording};
use crate::report::brief;
use crate::sweep::{Staircase, Sweep};
use plumbline_reference::backend::Device;
use plumbline_reference::format::{Format, Rounding};
use plumbline_reference::ops::{Cast, Op};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The schema's name, which the file begins with.
const SCHEMA: &str = "plumbline.hardware/1";

/// What a device's conversion instructions give for every input.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordingFile {
    /// `plumbline.hardware/1`.
    schema: String,
    /// The day of the recording, in UTC.
    date: String,
    /// The command that records it again.
    command: String,
    /// The version of Plumbline that wrote it.
    version: String,
    /// The device, with versions of its driver and libraries.
    device: Device,
    /// One for each instruction.
    conversions: Vec<ConversionEntry>,
}

/// A conversion.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConversionEntry {
    /// The cast, as in case files.
    op: Op,
    /// The instruction's PTX opcode.
    instruction: String,
    /// How many inputs there are: all codes of the source format.
    inputs: u64,
    /// The digest of all results in the order of the inputs' patterns, as `plumbline sweep`
    /// prints it.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    digest: String,
    /// The results, where source or result has at most 8 bits: the pattern of the first
    /// input of each step and the code from there to the next step, ascending from pattern
    /// 0. All digits of both in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(inner(regex(pattern = "^[0-9a-f]{2,8} [0-9a-f]{2,16}$")))]
    steps: Option<Vec<String>>,
}

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("{} cannot be read: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {error}; choose another --out", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not a recording.
    #[error("{}: {place}: {why}; record it again with `cargo xtask record`", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The entry: `conversions[2].steps[7]`.
        place: String,
        /// What is wrong there.
        why: String,
    },
}

/// What is wrong, and where in the file.
type Flaw = (String, String);

impl Recording {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, RecordingError> {
        let read = fs::read_to_string(file);
        let text = read.map_err(|error| RecordingError::Read { file: file.to_owned(), error })?;
        Self::parse(file, &text)
    }

    /// Reads the text of a file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, RecordingError> {
        parsed(text).map_err(|(place, why)| RecordingError::Malformed { file: file.to_owned(), place, why })
    }

    /// Writes a file: whole beside its place first, then there. What stood there is replaced.
    pub fn write(&self, file: &Path) -> Result<(), RecordingError> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let draft = file.with_file_name(format!(".{name}.draft"));
        let written = || {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&draft, self.to_json()?)?;
            fs::rename(&draft, file)
        };
        written().map_err(|error| {
            let _ = fs::remove_file(&draft);
            RecordingError::Write { file: file.to_owned(), error }
        })
    }

    fn to_json(&self) -> serde_json::Result<String> {
        let file = RecordingFile {
            schema: SCHEMA.to_owned(),
            date: self.date.clone(),
            command: self.command.clone(),
            version: self.version.clone(),
            device: self.device.clone(),
            conversions: self.conversions.iter().map(entry).collect(),
        };
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }
}

fn entry(conversion: &Conversion) -> ConversionEntry {
    let Conversion { cast, instruction, digest, staircase } = conversion;
    let (from, to) = (cast.from.hex_digits(), cast.to.hex_digits());
    let step = |&(index, code): &(u64, u64)| format!("{:0from$x} {code:0to$x}", cast.from.code_at(index));
    ConversionEntry {
        op: (*cast).into(),
        instruction: instruction.clone(),
        inputs: 1 << cast.from.code_bits(),
        digest: format!("{digest:016x}"),
        steps: staircase.as_ref().map(|staircase| staircase.steps().iter().map(step).collect()),
    }
}

fn parsed(text: &str) -> Result<Recording, Flaw> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| (format!("line {}", error.line()), format!("is not JSON: {error}")))?;
    let schema = value["schema"].as_str().unwrap_or("none");
    if schema != SCHEMA {
        return Err(("schema".to_owned(), format!("is {schema}, this version reads {SCHEMA}")));
    }
    let file: RecordingFile = serde_path_to_error::deserialize(value)
        .map_err(|error| (error.path().to_string(), error.into_inner().to_string()))?;
    let mut conversions: Vec<Conversion> = Vec::with_capacity(file.conversions.len());
    for (i, entry) in file.conversions.iter().enumerate() {
        let at = format!("conversions[{i}]");
        let conversion = conversion(entry).map_err(|(place, why)| (format!("{at}.{place}"), why))?;
        if conversions.iter().any(|other| other.cast == conversion.cast) {
            return Err((format!("{at}.op"), format!("there is another entry of {}", brief(&entry.op))));
        }
        conversions.push(conversion);
    }
    let RecordingFile { date, command, version, device, .. } = file;
    Ok(Recording { date, command, version, device, conversions })
}

fn conversion(entry: &ConversionEntry) -> Result<Conversion, Flaw> {
    let flaw = |place: &str, why: String| (place.to_owned(), why);
    let Op::Cast(cast) = entry.op else {
        return Err(flaw("op", format!("is {}, only casts are recorded", entry.op.name())));
    };
    if cast.rounding == Rounding::Stochastic {
        return Err(flaw("op", "stochastic rounding has a second input and cannot be recorded".to_owned()));
    }
    let inputs = Sweep::all_inputs(cast.from).map_err(|error| flaw("op", error.to_string()))?.end;
    if entry.inputs != inputs {
        return Err(flaw("inputs", format!("{}, but {} has {inputs} codes", entry.inputs, cast.from)));
    }
    let digest = hex(&entry.digest, 16)
        .ok_or_else(|| flaw("digest", format!("`{}` is not 16 hex digits", entry.digest)))?;
    let staircase = entry.steps.as_ref().map(|steps| staircase(&cast, steps)).transpose()?;
    Ok(Conversion { cast, instruction: entry.instruction.clone(), digest, staircase })
}

fn staircase(cast: &Cast, lines: &[String]) -> Result<Staircase, Flaw> {
    let mut steps: Vec<(u64, u64)> = Vec::with_capacity(lines.len());
    for (i, line) in lines.iter().enumerate() {
        let flaw = |why| Err((format!("steps[{i}]"), why));
        let Some((input, code)) = step(cast, line) else {
            let zero = |format: Format| "0".repeat(format.hex_digits());
            let form = format!("{} {}", zero(cast.from), zero(cast.to));
            let why = format!(
                "`{line}` is not a pattern of {} and a code of {} of the form `{form}`",
                cast.from, cast.to
            );
            return flaw(why);
        };
        match steps.last() {
            None if input != 0 => return flaw("the first step must begin at pattern 0".to_owned()),
            Some(&(before, _)) if input <= before => {
                return flaw(format!("`{line}` is not above the step before it"));
            }
            Some(&(_, same)) if code == same => {
                return flaw(format!("`{line}` has the code of the step before it"));
            }
            _ => steps.push((input, code)),
        }
    }
    if steps.is_empty() {
        return Err(("steps".to_owned(), "is empty; the first step must begin at pattern 0".to_owned()));
    }
    Ok(Staircase::of(cast.to, steps))
}

/// Index of the input and the code of a line.
fn step(cast: &Cast, line: &str) -> Option<(u64, u64)> {
    let (input, code) = line.split_once(' ')?;
    let of =
        |format: Format, text| hex(text, format.hex_digits()).filter(|code| code & !format.code_mask() == 0);
    Some((of(cast.from, input)? >> cast.from.low_padding, of(cast.to, code)?))
}

/// Exactly so many hex digits; `from_str_radix` alone takes signs and fewer digits.
pub(super) fn hex(text: &str, digits: usize) -> Option<u64> {
    let valid = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
