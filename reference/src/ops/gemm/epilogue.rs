//! From the result of an accumulation to the output, in f32.

use super::{EpilogueOrder, Gemm, GemmScale, Geometry};
use crate::Tensor;
use crate::format::{F32, Format, Policy, Value};
use crate::ops::arithmetic;

pub(super) struct Epilogue<'a> {
    geometry: Geometry,
    out: Format,
    policy: Policy,
    order: EpilogueOrder,
    alpha: f32,
    beta: f32,
    scale_a: Vec<f32>,
    scale_b: Vec<f32>,
    scale_out: Option<f32>,
    c: Option<(&'a Tensor, Format)>,
    bias: Option<(&'a Tensor, Format)>,
}

impl<'a> Epilogue<'a> {
    pub(super) fn of(gemm: &Gemm, inputs: &'a [Tensor], geometry: &Geometry) -> Self {
        let input = |name| gemm.input(inputs, name);
        let scales = |scale: GemmScale, name: &'static str| match (scale, input(name)) {
            (GemmScale::None, _) | (_, None) => vec![1.0],
            (_, Some(scales)) => scales.codes().map(|code| to_f32(F32.decode(code))).collect(),
        };
        Self {
            geometry: *geometry,
            out: gemm.out,
            policy: gemm.policy(),
            order: gemm.epilogue,
            alpha: gemm.alpha.0,
            beta: gemm.beta.0,
            scale_a: scales(gemm.scale_a, "scale_a"),
            scale_b: scales(gemm.scale_b, "scale_b"),
            scale_out: input("scale_out").map(|scale| to_f32(F32.decode(scale.code(0)))),
            c: input("c").zip(gemm.c).filter(|_| gemm.reads_c()),
            bias: input("bias").zip(gemm.bias),
        }
    }

    /// The output element of an accumulated sum.
    pub(super) fn apply(&self, sum: f32, position: usize) -> u64 {
        let (_, m, n) = self.geometry.coordinates(position);
        self.out.encode(arithmetic(self.value(sum, position, m, n)), &self.policy, 0)
    }

    /// The same before it is rounded to the output's format.
    #[inline]
    pub(super) fn value(&self, sum: f32, position: usize, m: usize, n: usize) -> f32 {
        let scale = |scales: &[f32], i: usize| if scales.len() == 1 { scales[0] } else { scales[i] };
        let factor = (self.alpha * scale(&self.scale_a, m)) * scale(&self.scale_b, n);
        let c = self.c.map(|(c, format)| to_f32(format.decode(c.code(position))));
        let bias = self.bias.map(|(bias, format)| to_f32(format.decode(bias.code(n))));
        let (mut t, bias) = match (self.order, c, bias) {
            (EpilogueOrder::FusedBias, None, Some(bias)) => (factor.mul_add(sum, bias), None),
            (_, None, bias) => (factor * sum, bias),
            (EpilogueOrder::FusedAddend, Some(c), bias) => (self.beta.mul_add(c, factor * sum), bias),
            (EpilogueOrder::RoundedProduct, Some(c), bias) => {
                let rounded = self.out.encode(arithmetic(factor * sum), &self.policy, 0);
                (to_f32(self.out.decode(rounded)) + self.beta * c, bias)
            }
            (EpilogueOrder::FusedProduct | EpilogueOrder::FusedBias, Some(c), bias) => {
                (factor.mul_add(sum, self.beta * c), bias)
            }
        };
        if let Some(bias) = bias {
            t += bias;
        }
        if let Some(scale) = self.scale_out {
            t *= scale;
        }
        t
    }
}

pub(super) fn to_f32(value: Value) -> f32 {
    f32::from_bits(F32.encode(value, &Policy::IEEE, 0) as u32)
}
