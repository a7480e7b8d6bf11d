//! The codes of a format.

use plumbline_reference::format::Format;

/// Every code of a format of up to 19 bits.
pub(crate) fn all_codes(format: Format) -> impl Iterator<Item = u64> + Clone {
    assert!(format.code_bits() <= 19, "{format} has too many codes to list");
    (0..1 << format.code_bits()).map(move |index| format.code_at(index))
}
