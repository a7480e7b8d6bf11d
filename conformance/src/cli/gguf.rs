//! `plumbline gguf`: what a model file holds.

use super::number::aligned;
use anyhow::Context;
use clap::{Args, Subcommand};
use plumbline_gguf::{Array, Entry, Model, Shown, Tensor, Type, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Elements of an array that are shown.
const ELEMENTS: usize = 8;

/// Options of `gguf`.
#[derive(Debug, Args)]
pub struct GgufArgs {
    #[command(subcommand)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// List the tensors: name, type, shape, place in the file, bytes; and how much is of each type
    Ls(LsArgs),
}

#[derive(Debug, Args)]
struct LsArgs {
    /// The model file
    file: PathBuf,
    /// Print JSON, with names and texts in full
    #[arg(long)]
    json: bool,
    /// List the metadata too; of arrays the first elements
    #[arg(long)]
    metadata: bool,
}

/// The text to print.
pub(super) fn run(args: &GgufArgs) -> anyhow::Result<String> {
    let Of::Ls(args) = &args.of;
    let model = Model::open(&args.file)?;
    if args.json {
        let listing = Listing::new(&args.file, &model, args.metadata);
        return serde_json::to_string_pretty(&listing).context("the listing cannot be printed");
    }
    Ok(text(&args.file, &model, args.metadata))
}

fn text(file: &Path, model: &Model, metadata: bool) -> String {
    let mut text = format!(
        "{}: GGUF version {}, {} tensors, {} metadata entries, data from byte {} in multiples of {}\n",
        file.display(),
        model.version(),
        model.tensors().len(),
        model.metadata().len(),
        model.data_offset(),
        model.alignment(),
    );
    let mut table = |header: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let header = header.iter().map(|&title| title.to_owned()).collect();
            text += &format!("\n{}", aligned(&[vec![header], rows].concat()));
        }
    };
    if metadata {
        table(&["key", "type", "value"], model.metadata().iter().map(entry_row).collect());
    }
    table(&["name", "type", "shape", "offset", "bytes"], model.tensors().iter().map(tensor_row).collect());
    let sums = sums(model).into_iter().map(|sum| {
        vec![sum.ty.to_owned(), sum.tensors.to_string(), sum.values.to_string(), sum.bytes.to_string()]
    });
    table(&["type", "tensors", "values", "bytes"], sums.collect());
    text
}

fn entry_row(entry: &Entry) -> Vec<String> {
    vec![Shown(entry.key()).to_string(), type_name(entry.value()), value_text(entry.value())]
}

fn tensor_row(tensor: &Tensor) -> Vec<String> {
    vec![
        Shown(tensor.name()).to_string(),
        tensor.ty().to_string(),
        format!("{:?}", tensor.shape()),
        tensor.offset().to_string(),
        tensor.data().len().to_string(),
    ]
}

/// `u32`, or of an array `string[32000]`.
fn type_name(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("{}[{}]", array.element(), array.len()),
        value => value.ty().to_string(),
    }
}

/// A value on one line, not too long.
fn value_text(value: &Value) -> String {
    match value {
        Value::Array(array) => {
            let mut elements: Vec<_> =
                array.iter().take(ELEMENTS).map(|value| element_text(&value)).collect();
            if array.len() > elements.len() {
                elements.push("...".to_owned());
            }
            format!("[{}]", elements.join(", "))
        }
        value => element_text(value),
    }
}

/// As that, but an array is only named.
fn element_text(value: &Value) -> String {
    match value {
        Value::U8(value) => value.to_string(),
        Value::I8(value) => value.to_string(),
        Value::U16(value) => value.to_string(),
        Value::I16(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::F32(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
        Value::String(value) => format!("\"{}\"", Shown(value)),
        Value::Array(_) => type_name(value),
        Value::U64(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::F64(value) => format!("{value:?}"),
    }
}

/// How much is of one type.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Sum {
    #[serde(rename = "type")]
    ty: &'static str,
    tensors: usize,
    values: u64,
    bytes: u64,
}

/// By type, in the order of its numbers.
fn sums(model: &Model) -> Vec<Sum> {
    let mut sums = BTreeMap::new();
    for tensor in model.tensors() {
        let Type { number, name: ty, .. } = tensor.ty();
        let sum = sums.entry(number).or_insert(Sum { ty, tensors: 0, values: 0, bytes: 0 });
        sum.tensors += 1;
        sum.values += tensor.values();
        sum.bytes += tensor.data().len() as u64;
    }
    sums.into_values().collect()
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    file: String,
    version: u32,
    alignment: u32,
    data_offset: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<JsonEntry<'a>>>,
    tensors: Vec<JsonTensor<'a>>,
    types: Vec<Sum>,
}

#[derive(Debug, Serialize)]
struct JsonEntry<'a> {
    key: &'a str,
    #[serde(rename = "type")]
    ty: String,
    value: JsonValue,
}

#[derive(Debug, Serialize)]
struct JsonTensor<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: &'static str,
    shape: &'a [usize],
    offset: usize,
    bytes: usize,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum JsonValue {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// Infinities and NaNs too, for which JSON has no numbers.
    Text(String),
    Array {
        element: String,
        length: usize,
        /// The first elements; none of an array inside another.
        first: Vec<JsonValue>,
    },
}

impl<'a> Listing<'a> {
    fn new(file: &Path, model: &'a Model, metadata: bool) -> Self {
        let entry = |entry: &'a Entry| JsonEntry {
            key: entry.key(),
            ty: entry.value().ty().to_string(),
            value: JsonValue::new(entry.value(), ELEMENTS),
        };
        let tensor = |tensor: &'a Tensor| JsonTensor {
            name: tensor.name(),
            ty: tensor.ty().name,
            shape: tensor.shape(),
            offset: tensor.offset(),
            bytes: tensor.data().len(),
        };
        Self {
            file: file.display().to_string(),
            version: model.version(),
            alignment: model.alignment(),
            data_offset: model.data_offset(),
            metadata: metadata.then(|| model.metadata().iter().map(entry).collect()),
            tensors: model.tensors().iter().map(tensor).collect(),
            types: sums(model),
        }
    }
}

impl JsonValue {
    fn new(value: &Value, elements: usize) -> Self {
        match value {
            &Value::U8(value) => Self::Unsigned(value.into()),
            &Value::I8(value) => Self::Signed(value.into()),
            &Value::U16(value) => Self::Unsigned(value.into()),
            &Value::I16(value) => Self::Signed(value.into()),
            &Value::U32(value) => Self::Unsigned(value.into()),
            &Value::I32(value) => Self::Signed(value.into()),
            &Value::F32(value) if value.is_finite() => Self::F32(value),
            &Value::F32(value) => Self::Text(value.to_string()),
            &Value::Bool(value) => Self::Bool(value),
            Value::String(value) => Self::Text(value.clone()),
            Value::Array(array) => Self::array(array, elements),
            &Value::U64(value) => Self::Unsigned(value),
            &Value::I64(value) => Self::Signed(value),
            &Value::F64(value) if value.is_finite() => Self::F64(value),
            &Value::F64(value) => Self::Text(value.to_string()),
        }
    }

    fn array(array: &Array, elements: usize) -> Self {
        Self::Array {
            element: array.element().to_string(),
            length: array.len(),
            first: array.iter().take(elements).map(|value| Self::new(&value, 0)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_gguf::{ValueType, Writer};

    fn model() -> Model {
        let numbers = Array::new(ValueType::I32, (0..10).map(Value::I32)).unwrap();
        let nested = Array::new(ValueType::Array, [Value::from(numbers.clone())]).unwrap();
        let file = Writer::new()
            .metadata("general.architecture", "llama")
            .metadata("x\x1b[2J", "a\nb".repeat(50))
            .metadata("numbers", numbers)
            .metadata("nested", nested)
            .metadata("third", 1f32 / 3.0)
            .metadata("nan", f64::NAN)
            .tensor("norm", Type::F32, [4], [0; 16])
            .zeros("blk.0.q", Type::Q4_K, [3, 512])
            .zeros("\u{202e}k\r", Type::F32, [2, 3, 5])
            .to_bytes()
            .unwrap();
        Model::parse(file).unwrap()
    }

    #[test]
    fn a_table() {
        let expected = "\
m.gguf: GGUF version 3, 3 tensors, 6 metadata entries, data from byte 608 in multiples of 32

name         type  shape      offset  bytes
norm         f32   [4]        608     16
blk.0.q      q4_K  [3, 512]   640     864
\\u{202e}k\\r  f32   [2, 3, 5]  1504    120

type  tensors  values  bytes
f32   2        34      136
q4_K  1        1536    864
";
        assert_eq!(text(Path::new("m.gguf"), &model(), false), expected);
        let empty = Model::parse(Writer::new().to_bytes().unwrap()).unwrap();
        assert_eq!(text(Path::new("m.gguf"), &empty, true).lines().count(), 1);
    }

    #[test]
    fn metadata_is_abbreviated() {
        let text = text(Path::new("m.gguf"), &model(), true);
        let table = text.split("\n\n").nth(1).unwrap();
        let expected = format!(
            "\
key                   type      value
general.architecture  string    \"llama\"
x\\u{{1b}}[2J            string    \"{}...\"
numbers               i32[10]   [0, 1, 2, 3, 4, 5, 6, 7, ...]
nested                array[1]  [i32[10]]
third                 f32       0.33333334
nan                   f64       NaN",
            "a\\nb".repeat(26) + "a\\n"
        );
        assert_eq!(table, expected);
    }

    #[test]
    fn json() {
        let model = model();
        let json = |metadata| {
            let text = serde_json::to_string(&Listing::new(Path::new("m.gguf"), &model, metadata)).unwrap();
            assert!(!text.contains(char::is_control));
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        };
        assert_eq!(json(false).get("metadata"), None);
        let listing = json(true);
        assert_eq!(
            listing["tensors"][1],
            serde_json::json!({"name": "blk.0.q", "type": "q4_K", "shape": [3, 512], "offset": 640, "bytes": 864})
        );
        assert_eq!(
            listing["types"][0],
            serde_json::json!({"type": "f32", "tensors": 2, "values": 34, "bytes": 136})
        );
        let value = |index: usize| listing["metadata"][index]["value"].clone();
        assert_eq!(value(1), "a\nb".repeat(50));
        assert_eq!(
            value(2),
            serde_json::json!({"element": "i32", "length": 10, "first": [0, 1, 2, 3, 4, 5, 6, 7]})
        );
        assert_eq!(value(3)["first"][0], serde_json::json!({"element": "i32", "length": 10, "first": []}));
        assert_eq!(value(4).to_string(), "0.33333334");
        assert_eq!(value(5), "NaN");
    }
}
