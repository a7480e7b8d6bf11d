//! What an operation refuses, in its own words.

use crate::sampled::samples;
use plumbline_reference::format::{ALL, BF16, E4M3FN, E5M2, F16, F32, F64, Format, Policy, Rounding, TF32};
use plumbline_reference::ops::{
    Absmax, Cast, Classify, Decode, DeviceScaledCast, FormatInfo, Granularity, Op, ScaledCast, ScaledDecode,
};
use plumbline_reference::{DType, TensorType};

fn ty(dtype: impl Into<DType>, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

fn x(shape: &[usize]) -> TensorType {
    ty(F32, shape)
}

fn refusal(op: impl Into<Op>, inputs: &[TensorType]) -> String {
    op.into().signature(inputs).unwrap_err().to_string()
}

fn outputs(op: impl Into<Op>, inputs: &[TensorType]) -> Vec<TensorType> {
    op.into().signature(inputs).unwrap()
}

const STOCHASTIC: Policy = Policy {
    rounding: Rounding::Stochastic,
    overflow: Policy::IEEE.overflow,
    infinities: Policy::IEEE.infinities,
    nan: Policy::IEEE.nan,
    subnormals: Policy::IEEE.subnormals,
    negative_zero: Policy::IEEE.negative_zero,
};

fn absmax(granularity: Granularity) -> Absmax {
    Absmax { from: F32, nan: Default::default(), granularity }
}

fn scaled_cast(granularity: Granularity) -> ScaledCast {
    ScaledCast { granularity, ..ScaledCast::new(F32, E4M3FN) }
}

#[test]
fn outputs_are_those_that_evaluation_gives() {
    for sample in samples() {
        let inputs = sample.inputs(&[3, 32]);
        let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
        let given = crate::support::evaluate(sample.op.clone(), &inputs);
        let given: Vec<_> = given.iter().map(|output| output.ty().clone()).collect();
        assert_eq!(outputs(sample.op, &types), given);
    }
}

#[test]
fn types_and_shapes_of_outputs() {
    assert_eq!(outputs(Cast::new(F32, F16), &[x(&[2, 3])]), [ty(F16, &[2, 3])]);
    assert_eq!(outputs(Decode { from: F32, to: F64 }, &[x(&[])]), [ty(F64, &[])]);
    assert_eq!(outputs(Classify { format: F32 }, &[x(&[4])]), [ty(DType::U8, &[4])]);
    assert_eq!(outputs(FormatInfo { format: E5M2 }, &[]), [ty(F64, &[5])]);
    assert_eq!(outputs(absmax(Granularity::Tensor), &[x(&[2, 3])]), [x(&[])]);
    assert_eq!(outputs(absmax(Granularity::Row), &[x(&[2, 3])]), [x(&[2])]);
    assert_eq!(outputs(absmax(Granularity::Block(3)), &[x(&[2, 9])]), [x(&[2, 3])]);
    let device = DeviceScaledCast::new(F32, E5M2);
    assert_eq!(outputs(device, &[x(&[2]), x(&[1])]), [ty(E5M2, &[2]), x(&[1])]);
}

#[test]
fn another_number_of_inputs_is_refused_by_every_operation() {
    for sample in samples() {
        let types: Vec<_> = sample.inputs(&[4]).iter().map(|input| input.ty().clone()).collect();
        let name = sample.op.name();
        let mut one_more = types.clone();
        one_more.push(x(&[4]));
        let first = sample.op.input_names().first().copied().unwrap_or_default();
        let start = format!("{name}: {} inputs given, expected {}: {first}", types.len() + 1, types.len());
        assert!(refusal(sample.op.clone(), &one_more).starts_with(&start), "{name}");
        if let Some((_, one_less)) = types.split_last() {
            let start =
                format!("{name}: {} inputs given, expected {}: {first}", types.len() - 1, types.len());
            assert!(refusal(sample.op, one_less).starts_with(&start), "{name}");
        }
    }
}

#[test]
fn the_inputs_that_were_expected_are_named() {
    let two = [x(&[4]), x(&[])];
    assert_eq!(refusal(Cast::new(F32, E4M3FN), &two), "cast: 2 inputs given, expected 1: x");
    let stochastic = Cast::new(F32, E4M3FN).with_policy(STOCHASTIC);
    assert_eq!(refusal(stochastic, &two[..1]), "cast: 1 inputs given, expected 2: x, random");
    let device = DeviceScaledCast::new(F32, E4M3FN);
    assert_eq!(refusal(device, &two[..1]), "device_scaled_cast: 1 inputs given, expected 2: x, a");
    let device = device.with_policy(STOCHASTIC);
    assert_eq!(refusal(device, &two), "device_scaled_cast: 2 inputs given, expected 3: x, a, random");
    let scaled = scaled_cast(Granularity::Tensor);
    assert_eq!(refusal(scaled, &[]), "scaled_cast: 0 inputs given, expected 2: x, s");
}

#[test]
fn an_input_of_another_element_type_is_refused_by_every_operation() {
    for sample in samples() {
        let types: Vec<_> = sample.inputs(&[4]).iter().map(|input| input.ty().clone()).collect();
        for i in 0..types.len() {
            let mut wrong = types.clone();
            wrong[i].dtype = TF32.into();
            let input = sample.op.input_names()[i];
            let message =
                format!("{}: input `{input}` is tf32, expected {}", sample.op.name(), types[i].dtype);
            assert_eq!(refusal(sample.op.clone(), &wrong), message);
        }
    }
}

#[test]
fn random_bits_have_the_shape_of_the_elements() {
    let op = Cast::new(F32, E4M3FN).with_policy(STOCHASTIC);
    let message = "cast: input `random` has shape [3], expected [4]";
    assert_eq!(refusal(op, &[x(&[4]), ty(DType::U32, &[3])]), message);
}

#[test]
fn decoding_goes_to_the_formats_that_arithmetic_has() {
    let inputs = [ty(E5M2, &[1])];
    for to in ALL {
        let result = Op::from(Decode { from: E5M2, to }).signature(&inputs);
        if [F16, BF16, F32, F64].contains(&to) {
            assert_eq!(result.unwrap(), [ty(to, &[1])]);
        } else {
            let message = format!("decode: `to`: is {to}, expected f16, bf16, f32 or f64");
            assert_eq!(result.unwrap_err().to_string(), message);
        }
    }
}

#[test]
fn scaling_has_no_f64_source() {
    let why = "`from`: scaling computes in f32; f64 is not a source for it";
    let (x, s) = (ty(F64, &[4]), ty(F32, &[]));
    let granularity = Granularity::Tensor;
    let absmax = Absmax { from: F64, ..absmax(granularity) };
    assert_eq!(refusal(absmax, std::slice::from_ref(&x)), format!("absmax: {why}"));
    let inputs = [x, s];
    assert_eq!(refusal(ScaledCast::new(F64, E4M3FN), &inputs), format!("scaled_cast: {why}"));
    assert_eq!(refusal(DeviceScaledCast::new(F64, E4M3FN), &inputs), format!("device_scaled_cast: {why}"));
    assert_eq!(refusal(ScaledDecode { from: F64, granularity }, &inputs), format!("scaled_decode: {why}"));
}

#[test]
fn scaling_by_an_absmax_has_no_target_beyond_f32() {
    let message = "device_scaled_cast: `to`: is f64, whose largest value is no f32";
    assert_eq!(refusal(DeviceScaledCast::new(F32, F64), &[x(&[4]), x(&[])]), message);
    for to in ALL.into_iter().filter(|&format: &Format| format != F64) {
        assert_eq!(outputs(DeviceScaledCast::new(F32, to), &[x(&[4]), x(&[])])[0], ty(to, &[4]));
    }
}

#[test]
fn scales_have_the_shape_of_their_granularity() {
    let refuse = |granularity, s: &[usize]| refusal(scaled_cast(granularity), &[x(&[2, 64]), x(s)]);
    let message = |given, expected| format!("scaled_cast: input `s` has shape {given}, expected {expected}");
    assert_eq!(refuse(Granularity::Tensor, &[2]), message("[2]", "[] or [1]"));
    assert_eq!(refuse(Granularity::Row, &[]), message("[]", "[2]"));
    assert_eq!(refuse(Granularity::Row, &[64]), message("[64]", "[2]"));
    assert_eq!(refuse(Granularity::Block(32), &[2]), message("[2]", "[2, 2]"));
    assert_eq!(refuse(Granularity::Block(32), &[2, 64]), message("[2, 64]", "[2, 2]"));
}

#[test]
fn a_row_that_is_no_multiple_of_the_block_is_refused() {
    let message = "absmax: input `x` has shape [2, 33], expected [M, K] with K a multiple of 32";
    assert_eq!(refusal(absmax(Granularity::Block(32)), &[x(&[2, 33])]), message);
    let message = "scaled_cast: input `x` has shape [2, 16], expected [M, K] with K a multiple of 32";
    assert_eq!(refusal(scaled_cast(Granularity::Block(32)), &[x(&[2, 16]), x(&[2, 1])]), message);
}

#[test]
fn rows_and_blocks_are_those_of_a_matrix() {
    for shape in [&[][..], &[32], &[1, 2, 32]] {
        for granularity in [Granularity::Row, Granularity::Block(32)] {
            let message = format!("absmax: input `x` has shape {shape:?}, expected [M, K]");
            assert_eq!(refusal(absmax(granularity), &[x(shape)]), message);
        }
    }
}

#[test]
fn a_block_of_nothing_is_refused() {
    for shape in [&[2, 32][..], &[2, 0], &[]] {
        let message = "absmax: `granularity`: a block has at least 1 element";
        assert_eq!(refusal(absmax(Granularity::Block(0)), &[x(shape)]), message);
    }
}
