//! Errors of CUDA calls.

use crate::device::Fault;
use cudarc::cublas::result as cublas;
use cudarc::cublaslt::result as cublaslt;
use cudarc::driver::result::DriverError;
use cudarc::nvrtc::result::NvrtcError;
use plumbline_reference::BackendError;

/// Why something on the device failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library that is needed is missing.
    #[error("{0}; {remedy}", remedy = .0.remedy())]
    Missing(Fault),
    /// A call of the driver or of a library returned an error.
    #[error("{call} gave {name} ({code})")]
    Call {
        /// The call: `cuLaunchKernel of cast`.
        call: String,
        /// The code's name: `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The code.
        code: u32,
    },
    /// A kernel does not compile.
    #[error("{unit} does not compile for {arch}: {log}")]
    Compile {
        /// What was compiled: `cast.cu with FROM=F32, TO=E4M3FN`.
        unit: String,
        /// The architecture.
        arch: String,
        /// The compiler's words.
        log: String,
    },
    /// Arguments other than the kernel's parameters.
    #[error("{entry} takes parameters of {expected:?} bytes, given are {given:?}")]
    Arguments {
        /// The kernel.
        entry: String,
        /// Bytes of each parameter.
        expected: Vec<usize>,
        /// Bytes of each argument.
        given: Vec<usize>,
    },
    /// A launch of more blocks than a grid has.
    #[error("{entry}: {blocks} blocks, a grid has at most {}", i32::MAX)]
    Grid {
        /// The kernel.
        entry: String,
        /// The blocks.
        blocks: u64,
    },
}

impl CudaError {
    pub(crate) fn driver(call: impl Into<String>, error: DriverError) -> Self {
        let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
        let code = error.0 as u32;
        Self::Call { call: call.into(), name: name.unwrap_or_else(|_| "an unknown error".to_owned()), code }
    }

    pub(crate) fn nvrtc(call: &str, error: NvrtcError) -> Self {
        Self::Call { call: call.to_owned(), name: format!("{:?}", error.0), code: error.0 as u32 }
    }

    /// As an error of a backend: one after which the device still works.
    pub(crate) fn failed(self) -> BackendError {
        let (call, why) = self.call_and_why();
        BackendError::Failed { call, why }
    }

    /// As an error of a backend: one after which the process can use the device no more.
    pub(crate) fn lost(self) -> BackendError {
        let (call, why) = self.call_and_why();
        BackendError::Lost { call, why }
    }

    /// The same of a call that follows a kernel, whose error it may be.
    pub(crate) fn after(self, kernel: &str) -> Self {
        match self {
            Self::Call { call, name, code } if !kernel.is_empty() => {
                Self::Call { call: format!("{call} after {kernel}"), name, code }
            }
            other => other,
        }
    }

    fn call_and_why(self) -> (String, String) {
        match self {
            Self::Call { call, name, code } => (call, format!("{name} ({code})")),
            other => ("CUDA".to_owned(), other.to_string()),
        }
    }
}

/// Names the call of a driver's result.
pub(crate) trait Named<T> {
    fn named(self, call: impl Into<String>) -> Result<T, CudaError>;
}

impl<T> Named<T> for Result<T, DriverError> {
    fn named(self, call: impl Into<String>) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::driver(call, error))
    }
}

impl<T> Named<T> for Result<T, cublas::CublasError> {
    fn named(self, call: impl Into<String>) -> Result<T, CudaError> {
        self.map_err(|cublas::CublasError(status)| CudaError::Call {
            call: call.into(),
            name: format!("{status:?}"),
            code: status as u32,
        })
    }
}

impl<T> Named<T> for Result<T, cublaslt::CublasError> {
    fn named(self, call: impl Into<String>) -> Result<T, CudaError> {
        self.map_err(|cublaslt::CublasError(status)| CudaError::Call {
            call: call.into(),
            name: format!("{status:?}"),
            code: status as u32,
        })
    }
}
