//! Recordings: what a device's conversion instructions give for every input, so that a
//! machine without the device judges by it.
//!
//! Results of at most 8 bits, and results of sources of at most 8 bits, are recorded as a
//! [`Staircase`]; wider ones by the digest of all of them in order, which [`sweep`](crate::sweep)
//! computes too.

mod file;
pub mod magnitudes;
mod record;

pub use file::RecordingError;
pub(crate) use file::RecordingFile;
pub use record::{RecordError, record};

use crate::sweep::Staircase;
use plumbline_reference::backend::Device;
use plumbline_reference::ops::Cast;

/// A recording of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The day, in UTC: `2026-01-31`.
    pub date: String,
    /// The command that records it again.
    pub command: String,
    /// The version of Plumbline that wrote it.
    pub version: String,
    /// The device, with versions of its driver and libraries.
    pub device: Device,
    /// What was recorded, each cast once.
    pub conversions: Vec<Conversion>,
}

/// What one instruction gives for every input.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// The conversion.
    pub cast: Cast,
    /// The instruction's opcode: `cvt.rn.satfinite.e4m3x2.f32`.
    pub instruction: String,
    /// The digest of all results in order.
    pub digest: u64,
    /// The results, where they are recorded.
    pub staircase: Option<Staircase>,
}

impl Conversion {
    /// Whether the results of a cast are recorded beside their digest: with more bits on both
    /// sides there are too many steps.
    #[must_use]
    pub fn has_staircase(cast: &Cast) -> bool {
        cast.from.code_bits().min(cast.to.code_bits()) <= 8
    }
}

#[cfg(test)]
mod tests;
