//! The reference as a backend.

use crate::backend::{
    Backend, BackendError, Buffer, Device, Graph, Launch, Layout, Stream, Unsupported, Work,
};
use crate::fast::Simd;
use crate::ops::Op;
use crate::{Path, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// The CPU reference. All its variants give the same bits:
///
/// | variant | what runs |
/// |---|---|
/// | `avx512`, `avx2`, `portable` | the fast path on that instruction set and rayon's threads |
/// | `parallel` | the definition on rayon's threads |
/// | `definition` | the definition in one loop |
///
/// Those on SIMD registers are there for operations and parameters that have a
/// [`fast`](crate::fast) path, each on processors that have the instructions.
///
/// Every call is done when it is queued, so its two streams are in order whatever is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

/// The variants of an operation, the fastest first.
fn variants(op: &Op) -> impl Iterator<Item = (&'static str, Path)> {
    let fast = op.has_fast_path().then(|| Simd::all().map(|simd| (simd.name(), Path::Simd(simd))));
    fast.into_iter().flatten().chain([("parallel", Path::Parallel), ("definition", Path::Definition)])
}

fn path_of(op: &Op, variant: &str) -> Result<Path, BackendError> {
    let found = variants(op).find(|(name, _)| *name == variant);
    found.map(|(_, path)| path).ok_or_else(|| BackendError::Variant {
        op: op.name(),
        variant: variant.to_owned(),
        known: variants(op).map(|(name, _)| name.to_owned()).collect(),
    })
}

/// Shared with the graphs that work on it.
type HostMemory = Arc<Mutex<Vec<u8>>>;

fn with_bytes<T>(buffer: &Buffer, f: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T, BackendError> {
    let mut bytes = buffer.memory::<HostMemory>()?.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(f(&mut bytes))
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn device(&self) -> Device {
        Device {
            name: format!("{} CPU", std::env::consts::ARCH),
            properties: [("threads".to_owned(), rayon::current_num_threads().to_string())].into(),
        }
    }

    fn supports(&self, _: &Op) -> Result<(), Unsupported> {
        Ok(())
    }

    fn variants(&self, op: &Op) -> Vec<String> {
        variants(op).map(|(name, _)| name.to_owned()).collect()
    }

    fn stepwise(&self) -> bool {
        true
    }

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        let bytes = vec![layout.poison; layout.total()?];
        Ok(Buffer::new(layout.clone(), HostMemory::new(Mutex::new(bytes))))
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        with_bytes(buffer, |memory| {
            if memory.len() != bytes.len() {
                return Err(BackendError::BufferSize { given: bytes.len(), expected: memory.len() });
            }
            memory.copy_from_slice(bytes);
            Ok(())
        })?
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        launch.check()?;
        let inputs = launch
            .inputs
            .iter()
            .map(|buffer| Ok(with_bytes(buffer, |bytes| buffer.layout().gather(bytes))??))
            .collect::<Result<Vec<_>, BackendError>>()?;
        let results = self.run(launch.op, launch.variant, &inputs)?;
        for (buffer, result) in launch.outputs.iter().zip(&results) {
            with_bytes(buffer, |bytes| buffer.layout().scatter(result, bytes))?;
        }
        Ok(())
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        with_bytes(buffer, |bytes| bytes.clone())
    }

    fn streams(&self) -> u32 {
        2
    }

    fn order(&self, _: Stream, _: Stream) -> Result<(), BackendError> {
        Ok(())
    }

    fn wait(&self, _: Option<Stream>) -> Result<(), BackendError> {
        Ok(())
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        self.record(&calls.iter().copied().map(Work::Launch).collect::<Vec<_>>())
    }

    fn record(&self, work: &[Work<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let work = work.iter().map(Recorded::new).collect::<Result<_, _>>()?;
        Ok(Box::new(CpuGraph(work)))
    }

    fn elements(
        &self,
        op: &Op,
        variant: &str,
        inputs: &[Tensor],
        positions: &[Vec<usize>],
    ) -> Result<Option<Vec<Vec<u64>>>, BackendError> {
        let path = path_of(op, variant)?;
        let Op::Gemm(gemm) = op else { return Ok(None) };
        let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        op.signature(&types)?;
        Ok(Some(positions.iter().map(|positions| gemm.at(inputs, positions, path)).collect()))
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Ok(op.evaluate(inputs, path_of(op, variant)?)?)
    }
}

/// Work to be done again.
struct CpuGraph(Vec<Recorded>);

enum Recorded {
    Launch { op: Box<Op>, variant: String, inputs: Vec<Buffer>, outputs: Vec<Buffer> },
    Upload { buffer: Buffer, bytes: Vec<u8> },
}

impl Recorded {
    fn new(work: &Work<'_>) -> Result<Self, BackendError> {
        let shared = |buffer: &Buffer| {
            Ok(Buffer::new(buffer.layout().clone(), buffer.memory::<HostMemory>()?.clone()))
        };
        let all = |buffers: &[&Buffer]| {
            buffers.iter().map(|buffer| shared(buffer)).collect::<Result<_, BackendError>>()
        };
        match work {
            Work::Launch(call) => {
                call.check()?;
                path_of(call.op, call.variant)?;
                Ok(Self::Launch {
                    op: Box::new(call.op.clone()),
                    variant: call.variant.to_owned(),
                    inputs: all(call.inputs)?,
                    outputs: all(call.outputs)?,
                })
            }
            Work::Upload { buffer, bytes } => {
                let (given, expected) = (bytes.len(), buffer.layout().total()?);
                if given != expected {
                    return Err(BackendError::BufferSize { given, expected });
                }
                Ok(Self::Upload { buffer: shared(buffer)?, bytes: bytes.to_vec() })
            }
        }
    }

    fn replay(&self) -> Result<(), BackendError> {
        match self {
            Self::Upload { buffer, bytes } => Cpu.upload(buffer, bytes),
            Self::Launch { op, variant, inputs, outputs } => {
                let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.iter().collect(), outputs.iter().collect());
                let stream = Stream::default();
                Cpu.launch(Launch { op, variant, inputs: &inputs, outputs: &outputs, stream })
            }
        }
    }
}

impl Graph for CpuGraph {
    fn replay(&self) -> Result<(), BackendError> {
        self.0.iter().try_for_each(Recorded::replay)
    }

    fn replay_on(&self, _: Stream) -> Result<(), BackendError> {
        self.replay()
    }
}
