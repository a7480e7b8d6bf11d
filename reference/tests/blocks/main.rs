//! GGML blocks: against what ggml wrote and read, and against formulas written out by hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod dequantize;
mod gemv;
mod int8;
#[path = "../common/noise.rs"]
mod noise;
mod quantize;
mod recorded;
