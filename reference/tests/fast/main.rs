//! Fast paths give the bits of the definition: every instruction set of this
//! processor in turn, every pair of formats, every policy.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod casts;
mod decodes;
mod exhaustive;
mod inputs;
mod memory;
#[path = "../common/noise.rs"]
mod noise;
mod products;
mod scaled;
mod support;
