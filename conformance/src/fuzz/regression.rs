//! Findings as literal cases: one file per operation, each case once.

use super::sample::Sample;
use super::target::{Finding, Target};
use crate::case::Criterion;
use crate::judge::Element;
use crate::load::{LoadError, load};
use crate::seed::hash;
use crate::source::Case;
use crate::verdict::Verdict;
use plumbline_reference::{DType, Path as Evaluation, Tensor};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A finding as a case.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The file.
    pub file: PathBuf,
    /// The case, as loaded from it.
    pub case: Case,
    /// Whether it was already there.
    pub known: bool,
}

/// Why a finding could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RegressionError {
    /// The file or folder cannot be written.
    #[error("{file}: {error}")]
    Write {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not one that cases can be added to.
    #[error(
        "{file}: a case cannot be added at its end ({why}); let it be a list `cases:` with one `- name:` per case, \
         or choose another folder with --regressions"
    )]
    Append {
        /// The file.
        file: String,
        /// What loading it with the case gave.
        why: String,
    },
    /// The file is there and is not a file of cases.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The finding is not a call that can be written.
    #[error("the finding cannot be written as a case: {0}")]
    Sample(String),
}

/// Adds a finding to the file of its operation in `folder`, unless the same operation
/// with the same inputs is already there.
pub fn record(folder: &Path, target: &Target, finding: &Finding) -> Result<Regression, RegressionError> {
    let file = folder.join(format!("{}.yaml", target.operation()));
    let (name, text) = written(target, finding)?;
    let existing = if file.exists() { load(&file)? } else { Vec::new() };
    let same = existing.into_iter().find(|case| is_call(case, &finding.sample));
    if let Some(case) = same {
        return Ok(Regression { file, case, known: true });
    }
    let failed = |file: &Path, error| RegressionError::Write { file: file.display().to_string(), error };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let before = if file.exists() {
        fs::read_to_string(&file).map_err(|error| failed(&file, error))?
    } else {
        "# Found by `plumbline fuzz`: each case once failed on some backend.\ncases:\n".to_owned()
    };
    let newline = if before.ends_with('\n') { "" } else { "\n" };
    // Written whole beside the file and looked at before it takes the file's place.
    let draft = folder.join(format!(".{}.yaml.draft", target.operation()));
    fs::write(&draft, format!("{before}{newline}{text}")).map_err(|error| failed(&draft, error))?;
    let added = load(&draft).map_err(|error| error.why).and_then(|cases| {
        let found = cases.into_iter().any(|case| case.spec.name == name && is_call(&case, &finding.sample));
        if found { Ok(()) } else { Err("the case is not in its list".to_owned()) }
    });
    if let Err(why) = added {
        let _ = fs::remove_file(&draft);
        return Err(RegressionError::Append { file: file.display().to_string(), why });
    }
    fs::rename(&draft, &file).map_err(|error| failed(&file, error))?;
    let case = load(&file)?.into_iter().find(|case| is_call(case, &finding.sample));
    let case = case.ok_or_else(|| RegressionError::Sample("it was not read back".to_owned()))?;
    Ok(Regression { file, case, known: false })
}

/// Whether a case is that operation with those inputs, given literally.
fn is_call(case: &Case, sample: &Sample) -> bool {
    let Ok(inputs) = sample.inputs() else { return false };
    case.spec.op == sample.op
        && case.spec.inputs.len() == inputs.len()
        && case.spec.inputs.iter().zip(&inputs).all(|(spec, input)| {
            let shape = spec.shape.as_deref() == Some(input.shape());
            spec.dtype == input.dtype() && shape && spec.bits.as_ref() == Some(&hex(input))
        })
}

/// Name and text of a case.
fn written(target: &Target, finding: &Finding) -> Result<(String, String), RegressionError> {
    let sample = &finding.sample;
    let failed = |why: String| RegressionError::Sample(why);
    let inputs = sample.inputs().map_err(|error| failed(error.to_string()))?;
    let op = operation(sample)?;
    let name = name(sample, &op, &inputs);
    let subject = target.subject();
    let about = format!("found by fuzzing {}/{}: {}", subject.backend.name(), target.variant(), finding.what);
    let mut text = format!("  - name: {name}\n    about: {}\n    op: {op}\n", quoted(&about));
    text += if inputs.is_empty() { "    inputs: []\n" } else { "    inputs:\n" };
    for (input, name) in inputs.iter().zip(sample.op.input_names()) {
        text += &tensor(name, input);
    }
    if target.scope.criterion(&sample.op) == Some(Criterion::Bound) {
        return Ok((name, text + "    judge: bound\n"));
    }
    let outputs = sample.op.evaluate(&inputs, Evaluation::Definition);
    text += "    expect:\n";
    for (i, right) in outputs.map_err(|error| failed(error.to_string()))?.iter().enumerate() {
        text += &tensor(&format!("output {i}"), right);
    }
    Ok((name, text + "    judge: bit_exact\n"))
}

/// The operation with all its parameters, as case files write it.
fn operation(sample: &Sample) -> Result<String, RegressionError> {
    let json =
        serde_json::to_string(&sample.op).map_err(|error| RegressionError::Sample(error.to_string()))?;
    // Every second part is a string: a name, or bits, which YAML would read as a number.
    let parts = json.split('"').enumerate().map(|(i, part)| match i % 2 {
        0 => part.replace(':', ": ").replace(',', ", "),
        _ if part.starts_with("0x") => format!("\"{part}\""),
        _ => part.to_owned(),
    });
    Ok(parts.collect())
}

/// Formats or the instruction, and a hash of the call, so that the name stands for it.
fn name(sample: &Sample, op: &str, inputs: &[Tensor]) -> String {
    let written = serde_json::to_value(&sample.op).unwrap_or_default();
    let fields = &written[sample.op.name()];
    let formats = ["from", "to", "format", "instruction", "a", "b", "out", "weights", "activations"]
        .into_iter()
        .filter_map(|field| fields[field].as_str());
    let mut call = op.to_owned();
    for input in inputs {
        let _ = write!(call, "{:?}{:?}", input.shape(), hex(input));
    }
    let hash = hash(&call);
    formats.map(|format| format!("{format}_")).collect::<String>()
        + &format!("{:08x}", hash >> 32 ^ hash & 0xffff_ffff)
}

/// What the backend did.
pub(super) fn what(verdict: &Verdict) -> String {
    let several = verdict.outputs.len() > 1;
    let worst = verdict.outputs.iter().find_map(|output| {
        let which = if several { format!("output {}, ", output.output) } else { String::new() };
        output.worst.as_ref().map(|worst| which + &describe(worst))
    });
    let shape = || verdict.outputs.iter().find_map(|output| output.shape.clone());
    let memory = || verdict.memory.first().map(ToString::to_string);
    let what = worst.or_else(shape).or_else(memory).or_else(|| verdict.message.clone());
    what.unwrap_or_else(|| "it failed".to_owned())
}

fn describe(worst: &Element) -> String {
    let Element { index, expected, actual, fault, .. } = worst;
    format!("element {index} was {}, not {}: {fault}", actual.value, expected.value)
}

/// A line of the case, after one of what its bits mean.
fn tensor(name: &str, tensor: &Tensor) -> String {
    let shape: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
    let bits: Vec<_> = hex(tensor).into_iter().map(|code| format!("{code:?}")).collect();
    let (shape, bits) = (shape.join(", "), bits.join(", "));
    let dtype = tensor.dtype();
    format!(
        "      # {name}: {}\n      - {{dtype: {dtype}, shape: [{shape}], bits: [{bits}]}}\n",
        values(tensor)
    )
}

/// Most values that a comment lists.
const LISTED: usize = 8;

fn values(tensor: &Tensor) -> String {
    let mut values: Vec<_> = tensor.codes().take(LISTED).map(|code| decimal(tensor.dtype(), code)).collect();
    if tensor.len() > LISTED {
        values.push("...".to_owned());
    }
    if values.is_empty() { "no elements".to_owned() } else { values.join(", ") }
}

fn decimal(dtype: DType, code: u64) -> String {
    // `465.0 (0x1.d1p+8, 0x43e88000)`: the bits stand in the line below.
    let described = dtype.describe(code);
    described.split(" (").next().unwrap_or_default().to_owned()
}

fn hex(tensor: &Tensor) -> Vec<String> {
    tensor.codes().map(|code| tensor.dtype().hex(code)).collect()
}

/// A double-quoted YAML string, which JSON's is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
