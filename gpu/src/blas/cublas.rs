//! cuBLAS.

use super::product::Product;
use super::{Scalar, WORKSPACE, library_types, pointer, scalar};
use crate::error::{CudaError, Named};
use crate::memory::Memory;
use cudarc::cublas::{result, sys};
use cudarc::driver::{CudaContext, CudaStream};
use plumbline_reference::backend::Unsupported;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

library_types!();

/// A product with its numbers as cuBLAS takes them.
pub(crate) struct Call {
    product: Product,
    extents: [c_int; 3],
    /// Leading dimensions of a, b and d.
    ld: [c_int; 3],
    batch: Option<c_int>,
}

impl Call {
    /// A product that is to be queued.
    pub(super) fn new(product: Product) -> Result<Self, Unsupported> {
        let int = |value: usize| {
            c_int::try_from(value)
                .map_err(|_| Unsupported(format!("cuBLAS takes extents up to {}, not {value}", c_int::MAX)))
        };
        let [m, n, k] = product.extents;
        let [a, b, d] = [&product.a, &product.b, &product.d].map(|operand| operand.stored.ld);
        Ok(Self {
            extents: [int(m)?, int(n)?, int(k)?],
            ld: [int(a)?, int(b)?, int(d)?],
            batch: product.batch.map(int).transpose()?,
            product,
        })
    }

    /// The function that does it.
    pub(super) fn function(&self) -> &'static str {
        if self.batch.is_some() { "cublasGemmStridedBatchedEx" } else { "cublasGemmEx" }
    }

    /// What is known of how it is done: cuBLAS does not tell its algorithm.
    pub(super) fn describe(&self) -> BTreeMap<String, String> {
        let compute = compute_type(self.product.compute);
        let facts = [
            ("library", "cublas".to_owned()),
            ("function", self.function().to_owned()),
            ("compute", format!("{compute:?}")),
            ("math mode", "CUBLAS_DEFAULT_MATH".to_owned()),
            ("workspace offered", WORKSPACE.to_string()),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A handle that works on one stream with one workspace.
pub(super) struct Cublas {
    handle: Mutex<Handle>,
    context: Arc<CudaContext>,
}

struct Handle(sys::cublasHandle_t);

// SAFETY: a handle may be used by any thread, one at a time, and the mutex around it sees to that.
unsafe impl Send for Handle {}

impl Cublas {
    /// A handle in a context that is current. The workspace outlives it.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        stream: &CudaStream,
        workspace: &Memory,
    ) -> Result<Self, CudaError> {
        let handle = result::create_handle().named("cublasCreate")?;
        let cublas = Self { handle: Mutex::new(Handle(handle)), context: context.clone() };
        // SAFETY: handle and stream are valid.
        unsafe { result::set_stream(handle, stream.cu_stream().cast()) }.named("cublasSetStream")?;
        // After the stream, which sets another workspace.
        // SAFETY: the workspace has that many bytes and outlives the handle.
        unsafe { sys::cublasSetWorkspace_v2(handle, pointer(workspace.address), workspace.bytes) }
            .result()
            .named("cublasSetWorkspace")?;
        Ok(cublas)
    }

    /// Queues a product.
    pub(super) fn queue(&self, call: &Call) -> Result<(), CudaError> {
        let (product, [m, n, k], [lda, ldb, ldd]) = (&call.product, call.extents, call.ld);
        let [a, b, d] = [&product.a, &product.b, &product.d];
        let [transa, transb] = [a, b].map(|operand| match operand.stored.transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        });
        let [alpha, beta] = [product.alpha, product.beta].map(|value| scalar(product.compute, value));
        let [alpha, beta] = [&raw const alpha, &raw const beta].map(<*const Scalar>::cast::<c_void>);
        let [a_type, b_type, d_type] = [a, b, d].map(|operand| data_type(operand.format));
        let (compute, algorithm) = (compute_type(product.compute), sys::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT);
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(batch) = call.batch else {
            // SAFETY: the addresses are those of matrices of these extents and leading
            // dimensions; alpha and beta are read before the call returns.
            let status = unsafe {
                result::gemm_ex(
                    handle.0,
                    transa,
                    transb,
                    m,
                    n,
                    k,
                    alpha,
                    pointer(a.address),
                    a_type,
                    lda,
                    pointer(b.address),
                    b_type,
                    ldb,
                    beta,
                    pointer(d.address),
                    d_type,
                    ldd,
                    compute,
                    algorithm,
                )
            };
            return status.named(call.function());
        };
        // SAFETY: the same of each matrix of the batch.
        let status = unsafe {
            result::gemm_strided_batched_ex(
                handle.0,
                transa,
                transb,
                m,
                n,
                k,
                alpha,
                pointer(a.address),
                a_type,
                lda,
                a.stored.stride as i64,
                pointer(b.address),
                b_type,
                ldb,
                b.stored.stride as i64,
                beta,
                pointer(d.address),
                d_type,
                ldd,
                d.stored.stride as i64,
                batch,
                compute,
                algorithm,
            )
        };
        status.named(call.function())
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: created once and destroyed once. There is nobody to tell of an error.
            let _ = unsafe { result::destroy_handle(handle.0) };
        }
    }
}
