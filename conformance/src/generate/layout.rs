//! How a list fills lanes and a shape.

use super::{GenerateError, Request};
use plumbline_reference::{Path, Tensor, TensorType};

/// Most codes that one `all_codes` input holds.
const MAX_CODES: u128 = 1 << 28;

/// A list of codes.
pub(super) fn list(request: &Request<'_>, codes: &[u64]) -> Result<Tensor, GenerateError> {
    repeat(request, codes.len(), |i| codes[i])
}

/// Part `part` of `parts` equal slices of all codes, in ascending order.
pub(super) fn all_codes(request: &Request<'_>, part: u64, parts: u64) -> Result<Tensor, GenerateError> {
    let mask = request.dtype.code_mask();
    let count = 1u128 << mask.count_ones();
    if parts == 0 || part >= parts {
        return Err(request
            .mismatch(format!("has `part: {part}` of `parts: {parts}`; parts count from 0 to parts - 1")));
    }
    if u128::from(parts) > count {
        return Err(request.mismatch(format!(
            "has `parts: {parts}`, more than the {count} codes of {}; use fewer parts",
            request.dtype
        )));
    }
    let start = |part: u64| count * u128::from(part) / u128::from(parts);
    let (first, codes) = (start(part), start(part + 1) - start(part));
    if codes > MAX_CODES {
        return Err(request.mismatch(format!(
            "would hold {codes} codes of {}, more than {MAX_CODES}; use `parts: {}` or more",
            request.dtype,
            count.div_ceil(MAX_CODES)
        )));
    }
    // Both fit: `first` is below 2^64 and `codes` at most 2^28.
    let (first, codes, padding) = (first as u64, codes as usize, mask.trailing_zeros());
    repeat(request, codes, |i| (first + i as u64) << padding)
}

/// A list of `len` codes as a tensor: once, or with lanes as often as there are lanes,
/// or over and over until the shape is full.
///
/// With lanes, a list of even length gets its first value once more. Its length is then
/// coprime to the power-of-two number of lanes, so that over that many repetitions each
/// value comes to stand at every position modulo the lanes.
fn repeat(
    request: &Request<'_>,
    len: usize,
    code: impl Fn(usize) -> u64 + Sync,
) -> Result<Tensor, GenerateError> {
    let lanes = request.lanes;
    if !lanes.is_power_of_two() {
        return Err(request.mismatch(format!("has `lanes: {lanes}`; lanes must be a power of two")));
    }
    let period = if lanes > 1 { len | 1 } else { len };
    let needed =
        period.checked_mul(lanes).filter(|needed| *needed <= MAX_CODES as usize).ok_or_else(|| {
            request.mismatch(format!("has {len} values, too many for `lanes: {lanes}`; use fewer lanes"))
        })?;
    let ty = TensorType::new(request.dtype, request.shape.map_or_else(|| vec![needed], <[usize]>::to_vec));
    let elements = ty.elements()?;
    if elements < needed {
        return Err(request.mismatch(format!(
            "has {needed} values, but shape {:?} holds {elements}; leave out `shape` or enlarge it",
            ty.shape
        )));
    }
    Ok(Tensor::from_fn(ty, Path::Parallel, |i| code(i % period % len))?)
}
