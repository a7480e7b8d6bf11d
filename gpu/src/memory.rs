//! Memory of a device, and of the host where a device reads it.
#![allow(unsafe_code)]

use crate::error::{CudaError, Named};
use cudarc::driver::{CudaContext, result};
use std::ffi::c_void;
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

/// Bytes of the host that a device reads when it comes to it: page-locked, so that they are not
/// copied anywhere before.
pub(crate) struct Pinned {
    /// Null where there are no bytes.
    first: *mut c_void,
    bytes: usize,
    context: Arc<CudaContext>,
}

impl Pinned {
    /// A copy of the bytes, in a context that is current.
    pub(crate) fn new(context: &Arc<CudaContext>, bytes: &[u8]) -> Result<Self, CudaError> {
        let (mut first, context) = (std::ptr::null_mut(), context.clone());
        if !bytes.is_empty() {
            // SAFETY: freed by `Pinned` alone, and written whole before it is read.
            first = unsafe { result::malloc_host(bytes.len(), 0) }.named("cuMemHostAlloc")?;
            // SAFETY: the allocation has that many bytes and is new, so it overlaps no others.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), first.cast(), bytes.len()) };
        }
        Ok(Self { first, bytes: bytes.len(), context })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.first.is_null() {
            return &[];
        }
        // SAFETY: the allocation has that many bytes, all written, and nothing changes them.
        unsafe { std::slice::from_raw_parts(self.first.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.first.is_null() && self.context.bind_to_thread().is_ok() {
            // A copy from it may still be queued.
            self.context.record_err(self.context.synchronize());
            // SAFETY: allocated with `malloc_host` and freed once.
            self.context.record_err(unsafe { result::free_host(self.first) });
        }
    }
}
