//! Three values: TQ1_0 and TQ2_0, `d * (q - 1)`.

use super::k::two_bits;
use super::{Block, Unpacked};

/// Digit n, from the most significant, of a byte that holds five ternary digits as a fraction:
/// the byte is `ceil(256 * t / 243)` for the digits' number t.
fn digit(byte: u8, n: u32) -> i16 {
    let fraction = byte.wrapping_mul(3u8.pow(n));
    ((u16::from(fraction) * 3) >> 8) as i16
}

/// Bytes 0 to 31 of `qs` hold values 0 to 159, digit n of byte i value 32 n + i; bytes 32 to 47
/// hold 160 to 239, value 16 n + i of them; four digits of each of the four bytes of `qh` the
/// last 16, value 4 n + i of them.
pub(super) fn tq1_0(block: Block<'_>) -> Unpacked {
    let (qs, qh) = (block.bytes("qs"), block.bytes("qh"));
    let parts = [(&qs[..32], 5), (&qs[32..], 5), (qh, 4)];
    let digits = parts.into_iter().flat_map(|(bytes, digits)| {
        (0..digits).flat_map(move |n| bytes.iter().map(move |&byte| digit(byte, n)))
    });
    Unpacked::plain(block.f16("d"), digits.map(|q| q - 1))
}

/// Two bits each: 32 bytes hold 128 values, each byte one of every 32.
pub(super) fn tq2_0(block: Block<'_>) -> Unpacked {
    let qs = block.bytes("qs");
    Unpacked::plain(block.f16("d"), (0..256).map(|v| two_bits(qs, v) - 1))
}
