//! Reading case files: the one place that knows their YAML.
//!
//! YAML -> JSON values -> one JSON value per combination of the matrix -> typed and
//! checked [`Case`]s and [`Sequence`]s. Every error names file, line, case and field.

use crate::case::{CaseSpec, Scalar};
use crate::locate::{Step, entry_lines, line_of};
use crate::recording::Recordings;
use crate::sequence::{Sequence, SequenceSpec};
use crate::source::{Case, Place};
use crate::suite::Test;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is wrong with a case file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file or folder.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Name of the case.
    pub case: Option<String>,
    /// Path of the field: `op.cast.rounding`.
    pub field: String,
    /// What is wrong and what to do.
    pub why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(case) = &self.case {
            write!(f, ": case `{case}`")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// A file that cannot be read.
    pub(crate) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self::of_file(file, format!("cannot be read: {error}"))
    }

    fn of_file(file: &Path, why: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, case: None, field: String::new(), why: why.to_string() }
    }
}

/// Loads at least one case or sequence; see [`load_all_tests`].
pub fn load_tests(path: &Path) -> Result<Vec<Test>, LoadError> {
    let tests = load_all_tests(path)?;
    if tests.is_empty() {
        let why = "holds no cases; a case file is YAML with a list `cases:` or `sequences:`";
        return Err(LoadError::of_file(path, why));
    }
    Ok(tests)
}

/// Loads the cases and sequences of a file, or of every `.yaml` and `.yml` file of a folder and
/// its subfolders, in the order of their names.
pub fn load_all_tests(path: &Path) -> Result<Vec<Test>, LoadError> {
    let mut files = Vec::new();
    collect(path, &mut files, &mut BTreeSet::new())?;
    let mut recordings = Recordings::default();
    let mut tests: Vec<Test> = Vec::new();
    for file in &files {
        tests.extend(load_file(file, &prefix(path, file), &mut recordings)?);
    }
    let mut names = BTreeSet::new();
    match tests.iter().find(|test| !names.insert(test.name())) {
        None => Ok(tests),
        Some(test) => Err(test.place().error(
            Some(test.name()),
            &[Step::Key("name".into())],
            "there is another case of this name; names are unique",
        )),
    }
}

/// The cases of [`load_tests`], without the sequences.
pub fn load(path: &Path) -> Result<Vec<Case>, LoadError> {
    Ok(cases(load_tests(path)?))
}

/// The cases of [`load_all_tests`], without the sequences.
pub fn load_all(path: &Path) -> Result<Vec<Case>, LoadError> {
    Ok(cases(load_all_tests(path)?))
}

fn cases(tests: Vec<Test>) -> Vec<Case> {
    let case = |test| match test {
        Test::Case(case) => Some(Arc::unwrap_or_clone(case)),
        Test::Sequence(_) => None,
    };
    tests.into_iter().filter_map(case).collect()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>, seen: &mut BTreeSet<PathBuf>) -> Result<(), LoadError> {
    let failed = |error: std::io::Error| LoadError::unreadable(path, &error);
    if !path.is_dir() {
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(LoadError::of_file(path, "is neither a file nor a folder"));
        }
        files.push(path.to_owned());
        return Ok(());
    }
    if !seen.insert(path.canonicalize().map_err(failed)?) {
        return Err(LoadError::of_file(
            path,
            "leads to a folder that has been read already; remove the link",
        ));
    }
    let mut entries = fs::read_dir(path)
        .and_then(|entries| entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>, _>>())
        .map_err(failed)?;
    entries.sort();
    for entry in entries {
        let extension = entry.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let yaml = extension.is_some_and(|extension| extension == "yaml" || extension == "yml");
        if yaml || entry.is_dir() {
            collect(&entry, files, seen)?;
        }
    }
    Ok(())
}

/// `sub/cast` for `root/sub/cast.yaml`; the stem for a single file.
fn prefix(root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).ok().filter(|rest| !rest.as_os_str().is_empty());
    let relative =
        relative.map(Path::to_owned).or_else(|| file.file_name().map(PathBuf::from)).unwrap_or_default();
    let parts: Vec<_> =
        relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.join("/")
}

/// The YAML of a file as a JSON value, and the place of it all.
pub(crate) fn read(file: &Path) -> Result<(Value, Place), LoadError> {
    let text = fs::read_to_string(file).map_err(|error| LoadError::unreadable(file, &error))?;
    let text: Arc<str> = text.into();
    let yaml: serde_yaml::Value = serde_yaml::from_str(&text).map_err(|error| LoadError {
        line: error.location().map(|location| location.line()),
        ..LoadError::of_file(file, format!("not YAML: {error}"))
    })?;
    let place = Place { file: file.into(), text, path: Vec::new() };
    Ok((to_json(yaml, &place)?, place))
}

fn load_file(file: &Path, prefix: &str, recordings: &mut Recordings) -> Result<Vec<Test>, LoadError> {
    let (mut root, place) = read(file)?;
    let mut lists = Vec::new();
    for list in [CASES, SEQUENCES] {
        match root.get_mut(list).map(Value::take) {
            Some(Value::Array(entries)) => lists.push((list, entries)),
            None | Some(Value::Null) => (),
            Some(_) => return Err(place.error(None, &[Step::Key(list.into())], "is no list")),
        }
    }
    let known = |key: &&String| [CASES, SEQUENCES].contains(&key.as_str());
    if let Some(other) = root.as_object().and_then(|map| map.keys().find(|key| !known(key))) {
        let why = format!("unknown field `{other}`, expected `cases` or `sequences`");
        return Err(place.error(None, &[Step::Key(other.clone())], &why));
    }
    if lists.is_empty() {
        return Err(place.error(None, &[], "holds no list `cases:` or `sequences:`"));
    }

    let mut tests = Vec::new();
    for (list, entries) in lists {
        let lines = entry_lines(&place.text, list);
        for (index, entry) in entries.into_iter().enumerate() {
            let line = lines.get(index).copied().unwrap_or(1);
            let place = place.at([Step::Key(list.into()), Step::Index(index)]);
            for (name, value) in expand(entry, &place)? {
                let full = format!("{prefix}/{name}");
                if list == CASES {
                    let spec = typed::<CaseSpec>(value, &place, Some(&name), &[])?;
                    tests.push(Case::new(full, spec, place.clone(), line, recordings)?.into());
                } else {
                    let spec = typed::<SequenceSpec>(value, &place, Some(&name), &[])?;
                    tests.push(Sequence::new(full, spec, place.clone(), line)?.into());
                }
            }
        }
    }
    check_companions(&tests)?;
    Ok(tests)
}

/// Requires that companions are cases of the file, of the same operation, that give results.
fn check_companions(tests: &[Test]) -> Result<(), LoadError> {
    let all = tests.iter().filter_map(|test| match test {
        Test::Case(case) => Some((&*case.name, case)),
        Test::Sequence(_) => None,
    });
    let all: BTreeMap<&str, &Arc<Case>> = all.collect();
    for case in all.values() {
        for (i, companion) in case.companions().enumerate() {
            let why = match all.get(&*companion) {
                None => "no case of this file has the name",
                Some(other) if other.spec.refused.is_some() || case.spec.refused.is_some() => {
                    "there are no results where inputs are refused; leave it out"
                }
                Some(other) if other.spec.op.name() != case.spec.op.name() => "is of another operation",
                Some(_) => continue,
            };
            let name = &case.spec.companions[i];
            let field = [Step::Key("companions".into()), Step::Index(i)];
            return Err(case.place.error(Some(&case.spec.name), &field, &format!("`{name}`: {why}")));
        }
    }
    Ok(())
}

/// The lists of a case file.
const CASES: &str = "cases";
const SEQUENCES: &str = "sequences";

/// Deserializes what stands at `field` of a case, or of a place, reporting the path of what does not
/// fit.
pub(crate) fn typed<T: for<'de> Deserialize<'de>>(
    value: Value,
    place: &Place,
    case: Option<&str>,
    field: &[Step],
) -> Result<T, LoadError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inside = error.path().iter().filter_map(|segment| match segment {
            serde_path_to_error::Segment::Seq { index } => Some(Step::Index(*index)),
            serde_path_to_error::Segment::Map { key } => Some(Step::Key(key.clone())),
            serde_path_to_error::Segment::Enum { variant } => Some(Step::Key(variant.clone())),
            serde_path_to_error::Segment::Unknown => None,
        });
        let path: Vec<_> = field.iter().cloned().chain(inside).collect();
        let mut why = error.inner().to_string();
        if path.contains(&Step::Key("bits".into())) {
            why += "; write bit patterns as quoted hex with all digits, like \"0x43e80000\"";
        }
        place.error(case, &path, &why)
    })
}

/// The JSON value of a YAML value, which is all that case files need.
fn to_json(yaml: serde_yaml::Value, place: &Place) -> Result<Value, LoadError> {
    Ok(match yaml {
        serde_yaml::Value::Null => Value::Null,
        serde_yaml::Value::Bool(value) => value.into(),
        serde_yaml::Value::String(value) => value.into(),
        serde_yaml::Value::Number(number) => {
            let integer = number.as_i64().map(Value::from).or_else(|| number.as_u64().map(Value::from));
            let finite = number.as_f64().and_then(serde_json::Number::from_f64).map(Value::Number);
            let why = "NaN and infinity are not numbers here; write bit patterns as quoted hex, like \"0x7fc00000\"";
            integer.or(finite).ok_or_else(|| place.error(None, &[], why))?
        }
        serde_yaml::Value::Sequence(values) => {
            let entry = |(i, value)| to_json(value, &place.at([Step::Index(i)]));
            Value::Array(values.into_iter().enumerate().map(entry).collect::<Result<_, _>>()?)
        }
        serde_yaml::Value::Mapping(values) => {
            let mut map = Map::new();
            for (key, value) in values {
                let serde_yaml::Value::String(key) = key else {
                    return Err(place.error(None, &[], "keys are strings"));
                };
                let value = to_json(value, &place.at([Step::Key(key.clone())]))?;
                map.insert(key, value);
            }
            Value::Object(map)
        }
        serde_yaml::Value::Tagged(tagged) => {
            return Err(place.error(None, &[], &format!("YAML tag `{}` is not used here", tagged.tag)));
        }
    })
}

/// Cases that one entry may expand into.
const MAX_COMBINATIONS: usize = 100_000;

/// One case per combination of the matrix's values, with its name.
fn expand(entry: Value, place: &Place) -> Result<Vec<(String, Value)>, LoadError> {
    let base = entry.get("name").and_then(Value::as_str).map(str::to_owned);
    let Some(base) = base.filter(|name| !name.is_empty()) else {
        return Err(place.error(None, &[], "every case needs a `name:`, a string"));
    };
    if base.chars().any(char::is_control) {
        return Err(place.error(
            None,
            &[Step::Key("name".into())],
            "a name has no line breaks or control characters",
        ));
    }
    let matrix: BTreeMap<String, Vec<Scalar>> = match entry.get("matrix") {
        None => BTreeMap::new(),
        Some(matrix) => typed(matrix.clone(), place, Some(&base), &[Step::Key("matrix".into())])?,
    };
    let count = matrix.values().try_fold(1usize, |count, values| count.checked_mul(values.len()));
    if count.is_none_or(|count| count > MAX_COMBINATIONS) {
        let why = format!("expands into more than {MAX_COMBINATIONS} cases; split it");
        return Err(place.error(Some(&base), &[Step::Key("matrix".into())], &why));
    }
    let mut combinations = vec![(base.clone(), BTreeMap::new())];
    for (dimension, values) in &matrix {
        if values.is_empty() {
            let path = [Step::Key("matrix".into()), Step::Key(dimension.clone())];
            return Err(place.error(Some(&base), &path, "a dimension needs at least one value"));
        }
        combinations = combinations
            .into_iter()
            .flat_map(|(name, chosen)| {
                values.iter().map(move |value| {
                    let mut chosen = chosen.clone();
                    chosen.insert(dimension.clone(), value.clone());
                    (format!("{name}/{value}"), chosen)
                })
            })
            .collect();
    }
    let mut unused: BTreeSet<&String> = matrix.keys().collect();
    let mut cases = Vec::with_capacity(combinations.len());
    for (name, chosen) in combinations {
        let mut case = entry.clone();
        for (field, value) in case.as_object_mut().into_iter().flatten() {
            if !["name", "about", "matrix"].contains(&field.as_str()) {
                substitute(value, &chosen, &mut |used| {
                    unused.remove(used);
                })
                .map_err(|unknown| {
                    let why = format!("`${unknown}` is not a dimension of the matrix");
                    place.error(Some(&base), &[Step::Key(field.clone())], &why)
                })?;
            }
        }
        case["name"] = name.clone().into();
        cases.push((name, case));
    }
    match unused.first() {
        None => Ok(cases),
        Some(dimension) => {
            let path = [Step::Key("matrix".into()), Step::Key((*dimension).clone())];
            Err(place.error(Some(&base), &path, &format!("no field uses `${dimension}`")))
        }
    }
}

/// Replaces every string `$name`, and `${name}` in longer ones. The error is the name that has
/// no value.
fn substitute(
    value: &mut Value,
    chosen: &BTreeMap<String, Scalar>,
    used: &mut impl FnMut(&String),
) -> Result<(), String> {
    match value {
        Value::String(text) => {
            let mut scalar = |name: &str| -> Result<&Scalar, String> {
                let (name, scalar) = chosen.get_key_value(name).ok_or_else(|| name.to_owned())?;
                used(name);
                Ok(scalar)
            };
            match text.strip_prefix('$') {
                Some(name) if !name.starts_with('{') => *value = scalar(name)?.to_json(),
                _ => {
                    let (mut written, mut rest) = (String::new(), text.as_str());
                    while let Some((before, name)) = rest.split_once("${") {
                        let (name, after) = name.split_once('}').ok_or_else(|| format!("{{{name}"))?;
                        written += &format!("{before}{}", scalar(name)?);
                        rest = after;
                    }
                    *text = written + rest;
                }
            }
            Ok(())
        }
        Value::Array(values) => values.iter_mut().try_for_each(|value| substitute(value, chosen, used)),
        Value::Object(values) => values.values_mut().try_for_each(|value| substitute(value, chosen, used)),
        _ => Ok(()),
    }
}

impl Scalar {
    fn to_json(&self) -> Value {
        match self {
            Self::Bool(value) => (*value).into(),
            Self::Integer(value) => (*value).into(),
            Self::String(value) => value.as_str().into(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::String(value) => f.write_str(value),
        }
    }
}

impl Place {
    /// A place further inside.
    pub(crate) fn at(&self, steps: impl IntoIterator<Item = Step>) -> Self {
        let path = self.path.iter().cloned().chain(steps).collect();
        Self { path, ..self.clone() }
    }

    /// An error at `field` inside this place.
    pub(crate) fn error(&self, case: Option<&str>, field: &[Step], why: &str) -> LoadError {
        let path: Vec<_> = self.path.iter().chain(field).cloned().collect();
        // The case is named, so the field's path begins inside it.
        let shown = match case {
            Some(_) => field,
            None => &path,
        };
        LoadError {
            file: self.file.to_path_buf(),
            line: line_of(&self.text, &path),
            case: case.map(str::to_owned),
            field: shown.iter().fold(String::new(), |text, step| match step {
                Step::Index(index) => format!("{text}[{index}]"),
                Step::Key(key) if text.is_empty() => key.clone(),
                Step::Key(key) => format!("{text}.{key}"),
            }),
            why: why.to_owned(),
        }
    }
}
