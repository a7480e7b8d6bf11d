//! `plumbline schema`: JSON Schemas, for editors and programs.

use crate::case::CaseFile;
use crate::coverage::GateFile;
use crate::hardware::RecordingFile;
use crate::report::Record;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Options of `schema`.
#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    /// Which schema
    #[arg(value_enum)]
    of: Of,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Of {
    /// Case files
    Cases,
    /// Lines of results.jsonl
    Results,
    /// Recordings of devices
    Hardware,
    /// What a run must cover
    Coverage,
}

/// The schema as indented JSON.
pub(super) fn run(args: &SchemaArgs) -> anyhow::Result<String> {
    let schema = match args.of {
        Of::Cases => cases(),
        Of::Results => generate::<Record<'static>>(),
        Of::Hardware => generate::<RecordingFile>(),
        Of::Coverage => generate::<GateFile>(),
    };
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

fn generate<T: JsonSchema>() -> Schema {
    SchemaSettings::draft07().into_generator().into_root_schema_for::<T>()
}

/// The schema of case files: every field also takes `$name`, a matrix dimension.
fn cases() -> Schema {
    let mut schema = generate::<CaseFile>();
    let with_dimension = |field: &mut Value| {
        let dimension = json!({ "type": "string", "pattern": "^\\$[A-Za-z0-9_]+$" });
        if field.is_object() {
            *field = json!({ "anyOf": [field.take(), dimension] });
        }
    };
    RecursiveTransform(|schema: &mut Schema| {
        if let Some(items) = schema.get_mut("items") {
            with_dimension(items);
        }
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.values_mut().for_each(with_dimension);
        }
    })
    .transform(&mut schema);
    schema
}
