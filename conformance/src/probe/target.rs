//! The product under probe, and how dot products are put into it.

use super::ProbeError;
use plumbline_reference::backend::{Layout, Staged, Stream};
use plumbline_reference::format::{F32, Format, Policy, TF32, Value};
use plumbline_reference::ops::{Compute, Gemm, GemmScale, Op, Operation as _};
use plumbline_reference::{Backend, BackendError, Path, Tensor, TensorType};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A way to make a product: the variant and how the backend describes it.
pub type Way = (String, BTreeMap<String, String>);

/// Extents of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// Products of an element.
    pub k: usize,
}

/// A backend's product of one shape.
pub struct Target<'a> {
    backend: &'a dyn Backend,
    variant: &'a str,
    gemm: Gemm,
    extents: Extents,
    calls: AtomicUsize,
}

/// One dot product: what is multiplied at some k. Factors elsewhere are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Dot {
    pub(super) terms: Vec<(usize, f64, f64)>,
    /// The value of c, where the product has one.
    pub(super) c: f64,
}

impl<'a> Target<'a> {
    /// Requires what probes rely on: an operation that the backend does, a variant that it
    /// has, a plain sum of products as its result.
    pub fn new(
        backend: &'a dyn Backend,
        variant: &'a str,
        gemm: Gemm,
        extents: Extents,
    ) -> Result<Self, ProbeError> {
        let refuse = |why: String| Err(ProbeError::Operation(why));
        if gemm.out.storage_bits == 8 {
            return refuse(format!("`out: {}` is too narrow to count in; use f32, f16 or bf16", gemm.out));
        }
        if gemm.alpha.0 != 1.0 {
            return refuse("the output must be the sum of the products; leave `alpha` out".to_owned());
        }
        let Extents { m, n, k } = extents;
        if m == 0 || n == 0 || !(2..=LONGEST).contains(&k) {
            return Err(ProbeError::Shape(extents));
        }
        let target = Self { backend, variant, gemm, extents, calls: AtomicUsize::new(0) };
        let op = Op::from(target.gemm.clone());
        let types = target.types();
        op.signature(&types).map_err(BackendError::from)?;
        backend.supports(&op).map_err(BackendError::from)?;
        let known = backend.ways(&op, &types)?;
        if !known.iter().any(|name| name == variant)
            && !backend.variants(&op).iter().any(|name| name == variant)
        {
            let variant = variant.to_owned();
            return Err(BackendError::Variant { op: op.name(), variant, known }.into());
        }
        Ok(target)
    }

    /// Types of the inputs.
    fn types(&self) -> Vec<TensorType> {
        self.gemm.input_names().iter().map(|name| self.input_type(name)).collect()
    }

    /// Every way in which the backend can make this product, and how it describes each.
    pub fn ways(&self) -> Result<Vec<Way>, ProbeError> {
        let (op, types) = (Op::from(self.gemm.clone()), self.types());
        let zeros = types.iter().map(|ty| Tensor::from_fn(ty.clone(), Path::fastest(), |_| 0));
        let inputs = zeros.collect::<Result<Vec<_>, _>>().map_err(BackendError::from)?;
        let describe = |way: String| {
            if !self.backend.stepwise() {
                return Ok((way, BTreeMap::new()));
            }
            let staged = Staged::new(self.backend, &op, &inputs, Layout::contiguous)?;
            let how = staged.with_call(&op, &way, Stream::default(), |call| self.backend.describe(call))?;
            Ok((way, how))
        };
        self.backend.ways(&op, &types)?.into_iter().map(describe).collect()
    }

    /// The operation.
    #[must_use]
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// Its extents.
    #[must_use]
    pub fn extents(&self) -> Extents {
        self.extents
    }

    /// Calls of the backend so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// What runs: `cpu/parallel`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.backend.name(), self.variant)
    }

    /// What it runs on.
    #[must_use]
    pub fn device(&self) -> String {
        self.backend.device().name
    }

    /// The format that factors are seen in: what operands are converted to.
    pub(super) fn factors(&self) -> [Format; 2] {
        [self.gemm.a, self.gemm.b].map(|format| match self.gemm.operands {
            Some(operands) => operands.to,
            None if self.gemm.compute == Compute::Tf32 => TF32,
            None => format,
        })
    }

    fn input_type(&self, name: &str) -> TensorType {
        let Extents { m, n, k } = self.extents;
        let gemm = &self.gemm;
        let turned = |rows, columns, turned| if turned { [columns, rows] } else { [rows, columns] };
        let scale = |scale, extent: usize| match scale {
            GemmScale::Row => vec![extent],
            _ => vec![],
        };
        match name {
            "a" => TensorType::new(gemm.a, turned(m, k, gemm.transpose_a)),
            "b" => TensorType::new(gemm.b, turned(k, n, gemm.transpose_b)),
            "c" => TensorType::new(gemm.c.unwrap_or(F32), [m, n]),
            "scale_a" => TensorType::new(F32, scale(gemm.scale_a, m)),
            "scale_b" => TensorType::new(F32, scale(gemm.scale_b, n)),
            "bias" => TensorType::new(gemm.bias.unwrap_or(F32), [n]),
            _ => TensorType::new(F32, []),
        }
    }

    /// The inputs with these codes of `a[m, k]`, `b[k, n]` and values of `c[m, n]`. Scales
    /// are 1 and the bias is 0.
    pub(super) fn inputs(
        &self,
        a: impl Fn(usize, usize) -> u64 + Sync,
        b: impl Fn(usize, usize) -> u64 + Sync,
        c: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Result<Vec<Tensor>, BackendError> {
        let Extents { m, n, k } = self.extents;
        let fill = |name: &&'static str| {
            let ty = self.input_type(name);
            let constant = |value: f64| ty.dtype.format().map_or(0, |format| nearest(format, value));
            let path = Path::Parallel;
            match *name {
                "a" if self.gemm.transpose_a => Tensor::from_fn(ty, path, |i| a(i % m, i / m)),
                "a" => Tensor::from_fn(ty, path, |i| a(i / k, i % k)),
                "b" if self.gemm.transpose_b => Tensor::from_fn(ty, path, |i| b(i % k, i / k)),
                "b" => Tensor::from_fn(ty, path, |i| b(i / n, i % n)),
                "c" => {
                    let format = self.gemm.c.unwrap_or(F32);
                    Tensor::from_fn(ty, path, |i| nearest(format, c(i / n, i % n)))
                }
                "bias" => Tensor::from_fn(ty.clone(), path, |_| constant(0.0)),
                _ => Tensor::from_fn(ty.clone(), path, |_| constant(1.0)),
            }
        };
        Ok(self.gemm.input_names().iter().map(fill).collect::<Result<_, _>>()?)
    }

    /// The output for these inputs.
    pub(super) fn run(&self, inputs: &[Tensor]) -> Result<Tensor, BackendError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let outputs = self.backend.run(&self.gemm.clone().into(), self.variant, inputs)?;
        outputs
            .into_iter()
            .next()
            .ok_or_else(|| BackendError::Failed { call: self.name(), why: "gave no output".to_owned() })
    }

    /// The value of every dot product: each has a row of a and a column of b of its own.
    pub(super) fn dots(&self, dots: &[Dot]) -> Result<Vec<f64>, BackendError> {
        let Extents { m, n, k } = self.extents;
        let [of_a, of_b] = [self.gemm.a, self.gemm.b];
        let mut values = Vec::with_capacity(dots.len());
        for dots in dots.chunks(m.min(n)) {
            let dense = |of: &dyn Fn(&(usize, f64, f64)) -> u64| -> Vec<Vec<u64>> {
                let one = |dot: &Dot| {
                    let mut codes = vec![0; k];
                    dot.terms.iter().for_each(|term| codes[term.0] = of(term));
                    codes
                };
                dots.iter().map(one).collect()
            };
            let a = dense(&|term| nearest(of_a, term.1));
            let b = dense(&|term| nearest(of_b, term.2));
            let inputs = self.inputs(
                |m, k| a.get(m).map_or(0, |row| row[k]),
                |k, n| b.get(n).map_or(0, |column| column[k]),
                |m, n| dots.get(m).filter(|_| m == n).map_or(0.0, |dot| dot.c),
            )?;
            let y = self.run(&inputs)?;
            values.extend((0..dots.len()).map(|i| self.gemm.out.to_f64(y.code(i * n + i))));
        }
        Ok(values)
    }
}

/// Sums longer than this take more calls than anyone waits for.
const LONGEST: usize = 1 << 16;

/// The code of the nearest value.
pub(super) fn nearest(format: Format, value: f64) -> u64 {
    format.encode(Value::from(value), &Policy::IEEE, 0)
}

/// Exponents of powers of two in a format: the largest, the least normal one, the least.
pub(super) fn exponents(format: Format) -> (i32, i32, i32) {
    let least = format.min_exponent();
    (format.max_exponent(), least, least - format.fraction_bits as i32)
}

/// `2^exponent`.
pub(super) fn power(exponent: i32) -> f64 {
    Value::Finite { negative: false, significand: 1, exponent }.to_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::{E4M3FN, F16};

    #[test]
    fn exponents_are_those_of_the_formats() {
        assert_eq!(exponents(F16), (15, -14, -24));
        assert_eq!(exponents(E4M3FN), (8, -6, -9));
        assert_eq!(nearest(F16, power(-24)), 1);
    }
}
