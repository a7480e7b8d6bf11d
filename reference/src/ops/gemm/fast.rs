//! The same product on SIMD registers.

use super::epilogue::Epilogue;
use super::short::Short;
use super::{Gemm, Geometry, exact};
use crate::accumulate::Accumulation;
use crate::fast::{self, Conversion, Factor, Plan, Simd};
use crate::format::{F32, Format, Policy};
use crate::{DType, Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use std::borrow::Cow;

/// Elements of a task of the epilogue.
const CHUNK: usize = 1 << 12;

/// f32 bits of the codes of a format that f32 holds.
pub(in crate::ops) fn widened(simd: Simd, format: Format, codes: &[u8]) -> Vec<u32> {
    let conversion = Conversion::decode(format, F32).expect("f32 holds every number of an operand");
    let bytes = conversion.converted(simd, codes, None, &[]);
    bytes.as_chunks().0.iter().map(|&code| u32::from_le_bytes(code)).collect()
}

/// A product and what its elements are made from.
pub(super) struct Fast<'a> {
    gemm: &'a Gemm,
    inputs: &'a [Tensor],
    geometry: Geometry,
    simd: Simd,
}

impl<'a> Fast<'a> {
    pub(super) fn new(gemm: &'a Gemm, inputs: &'a [Tensor], simd: Simd) -> Self {
        Self { gemm, inputs, geometry: Geometry::of(gemm, inputs), simd }
    }

    /// The whole product; `None` where there is no fast path.
    pub(super) fn evaluate(&self) -> Result<Option<Tensor>, TensorError> {
        let Self { gemm, simd, geometry, .. } = self;
        let ty = TensorType::new(gemm.out, geometry.output_shape());
        let plan = match &gemm.accumulate {
            None => None,
            Some(accumulate) => match Plan::new(accumulate, geometry.k) {
                Some(plan) => Some((accumulate, plan)),
                None => return Ok(None),
            },
        };
        let (a, b) = (self.operand(0, gemm.a), self.operand(1, gemm.b));
        let batches = (0..geometry.batch).into_par_iter().map(|batch| {
            [
                self.factor(&a, gemm.a, geometry.m, geometry.rows_of_a(batch)),
                self.factor(&b, gemm.b, geometry.n, geometry.columns_of_b(batch)),
            ]
        });
        let Some((accumulate, plan)) = plan else {
            let sums: Vec<_> = batches.map(|[a, b]| fast::exact(*simd, a, b, geometry.k)).collect();
            let short = Short::of(gemm, self.inputs);
            let y = Tensor::from_fn(ty, Path::Simd(*simd), |i| {
                let (batch, m, n) = geometry.coordinates(i);
                self.exact_element(&short, sums[batch].as_ref().and_then(|sums| sums.get(m, n)), i)
            })?;
            return Ok(Some(y));
        };
        let sums: Vec<_> = batches.map(|[a, b]| plan.evaluate(*simd, a, b, None)).collect();
        let epilogue = Epilogue::of(gemm, self.inputs, geometry);
        let mut values = vec![0; 4 * ty.elements()?];
        values.par_chunks_mut(4 * CHUNK).enumerate().for_each(|(chunk, values)| {
            for (i, value) in values.as_chunks_mut().0.iter_mut().enumerate() {
                let position = chunk * CHUNK + i;
                let (batch, m, n) = geometry.coordinates(position);
                let sum = sums[batch].get(m, n).unwrap_or_else(|| self.dot(accumulate, position));
                *value = epilogue.value(sum, position, m, n).to_le_bytes();
            }
        });
        let conversion = Conversion::scaled(F32, gemm.out, &gemm.policy()).expect("no output is f64");
        Ok(Some(Tensor::from_bytes(ty, conversion.converted(*simd, &values, None, &[]))?))
    }

    /// Elements at these positions, each as a product of one row and one column; `None` where
    /// there is no fast path.
    pub(super) fn at(&self, positions: &[usize]) -> Option<Vec<u64>> {
        let Self { gemm, inputs, geometry, simd } = self;
        let packed = [inputs[0].packed(), inputs[1].packed()];
        let factors = |position| {
            let (batch, m, n) = geometry.coordinates(position);
            [
                self.widened(gemm.a, &self.line(&packed[0], gemm.a, geometry.rows_of_a(batch), m)),
                self.widened(gemm.b, &self.line(&packed[1], gemm.b, geometry.columns_of_b(batch), n)),
            ]
        };
        let Some(accumulate) = &gemm.accumulate else {
            let short = Short::of(gemm, inputs);
            let element = |&position: &usize| {
                let [a, b] = factors(position);
                let sums = fast::exact(*simd, self.single(&a, gemm.a), self.single(&b, gemm.b), geometry.k);
                self.exact_element(&short, sums.and_then(|sums| sums.get(0, 0)), position)
            };
            return Some(positions.par_iter().map(element).collect());
        };
        let plan = Plan::new(accumulate, geometry.k)?;
        let epilogue = Epilogue::of(gemm, inputs, geometry);
        let element = |&position: &usize| {
            let [a, b] = factors(position);
            let sums = plan.evaluate(*simd, self.single(&a, gemm.a), self.single(&b, gemm.b), None);
            epilogue.apply(sums.get(0, 0).unwrap_or_else(|| self.dot(accumulate, position)), position)
        };
        Some(positions.par_iter().map(element).collect())
    }

    /// An input as f32 bits, converted as `operands` says.
    fn operand(&self, input: usize, format: Format) -> Vec<u32> {
        self.widened(format, &self.inputs[input].packed())
    }

    /// The codes of an operand as f32 bits, converted as `operands` says.
    fn widened(&self, format: Format, codes: &[u8]) -> Vec<u32> {
        let Some(operands) = self.gemm.operands else { return widened(self.simd, format, codes) };
        let policy = Policy { rounding: operands.rounding, ..Policy::IEEE };
        let conversion = Conversion::cast(format, operands.to, &policy).expect("is no f64, nor at random");
        widened(self.simd, operands.to, &conversion.converted(self.simd, codes, None, &[]))
    }

    /// The codes of a row, or column, among those of an input.
    fn line<'b>(
        &self,
        codes: &'b [u8],
        format: Format,
        (first, stride_of_rows, stride): (usize, usize, usize),
        row: usize,
    ) -> Cow<'b, [u8]> {
        let (width, first, k) = (DType::from(format).bytes(), first + row * stride_of_rows, self.geometry.k);
        if stride == 1 {
            return Cow::Borrowed(&codes[first * width..(first + k) * width]);
        }
        let element = |k: usize| &codes[(first + k * stride) * width..][..width];
        Cow::Owned((0..k).flat_map(element).copied().collect())
    }

    fn factor<'b>(
        &self,
        values: &'b [u32],
        own: Format,
        rows: usize,
        (first, row_stride, stride): (usize, usize, usize),
    ) -> Factor<'b> {
        let format = self.gemm.operands.map_or(own, |operands| operands.to);
        // A factor without elements has no first one.
        Factor { values: values.get(first..).unwrap_or_default(), format, rows, row_stride, stride }
    }

    /// One row or column alone.
    fn single<'b>(&self, values: &'b [u32], own: Format) -> Factor<'b> {
        self.factor(values, own, 1, (0, self.geometry.k, 1))
    }

    /// The sum of an element by definition.
    fn dot(&self, accumulate: &Accumulation, position: usize) -> f32 {
        let a = self.gemm.row(self.inputs, &self.geometry, position);
        let b = self.gemm.column(self.inputs, &self.geometry, position);
        super::epilogue::to_f32(accumulate.format().decode(accumulate.dot(&a, &b)))
    }

    /// The code of an element from the exact sum of its products, if that is there.
    fn exact_element(&self, short: &Short<'_>, sum: Option<(i128, i32)>, position: usize) -> u64 {
        let Self { gemm, inputs, geometry, .. } = self;
        let value = match sum {
            None => exact::value(gemm, inputs, geometry, position).value(),
            Some((integer, unit)) => {
                let (_, m, n) = geometry.coordinates(position);
                short.value(integer, unit, position, m, n).unwrap_or_else(|| {
                    let sum = super::short::exact(integer, unit);
                    exact::finish(gemm, inputs, geometry, position, sum).value()
                })
            }
        };
        gemm.out.encode(value, &gemm.policy(), 0)
    }
}
