//! The types of tensors: the table of ggml's.

use std::fmt;

/// A type of tensor: rows of blocks, each of so many values in so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type {
    /// The number that stands in files.
    pub number: u32,
    /// Its name in ggml: `q4_K`.
    pub name: &'static str,
    /// Values of a block; 1 where values stand alone.
    pub block_values: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
}

macro_rules! types {
    ($($constant:ident = $number:literal, $name:literal, $values:literal in $bytes:literal;)*) => {
        impl Type {
            $(
                #[doc = concat!("`", $name, "`, number ", $number, ": ", $values, " values in ", $bytes, " bytes.")]
                pub const $constant: Self =
                    Self { number: $number, name: $name, block_values: $values, block_bytes: $bytes };
            )*
        }

        /// Every type that a file can have, by number.
        pub const ALL: &[Type] = &[$(Type::$constant),*];
    };
}

// Numbers: `enum ggml_type` in ggml.h. Sizes: the blocks in ggml-common.h, each of which a
// static_assert there confirms.
types! {
    F32 = 0, "f32", 1 in 4;
    F16 = 1, "f16", 1 in 2;
    Q4_0 = 2, "q4_0", 32 in 18;
    Q4_1 = 3, "q4_1", 32 in 20;
    Q5_0 = 6, "q5_0", 32 in 22;
    Q5_1 = 7, "q5_1", 32 in 24;
    Q8_0 = 8, "q8_0", 32 in 34;
    // Two f16 and 32 bytes. It was 40 bytes, with two f32, when gguf-py's table was made.
    Q8_1 = 9, "q8_1", 32 in 36;
    Q2_K = 10, "q2_K", 256 in 84;
    Q3_K = 11, "q3_K", 256 in 110;
    Q4_K = 12, "q4_K", 256 in 144;
    Q5_K = 13, "q5_K", 256 in 176;
    Q6_K = 14, "q6_K", 256 in 210;
    Q8_K = 15, "q8_K", 256 in 292;
    IQ2_XXS = 16, "iq2_xxs", 256 in 66;
    IQ2_XS = 17, "iq2_xs", 256 in 74;
    IQ3_XXS = 18, "iq3_xxs", 256 in 98;
    IQ1_S = 19, "iq1_s", 256 in 50;
    IQ4_NL = 20, "iq4_nl", 32 in 18;
    IQ3_S = 21, "iq3_s", 256 in 110;
    IQ2_S = 22, "iq2_s", 256 in 82;
    IQ4_XS = 23, "iq4_xs", 256 in 136;
    I8 = 24, "i8", 1 in 1;
    I16 = 25, "i16", 1 in 2;
    I32 = 26, "i32", 1 in 4;
    I64 = 27, "i64", 1 in 8;
    F64 = 28, "f64", 1 in 8;
    IQ1_M = 29, "iq1_m", 256 in 56;
    BF16 = 30, "bf16", 1 in 2;
    TQ1_0 = 34, "tq1_0", 256 in 54;
    TQ2_0 = 35, "tq2_0", 256 in 66;
    MXFP4 = 39, "mxfp4", 32 in 17;
    NVFP4 = 40, "nvfp4", 64 in 36;
    Q1_0 = 41, "q1_0", 128 in 18;
    Q2_0 = 42, "q2_0", 64 in 18;
}

/// Types that ggml has given up, with what takes their place.
const REMOVED: [(u32, &str, &str); 8] = [
    (4, "q4_2", "q4_0"),
    (5, "q4_3", "q4_1"),
    (31, "q4_0_4_4", "q4_0"),
    (32, "q4_0_4_8", "q4_0"),
    (33, "q4_0_8_8", "q4_0"),
    (36, "iq4_nl_4_4", "iq4_nl"),
    (37, "iq4_nl_4_8", "iq4_nl"),
    (38, "iq4_nl_8_8", "iq4_nl"),
];

/// Why a shape is none of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Rows do not end where blocks do.
    #[error("has rows of {values} values, but {ty} comes in blocks of {}", ty.block_values)]
    Row {
        /// The type.
        ty: Type,
        /// Values of a row.
        values: usize,
    },
    /// No memory could hold it.
    #[error("has more bytes than a machine can address")]
    TooLarge,
}

impl Type {
    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        ALL.iter().copied().find(|ty| ty.number == number)
    }

    /// The type of that name, in any case of letters.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|ty| ty.name.eq_ignore_ascii_case(name))
    }

    /// The name of a type that was removed from ggml, and of the one to use instead.
    #[must_use]
    pub fn removed(number: u32) -> Option<(&'static str, &'static str)> {
        REMOVED.iter().find(|(removed, ..)| *removed == number).map(|&(_, name, instead)| (name, instead))
    }

    /// Bytes of a tensor of that shape, outermost dimension first: blocks of a row times
    /// rows. A tensor without dimensions is one value; one with a dimension of 0 is empty.
    pub fn bytes_of(self, shape: &[usize]) -> Result<usize, ShapeError> {
        let (&values, outer) = shape.split_last().unwrap_or((&1, &[]));
        if values % self.block_values != 0 {
            return Err(ShapeError::Row { ty: self, values });
        }
        if shape.contains(&0) {
            return Ok(0);
        }
        let blocks = outer.iter().try_fold(values / self.block_values, |blocks, &n| blocks.checked_mul(n));
        let bytes = blocks.and_then(|blocks| blocks.checked_mul(self.block_bytes));
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(ShapeError::TooLarge)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_and_name_once() {
        assert!(ALL.is_sorted_by(|a, b| a.number < b.number));
        for ty in ALL {
            assert_eq!(Type::from_number(ty.number), Some(*ty));
            assert_eq!(Type::from_name(&ty.name.to_uppercase()), Some(*ty));
            assert_eq!(Type::removed(ty.number), None);
        }
        // Every number up to the largest is a type or was one.
        for number in 0..43 {
            assert_ne!(Type::from_number(number).is_some(), Type::removed(number).is_some(), "{number}");
        }
        for (_, _, instead) in REMOVED {
            assert!(Type::from_name(instead).is_some(), "{instead}");
        }
    }

    #[test]
    fn bytes_of_shapes() {
        assert_eq!(Type::F32.bytes_of(&[]), Ok(4));
        assert_eq!(Type::Q4_K.bytes_of(&[3, 512]), Ok(3 * 2 * 144));
        assert_eq!(Type::Q4_K.bytes_of(&[2, 2, 2, 256]), Ok(8 * 144));
        assert_eq!(Type::Q4_K.bytes_of(&[256, 1]), Err(ShapeError::Row { ty: Type::Q4_K, values: 1 }));
        assert_eq!(Type::Q4_K.bytes_of(&[]), Err(ShapeError::Row { ty: Type::Q4_K, values: 1 }));
        assert_eq!(Type::F32.bytes_of(&[0, usize::MAX, usize::MAX]), Ok(0));
        assert_eq!(Type::F32.bytes_of(&[usize::MAX, 2]), Err(ShapeError::TooLarge));
        assert_eq!(Type::F32.bytes_of(&[usize::MAX / 4, 1]), Err(ShapeError::TooLarge));
    }
}
