//! The bit-exact CPU reference of Plumbline.
//!
//! - [`format`](mod@format): number formats as data, with one encoder and one decoder.
//! - [`block`]: GGML's block formats as data.
//! - [`ops`]: what each operation means; an [`Op`](ops::Op) is a value that says
//!   what to compute.
//! - [`block`]: formats whose elements share a scale.
//! - [`accumulate`]: orders in which dot products are summed, tensor cores among them.
//! - [`Exact`]: sums and products without any rounding.
//! - [`fast`]: the same conversions and products on SIMD registers.
//! - [`program`]: operations that are made of others.
//! - [`Tensor`]: element type, shape, strides, bytes.
//! - [`Backend`]: the trait that every implementation under test stands behind;
//!   [`Cpu`] is the reference itself.
//!
//! Arithmetic is that of IEEE 754 binary32 without contraction or flush to zero;
//! a NaN that arithmetic makes becomes the canonical NaN of the output's format.

pub mod accumulate;
pub mod backend;
pub mod block;
mod cpu;
mod dtype;
mod exact;
pub mod fast;
pub mod format;
pub mod interval;
pub mod math;
pub mod ops;
pub mod program;
mod tensor;

pub use backend::{Backend, BackendError};
pub use cpu::Cpu;
pub use dtype::DType;
pub use exact::Exact;
pub use tensor::{MAX_BYTES, Path, Tensor, TensorError, TensorType, position};
