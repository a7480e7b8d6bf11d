//! The trait behind which every implementation stands.
//!
//! A simple implementation gives [`Backend::run`]. One whose memory can be laid
//! out by the caller gives the steps (`alloc`, `upload`, `launch`, `download`)
//! and says so by [`Backend::stepwise`]; `run` is then provided, and offsets,
//! strides, guard zones and poison become testable.

use crate::ops::{Op, SignatureError};
use crate::{MAX_BYTES, Tensor, TensorError, TensorType, position};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;

/// What a backend runs on, as reports name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// The device: `NVIDIA H200`, `x86_64 CPU`, `float8 0.7`.
    pub name: String,
    /// Versions and properties: driver, compute capability, threads, ...
    pub properties: BTreeMap<String, String>,
}

/// Why a backend does not do an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Why a backend gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The backend does not do this operation.
    #[error("unsupported: {0}")]
    Unsupported(#[from] Unsupported),
    /// The inputs do not fit the operation.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The backend has no such variant of the operation.
    #[error("no variant `{variant}` of {op}, only {known:?}")]
    Variant {
        /// The operation.
        op: &'static str,
        /// The variant asked for.
        variant: String,
        /// The variants there are.
        known: Vec<String>,
    },
    /// The backend has no steps, only `run`.
    #[error("this backend has only `run`, no separate steps")]
    NotStepwise,
    /// A buffer of another backend was passed.
    #[error("buffer belongs to another backend")]
    ForeignBuffer,
    /// Bytes of the wrong length for a buffer.
    #[error("{given} bytes for a buffer of {expected}")]
    BufferSize {
        /// Bytes given.
        given: usize,
        /// Bytes of the buffer.
        expected: usize,
    },
    /// Output buffers of other types than the operation gives.
    #[error("{op}: output buffers hold {}, the operation gives {}", list(given), list(expected))]
    Outputs {
        /// The operation.
        op: &'static str,
        /// What the operation gives.
        expected: Vec<TensorType>,
        /// What the buffers hold.
        given: Vec<TensorType>,
    },
    /// The implementation failed.
    #[error("{call}: {why}")]
    Failed {
        /// The call that failed.
        call: String,
        /// What it said.
        why: String,
    },
    /// The implementation failed, and so will every later call in this process.
    #[error("{call}: {why}; the device cannot be used further")]
    Lost {
        /// The call that failed.
        call: String,
        /// What it said.
        why: String,
    },
    /// The backend cannot record calls.
    #[error("this backend cannot record calls as a graph")]
    NoGraphs,
}

fn list(types: &[TensorType]) -> String {
    format!("[{}]", types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", "))
}

/// Where a tensor's elements lie in a buffer.
///
/// ```text
/// | guard | offset | element ... gap ... element | guard |
/// ```
/// Every byte is `poison` after allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Element type and shape.
    pub ty: TensorType,
    /// Strides in elements.
    pub strides: Vec<usize>,
    /// Bytes between the leading guard zone and the first element.
    pub offset: usize,
    /// Bytes of each guard zone.
    pub guard: usize,
    /// What every byte is set to.
    pub poison: u8,
}

impl Layout {
    /// No gaps, no guard zones.
    #[must_use]
    pub fn contiguous(ty: TensorType) -> Self {
        Self { strides: ty.contiguous_strides(), ty, offset: 0, guard: 0, poison: 0 }
    }

    /// Bytes from the first to the end of the last element, gaps included.
    pub fn span(&self) -> Result<usize, TensorError> {
        self.ty.elements()?;
        self.ty
            .span(&self.strides)
            .and_then(|span| span.checked_mul(self.ty.dtype.bytes()))
            .filter(|&bytes| bytes <= MAX_BYTES)
            .ok_or_else(|| self.unfit())
    }

    /// Bytes of the whole buffer.
    pub fn total(&self) -> Result<usize, TensorError> {
        [self.guard, self.offset, self.guard]
            .into_iter()
            .try_fold(self.span()?, |total, bytes| total.checked_add(bytes))
            .filter(|&bytes| bytes <= MAX_BYTES)
            .ok_or_else(|| self.unfit())
    }

    fn unfit(&self) -> TensorError {
        let Self { ty, strides, offset, guard, .. } = self;
        TensorError::Layout { ty: ty.clone(), strides: strides.clone(), offset: *offset, guard: *guard }
    }

    /// The byte at which the element of a row-major linear index begins.
    #[must_use]
    pub fn byte_of(&self, index: usize) -> usize {
        self.guard + self.offset + position(&self.ty.shape, &self.strides, index) * self.ty.dtype.bytes()
    }

    /// Writes a tensor's elements into a buffer's bytes; the rest stays.
    ///
    /// # Panics
    /// If the tensor is not of the layout's type or there are fewer than
    /// [`Layout::total`] bytes.
    pub fn scatter(&self, tensor: &Tensor, bytes: &mut [u8]) {
        assert_eq!(tensor.ty(), &self.ty, "the tensor is not of the layout's type");
        let width = self.ty.dtype.bytes();
        if self.strides == self.ty.contiguous_strides() && tensor.strides() == self.strides {
            let start = self.guard + self.offset;
            let len = tensor.len() * width;
            bytes[start..start + len].copy_from_slice(&tensor.bytes()[..len]);
            return;
        }
        for (i, code) in tensor.codes().enumerate() {
            let at = self.byte_of(i);
            bytes[at..at + width].copy_from_slice(&code.to_le_bytes()[..width]);
        }
    }

    /// The tensor in a buffer's bytes.
    ///
    /// # Panics
    /// If there are fewer than [`Layout::total`] bytes.
    pub fn gather(&self, bytes: &[u8]) -> Result<Tensor, TensorError> {
        let start = self.guard + self.offset;
        let elements = bytes[start..start + self.span()?].to_vec();
        Tensor::from_strided(self.ty.clone(), self.strides.clone(), elements)
    }
}

/// Memory of a backend. Dropping it frees it.
pub struct Buffer {
    layout: Layout,
    memory: Box<dyn Any + Send + Sync>,
}

impl Buffer {
    /// A buffer over a backend's own memory object.
    pub fn new(layout: Layout, memory: impl Any + Send + Sync) -> Self {
        Self { layout, memory: Box::new(memory) }
    }

    /// Where the elements lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The backend's memory object.
    pub fn memory<T: Any>(&self) -> Result<&T, BackendError> {
        self.memory.downcast_ref().ok_or(BackendError::ForeignBuffer)
    }
}

/// A queue of work on a device; launches on one stream run in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(pub u32);

/// One call of an operation on buffers. A buffer may be input and output at once.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// What to compute.
    pub op: &'a Op,
    /// Which of the backend's ways to compute it.
    pub variant: &'a str,
    /// Input buffers in the operation's order.
    pub inputs: &'a [&'a Buffer],
    /// Output buffers in the operation's order.
    pub outputs: &'a [&'a Buffer],
    /// Where to queue it.
    pub stream: Stream,
}

impl Launch<'_> {
    /// Requires the buffers to be of the types that the operation takes and gives.
    pub fn check(&self) -> Result<(), BackendError> {
        let types = |buffers: &[&Buffer]| -> Vec<_> {
            buffers.iter().map(|buffer| buffer.layout.ty.clone()).collect()
        };
        let (given, expected) = (types(self.outputs), self.op.signature(&types(self.inputs))?);
        if given == expected {
            return Ok(());
        }
        Err(BackendError::Outputs { op: self.op.name(), expected, given })
    }
}

/// Work that a graph records.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    /// A call. Its stream does not count.
    Launch(Launch<'a>),
    /// All bytes of a buffer, which every replay puts there: those of now, whatever becomes of
    /// the memory that they are given in.
    Upload {
        /// The buffer.
        buffer: &'a Buffer,
        /// Its bytes, guard zones and gaps included.
        bytes: &'a [u8],
    },
}

/// Work that was recorded, with the buffers it is done on.
pub trait Graph {
    /// Queues all of it again, in order.
    fn replay(&self) -> Result<(), BackendError>;

    /// The same on a stream: after what is queued there, and before what will be.
    fn replay_on(&self, stream: Stream) -> Result<(), BackendError> {
        if stream == Stream::default() {
            return self.replay();
        }
        Err(Unsupported("replays graphs on the first stream alone".to_owned()).into())
    }
}

/// An implementation of operations.
pub trait Backend: Send + Sync {
    /// Short name, the first part of a trial's name: `cpu`, `cuda`, `float8`.
    fn name(&self) -> &str;

    /// What it runs on.
    fn device(&self) -> Device;

    /// Whether it does this operation, and if not, why.
    fn supports(&self, op: &Op) -> Result<(), Unsupported>;

    /// The ways it can do a supported operation, the usual one first.
    fn variants(&self, op: &Op) -> Vec<String>;

    /// Whether `alloc`, `upload`, `launch` and `download` are implemented.
    fn stepwise(&self) -> bool {
        false
    }

    /// Memory of that layout, every byte set to its poison.
    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        let _ = layout;
        Err(BackendError::NotStepwise)
    }

    /// Replaces all bytes of a buffer, guard zones and gaps included: after what is queued on
    /// the first stream, and before what will be queued on any.
    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let _ = (buffer, bytes);
        Err(BackendError::NotStepwise)
    }

    /// Queues one call.
    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        let _ = launch;
        Err(BackendError::NotStepwise)
    }

    /// Bytes that the first element of every buffer must be aligned to, where a call does
    /// otherwise something else or nothing: libraries choose their kernels by it.
    fn alignment(&self, op: &Op, variant: &str) -> usize {
        let _ = (op, variant);
        1
    }

    /// Waits for the work queued on the buffer and returns all its bytes.
    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        let _ = buffer;
        Err(BackendError::NotStepwise)
    }

    /// Makes ready, in the background, what calls will need: compiled kernels, for one. They
    /// work without it, later.
    fn prepare(&self, calls: &[(&Op, &str)]) {
        let _ = calls;
    }

    /// The ways it can do a supported operation on inputs of these types: its variants, or more
    /// where shapes decide what there is.
    fn ways(&self, op: &Op, inputs: &[TensorType]) -> Result<Vec<String>, BackendError> {
        let _ = inputs;
        Ok(self.variants(op))
    }

    /// How a call is done, by name and value, where there is something to tell: the algorithm that
    /// a library chooses, for one. Nothing is launched.
    fn describe(&self, launch: Launch<'_>) -> Result<BTreeMap<String, String>, BackendError> {
        let _ = launch;
        Ok(BTreeMap::new())
    }

    /// How many streams run side by side: those numbered below this.
    fn streams(&self) -> u32 {
        1
    }

    /// Makes what will be queued on a stream wait for what is queued on another.
    fn order(&self, from: Stream, to: Stream) -> Result<(), BackendError> {
        let _ = (from, to);
        Err(Unsupported("does not order streams".to_owned()).into())
    }

    /// Waits for what is queued on a stream, or on all.
    fn wait(&self, stream: Option<Stream>) -> Result<(), BackendError> {
        let _ = stream;
        Err(Unsupported("does not wait for streams".to_owned()).into())
    }

    /// The variant that does the same without a workspace, where it uses one that it can do
    /// without.
    fn without_workspace(&self, op: &Op, variant: &str) -> Option<String> {
        let _ = (op, variant);
        None
    }

    /// Where a buffer begins in the memory of the device, if that is known.
    fn address(&self, buffer: &Buffer) -> Option<u64> {
        let _ = buffer;
        None
    }

    /// Whether calls can be recorded.
    fn has_graphs(&self) -> bool {
        false
    }

    /// Records calls, without running them, on the first stream.
    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let _ = calls;
        Err(BackendError::NoGraphs)
    }

    /// Records work, without doing it.
    fn record(&self, work: &[Work<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let calls = work.iter().map(|work| match *work {
            Work::Launch(call) => Ok(call),
            Work::Upload { .. } => Err(Unsupported("records no copies from the host".to_owned())),
        });
        self.capture(&calls.collect::<Result<Vec<_>, _>>()?)
    }

    /// The codes of some elements of each output, at row-major positions inside it, without
    /// computing the others. `None`: the operation has to be run whole.
    fn elements(
        &self,
        op: &Op,
        variant: &str,
        inputs: &[Tensor],
        positions: &[Vec<usize>],
    ) -> Result<Option<Vec<Vec<u64>>>, BackendError> {
        let _ = (op, variant, inputs, positions);
        Ok(None)
    }

    /// Computes the operation on host tensors.
    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let staged = Staged::launch(self, op, variant, inputs, Layout::contiguous)?;
        staged.outputs.iter().map(|buffer| Ok(buffer.layout.gather(&self.download(buffer)?)?)).collect()
    }
}

/// The buffers of one call.
pub struct Staged {
    /// Input buffers.
    pub inputs: Vec<Buffer>,
    /// Output buffers.
    pub outputs: Vec<Buffer>,
}

impl Staged {
    /// Allocates buffers laid out by `layout` and uploads the inputs.
    pub fn new<B: Backend + ?Sized>(
        backend: &B,
        op: &Op,
        inputs: &[Tensor],
        layout: impl Fn(TensorType) -> Layout,
    ) -> Result<Self, BackendError> {
        let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let outputs = op.signature(&types)?;
        let inputs = inputs
            .iter()
            .map(|tensor| {
                let layout = layout(tensor.ty().clone());
                let buffer = backend.alloc(&layout)?;
                let mut bytes = vec![layout.poison; layout.total()?];
                layout.scatter(tensor, &mut bytes);
                backend.upload(&buffer, &bytes)?;
                Ok(buffer)
            })
            .collect::<Result<Vec<_>, BackendError>>()?;
        let outputs =
            outputs.into_iter().map(|ty| backend.alloc(&layout(ty))).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { inputs, outputs })
    }

    /// The same, and launches the call.
    pub fn launch<B: Backend + ?Sized>(
        backend: &B,
        op: &Op,
        variant: &str,
        inputs: &[Tensor],
        layout: impl Fn(TensorType) -> Layout,
    ) -> Result<Self, BackendError> {
        let staged = Self::new(backend, op, inputs, layout)?;
        staged.with_call(op, variant, Stream::default(), |call| backend.launch(call))?;
        Ok(staged)
    }

    /// Does something with the call on these buffers: launches or captures it.
    pub fn with_call<T>(
        &self,
        op: &Op,
        variant: &str,
        stream: Stream,
        act: impl FnOnce(Launch<'_>) -> T,
    ) -> T {
        let inputs: Vec<_> = self.inputs.iter().collect();
        let outputs: Vec<_> = self.outputs.iter().collect();
        act(Launch { op, variant, inputs: &inputs, outputs: &outputs, stream })
    }
}
