//! From a code to the value it stands for, its class and its neighbours.

use super::{F64, Format, Policy, Specials};

/// What a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not a number.
    Nan {
        /// The sign bit of the code.
        negative: bool,
    },
    /// Positive or negative infinity.
    Infinite {
        /// The sign.
        negative: bool,
    },
    /// `(-1)^negative * significand * 2^exponent`, exactly. Zero has
    /// significand 0; the significand need not be odd or normalised.
    Finite {
        /// The sign.
        negative: bool,
        /// The significand as an integer.
        significand: u64,
        /// The weight of its last bit: any integer.
        exponent: i32,
    },
}

/// Class of a value, as IEEE 754 names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Not a number.
    Nan = 1,
    /// An infinity.
    Infinite = 2,
    /// +0 or -0.
    Zero = 4,
    /// Below the smallest normal number, not zero.
    Subnormal = 8,
    /// Any other finite number.
    Normal = 16,
}

impl Value {
    /// The sign, of NaN and zero too.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        match self {
            Self::Nan { negative } | Self::Infinite { negative } | Self::Finite { negative, .. } => negative,
        }
    }

    /// Whether it is NaN.
    #[must_use]
    pub const fn is_nan(self) -> bool {
        matches!(self, Self::Nan { .. })
    }

    /// The value as an f64, rounded to nearest even if f64 cannot hold it.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        f64::from_bits(F64.encode(self, &Policy::IEEE, 0))
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        super::F32.decode(value.to_bits().into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        F64.decode(value.to_bits())
    }
}

impl Format {
    /// The value of a code. Padding bits are ignored.
    #[must_use]
    #[inline]
    pub const fn decode(&self, code: u64) -> Value {
        let negative = code & self.sign_bit() != 0;
        let magnitude = self.magnitude(code);
        let is_nan = match self.specials {
            Specials::Ieee => magnitude > self.exponent_mask() << self.fraction_bits,
            Specials::NanAllOnes => magnitude == self.magnitude_mask(),
            Specials::NanNegativeZero => negative && magnitude == 0,
            Specials::None => false,
        };
        if is_nan {
            return Value::Nan { negative };
        }
        let field = (magnitude >> self.fraction_bits) as i32;
        let fraction = magnitude & self.fraction_mask();
        if self.has_infinity() && field as u64 == self.exponent_mask() {
            return Value::Infinite { negative };
        }
        let ulp = -self.bias - self.fraction_bits as i32;
        if self.subnormals && field == 0 {
            return Value::Finite { negative, significand: fraction, exponent: 1 + ulp };
        }
        Value::Finite { negative, significand: 1 << self.fraction_bits | fraction, exponent: field + ulp }
    }

    /// The value of a code as an f64; exact for every format here.
    #[must_use]
    pub fn to_f64(&self, code: u64) -> f64 {
        self.decode(code).to_f64()
    }

    /// The class of a code; its sign is `decode(code).is_negative()`.
    #[must_use]
    #[inline]
    pub const fn classify(&self, code: u64) -> Class {
        match self.decode(code) {
            Value::Nan { .. } => Class::Nan,
            Value::Infinite { .. } => Class::Infinite,
            Value::Finite { significand: 0, .. } => Class::Zero,
            Value::Finite { significand, .. } if significand >> self.fraction_bits == 0 => Class::Subnormal,
            Value::Finite { .. } => Class::Normal,
        }
    }

    /// The code of the least value above, as IEEE 754 `nextUp`: of the largest
    /// finite value it is +infinity; -0 and +0 count as one. `None` for NaN and
    /// where nothing is above.
    #[must_use]
    pub fn next_up(&self, code: u64) -> Option<u64> {
        self.step(code, false)
    }

    /// The code of the greatest value below: `next_up` mirrored.
    #[must_use]
    pub fn next_down(&self, code: u64) -> Option<u64> {
        self.step(code, true)
    }

    fn step(&self, code: u64, down: bool) -> Option<u64> {
        let (negative, magnitude) = match self.decode(code) {
            Value::Nan { .. } => return None,
            // Either zero steps away from zero in the direction asked for.
            Value::Finite { significand: 0, .. } => (down, 0),
            value => (value.is_negative(), self.magnitude(code)),
        };
        if negative && !self.signed {
            return None;
        }
        let sign = if negative { self.sign_bit() } else { 0 };
        let top = self.infinity().map_or(self.max_magnitude(), |code| self.magnitude(code));
        if negative == down {
            (magnitude < top).then(|| sign | self.code_at(magnitude + 1))
        } else if magnitude > 1 {
            Some(sign | self.code_at(magnitude - 1))
        } else if magnitude == 1 {
            Some(if self.has_negative_zero() { sign } else { 0 })
        } else {
            // Only a format without zero steps down from magnitude 0.
            None
        }
    }
}
