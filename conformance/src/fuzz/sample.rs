//! One call: an operation and its inputs.

use super::{blocks, layers, mx, product, quantize};
use crate::case::{Criterion, NanJudge};
use crate::judge::{Context, judge};
use crate::source::{Expected, Values};
use plumbline_reference::format::{F32, Format, Rounding};
use plumbline_reference::ops::{Granularity, Op};
use plumbline_reference::{DType, Path, Tensor, TensorError, TensorType};

/// An operation with the codes of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The operation.
    pub op: Op,
    /// Shape of the first input; of a product its extents: M, N and K with a batch in front,
    /// or how many tiles; of blocks how many rows and blocks; of layers the extents of all inputs.
    pub shape: Vec<usize>,
    /// The codes of each input.
    pub codes: Vec<Vec<u64>>,
}

/// What inputs an operation takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Format of the first input.
    pub(super) from: Option<Format>,
    /// The format that results are rounded to.
    pub(super) to: Option<Format>,
    /// How the first input's elements are grouped.
    pub(super) granularity: Granularity,
    /// Whether each group has a scale.
    pub(super) scaled: bool,
    /// Whether each element has a random word.
    pub(super) stochastic: bool,
}

impl Parts {
    pub(super) fn of(op: &Op) -> Self {
        let none =
            Self { from: None, to: None, granularity: Granularity::Tensor, scaled: false, stochastic: false };
        let stochastic = |rounding| rounding == Rounding::Stochastic;
        match op {
            Op::Cast(op) => {
                let (from, to) = (Some(op.from), Some(op.to));
                Self { from, to, stochastic: stochastic(op.rounding), ..none }
            }
            Op::Decode(op) => Self { from: Some(op.from), to: Some(op.to), ..none },
            Op::Classify(op) => Self { from: Some(op.format), ..none },
            Op::ScaledCast(op) => {
                let (from, to, granularity) = (Some(op.from), Some(op.to), op.granularity);
                Self { from, to, granularity, scaled: true, stochastic: stochastic(op.rounding) }
            }
            Op::Absmax(op) => Self { from: Some(op.from), granularity: op.granularity, ..none },
            Op::DeviceScaledCast(op) => {
                let (from, to, granularity) = (Some(op.from), Some(op.to), op.granularity);
                Self { from, to, granularity, scaled: true, stochastic: stochastic(op.rounding) }
            }
            Op::ScaledDecode(op) => {
                Self { from: Some(op.from), granularity: op.granularity, scaled: true, ..none }
            }
            Op::MxQuantize(_) | Op::MxDequantize(_) => {
                Self { granularity: mx::granularity(op).unwrap_or_default(), ..none }
            }
            Op::Quantize(_) | Op::Int8Quantize(_) => {
                let granularity =
                    quantize::format(op).map_or(Granularity::Tensor, |to| Granularity::Block(to.values()));
                Self { from: Some(F32), granularity, ..none }
            }
            // `format_info` has no inputs; those of products are in `product`, of GGML blocks in
            // `blocks`, of layers in `layers`.
            _ => none,
        }
    }

    /// How many groups the elements of a shape that fits form.
    pub(super) fn groups(&self, shape: &[usize]) -> usize {
        match (self.granularity, shape) {
            (Granularity::Row, &[m, _]) => m,
            (Granularity::Block(n), &[m, k]) => m * k.checked_div(n).unwrap_or(0),
            _ => 1,
        }
    }

    fn scale_shape(&self, shape: &[usize]) -> Vec<usize> {
        match (self.granularity, shape) {
            (Granularity::Row, &[m, _]) => vec![m],
            (Granularity::Block(n), &[m, k]) => vec![m, k.checked_div(n).unwrap_or(0)],
            // `[]` or `[1]`: both are right.
            (_, [_]) => vec![1],
            _ => vec![],
        }
    }
}

impl Sample {
    /// How many elements all inputs have together.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.codes.iter().map(Vec::len).sum()
    }

    /// The inputs as tensors.
    pub fn inputs(&self) -> Result<Vec<Tensor>, TensorError> {
        let types = types(&self.op, &self.shape).into_iter();
        types.zip(&self.codes).map(|(ty, codes)| Tensor::from_codes(ty, codes)).collect()
    }

    /// Whether the bound of the operation says something of these inputs: not where most sums may
    /// leave the range of their accumulator.
    pub(super) fn is_bounded(&self, inputs: &[Tensor]) -> bool {
        let Ok(outputs) = self.op.evaluate(inputs, Path::fastest()) else { return false };
        let context = Context::new(&self.op, inputs, NanJudge::Class);
        outputs.iter().enumerate().all(|(i, output)| {
            let expected = Expected {
                ty: output.ty().clone(),
                values: Values::Derived,
                criterion: Criterion::Bound,
                nan: None,
                computed: true,
            };
            judge(context, i, &expected, output).shape.is_none()
        })
    }

    /// Whether the inputs are those of the operation.
    pub(super) fn fits(&self) -> bool {
        self.inputs().is_ok_and(|inputs| {
            let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
            self.op.signature(&types).is_ok() && self.op.check(&inputs).is_ok()
        })
    }
}

/// Types of the inputs.
pub(super) fn types(op: &Op, shape: &[usize]) -> Vec<TensorType> {
    if let Some(inputs) = product::inputs(op) {
        return inputs.iter().map(|input| input.ty(shape)).collect();
    }
    if let Some(inputs) = mx::inputs(op) {
        return inputs.iter().map(|input| input.ty(op, shape)).collect();
    }
    if let Some(types) = blocks::types(op, shape) {
        return types;
    }
    if let Some(types) = layers::types(op, shape) {
        return types;
    }
    let parts = Parts::of(op);
    let x = parts.from.map(|from| TensorType::new(from, shape));
    let scales = parts.scaled.then(|| TensorType::new(F32, parts.scale_shape(shape)));
    let random = parts.stochastic.then(|| TensorType::new(DType::U32, shape));
    x.into_iter().chain(scales).chain(random).collect()
}
