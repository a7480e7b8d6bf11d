//! Blocks: formats whose elements share a scale.

pub mod mx;
