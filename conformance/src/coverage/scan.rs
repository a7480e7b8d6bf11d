//! Looking at the tensors of a case.

use super::class::Values;
use super::{Codes, Exercised, LayoutClass, ShapeClass, ValueClass, factor};
use crate::source::{self, Expected};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{Format, Value};
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::ops::{BlockConversion, MxOutput, Op};
use plumbline_reference::{DType, Tensor, TensorType};
use std::collections::BTreeMap;

/// Bits of a type whose elements are counted by code.
const BITS_BY_CODE: u32 = 16;

/// The types of an operation's tensors by their names.
pub(crate) fn dtypes(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> BTreeMap<String, String> {
    let names = op.input_names().into_iter().map(str::to_owned).zip(inputs).enumerate();
    let of_input = |(i, (name, ty)): (usize, (String, &TensorType))| {
        let dtype = op.input_blocks(i).map_or_else(|| ty.dtype.name(), BlockFormat::name);
        (name, dtype.to_owned())
    };
    let of_output = |(i, ty): (usize, &TensorType)| {
        let blocks = output_blocks(op);
        (output(i), blocks.map_or_else(|| ty.dtype.name(), BlockFormat::name).to_owned())
    };
    names.map(of_input).chain(outputs.iter().enumerate().map(of_output)).collect()
}

fn output(i: usize) -> String {
    format!("out{i}")
}

fn output_blocks(op: &Op) -> Option<BlockFormat> {
    match op {
        Op::Quantize(op) => Some(op.to),
        Op::Int8Quantize(op) => Some(op.to.blocks()),
        _ => None,
    }
}

impl Exercised {
    /// What a call on these inputs exercises.
    pub(crate) fn of(
        op: &Op,
        inputs: &[Tensor],
        expected: &[Expected],
        strides: &[Option<Vec<usize>>],
    ) -> Self {
        let types = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.ty().clone()).collect::<Vec<_>>();
        let outputs: Vec<_> = expected.iter().map(|expected| expected.ty.clone()).collect();
        let mut exercised = Self { dtypes: dtypes(op, &types(inputs), &outputs), ..Self::default() };
        for (i, (name, input)) in op.input_names().into_iter().zip(inputs).enumerate() {
            exercised.layouts.insert(name.to_owned(), LayoutClass::of(input.ty(), input.strides()));
            exercised.add_values(name, input, op.input_blocks(i));
        }
        for (i, expected) in expected.iter().enumerate() {
            let (name, ty) = (output(i), &expected.ty);
            let strides = strides.get(i).cloned().flatten().unwrap_or_else(|| ty.contiguous_strides());
            exercised.layouts.insert(name.clone(), LayoutClass::of(ty, &strides));
            match &expected.values {
                source::Values::Dense(tensor) => {
                    exercised.add_values(&name, tensor, output_blocks(op));
                    if i == 0 {
                        let results = of_results(op, inputs, tensor);
                        exercised.values.entry(name).or_default().extend(results.classes());
                    }
                }
                source::Values::Sparse { values, .. } => exercised.add_values(&name, values, None),
                source::Values::Derived => (),
            }
        }
        for (name, extent) in extents(op, inputs) {
            exercised.shapes.insert(name.to_owned(), ShapeClass::of(extent));
        }
        exercised
    }

    fn add_values(&mut self, name: &str, tensor: &Tensor, blocks: Option<BlockFormat>) {
        let Some(format) = blocks else {
            return self.add(name.to_owned(), tensor.dtype(), tensor.codes());
        };
        let (bytes, layout) = (tensor.packed(), format.layout());
        for (at, field) in layout.offsets() {
            let Some(dtype) = factor(field.kind) else { continue };
            let code = |block: &[u8]| {
                let bytes = block[at..at + field.bytes()].iter().rev();
                bytes.fold(0, |code, &byte| code << 8 | u64::from(byte))
            };
            let codes = bytes.chunks_exact(layout.bytes).map(code);
            self.add(format!("{name}.{}", field.name), dtype, codes);
        }
    }

    fn add(&mut self, name: String, dtype: DType, codes: impl Iterator<Item = u64>) {
        let bits = dtype.code_mask().count_ones();
        let mut values = Values::default();
        if bits > BITS_BY_CODE {
            codes.for_each(|code| values = values.and(ValueClass::of_code(dtype, code)));
        } else {
            let mut seen = vec![false; 1 << bits];
            codes.for_each(|code| seen[(code & dtype.code_mask()) as usize] = true);
            let seen = || (0u64..).zip(&seen).filter(|(_, seen)| **seen).map(|(code, _)| code);
            seen().for_each(|code| values = values.and(ValueClass::of_code(dtype, code)));
            if seen().count() == 1 << bits {
                values = values.and(Values::of(ValueClass::EveryCode));
            }
            if bits <= 8 {
                let mut codes = Codes::default();
                seen().for_each(|code| codes.insert(code as u8));
                self.codes.insert(name.clone(), codes);
            }
        }
        self.values.insert(name, values.classes());
    }
}

/// Classes of results, where the operation encodes one exact value for each.
fn of_results(op: &Op, inputs: &[Tensor], results: &Tensor) -> Values {
    let Some(to) = results.dtype().format() else { return Values::default() };
    let decoded = |from: Format| of_each(to, results, |i| Some(from.decode(inputs[0].code(i))));
    match op {
        Op::Cast(op) => decoded(op.from),
        Op::Decode(op) => decoded(op.from),
        Op::MxDequantize(op) if op.output == MxOutput::ViaF32 => Values::default(),
        Op::Dequantize(op) if op.conversion == BlockConversion::ViaF32 => Values::default(),
        Op::ScaledCast(_)
        | Op::DeviceScaledCast(_)
        | Op::ScaledDecode(_)
        | Op::MxQuantize(_)
        | Op::MxDequantize(_)
        | Op::Dequantize(_) => of_each(to, results, |i| op.exact(inputs, 0, i).map(Value::from)),
        _ => Values::default(),
    }
}

fn of_each(to: Format, results: &Tensor, exact: impl Fn(usize) -> Option<Value>) -> Values {
    (0..results.len())
        .filter_map(|i| Some(ValueClass::of_result(to, exact(i)?, results.code(i))))
        .fold(Values::default(), Values::and)
}

/// The extents that matter to an operation.
fn extents(op: &Op, inputs: &[Tensor]) -> Vec<(&'static str, usize)> {
    let shape = |i: usize| -> Vec<usize> {
        match (op.input_blocks(i), inputs[i].shape()) {
            (Some(format), [outer @ .., blocks, _]) => [outer, &[blocks * format.values()]].concat(),
            (_, shape) => shape.to_vec(),
        }
    };
    let product = |extents: &[usize]| extents.iter().product::<usize>();
    match op {
        _ if inputs.is_empty() => Vec::new(),
        Op::Gemm(op) => {
            let Geometry { batch, m, n, k, .. } = Geometry::of(op, inputs);
            vec![("batch", batch), ("m", m), ("n", n), ("k", k)]
        }
        Op::GemmFused(_) => {
            let (a, b) = (shape(0), shape(1));
            vec![("m", a[0]), ("n", b[1]), ("k", a[1])]
        }
        Op::Gemv(_) | Op::BatchedGemv(_) | Op::PrefillLinear(_) | Op::Dispatch(_) => {
            let (w, x) = (shape(0), shape(1));
            vec![("m", product(&x[..x.len() - 1])), ("n", w[0]), ("k", w[1])]
        }
        Op::Attention(_) => {
            let (q, k) = (shape(0), shape(1));
            vec![("heads", q[0]), ("queries", q[1]), ("slots", k[1]), ("d", q[2])]
        }
        _ => {
            let x = shape(0);
            let elements = ("elements", product(&x));
            match x.as_slice() {
                [outer @ .., row] if !outer.is_empty() => {
                    vec![elements, ("rows", product(outer)), ("row", *row)]
                }
                _ => vec![elements],
            }
        }
    }
}
