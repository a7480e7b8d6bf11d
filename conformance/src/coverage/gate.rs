//! The cells that a run must cover: `fixtures/coverage.yaml`.

use super::{Codes, Counts, Exercised, LayoutClass, ShapeClass, ValueClass, dtype_of};
use crate::load::{LoadError, read, typed};
use crate::locate::{Step, entry_lines};
use crate::registry::Trial;
use crate::source::Place;
use crate::suite::Test;
use plumbline_reference::DType;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// What a whole run must cover.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateFile {
    /// The backends whose trials must cover it, each where the run has it.
    pub backends: BTreeMap<String, Demand>,
    /// The cells. Every operation is named by some entry.
    pub cells: Vec<CellsSpec>,
}

/// Of which cells of an entry a backend's trials must cover each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// Of all.
    Always,
    /// Of those whose operation and types are of some trial of the backend.
    WhereSupported,
}

/// Cells: every combination of an operation, a type of each tensor in `dtypes`, a layout, a shape class
/// and a value class, each covered by one trial. What is left out may be anything.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellsSpec {
    /// Operations.
    pub operations: Vec<String>,
    /// By tensor: element types, or formats of blocks.
    #[serde(default)]
    pub dtypes: BTreeMap<String, Vec<String>>,
    /// By tensor: layouts.
    #[serde(default)]
    pub layouts: BTreeMap<String, Vec<LayoutClass>>,
    /// By extent: shape classes.
    #[serde(default)]
    pub shapes: BTreeMap<String, Vec<ShapeClass>>,
    /// By tensor: value classes.
    #[serde(default)]
    pub values: BTreeMap<String, Vec<ValueClass>>,
    /// Tensors of which every class of a code is among `values` that their type, one of `dtypes`, has.
    #[serde(default)]
    pub all_values: Vec<String>,
    /// By tensor of a type of 8 bits in `dtypes`: codes that trials of the operation and types have together.
    #[serde(default)]
    pub codes: BTreeMap<String, CodeSet>,
}

/// Codes of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeSet {
    /// Every one.
    All,
    /// All but NaNs: an encoding gives one or two of them.
    Numbers,
}

/// Cells that no trial covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Missing {
    /// The backend.
    pub backend: String,
    /// The operation.
    pub operation: String,
    /// What of it: types of tensors, then layout, shape and values.
    pub cells: String,
    /// How many these are.
    pub count: usize,
    /// What would cover them.
    pub remedy: String,
    /// File and line that ask for them.
    pub origin: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, operation, cells, remedy, origin, count: _ } = self;
        write!(f, "{backend} {operation} {cells}: no trial that passed has it; needs {remedy} ({origin})")
    }
}

/// A gate file that has been checked.
#[derive(Clone, Debug)]
pub struct Gate {
    backends: BTreeMap<String, Demand>,
    /// Each with its file and line.
    cells: Vec<(CellsSpec, String)>,
}

/// The backends whose trials may be asked for cells: they are to do every operation.
const BACKENDS: [&str; 2] = ["cpu", "cuda"];

/// What became of the cells.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct GateReport {
    /// How many are demanded.
    pub cells: usize,
    /// Those that are not covered.
    pub missing: Vec<Missing>,
}

type Dtypes = BTreeMap<String, String>;

impl Gate {
    /// Reads a gate file.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        let (value, place) = read(file)?;
        let gate: GateFile = typed(value, &place, None, &[])?;
        let at = |steps: &[&str]| steps.iter().map(|step| Step::Key((*step).to_owned())).collect::<Vec<_>>();
        if gate.backends.is_empty() {
            return Err(place.error(None, &at(&["backends"]), "names no backend"));
        }
        if let Some(unknown) = gate.backends.keys().find(|name| !BACKENDS.contains(&name.as_str())) {
            let why = format!("unknown backend `{unknown}`, expected one of {}", BACKENDS.join(", "));
            return Err(place.error(None, &at(&["backends"]), &why));
        }
        for (i, cells) in gate.cells.iter().enumerate() {
            let entry = place.at([Step::Key("cells".into()), Step::Index(i)]);
            cells.check().map_err(|(steps, why)| entry.error(None, &at(&steps), &why))?;
        }
        let is_named =
            |op: &&&str| gate.cells.iter().any(|cells| cells.operations.iter().any(|it| it == **op));
        if let Some(op) = Op::NAMES.iter().find(|op| !is_named(op)) {
            let why = format!("no entry is of the operation `{op}`; say what must be covered of it");
            return Err(place.error(None, &at(&["cells"]), &why));
        }
        let Place { file, text, .. } = &place;
        let lines = entry_lines(text, "cells");
        let origin = |i: usize| format!("{}:{}", file.display(), lines.get(i).copied().unwrap_or(1));
        let cells = gate.cells.into_iter().enumerate().map(|(i, cells)| (cells, origin(i)));
        Ok(Self { backends: gate.backends, cells: cells.collect() })
    }

    /// Which cells the trials of a run do not cover; `trials` are all that it has. `None` where none is of
    /// a backend that must cover something.
    pub(crate) fn check(&self, trials: &[Trial], counts: &Counts) -> Option<GateReport> {
        let mut claims: BTreeMap<(&str, &str), BTreeSet<Dtypes>> = BTreeMap::new();
        for trial in trials {
            if let Test::Case(case) = &trial.test {
                let of_operation =
                    claims.entry((trial.subject.backend.name(), case.spec.op.name())).or_default();
                of_operation.insert(case.dtypes());
            }
        }
        let is_here = |backend: &str| trials.iter().any(|trial| trial.subject.backend.name() == backend);
        let backends: Vec<_> = self.backends.iter().filter(|(backend, _)| is_here(backend)).collect();
        if backends.is_empty() {
            return None;
        }
        let mut report = GateReport::default();
        for (backend, demand) in backends {
            for (cells, origin) in &self.cells {
                for (op, dtypes) in cells.combinations() {
                    let claimed = claims.get(&(backend.as_str(), op)).into_iter().flatten();
                    let is_claimed = || claimed.into_iter().any(|claim| holds(claim, &dtypes));
                    if *demand == Demand::Always || is_claimed() {
                        let exercised = counts.get(&(backend.clone(), op)).into_iter().flatten();
                        let exercised = exercised.map(|(it, _)| it).filter(|it| holds(&it.dtypes, &dtypes));
                        let missing = |(cells, count, remedy)| Missing {
                            backend: backend.clone(),
                            operation: op.to_owned(),
                            cells,
                            count,
                            remedy,
                            origin: origin.clone(),
                        };
                        let (count, lines) = cells.missing(&dtypes, &exercised.collect::<Vec<_>>());
                        report.cells += count;
                        report.missing.extend(lines.into_iter().map(missing));
                    }
                }
            }
        }
        Some(report)
    }
}

/// Whether tensors are of these types, among others.
fn holds(dtypes: &Dtypes, wanted: &Dtypes) -> bool {
    wanted.iter().all(|(name, dtype)| dtypes.get(name) == Some(dtype))
}

impl CellsSpec {
    /// What is wrong with an entry, and where in it.
    fn check(&self) -> Result<(), (Vec<&str>, String)> {
        if self.operations.is_empty() {
            return Err((vec!["operations"], "names no operation".to_owned()));
        }
        if let Some(unknown) = self.operations.iter().find(|op| !Op::NAMES.contains(&op.as_str())) {
            let why = format!("unknown operation `{unknown}`, expected one of {}", Op::NAMES.join(", "));
            return Err((vec!["operations"], why));
        }
        let empty = [
            ("dtypes", empty_list(&self.dtypes)),
            ("layouts", empty_list(&self.layouts)),
            ("shapes", empty_list(&self.shapes)),
            ("values", empty_list(&self.values)),
        ];
        if let Some((of, name)) = empty.into_iter().find_map(|(of, name)| Some((of, name?))) {
            return Err((vec![of, name], "is an empty list".to_owned()));
        }
        for (name, types) in &self.dtypes {
            let is_unknown =
                |ty: &&String| DType::by_name(ty).is_none() && BlockFormat::by_name(ty).is_none();
            if let Some(unknown) = types.iter().find(is_unknown) {
                let why = format!("`{unknown}` is neither an element type nor a format of blocks");
                return Err((vec!["dtypes", name], why));
            }
        }
        for name in &self.all_values {
            self.types_of(name).map_err(|why| (vec!["all_values"], why))?;
        }
        for name in self.codes.keys() {
            let types = self.types_of(name).map_err(|why| (vec!["codes", name], why))?;
            if let Some(wide) = types.iter().find(|dtype| dtype.bytes() > 1) {
                return Err((vec!["codes", name], format!("{wide} has more than 8 bits")));
            }
        }
        for (name, classes) in &self.values {
            for dtype in self.types_of(name).unwrap_or_default() {
                if let Some(class) = classes.iter().find(|class| !class.is_of(dtype)) {
                    return Err((vec!["values", name], format!("no element of {dtype} is `{class}`")));
                }
            }
        }
        Ok(())
    }

    /// The types that a tensor, or a factor of its blocks, may have.
    fn types_of(&self, name: &str) -> Result<Vec<DType>, String> {
        let tensor = name.split('.').next().unwrap_or(name);
        let types = self.dtypes.get(tensor).ok_or_else(|| format!("`dtypes` does not have `{tensor}`"))?;
        let of = |ty: &String| dtype_of(&[(tensor.to_owned(), ty.clone())].into(), name);
        types.iter().map(|ty| of(ty).ok_or_else(|| format!("`{name}` of {ty} is not of numbers"))).collect()
    }

    /// The operations with each combination of types.
    fn combinations(&self) -> Vec<(&'static str, Dtypes)> {
        let mut combinations = vec![Dtypes::new()];
        for (name, types) in &self.dtypes {
            let with = |known: &Dtypes, ty: &String| {
                let mut known = known.clone();
                known.insert(name.clone(), ty.clone());
                known
            };
            combinations =
                combinations.iter().flat_map(|it| types.iter().map(move |ty| with(it, ty))).collect();
        }
        let operations = Op::NAMES.iter().filter(|op| self.operations.iter().any(|it| it == **op));
        operations.flat_map(|op| combinations.iter().map(|types| (*op, types.clone()))).collect()
    }

    /// How many cells there are with these types, and those that none of the trials covers, with
    /// their number and what would cover them.
    fn missing(&self, dtypes: &Dtypes, trials: &[&Exercised]) -> (usize, Vec<(String, usize, String)>) {
        let types: Vec<_> = dtypes.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let types = if types.is_empty() { "of any types".to_owned() } else { types.join(", ") };
        let mut values = self.values.clone();
        for name in &self.all_values {
            let has = |class: &ValueClass| {
                class.is_of_codes() && dtype_of(dtypes, name).is_some_and(|dtype| class.is_of(dtype))
            };
            values.entry(name.clone()).or_default().extend(ValueClass::ALL.iter().copied().filter(has));
        }
        let (layouts, shapes) = (alternatives(&self.layouts), alternatives(&self.shapes));
        let values = alternatives(&values);
        let codes: Vec<_> =
            self.codes.iter().map(|(name, set)| (name, wanted(dtype_of(dtypes, name), *set))).collect();
        let count = layouts.len() * shapes.len() * values.len()
            + codes.iter().map(|(_, codes)| codes.len()).sum::<usize>();
        if trials.is_empty() {
            return (count, vec![(types, count, "a case of the operation with these types".to_owned())]);
        }
        let mut lines = Vec::new();
        for (layout, shape) in
            layouts.iter().flat_map(|layout| shapes.iter().map(move |shape| (layout, shape)))
        {
            let is_there = |it: &&&Exercised| among(&it.layouts, *layout) && among(&it.shapes, *shape);
            let there: Vec<_> = trials.iter().filter(is_there).collect();
            let missing = values.iter().filter(|value| !there.iter().any(|it| among(&it.values, **value)));
            let missing: Vec<_> = missing.copied().collect();
            if missing.is_empty() {
                continue;
            }
            let values: Vec<_> = missing.iter().map(|value| text(*value)).collect();
            let parts = [types.clone(), text(*layout), text(*shape), values.join(", ")];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let fixed = [layout.map(|it| it.1.remedy()), shape.map(|it| it.1.remedy())];
            let of_values = missing.iter().map(|value| value.map(|it| it.1.remedy()));
            let remedies: Vec<_> = fixed.into_iter().chain(of_values).flatten().collect();
            lines.push((parts.join("; "), missing.len(), remedies.join(", ")));
        }
        for (name, wanted) in codes {
            let mut found = Codes::default();
            trials.iter().filter_map(|it| it.codes.get(name)).for_each(|codes| found.extend(*codes));
            let missing = wanted.into_iter().filter(|code| !found.contains(*code));
            let missing: Vec<_> = missing.map(|code| format!("0x{code:02x}")).collect();
            if !missing.is_empty() {
                lines.push((
                    format!("{types}; {name} {}", missing.join(", ")),
                    missing.len(),
                    "a case with these codes".to_owned(),
                ));
            }
        }
        (count, lines)
    }
}

fn empty_list<T>(lists: &BTreeMap<String, Vec<T>>) -> Option<&String> {
    lists.iter().find(|(_, list)| list.is_empty()).map(|(name, _)| name)
}

/// A class of something; `None` where anything will do.
type Alternative<'a, Class> = Option<(&'a str, Class)>;

fn alternatives<Class: Copy>(classes: &BTreeMap<String, Vec<Class>>) -> Vec<Alternative<'_, Class>> {
    let all: Vec<_> = classes
        .iter()
        .flat_map(|(name, list)| list.iter().map(|class| Some((name.as_str(), *class))))
        .collect();
    if all.is_empty() { vec![None] } else { all }
}

fn among<Class: Ord>(classes: &BTreeMap<String, BTreeSet<Class>>, wanted: Alternative<'_, Class>) -> bool {
    wanted.is_none_or(|(name, class)| classes.get(name).is_some_and(|found| found.contains(&class)))
}

fn text<Class: fmt::Display>(class: Alternative<'_, Class>) -> String {
    class.map_or(String::new(), |(name, class)| format!("{name} {class}"))
}

/// The codes of a set.
fn wanted(dtype: Option<DType>, set: CodeSet) -> Vec<u8> {
    let Some(dtype) = dtype else { return Vec::new() };
    let is_nan = |code: u8| dtype.format().is_some_and(|it| it.decode(code.into()).is_nan());
    let has =
        |code: &u8| u64::from(*code) & !dtype.code_mask() == 0 && (set == CodeSet::All || !is_nan(*code));
    (0..=u8::MAX).filter(has).collect()
}

#[cfg(test)]
mod tests;
