//! Evaluating an operation on every path.

use plumbline_reference::fast::Simd;
use plumbline_reference::format::{Format, Policy, Rounding};
use plumbline_reference::ops::Op;
use plumbline_reference::{DType, Path, Tensor, TensorType};

/// A tensor of codes.
pub(crate) fn tensor(dtype: impl Into<DType>, shape: &[usize], code: impl Fn(usize) -> u64 + Sync) -> Tensor {
    Tensor::from_fn(TensorType::new(dtype, shape), Path::Parallel, code).unwrap()
}

/// A vector of codes.
pub(crate) fn vector(dtype: impl Into<DType>, codes: &[u64]) -> Tensor {
    tensor(dtype, &[codes.len()], |i| codes[i])
}

/// Asserts that every fast path gives the bits of the definition.
pub(crate) fn assert_agrees(op: impl Into<Op>, inputs: &[Tensor]) {
    let op = op.into();
    assert!(op.has_fast_path(), "{op:?} has no fast path");
    // Threads do not change the definition, and starting them costs more than a short input.
    let path = if inputs[0].len() < 4096 { Path::Definition } else { Path::Parallel };
    let expected = op.evaluate(inputs, path).unwrap();
    for simd in Simd::all() {
        let got = op.evaluate(inputs, Path::Simd(simd)).unwrap();
        if got != expected {
            report(&op, inputs, simd, &got, &expected);
        }
    }
}

fn report(op: &Op, inputs: &[Tensor], simd: Simd, got: &[Tensor], expected: &[Tensor]) -> ! {
    for (output, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.ty(), expected.ty());
        for i in 0..got.len() {
            if got.code(i) != expected.code(i) {
                let of =
                    |tensor: &Tensor| (i < tensor.len()).then(|| tensor.dtype().describe(tensor.code(i)));
                let (x, names) = (inputs.iter().map(of).collect::<Vec<_>>(), simd.name());
                let (got, expected) =
                    (got.dtype().describe(got.code(i)), expected.dtype().describe(expected.code(i)));
                panic!("{op:?} on {names}, output {output}, element {i} of {x:?}: {got}, not {expected}");
            }
        }
    }
    panic!("{op:?} on {}: outputs differ in number", simd.name());
}

/// The default, IEEE 754, and the default with one choice changed.
pub(crate) fn main_policies() -> Vec<Policy> {
    let default = Policy::default();
    let changed = |policy: &Policy| {
        usize::from(policy.rounding != default.rounding)
            + usize::from(policy.overflow != default.overflow)
            + usize::from(policy.infinities != default.infinities)
            + usize::from(policy.nan != default.nan)
            + usize::from(policy.subnormals != default.subnormals)
            + usize::from(policy.negative_zero != default.negative_zero)
    };
    Policy::all().filter(|policy| changed(policy) <= 1 || *policy == Policy::IEEE).collect()
}

/// Random words that decide stochastic rounding: none, all, either side of a tie, and
/// others.
pub(crate) fn random_word(i: usize) -> u64 {
    let noise = crate::noise::noise(i as u64);
    match noise >> 61 {
        0 => 0,
        1 => 0xffff_ffff,
        2 => 0x8000_0000,
        3 => 0x7fff_ffff,
        4 => (noise & 0xff) << 24,
        _ => noise & 0xffff_ffff,
    }
}

/// The input `x`, with random bits where the policy needs them.
pub(crate) fn with_random(x: &Tensor, policy: &Policy) -> Vec<Tensor> {
    let random = tensor(DType::U32, x.shape(), random_word);
    match policy.rounding {
        Rounding::Stochastic => vec![x.clone(), random],
        _ => vec![x.clone()],
    }
}

/// Every format but f64.
pub(crate) fn up_to_32_bits() -> impl Iterator<Item = Format> {
    plumbline_reference::format::ALL.into_iter().filter(|format| format.storage_bits <= 32)
}
