//! Steps that can be queued.
#![allow(unsafe_code)]

use crate::blas::{self, Lane};
use crate::error::{CudaError, Named};
use crate::memory::Pinned;
use crate::plan::Call;
use cudarc::driver::{CudaFunction, result, sys};
use std::ffi::c_void;

/// Bytes of each parameter of a kernel.
pub(super) fn parameters(function: &CudaFunction) -> Result<Vec<usize>, CudaError> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded; the call writes two sizes.
        let status = unsafe {
            sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), &raw mut offset, &raw mut size)
        };
        match status {
            // There is no parameter of that index.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            status => status.result().named("cuFuncGetParamInfo")?,
        }
        sizes.push(size);
    }
}

/// A step whose kernel is loaded and whose arguments fit, or whose algorithm is chosen.
pub(super) enum Ready {
    Kernel { function: CudaFunction, call: Call, blocks: u32 },
    Product(Box<blas::Call>),
    Fill { address: u64, bytes: usize, value: u8 },
    Copy { from: u64, to: u64, bytes: usize },
    Upload { from: Pinned, to: u64 },
}

impl Ready {
    /// Makes what it needs on a stream before that is captured.
    pub(super) fn prepare(&self, lane: &Lane) -> Result<(), CudaError> {
        match self {
            Self::Product(call) => lane.prepare(call),
            Self::Kernel { .. } | Self::Fill { .. } | Self::Copy { .. } | Self::Upload { .. } => Ok(()),
        }
    }

    pub(super) fn queue(&self, lane: &Lane) -> Result<(), CudaError> {
        let stream = &lane.stream;
        match self {
            Self::Product(call) => lane.queue(call),
            Self::Fill { address, bytes, value } => {
                // SAFETY: the bytes are those of an output's elements, or of scratch memory.
                unsafe { result::memset_d8_async(*address, *value, *bytes, stream.cu_stream()) }
                    .named("cuMemsetD8Async")
            }
            Self::Copy { from, to, bytes } => {
                // SAFETY: both are within allocations of this crate's own.
                unsafe { result::memcpy_dtod_async(*to, *from, *bytes, stream.cu_stream()) }
                    .named("cuMemcpyDtoDAsync")
            }
            Self::Upload { from, to } => {
                if from.bytes().is_empty() {
                    return Ok(());
                }
                // SAFETY: the target is an allocation of that many bytes, and the source is kept
                // until all work has ended.
                unsafe { result::memcpy_htod_async(*to, from.bytes(), stream.cu_stream()) }
                    .named("cuMemcpyHtoDAsync")
            }
            Self::Kernel { function, call, blocks } => {
                let mut pointers: Vec<*mut c_void> =
                    call.arguments.iter().map(|it| it.bytes.as_ptr().cast_mut().cast()).collect();
                // SAFETY: the arguments have the sizes of the kernel's parameters, and the
                // driver copies them before it returns. What a kernel does with them is what
                // the memory contract is there to judge.
                unsafe {
                    result::launch_kernel(
                        function.cu_function(),
                        (*blocks, 1, 1),
                        (call.threads, 1, 1),
                        call.shared,
                        stream.cu_stream(),
                        &mut pointers,
                    )
                }
                .named(format!("cuLaunchKernel of {}", call.entry))
            }
        }
    }
}
