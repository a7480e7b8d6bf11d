//! What the elementwise functions have in common: formats, the loop, and how they are judged.
//!
//! `y[i] = round(f(x[i]))` with f in f32 as the function's file writes it, then one rounding to
//! the output's format, to nearest even, overflow to infinity. Inputs and output are f32, f16 or
//! bf16, each of its own, and of any shape, the same for all. NaN gives the canonical NaN.

use super::encoding::arithmetic;
use super::gemm::widened;
use super::{Elementary, GeluErf, GeluTanh, Inputs, Math, Op, QuickGelu, Relu, SignatureError, Silu};
use crate::fast::{Conversion, Function, Simd, map};
use crate::format::{BF16, F16, F32, Format, Policy};
use crate::interval::{Interval, Steps};
use crate::{DType, Path, Tensor, TensorError, TensorType, math};
use rayon::prelude::*;

/// Formats of inputs and outputs.
pub const FORMATS: [Format; 3] = [F32, F16, BF16];

/// The functions of one element by name, the elementary ones first.
#[must_use]
pub fn functions(from: Format, to: Format) -> Vec<(&'static str, Op)> {
    let elementary =
        Elementary::ALL.iter().map(|&function| (function.name(), Math { function, from, to }.into()));
    let activations: [Op; 5] = [
        Relu { from, to }.into(),
        Silu { from, to }.into(),
        QuickGelu { from, to }.into(),
        GeluTanh { from, to }.into(),
        GeluErf { from, to }.into(),
    ];
    elementary.chain(activations.map(|op| (op.name(), op))).collect()
}

/// A function of `N` numbers.
pub(crate) trait Elementwise<const N: usize>: Function<N> {
    /// The definition, over intervals.
    fn real(self, x: [Interval; N], steps: Steps) -> Interval;
}

/// Requires one of the formats of activations.
pub(super) fn check_format(
    inputs: &Inputs<'_>,
    field: &'static str,
    format: Format,
) -> Result<(), SignatureError> {
    if FORMATS.contains(&format) {
        return Ok(());
    }
    Err(inputs.parameter_error(field, format!("is {format}, expected f32, f16 or bf16")))
}

/// Requires `N` inputs of one format and shape.
pub(super) fn signature<const N: usize>(
    inputs: &Inputs<'_>,
    from: Format,
    to: Format,
) -> Result<Vec<TensorType>, SignatureError> {
    inputs.count(N)?;
    check_format(inputs, "from", from)?;
    check_format(inputs, "to", to)?;
    let shape = inputs.dtype(0, from)?;
    for i in 1..N {
        inputs.exactly(i, from, &[shape])?;
    }
    Ok(vec![TensorType::new(to, shape)])
}

/// An element as a number; exact.
#[inline]
pub(super) fn number(x: &Tensor, format: Format, i: usize) -> f32 {
    format.to_f64(x.code(i)) as f32
}

/// A result of f32 arithmetic in the output's format.
#[inline]
pub(super) fn rounded(to: Format, y: f32) -> u64 {
    to.encode(arithmetic(y), &Policy::IEEE, 0)
}

/// The function's value of each element.
pub(super) fn evaluate<const N: usize>(
    f: impl Function<N>,
    (from, to): (Format, Format),
    inputs: &[Tensor],
    path: Path,
) -> Result<Vec<Tensor>, TensorError> {
    let ty = TensorType::new(to, inputs[0].shape());
    if let Path::Simd(simd) = path {
        return Ok(vec![fast(f, (from, to), inputs, simd, ty)?]);
    }
    let element = |i: usize| {
        let x = std::array::from_fn(|input| number(&inputs[input], from, i));
        rounded(to, f.of(x))
    };
    Ok(vec![Tensor::from_fn(ty, path, element)?])
}

/// Bytes of results that are computed in one go, in the cache.
const TASK_BYTES: usize = 1 << 14;

fn fast<const N: usize>(
    f: impl Function<N>,
    (from, to): (Format, Format),
    inputs: &[Tensor],
    simd: Simd,
    ty: TensorType,
) -> Result<Tensor, TensorError> {
    let widths = [from, to].map(|format| DType::from(format).bytes());
    let packed: Vec<_> = inputs.iter().map(Tensor::packed).collect();
    let compute = |start: usize, out: &mut [u8]| {
        let count = out.len() / widths[1];
        let x: [Vec<f32>; N] = std::array::from_fn(|input| {
            floats(simd, from, &packed[input][start * widths[0]..][..count * widths[0]])
        });
        let mut y = vec![0.0; count];
        map(simd, f, x.each_ref().map(Vec::as_slice), &mut y);
        encode(simd, to, &y, out);
    };
    let bytes = ty.elements()? * widths[1];
    if bytes <= TASK_BYTES {
        let mut out = vec![0; bytes];
        compute(0, &mut out);
        return Tensor::from_bytes(ty, out);
    }
    // Blocks, so that no thread has to clear the memory of all results first.
    let block = |block: usize| {
        let mut out = [0; TASK_BYTES];
        let start = block * TASK_BYTES;
        compute(start / widths[1], &mut out[..TASK_BYTES.min(bytes - start)]);
        out
    };
    let blocks: Vec<[u8; TASK_BYTES]> = (0..bytes.div_ceil(TASK_BYTES)).into_par_iter().map(block).collect();
    let mut out = blocks.into_flattened();
    out.truncate(bytes);
    Tensor::from_bytes(ty, out)
}

/// Codes as numbers.
pub(super) fn floats(simd: Simd, format: Format, codes: &[u8]) -> Vec<f32> {
    if format == F32 {
        return codes.as_chunks().0.iter().map(|&code| f32::from_le_bytes(code)).collect();
    }
    widened(simd, format, codes).into_iter().map(f32::from_bits).collect()
}

/// Results of f32 arithmetic, NaN canonical, as the codes of the output's format.
pub(super) fn encode(simd: Simd, to: Format, y: &[f32], out: &mut [u8]) {
    let Some(narrow) = (to != F32).then(|| Conversion::cast(F32, to, &Policy::IEEE)).flatten() else {
        for (code, y) in out.as_chunks_mut().0.iter_mut().zip(y) {
            *code = y.to_le_bytes();
        }
        return;
    };
    let mut wide = vec![0; 4 * y.len()];
    encode(simd, F32, y, &mut wide);
    out.copy_from_slice(&narrow.converted(simd, &wide, None, &[]));
}

/// See [`super::Operation::enclosure`].
pub(super) fn enclosure<const N: usize>(
    f: impl Elementwise<N>,
    from: Format,
    inputs: &[Tensor],
    positions: &[usize],
    steps: Steps,
) -> Vec<Interval> {
    let element = |&i: &usize| {
        let x: [f64; N] = std::array::from_fn(|input| from.to_f64(inputs[input].code(i)));
        if x.iter().all(|x| x.is_finite()) {
            f.real(x.map(Interval::from), steps)
        } else {
            f64::from(f.of(x.map(|x| x as f32))).into()
        }
    };
    positions.par_iter().map(element).collect()
}

/// Declares an elementwise operation: its parameters and all but its function.
macro_rules! activation {
    ($(#[$doc:meta])* $Name:ident($($input:literal),+)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $Name {
            /// Format of the input: f32, f16 or bf16.
            pub from: crate::format::Format,
            /// Format of the output: f32, f16 or bf16.
            pub to: crate::format::Format,
        }

        impl super::Operation for $Name {
            const INPUTS: &'static [&'static str] = &[$($input),+];

            fn signature(
                &self,
                inputs: &super::Inputs<'_>,
            ) -> Result<Vec<crate::TensorType>, super::SignatureError> {
                super::activation::signature::<{ Self::INPUTS.len() }>(inputs, self.from, self.to)
            }

            fn evaluate(
                &self,
                inputs: &[crate::Tensor],
                path: crate::Path,
            ) -> Result<Vec<crate::Tensor>, crate::TensorError> {
                super::activation::evaluate(*self, (self.from, self.to), inputs, path)
            }

            fn pointwise(&self) -> Option<(crate::format::Format, crate::format::Format)> {
                (Self::INPUTS.len() == 1).then_some((self.from, self.to))
            }

            fn has_fast_path(&self) -> bool {
                true
            }

            fn has_enclosure(&self) -> bool {
                true
            }

            fn enclosure(
                &self,
                inputs: &[crate::Tensor],
                _: usize,
                positions: &[usize],
                steps: crate::interval::Steps,
            ) -> Option<Vec<crate::interval::Interval>> {
                Some(super::activation::enclosure(*self, self.from, inputs, positions, steps))
            }
        }
    };
}
pub(super) use activation;

/// `x / (1 + e^-z)` with `z` a multiple of `x`, for every finite `x`; -0 where `x` is -Inf. Canonical:
/// `x`, times `e^z` where z is negative, times the rounded reciprocal of `1 + e^-abs(z)`.
#[inline(always)]
pub(crate) fn times_sigmoid(x: f32, z: f32) -> f32 {
    // e^-z overflows where z is very negative; e^z does not. NaN is in x too.
    let e = math::exp_of_negative(math::maximum(-z.abs(), -104.0));
    let numerator = math::maximum(x, f32::MIN) * if z < 0.0 { e } else { 1.0 };
    numerator * (1.0 / (1.0 + e))
}

/// The same over intervals: as `x / (1 + e^-z)`, or with `e^z` where z is negative.
pub(crate) fn times_sigmoid_real(x: Interval, z: Interval, steps: Steps) -> Interval {
    let one = Interval::from(1.0);
    let mut real = (x / (one + (-z).exp(steps)).rounded(steps, 1.0)).rounded(steps, 2.0);
    if z.low < 0.0 {
        let e = z.exp(steps);
        let stable = (x * e).rounded(steps, 1.0) / (one + e).rounded(steps, 1.0);
        real = real.hull(stable.rounded(steps, 2.0));
    }
    // A sigmoid is at most 1: no number overflows.
    if x.magnitude().is_finite() && real.is_number() {
        let range = f64::from(f32::MAX);
        real = Interval { low: real.low.max(-range), high: real.high.min(range) };
    }
    real
}
