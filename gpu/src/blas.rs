//! Matrix products by cuBLAS and cuBLASLt.
//!
//! A [`Product`] is plain data. [`Call::new`] makes it ready, which is where cuBLASLt's heuristic
//! runs, and a [`Lane`] queues it. Nothing here is called before a probe has found the library.
#![allow(unsafe_code)]

mod cublas;
pub(crate) mod layout;
mod lt;
pub(crate) mod product;
pub(crate) mod support;

pub(crate) use lt::Lt;
pub(crate) use product::{Product, Way};

use crate::error::{CudaError, Named};
use crate::memory::Memory;
use cudarc::driver::{CudaContext, CudaStream};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Compute;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// Bytes of each stream's workspace: what NVIDIA recommends for Hopper.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Formats and arithmetic as the enumerators of `sys`: each library has types of its own.
macro_rules! library_types {
    () => {
        /// The type of a format that `support` lets pass.
        fn data_type(format: plumbline_reference::format::Format) -> sys::cudaDataType {
            use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16};
            match format {
                F16 => sys::cudaDataType::CUDA_R_16F,
                BF16 => sys::cudaDataType::CUDA_R_16BF,
                E4M3FN => sys::cudaDataType::CUDA_R_8F_E4M3,
                E5M2 => sys::cudaDataType::CUDA_R_8F_E5M2,
                _ => sys::cudaDataType::CUDA_R_32F,
            }
        }

        /// Plain f32 arithmetic is without TF32 in the default math mode.
        fn compute_type(compute: plumbline_reference::ops::Compute) -> sys::cublasComputeType_t {
            use plumbline_reference::ops::Compute;
            match compute {
                Compute::F32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                Compute::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
                Compute::F16 => sys::cublasComputeType_t::CUBLAS_COMPUTE_16F,
            }
        }
    };
}
use library_types;

/// Alpha or beta as the libraries read it.
#[repr(C, align(4))]
struct Scalar([u8; 4]);

/// An f32, or with sums in f16 one of these in the first two bytes.
fn scalar(compute: Compute, value: f32) -> Scalar {
    match (compute, support::f16(value)) {
        (Compute::F16, Some(code)) => {
            let [low, high] = code.to_ne_bytes();
            Scalar([low, high, 0, 0])
        }
        _ => Scalar(value.to_ne_bytes()),
    }
}

/// Why a product is not made ready.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The library does not do it.
    Unsupported(Unsupported),
    /// A call failed.
    Cuda(CudaError),
}

impl From<Unsupported> for Refusal {
    fn from(why: Unsupported) -> Self {
        Self::Unsupported(why)
    }
}

impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// A product that is ready to be queued.
pub(crate) enum Call {
    Cublas(cublas::Call),
    Lt(lt::Call),
}

impl Call {
    /// Makes a product ready; `lt` gives the handle of cuBLASLt, where it is needed.
    pub(crate) fn new(
        product: Product,
        lt: impl FnOnce() -> Result<Arc<Lt>, CudaError>,
    ) -> Result<Self, Refusal> {
        match product.way {
            Way::Cublas => Ok(Self::Cublas(cublas::Call::new(product)?)),
            Way::CublasLt(algorithm) => Ok(Self::Lt(lt::Call::new(lt()?, product, algorithm)?)),
        }
    }

    /// The library's function.
    pub(crate) fn function(&self) -> &'static str {
        match self {
            Self::Cublas(call) => call.function(),
            Self::Lt(_) => lt::FUNCTION,
        }
    }

    /// How it will be done.
    pub(crate) fn describe(&self) -> Result<BTreeMap<String, String>, CudaError> {
        match self {
            Self::Cublas(call) => Ok(call.describe()),
            Self::Lt(call) => call.describe(),
        }
    }
}

/// What a cell holds, made if it is empty; what fails is tried again by the next who asks.
pub(crate) fn once<T>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<T, CudaError>,
) -> Result<&T, CudaError> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// A stream with what the libraries need on it, made when first needed.
pub(crate) struct Lane {
    // Dropped in this order: the handle uses the workspace, and both the stream.
    cublas: OnceLock<cublas::Cublas>,
    workspace: OnceLock<Memory>,
    pub(crate) stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

impl Lane {
    /// A new stream.
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        let stream = context.new_stream().named("cuStreamCreate")?;
        Ok(Self { cublas: OnceLock::new(), workspace: OnceLock::new(), stream, context: context.clone() })
    }

    fn workspace(&self) -> Result<&Memory, CudaError> {
        once(&self.workspace, || Memory::new(&self.context, WORKSPACE))
    }

    fn cublas(&self) -> Result<&cublas::Cublas, CudaError> {
        let workspace = self.workspace()?;
        once(&self.cublas, || cublas::Cublas::new(&self.context, &self.stream, workspace))
    }

    /// Makes what a call needs, which cannot be made while the stream is captured.
    pub(crate) fn prepare(&self, call: &Call) -> Result<(), CudaError> {
        match call {
            Call::Cublas(_) => self.cublas().map(drop),
            Call::Lt(_) => self.workspace().map(drop),
        }
    }

    /// Queues a call.
    pub(crate) fn queue(&self, call: &Call) -> Result<(), CudaError> {
        match call {
            Call::Cublas(call) => self.cublas()?.queue(call),
            Call::Lt(call) => call.queue(&self.stream, self.workspace()?),
        }
    }
}

/// An address as the libraries take it.
fn pointer(address: u64) -> *mut c_void {
    address as *mut c_void
}
