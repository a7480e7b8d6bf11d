//! Wrong maxima and scaled casts.

use super::{Example, Fault, bits, f32_of, f32_tensor};
use plumbline_conformance::adapter::Closure;
use plumbline_reference::format::{E4M3FN, F32, Policy, Value};
use plumbline_reference::ops::{DeviceScaledCast, Granularity, Op, ScaleOp};
use plumbline_reference::{Path, Tensor, TensorType};

pub(super) fn faults() -> Vec<Fault> {
    vec![
        absmax(
            "max-loses-nan",
            "the maximum of NaN and a number is the number",
            "propagate",
            |x| x.iter().fold(0.0, |max: f32, x| max.max(x.abs())),
            (&[f32::NAN, f32::NAN, f32::NAN, 42.0], 0x7fff_ffff, bits(42.0)),
        )
        .reported("microsoft/onnxruntime#10514"),
        absmax(
            "max-loses-nan-after-a-number",
            "compared by `>`: a NaN stays only where it comes first",
            "propagate",
            from_first_by_greater,
            (&[42.0, f32::NAN, f32::NAN, f32::NAN], 0x7fff_ffff, bits(42.0)),
        ),
        absmax(
            "max-keeps-ignored-nan",
            "begins with the first element, NaN or not, where NaN should be ignored",
            "ignore",
            from_first_by_greater,
            (&[f32::NAN, f32::NAN, f32::NAN, 42.0], bits(42.0), 0x7fff_ffff),
        ),
        scaled(
            "zero-block-nan",
            "an absmax of 0 makes the factor infinite, and 0 times it NaN",
            DeviceScaledCast { granularity: Granularity::Row, ..DeviceScaledCast::new(F32, E4M3FN) },
            |x, a| (x * (448.0 / a), a / 448.0),
            (&[[448.0, -448.0], [0.0, -0.0], [1.0, 0.5]], &[448.0, 0.0, 1.0]),
            (&[0x7e, 0xfe, 0x00, 0x80, 0x7e, 0x76], &[0x7e, 0xfe, 0x7f, 0x7f, 0x7e, 0x76]),
        )
        .reported("pytorch/ao#4713"),
        scaled(
            "divide-by-reciprocal",
            "times the reciprocal where the operation divides, which crosses ties",
            DeviceScaledCast { scale_op: ScaleOp::Divide, ..DeviceScaledCast::new(F32, E4M3FN) },
            |x, a| (x * (1.0 / (unless_zero(a) / 448.0)), unless_zero(a) / 448.0),
            (&[[4.875, 13.0]], &[13.0]),
            (&[0x72, 0x7e], &[0x73, 0x7e]),
        )
        .reported("sgl-project/sglang#33533"),
        scaled(
            "multiply-by-division",
            "divides where the operation multiplies, which crosses ties",
            DeviceScaledCast::new(F32, E4M3FN),
            |x, a| (x / (unless_zero(a) / 448.0), unless_zero(a) / 448.0),
            (&[[0.375_000_03, 1.0]], &[1.0]),
            (&[0x73, 0x7e], &[0x72, 0x7e]),
        )
        .reported("sgl-project/sglang#33533"),
    ]
}

/// An absmax of 0 counts as 1.
fn unless_zero(a: f32) -> f32 {
    if a == 0.0 { 1.0 } else { a }
}

fn from_first_by_greater(x: &[f32]) -> f32 {
    let magnitudes = x.iter().map(|x| x.abs());
    magnitudes.reduce(|max, x| if x > max { x } else { max }).unwrap_or(0.0)
}

/// A NaN that arithmetic makes is positive.
fn arithmetic(x: f32) -> Value {
    if x.is_nan() { Value::Nan { negative: false } } else { Value::from(x) }
}

fn values(x: &Tensor) -> Vec<f32> {
    x.codes().map(f32_of).collect()
}

/// A fault of the maximum of a tensor. The example is the inputs, the right and the
/// wrong result.
fn absmax(
    id: &'static str,
    about: &'static str,
    nan: &str,
    max: fn(&[f32]) -> f32,
    (x, right, wrong): (&[f32], u64, u64),
) -> Fault {
    let op = format!(r#"{{"absmax": {{"from": "f32", "nan": "{nan}"}}}}"#);
    let op: Op = serde_json::from_str(&op).expect("an operation");
    let backend = Closure::new(id, op.clone(), move |inputs| {
        let max = F32.encode(arithmetic(max(&values(&inputs[0]))), &Policy::IEEE, 0);
        Ok(vec![Tensor::from_codes(TensorType::new(F32, []), &[max])?])
    });
    let example = Example { inputs: vec![f32_tensor(x)], right: vec![right], wrong: vec![wrong] };
    Fault { id, about, report: None, op, backend: Box::new(backend), example }
}

/// A fault of the scaled cast: from an element and its absmax to the value that is
/// encoded and the factor that decodes it. The example is of two columns.
fn scaled(
    id: &'static str,
    about: &'static str,
    op: DeviceScaledCast,
    scale: fn(f32, f32) -> (f32, f32),
    (x, a): (&[[f32; 2]], &[f32]),
    (right, wrong): (&[u64], &[u64]),
) -> Fault {
    let backend = Closure::new(id, op, move |inputs| {
        let (x, a) = (&inputs[0], &inputs[1]);
        let a = values(a);
        let extent = (x.len() / a.len().max(1)).max(1);
        let codes = Tensor::from_fn(TensorType::new(E4M3FN, x.shape()), Path::Parallel, |i| {
            let (scaled, _) = scale(f32_of(x.code(i)), a[i / extent]);
            E4M3FN.encode(arithmetic(scaled), &Policy::default(), 0)
        })?;
        let dequant = Tensor::from_fn(inputs[1].ty().clone(), Path::Parallel, |i| {
            F32.encode(arithmetic(scale(0.0, a[i]).1), &Policy::IEEE, 0)
        })?;
        Ok(vec![codes, dequant])
    });
    let codes: Vec<_> = x.as_flattened().iter().map(|&x| bits(x)).collect();
    let x = Tensor::from_codes(TensorType::new(F32, [x.len(), 2]), &codes).expect("a small tensor");
    let example = Example { inputs: vec![x, f32_tensor(a)], right: right.to_vec(), wrong: wrong.to_vec() };
    Fault { id, about, report: None, op: op.into(), backend: Box::new(backend), example }
}
