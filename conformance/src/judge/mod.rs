//! Judging an output: one comparator for every backend, output and element.

mod fault;

pub use fault::Fault;

use crate::case::{Criterion, NanJudge};
use crate::enclosed;
use crate::product::{BlockProduct, FusedProduct, Hints, Judged, PrefillProduct, Product, Wrong};
use crate::source::{Expected, Values};
use plumbline_reference::format::{Format, Value};
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// What judging one output gave.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OutputVerdict {
    /// Position among the operation's outputs.
    pub output: usize,
    /// Of a sequence: what was compared, and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Checked>,
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
    /// Largest error over its bound, of the elements that have one: those that are
    /// finite, under a criterion with a tolerance. More than 1 fails; an infinite one, over
    /// a bound of 0, is `null`.
    #[serde(default, deserialize_with = "null_is_infinite", skip_serializing_if = "Option::is_none")]
    pub max_error_over_bound: Option<f64>,
    /// The first mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Element>,
    /// The worst mismatch: a wrong special value before a wrong number, then the
    /// largest error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Element>,
    /// Why no element was compared: wrong shape or type, or inputs that a check is not for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Of a matrix product: the order of accumulation that gives these bits, or comes nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// Of a matrix product: which faults the check finds, and with what certainty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// What there is to know of right elements: a value on the way to them overflows, for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<Notes>,
}

/// What there is to know of right elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notes {
    /// Elements that there is something to know of.
    pub elements: usize,
    /// The first of them: its row-major linear index.
    pub index: usize,
    /// What there is to know of it.
    pub first: String,
}

/// A check of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The buffer.
    pub buffer: String,
    /// The step: `steps[3].repeat.steps[1] in round 917 of 1000`.
    pub step: String,
}

/// JSON has no infinity. The field is left out where there is no error.
fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY)))
}

/// One element of an output and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// What there is to know of the right value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One number: its name, bits and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The architecture of the device, where it has one: `sm_90`.
    pub architecture: Option<&'a str>,
    /// How the backend says that it computes, if it does.
    pub hints: Option<&'a Hints>,
}

/// What an implementation gave of an output.
#[derive(Clone, Copy)]
pub enum Actual<'a> {
    /// All of it.
    Whole(&'a Tensor),
    /// The elements that are expected, in their order.
    Elements(&'a Tensor),
}

impl<'a> From<&'a Tensor> for Actual<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Whole(tensor)
    }
}

/// Judges output number `output`.
#[must_use]
pub fn judge<'a>(
    context: Context<'_>,
    output: usize,
    expected: &Expected,
    actual: impl Into<Actual<'a>>,
) -> OutputVerdict {
    let mut verdict = judge_elements(context, output, expected, actual.into(), false);
    if verdict.shape.is_some() {
        return verdict;
    }
    let notes = context.op.notes(context.inputs, output);
    for element in verdict.first.iter_mut().chain(&mut verdict.worst) {
        element.note = notes.iter().find(|(index, _)| *index == element.index).map(|(_, note)| note.clone());
    }
    let elements = notes.len();
    verdict.notes = notes.into_iter().next().map(|(index, first)| Notes { elements, index, first });
    verdict
}

/// Whether [`judge`] would accept an output; of expected bits the first that is wrong is enough.
#[must_use]
pub(crate) fn accepts(context: Context<'_>, output: usize, expected: &Expected, actual: Actual<'_>) -> bool {
    judge_elements(context, output, expected, actual, true).ok
}

fn judge_elements(
    context: Context<'_>,
    output: usize,
    expected: &Expected,
    actual: Actual<'_>,
    first_only: bool,
) -> OutputVerdict {
    let mut verdict = OutputVerdict {
        output,
        check: None,
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
        explanation: None,
        guarantee: None,
        notes: None,
    };
    let count = match &expected.values {
        Values::Dense(tensor) => tensor.len(),
        Values::Sparse { at, .. } => at.len(),
        Values::Derived => 0,
    };
    verdict.shape = match actual {
        Actual::Whole(tensor) if tensor.ty() != &expected.ty => {
            Some(format!("output is {}, expected {}", tensor.ty(), expected.ty))
        }
        Actual::Elements(given) if given.len() != count => {
            Some(format!("{} elements given, {count} expected", given.len()))
        }
        Actual::Whole(_) | Actual::Elements(_) => None,
    };
    if verdict.shape.is_some() {
        return verdict;
    }
    if let (Values::Derived, Actual::Whole(actual)) = (&expected.values, actual) {
        return match by_operation(context, output, expected.criterion, actual) {
            Ok(judged) => derived(context, verdict, actual, judged),
            Err(error) => OutputVerdict { shape: Some(error.to_string()), ..verdict },
        };
    }
    let comparator = Comparator {
        dtype: expected.ty.dtype,
        criterion: expected.criterion,
        nan: expected.nan.unwrap_or(context.nan),
    };
    let pair = |i: usize| {
        let (index, right) = match &expected.values {
            Values::Dense(tensor) => (i, tensor.code(i)),
            Values::Sparse { at, values } => (at[i], values.code(i)),
            Values::Derived => unreachable!("there are no values to compare with"),
        };
        let got = match actual {
            Actual::Whole(tensor) => tensor.code(index),
            Actual::Elements(given) => given.code(i),
        };
        (index, right, got)
    };

    verdict.elements = count;
    if same_bytes(expected, actual) && expected.criterion == Criterion::BitExact {
        (verdict.ok, verdict.bit_exact) = (true, true);
        return verdict;
    }
    verdict.bit_exact = true;
    let mut worst: Option<(f64, usize)> = None;
    for i in 0..count {
        let (index, right, got) = pair(i);
        verdict.bit_exact &= right == got;
        if right == got && expected.criterion == Criterion::BitExact {
            continue;
        }
        let exact = context.exact(expected, output, index);
        let (ok, ratio) = comparator.accepts(right, got, exact);
        if let Some(ratio) = ratio {
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
            verdict.first = Some(element(context, output, expected, (index, right, got)));
        }
        if first_only {
            break;
        }
    }
    verdict.ok = verdict.mismatches == 0;
    verdict.worst = worst.map(|(_, i)| element(context, output, expected, pair(i)));
    verdict
}

/// Whether the whole output has the right bits, without looking at elements.
fn same_bytes(expected: &Expected, actual: Actual<'_>) -> bool {
    match (&expected.values, actual) {
        (Values::Dense(right), Actual::Whole(actual)) => {
            right.strides() == actual.strides() && right.bytes() == actual.bytes()
        }
        _ => false,
    }
}

/// Judges an output that no values are expected of, as its operation says. The error is one of memory.
fn by_operation(
    context: Context<'_>,
    output: usize,
    criterion: Criterion,
    actual: &Tensor,
) -> Result<Judged, TensorError> {
    let Context { op, inputs, architecture, .. } = context;
    let none = Hints::default();
    let hints = context.hints.unwrap_or(&none);
    if let Op::Gemm(gemm) = op {
        return Ok(Product { gemm, inputs, architecture, hints }.judge(criterion, actual));
    }
    if let Some(product) = BlockProduct::of(op, inputs) {
        return Ok(product.judge(actual));
    }
    if let Some(product) = FusedProduct::of(op, inputs) {
        return Ok(product.judge(architecture, actual));
    }
    if let Some(product) = PrefillProduct::of(op, inputs)? {
        return Ok(product.judge(criterion, architecture, hints, actual));
    }
    Ok(enclosed::judge(op, inputs, output, actual))
}

/// The verdict on an output that no values are expected of.
fn derived(context: Context<'_>, verdict: OutputVerdict, actual: &Tensor, judged: Judged) -> OutputVerdict {
    let dtype = actual.dtype();
    let comparator = Comparator { dtype, criterion: Criterion::BitExact, nan: NanJudge::Class };
    let mut faults = BTreeMap::new();
    let mut worst: Option<(f64, &Wrong)> = None;
    for wrong in &judged.wrong {
        *faults.entry(Fault::of(dtype, wrong.right, wrong.got, None)).or_default() += 1;
        let severity = comparator.severity(wrong.right, wrong.got);
        if worst.is_none_or(|(most, _)| severity > most) {
            worst = Some((severity, wrong));
        }
    }
    let described = |wrong: &Wrong| {
        let pair = (wrong.position, wrong.right, wrong.got);
        let fault = Fault::of(dtype, wrong.right, wrong.got, None);
        described(context, verdict.output, actual.ty(), pair, fault)
    };
    OutputVerdict {
        ok: judged.wrong.is_empty() && judged.impossible.is_none(),
        bit_exact: judged.bit_exact && judged.impossible.is_none(),
        elements: judged.elements,
        mismatches: judged.wrong.len(),
        faults,
        max_error_over_bound: judged.max_error_over_bound,
        first: judged.wrong.first().map(described),
        worst: worst.map(|(_, wrong)| described(wrong)),
        shape: judged.impossible,
        explanation: judged.explanation,
        guarantee: Some(judged.guarantee),
        ..verdict
    }
}

impl<'a> Context<'a> {
    /// A call of which nothing more is known.
    #[must_use]
    pub fn new(op: &'a Op, inputs: &'a [Tensor], nan: NanJudge) -> Self {
        Self { op, inputs, nan, architecture: None, hints: None }
    }

    /// The value that the right one was rounded from, where the definition computed it.
    fn exact(&self, expected: &Expected, output: usize, index: usize) -> Option<f64> {
        if expected.computed { self.op.exact(self.inputs, output, index) } else { None }
    }
}

fn element(
    context: Context<'_>,
    output: usize,
    expected: &Expected,
    (index, right, got): (usize, u64, u64),
) -> Element {
    let fault = Fault::of(expected.ty.dtype, right, got, context.exact(expected, output, index));
    described(context, output, &expected.ty, (index, right, got), fault)
}

fn described(
    context: Context<'_>,
    output: usize,
    ty: &TensorType,
    (index, right, got): (usize, u64, u64),
    fault: Fault,
) -> Element {
    let dtype = ty.dtype;
    let names = context.op.input_names();
    let inputs = context.op.sources(context.inputs, output, index).into_iter().map(|(input, at)| {
        let tensor = &context.inputs[input];
        let name = names.get(input).copied().unwrap_or("input");
        Scalar::new(format!("{name}{:?}", coordinates(tensor.shape(), at)), tensor.dtype(), tensor.code(at))
    });
    Element {
        index,
        coordinates: coordinates(&ty.shape, index),
        inputs: inputs.collect(),
        expected: Scalar::new("expected".to_owned(), dtype, right),
        actual: Scalar::new("actual".to_owned(), dtype, got),
        fault,
        note: None,
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
    /// Whether `got` is right, and its error over the bound where there is one.
    /// `exact` is the value that `right` was rounded from.
    fn accepts(&self, right: u64, got: u64, exact: Option<f64>) -> (bool, Option<f64>) {
        if self.criterion == Criterion::BitExact && right == got {
            return (true, None);
        }
        let Some(format) = self.dtype.format() else { return (right == got, None) };
        if got & !self.dtype.code_mask() != 0 {
            return (false, None);
        }
        let (right_value, got_value) = (format.decode(right), format.decode(got));
        if right_value.is_nan() || got_value.is_nan() {
            let both = right_value.is_nan() && got_value.is_nan();
            return (both && (self.nan == NanJudge::Class || right == got), None);
        }
        if is_zero(right_value) && is_zero(got_value) {
            return (right == got, None);
        }
        let (error, bound) = match self.criterion {
            Criterion::BitExact | Criterion::Bound | Criterion::Explained | Criterion::Freivalds => {
                return (false, None);
            }
            Criterion::Ulp(n) => {
                let exact = exact.unwrap_or_else(|| right_value.to_f64());
                // An infinity counts as a number only where the value is out of range.
                let in_range = exact.abs() <= format.to_f64(format.max_finite());
                if !exact.is_finite() || in_range && matches!(got_value, Value::Infinite { .. }) {
                    return (right == got, None);
                }
                // Out of range, the right result is what the policy makes of it.
                if !in_range && right == got {
                    return (true, Some(0.0));
                }
                let beyond = power_of_two(format.max_exponent() + 1);
                let exact = exact.clamp(-beyond, beyond);
                let unbounded = |value: Value| match value {
                    Value::Infinite { negative } => {
                        if negative {
                            -beyond
                        } else {
                            beyond
                        }
                    }
                    value => value.to_f64(),
                };
                ((unbounded(got_value) - exact).abs(), n * ulp_below(format, exact))
            }
            Criterion::Allclose { rtol, atol } => {
                let (right_value, got_value) = (right_value.to_f64(), got_value.to_f64());
                if !right_value.is_finite() || !got_value.is_finite() {
                    return (right == got, None);
                }
                ((got_value - right_value).abs(), atol + rtol * right_value.abs())
            }
        };
        let ratio = if error == 0.0 { 0.0 } else { error / bound };
        // An error beyond f64 is beyond every bound.
        (error.is_finite() && error <= bound, Some(ratio))
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
    power_of_two(binade - format.fraction_bits as i32)
}

/// `2^exponent`; `f64::powi` gives 0 for the smallest.
fn power_of_two(exponent: i32) -> f64 {
    Value::Finite { negative: false, significand: 1, exponent }.to_f64()
}

#[cfg(test)]
mod tests;
