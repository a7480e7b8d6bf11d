//! Memory of a device.
#![allow(unsafe_code)]

use crate::error::{CudaError, Named};
use cudarc::driver::{CudaContext, result};
use std::sync::Arc;

/// An allocation of exactly the bytes asked for.
pub(crate) struct Memory {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    context: Arc<CudaContext>,
}

impl Memory {
    /// That many bytes in a context that is current.
    pub(crate) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, CudaError> {
        let context = context.clone();
        if bytes == 0 {
            return Ok(Self { address: 0, bytes, context });
        }
        // SAFETY: freed by `Memory` alone.
        let address = unsafe { result::malloc_sync(bytes) }.named(format!("cuMemAlloc of {bytes} bytes"))?;
        Ok(Self { address, bytes, context })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes > 0 && self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated with `malloc_sync` and freed once; freeing waits for work on it.
            self.context.record_err(unsafe { result::free_sync(self.address) });
        }
    }
}
