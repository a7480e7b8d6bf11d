//! Exact products in other orders, which their bounds must allow.

use crate::product::{Hints, Model, models};
use crate::seed::mix;
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::format::F32;
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
        // An order of a product like that one, with no more parts than its sums have terms.
        let pick = |product: &Gemm| -> Model {
            let k = inputs.first().and_then(|a| a.shape().iter().copied().max()).unwrap_or(0);
            let all = models(product, k, None, &Hints::new()).into_iter();
            let all: Vec<_> = all.filter(|it| it.accumulate.as_ref().is_some_and(sums_in_f32)).collect();
            all[(chosen % all.len() as u64) as usize].clone()
        };
        let order = |product: Gemm| pick(&product).accumulate;
        // Blocks are multiplied in f32, by threads.
        let of_numbers = || order(Gemm::new(F32, F32, F32));
        match op.clone() {
            Op::Gemm(gemm) if gemm.accumulate.is_none() => Some(pick(&gemm).of(&gemm).into()),
            Op::GemmFused(op @ GemmFused { accumulate: None, .. }) => {
                Some(GemmFused { accumulate: order(op.gemm()), ..op }.into())
            }
            Op::Gemv(op @ Gemv { accumulate: None, .. }) => {
                Some(Gemv { accumulate: of_numbers(), ..op }.into())
            }
            Op::BatchedGemv(op @ BatchedGemv { accumulate: None, .. }) => {
                Some(BatchedGemv { accumulate: of_numbers(), ..op }.into())
            }
            Op::PrefillLinear(op @ PrefillLinear { accumulate: None, .. }) => {
                Some(PrefillLinear { accumulate: order(op.gemm()), ..op }.into())
            }
            Op::Dispatch(op @ Dispatch { gemv: None, gemm: None, .. }) => {
                Some(Dispatch { gemv: of_numbers(), gemm: of_numbers(), ..op }.into())
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
        match Self::ordered(op, &[]) {
            Some(_) => Ok(()),
            None => Err(Unsupported(format!("has no other order for {} as it is", op.name()))),
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
