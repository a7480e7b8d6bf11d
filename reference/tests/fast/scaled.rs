//! Operations that scale, and the maximum.

use crate::noise::noise;
use crate::support::{assert_agrees, main_policies, tensor, up_to_32_bits, with_random};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, E8M0, F16, F32, Format, Policy, TF32};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, DeviceScaledCast, Granularity, Op, ScaleOp, ScaledCast, ScaledDecode, Special, Tiny,
};
use plumbline_reference::{DType, Tensor};

/// Half of the elements any bit pattern, half of moderate size.
fn noisy(format: Format, shape: &[usize], seed: u64) -> Tensor {
    tensor(format, shape, |i| match noise(i as u64 ^ seed << 32) {
        bits if bits >> 63 == 0 => {
            format.encode(((bits % 2001) as f32 / 7.0 - 140.0).into(), &Policy::default(), 0)
        }
        bits => bits & DType::from(format).code_mask(),
    })
}

const SHAPES: [[usize; 2]; 4] = [[3, 96], [2, 2080], [40, 32], [1, 4096]];

/// Granularities that suit a shape, with the shape of their scales.
fn granularities([m, k]: [usize; 2]) -> Vec<(Granularity, Vec<usize>)> {
    let block = |n| (Granularity::Block(n), vec![m, k / n]);
    vec![(Granularity::Tensor, vec![]), (Granularity::Row, vec![m]), block(1), block(16), block(32)]
}

const OPS: [ScaleOp; 3] = [ScaleOp::Multiply, ScaleOp::Divide, ScaleOp::Reciprocal];

#[test]
fn scales_of_every_granularity() {
    for shape in SHAPES {
        for (granularity, scales) in granularities(shape) {
            for from in [F32, F16, BF16, E4M3FN, E8M0] {
                let (x, s) = (noisy(from, &shape, 1), noisy(F32, &scales, 2));
                assert_agrees(ScaledDecode { from, granularity }, &[x.clone(), s.clone()]);
                for scale_op in OPS {
                    let op = ScaledCast { granularity, scale_op, ..ScaledCast::new(from, E4M3FN) };
                    assert_agrees(op, &[x.clone(), s.clone()]);
                    let op = DeviceScaledCast { granularity, scale_op, ..DeviceScaledCast::new(from, E5M2) };
                    assert_agrees(op, &[x.clone(), s.clone()]);
                }
            }
        }
    }
}

#[test]
fn scaling_from_and_to_every_format_under_the_main_policies() {
    for from in up_to_32_bits() {
        let x = noisy(from, &[1111], 3);
        for to in up_to_32_bits() {
            for policy in main_policies() {
                let mut inputs = with_random(&x, &policy);
                inputs.insert(1, tensor(F32, &[], |_| 0x3f9d_f3b6));
                assert_agrees(ScaledCast::new(from, to).with_policy(policy), &inputs);
                assert_agrees(DeviceScaledCast::new(from, to).with_policy(policy), &inputs);
            }
        }
    }
}

#[test]
fn scales_at_the_edges() {
    let x = noisy(F32, &[777], 4);
    let values = [0.0, -0.0, 1e-45, 1e-38, 1.3e-36, 1.32e-36, 448.0, f32::MAX, f32::INFINITY, f32::NAN, -3.0];
    for value in values {
        let inputs = [x.clone(), tensor(F32, &[1], |_| value.to_bits().into())];
        for scale_op in OPS {
            assert_agrees(ScaledCast { scale_op, ..ScaledCast::new(F32, E4M3FN) }, &inputs);
            for tiny in [Tiny::Reciprocal, Tiny::Quotient] {
                for special in [Special::Propagate, Special::Unit] {
                    let op =
                        DeviceScaledCast { scale_op, tiny, special, ..DeviceScaledCast::new(F32, E4M3FN) };
                    assert_agrees(op, &inputs);
                }
            }
        }
    }
}

/// Every format with a fast maximum.
fn absmax(nan: AbsmaxNan, granularity: Granularity) -> impl Iterator<Item = Absmax> {
    up_to_32_bits()
        .map(move |from| Absmax { from, nan, granularity })
        .filter(|&op| Op::from(op).has_fast_path())
}

#[test]
fn a_maximum_is_found_in_every_position() {
    for nan in [AbsmaxNan::Propagate, AbsmaxNan::Ignore] {
        for op in absmax(nan, Granularity::Tensor) {
            let format = op.from;
            let largest =
                [format.lowest(), format.canonical_nan().unwrap_or(0), format.infinity().unwrap_or(0)];
            for n in [0, 1, 15, 16, 17, 63, 64, 65, 130] {
                assert_agrees(op, &[tensor(format, &[n], |i| (i % 5) as u64)]);
                for (at, code) in (0..n).flat_map(|at| largest.map(|code| (at, code))) {
                    let x =
                        tensor(format, &[n], |i| if i == at { code } else { format.code_at(i as u64 % 5) });
                    assert_agrees(op, &[x]);
                }
            }
        }
    }
}

#[test]
fn a_maximum_of_every_code_and_of_every_group() {
    for nan in [AbsmaxNan::Propagate, AbsmaxNan::Ignore] {
        for op in absmax(nan, Granularity::Block(1)) {
            let shape = [1, 1 << op.from.storage_bits.min(16)];
            assert_agrees(
                op,
                &[tensor(op.from, &shape, |i| i as u64 * (1 << op.from.storage_bits.saturating_sub(16)))],
            );
        }
        for shape in SHAPES {
            for (granularity, _) in granularities(shape) {
                for op in absmax(nan, granularity) {
                    assert_agrees(op, &[noisy(op.from, &shape, 5)]);
                }
            }
        }
        // Rows that are spread over several tasks.
        for from in [F32, TF32, F16] {
            for granularity in [Granularity::Tensor, Granularity::Row] {
                let x = tensor(from, &[2, 150_001], |i| noise(i as u64) >> 40 << from.low_padding);
                assert_agrees(Absmax { from, nan, granularity }, &[x]);
            }
        }
    }
}
