//! Values as people read them: decimal and hexadecimal floating point.

use super::{Format, Value};
use std::fmt;

/// A value as a hexadecimal floating-point number: `-0x1.8p+3`, `nan`, `inf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexFloat(pub Value);

/// A value as the shortest decimal that identifies it among all f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(pub Value);

impl fmt::Display for HexFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_negative() {
            f.write_str("-")?;
        }
        match self.0 {
            Value::Nan { .. } => f.write_str("nan"),
            Value::Infinite { .. } => f.write_str("inf"),
            Value::Finite { significand: 0, .. } => f.write_str("0x0p+0"),
            Value::Finite { significand, exponent, .. } => {
                let log2 = 63 - significand.leading_zeros() as i32;
                // Drop the leading one; what is left are the fraction's bits.
                let fraction = if log2 == 0 { 0 } else { significand << (64 - log2) };
                let digits = format!("{fraction:016x}");
                let digits = digits.trim_end_matches('0');
                let point = if digits.is_empty() { "" } else { "." };
                write!(f, "0x1{point}{digits}p{:+}", i64::from(exponent) + i64::from(log2))
            }
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Nan { negative: true } => f.pad("-NaN"),
            value => f.pad(&format!("{:?}", value.to_f64())),
        }
    }
}

impl Format {
    /// A code in hex with all the digits of its storage: `0x7e`.
    #[must_use]
    pub fn hex(&self, code: u64) -> String {
        format!("0x{code:0width$x}", width = self.hex_digits())
    }
}
