//! Plumbline on CUDA.
//!
//! Every CUDA library is loaded at run time, so this crate builds, links and
//! runs where CUDA is not installed. [`device::probe`] says what is there, and
//! what to install where something is not:
//!
//! ```
//! println!("{}", plumbline_gpu::device::probe());
//! ```
//!
//! [`Cuda`] is the backend. An operation only *plans*: it says which kernels and library
//! calls run on which addresses. Loading, launching, recording as a graph and what to do about errors are
//! written once, against plans.

mod bandwidth;
mod blas;
mod cuda;
mod defect;
pub mod device;
mod error;
mod memory;
pub mod module;
mod ops;
mod plan;

mod sweep;

pub use bandwidth::Bandwidth;
pub use cuda::Cuda;
pub use defect::Defect;
pub use error::CudaError;
pub use sweep::SweepOnDevice;

/// Every unit of this crate.
#[must_use]
pub fn units() -> Vec<module::Unit> {
    [ops::units(), sweep::units(), vec![defect::unit()]].concat()
}
