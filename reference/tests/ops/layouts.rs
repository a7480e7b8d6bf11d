//! Strides of the inputs change nothing.

use crate::noise::noise;
use crate::sampled::samples;
use crate::support::{evaluate, f32s};
use plumbline_reference::format::{E4M3FN, F32};
use plumbline_reference::ops::{Absmax, DeviceScaledCast, Granularity, ScaledCast, ScaledDecode};
use plumbline_reference::{Tensor, TensorType, position};

/// The same elements under other strides, gaps full of noise.
fn strided(tensor: &Tensor, strides: &[usize]) -> Tensor {
    let width = tensor.dtype().bytes();
    let span = tensor.ty().span(strides).unwrap();
    let mut bytes: Vec<u8> = (0..(span + 3) * width).map(|i| noise(i as u64) as u8).collect();
    for (i, code) in tensor.codes().enumerate() {
        let at = position(tensor.shape(), strides, i) * width;
        bytes[at..at + width].copy_from_slice(&code.to_le_bytes()[..width]);
    }
    Tensor::from_strided(tensor.ty().clone(), strides.to_vec(), bytes).unwrap()
}

/// A vector of which every element is the same one.
fn repeated(tensor: &Tensor, shape: &[usize]) -> Tensor {
    let one = tensor.code(0).to_le_bytes()[..tensor.dtype().bytes()].to_vec();
    let ty = TensorType::new(tensor.dtype(), shape);
    Tensor::from_strided(ty, vec![0; shape.len()], one).unwrap()
}

#[test]
fn a_strided_tensor_has_the_elements_it_was_made_from() {
    let tensor = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for strides in [[3, 1], [4, 1], [1, 2], [7, 2], [100, 31]] {
        let strided = strided(&tensor, &strides);
        assert!(strided.codes().eq(tensor.codes()), "{strides:?}");
        assert_eq!(strided.to_contiguous(), tensor, "{strides:?}");
        assert_eq!(strided.strides(), strides);
    }
}

#[test]
fn strided_inputs_equal_their_contiguous_copies() {
    for sample in samples() {
        let inputs = sample.inputs(&[37, 41]);
        let expected = evaluate(sample.op.clone(), &inputs);
        for layout in [padded_rows, columns_first, gaps] {
            let moved: Vec<_> = inputs
                .iter()
                .map(|input| match input.shape() {
                    [] => input.clone(),
                    shape => strided(input, &layout(shape)),
                })
                .collect();
            assert!(evaluate(sample.op.clone(), &moved) == expected, "{} {moved:?}", sample.op.name());
        }
    }
}

/// Strides, from the last dimension to the first, of which the last is `first` and each other
/// one spans the dimension after it, `pad` elements longer.
fn packed(extents: impl Iterator<Item = usize>, first: usize, pad: usize) -> Vec<usize> {
    let spans = extents.scan(first, |stride, extent| {
        let own = *stride;
        *stride = own * extent + pad;
        Some(own)
    });
    spans.collect()
}

fn padded_rows(shape: &[usize]) -> Vec<usize> {
    packed(shape.iter().rev().copied(), 1, 7).into_iter().rev().collect()
}

fn columns_first(shape: &[usize]) -> Vec<usize> {
    packed(shape.iter().copied(), 1, 0)
}

/// Between all elements.
fn gaps(shape: &[usize]) -> Vec<usize> {
    packed(shape.iter().rev().copied(), 3, 7).into_iter().rev().collect()
}

#[test]
fn repeated_inputs_equal_their_contiguous_copies() {
    for sample in samples() {
        // Places for rows are there once each.
        let stays = |i, input: &Tensor| input.shape().is_empty() || sample.op.checked().contains(&i);
        let repeat = |(i, input): (usize, &Tensor)| {
            if stays(i, input) { input.clone() } else { repeated(input, input.shape()) }
        };
        let repeated: Vec<_> = sample.inputs(&[5, 7]).iter().enumerate().map(repeat).collect();
        let copied: Vec<_> = repeated.iter().map(Tensor::to_contiguous).collect();
        let expected = evaluate(sample.op.clone(), &copied);
        assert!(evaluate(sample.op.clone(), &repeated) == expected, "{}", sample.op.name());
    }
}

#[test]
fn strided_scales_equal_their_contiguous_copies() {
    let x = f32s(&[2, 4], &[1.0, -2.0, 3.0, 400.0, 0.25, 6.0, -7.0, 8e-3]);
    let codes =
        Tensor::from_bytes(TensorType::new(E4M3FN, [2, 4]), vec![1, 2, 0x83, 0x7e, 5, 6, 7, 8]).unwrap();
    for (granularity, scale, strides) in [
        (Granularity::Row, f32s(&[2], &[3.0, 0.7]), vec![5]),
        (Granularity::Block(2), f32s(&[2, 2], &[3.0, 0.7, 11.0, 0.1]), vec![1, 2]),
    ] {
        let moved = strided(&scale, &strides);
        let cast = ScaledCast { granularity, ..ScaledCast::new(F32, E4M3FN) };
        let device = DeviceScaledCast { granularity, ..DeviceScaledCast::new(F32, E4M3FN) };
        let decode = ScaledDecode { from: E4M3FN, granularity };
        for (op, x) in [(cast.into(), &x), (device.into(), &x), (decode.into(), &codes)] {
            let op: plumbline_reference::ops::Op = op;
            let expected = evaluate(op.clone(), &[x.clone(), scale.clone()]);
            assert_eq!(evaluate(op, &[x.clone(), moved.clone()]), expected, "{granularity:?}");
        }
    }
}

#[test]
fn rows_are_found_under_strides() {
    let x = f32s(&[2, 3], &[1.0, -5.0, 2.0, 3.0, 4.0, -6.0]);
    let row = Absmax { from: F32, nan: Default::default(), granularity: Granularity::Row };
    let expected = evaluate(row, &[f32s(&[2, 3], &[5.0, 0.0, 0.0, 0.0, 6.0, 0.0])]);
    assert_eq!(evaluate(row, &[strided(&x, &[1, 2])]), expected);
    assert_eq!(evaluate(row, &[strided(&x, &[10, 3])]), expected);
}
