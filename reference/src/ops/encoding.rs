//! What the operations that encode have in common: policy fields, the optional
//! input of random bits, and scales per tensor, row or block.

use super::signature::{Inputs, SignatureError};
use crate::fast::{Conversion, Scale, Simd};
use crate::format::{F32, F64, Format, Policy, Rounding, Value};
use crate::{DType, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Declares the parameters of an operation that encodes: what it reads and makes, its own fields,
/// and those of [`Policy`], side by side (serde's `flatten` would let unknown fields pass).
macro_rules! encoding_parameters {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident {
            $(#[$from_meta:meta])* from,
            $(#[$to_meta:meta])* $to:ident: $To:ty,
            $($(#[$field_meta:meta])* $field:ident: $Type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $Name {
            $(#[$from_meta])*
            pub from: crate::format::Format,
            $(#[$to_meta])*
            pub $to: $To,
            $($(#[$field_meta])* #[serde(default)] pub $field: $Type,)*
            /// Values between two codes.
            #[serde(default)]
            pub rounding: crate::format::Rounding,
            /// Finite values beyond the largest.
            #[serde(default)]
            pub overflow: crate::format::Overflow,
            /// Infinite values.
            #[serde(default)]
            pub infinities: crate::format::Infinities,
            /// NaN.
            #[serde(default)]
            pub nan: crate::format::NanPolicy,
            /// Results below the smallest normal number.
            #[serde(default)]
            pub subnormals: crate::format::Subnormals,
            /// The sign of a zero result.
            #[serde(default)]
            pub negative_zero: crate::format::NegativeZero,
        }

        impl $Name {
            /// With every other parameter at its default.
            #[must_use]
            pub fn new(from: crate::format::Format, $to: $To) -> Self {
                Self {
                    from,
                    $to,
                    $($field: Default::default(),)*
                    rounding: Default::default(),
                    overflow: Default::default(),
                    infinities: Default::default(),
                    nan: Default::default(),
                    subnormals: Default::default(),
                    negative_zero: Default::default(),
                }
            }

            /// The policy fields as one value.
            #[must_use]
            pub fn policy(&self) -> crate::format::Policy {
                let Self { rounding, overflow, infinities, nan, subnormals, negative_zero, .. } = *self;
                crate::format::Policy { rounding, overflow, infinities, nan, subnormals, negative_zero }
            }

            /// The same with the fields of that policy.
            #[must_use]
            pub fn with_policy(self, policy: crate::format::Policy) -> Self {
                let crate::format::Policy { rounding, overflow, infinities, nan, subnormals, negative_zero } = policy;
                Self { rounding, overflow, infinities, nan, subnormals, negative_zero, ..self }
            }
        }
    };
}
pub(super) use encoding_parameters;

/// Requires `count` inputs, and one more, `random: u32[shape of x]`, for
/// stochastic rounding.
pub(super) fn check_random(
    inputs: &Inputs<'_>,
    count: usize,
    rounding: Rounding,
) -> Result<(), SignatureError> {
    if rounding != Rounding::Stochastic {
        return inputs.count(count);
    }
    inputs.count(count + 1)?;
    inputs.exactly(count, DType::U32, &[inputs.shape(0)])
}

/// Random bits for element `i`: the last input under stochastic rounding.
#[inline]
pub(super) fn random_bits(inputs: &[Tensor], policy: &Policy, i: usize) -> u32 {
    match (policy.rounding, inputs.last()) {
        (Rounding::Stochastic, Some(random)) => random.code(i) as u32,
        _ => 0,
    }
}

/// How many elements share a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// One scale, of shape `[]` or `[1]`.
    #[default]
    Tensor,
    /// One per row of a `[M, K]` tensor: shape `[M]`.
    Row,
    /// One per block of that many elements of a row: shape `[M, K / n]`.
    Block(usize),
}

impl Granularity {
    /// Shape of the scales that suit input `x`.
    pub(super) fn scale_shape(self, inputs: &Inputs<'_>, x: usize) -> Result<Vec<usize>, SignatureError> {
        match (self, inputs.shape(x)) {
            (Self::Block(0), _) => {
                Err(inputs.parameter_error("granularity", "a block has at least 1 element"))
            }
            (Self::Block(n), &[_, k]) if k % n != 0 => {
                Err(inputs.shape_error(x, format!("[M, K] with K a multiple of {n}")))
            }
            (Self::Row | Self::Block(_), shape) if shape.len() != 2 => {
                Err(inputs.shape_error(x, "[M, K]".to_owned()))
            }
            (_, shape) => Ok(self.groups(shape)),
        }
    }

    /// Shape of the scales of a tensor whose shape has been checked.
    pub(super) fn groups(self, shape: &[usize]) -> Vec<usize> {
        match self {
            Self::Tensor => vec![],
            Self::Row => vec![shape[0]],
            Self::Block(n) => vec![shape[0], shape[1] / n],
        }
    }

    /// Requires input `scale` to be an f32 of the shape that suits input `x`.
    pub(super) fn check(self, inputs: &Inputs<'_>, x: usize, scale: usize) -> Result<(), SignatureError> {
        match self.scale_shape(inputs, x)? {
            shape if shape.is_empty() => inputs.exactly(scale, F32, &[&[], &[1]]),
            shape => inputs.exactly(scale, F32, &[&shape]),
        }
    }

    /// How many consecutive elements of a tensor of that shape share a scale.
    pub(super) fn extent(self, shape: &[usize]) -> usize {
        match self {
            Self::Tensor => shape.iter().product(),
            Self::Row => shape[1],
            Self::Block(n) => n,
        }
    }

    /// Which scale element `i` of a tensor of that shape has.
    #[inline]
    #[must_use]
    pub fn scale_index(self, shape: &[usize], i: usize) -> usize {
        match self {
            Self::Tensor => 0,
            Self::Row => i / shape[1],
            // K is a multiple of n, so blocks never straddle rows.
            Self::Block(n) => i / n,
        }
    }
}

/// Where element `index` of a scaled operation comes from: `x`, its scale, and its
/// random bits where there are any.
pub(super) fn scaled_sources(
    inputs: &[Tensor],
    granularity: Granularity,
    index: usize,
) -> Vec<(usize, usize)> {
    let scale = granularity.scale_index(inputs[0].shape(), index);
    let random = (inputs.len() > 2).then_some((2, index));
    [(0, index), (1, scale)].into_iter().chain(random).collect()
}

/// The outcome of a fast path as a tensor: the first input, scaled if a scale is given.
pub(super) fn converted(
    conversion: &Conversion,
    simd: Simd,
    inputs: &[Tensor],
    scale: Option<&Scale>,
    ty: TensorType,
) -> Result<Tensor, TensorError> {
    let random = match inputs.last() {
        Some(random) if random.dtype() == DType::U32 => random.packed(),
        _ => Cow::default(),
    };
    let bytes = conversion.converted(simd, &inputs[0].packed(), scale, &random);
    Tensor::from_bytes(ty, bytes)
}

/// How a scale is applied: three operations that round differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScaleOp {
    /// `x * s`.
    #[default]
    Multiply,
    /// `x / s`.
    Divide,
    /// `x * (1 / s)`, the reciprocal rounded to f32 first.
    Reciprocal,
}

impl ScaleOp {
    /// The scaled value, rounded to f32.
    #[inline]
    pub(super) fn apply(self, x: f32, s: f32) -> f32 {
        match self {
            Self::Multiply => x * s,
            Self::Divide => x / s,
            Self::Reciprocal => x * (1.0 / s),
        }
    }
}

impl ScaleOp {
    /// The scales of a tensor as a fast path takes them.
    pub(super) fn scale(self, granularity: Granularity, x: &Tensor, s: &Tensor) -> Scale {
        let factors = s.codes().map(|code| f32::from_bits(code as u32));
        let factors = match self {
            Self::Multiply | Self::Divide => factors.collect(),
            Self::Reciprocal => factors.map(|s| 1.0 / s).collect(),
        };
        Scale { divide: self == Self::Divide, factors, extent: granularity.extent(x.shape()) }
    }
}

/// Requires a source format whose values f32 holds exactly, as scaled operations
/// compute in f32.
pub(super) fn check_f32_source(inputs: &Inputs<'_>, from: Format) -> Result<(), SignatureError> {
    if from == F64 {
        return Err(inputs.parameter_error("from", "scaling computes in f32; f64 is not a source for it"));
    }
    Ok(())
}

/// Element `i` as an f32. Exact for every format but F64.
#[inline]
pub(super) fn f32_at(x: &Tensor, format: Format, i: usize) -> f32 {
    let code = x.code(i);
    let bits = if format == F32 { code } else { F32.encode(format.decode(code), &Policy::IEEE, 0) };
    f32::from_bits(bits as u32)
}

/// An arithmetic result as a value: NaN is positive, whatever sign the processor
/// gave it.
#[inline]
pub(crate) fn arithmetic(x: f32) -> Value {
    if x.is_nan() { Value::Nan { negative: false } } else { Value::from(x) }
}

/// The bits of an arithmetic f32 result, NaN canonical.
#[inline]
pub(super) fn f32_bits(x: f32) -> u64 {
    F32.encode(arithmetic(x), &Policy::IEEE, 0)
}
