//! Backends that are not Plumbline's own kernels.
//!
//! | adapter | stands for |
//! |---|---|
//! | [`Float8`], [`Half`] | the crates float8 and half, as second opinions with their faults |
//! | [`Playback`] | a GPU's conversion instructions, played back from recordings |
//! | [`Reordered`] | implementations that add up products in orders of their own, for the bounds |
//! | [`Closure`] | any function on tensors, for one operation |
//! | [`Engine`] | an inference engine's runtime: caches, arena, streams, graphs |
//! | [`demo_fault()`] | backends with one deliberate fault each, to show what a failure looks like |
//!
//! Each says precisely which operations and policies it implements, and why not the
//! others; none repairs what the implementation behind it gets wrong.

mod closure;
mod demo;
mod engine;
mod float8;
mod half;
mod playback;
mod reordered;
mod scalar;
#[cfg(test)]
mod testing;

pub use closure::Closure;
pub use demo::{DemoFault, cast_465_to_nan, demo_fault};
pub use engine::{Engine, EngineFault};
pub use float8::Float8;
pub use half::Half;
pub use playback::{Playback, PlaybackError, Recorded};
pub use reordered::Reordered;
