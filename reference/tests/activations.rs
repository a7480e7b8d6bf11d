//! The elementwise functions: every path gives the definition's bits, and they lie where the
//! definition over intervals says.

use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, F16, F32, Format, Policy, Value};
use plumbline_reference::interval::Steps;
use plumbline_reference::ops::{GeluErf, GeluTanh, Op, QuickGelu, Silu, Swiglu, functions};
use plumbline_reference::{Path, Tensor, TensorType};

/// Every code, or of f32 some of every binade.
fn codes(format: Format) -> Vec<u64> {
    match format.storage_bits {
        16 => (0..1 << 16).collect(),
        _ => (0..1u64 << 18)
            .map(|i| (i * 16_411) & 0xffff_ffff)
            .chain([0x8000_0000, 0x7f80_0000, 0xff80_0000])
            .collect(),
    }
}

fn tensor(format: Format, codes: &[u64]) -> Tensor {
    Tensor::from_codes(TensorType::new(format, [codes.len()]), codes).expect("fits")
}

fn check(op: &Op, from: Format, to: Format, inputs: &[Tensor]) {
    let right = op.evaluate(inputs, Path::Definition).expect("fits").remove(0);
    for path in Simd::all().map(Path::Simd).chain([Path::Parallel]) {
        let got = op.evaluate(inputs, path).expect("fits").remove(0);
        if let Some(i) = (0..got.len()).find(|&i| got.code(i) != right.code(i)) {
            let x: Vec<_> = inputs.iter().map(|x| from.to_f64(x.code(i))).collect();
            panic!("{op:?} of {x:?} on {path:?}: 0x{:x}, expected 0x{:x}", got.code(i), right.code(i));
        }
    }
    let positions: Vec<_> = (0..right.len()).collect();
    let [real, f32s] =
        [Steps::Real, Steps::F32].map(|steps| op.enclosure(inputs, 0, &positions, steps).expect("has one"));
    for i in 0..right.len() {
        let code = right.code(i);
        let x: Vec<_> = inputs.iter().map(|x| from.to_f64(x.code(i))).collect();
        if to.decode(code).is_nan() {
            assert!(!f32s[i].is_number(), "{op:?} of {x:?}: NaN, bound {:?}", f32s[i]);
            continue;
        }
        let encoded = |x: f64| to.ordinal(to.encode(Value::from(x), &Policy::IEEE, 0));
        assert!(
            f32s[i].is_number() && f32s[i].low <= real[i].low && real[i].high <= f32s[i].high,
            "{op:?} of {x:?}: {:?} in {:?}",
            real[i],
            f32s[i]
        );
        let got = to.ordinal(code);
        let y = to.to_f64(code);
        // The sigmoid of a very negative gate is subnormal, or 0, whatever it is multiplied with.
        if to == F32 && (1e-30..1e37).contains(&y.abs()) && (x.len() == 1 || x[0] > -85.0) {
            // The bound is of use: it refuses what is wrong by a hundredth, and what is not there.
            let holds = |y: f64| encoded(f32s[i].low) <= encoded(y) && encoded(y) <= encoded(f32s[i].high);
            for wrong in [y * 1.01, -y, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!holds(wrong), "{op:?} of {x:?}: {wrong} for {y} is in {:?}", f32s[i]);
            }
            assert!(!holds(0.0), "{op:?} of {x:?}: 0 for {y} is in {:?}", f32s[i]);
        }
        assert!(
            encoded(f32s[i].low) <= got && got <= encoded(f32s[i].high),
            "{op:?} of {x:?}: {} ({code:x}) is not in {:?}, exactly {:?}",
            to.to_f64(code),
            f32s[i],
            real[i],
        );
    }
}

#[test]
fn every_narrow_input_gives_the_same_bits_on_every_path_within_the_bound() {
    for (from, to) in [(F16, F16), (BF16, BF16), (BF16, F32), (F16, BF16)] {
        let x = tensor(from, &codes(from));
        for (_, op) in functions(from, to) {
            check(&op, from, to, std::slice::from_ref(&x));
        }
    }
}

#[test]
fn f32_inputs_of_every_binade_do_too() {
    let x = tensor(F32, &codes(F32));
    for (_, op) in functions(F32, F32) {
        check(&op, F32, F32, std::slice::from_ref(&x));
    }
}

#[test]
fn swiglu_does_too() {
    for (from, to) in [(F32, F32), (BF16, BF16), (F16, F32)] {
        let gate = codes(from);
        let up: Vec<_> =
            gate.iter().map(|code| (code * 7919 + 12345) & ((1u64 << from.storage_bits) - 1)).collect();
        let inputs = [tensor(from, &gate), tensor(from, &up)];
        check(&Swiglu { from, to }.into(), from, to, &inputs);
    }
}

#[test]
fn tails_and_special_values() {
    let inf = f64::INFINITY;
    // Values to three digits: <https://github.com/pytorch/pytorch/issues/186278>,
    // <https://github.com/pytorch/executorch/issues/22323>.
    let (from, to) = (F32, F32);
    let ops: [Op; 4] = [
        GeluTanh { from, to }.into(),
        GeluErf { from, to }.into(),
        Silu { from, to }.into(),
        QuickGelu { from, to }.into(),
    ];
    let of = |op: &Op, x: f64| {
        let x = tensor(F32, &[F32.encode(Value::from(x), &Policy::IEEE, 0)]);
        F32.to_f64(op.evaluate(&[x], Path::Definition).expect("fits")[0].code(0))
    };
    for op in &ops {
        assert_eq!(of(op, -inf).to_bits(), (-0f64).to_bits(), "{op:?}");
        assert_eq!(of(op, -0.0).to_bits(), (-0f64).to_bits(), "{op:?}");
        assert_eq!(of(op, inf), inf, "{op:?}");
        assert_eq!(of(op, -3e38).to_bits(), (-0f64).to_bits(), "{op:?}");
        assert_eq!(of(op, f64::from(f32::MAX)), f64::from(f32::MAX), "{op:?}");
    }
    let near = |got: f64, right: f64| (got / right - 1.0).abs() < 1e-3;
    assert_eq!(of(&ops[0], 10.5), 10.5);
    assert!(near(of(&ops[0], -6.0), -8.44e-11), "{}", of(&ops[0], -6.0));
    assert!(near(of(&ops[1], -6.0), -5.9195e-9), "{}", of(&ops[1], -6.0));
    assert!(near(of(&ops[2], -89.0), -1.9824e-37), "{}", of(&ops[2], -89.0));
}
