//! Memory in which a launch keeps values between its steps.
//!
//! A launch owns its memory until its work has ended, and a graph as long as it lives: memory that
//! grew for a later launch, under the address that a graph has recorded, would be another's. What
//! launches have finished with is used again, or freed before more is allocated.

use crate::error::{CudaError, Named};
use crate::memory::Memory;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What memory holds at first: NaN in every format.
pub(super) const POISON: u8 = 0xff;

/// Memory of launches whose work may not have ended.
#[derive(Default)]
pub(super) struct Scratch(Mutex<Vec<Used>>);

struct Used {
    memory: Memory,
    /// The end of the work that uses it.
    end: CudaEvent,
}

impl Scratch {
    fn used(&self) -> MutexGuard<'_, Vec<Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of at least that many bytes that no work uses; `None` for none.
    pub(super) fn take(&self, context: &Arc<CudaContext>, bytes: usize) -> Result<Option<Memory>, CudaError> {
        if bytes == 0 {
            return Ok(None);
        }
        let mut used = self.used();
        let fits = |used: &Used| used.memory.bytes >= bytes && used.end.is_complete();
        if let Some(position) = used.iter().position(fits) {
            return Ok(Some(used.swap_remove(position).memory));
        }
        used.retain(|used| !used.end.is_complete());
        if let Ok(memory) = Memory::new(context, bytes) {
            return Ok(Some(memory));
        }
        // There may be enough once the work before has ended.
        context.synchronize().named("cuCtxSynchronize")?;
        used.clear();
        Memory::new(context, bytes).map(Some)
    }

    /// Takes back memory whose work has been queued.
    pub(super) fn give_back(&self, memory: Memory, stream: &CudaStream) -> Result<(), CudaError> {
        let end = stream.record_event(None).named("cuEventRecord")?;
        self.used().push(Used { memory, end });
        Ok(())
    }
}
