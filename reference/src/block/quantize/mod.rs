//! Numbers to GGML blocks, as ggml's reference quantizers make them.
//!
//! A quantizer is a sequence of f32 operations in a fixed order, each rounded to nearest even, none
//! contracted to a fused one, and each family's file states its own. Sums run over values in
//! ascending order. No importance matrix is known: weights, where a search has them, are made of the
//! values themselves.
//!
//! What is the same for all:
//!
//! - `nearest(x)` is the integer nearest to x, ties to even; beyond 2^22 - 1 in magnitude it stays
//!   there, and NaN is 0. Integers are clamped to what their field holds, never wrapped.
//! - A factor is computed in f32 and rounded to its field, f16 but for Q8_K, to nearest even. One
//!   beyond f16 is an infinity, so that values beyond about 65504 times the largest integer make
//!   infinities and NaN; one below half of 2^-24 is a zero, and so are the values then.
//! - A block of zeros has factors of 0: no quotient is taken of what is 0.
//! - A block in which a value is NaN or infinite has NaN in all its factors and 0 elsewhere, so that
//!   all of its values are NaN and no fault is lost. MXFP4 has no NaN: there a NaN counts as 0 and
//!   an infinity as the largest f32 of its sign.
//! - Where sums of a search leave the range of f32, what IEEE 754 gives is kept: such values are
//!   beyond f16, or lost in it, anyway.
//!
//! Source: `quantize_row_*_ref` of ggml; checked, bit for bit, against blocks that ggml wrote.

pub mod int8;
pub mod k;
pub mod legacy;
pub mod nonlinear;
pub mod search;
pub mod ternary;

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
    /// The block that ggml's reference quantizer makes of these values.
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
