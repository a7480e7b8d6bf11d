//! Empty and absurd shapes give empty results or errors, never a panic.

use crate::sampled::samples;
use crate::support::evaluate;
use plumbline_reference::format::{E4M3FN, F16, F32, Format};
use plumbline_reference::ops::{
    Absmax, Cast, DeviceScaledCast, Granularity, Op, ScaledCast, ScaledDecode, SignatureError,
};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

fn empty(format: Format, shape: &[usize]) -> Tensor {
    Tensor::from_bytes(TensorType::new(format, shape), vec![]).unwrap()
}

fn zeros(format: Format, shape: &[usize]) -> Tensor {
    Tensor::from_fn(TensorType::new(format, shape), Path::Definition, |_| 0).unwrap()
}

fn scaled(granularity: Granularity) -> [Op; 3] {
    [
        ScaledCast { granularity, ..ScaledCast::new(F32, E4M3FN) }.into(),
        DeviceScaledCast { granularity, ..DeviceScaledCast::new(F32, E4M3FN) }.into(),
        ScaledDecode { from: F32, granularity }.into(),
    ]
}

#[test]
fn empty_inputs_give_empty_outputs_of_their_shape() {
    for sample in samples().into_iter().filter(|sample| sample.elementwise()) {
        for shape in [&[0][..], &[0, 5], &[5, 0], &[0, 0], &[3, 0, 2], &[usize::MAX, usize::MAX, 0]] {
            let outputs = evaluate(sample.op.clone(), &sample.inputs(shape));
            assert_eq!((outputs[0].shape(), outputs[0].len()), (shape, 0), "{}", sample.op.name());
        }
    }
}

#[test]
fn empty_rows_and_blocks_take_scales_of_the_shape_that_absmax_gives() {
    for granularity in [Granularity::Row, Granularity::Block(1), Granularity::Block(32)] {
        for shape in [[0, 0], [0, 64], [3, 0]] {
            let x = empty(F32, &shape);
            let absmax = Absmax { from: F32, nan: Default::default(), granularity };
            let scale = evaluate(absmax, std::slice::from_ref(&x)).swap_remove(0);
            for op in scaled(granularity) {
                let name = op.name();
                let outputs = evaluate(op, &[x.clone(), scale.clone()]);
                assert_eq!(outputs[0].shape(), shape, "{name} {granularity:?}");
                if let Some(dequant) = outputs.get(1) {
                    assert_eq!(dequant.shape(), scale.shape(), "{name} {granularity:?}");
                }
            }
        }
    }
}

#[test]
fn rows_of_nothing_are_refused_where_their_results_would_be_too_many() {
    let x = empty(F32, &[usize::MAX, 0]);
    let absmax = Absmax { from: F32, nan: Default::default(), granularity: Granularity::Row };
    for path in [Path::Definition, Path::Parallel] {
        let error = Op::from(absmax).evaluate(std::slice::from_ref(&x), path).unwrap_err();
        assert!(matches!(error, SignatureError::Tensor(TensorError::TooLarge { .. })), "{error}");
    }
}

#[test]
fn the_largest_block_is_a_row_of_nothing() {
    let granularity = Granularity::Block(usize::MAX);
    let x = empty(F32, &[2, 0]);
    assert_eq!(evaluate(scaled(granularity)[0].clone(), &[x, empty(F32, &[2, 0])])[0].shape(), [2, 0]);
}

#[test]
fn outputs_larger_than_a_tensor_may_be_are_refused() {
    let ty = TensorType::new(F16, [3 << 30]);
    let repeated = Tensor::from_strided(ty, vec![0], vec![0, 0]).unwrap();
    let error = Op::from(Cast::new(F16, F32)).evaluate(&[repeated], Path::Definition).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shape [3221225472] of f32 needs more than 8 GiB, the largest tensor that is made"
    );
}

#[test]
fn input_types_that_no_tensor_has_are_refused() {
    let huge = TensorType::new(F32, [usize::MAX, 2]);
    let error = Op::from(Cast::new(F32, E4M3FN)).signature(&[huge]).unwrap_err();
    assert!(matches!(error, SignatureError::Tensor(TensorError::TooLarge { .. })), "{error}");
}

#[test]
fn any_rank_has_a_scale_for_the_tensor() {
    for shape in [&[][..], &[1], &[2, 2, 2], &[1, 1, 1, 1, 3]] {
        for op in scaled(Granularity::Tensor) {
            let name = op.name();
            assert_eq!(evaluate(op, &[zeros(F32, shape), zeros(F32, &[])])[0].shape(), shape, "{name}");
        }
    }
}
