//! A digest of results, quick enough not to be what a sweep waits for. It tells
//! results apart; it does not resist anyone who means to collide it.

use crate::seed::mix;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Sums that do not wait for one another.
const LANES: usize = 4;

/// The digest of a chunk.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut sums = [MULTIPLIER; LANES];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks().0) {
            *sum = (*sum ^ u64::from_le_bytes(*word)).wrapping_mul(MULTIPLIER).rotate_left(31);
        }
    }
    finished(bytes.len() as u64, rest, sums)
}

/// The digest of a chunk of `len` bytes from its lanes' sums and the bytes that fill no block.
pub(super) fn finished(len: u64, rest: &[u8], sums: [u64; LANES]) -> u64 {
    let rest = rest.iter().fold(len, |sum, &byte| mix(sum, byte.into()));
    sums.into_iter().fold(rest, followed_by)
}

/// The digest of a chunk and the one after it.
pub(crate) const fn followed_by(digest: u64, next: u64) -> u64 {
    mix(digest, next)
}
