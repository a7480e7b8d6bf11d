//! The formula without any rounding.

use super::{Gemm, GemmScale, Geometry, scale_at};
use crate::format::Value;
use crate::{Exact, Tensor};

/// The value of an output element.
pub(super) fn value(gemm: &Gemm, inputs: &[Tensor], geometry: &Geometry, position: usize) -> Exact {
    let mut sum = Exact::default();
    // An accumulator begins at +0, so products of -0 leave it there.
    sum.add_product(Value::from(0f32), Value::from(0f32));
    for k in 0..geometry.k {
        let a = gemm.a.decode(inputs[0].code(geometry.a(position, k)));
        let b = gemm.b.decode(inputs[1].code(geometry.b(position, k)));
        sum.add_product(a, b);
    }
    finish(gemm, inputs, geometry, position, sum)
}

/// The value of an output element from the sum of its products.
pub(super) fn finish(
    gemm: &Gemm,
    inputs: &[Tensor],
    geometry: &Geometry,
    position: usize,
    mut sum: Exact,
) -> Exact {
    let (_, m, n) = geometry.coordinates(position);
    let one = Value::from(1f32);
    let multiply = |sum: &mut Exact, factor: Value| {
        if factor != one {
            *sum = sum.times(factor);
        }
    };
    multiply(&mut sum, Value::from(gemm.alpha.0));
    multiply(&mut sum, scale_at(gemm.input(inputs, "scale_a"), gemm.scale_a, m));
    multiply(&mut sum, scale_at(gemm.input(inputs, "scale_b"), gemm.scale_b, n));
    if let (true, Some(c), Some(format)) = (gemm.reads_c(), gemm.input(inputs, "c"), gemm.c) {
        sum.add_product(Value::from(gemm.beta.0), format.decode(c.code(position)));
    }
    if let (Some(bias), Some(format)) = (gemm.input(inputs, "bias"), gemm.bias) {
        sum.add_product(format.decode(bias.code(n)), one);
    }
    let scale_out = gemm.input(inputs, "scale_out");
    multiply(&mut sum, scale_at(scale_out, GemmScale::Tensor, 0));
    sum
}
