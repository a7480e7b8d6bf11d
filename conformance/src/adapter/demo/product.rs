//! Wrong matrix products.

use super::DemoFault;
use super::mistaken::Mistaken;
use crate::adapter::scalar::check_inputs;
use crate::product::{Model, arithmetics};
use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput};
use plumbline_reference::backend::{BackendError, Unsupported};
use plumbline_reference::format::F32;
use plumbline_reference::ops::Op;
use plumbline_reference::ops::gemm::{Bits32, Compute, EpilogueOrder, Gemm, Geometry};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};

/// Products of a tile of K.
const TILE: usize = 64;

/// Products with the arithmetic that is usual on sm_90, and one fault. Those that the fault
/// is not about are right.
pub(super) fn mistaken(fault: DemoFault) -> Mistaken {
    Mistaken { fault, supports, run }
}

fn supports(op: &Op) -> Result<(), Unsupported> {
    match op {
        Op::Gemm(gemm) if gemm.accumulate.is_none() => Ok(()),
        _ => Err(Unsupported("does only `gemm` without `accumulate`".to_owned())),
    }
}

fn run(fault: DemoFault, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    check_inputs(op, inputs)?;
    let Op::Gemm(gemm) = op else { return Ok(Vec::new()) };
    Ok(vec![product(gemm, inputs, fault)?])
}

/// The product with the fault.
fn product(gemm: &Gemm, inputs: &[Tensor], fault: DemoFault) -> Result<Tensor, BackendError> {
    let geometry = Geometry::of(gemm, inputs);
    let mut wrong = Product { gemm: usual(gemm).of(gemm), inputs: inputs.to_vec() };
    let Geometry { k, m, batch, .. } = geometry;
    match fault {
        DemoFault::TailDropped => {
            let tail = if k % TILE == 0 { 16 } else { k % TILE };
            wrong.sum_over(&(0..k.saturating_sub(tail)).collect::<Vec<_>>())?;
        }
        DemoFault::BlockTwice => {
            let first = k / 2 / TILE * TILE;
            let end = k.min(first + TILE);
            wrong.sum_over(&(0..end).chain(first..k).collect::<Vec<_>>())?;
        }
        DemoFault::ScaleDropped => wrong.scale_by(|_| 1.0)?,
        DemoFault::ScaleTwice => wrong.scale_by(|scale| scale * scale)?,
        DemoFault::BetaRead if gemm.c.is_some() && gemm.beta.0 == 0.0 => wrong.gemm.beta = Bits32(1.0),
        DemoFault::BiasOfRows => wrong.add_bias_of_rows(&geometry)?,
        DemoFault::Tf32 if [gemm.a, gemm.b] == [F32, F32] && gemm.compute == Compute::F32 => {
            wrong.gemm = usual(&Gemm { compute: Compute::Tf32, ..gemm.clone() }).of(gemm);
        }
        DemoFault::FractionBits => {
            wrong.change_block(|block| Block { fraction_bits: block.fraction_bits - 1, ..block });
        }
        DemoFault::RoundedBlocks => wrong.change_block(|block| match block.output {
            BlockOutput::Truncate(_) => Block { output: BlockOutput::NearestF32, ..block },
            BlockOutput::NearestF32 | BlockOutput::NearestF16 => block,
        }),
        DemoFault::FirstBatch if geometry.is_batched => {
            for operand in &mut wrong.inputs[..2] {
                *operand = picked(operand, 0, &vec![0; batch])?;
            }
        }
        _ => (),
    }
    let y = Op::from(wrong.gemm).evaluate(&wrong.inputs, Path::fastest())?.remove(0);
    if fault != DemoFault::RowsSwapped || m == 0 {
        return Ok(y);
    }
    let mut rows: Vec<_> = (0..m).collect();
    rows.swap(m / 5, m - 1 - m / 5);
    Ok(picked(&y, y.shape().len() - 2, &rows)?)
}

/// The arithmetic that is usual on sm_90.
fn usual(gemm: &Gemm) -> Model {
    arithmetics(gemm, Some("sm_90")).swap_remove(0)
}

/// The tensor made of these slices of an axis.
fn picked(tensor: &Tensor, axis: usize, slices: &[usize]) -> Result<Tensor, TensorError> {
    let inner: usize = tensor.shape()[axis + 1..].iter().product();
    let extent = tensor.shape()[axis];
    let mut ty = tensor.ty().clone();
    ty.shape[axis] = slices.len();
    Tensor::from_fn(ty, Path::fastest(), |i| {
        let (outer, slice) = (i / inner / slices.len(), i / inner % slices.len());
        tensor.code((outer * extent + slices[slice]) * inner + i % inner)
    })
}

/// A product and its inputs.
struct Product {
    gemm: Gemm,
    inputs: Vec<Tensor>,
}

impl Product {
    fn position(&self, name: &str) -> Option<usize> {
        Op::from(self.gemm.clone()).input_names().iter().position(|own| *own == name)
    }

    /// Sums these products of K, in this order.
    fn sum_over(&mut self, k: &[usize]) -> Result<(), TensorError> {
        for (input, k_is_last) in [(0, !self.gemm.transpose_a), (1, self.gemm.transpose_b)] {
            let axis = self.inputs[input].shape().len() - if k_is_last { 1 } else { 2 };
            self.inputs[input] = picked(&self.inputs[input], axis, k)?;
        }
        Ok(())
    }

    /// Changes the first scale that there is.
    fn scale_by(&mut self, change: impl Fn(f32) -> f32 + Sync) -> Result<(), TensorError> {
        let there = ["scale_a", "scale_b", "scale_out"].into_iter().find_map(|name| self.position(name));
        let Some(i) = there else { return Ok(()) };
        let scales = &self.inputs[i];
        let changed = |at| u64::from(change(f32::from_bits(scales.code(at) as u32)).to_bits());
        self.inputs[i] = Tensor::from_fn(scales.ty().clone(), Path::Definition, changed)?;
        Ok(())
    }

    /// Adds `bias[m]` in place of `bias[n]`, as a c that is the same along a row. Only where
    /// there is no other c.
    fn add_bias_of_rows(&mut self, geometry: &Geometry) -> Result<(), TensorError> {
        let (Some(format), Some(i), false) = (self.gemm.bias, self.position("bias"), self.gemm.reads_c())
        else {
            return Ok(());
        };
        let bias = self.inputs.remove(i);
        let ty = TensorType::new(format, geometry.output_shape());
        let c = Tensor::from_fn(ty, Path::fastest(), |at| {
            let (_, m, _) = geometry.coordinates(at);
            bias.code(m % geometry.n)
        })?;
        match self.position("c") {
            Some(i) => self.inputs[i] = c,
            None => self.inputs.insert(2, c),
        }
        // Rounds as a bias does.
        let epilogue = EpilogueOrder::FusedAddend;
        self.gemm = Gemm { c: Some(format), beta: Bits32(1.0), bias: None, epilogue, ..self.gemm.clone() };
        Ok(())
    }

    fn change_block(&mut self, change: impl Fn(Block) -> Block) {
        match &mut self.gemm.accumulate {
            Some(Accumulation::Chain(block)) => *block = change(*block),
            Some(Accumulation::Sum(sum)) => {
                if let Accumulation::Chain(block) = &mut sum.each {
                    *block = change(*block);
                }
            }
            _ => (),
        }
    }
}
