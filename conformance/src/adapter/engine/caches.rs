//! What an engine keeps from call to call.

use super::EngineFault;
use super::arena::{Arena, Operand, Stamp};
use plumbline_reference::ops::Op;
use plumbline_reference::{Tensor, TensorError, TensorType};
use std::collections::HashMap;
use std::sync::Arc;

/// What an input is to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Converted once and kept, since weights seldom change.
    Weights,
    /// Converted at each call, and kept for the next in case that it has the same.
    Activations,
    /// Read as it is.
    Plain,
}

pub(super) fn role(op: &Op, input: usize) -> Role {
    match (op, input) {
        (Op::Gemm(_) | Op::GemmFused(_), 1)
        | (
            Op::Gemv(_)
            | Op::BatchedGemv(_)
            | Op::PrefillLinear(_)
            | Op::Dispatch(_)
            | Op::Dequantize(_)
            | Op::MxDequantize(_),
            0,
        ) => Role::Weights,
        (Op::Gemv(_) | Op::BatchedGemv(_) | Op::PrefillLinear(_) | Op::Dispatch(_), 1) | (_, 0) => {
            Role::Activations
        }
        _ => Role::Plain,
    }
}

/// A converted tensor and the memory that it was made from. What is kept here is the elements
/// themselves, in place of their conversion.
struct Kept {
    from: Operand,
    stamp: Option<Stamp>,
    tensor: Arc<Tensor>,
}

/// Converted weights and activations.
#[derive(Default)]
pub(super) struct Conversions {
    weights: Vec<Kept>,
    last: Option<Kept>,
}

impl Conversions {
    /// The elements of an input.
    pub(super) fn read(
        &mut self,
        arena: &Arena,
        role: Role,
        from: &Operand,
        fault: Option<EngineFault>,
    ) -> Result<Arc<Tensor>, TensorError> {
        let stamp = arena.stamp(from.address);
        let is_valid = |kept: &&Kept| {
            let serial = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.serial);
            kept.from == *from
                && match (role, fault) {
                    (Role::Weights, Some(EngineFault::StaleWeightCache)) => true,
                    (Role::Activations, Some(EngineFault::StaleActivationCache)) => {
                        serial(kept.stamp) == serial(stamp)
                    }
                    _ => kept.stamp == stamp,
                }
        };
        let kept = match role {
            Role::Weights => self.weights.iter().find(is_valid),
            Role::Activations => self.last.as_ref().filter(is_valid),
            Role::Plain => None,
        };
        if let Some(kept) = kept {
            return Ok(kept.tensor.clone());
        }
        let tensor = Arc::new(arena.read(from)?);
        let kept = Kept { from: from.clone(), stamp, tensor: tensor.clone() };
        match role {
            Role::Weights => {
                self.weights.retain(|kept| kept.from != *from);
                self.weights.push(kept);
            }
            Role::Activations => self.last = Some(kept),
            Role::Plain => (),
        }
        Ok(tensor)
    }
}

/// A call's operation with its parameters built in.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) op: Op,
    /// Of `gemm_fused`: elements of the bias.
    pub(super) bias: Option<usize>,
}

/// Kernels with their parameters built in.
#[derive(Default)]
pub(super) struct Kernels(HashMap<String, Arc<Built>>);

impl Kernels {
    /// The kernel for a call on tensors of these types.
    pub(super) fn get(&mut self, op: &Op, types: &[TensorType], fault: Option<EngineFault>) -> Arc<Built> {
        let parameters = match fault {
            Some(EngineFault::BakedConstant) => op.name().to_owned(),
            _ => serde_json::to_string(op).unwrap_or_else(|_| format!("{op:?}")),
        };
        let is_fused = matches!(op, Op::GemmFused(_));
        // By its activations alone: those of every bias are alike.
        let known = if is_fused && fault == Some(EngineFault::BakedConstant) { &types[..1] } else { types };
        let key = known.iter().fold(parameters, |key, ty| format!("{key} {ty}"));
        let bias = is_fused.then(|| types[2].shape[0]);
        self.0.entry(key).or_insert_with(|| Arc::new(Built { op: op.clone(), bias })).clone()
    }
}
