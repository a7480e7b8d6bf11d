//! `mma`: one matrix instruction on a batch of tiles.
//!
//! `d[t] = a[t] * transpose(b[t]) + c[t]` with a `[T, M, K]`, b `[T, N, K]`, c and d
//! `[T, M, N]`, where M, N and K are the instruction's. Every element is one dot product as
//! [`Instruction::arithmetic`] says, `c` taking part as it says there. NaN is the canonical
//! one; see [`Block`](crate::accumulate::Block) for infinities and the sign of zero.
//!
//! Source: PTX ISA, `mma.sync.aligned` and `wgmma.mma_async`; the arithmetic is measured.

use super::gemm::widened;
use super::{Inputs, Operation, SignatureError};
use crate::accumulate::{Instruction, Operand, Shape};
use crate::fast::{Factor, Plan, Simd};
use crate::format::Policy;
use crate::{Path, Tensor, TensorError, TensorType};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One matrix instruction on a batch of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mma {
    /// The instruction.
    pub instruction: Instruction,
}

impl Operation for Mma {
    const INPUTS: &'static [&'static str] = &["a", "b", "c"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(3)?;
        let Shape { m, n, k } = self.instruction.shape();
        let ([a, b], c) = (self.instruction.operands(), self.instruction.accumulator());
        let tiles = match *inputs.dtype(0, a)? {
            [tiles, rows, depth] if (rows, depth) == (m, k) => tiles,
            _ => return Err(inputs.shape_error(0, format!("[tiles, {m}, {k}]"))),
        };
        inputs.exactly(1, b, &[&[tiles, n, k]])?;
        inputs.exactly(2, c, &[&[tiles, m, n]])?;
        Ok(vec![TensorType::new(c, [tiles, m, n])])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let Shape { m, n, k } = self.instruction.shape();
        let (formats, arithmetic) = (self.instruction.operands(), self.instruction.arithmetic());
        if let Path::Simd(simd) = path
            && let Some(d) = self.evaluate_fast(inputs, simd)?
        {
            return Ok(vec![d]);
        }
        let [a, b] = [0, 1]
            .map(|i| -> Vec<_> { inputs[i].codes().map(|code| Operand::of(formats[i], code)).collect() });
        let d = Tensor::from_fn(inputs[2].ty().clone(), path, |i| {
            let (tile, row, column) = (i / (m * n), i / n % m, i % n);
            let (a, b) = (&a[(tile * m + row) * k..][..k], &b[(tile * n + column) * k..][..k]);
            arithmetic.instruction(a, b, inputs[2].code(i))
        })?;
        Ok(vec![d])
    }

    fn has_fast_path(&self) -> bool {
        Plan::exists(&self.instruction.arithmetic())
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let Shape { m, n, k } = self.instruction.shape();
        let (tile, row, column) = (index / (m * n), index / n % m, index % n);
        let of_a = (0..k).map(|i| (0, (tile * m + row) * k + i));
        let of_b = (0..k).map(|i| (1, (tile * n + column) * k + i));
        let c = (index < inputs[2].len()).then_some((2, index));
        of_a.chain(of_b).chain(c).collect()
    }
}

impl Mma {
    /// `None` where there is no fast path.
    fn evaluate_fast(&self, inputs: &[Tensor], simd: Simd) -> Result<Option<Tensor>, TensorError> {
        let Shape { m, n, k } = self.instruction.shape();
        let (formats, arithmetic) = (self.instruction.operands(), self.instruction.arithmetic());
        let Some(plan) = Plan::new(&arithmetic, k) else { return Ok(None) };
        let accumulator = self.instruction.accumulator();
        let bits = |i: usize, format| widened(simd, format, &inputs[i].packed());
        let (a, b, c) = (bits(0, formats[0]), bits(1, formats[1]), bits(2, accumulator));
        let c: Vec<_> = c.into_iter().map(f32::from_bits).collect();
        let factor = |values, format, rows| Factor { values, format, rows, row_stride: k, stride: 1 };
        let by_definition = |i: usize| {
            let (tile, row, column) = (i / (m * n), i / n % m, i % n);
            let operands = |input: usize, row: usize| -> Vec<_> {
                let code = |i| inputs[input].code(row * k + i);
                (0..k).map(|i| Operand::of(formats[input], code(i))).collect()
            };
            let (a, b) = (operands(0, tile * m + row), operands(1, tile * n + column));
            arithmetic.instruction(&a, &b, inputs[2].code(i))
        };
        let d = c.par_chunks(m * n).enumerate().flat_map_iter(|(tile, c)| {
            let (a, b) = (&a[tile * m * k..][..m * k], &b[tile * n * k..][..n * k]);
            let sums = plan.evaluate(simd, factor(a, formats[0], m), factor(b, formats[1], n), Some(c));
            let element = |i: usize| match sums.get(i / n, i % n) {
                Some(sum) if c[i].is_finite() => accumulator.encode(super::arithmetic(sum), &Policy::IEEE, 0),
                _ => by_definition(tile * m * n + i),
            };
            (0..m * n).map(element).collect::<Vec<_>>()
        });
        let codes: Vec<_> = d.collect();
        Ok(Some(Tensor::from_codes(inputs[2].ty().clone(), &codes)?))
    }
}
