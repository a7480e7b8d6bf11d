//! Memory for results: not zeroed before it is written, and written past the caches
//! where it is large.
#![allow(unsafe_code)] // Zeroing first would write every result twice.

use super::lanes::{Lanes, Out};
use super::{Kernel, Simd};

/// From this many bytes on a result is written past the caches: it would only push
/// out what is there, and memory would first be read to be overwritten.
pub(super) const PAST_FROM: usize = 8 << 20;

/// Initialised memory as memory to be written.
///
/// # Safety
/// Nothing uninitialised may be written there.
pub(super) unsafe fn as_out(bytes: &mut [u8]) -> &mut Out {
    let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the borrow passes on; by the
    // caller the bytes stay initialised.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

/// A vector of `len` bytes, all of which `fill` writes.
///
/// # Safety
/// `fill` must write every byte.
pub(super) unsafe fn written(len: usize, fill: impl FnOnce(&mut Out)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    fill(&mut bytes.spare_capacity_mut()[..len]);
    // SAFETY: there is capacity for `len` bytes, and the caller vouches for `fill`.
    unsafe { bytes.set_len(len) };
    bytes
}

struct Fence;

impl Kernel for Fence {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        l.fence();
    }
}

/// Makes what went past the caches visible to other threads.
pub(super) fn fence(simd: Simd) {
    simd.run(Fence);
}
