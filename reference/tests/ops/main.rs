//! The operations: what they compute, what they refuse, and that neither threads
//! nor memory layout change a bit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod absmax;
mod composed;
mod device_scaled_cast;
mod elementwise;
mod layouts;
mod mx;
mod mx_properties;
#[path = "../common/noise.rs"]
mod noise;
mod paths;
mod products;
mod public_reports;
mod sampled;
mod scaled;
mod shapes;
mod signatures;
mod support;
