//! What the adapters over scalar functions have in common.

use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::format::{Class, F64, Format, Policy};
use plumbline_reference::ops::{Classify, Op};
use plumbline_reference::{Path, Tensor, TensorType};
use std::num::FpCategory;

/// How a library computes an operation.
pub(super) enum Scalar {
    /// From the code of each element of the input to that of the output.
    Elementwise(fn(u64) -> u64),
    /// The values of `format_info`, in its order.
    Constants([f64; 5]),
}

impl Scalar {
    pub(super) fn run(self, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        match self {
            Self::Elementwise(code) => elementwise(op, inputs, code),
            Self::Constants(values) => {
                check_inputs(op, inputs)?;
                Ok(vec![Tensor::from_codes(TensorType::new(F64, [5]), &values.map(f64::to_bits))?])
            }
        }
    }
}

/// Checks the inputs against the operation and gives the types of the outputs.
pub(super) fn check_inputs(op: &Op, inputs: &[Tensor]) -> Result<Vec<TensorType>, BackendError> {
    let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
    let outputs = op.signature(&types)?;
    op.check(inputs)?;
    Ok(outputs)
}

/// `code` of each element of the only input.
pub(super) fn elementwise(
    op: &Op,
    inputs: &[Tensor],
    code: impl Fn(u64) -> u64 + Sync,
) -> Result<Vec<Tensor>, BackendError> {
    match (inputs, &*check_inputs(op, inputs)?) {
        ([x], [ty]) if x.shape() == ty.shape => {
            Ok(vec![Tensor::from_fn(ty.clone(), Path::Parallel, |i| code(x.code(i)))?])
        }
        _ => {
            let why = "is not elementwise from one input to one output".to_owned();
            Err(BackendError::Failed { call: op.name().to_owned(), why })
        }
    }
}

/// Requires the variant to be one of those there are.
pub(super) fn check_variant(op: &Op, variant: &str, known: &[&str]) -> Result<(), BackendError> {
    if known.contains(&variant) {
        return Ok(());
    }
    let known = known.iter().map(|&name| name.to_owned()).collect();
    Err(BackendError::Variant { op: op.name(), variant: variant.to_owned(), known })
}

/// Requires the policy to be the one that is implemented, or names the fields to
/// declare otherwise.
pub(super) fn check_policy(given: Policy, implemented: Policy) -> Result<(), Unsupported> {
    if given == implemented {
        return Ok(());
    }
    // Through JSON, so that the message has the names that case files use.
    let fields = |policy| serde_json::to_value::<Policy>(policy).unwrap_or_default();
    let (given, implemented) = (fields(given), fields(implemented));
    let differing = implemented.as_object().into_iter().flatten().filter(|(name, value)| {
        let given = given.get(name.as_str());
        given != Some(*value)
    });
    let declare: Vec<_> =
        differing.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or_default())).collect();
    Err(Unsupported(format!("implements one policy; declare {}", declare.join(", "))))
}

/// Why an operation on these formats is not done.
pub(super) fn no_conversion(op: &Op, from: Format, to: Format) -> Unsupported {
    Unsupported(format!("has no {} from {from} to {to}", op.name()))
}

/// Why an operation on this format is not done.
pub(super) fn no_format(format: Format) -> Unsupported {
    Unsupported(format!("has no format {format}"))
}

/// Why an operation is not done at all.
pub(super) fn no_operation(op: &Op) -> Unsupported {
    Unsupported(format!("has no {}", op.name()))
}

/// What a library's predicates say of one value.
pub(super) struct Predicates {
    pub(super) is_nan: bool,
    pub(super) is_infinite: bool,
    pub(super) is_normal: bool,
    pub(super) category: FpCategory,
    pub(super) is_negative: bool,
}

impl Predicates {
    /// The code of `classify`: every class that some predicate claims, so that
    /// predicates which contradict each other give a code that no value has.
    pub(super) fn code(&self) -> u64 {
        let category = match self.category {
            FpCategory::Nan => Class::Nan,
            FpCategory::Infinite => Class::Infinite,
            FpCategory::Zero => Class::Zero,
            FpCategory::Subnormal => Class::Subnormal,
            FpCategory::Normal => Class::Normal,
        };
        let claims = [
            (true, category as u8),
            (self.is_nan, Class::Nan as u8),
            (self.is_infinite, Class::Infinite as u8),
            (self.is_normal, Class::Normal as u8),
            (self.is_negative, Classify::NEGATIVE),
        ];
        claims.into_iter().filter(|(claimed, _)| *claimed).fold(0, |code, (_, bit)| code | bit).into()
    }
}

/// The predicates of a value of float8's or half's types, which share their names.
macro_rules! predicates {
    ($value:expr) => {{
        let value = $value;
        $crate::adapter::scalar::Predicates {
            is_nan: value.is_nan(),
            is_infinite: value.is_infinite(),
            is_normal: value.is_normal(),
            category: value.classify(),
            is_negative: value.is_sign_negative(),
        }
        .code()
    }};
}
pub(super) use predicates;

/// The constants of one of float8's or half's types, in the order of `format_info`.
macro_rules! constants {
    ($Type:ty) => {
        [<$Type>::MAX, <$Type>::MIN, <$Type>::MIN_POSITIVE, <$Type>::MIN_POSITIVE_SUBNORMAL, <$Type>::EPSILON]
            .map(|constant| constant.to_f64())
    };
}
pub(super) use constants;
