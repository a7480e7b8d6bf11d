//! Plumbline on CUDA.
//!
//! Every CUDA library is loaded at run time, so this crate builds, links and
//! runs where CUDA is not installed. [`device::probe`] says what is there, and
//! what to install where something is not:
//!
//! ```
//! println!("{}", plumbline_gpu::device::probe());
//! ```

pub mod device;
