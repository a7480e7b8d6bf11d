//! What a run exercised, and what it must.
//!
//! A trial exercises *cells*: an operation, the types of its tensors, and on three axes a
//! [layout](LayoutClass) of a tensor, a [shape class](ShapeClass) of an extent and a
//! [value class](ValueClass) of a tensor. It counts where it passed; what was refused, crashed or failed,
//! as a waiver says or not, shows nothing. Every element of every input and of every output that
//! is known beforehand is looked at. Sequences and refusals are not counted.
//!
//! Tensors are named as the operation names its inputs, and `out0`, `out1`; factors of GGML blocks as
//! `w.d`. Extents are `m`, `n`, `k` and `batch` of products, `heads`, `queries`, `slots` and `d` of
//! attention, and of anything else `elements` of the first input, and of more than one dimension `rows`
//! and `row`, the last one. Those of blocks count values.

mod class;
mod gate;
mod matrix;
mod scan;

pub use class::{LayoutClass, ShapeClass, ValueClass};
pub use gate::{CellsSpec, CodeSet, Demand, Gate, GateFile, GateReport, Missing};
pub use matrix::Matrix;
pub(crate) use scan::dtypes;

use crate::verdict::{Outcome, Verdict};
use plumbline_reference::DType;
use plumbline_reference::block::{BlockFormat, Kind};
use plumbline_reference::format::{E8M0, F16, F32};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What a trial exercised.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Exercised {
    /// Element type of each tensor, or the format of its blocks.
    pub dtypes: BTreeMap<String, String>,
    /// Where the elements of each tensor lie.
    pub layouts: BTreeMap<String, BTreeSet<LayoutClass>>,
    /// What each extent is.
    pub shapes: BTreeMap<String, BTreeSet<ShapeClass>>,
    /// What is among the elements of each tensor.
    pub values: BTreeMap<String, BTreeSet<ValueClass>>,
    /// The codes among those of a type of 8 bits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub codes: BTreeMap<String, Codes>,
}

impl Exercised {
    /// Adds that no tensor began at a multiple of 16 bytes in some call.
    pub(crate) fn misalign(&mut self) {
        for classes in self.layouts.values_mut() {
            classes.insert(LayoutClass::Misaligned);
        }
    }
}

/// What the trials of an operation exercised, each kind with their number, by backend and operation.
pub(crate) type Counts = BTreeMap<(String, &'static str), BTreeMap<Exercised, usize>>;

/// Counts the trials that passed.
pub(crate) fn count(verdicts: &[Verdict]) -> Counts {
    let mut counts = Counts::new();
    for verdict in verdicts.iter().filter(|it| it.outcome == Outcome::Pass) {
        let Some(exercised) = &verdict.exercised else { continue };
        let of_operation = counts.entry((verdict.backend.clone(), verdict.kind())).or_default();
        *of_operation.entry(exercised.clone()).or_default() += 1;
    }
    counts
}

/// The type of what is called `name`, a tensor or a factor of its blocks, given the types of tensors.
pub(crate) fn dtype_of(dtypes: &BTreeMap<String, String>, name: &str) -> Option<DType> {
    match name.split_once('.') {
        None => DType::by_name(dtypes.get(name)?),
        Some((tensor, field)) => {
            let layout = BlockFormat::by_name(dtypes.get(tensor)?)?.layout();
            factor(layout.fields.iter().find(|it| it.name == field)?.kind)
        }
    }
}

/// The number format of a field, if it has one.
const fn factor(kind: Kind) -> Option<DType> {
    match kind {
        Kind::F16 => Some(DType::Float(F16)),
        Kind::F32 => Some(DType::Float(F32)),
        Kind::E8M0 => Some(DType::Float(E8M0)),
        Kind::U8 | Kind::I8 | Kind::U16 | Kind::I16 | Kind::U32 => None,
    }
}

/// A set of codes of 8 bits. Written as 64 hex digits, that of 255 first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Codes([u128; 2]);

impl Codes {
    pub(crate) fn insert(&mut self, code: u8) {
        self.0[usize::from(code >> 7)] |= 1 << (code & 0x7f);
    }

    /// Whether it is there.
    #[must_use]
    pub fn contains(&self, code: u8) -> bool {
        self.0[usize::from(code >> 7)] >> (code & 0x7f) & 1 == 1
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0[0] |= other.0[0];
        self.0[1] |= other.0[1];
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Serialize for Codes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}{:032x}", self.0[1], self.0[0]))
    }
}

impl<'de> Deserialize<'de> for Codes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let half = |at: usize| u128::from_str_radix(text.get(at..at + 32)?, 16).ok();
        let halves = half(32).zip(half(0)).filter(|_| text.len() == 64);
        let (low, high) = halves.ok_or_else(|| de::Error::custom("a set of codes is 64 hex digits"))?;
        Ok(Self([low, high]))
    }
}

impl JsonSchema for Codes {
    fn schema_name() -> Cow<'static, str> {
        "Codes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}
