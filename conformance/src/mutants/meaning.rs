//! Right implementations of something else: another operation, or other parameters.

use plumbline_reference::ops::Op;
use serde_json::{Map, Value, json};

/// What an implementation takes for what. Fields and values are written as cases write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Another operation, with the same parameters.
    As(&'static str),
    /// A field has this value (YAML), whatever it is.
    Field(&'static str, &'static str),
    /// A field has the second value where it has the first, which may be left out.
    For(&'static str, &'static str, &'static str),
    /// Two values of a field, each taken for the other.
    Swapped(&'static str, &'static str, &'static str),
    /// A boolean field, negated.
    Negated(&'static str),
    /// A number in a field, or in a field of a field, is larger by so much.
    Plus(&'static [&'static str], i64),
}

impl Meaning {
    /// The operation that is computed in place of `op`; `None` where there is no other.
    pub(super) fn of(self, op: &Op) -> Option<Op> {
        let other = match self {
            Self::As(name) => renamed(op, name)?,
            Self::Field(field, value) => with(op, field, parsed(value)?)?,
            Self::For(field, from, to) if with(op, field, parsed(from)?)? == *op => {
                with(op, field, parsed(to)?)?
            }
            Self::Swapped(field, a, b) => match (with(op, field, parsed(a)?), with(op, field, parsed(b)?)) {
                (Some(a), Some(b)) if a == *op => b,
                (Some(a), Some(b)) if b == *op => a,
                _ => return None,
            },
            Self::For(..) => return None,
            Self::Negated(field) => with(op, field, Value::Bool(!parameters(op)?.get(field)?.as_bool()?))?,
            Self::Plus(path, by) => {
                let (field, inside) = path.split_first()?;
                let mut value = parameters(op)?.remove(*field)?;
                let number = inside.iter().try_fold(&mut value, |value, field| value.get_mut(field))?;
                *number = json!(number.as_i64()?.checked_add(by)?);
                with(op, field, value)?
            }
        };
        (other != *op).then_some(other)
    }
}

/// The parameters as a case writes them.
fn parameters(op: &Op) -> Option<Map<String, Value>> {
    match serde_json::to_value(op).ok()?.get_mut(op.name())?.take() {
        Value::Object(parameters) => Some(parameters),
        _ => None,
    }
}

/// The operation with another value of a field, if it can have it.
pub(super) fn with(op: &Op, field: &str, value: Value) -> Option<Op> {
    let mut parameters = parameters(op)?;
    parameters.insert(field.to_owned(), value);
    serde_json::from_value(json!({ op.name(): parameters })).ok()
}

/// Another operation with the same parameters, but for those that it has no name for.
fn renamed(op: &Op, name: &str) -> Option<Op> {
    let mut parameters = parameters(op)?;
    loop {
        let read: Result<Op, _> = serde_json::from_value(json!({ name: parameters }));
        let why = match read {
            Ok(op) => return Some(op),
            Err(error) => error.to_string(),
        };
        let unknown = why.strip_prefix("unknown field `")?.split('`').next()?;
        parameters.remove(unknown)?;
    }
}

/// A value as a case writes it.
fn parsed(yaml: &str) -> Option<Value> {
    serde_yaml::from_str(yaml).ok()
}
