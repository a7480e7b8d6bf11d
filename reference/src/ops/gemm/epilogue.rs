//! From the result of an accumulation to the output, in f32.

use super::{Gemm, GemmScale, Geometry, scale_at};
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
        let scale_ab = scale(self.scale_a, self.gemm.scale_a, m) * scale(self.scale_b, self.gemm.scale_b, n);
        let mut t = to_f32(sum) * (self.gemm.alpha.0 * scale_ab);
        if let Some((c, format)) = self.c {
            t = self.gemm.beta.0.mul_add(to_f32(format.decode(c.code(position))), t);
        }
        if let Some((bias, format)) = self.bias {
            t += to_f32(format.decode(bias.code(n)));
        }
        if self.scale_out.is_some() {
            t *= scale(self.scale_out, GemmScale::Tensor, 0);
        }
        self.gemm.out.encode(arithmetic(t), &self.policy, 0)
    }
}

fn to_f32(value: Value) -> f32 {
    f32::from_bits(F32.encode(value, &Policy::IEEE, 0) as u32)
}
