//! Checking types and shapes of inputs.

use crate::{DType, TensorError, TensorType};

/// What does not fit between an operation and its inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Too few or too many inputs.
    #[error("{op}: {given} inputs given, expected {}: {}", expected.len(), expected.join(", "))]
    InputCount {
        /// The operation.
        op: &'static str,
        /// Names of the inputs it takes.
        expected: Vec<&'static str>,
        /// How many were given.
        given: usize,
    },
    /// An input of the wrong element type.
    #[error("{op}: input `{input}` is {given}, expected {expected}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The input.
        input: &'static str,
        /// The type it must have.
        expected: DType,
        /// The type it has.
        given: DType,
    },
    /// An input of the wrong shape.
    #[error("{op}: input `{input}` has shape {given:?}, expected {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The input.
        input: &'static str,
        /// The shape it must have, in words or figures.
        expected: String,
        /// The shape it has.
        given: Vec<usize>,
    },
    /// A parameter that does not make sense.
    #[error("{op}: `{field}`: {why}")]
    Parameter {
        /// The operation.
        op: &'static str,
        /// The parameter.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An element whose value does not fit.
    #[error("{op}: `{input}[{index}]` is {given}, expected {expected}")]
    Value {
        /// The operation.
        op: &'static str,
        /// The input.
        input: &'static str,
        /// Row-major index of the element.
        index: usize,
        /// Its value.
        given: String,
        /// What it must be.
        expected: String,
    },
    /// A tensor that cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The input types of a call, with the names to report them by.
pub struct Inputs<'a> {
    op: &'static str,
    names: Vec<&'static str>,
    types: &'a [TensorType],
}

impl<'a> Inputs<'a> {
    pub(super) fn new(
        op: &'static str,
        names: Vec<&'static str>,
        types: &'a [TensorType],
    ) -> Result<Self, SignatureError> {
        for ty in types {
            ty.elements()?;
        }
        Ok(Self { op, names, types })
    }

    /// Requires exactly `count` inputs.
    pub(super) fn count(&self, count: usize) -> Result<(), SignatureError> {
        if self.types.len() == count {
            return Ok(());
        }
        let expected = self.names[..count].to_vec();
        Err(SignatureError::InputCount { op: self.op, expected, given: self.types.len() })
    }

    /// Types of all inputs.
    pub(super) fn types(&self) -> &'a [TensorType] {
        self.types
    }

    /// Shape of input `i`; `[]` where there is none.
    pub(super) fn shape(&self, i: usize) -> &'a [usize] {
        self.types.get(i).map_or(&[], |ty| &ty.shape)
    }

    /// Requires input `i` to be of that element type; returns its shape.
    pub(super) fn dtype(&self, i: usize, expected: impl Into<DType>) -> Result<&'a [usize], SignatureError> {
        let expected = expected.into();
        let TensorType { dtype: given, shape } = &self.types[i];
        if *given == expected {
            return Ok(shape);
        }
        Err(SignatureError::DType { op: self.op, input: self.names[i], expected, given: *given })
    }

    /// Requires input `i` to be of that element type and of one of the shapes.
    pub(super) fn exactly(
        &self,
        i: usize,
        dtype: impl Into<DType>,
        shapes: &[&[usize]],
    ) -> Result<(), SignatureError> {
        let given = self.dtype(i, dtype)?;
        if shapes.contains(&given) {
            return Ok(());
        }
        let expected = shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(" or ");
        Err(self.shape_error(i, expected))
    }

    pub(super) fn shape_error(&self, i: usize, expected: String) -> SignatureError {
        let given = self.types[i].shape.clone();
        SignatureError::Shape { op: self.op, input: self.names[i], expected, given }
    }

    pub(super) fn parameter_error(&self, field: &'static str, why: impl Into<String>) -> SignatureError {
        SignatureError::Parameter { op: self.op, field, why: why.into() }
    }
}
