//! What an operation does on the device: a list of steps, made before anything is queued,
//! so that the same steps can be launched or recorded as a graph.

use crate::blas::Product;
use crate::module::Unit;
use plumbline_reference::TensorType;
use plumbline_reference::format::Policy;

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// A kernel.
    Kernel(Call),
    /// A library's matrix product.
    Product(Box<Product>),
    /// Bytes set to zero.
    Zero {
        /// The first byte's address.
        address: u64,
        /// How many.
        bytes: usize,
    },
    /// Bytes copied on the device.
    Copy {
        /// The first source byte's address.
        from: u64,
        /// The first destination byte's address.
        to: u64,
        /// How many.
        bytes: usize,
    },
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Call {
    /// The source with its constants.
    pub unit: Unit,
    /// The kernel's name in it.
    pub entry: &'static str,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, besides what the kernel declares.
    pub shared: u32,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

/// An argument of a kernel: up to 32 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Argument {
    pub(crate) bytes: [u8; 32],
    pub(crate) len: usize,
}

impl Argument {
    fn new(value: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes[..value.len()].copy_from_slice(value);
        Self { bytes, len: value.len() }
    }
}

/// An address or a count.
impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::new(&value.to_le_bytes())
    }
}

/// A structure of four of them.
impl From<[u64; 4]> for Argument {
    fn from(fields: [u64; 4]) -> Self {
        Self::new(fields.map(u64::to_le_bytes).as_flattened())
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::new(&value.to_le_bytes())
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::new(&value.to_le_bytes())
    }
}

/// An enumerator.
impl From<u8> for Argument {
    fn from(value: u8) -> Self {
        Self::new(&[value])
    }
}

impl From<Policy> for Argument {
    fn from(policy: Policy) -> Self {
        let Policy { rounding, overflow, infinities, nan, subnormals, negative_zero } = policy;
        let fields = [
            rounding as u8,
            overflow as u8,
            infinities as u8,
            nan as u8,
            subnormals as u8,
            negative_zero as u8,
        ];
        Self::new(&fields)
    }
}

/// A tensor in the device's memory.
#[derive(Clone, Debug)]
pub struct View {
    /// Address of the first element.
    pub address: u64,
    /// Type and shape.
    pub ty: TensorType,
    /// Strides in elements: those of a contiguous tensor but for operations that take others.
    pub strides: Vec<usize>,
}

impl View {
    /// A contiguous tensor.
    #[must_use]
    pub fn contiguous(address: u64, ty: TensorType) -> Self {
        Self { address, strides: ty.contiguous_strides(), ty }
    }

    /// Whether it is row-major without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.strides == self.ty.contiguous_strides()
    }

    /// Number of elements.
    #[must_use]
    pub fn count(&self) -> u64 {
        // 0 where the extents hold no elements, however large some of them are.
        self.ty.elements().map_or(0, |elements| elements as u64)
    }

    /// Bytes of one element.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.ty.dtype.bytes() as u64
    }

    /// Whether it can be accessed as vectors of that many elements.
    fn is_aligned(&self, elements: u64) -> bool {
        self.address.is_multiple_of(elements * self.width())
    }
}

/// Threads of a block of every elementwise kernel.
pub(crate) const THREADS: u32 = 256;

/// A kernel with one result per element: the first entry where both tensors are aligned for
/// its vectors, else the second, which takes single elements. Its first arguments are x, y and
/// the count. The numbers are those of `elementwise.cuh`.
pub(crate) struct Elementwise<'a> {
    pub(crate) unit: Unit,
    pub(crate) x: &'a View,
    pub(crate) y: &'a View,
    pub(crate) entries: [&'static str; 2],
    /// Whether a thread has several vectors.
    pub(crate) unrolled: bool,
}

impl Elementwise<'_> {
    pub(crate) fn step(self, rest: impl IntoIterator<Item = Argument>) -> Step {
        let widest = self.x.width().max(self.y.width());
        let vector = if self.x.width() == self.y.width() { 16 / widest } else { (16 / widest).min(4) };
        let vectors = if self.unrolled { (16 / vector).min(4) } else { 1 };
        let wide = self.x.is_aligned(vector) && self.y.is_aligned(vector);
        let (entry, vector) = if wide { (self.entries[0], vector) } else { (self.entries[1], 1) };
        let per_block = vector * vectors * u64::from(THREADS);
        let first = [self.x.address, self.y.address, self.x.count()].map(Argument::from);
        Step::Kernel(Call {
            unit: self.unit,
            entry,
            blocks: self.x.count().div_ceil(per_block).max(1),
            threads: THREADS,
            shared: 0,
            arguments: first.into_iter().chain(rest).collect(),
        })
    }
}
