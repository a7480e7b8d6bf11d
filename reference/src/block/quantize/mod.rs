//! Numbers to GGML blocks, as ggml's quantizers make them.
//!
//! A quantizer is a sequence of f32 operations in a fixed order, each rounded to nearest even, none
//! contracted to a fused one; the sections below state those of each family. Sums run over values in
//! ascending order. No importance matrix is known: weights, where a search has them, are made of the
//! values themselves.
//!
//! What is the same for all:
//!
//! - `nearest(x)` is the integer nearest to x, ties to even; beyond 2^22 - 1 in magnitude it stays
//!   there, and NaN is 0. Integers are clamped to what their field holds, never wrapped.
//! - A factor is computed in f32 and rounded to its field, f16 but for Q8_K, to nearest even. One
//!   beyond f16 is an infinity, so that values beyond about 65504 times the largest integer make
//!   infinities and NaN; one of at most 2^-25 is a zero, and so are its products then.
//! - A block of zeros has factors of 0, with the sign that the formula gives them: no quotient is
//!   taken of what is 0. Only MXFP4 has no such factor; its zeros have the least, 2^-128.
//! - A block in which a value is NaN or infinite has NaN in all its factors and 0 elsewhere, so that
//!   all of its values are NaN and no fault is lost. MXFP4 has no NaN: there a NaN counts as 0 and
//!   an infinity as the largest f32 of its sign.
//! - Where sums of a search leave the range of f32, what IEEE 754 gives is kept: such values are
//!   beyond f16, or lost in it, anyway.
//!
//! Sources: ggml's `quantize_row_*_ref`, but for IQ4_NL, which is `quantize_iq4_nl`: it tries 16
//! inverse scales where `quantize_row_iq4_nl_ref` tries one. Checked, bit for bit, against blocks that
//! ggml wrote, except Q8_1 and Q8_K: of these there is no recording, and tests have blocks that were
//! computed by hand.
//!
//! # Q4_0, Q4_1, Q5_0, Q5_1
//!
//! - Q4_0, Q5_0: with n = 8 or 16 and `max` the first value of the largest magnitude, `d = max / -n`,
//!   so that `max` itself becomes code 0; `id = 1 / d` (0 for 0), and the code is
//!   `trunc(x * id + (n + 0.5))`, from 0 to 2 n - 1.
//! - Q4_1, Q5_1: with n = 15 or 31, `d = (max - min) / n`, `id = 1 / d` (0 for 0), and the code is
//!   `trunc((x - min) * id + 0.5)`, from 0 to n. `m` is `min`, which of two zeros is the first.
//!
//! `id` is of the f32 `d`, not of the f16 that is stored. Where it is infinite `0 * id` is NaN, whose
//! code is 0.
//!
//! # Q8_0, Q8_1, Q8_K
//!
//! `amax` is the largest magnitude, `round` the operation's rounding to an integer; the result is
//! clamped to -127 to 127, and NaN, which only `0 * Inf` makes, is 0.
//!
//! - Q8_0: `d = amax / 127`, `id = 1 / d` (0 for 0), `q = round(x * id)`; `d` is stored as f16 and
//!   `id` is of the f32.
//! - Q8_1: the same, and `s = d * sum(q)`, the product of the f32 `d` and the integer rounded to
//!   f32, then to f16.
//! - Q8_K: `max` is the first value of the largest magnitude, `iscale = -127 / max`,
//!   `q = round(iscale * x)`, so that `max` itself becomes -127; `d = 1 / iscale`, in f32; `bsums`
//!   are the sums of 16 `q` each. If all values are 0, so is everything.
//!
//! An `amax` near 0 has no finite inverse, and all values are zeros:
//!
//! | `amax` | Q8_0, Q8_1 | Q8_K |
//! |---|---|---|
//! | to 63 * 2^-149 | `d` is 0 in f32, so `id` is too, and each q | as below |
//! | to about 3.7e-37 | `id` is infinite, q is -127, 0 or 127 by its sign; `d` and `s` are 0 in f16 | `iscale` is infinite, q likewise, `d` is 0, or -0 for a positive `max` |
//!
//! The second row ends where `amax / 127` no longer rounds to 2^-128 or less, for Q8_K at
//! 127 * 2^-128 itself.
//!
//! # Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
//!
//! Each group of 16 or 32 values gets a scale, or a scale and a min, by a search; then these are
//! quantized themselves, and the integers follow anew from what is stored.
//!
//! - Q2_K, Q4_K, Q5_K: with n = 15 (Q2_K) or 63, `inverse = n / largest scale` (0 if none is above
//!   0), a scale is `nearest(inverse * scale)`, and `d = largest scale / n` in f16; mins, whose sign
//!   is turned, likewise with `dmin`. A group whose `d * scale` is not 0 has
//!   `q = nearest((x + dmin * min) / (d * scale))`; others keep those of the search.
//!   The [search](#searches) is that with a min.
//!
//!   | | n | first, step, steps | weights | errors |
//!   |---|---|---|---|---|
//!   | Q2_K | 3 | -0.5, 0.1, 15 | `abs(x)` | magnitudes |
//!   | Q4_K | 15 | -1, 0.1, 20 | `sqrt(sum x^2 / 32) + abs(x)` | squares |
//!   | Q5_K | 31 | -0.5, 0.1, 15 | `sqrt(sum x^2 / 32) + abs(x)` | squares |
//!
//! - Q3_K, Q6_K: with n = 32 or 128 and `max` the first scale of the largest magnitude,
//!   `inverse = -n / max`, a scale is `nearest(inverse * scale)` from -n to n - 1, and
//!   `d = 1 / inverse` in f16. `q = nearest(x / (d * scale))` where `d * scale` is not 0.
//!   The search is one at a time for Q3_K, with n = 4; symmetric for Q6_K, with n = 32. Where all
//!   scales are 0, or below 1e-15 in Q6_K, all of Q6_K's block is 0, and the bytes of Q3_K's `d` and
//!   scales are.
//!
//! # IQ4_NL, IQ4_XS, MXFP4
//!
//! - IQ4: an entry of the table of 16 is that nearest to a number, the larger of two. With `max` the
//!   first value of the largest magnitude of a group of 32 (below 1e-15: scale 0), inverse scales to
//!   try are `1 / (-max / -127)` and then `(-127 + i) / max` for i from -7 to 7, taken as in the
//!   symmetric [search](#searches), with terms `((x * x) * q) * x` and `((x * x) * q) * q` of an
//!   entry q.
//! - IQ4_NL: the scale found is `d`, in f16; the entries are those nearest to `x * (1 / scale)`, of
//!   the f32, 0 for a scale of 0.
//! - IQ4_XS: with `max` the first scale of the largest magnitude, `d = -max / 32`, a scale is
//!   `nearest(1 / d * scale)` from -32 to 31, and entries are those nearest to
//!   `1 / (d * scale) * x`, of the f32 `d`, 0 for 0. A NaN's entry is the last.
//! - MXFP4: `e = floor(log2(amax)) + 125`, from 0; 0 if all values are. ggml computes the logarithm in
//!   f32; here it is the real one, rounded to nearest. That rounds up to the integer k, and `e` is one
//!   more than the exponent says, for the m floats right below 2^k: m is 0, 1, 2, 5, 11, 22, 44 for i
//!   from 0 to 6, where 2^i is the largest power of two in k - 1, for negative k in -k; it is 0 for
//!   k = 0 and 1. The entry is the first of those for which `abs(entry * 2^(e - 128) - x)` is least,
//!   product and difference in f32.
//!
//! # TQ1_0, TQ2_0
//!
//! `d` is the largest magnitude, in f16; `id = 1 / d` of the f32 (0 for 0); the integer is
//! `x * id` rounded to the nearest, ties away from zero, from -1 to 1; NaN, of an infinite `id`, is 0.
//!
//! # Searches
//!
//! Least squares over a few candidates.
//!
//! Products are from left to right, w is a value's weight, q its integer, `max` the first value of
//! the largest magnitude of the group. A group whose `max` is below 1e-15 in magnitude counts as
//! zeros in the first two: its scale is 0, and its codes.
//!
//! **Symmetric**, q from -n to n - 1, `w = x * x`: candidates for an inverse scale are `-n / max` and
//! then `-(n + 0.1 * i) / max` for i from -9 to 9 without 0; `q = nearest(inverse * x)`. The first is
//! taken with `scale = sum w x q / sum w q q` (0 for 0); a later one instead if `sum w q q > 0` and
//! `(sum w x q)^2 > best * sum w q q`, where `best` is `scale * sum w x q` of the one taken last.
//!
//! **One at a time**, the same integers and weights: with the same start, each q in turn is replaced
//! by `q' = nearest(x * qq / xq)`, where `xq` and `qq` are those two sums less the value's own terms,
//! if `xq > 0` and the sums with the new terms have `qq' > 0` and `xq'^2 * qq > xq^2 * qq'`, the sums
//! from before on the right; up to five times over all, until nothing changes.
//!
//! **With a min**, q from 0 to n: `min` begins as the smallest value, or 0 if that is above it; if the
//! largest is the same, the scale is 0. The first candidate is `inverse = n / (max - min)` of the
//! largest value, `scale = 1 / inverse`, `q = nearest(inverse * (x - min))`, and its error is
//! `sum w ((scale * q + min) - x)^2`, or that of magnitudes. The others are
//! `inverse = ((first + step * i) + n) / (max - min)` for i from 0 to `steps`; their q are from the
//! min taken last, their scale and min are of least squares:
//!
//! - `D = W * sum w q q - (sum w q)^2` with `W = sum w` and `X = sum w x`,
//! - `scale = (W * sum w q x - X * sum w q) / D`,
//! - `min = (sum w q q * X - sum w q * sum w q x) / D`; if that is above 0, it is 0 and
//!   `scale = sum w q x / sum w q q`.
//!
//! One is taken if D > 0 and its error is less than that of the one taken last.

mod int8;
mod k;
mod legacy;
mod nonlinear;
mod search;
mod ternary;

use super::{BlockFormat, Layout};
use crate::format::{F16, F32, Policy, Value};
pub use int8::{Int8Format, Int8Rounding};

/// A block's bytes, written by field. All are 0 at first.
struct Fields<'a> {
    layout: &'static Layout,
    bytes: &'a mut [u8],
}

impl Fields<'_> {
    /// Writes a field's first bytes.
    fn set(&mut self, name: &str, bytes: impl IntoIterator<Item = u8>) {
        let (start, field) = self.layout.field(name);
        for (slot, byte) in self.bytes[start..start + field.bytes()].iter_mut().zip(bytes) {
            *slot = byte;
        }
    }

    /// Writes a factor of type f16; returns it as it is read again.
    fn f16(&mut self, name: &str, factor: f32) -> f32 {
        let code = F16.encode(Value::from(f64::from(factor)), &Policy::IEEE, 0);
        self.set(name, (code as u16).to_le_bytes());
        F16.to_f64(code) as f32
    }

    /// Writes a factor of type f32.
    fn f32(&mut self, name: &str, factor: f32) {
        let code = F32.encode(Value::from(f64::from(factor)), &Policy::IEEE, 0);
        self.set(name, (code as u32).to_le_bytes());
    }
}

/// Writes a block of finite values.
type Quantizer = fn(&[f32], &mut Fields<'_>);

const fn quantizer(format: BlockFormat) -> Quantizer {
    match format {
        BlockFormat::Q4_0 => legacy::q4_0,
        BlockFormat::Q4_1 => legacy::q4_1,
        BlockFormat::Q5_0 => legacy::q5_0,
        BlockFormat::Q5_1 => legacy::q5_1,
        BlockFormat::Q8_0 => |x, block| int8::q8_0(x, Int8Rounding::NearestAway, block),
        BlockFormat::Q8_1 => |x, block| int8::q8_1(x, Int8Rounding::NearestAway, block),
        BlockFormat::Q2K => k::q2_k,
        BlockFormat::Q3K => k::q3_k,
        BlockFormat::Q4K => k::q4_k,
        BlockFormat::Q5K => k::q5_k,
        BlockFormat::Q6K => k::q6_k,
        BlockFormat::Q8K => |x, block| int8::q8_k(x, Int8Rounding::NearestEven, block),
        BlockFormat::Iq4Nl => nonlinear::iq4_nl,
        BlockFormat::Iq4Xs => nonlinear::iq4_xs,
        BlockFormat::Tq1_0 => ternary::tq1_0,
        BlockFormat::Tq2_0 => ternary::tq2_0,
        BlockFormat::Mxfp4 => nonlinear::mxfp4,
    }
}

/// The factors of a format.
const FACTORS: [&str; 4] = ["d", "dmin", "m", "s"];

/// Writes a block of any values.
fn write(format: BlockFormat, values: &[f32], bytes: &mut [u8], finite: impl Fn(&[f32], &mut Fields<'_>)) {
    let layout = format.layout();
    assert_eq!(values.len(), layout.values, "values of a block of {format}");
    assert_eq!(bytes.len(), layout.bytes, "bytes of a block of {format}");
    bytes.fill(0);
    let mut fields = Fields { layout, bytes };
    if format == BlockFormat::Mxfp4 || values.iter().all(|value| value.is_finite()) {
        return finite(values, &mut fields);
    }
    for factor in layout.fields.iter().filter(|field| FACTORS.contains(&field.name)) {
        match factor.kind {
            super::Kind::F32 => fields.f32(factor.name, f32::NAN),
            _ => {
                fields.f16(factor.name, f32::NAN);
            }
        }
    }
}

impl BlockFormat {
    /// The block that ggml makes of these values without an importance matrix: by its reference
    /// quantizer, but for IQ4_NL. The [module](crate::block::quantize) says how, and what of it is
    /// recorded.
    ///
    /// ```
    /// use plumbline_reference::block::BlockFormat;
    /// let mut values = [0.0; 32];
    /// values[..2].copy_from_slice(&[-8.0, 7.0]);
    /// let block = BlockFormat::Q4_0.quantize(&values);
    /// assert_eq!(block[..4], [0x00, 0x3c, 0x80, 0x8f]); // d = 1, q = 0 and 8, 15 and 8
    /// ```
    ///
    /// # Panics
    /// If there are not [`BlockFormat::values`] of them.
    #[must_use]
    pub fn quantize(self, values: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes()];
        self.quantize_into(values, &mut bytes);
        bytes
    }

    /// The same into bytes that are there.
    ///
    /// # Panics
    /// If there are not [`BlockFormat::values`] values and [`BlockFormat::bytes`] bytes.
    pub fn quantize_into(self, values: &[f32], bytes: &mut [u8]) {
        write(self, values, bytes, quantizer(self));
    }
}

/// The first value of the largest magnitude; 0 of none.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max: f32, &x| if x.abs() > max.abs() { x } else { max })
}

/// `1 / d`, and 0 for 0.
fn reciprocal(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}
