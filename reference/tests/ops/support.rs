//! Making inputs and evaluating.

use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Path, Tensor, TensorType};

pub(crate) fn tensor(dtype: impl Into<DType>, shape: &[usize], codes: &[u64]) -> Tensor {
    Tensor::from_codes(TensorType::new(dtype, shape), codes).unwrap()
}

/// A vector of codes.
pub(crate) fn codes(format: Format, codes: &[u64]) -> Tensor {
    tensor(format, &[codes.len()], codes)
}

pub(crate) fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    let codes: Vec<_> = values.iter().map(|value| value.to_bits().into()).collect();
    tensor(F32, shape, &codes)
}

/// A vector of f32.
pub(crate) fn vector(values: &[f32]) -> Tensor {
    f32s(&[values.len()], values)
}

pub(crate) fn scalar(value: f32) -> Tensor {
    f32s(&[], &[value])
}

/// The outputs, which both paths give with the same bits.
pub(crate) fn evaluate(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Tensor> {
    let op = op.into();
    let definition = op.evaluate(inputs, Path::Definition).unwrap();
    assert!(
        definition == op.evaluate(inputs, Path::Parallel).unwrap(),
        "{} differs between paths",
        op.name()
    );
    definition
}

/// The codes of the first output.
pub(crate) fn first(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<u64> {
    evaluate(op, inputs)[0].codes().collect()
}

/// The first output as f32.
pub(crate) fn first_f32(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<f32> {
    let output = evaluate(op, inputs).swap_remove(0);
    assert_eq!(output.dtype(), DType::from(F32));
    output.codes().map(|bits| f32::from_bits(bits as u32)).collect()
}
