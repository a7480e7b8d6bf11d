//! `rope`: paths agree, the bound holds accurate angles and not others, pairs and places are those
//! of the formula.

use plumbline_reference::format::{BF16, F16, F32, Format, Policy, Value};
use plumbline_reference::interval::Steps;
use plumbline_reference::ops::{Angle, Bits32, Op, Pairing, Rope};
use plumbline_reference::{DType, Path, Tensor, TensorType};

fn code(format: Format, x: f32) -> u64 {
    format.encode(Value::from(x), &Policy::IEEE, 0)
}

fn inputs(format: Format, shape: [usize; 3], positions: &[u64]) -> [Tensor; 2] {
    let count = shape.iter().product::<usize>() as u32;
    let x = |i: u32| (i.wrapping_mul(0x9e37_79b1) >> 8) as f32 / 8_388_608.0 - 1.0;
    let codes: Vec<_> = (0..count).map(|i| code(format, x(i))).collect();
    [
        Tensor::from_codes(TensorType::new(format, shape), &codes).expect("fits"),
        Tensor::from_codes(TensorType::new(DType::U32, [shape[0]]), positions).expect("fits"),
    ]
}

fn outside(op: &Op, inputs: &[Tensor], format: Format, got: &Tensor) -> usize {
    let positions: Vec<_> = (0..got.len()).collect();
    let reached = op.enclosure(inputs, 0, &positions, Steps::F32).expect("has one");
    let encoded = |x: f64| format.ordinal(format.encode(Value::from(x), &Policy::IEEE, 0));
    let is_inside = |i: usize| {
        let (got, reached) = (got.code(i), reached[i]);
        let is_nan = format.decode(got).is_nan();
        if is_nan || !reached.is_number() {
            return is_nan && !reached.is_number();
        }
        encoded(reached.low) <= format.ordinal(got) && format.ordinal(got) <= encoded(reached.high)
    };
    positions.into_iter().filter(|&i| !is_inside(i)).count()
}

const POSITIONS: [u64; 8] = [0, 1, 2, 511, 4095, 131_071, 1_000_000, 16_777_217];

/// Straight from the formula, with angles that f64 gives, or f32.
fn direct(op: &Rope, [x, positions]: &[Tensor; 2], in_f32: bool) -> Tensor {
    let [_, heads, dim] = *x.shape() else { panic!("three dimensions") };
    let rotated = op.rotary_dim.unwrap_or(dim);
    let number = |i: usize| op.from.to_f64(x.code(i)) as f32;
    Tensor::from_fn(TensorType::new(op.to, x.shape()), Path::Definition, |index| {
        let column = index % dim;
        if column >= rotated {
            return code(op.to, number(index));
        }
        let (pair, distance) = match op.pairing {
            Pairing::Interleaved => (column / 2, 1),
            Pairing::Halves => (column % (rotated / 2), rotated / 2),
        };
        let second = match op.pairing {
            Pairing::Interleaved => column % 2 == 1,
            Pairing::Halves => column >= rotated / 2,
        };
        let position = positions.code(index / (heads * dim));
        let exponent = -2.0 * pair as f64 / rotated as f64;
        let angle = if in_f32 {
            f64::from(position as f32 * op.base.0.powf(exponent as f32))
        } else {
            position as f64 * f64::from(op.base.0).powf(exponent)
        };
        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
        let sin = if op.inverse { -sin } else { sin };
        let y = if second {
            number(index - distance).mul_add(sin, number(index) * cos)
        } else {
            number(index).mul_add(cos, -(number(index + distance) * sin))
        };
        code(op.to, y)
    })
    .expect("fits")
}

fn variants() -> Vec<Rope> {
    let mut all = Vec::new();
    for pairing in Pairing::ALL {
        for rotary_dim in [None, Some(10), Some(2), Some(0)] {
            for inverse in [false, true] {
                for (from, to) in [(F32, F32), (F16, F16), (BF16, F32)] {
                    for base in [1e4, 5e5] {
                        let base = Bits32(base);
                        all.push(Rope { from, to, rotary_dim, inverse, base, ..Rope::new(pairing) });
                    }
                }
            }
        }
    }
    all
}

#[test]
fn paths_agree_and_are_within_the_bound_as_accurate_others_are() {
    for op in variants() {
        let inputs = inputs(op.from, [8, 3, 18], &POSITIONS);
        let any = Op::from(op);
        let right = any.evaluate(&inputs, Path::Definition).expect("fits").remove(0);
        let parallel = any.evaluate(&inputs, Path::Parallel).expect("fits").remove(0);
        assert_eq!(right.bytes(), parallel.bytes(), "{op:?}");
        assert_eq!(outside(&any, &inputs, op.to, &right), 0, "{op:?}");
        assert_eq!(outside(&any, &inputs, op.to, &direct(&op, &inputs, false)), 0, "{op:?}");
    }
}

#[test]
fn angles_of_f32_are_within_their_own_bound_alone() {
    let positions = [0, 1, 3, 1000, 4095, 20_000, 100_003, 1_000_003];
    for pairing in Pairing::ALL {
        let op = Rope::new(pairing);
        let inputs = inputs(F32, [8, 2, 128], &positions);
        let rough = direct(&op, &inputs, true);
        assert!(outside(&op.into(), &inputs, F32, &rough) > 100, "{pairing:?}");
        let allowed = Rope { angle: Angle::F32, ..op };
        assert_eq!(outside(&allowed.into(), &inputs, F32, &rough), 0, "{pairing:?}");
        // A position too far is outside of it all the same.
        let shifted = [inputs[0].clone(), {
            let codes: Vec<_> = positions.iter().map(|position| position + 1).collect();
            Tensor::from_codes(TensorType::new(DType::U32, [8]), &codes).expect("fits")
        }];
        let wrong = Op::from(op).evaluate(&shifted, Path::Parallel).expect("fits").remove(0);
        assert!(outside(&allowed.into(), &inputs, F32, &wrong) > 100, "{pairing:?}");
    }
}

#[test]
fn position_0_changes_nothing_and_the_rest_is_copied_bit_for_bit() {
    let nan = 0x7f80_1234;
    for pairing in Pairing::ALL {
        let op: Op = Rope { rotary_dim: Some(4), ..Rope::new(pairing) }.into();
        let x = [0x3f80_0000, 0xbf80_0000, 0x4040_0000, 0x4080_0000, nan, 0x8000_0000];
        let at = |position| {
            let x = Tensor::from_codes(TensorType::new(F32, [1, 1, 6]), &x).expect("fits");
            let positions = Tensor::from_codes(TensorType::new(DType::U32, [1]), &[position]).expect("fits");
            op.evaluate(&[x, positions], Path::Definition).expect("fits")[0].codes().collect::<Vec<_>>()
        };
        assert_eq!(at(0), x, "{pairing:?}");
        assert_eq!(at(12_345)[4..], x[4..], "{pairing:?}");
        assert!((0..4).all(|i| at(12_345)[i] != x[i]), "{pairing:?}");
    }
}

#[test]
fn the_inverse_turns_back() {
    for pairing in Pairing::ALL {
        let op = Rope::new(pairing);
        let [x, positions] = inputs(F32, [8, 1, 64], &POSITIONS);
        let there = Op::from(op).evaluate(&[x.clone(), positions.clone()], Path::Parallel).expect("fits");
        let back = Op::from(Rope { inverse: true, ..op });
        let back = back.evaluate(&[there[0].clone(), positions], Path::Parallel).expect("fits").remove(0);
        let error = |i: usize| (F32.to_f64(back.code(i)) - F32.to_f64(x.code(i))).abs();
        assert!((0..x.len()).all(|i| error(i) < 1e-6), "{pairing:?}");
    }
}

#[test]
fn errors_name_what_does_not_fit() {
    let error = |op: Rope, x: &[usize], positions: &[usize]| {
        let types = [TensorType::new(F32, x), TensorType::new(DType::U32, positions)];
        Op::from(op).signature(&types).expect_err("does not fit").to_string()
    };
    let op = Rope::new(Pairing::Halves);
    assert!(error(op, &[2, 8], &[2]).contains("`x` has shape [2, 8], expected [tokens, heads, head_dim]"));
    assert!(error(op, &[2, 1, 8], &[3]).contains("`positions` has shape [3], expected [2]"));
    assert!(error(op, &[2, 1, 7], &[2]).contains("`rotary_dim`: is 7, expected an even number"));
    let long = Rope { rotary_dim: Some(10), ..op };
    assert!(error(long, &[2, 1, 8], &[2]).contains("is 10, expected an even number of at most head_dim, 8"));
    let base = Rope { base: Bits32(0.5), ..op };
    assert!(error(base, &[2, 1, 8], &[2]).contains("`base`: is 0.5, expected a number from 1"));
}
