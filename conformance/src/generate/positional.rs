//! Classes whose element `i` is a function of the seed and `i` alone.

use super::lines::stride;
use super::{GenerateError, Request};
use crate::seed::mix;
use plumbline_reference::format::{BF16, E4M3FN, F16, F32, Format, Policy, Value};
use plumbline_reference::{DType, Path, Tensor, TensorType};

/// Uniformly random bit patterns.
pub(super) fn random_bits(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let shape = shape_or_first_input(request)?;
    let (seed, mask) = (request.seed, request.dtype.code_mask());
    fill(request, shape, |i| mix(seed, i) & mask)
}

/// 0, all ones and random words in turn.
pub(super) fn rounding_words(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    if request.dtype != DType::U32 {
        return Err(request.mismatch(format!("makes u32, not {}; use `dtype: u32`", request.dtype)));
    }
    let shape = shape_or_first_input(request)?;
    let seed = request.seed;
    fill(request, shape, |i| match i % 3 {
        0 => 0,
        1 => u32::MAX.into(),
        _ => mix(seed, i) & u64::from(u32::MAX),
    })
}

/// Random finite values of moderate size.
pub(super) fn random_finite(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let format = request.source()?;
    let seed = request.seed;
    fill(request, shape(request)?, |i| moderate(format, mix(seed, i)))
}

/// [`random_finite`] with one pattern at one index.
pub(super) fn needle(request: &Request<'_>, bits: &str, at: usize) -> Result<Tensor, GenerateError> {
    let format = request.source()?;
    let (shape, seed) = (shape(request)?, request.seed);
    let elements = TensorType::new(request.dtype, shape).elements()?;
    if at >= elements {
        return Err(request.mismatch(format!(
            "has `at: {at}`, but shape {shape:?} holds {elements} elements; count from 0"
        )));
    }
    let needle =
        request.dtype.parse_hex(bits).map_err(|why| request.mismatch(format!("has `bits`: {why}")))?;
    fill(request, shape, |i| if i == at as u64 { needle } else { moderate(format, mix(seed, i)) })
}

/// A number from -1 to 1.
fn unit(seed: u64, i: u64) -> f64 {
    (mix(seed, i) >> 10) as f64 / (1u64 << 53) as f64 - 1.0
}

/// See [`crate::case::Class::Uniform`].
pub(super) fn uniform(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let format = request.source()?;
    let seed = request.seed;
    fill(request, shape(request)?, |i| format.encode(unit(seed, i).into(), &Policy::IEEE, 0))
}

/// See [`crate::case::Class::Cache`].
pub(super) fn cache(request: &Request<'_>, used: usize) -> Result<Tensor, GenerateError> {
    let format = request.source()?;
    let (shape, seed) = (shape(request)?, request.seed);
    let [_, slots, d] = shape[..] else {
        return Err(request.mismatch(format!("is for [kv_heads, slots, d], not {shape:?}")));
    };
    let nan = format.encode(Value::Nan { negative: false }, &Policy::IEEE, 0);
    fill(request, shape, |i| {
        let slot = i / d as u64 % slots as u64;
        match mix(seed, i) {
            _ if slot < used as u64 => format.encode(unit(seed, i).into(), &Policy::IEEE, 0),
            bits if bits % 2 == 0 => bits >> 8 & request.dtype.code_mask(),
            _ => nan,
        }
    })
}

/// See [`crate::case::Class::Logits`].
pub(super) fn logits(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let format = request.source()?;
    let (shape, seed) = (shape(request)?, request.seed);
    let n = shape.last().copied().unwrap_or(1).max(1) as u64;
    let infinity = f64::INFINITY;
    let logit = |i: u64| {
        let (row, column) = (i / n, i % n);
        let unit = (mix(seed, i) >> 11) as f64 / (1u64 << 53) as f64;
        let moderate = 16.0 * unit - 8.0;
        // A place of the row's own.
        let place = mix(seed ^ 1, row) % n;
        match row % 8 {
            1 => -60.0 - 20.0 * unit,
            2 => moderate - 1e7,
            3 if column < (n / 2).min(64) => -infinity,
            4 => -infinity,
            5 if column % 3 == 0 => -infinity,
            6 if column == place => 60.0,
            7 if column == place && row % 16 == 7 => f64::NAN,
            7 if column == place => infinity,
            _ => moderate,
        }
    };
    fill(request, shape, |i| format.encode(Value::from(logit(i)), &Policy::IEEE, 0))
}

/// Codes by the formula of the hardware recordings: exponents -4 to 3, any fraction.
pub(super) fn splitmix_codes(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let Some(format) = request.dtype.format().filter(|format| [F16, BF16, E4M3FN, F32].contains(format))
    else {
        return Err(request.mismatch(format!("is for f16, bf16, e4m3fn and f32, not {}", request.dtype)));
    };
    let seed = request.seed;
    fill(request, shape(request)?, |i| {
        let r = mix(seed, i);
        let exponent = u64::from(format.bias.unsigned_abs()) - 4 + (r >> 20 & 7);
        let fraction = r >> 30 & ((1 << format.fraction_bits) - 1);
        r >> 63 << (format.exponent_bits + format.fraction_bits) | exponent << format.fraction_bits | fraction
    })
}

/// Numbers within 1 of a common one.
pub(super) fn offset(request: &Request<'_>, by: i64) -> Result<Tensor, GenerateError> {
    let (format, seed) = (request.source()?, request.seed);
    if by.unsigned_abs() > LARGEST_OFFSET {
        return Err(request.mismatch(format!("has `by: {by}`; give one of at most {LARGEST_OFFSET}")));
    }
    fill(request, shape(request)?, |i| {
        let spread = (mix(seed, i) >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        format.encode(Value::from(by as f64 + spread), &Policy::default(), 0)
    })
}

/// Beyond, f32 has no numbers between.
const LARGEST_OFFSET: u64 = 1 << 24;

/// Different positions below a limit.
pub(super) fn positions(request: &Request<'_>, below: u32) -> Result<Tensor, GenerateError> {
    if request.dtype != DType::U32 {
        return Err(request.mismatch(format!("makes u32, not {}; use `dtype: u32`", request.dtype)));
    }
    let shape = shape(request)?;
    let (count, below) = (TensorType::new(request.dtype, shape).elements()? as u64, u64::from(below));
    if count > below {
        return Err(request.mismatch(format!("has `below: {below}`, and shape {shape:?} wants {count}")));
    }
    let (first, stride) = (request.seed % below.max(1), stride(below));
    fill(request, shape, |i| (first + i * stride) % below)
}

/// How far the exponent of [`moderate`] is from that of 1.
const MODERATE: i32 = 8;

/// A finite code from random bits, its exponent within [`MODERATE`] of that of 1 as
/// far as the format goes.
pub(super) fn moderate(format: Format, random: u64) -> u64 {
    let max = format.max_finite() >> format.low_padding;
    let lowest = (format.bias - MODERATE).max(0) as u64;
    let highest = ((format.bias + MODERATE) as u64).min(max >> format.fraction_bits);
    let fraction = random & ((1 << format.fraction_bits) - 1);
    let field = lowest + (random >> 53) % (highest - lowest + 1);
    let magnitude = (field << format.fraction_bits | fraction).min(max);
    // -0 is NaN in some formats.
    let negative = random >> 52 & 1 == 1 && magnitude > 0;
    format.code_at(magnitude) | if negative { format.sign_bit() } else { 0 }
}

pub(super) fn shape<'a>(request: &Request<'a>) -> Result<&'a [usize], GenerateError> {
    request.shape.ok_or_else(|| request.mismatch("does not set its own length; give the input a `shape`"))
}

fn shape_or_first_input<'a>(request: &Request<'a>) -> Result<&'a [usize], GenerateError> {
    let first = request.others.first().and_then(Option::as_ref).map(Tensor::shape);
    request.shape.or(first).ok_or_else(|| {
        request.mismatch("takes the shape of the first input, which is not known here; give a `shape`")
    })
}

/// A tensor of that shape whose element `i` is `code(i)`.
pub(super) fn fill(
    request: &Request<'_>,
    shape: &[usize],
    code: impl Fn(u64) -> u64 + Sync,
) -> Result<Tensor, GenerateError> {
    if request.lanes != 1 {
        return Err(request.mismatch(format!(
            "fills a shape and has no list to repeat in `lanes: {}`; leave out `lanes`",
            request.lanes
        )));
    }
    Ok(Tensor::from_fn(TensorType::new(request.dtype, shape), Path::Parallel, |i| code(i as u64))?)
}
