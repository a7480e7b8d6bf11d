//! Named classes of inputs.

mod classes;

use crate::case::Class;
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Tensor, TensorError};

/// What a class is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The class.
    pub class: &'a Class,
    /// Element type of the input.
    pub dtype: DType,
    /// Shape, where the case gives one.
    pub shape: Option<&'a [usize]>,
    /// Lanes that each value must stand in, at least 1.
    pub lanes: usize,
    /// Seed of random classes.
    pub seed: u64,
    /// The operation, for the target format and how it scales.
    pub op: &'a Op,
    /// Inputs already made (all literal and recorded ones), by position.
    pub others: &'a [Option<Tensor>],
}

/// Why a class cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The class and the case do not go together.
    #[error("{0}")]
    Mismatch(String),
    /// The tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The values of a class.
pub fn generate(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    classes::generate(request)
}
