//! Judging an output: one comparator for every backend, output and element.

mod fault;

pub use fault::Fault;

use crate::case::{Criterion, NanJudge};
use crate::source::{Expected, Values};
use plumbline_reference::format::{Format, Value};
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Tensor};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What judging one output gave.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OutputVerdict {
    /// Position among the operation's outputs.
    pub output: usize,
    /// The criterion that was asked for.
    pub criterion: Criterion,
    /// Whether the output met it.
    pub ok: bool,
    /// Whether the bits were equal as well.
    pub bit_exact: bool,
    /// Elements judged.
    pub elements: usize,
    /// Elements that did not meet the criterion.
    pub mismatches: usize,
    /// Mismatches by kind of fault.
    pub faults: BTreeMap<Fault, usize>,
    /// Largest error over its bound, where the criterion has one and all values are
    /// finite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_error_over_bound: Option<f64>,
    /// The first mismatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Element>,
    /// The worst mismatch: a wrong special value before a wrong number, then the
    /// largest error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
    /// Why no element was compared: wrong shape or type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
}

/// One element of an output and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Element {
    /// Row-major linear index.
    pub index: usize,
    /// Index in each dimension.
    pub coordinates: Vec<usize>,
    /// The input elements it depends on.
    pub inputs: Vec<Scalar>,
    /// The right value.
    pub expected: Scalar,
    /// The value given.
    pub actual: Scalar,
    /// The kind of fault.
    pub fault: Fault,
}

/// One number: its name, bits and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Scalar {
    /// Where it stands: `x[3]`, `expected`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Bits in hex.
    pub bits: String,
    /// Decimal, hex float and bits for people.
    pub value: String,
}

impl Scalar {
    fn new(name: String, dtype: DType, code: u64) -> Self {
        Self { name, dtype, bits: dtype.hex(code), value: dtype.describe(code) }
    }
}

/// What an output is judged by, besides the expected values.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Its inputs.
    pub inputs: &'a [Tensor],
    /// How NaNs compare where the case does not say.
    pub nan: NanJudge,
}

/// Judges output number `output`.
#[must_use]
pub fn judge(context: Context<'_>, output: usize, expected: &Expected, actual: &Tensor) -> OutputVerdict {
    let mut verdict = OutputVerdict {
        output,
        criterion: expected.criterion,
        ok: false,
        bit_exact: false,
        elements: 0,
        mismatches: 0,
        faults: BTreeMap::new(),
        max_error_over_bound: None,
        first: None,
        worst: None,
        shape: None,
    };
    if actual.ty() != &expected.ty {
        verdict.shape = Some(format!("output is {}, expected {}", actual.ty(), expected.ty));
        return verdict;
    }
    let comparator = Comparator {
        dtype: expected.ty.dtype,
        criterion: expected.criterion,
        nan: expected.nan.unwrap_or(context.nan),
    };
    let count = match &expected.values {
        Values::Dense(tensor) => tensor.len(),
        Values::Sparse { at, .. } => at.len(),
    };
    let pair = |i: usize| match &expected.values {
        Values::Dense(tensor) => (i, tensor.code(i), actual.code(i)),
        Values::Sparse { at, values } => (at[i], values.code(i), actual.code(at[i])),
    };

    verdict.elements = count;
    verdict.bit_exact = true;
    let mut worst: Option<(f64, usize)> = None;
    for i in 0..count {
        let (index, right, got) = pair(i);
        if right == got {
            continue;
        }
        verdict.bit_exact = false;
        let exact = if output == 0 { context.op.exact(context.inputs, index) } else { None };
        let (ok, ratio) = comparator.accepts(right, got, exact);
        if ratio.is_finite() {
            verdict.max_error_over_bound = Some(verdict.max_error_over_bound.unwrap_or(0.0).max(ratio));
        }
        if ok {
            continue;
        }
        let fault = Fault::of(comparator.dtype, right, got, exact);
        *verdict.faults.entry(fault).or_default() += 1;
        verdict.mismatches += 1;
        let severity = comparator.severity(right, got);
        if worst.is_none_or(|(most, _)| severity > most) {
            worst = Some((severity, i));
        }
        if verdict.first.is_none() {
            verdict.first =
                Some(element(context, output, expected.ty.dtype, actual, (index, right, got), fault));
        }
    }
    verdict.ok = verdict.mismatches == 0;
    verdict.worst = worst.map(|(_, i)| {
        let (index, right, got) = pair(i);
        let exact = if output == 0 { context.op.exact(context.inputs, index) } else { None };
        let fault = Fault::of(comparator.dtype, right, got, exact);
        element(context, output, expected.ty.dtype, actual, (index, right, got), fault)
    });
    verdict
}

fn element(
    context: Context<'_>,
    output: usize,
    dtype: DType,
    actual: &Tensor,
    (index, right, got): (usize, u64, u64),
    fault: Fault,
) -> Element {
    let names = context.op.input_names();
    let inputs = context.op.sources(context.inputs, output, index).into_iter().map(|(input, at)| {
        let tensor = &context.inputs[input];
        let name = names.get(input).copied().unwrap_or("input");
        Scalar::new(format!("{name}{:?}", coordinates(tensor.shape(), at)), tensor.dtype(), tensor.code(at))
    });
    Element {
        index,
        coordinates: coordinates(actual.shape(), index),
        inputs: inputs.collect(),
        expected: Scalar::new("expected".to_owned(), dtype, right),
        actual: Scalar::new("actual".to_owned(), dtype, got),
        fault,
    }
}

/// The index in each dimension of a row-major linear index.
fn coordinates(shape: &[usize], index: usize) -> Vec<usize> {
    let mut rest = index;
    let mut coordinates: Vec<_> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let coordinate = rest % extent;
            rest /= extent;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

struct Comparator {
    dtype: DType,
    criterion: Criterion,
    nan: NanJudge,
}

impl Comparator {
    /// Whether `got` is right where its bits differ from `right`, and its error over
    /// the bound (NaN where there is none). `exact` is the value that `right` was
    /// rounded from.
    fn accepts(&self, right: u64, got: u64, exact: Option<f64>) -> (bool, f64) {
        let Some(format) = self.dtype.format() else { return (false, f64::NAN) };
        let (right, got) = (format.decode(right), format.decode(got));
        if right.is_nan() || got.is_nan() {
            let ok = right.is_nan() && got.is_nan() && self.nan == NanJudge::Class;
            return (ok, f64::NAN);
        }
        if is_zero(right) && is_zero(got) {
            // Zeros whose bits differ differ in sign.
            return (false, f64::NAN);
        }
        let (error, bound) = match self.criterion {
            Criterion::BitExact => return (false, f64::NAN),
            Criterion::Ulp(n) => {
                let exact = exact.unwrap_or_else(|| right.to_f64());
                if !exact.is_finite() {
                    return (false, f64::NAN);
                }
                let unbounded = |value: Value| match value {
                    Value::Infinite { negative } => {
                        let beyond = 2f64.powi(format.max_exponent() + 1);
                        if negative { -beyond } else { beyond }
                    }
                    value => value.to_f64(),
                };
                ((unbounded(got) - exact).abs(), n * ulp_below(format, exact))
            }
            Criterion::Allclose { rtol, atol } => {
                if !right.to_f64().is_finite() || !got.to_f64().is_finite() {
                    return (false, f64::NAN);
                }
                ((got.to_f64() - right.to_f64()).abs(), atol + rtol * right.to_f64().abs())
            }
        };
        (error <= bound, error / bound)
    }

    /// How bad a mismatch is: a wrong NaN or infinity is worse than any number.
    fn severity(&self, right: u64, got: u64) -> f64 {
        let Some(format) = self.dtype.format() else { return right.abs_diff(got) as f64 };
        let (right, got) = (format.to_f64(right), format.to_f64(got));
        let error = (got - right).abs() / ulp_below(format, right);
        if error.is_finite() { error } else { f64::INFINITY }
    }
}

fn is_zero(value: Value) -> bool {
    matches!(value, Value::Finite { significand: 0, .. })
}

/// The distance of neighbouring codes at `value`; at a power of two, of those below.
fn ulp_below(format: Format, value: f64) -> f64 {
    let Value::Finite { significand, exponent, .. } = Value::from(value) else { return f64::NAN };
    let log2 = match significand.checked_ilog2() {
        None => format.min_exponent(),
        Some(bits) => bits as i32 + exponent - i32::from(significand.is_power_of_two()),
    };
    let binade = log2.clamp(format.min_exponent(), format.max_exponent());
    2f64.powi(binade - format.fraction_bits as i32)
}

#[cfg(test)]
mod tests;
