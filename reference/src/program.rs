//! Operations that are made of others: steps over numbered values.
//!
//! Values `0..inputs` are the inputs; every other is made by one step, after those that it is
//! made from. The program is the definition: each step is an operation with its own rounding, so
//! an implementation may run the steps one by one, or all at once with the same bits.

use crate::ops::{Op, SignatureError};
use crate::{Path, Tensor, TensorError, TensorType};

/// Steps over numbered values.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    types: Vec<TensorType>,
    inputs: usize,
    steps: Vec<Step>,
    outputs: Vec<usize>,
}

/// One step. Values are named by their numbers.
#[derive(Clone, Debug, PartialEq)]
// Steps are few and rarely moved.
#[allow(clippy::large_enum_variant)]
pub enum Step {
    /// An operation.
    Call {
        /// The operation with its parameters.
        op: Op,
        /// What it reads.
        inputs: Vec<usize>,
        /// What it makes.
        outputs: Vec<usize>,
    },
    /// The slices of the first dimension that both values have, and zeros where the new one has
    /// more.
    Rows {
        /// The value read.
        from: usize,
        /// The value made.
        to: usize,
    },
}

impl Program {
    /// A program without steps.
    #[must_use]
    pub fn new(inputs: &[TensorType]) -> Self {
        Self { types: inputs.to_vec(), inputs: inputs.len(), steps: Vec::new(), outputs: Vec::new() }
    }

    /// Adds an operation on values. Returns the numbers of what it makes, or what does not fit.
    pub fn call(&mut self, op: impl Into<Op>, inputs: &[usize]) -> Result<Vec<usize>, SignatureError> {
        let op = op.into();
        let types: Vec<_> = inputs.iter().map(|&value| self.types[value].clone()).collect();
        let first = self.types.len();
        self.types.extend(op.signature(&types)?);
        let outputs: Vec<_> = (first..self.types.len()).collect();
        self.steps.push(Step::Call { op, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// Adds an operation that makes one value; see [`Self::call`].
    pub fn one(&mut self, op: impl Into<Op>, inputs: &[usize]) -> Result<usize, SignatureError> {
        Ok(self.call(op, inputs)?[0])
    }

    /// A value with that many slices of its first dimension: the value itself where it has them.
    pub fn rows(&mut self, from: usize, rows: usize) -> usize {
        if self.types[from].shape.first().is_none_or(|&own| own == rows) {
            return from;
        }
        let mut ty = self.types[from].clone();
        ty.shape[0] = rows;
        self.types.push(ty);
        let to = self.types.len() - 1;
        self.steps.push(Step::Rows { from, to });
        to
    }

    /// The same with these values as its outputs.
    #[must_use]
    pub fn returning(self, outputs: &[usize]) -> Self {
        Self { outputs: outputs.to_vec(), ..self }
    }

    /// Types of all values.
    #[must_use]
    pub fn types(&self) -> &[TensorType] {
        &self.types
    }

    /// How many of the values are inputs: the first ones.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The steps in their order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The values that are outputs.
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Types of the outputs.
    #[must_use]
    pub fn output_types(&self) -> Vec<TensorType> {
        self.outputs.iter().map(|&value| self.types[value].clone()).collect()
    }

    /// Runs all steps, given inputs of the program's types.
    ///
    /// # Panics
    /// If there are fewer inputs.
    pub fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let values = self.values(inputs, path, self.steps.len())?;
        Ok(self.outputs.iter().map(|&value| made(&values, value).clone()).collect())
    }

    /// The values after that many steps; `None` for those that no step has made yet.
    ///
    /// # Panics
    /// If there are fewer inputs than the program's.
    pub fn values(
        &self,
        inputs: &[Tensor],
        path: Path,
        steps: usize,
    ) -> Result<Vec<Option<Tensor>>, TensorError> {
        let mut values: Vec<_> = inputs.iter().cloned().map(Some).collect();
        values.resize(self.types.len(), None);
        for step in &self.steps[..steps] {
            match step {
                Step::Call { op, inputs, outputs } => {
                    let inputs: Vec<_> = inputs.iter().map(|&value| made(&values, value).clone()).collect();
                    for (&value, made) in outputs.iter().zip(op.compute(&inputs, path)?) {
                        values[value] = Some(made);
                    }
                }
                Step::Rows { from, to } => {
                    let ty = &self.types[*to];
                    let mut bytes = made(&values, *from).packed().into_owned();
                    bytes.resize(ty.elements()? * ty.dtype.bytes(), 0);
                    values[*to] = Some(Tensor::from_bytes(ty.clone(), bytes)?);
                }
            }
        }
        Ok(values)
    }
}

/// A value that a step reads, or the program returns.
fn made(values: &[Option<Tensor>], value: usize) -> &Tensor {
    values[value].as_ref().expect("values are made before they are read")
}

/// The program of inputs that are known to fit.
pub(crate) fn fitting(program: Result<Program, SignatureError>) -> Result<Program, TensorError> {
    program.map_err(|error| match error {
        SignatureError::Tensor(error) => error,
        error => unreachable!("the inputs were checked: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{F16, F32};
    use crate::ops::{Cast, Decode};

    fn numbers(values: &[f32]) -> Tensor {
        let codes: Vec<_> = values.iter().map(|value| value.to_bits().into()).collect();
        Tensor::from_codes(TensorType::new(F32, [values.len()]), &codes).unwrap()
    }

    #[test]
    fn steps_run_in_order_and_rows_are_cut_and_filled_with_zeros() {
        let x = numbers(&[1.0, 1.0 + 1.0 / 4096.0, -2.0]);
        let mut program = Program::new(&[x.ty().clone()]);
        let long = program.rows(0, 5);
        let half = program.one(Cast::new(F32, F16), &[long]).unwrap();
        let back = program.one(Decode { from: F16, to: F32 }, &[half]).unwrap();
        let short = program.rows(back, 2);
        assert_eq!(program.rows(short, 2), short);
        let program = program.returning(&[short, back]);
        for path in [Path::Definition, Path::Parallel, Path::fastest()] {
            let outputs = program.evaluate(std::slice::from_ref(&x), path).unwrap();
            assert_eq!(outputs, [numbers(&[1.0, 1.0]), numbers(&[1.0, 1.0, -2.0, 0.0, 0.0])]);
        }
        let values = program.values(&[x], Path::Definition, 1).unwrap();
        assert!(values[long].is_some() && values[half].is_none());
    }

    #[test]
    fn what_does_not_fit_is_the_error_of_its_step() {
        let mut program = Program::new(&[TensorType::new(F32, [3])]);
        let error = program.one(Cast::new(F16, F32), &[0]).unwrap_err();
        assert_eq!(error.to_string(), "cast: input `x` is f32, expected f16");
    }
}
