//! Exact products in other orders, which their bounds must allow.

use crate::fuzz::is_exact;
use crate::product::{Hints, Model, models};
use crate::seed::mix;
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::F32;
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::ops::{BatchedGemv, Dispatch, Gemm, GemmFused, Gemv, Op, PrefillLinear};
use plumbline_reference::{Cpu, Tensor};

/// The reference, adding up each exact product in an order of some implementation: one of the
/// [models] of such products, chosen by the inputs.
pub struct Reordered;

const VARIANT: &str = "some_order";

impl Reordered {
    /// The operation with an order; `None` where it is no exact product.
    fn ordered(op: &Op, inputs: &[Tensor]) -> Option<Op> {
        let chosen = inputs.iter().flat_map(|input| input.codes().take(16)).fold(0, mix);
        // An order of a product of k factors, in no more parts than that.
        let pick = |product: &Gemm, k: usize| -> Model {
            let all = models(product, k, None, &Hints::new()).into_iter();
            let all: Vec<_> = all.filter(|it| it.accumulate.as_ref().is_some_and(sums_in_f32)).collect();
            all[(chosen % all.len() as u64) as usize].clone()
        };
        let of_numbers = |product: Gemm| pick(&product, Geometry::of(&product, inputs).k);
        let columns = |weights: BlockFormat| inputs[0].shape()[1] * weights.values();
        // Blocks are multiplied in f32, by threads.
        let of_blocks = |weights: BlockFormat| pick(&Gemm::new(F32, F32, F32), columns(weights)).accumulate;
        match op.clone() {
            Op::Gemm(gemm) if gemm.accumulate.is_none() => Some(of_numbers(gemm.clone()).of(&gemm).into()),
            Op::GemmFused(op @ GemmFused { accumulate: None, .. }) => {
                Some(GemmFused { accumulate: of_numbers(op.gemm()).accumulate, ..op }.into())
            }
            Op::Gemv(op @ Gemv { accumulate: None, .. }) => {
                Some(Gemv { accumulate: of_blocks(op.weights), ..op }.into())
            }
            Op::BatchedGemv(op @ BatchedGemv { accumulate: None, .. }) => {
                Some(BatchedGemv { accumulate: of_blocks(op.weights), ..op }.into())
            }
            Op::PrefillLinear(op @ PrefillLinear { accumulate: None, .. }) => Some(
                PrefillLinear { accumulate: pick(&op.gemm(), columns(op.weights)).accumulate, ..op }.into(),
            ),
            Op::Dispatch(op @ Dispatch { gemv: None, gemm: None, .. }) => {
                let order = of_blocks(op.weights);
                Some(Dispatch { gemv: order.clone(), gemm: order, ..op }.into())
            }
            _ => None,
        }
    }
}

/// Whether partial sums stay in f32: a bound allows no others.
fn sums_in_f32(order: &Accumulation) -> bool {
    match order {
        Accumulation::Sum(sum) => sum.partials == F32 && sum.sums == F32 && sums_in_f32(&sum.each),
        _ => true,
    }
}

impl Backend for Reordered {
    fn name(&self) -> &str {
        "reordered"
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        match is_exact(op) {
            true => Ok(()),
            false => Err(Unsupported(format!("has no other order for {} as it is", op.name()))),
        }
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANT.to_owned()]
    }

    fn run(&self, op: &Op, _: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let ordered = Self::ordered(op, inputs).ok_or_else(|| BackendError::Failed {
            call: op.name().to_owned(),
            why: "is no exact product".to_owned(),
        })?;
        Cpu.run(&ordered, "definition", inputs)
    }
}
