//! Tensors: an element type, a shape, strides and bytes.
//!
//! The bytes are little-endian codes. A tensor knows nothing of floating point;
//! operations do.

use crate::DType;
use crate::fast::Simd;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// What is known of a tensor before its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extent of each dimension, outermost first; `[]` is a scalar.
    pub shape: Vec<usize>,
}

/// Largest tensor that is made, in bytes.
pub const MAX_BYTES: usize = 8 << 30;

/// Why a tensor cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The shape asks for more than [`MAX_BYTES`].
    #[error("shape {shape:?} of {dtype} needs more than {} GiB, the largest tensor that is made", MAX_BYTES >> 30)]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// Strides do not match the shape, or the buffer would take more than
    /// [`MAX_BYTES`].
    #[error("{ty} with strides {strides:?}, offset {offset} and guard zones of {guard} bytes: \
             one stride per dimension and at most {} GiB", MAX_BYTES >> 30)]
    Layout {
        /// Element type and shape.
        ty: TensorType,
        /// The strides, in elements.
        strides: Vec<usize>,
        /// Bytes before the first element.
        offset: usize,
        /// Bytes of each guard zone.
        guard: usize,
    },
    /// The number of codes is not the number of elements.
    #[error("{given} elements given, but shape {shape:?} holds {expected}")]
    Count {
        /// The shape.
        shape: Vec<usize>,
        /// Elements of that shape.
        expected: usize,
        /// Elements given.
        given: usize,
    },
    /// The number of bytes is not that of the elements.
    #[error("{given} bytes given, but {dtype}{shape:?} takes {expected}")]
    Bytes {
        /// Element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes of that type and shape.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// Strides reach outside the bytes or do not match the shape.
    #[error("strides {strides:?} for shape {shape:?} do not fit {bytes} bytes of {dtype}")]
    Strides {
        /// Element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<usize>,
        /// Bytes given.
        bytes: usize,
    },
}

impl TensorType {
    /// A type of that element type and shape.
    pub fn new(dtype: impl Into<DType>, shape: impl Into<Vec<usize>>) -> Self {
        Self { dtype: dtype.into(), shape: shape.into() }
    }

    /// Number of elements, or an error if the tensor would be too large.
    pub fn elements(&self) -> Result<usize, TensorError> {
        if self.shape.contains(&0) {
            return Ok(0);
        }
        self.shape
            .iter()
            .try_fold(1usize, |product, &extent| product.checked_mul(extent))
            .filter(|&elements| {
                elements.checked_mul(self.dtype.bytes()).is_some_and(|bytes| bytes <= MAX_BYTES)
            })
            .ok_or_else(|| TensorError::TooLarge { dtype: self.dtype, shape: self.shape.clone() })
    }

    /// Strides, in elements, of a row-major tensor without gaps.
    #[must_use]
    pub fn contiguous_strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.shape.len()];
        for i in (1..self.shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(self.shape[i]);
        }
        strides
    }

    /// Elements from the first to the last under these strides, gaps included; 0
    /// for an empty tensor. `None` if the strides do not match the shape or reach
    /// beyond a `usize`.
    #[must_use]
    pub fn span(&self, strides: &[usize]) -> Option<usize> {
        if strides.len() != self.shape.len() {
            return None;
        }
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape
            .iter()
            .zip(strides)
            .try_fold(1usize, |span, (&extent, &stride)| (extent - 1).checked_mul(stride)?.checked_add(span))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// How elements are computed: one after the other, by rayon's threads, or by those on
/// SIMD registers. The bits are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// One loop in ascending order: the definition.
    Definition,
    /// Chunks on rayon's threads.
    Parallel,
    /// The fast path on that instruction set; `Parallel` where an operation has none.
    Simd(Simd),
}

impl Path {
    /// The fastest on this processor.
    #[must_use]
    pub fn fastest() -> Self {
        Self::Simd(Simd::best())
    }
}

/// A tensor on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    ty: TensorType,
    strides: Vec<usize>,
    elements: usize,
    contiguous: bool,
    bytes: Vec<u8>,
}

/// Elements that one rayon task computes: enough to hide its cost, few enough to
/// spread.
const CHUNK: usize = 1 << 14;

/// Calls `fill` with chunks of elements and the index of each one's first. This is compiled once, and
/// not for each function that gives elements: there are hundreds.
fn fill_chunks(bytes: &mut [u8], width: usize, path: Path, fill: &(dyn Fn(usize, &mut [u8]) + Sync)) {
    let fill_chunk = |(chunk, bytes): (usize, &mut [u8])| fill(chunk * CHUNK, bytes);
    match path {
        Path::Definition => bytes.chunks_mut(CHUNK * width).enumerate().for_each(fill_chunk),
        Path::Parallel | Path::Simd(_) => {
            bytes.par_chunks_mut(CHUNK * width).enumerate().for_each(fill_chunk)
        }
    }
}

#[inline]
fn fill_codes<const BYTES: usize>(bytes: &mut [u8], first: usize, code: impl Fn(usize) -> u64) {
    for (i, slot) in bytes.chunks_exact_mut(BYTES).enumerate() {
        slot.copy_from_slice(&code(first + i).to_le_bytes()[..BYTES]);
    }
}

impl Tensor {
    /// A contiguous tensor whose element at linear index `i` is `code(i)`.
    pub fn from_fn(
        ty: TensorType,
        path: Path,
        code: impl Fn(usize) -> u64 + Sync,
    ) -> Result<Self, TensorError> {
        let width = ty.dtype.bytes();
        let fill = |first: usize, bytes: &mut [u8]| {
            // The loop of each width is compiled for that width.
            match width {
                1 => fill_codes::<1>(bytes, first, &code),
                2 => fill_codes::<2>(bytes, first, &code),
                4 => fill_codes::<4>(bytes, first, &code),
                _ => fill_codes::<8>(bytes, first, &code),
            }
        };
        let mut bytes = vec![0; ty.elements()? * width];
        fill_chunks(&mut bytes, width, path, &fill);
        Self::from_bytes(ty, bytes)
    }

    /// A contiguous tensor of the given codes.
    pub fn from_codes(ty: TensorType, codes: &[u64]) -> Result<Self, TensorError> {
        let expected = ty.elements()?;
        if codes.len() != expected {
            return Err(TensorError::Count { shape: ty.shape, expected, given: codes.len() });
        }
        Self::from_fn(ty, Path::Definition, |i| codes[i])
    }

    /// A contiguous tensor over little-endian bytes.
    pub fn from_bytes(ty: TensorType, bytes: Vec<u8>) -> Result<Self, TensorError> {
        let elements = ty.elements()?;
        if bytes.len() != elements * ty.dtype.bytes() {
            let expected = elements * ty.dtype.bytes();
            return Err(TensorError::Bytes {
                dtype: ty.dtype,
                shape: ty.shape,
                expected,
                given: bytes.len(),
            });
        }
        Ok(Self { strides: ty.contiguous_strides(), elements, contiguous: true, ty, bytes })
    }

    /// A tensor over little-endian bytes with strides in elements. Stride 0
    /// repeats; gaps are kept as they are.
    pub fn from_strided(ty: TensorType, strides: Vec<usize>, bytes: Vec<u8>) -> Result<Self, TensorError> {
        let elements = ty.elements()?;
        let available = bytes.len() / ty.dtype.bytes();
        if ty.span(&strides).is_none_or(|span| span > available) {
            let TensorType { dtype, shape } = ty;
            return Err(TensorError::Strides { dtype, shape, strides, bytes: bytes.len() });
        }
        let contiguous = strides == ty.contiguous_strides();
        Ok(Self { ty, strides, elements, contiguous, bytes })
    }

    /// The same elements under other strides. Of elements that share a place the first
    /// counts. Gaps are filled with ones, which are NaN in most formats.
    pub fn with_strides(&self, strides: &[usize]) -> Result<Self, TensorError> {
        if self.contiguous && self.strides == strides {
            return Ok(self.to_contiguous());
        }
        let width = self.ty.dtype.bytes();
        let span = self.ty.span(strides).and_then(|span| span.checked_mul(width));
        let Some(span) = span.filter(|&bytes| bytes <= MAX_BYTES) else {
            let (ty, strides) = (self.ty.clone(), strides.to_vec());
            return Err(TensorError::Layout { ty, strides, offset: 0, guard: 0 });
        };
        let mut bytes = vec![0xff; span];
        for index in (0..self.elements).rev() {
            let at = position(&self.ty.shape, strides, index) * width;
            bytes[at..at + width].copy_from_slice(&self.code(index).to_le_bytes()[..width]);
        }
        Self::from_strided(self.ty.clone(), strides.to_vec(), bytes)
    }

    /// Element type and shape.
    #[must_use]
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Extent of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.ty.shape
    }

    /// Strides in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The storage, gaps included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The code at a linear, row-major index.
    ///
    /// # Panics
    /// If `index` is not below [`Tensor::len`].
    #[must_use]
    #[inline]
    pub fn code(&self, index: usize) -> u64 {
        assert!(index < self.elements, "element {index} of {}", self.elements);
        let width = self.ty.dtype.bytes();
        let at = width * if self.contiguous { index } else { self.position(index) };
        let bytes = &self.bytes[at..at + width];
        match width {
            1 => bytes[0].into(),
            2 => u16::from_le_bytes([bytes[0], bytes[1]]).into(),
            4 => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
            _ => bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte)),
        }
    }

    /// Codes in row-major order.
    pub fn codes(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.elements).map(|i| self.code(i))
    }

    /// Where the element of a linear index lies, in elements from the start.
    fn position(&self, index: usize) -> usize {
        position(&self.ty.shape, &self.strides, index)
    }

    /// The bytes of the elements in row-major order.
    #[must_use]
    pub fn packed(&self) -> Cow<'_, [u8]> {
        if self.contiguous {
            return Cow::Borrowed(&self.bytes[..self.elements * self.ty.dtype.bytes()]);
        }
        Cow::Owned(self.to_contiguous().bytes)
    }

    /// The same elements without gaps.
    #[must_use]
    pub fn to_contiguous(&self) -> Self {
        if self.contiguous && self.bytes.len() == self.elements * self.ty.dtype.bytes() {
            return self.clone();
        }
        let mut bytes = Vec::with_capacity(self.elements * self.ty.dtype.bytes());
        for code in self.codes() {
            bytes.extend_from_slice(&code.to_le_bytes()[..self.ty.dtype.bytes()]);
        }
        Self {
            strides: self.ty.contiguous_strides(),
            ty: self.ty.clone(),
            elements: self.elements,
            contiguous: true,
            bytes,
        }
    }
}

/// Where a row-major linear index of `shape` lies under `strides`, one for each
/// dimension.
///
/// # Panics
/// If `shape` has no elements, so that no index exists.
#[must_use]
pub fn position(shape: &[usize], strides: &[usize], index: usize) -> usize {
    let mut rest = index;
    let mut position = 0;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        position += rest % extent * stride;
        rest /= extent;
    }
    position
}
