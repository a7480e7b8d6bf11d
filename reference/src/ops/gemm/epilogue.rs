//! From the result of an accumulation to the output, in f32.

use super::{EpilogueOrder, Gemm, GemmScale, Geometry, scale_at};
use crate::Tensor;
use crate::format::{F32, Format, Policy, Value};
use crate::ops::arithmetic;

pub(super) struct Epilogue<'a> {
    gemm: &'a Gemm,
    geometry: &'a Geometry,
    policy: Policy,
    scale_a: Option<&'a Tensor>,
    scale_b: Option<&'a Tensor>,
    scale_out: Option<&'a Tensor>,
    c: Option<(&'a Tensor, Format)>,
    bias: Option<(&'a Tensor, Format)>,
}

impl<'a> Epilogue<'a> {
    pub(super) fn of(gemm: &'a Gemm, inputs: &'a [Tensor], geometry: &'a Geometry) -> Self {
        let input = |name| gemm.input(inputs, name);
        Self {
            gemm,
            geometry,
            policy: gemm.policy(),
            scale_a: input("scale_a"),
            scale_b: input("scale_b"),
            scale_out: input("scale_out"),
            c: input("c").zip(gemm.c).filter(|_| gemm.reads_c()),
            bias: input("bias").zip(gemm.bias),
        }
    }

    /// The output element of an accumulated sum.
    pub(super) fn apply(&self, sum: Value, position: usize) -> u64 {
        let (_, m, n) = self.geometry.coordinates(position);
        let scale = |tensor, scale, index| to_f32(scale_at(tensor, scale, index));
        let scale_a = scale(self.scale_a, self.gemm.scale_a, m);
        let factor = (self.gemm.alpha.0 * scale_a) * scale(self.scale_b, self.gemm.scale_b, n);
        let (sum, beta, out) = (to_f32(sum), self.gemm.beta.0, self.gemm.out);
        let c = self.c.map(|(c, format)| to_f32(format.decode(c.code(position))));
        let bias = self.bias.map(|(bias, format)| to_f32(format.decode(bias.code(n))));
        let (mut t, bias) = match (self.gemm.epilogue, c, bias) {
            (EpilogueOrder::FusedBias, None, Some(bias)) => (factor.mul_add(sum, bias), None),
            (_, None, bias) => (factor * sum, bias),
            (EpilogueOrder::FusedAddend, Some(c), bias) => (beta.mul_add(c, factor * sum), bias),
            (EpilogueOrder::RoundedProduct, Some(c), bias) => {
                let rounded = out.encode(arithmetic(factor * sum), &self.policy, 0);
                (to_f32(out.decode(rounded)) + beta * c, bias)
            }
            (EpilogueOrder::FusedProduct | EpilogueOrder::FusedBias, Some(c), bias) => {
                (factor.mul_add(sum, beta * c), bias)
            }
        };
        if let Some(bias) = bias {
            t += bias;
        }
        if self.scale_out.is_some() {
            t *= scale(self.scale_out, GemmScale::Tensor, 0);
        }
        out.encode(arithmetic(t), &self.policy, 0)
    }
}

fn to_f32(value: Value) -> f32 {
    f32::from_bits(F32.encode(value, &Policy::IEEE, 0) as u32)
}
