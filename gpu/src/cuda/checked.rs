//! Inputs whose values an operation checks: they are read back before every launch and every
//! replay, so that nothing is queued where they do not fit.
#![allow(unsafe_code)]

use super::{Session, Shared};
use crate::blas::Lane;
use crate::error::Named;
use cudarc::driver::result;
use plumbline_reference::backend::{BackendError, Buffer, Launch, Layout, Unsupported, Work};
use plumbline_reference::ops::Op;
use plumbline_reference::{Tensor, TensorType};
use std::sync::Arc;

/// A call whose inputs' values are checked.
pub(super) struct Checked {
    op: Op,
    inputs: Vec<TensorType>,
    values: Vec<(Shared, Layout)>,
}

impl Checked {
    /// `None` where nothing of the call is checked.
    pub(super) fn of(call: Launch<'_>) -> Result<Option<Self>, BackendError> {
        if call.op.checked().is_empty() {
            return Ok(None);
        }
        let inputs = call.inputs.iter().map(|buffer| buffer.layout().ty.clone()).collect();
        let value = |&input: &usize| {
            let buffer: &Buffer = call.inputs[input];
            Ok((buffer.memory::<Shared>()?.clone(), buffer.layout().clone()))
        };
        let values = call.op.checked().iter().map(value).collect::<Result<_, BackendError>>()?;
        Ok(Some(Self { op: call.op.clone(), inputs, values }))
    }

    /// Waits for what is queued on the lane, and checks the values as they are then.
    pub(super) fn check(&self, session: &Session, lane: &Lane) -> Result<(), BackendError> {
        let tensor = |(memory, layout): &(Shared, Layout)| -> Result<Tensor, BackendError> {
            let mut bytes = vec![0; memory.bytes];
            let mut copy = || {
                lane.stream.synchronize().named("cuStreamSynchronize")?;
                if bytes.is_empty() {
                    return Ok(());
                }
                // SAFETY: both sides have that many bytes.
                unsafe { result::memcpy_dtoh_sync(&mut bytes, memory.address) }.named("cuMemcpyDtoH")
            };
            copy().map_err(|error| session.fault(error))?;
            Ok(layout.gather(&bytes)?)
        };
        let values = self.values.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
        Ok(self.op.check_values(&self.inputs, &values)?)
    }

    /// Requires that nothing recorded before writes what is checked before all of them.
    pub(super) fn require_unwritten(&self, earlier: &[Work<'_>]) -> Result<(), BackendError> {
        let written = earlier.iter().flat_map(|work| match work {
            Work::Launch(call) => call.outputs,
            Work::Upload { buffer, .. } => std::slice::from_ref(buffer),
        });
        for buffer in written {
            let written = buffer.memory::<Shared>()?;
            if self.values.iter().any(|(memory, _)| Arc::ptr_eq(memory, written)) {
                let why = format!(
                    "reads `{}` of {} back before a graph is replayed, and the graph writes it before",
                    self.op.input_names()[self.op.checked()[0]],
                    self.op.name()
                );
                return Err(Unsupported(why).into());
            }
        }
        Ok(())
    }
}
