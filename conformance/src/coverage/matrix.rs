//! The matrix of what a run exercised, as text.

use super::{Codes, Counts, Exercised};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// How many trials exercised each cell.
#[derive(Clone, Debug, Default)]
pub struct Matrix(Counts);

impl Matrix {
    pub(crate) const fn new(counts: Counts) -> Self {
        Self(counts)
    }

    /// Cells that at least one trial exercised.
    #[must_use]
    pub fn cells(&self) -> usize {
        let tables = self.tables();
        tables
            .map(|(_, tables)| tables.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum::<usize>())
            .sum()
    }

    /// The tables of each backend, operation and combination of types.
    fn tables(&self) -> impl Iterator<Item = (String, BTreeMap<String, Table>)> {
        let of_operation = |((backend, op), counts): (&(String, &str), &BTreeMap<Exercised, usize>)| {
            let mut of_types: BTreeMap<String, Vec<(&Exercised, usize)>> = BTreeMap::new();
            for (exercised, count) in counts {
                let types: Vec<_> =
                    exercised.dtypes.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
                of_types.entry(types.join(", ")).or_default().push((exercised, *count));
            }
            let table = |(types, trials): (String, Vec<(&Exercised, usize)>)| {
                let count: usize = trials.iter().map(|(_, count)| count).sum();
                (format!("{backend} {op} {types} ({count} trials{})", codes(&trials)), by_layout(&trials))
            };
            of_types.into_iter().map(table).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_operation)
    }
}

/// Trials by value class of a tensor, then by shape class of an extent.
type Table = BTreeMap<String, BTreeMap<String, usize>>;

/// How many codes of each tensor of 8 bits there are.
fn codes(trials: &[(&Exercised, usize)]) -> String {
    let mut all: BTreeMap<&str, Codes> = BTreeMap::new();
    for (name, codes) in trials.iter().flat_map(|(exercised, _)| &exercised.codes) {
        all.entry(name).or_default().extend(*codes);
    }
    all.iter().map(|(name, codes)| format!(", {} codes of {name}", codes.len())).collect()
}

/// What is counted where there is no tensor or extent.
const ANY: &str = "any";

fn labels<Class: fmt::Display>(classes: &BTreeMap<String, BTreeSet<Class>>) -> Vec<String> {
    let labels =
        classes.iter().flat_map(|(name, set)| set.iter().map(move |class| format!("{name} {class}")));
    let labels: Vec<_> = labels.collect();
    if labels.is_empty() { vec![ANY.to_owned()] } else { labels }
}

fn by_layout(trials: &[(&Exercised, usize)]) -> BTreeMap<String, Table> {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for (exercised, count) in trials {
        let (shapes, values) = (labels(&exercised.shapes), labels(&exercised.values));
        for layout in labels(&exercised.layouts) {
            let table = tables.entry(layout).or_default();
            for value in &values {
                let row = table.entry(value.clone()).or_default();
                for shape in &shapes {
                    *row.entry(shape.clone()).or_default() += count;
                }
            }
        }
    }
    tables
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, tables) in self.tables() {
            writeln!(f, "{title}")?;
            // Layouts that the same trials have share a table.
            let mut shared: Vec<(Vec<String>, Table)> = Vec::new();
            for (layout, table) in tables {
                match shared.iter_mut().find(|(_, other)| *other == table) {
                    Some((layouts, _)) => layouts.push(layout),
                    None => shared.push((vec![layout], table)),
                }
            }
            for (layouts, table) in shared {
                writeln!(f, "  {}", layouts.join(", "))?;
                write_table(f, &table)?;
            }
        }
        Ok(())
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    let columns: BTreeSet<_> = table.values().flat_map(BTreeMap::keys).collect();
    let first = table.keys().map(String::len).max().unwrap_or(0);
    let mut header = String::new();
    columns.iter().try_for_each(|column| write!(header, "  {column}"))?;
    writeln!(f, "    {:first$}{header}", "")?;
    for (value, row) in table {
        write!(f, "    {value:first$}")?;
        for column in &columns {
            let count = row.get(*column).map_or(String::from("."), usize::to_string);
            write!(f, "  {count:>width$}", width = column.len())?;
        }
        writeln!(f)?;
    }
    Ok(())
}
