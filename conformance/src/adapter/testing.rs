//! What the adapters' tests have in common.

use crate::seed::mix;
use plumbline_reference::format::{Format, Policy, Value};
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, Cpu, DType, Tensor, TensorType};

fn inputs(op: &Op, codes: &[u64]) -> Vec<Tensor> {
    let format = match op {
        Op::Cast(op) => op.from,
        Op::Decode(op) => op.from,
        Op::Classify(op) => op.format,
        _ => return vec![],
    };
    vec![Tensor::from_codes(TensorType::new(format, [codes.len()]), codes).unwrap()]
}

fn run_variant(backend: &dyn Backend, op: &Op, variant: &str, codes: &[u64]) -> Tensor {
    backend.run(op, variant, &inputs(op, codes)).unwrap().remove(0)
}

/// The output of a backend's usual variant.
pub(super) fn run(backend: &dyn Backend, op: &Op, codes: &[u64]) -> Vec<u64> {
    run_variant(backend, op, &backend.variants(op)[0], codes).codes().collect()
}

/// The output of the reference.
pub(super) fn expected(op: &Op, codes: &[u64]) -> Vec<u64> {
    run(&Cpu, op, codes)
}

/// Asserts that every variant gives the bits of the reference, any NaN for a NaN.
pub(super) fn assert_agrees(backend: &dyn Backend, op: &Op, codes: &[u64]) {
    let right = run_variant(&Cpu, op, "parallel", codes);
    for variant in backend.variants(op) {
        let got = run_variant(backend, op, &variant, codes);
        assert_eq!(got.ty(), right.ty());
        let is_nan = |code| match right.dtype() {
            DType::Float(format) => format.decode(code).is_nan(),
            DType::U8 | DType::U32 => false,
        };
        let mut pairs = got.codes().zip(right.codes()).enumerate();
        if let Some((i, (got, right))) =
            pairs.find(|&(_, (got, right))| got != right && !(is_nan(got) && is_nan(right)))
        {
            panic!("{op:?}/{variant}: {:#x} gives {got:#x}, not {right:#x}", codes.get(i).unwrap_or(&0));
        }
    }
}

/// Every code of a format of up to 16 bits.
pub(super) fn all_codes(format: Format) -> Vec<u64> {
    (0..format.code_count() as u64).map(|i| format.code_at(i)).collect()
}

/// Every finite value of `to` and every midpoint, the one above the largest value
/// included, with their neighbours in `from`; infinities and NaNs; both signs.
pub(super) fn edges(from: Format, to: Format) -> Vec<u64> {
    let values: Vec<_> = (0..=to.max_finite()).map(|code| to.to_f64(code)).collect();
    let last = values[values.len() - 1];
    let beyond = last + (last - values[values.len() - 2]);
    let midpoints =
        values.iter().zip(values[1..].iter().chain([&beyond])).map(|(low, high)| (low + high) / 2.0);
    let around = |value| {
        let code = from.encode(Value::from(value), &Policy::IEEE, 0);
        [Some(code), from.next_down(code), from.next_up(code)]
    };
    let infinity = from.infinity().unwrap();
    let specials = [infinity, infinity + 1, from.canonical_nan().unwrap()];
    let finite = values.iter().copied().chain(midpoints).flat_map(around).flatten();
    finite.chain(specials).flat_map(|code| [code, code | from.sign_bit()]).collect()
}

/// Random bits, and random values near the range of `to`, half of them with few
/// bits set, so that they are near ties.
pub(super) fn sample(from: Format, to: Format) -> Vec<u64> {
    let near = |i: u64| {
        let exponents = (to.max_exponent() - to.min_exponent()) as u64 + 2 * u64::from(to.fraction_bits);
        let exponent = to.min_exponent() - to.fraction_bits as i32 - 2 + (mix(1, i) % exponents) as i32;
        let fraction =
            if i.is_multiple_of(2) { mix(2, i) } else { mix(2, i) & mix(3, i) & mix(4, i) & mix(5, i) };
        let significand = 1 << 62 | fraction >> 2;
        let value = Value::Finite { negative: mix(6, i) & 1 == 1, significand, exponent: exponent - 62 };
        from.encode(value, &Policy::IEEE, 0)
    };
    (0..1 << 20).flat_map(|i| [near(i), from.code_at(mix(7, i) & from.code_mask())]).collect()
}
