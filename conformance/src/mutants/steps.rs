//! Right outputs, and memory, streams or graphs that are not as they must be.

use super::VARIANT;
use plumbline_reference::backend::{
    Backend, BackendError, Buffer, Device, Graph, Launch, Layout, Stream, Unsupported, Work,
};
use plumbline_reference::ops::Op;
use plumbline_reference::{Cpu, Path, Tensor};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a call does beside what it is for, or leaves undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFault {
    /// Writes a byte after each output.
    PastEnd,
    /// Writes a byte before each output.
    BeforeStart,
    /// Writes a byte between the elements of an output that has strides.
    Gap,
    /// Writes the elements of an output one after the other, whatever its strides.
    StridesIgnored,
    /// Changes the last byte of the last input.
    InputWritten,
    /// Leaves the first element of each output unwritten.
    FirstUnwritten,
    /// Leaves the last element of each output unwritten.
    LastUnwritten,
    /// Leaves what is left after whole groups of so many elements unwritten.
    TailUnwritten(usize),
    /// Gives what depends on the byte after an input.
    ReadsPastEnd,
    /// Gives what depends on the byte before an input.
    ReadsBefore,
    /// Gives what depends on what an output held before.
    ReadsOutput,
    /// Gives another bit at every third call.
    EveryThird,
    /// Gives another bit where an output does not begin at a boundary of 16 bytes.
    Misaligned,
    /// Two streams share one scratch buffer: the later call takes the earlier one's result.
    SharedScratch,
    /// A graph computes from what its inputs held when it was recorded.
    GraphBakesInputs,
    /// A graph does its work at its first replay alone.
    ReplaysOnce,
    /// A graph leaves out its last work.
    GraphLastLost,
    /// A graph does its work in the opposite order.
    GraphReversed,
    /// A buffer keeps what was put into it first.
    UploadLost,
    /// A call on the same buffers is taken for done.
    CallCached,
    /// Inputs that do not fit are taken, and nothing is said.
    MisfitAccepted,
    /// Inputs that do not fit are refused, after something was written.
    MisfitWritten,
}

/// The reference on memory of the caller's, with one fault.
pub(super) struct Faulty {
    fault: StepFault,
    buffers: AtomicU32,
    calls: AtomicU32,
    scratch: Mutex<Option<(Stream, Tensor)>>,
    done: Mutex<BTreeSet<String>>,
}

/// Memory of the reference, and what is known of it.
struct Block {
    inner: Buffer,
    number: u32,
    is_filled: AtomicBool,
}

fn block(buffer: &Buffer) -> Result<&Block, BackendError> {
    buffer.memory::<Block>()
}

fn inner<'a>(buffers: &[&'a Buffer]) -> Result<Vec<&'a Buffer>, BackendError> {
    buffers.iter().map(|buffer| Ok(&block(buffer)?.inner)).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reference as graphs need it: for ever.
static CPU: Cpu = Cpu;

/// Where the elements of a buffer begin and end.
fn ends(layout: &Layout) -> Result<(usize, usize), BackendError> {
    let start = layout.guard + layout.offset;
    Ok((start, start + layout.span()?))
}

/// The reference's usual variant.
fn usual(op: &Op) -> String {
    Cpu.variants(op).into_iter().next().unwrap_or_default()
}

impl Faulty {
    pub(super) fn new(fault: StepFault) -> Self {
        Self {
            fault,
            buffers: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            scratch: Mutex::default(),
            done: Mutex::default(),
        }
    }

    /// The byte beside each input that the fault reads, if it reads one.
    fn read_outside(&self, inputs: &[&Buffer]) -> Result<u8, BackendError> {
        let mut read = 0;
        for input in inputs {
            let (start, end) = ends(input.layout())?;
            let bytes = Cpu.download(input)?;
            let at = match self.fault {
                StepFault::ReadsPastEnd => Some(end),
                StepFault::ReadsBefore => start.checked_sub(1),
                _ => None,
            };
            // Inputs side by side must not cancel.
            read |= at.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        }
        Ok(read)
    }

    /// Changes the bytes of an output after the call. `before` is what it held.
    fn spoil(
        &self,
        layout: &Layout,
        before: &[u8],
        read: u8,
        calls: u32,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        let len = layout.ty.elements()?;
        if len == 0 {
            return Ok(());
        }
        let ((start, end), width) = (ends(layout)?, layout.ty.dtype.bytes());
        let last = layout.byte_of(len - 1);
        let restore = |bytes: &mut [u8], index: usize| {
            let at = layout.byte_of(index);
            bytes[at..at + width].copy_from_slice(&before[at..at + width]);
        };
        let is_strided = layout.strides != layout.ty.contiguous_strides();
        match self.fault {
            StepFault::PastEnd => flip(bytes, Some(end), 0xff),
            StepFault::BeforeStart => flip(bytes, start.checked_sub(1), 0xff),
            StepFault::Gap if is_strided => {
                let elements: BTreeSet<_> = (0..len).map(|index| layout.byte_of(index)).collect();
                flip(bytes, (start..end).step_by(width).find(|at| !elements.contains(at)), 0xff);
            }
            StepFault::StridesIgnored if is_strided => {
                let dense = Layout { strides: layout.ty.contiguous_strides(), ..layout.clone() };
                let tensor = layout.gather(bytes)?;
                bytes.copy_from_slice(before);
                dense.scatter(&tensor, bytes);
            }
            StepFault::FirstUnwritten => restore(bytes, 0),
            StepFault::LastUnwritten => restore(bytes, len - 1),
            StepFault::TailUnwritten(group) => {
                (len - len % group..len).for_each(|index| restore(bytes, index));
            }
            StepFault::ReadsPastEnd | StepFault::ReadsBefore => flip(bytes, Some(start), read & 1),
            StepFault::ReadsOutput => flip(bytes, Some(start), before[start] & 1),
            StepFault::EveryThird if calls % 3 == 2 => flip(bytes, Some(last), 1),
            StepFault::Misaligned if !layout.offset.is_multiple_of(16) => flip(bytes, Some(last), 1),
            _ => (),
        }
        Ok(())
    }

    /// Exchanges the result of a call for that of the one before it on another stream.
    fn share(&self, launch: &Launch<'_>, output: &Buffer) -> Result<(), BackendError> {
        let layout = output.layout();
        let own = layout.gather(&Cpu.download(output)?)?.to_contiguous();
        let mut scratch = locked(&self.scratch);
        if let Some((stream, other)) = &*scratch
            && (*stream != launch.stream && other.ty() == own.ty())
        {
            let mut bytes = Cpu.download(output)?;
            layout.scatter(other, &mut bytes);
            Cpu.upload(output, &bytes)?;
        }
        *scratch = Some((launch.stream, own));
        Ok(())
    }

    /// Copies of buffers, with what they hold now.
    fn copies(buffers: &[&Buffer]) -> Result<Vec<Buffer>, BackendError> {
        let copy = |buffer: &&Buffer| {
            let copy = Cpu.alloc(buffer.layout())?;
            Cpu.upload(&copy, &Cpu.download(buffer)?)?;
            Ok(copy)
        };
        buffers.iter().map(copy).collect()
    }
}

/// Flips bits of a byte, if there is one.
fn flip(bytes: &mut [u8], at: Option<usize>, bits: u8) {
    if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
        *byte ^= bits;
    }
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        VARIANT
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        Cpu.supports(op)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANT.to_owned()]
    }

    fn stepwise(&self) -> bool {
        true
    }

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        let number = self.buffers.fetch_add(1, Relaxed);
        let block = Block { inner: Cpu.alloc(layout)?, number, is_filled: AtomicBool::new(false) };
        Ok(Buffer::new(layout.clone(), block))
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let block = block(buffer)?;
        if block.is_filled.swap(true, Relaxed) && self.fault == StepFault::UploadLost {
            return Ok(());
        }
        Cpu.upload(&block.inner, bytes)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        let (inputs, outputs) = (inner(launch.inputs)?, inner(launch.outputs)?);
        let variant = usual(launch.op);
        let call = Launch { variant: &variant, inputs: &inputs, outputs: &outputs, ..launch };
        if self.fault == StepFault::CallCached {
            let buffers = launch.inputs.iter().chain(launch.outputs);
            let numbers =
                buffers.map(|buffer| Ok(block(buffer)?.number)).collect::<Result<Vec<_>, BackendError>>()?;
            if !locked(&self.done).insert(format!("{:?} {numbers:?}", launch.op)) {
                return Ok(());
            }
        }
        let before: Vec<_> = outputs.iter().map(|output| Cpu.download(output)).collect::<Result<_, _>>()?;
        let read = self.read_outside(&inputs)?;
        let calls = self.calls.fetch_add(1, Relaxed);
        match (Cpu.launch(call), self.fault) {
            (Err(BackendError::Signature(_)), StepFault::MisfitAccepted) => return Ok(()),
            (Err(error @ BackendError::Signature(_)), StepFault::MisfitWritten) => {
                for output in outputs {
                    let mut bytes = Cpu.download(output)?;
                    flip(&mut bytes, Some(ends(output.layout())?.0), 0xff);
                    Cpu.upload(output, &bytes)?;
                }
                return Err(error);
            }
            (result, _) => result?,
        }
        for (output, before) in outputs.iter().zip(&before) {
            let right = Cpu.download(output)?;
            let mut bytes = right.clone();
            self.spoil(output.layout(), before, read, calls, &mut bytes)?;
            if bytes != right {
                Cpu.upload(output, &bytes)?;
            }
        }
        match (self.fault, inputs.last(), outputs.first()) {
            (StepFault::InputWritten, Some(input), _) => {
                let mut bytes = Cpu.download(input)?;
                flip(&mut bytes, ends(input.layout())?.1.checked_sub(1), 1);
                Cpu.upload(input, &bytes)
            }
            (StepFault::SharedScratch, _, Some(output)) => self.share(&launch, output),
            _ => Ok(()),
        }
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        *locked(&self.scratch) = None;
        Cpu.download(&block(buffer)?.inner)
    }

    fn streams(&self) -> u32 {
        Cpu.streams()
    }

    fn order(&self, from: Stream, to: Stream) -> Result<(), BackendError> {
        Cpu.order(from, to)
    }

    fn wait(&self, stream: Option<Stream>) -> Result<(), BackendError> {
        Cpu.wait(stream)
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        self.record(&calls.iter().copied().map(Work::Launch).collect::<Vec<_>>())
    }

    fn record(&self, work: &[Work<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let mut graphs = Vec::new();
        for work in work {
            graphs.push(match *work {
                Work::Upload { buffer, bytes } => {
                    CPU.record(&[Work::Upload { buffer: &block(buffer)?.inner, bytes }])?
                }
                Work::Launch(call) => {
                    let (inputs, outputs) = (inner(call.inputs)?, inner(call.outputs)?);
                    let baked = match self.fault {
                        StepFault::GraphBakesInputs => Self::copies(&inputs)?,
                        _ => Vec::new(),
                    };
                    let inputs = if baked.is_empty() { inputs } else { baked.iter().collect() };
                    let variant = usual(call.op);
                    CPU.capture(&[Launch { variant: &variant, inputs: &inputs, outputs: &outputs, ..call }])?
                }
            });
        }
        match self.fault {
            StepFault::GraphLastLost => drop(graphs.pop()),
            StepFault::GraphReversed => graphs.reverse(),
            _ => (),
        }
        let once = self.fault == StepFault::ReplaysOnce;
        Ok(Box::new(Recorded { graphs, once, is_done: AtomicBool::new(false) }))
    }

    fn run(&self, op: &Op, _: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Ok(op.evaluate(inputs, Path::fastest())?)
    }
}

/// Graphs of one work each.
struct Recorded {
    graphs: Vec<Box<dyn Graph>>,
    once: bool,
    is_done: AtomicBool,
}

impl Graph for Recorded {
    fn replay(&self) -> Result<(), BackendError> {
        if self.once && self.is_done.swap(true, Relaxed) {
            return Ok(());
        }
        self.graphs.iter().try_for_each(|graph| graph.replay())
    }

    fn replay_on(&self, _: Stream) -> Result<(), BackendError> {
        self.replay()
    }
}
