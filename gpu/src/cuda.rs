//! CUDA as a backend.
#![allow(unsafe_code)]

mod checked;
mod ready;
mod recorded;
mod scratch;

use crate::blas::product::{CUBLASLT, NO_WORKSPACE};
use crate::blas::{self, Lane, Lt, Refusal};
use crate::defect::{Defect, TOO_MUCH};
use crate::device::{Component, ComputeCapability, DeviceInfo, Fault, Probe};
use crate::error::{CudaError, Named};
use crate::memory::Memory;
use crate::module::{Cache, Cubins, Unit, compiler};
use crate::ops;
use crate::plan::{Call, Step, View};
use checked::Checked;
use cudarc::driver::{CudaContext, CudaFunction, result, sys};
use cudarc::nvrtc::Ptx;
use plumbline_reference::TensorType;
use plumbline_reference::backend::{
    Backend, BackendError, Buffer, Device, Graph, Launch, Layout, Stream, Unsupported, Work,
};
use plumbline_reference::ops::{Cast, Op};
use ready::{Ready, parameters};
use scratch::Scratch;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How many streams run side by side.
const STREAMS: usize = 2;

/// A CUDA device as a backend. Nothing is created on the device before the first call that
/// needs it, so listing what a device does costs no context.
pub struct Cuda {
    info: DeviceInfo,
    properties: BTreeMap<String, String>,
    /// The libraries that cannot be used, and why.
    missing: Vec<(Component, Fault)>,
    cubins: Arc<Cubins>,
    defect: Option<Defect>,
    /// How many of cuBLASLt's algorithms are variants of their own.
    algorithms: u32,
    session: OnceLock<Result<Session, CudaError>>,
}

/// What lives on the device.
struct Session {
    context: Arc<CudaContext>,
    lanes: [Lane; STREAMS],
    /// Made when first needed.
    lt: OnceLock<Arc<Lt>>,
    functions: Mutex<HashMap<(String, &'static str), Function>>,
    scratch: Scratch,
    /// The kernel or library call that was queued last: errors show up later than where they arise.
    queued: Mutex<String>,
}

/// A launch that can be queued.
struct Queueable {
    steps: Vec<Ready>,
    /// What its steps keep values in, which must live until they have ended.
    scratch: Option<Memory>,
}

/// A loaded kernel.
#[derive(Clone)]
struct Function {
    function: CudaFunction,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
}

impl Cuda {
    /// A device that the probe found.
    #[must_use]
    pub fn new(probe: &Probe, device: &DeviceInfo, cache: Cache) -> Self {
        let mut properties = BTreeMap::from([
            ("compute capability".to_owned(), device.compute_capability.to_string()),
            ("multiprocessors".to_owned(), device.multiprocessors.to_string()),
            ("ordinal".to_owned(), device.ordinal.to_string()),
        ]);
        if let Ok(driver) = &probe.driver {
            properties.insert("cuda".to_owned(), driver.cuda.to_string());
            properties.extend(driver.kernel.clone().map(|version| ("driver".to_owned(), version)));
        }
        let libraries = [("nvrtc", &probe.nvrtc), ("cublas", &probe.cublas), ("cublaslt", &probe.cublaslt)];
        for (name, library) in libraries {
            if let Ok(library) = library {
                properties.insert(name.to_owned(), library.version.to_string());
            }
        }
        let cubins = Arc::new(Cubins::new(device.compute_capability, cache));
        let libraries = [Component::Cublas, Component::CublasLt].into_iter();
        let missing = libraries.filter_map(|library| Some((library, probe.recent(library).err()?))).collect();
        Self {
            info: device.clone(),
            properties,
            missing,
            cubins,
            defect: None,
            algorithms: 0,
            session: OnceLock::new(),
        }
    }

    /// The same with a deliberate defect.
    #[must_use]
    pub fn with_defect(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }

    /// The same with so many of the algorithms that cuBLASLt's heuristic offers as variants of
    /// their own: `cublaslt/0`, the first choice, and on. A call for which it offers fewer
    /// is unsupported by the others.
    #[must_use]
    pub fn with_algorithms(self, algorithms: u32) -> Self {
        Self { algorithms, ..self }
    }

    /// The device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its compute capability.
    #[must_use]
    pub fn arch(&self) -> ComputeCapability {
        self.info.compute_capability
    }

    /// The variant that does a conversion by one instruction, where there is one.
    pub const INSTRUCTION: &'static str = ops::CVT;

    /// The device's conversion instructions by their PTX opcodes, each with the cast that it
    /// does in the variant [`Self::INSTRUCTION`].
    #[must_use]
    pub fn instructions(&self) -> Vec<(Cast, &'static str)> {
        ops::instructions(self.arch())
    }

    /// The ways to do an operation here, or why there is none.
    fn listed(&self, op: &Op) -> Result<Vec<&'static str>, Unsupported> {
        let mut variants = ops::variants(op, self.arch())?;
        let fault = |variant: &str| {
            let library = ops::library(op, variant)?;
            self.missing.iter().find(|(missing, _)| *missing == library).map(|(_, fault)| fault)
        };
        let why = variants.iter().find_map(|variant| fault(variant));
        variants.retain(|variant| fault(variant).is_none());
        match why {
            Some(why) if variants.is_empty() => Err(Unsupported(format!("{why}; {}", why.remedy()))),
            _ => Ok(variants),
        }
    }

    /// Requires a variant to be one of those listed, or a numbered one of a library that is.
    fn check_variant(&self, op: &Op, variant: &str) -> Result<(), BackendError> {
        let known = self.listed(op).unwrap_or_default();
        let library = ops::library(op, variant);
        let is_of = |listed: &&str| library.is_some() && ops::library(op, listed) == library;
        if known.iter().any(|listed| *listed == variant || is_of(listed)) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(BackendError::Variant { op: op.name(), variant: variant.to_owned(), known })
    }

    fn session(&self) -> Result<&Session, BackendError> {
        let session = self.session.get_or_init(|| Session::new(&self.info)).as_ref();
        let session = session.map_err(|error| error.clone().failed())?;
        session.bind().map_err(|error| session.fault(error))?;
        Ok(session)
    }

    /// The steps of a launch, with all its kernels loaded, and the scratch memory that they use.
    fn ready(&self, session: &Session, launch: Launch<'_>) -> Result<Queueable, BackendError> {
        launch.check()?;
        self.check_variant(launch.op, launch.variant)?;
        let views =
            |buffers: &[&Buffer]| buffers.iter().map(|buffer| view(buffer)).collect::<Result<Vec<_>, _>>();
        let (inputs, outputs) = (views(launch.inputs)?, views(launch.outputs)?);
        let all_contiguous = inputs.iter().chain(&outputs).all(View::is_contiguous);
        if !all_contiguous && !ops::takes_strides(launch.op) {
            return Err(Unsupported("takes contiguous tensors".to_owned()).into());
        }
        for (i, input) in inputs.iter().enumerate() {
            let same = |output: &View| output.count() > 0 && output.address == input.address;
            if outputs.iter().enumerate().any(|(j, output)| !ops::may_share(launch.op, i, j) && same(output))
            {
                return Err(Unsupported(format!("input {i} and another output share a buffer")).into());
            }
        }
        let defect = self.defect.filter(|_| Defect::affects(launch.op));
        if defect == Some(Defect::Exit) {
            std::process::exit(0);
        }
        let types: Vec<_> = inputs.iter().map(|view| view.ty.clone()).collect();
        let bytes = ops::scratch(launch.op, launch.variant, &types)?;
        let memory = || session.scratch.take(&session.context, bytes);
        let scratch = memory().map_err(|error| session.fault(error))?;
        let address = scratch.as_ref().map_or(0, |memory| memory.address);
        let steps = match defect.and_then(|defect| defect.plan(&inputs[0], &outputs[0])) {
            Some(steps) => steps,
            None => ops::plan(launch.op, launch.variant, address, &inputs, &outputs)?,
        };
        if defect == Some(Defect::OutOfMemory) {
            session.allocate(TOO_MUCH).map_err(|error| session.fault(error))?;
        }
        // What a step reads before another has written it shows.
        let poison = (bytes > 0).then_some(Ready::Fill { address, bytes, value: scratch::POISON });
        let steps = steps.into_iter().map(|step| session.ready(step, &self.cubins));
        let steps = poison.into_iter().map(Ok).chain(steps).collect::<Result<_, _>>()?;
        Ok(Queueable { steps, scratch })
    }

    /// Steps that are no launch of an operation, with their kernels loaded: what sweeps and
    /// measurements are made of.
    pub(crate) fn load(&self, steps: Vec<Step>) -> Result<Prepared<'_>, BackendError> {
        let session = self.session()?;
        let ready = steps.into_iter().map(|step| session.ready(step, &self.cubins));
        let steps = ready.collect::<Result<_, _>>()?;
        Ok(Prepared { session, steps })
    }

    /// What `work` gives, and how many milliseconds of the device's time it took.
    pub(crate) fn timed<T>(
        &self,
        work: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<(T, f32), BackendError> {
        let session = self.session()?;
        session.timed(&session.lanes[0], work)
    }
}

/// Steps ready to be queued.
pub(crate) struct Prepared<'a> {
    session: &'a Session,
    steps: Vec<Ready>,
}

impl Prepared<'_> {
    /// Queues all of them on the first stream.
    pub(crate) fn queue(&self) -> Result<(), BackendError> {
        let lane = &self.session.lanes[0];
        let queued = self.steps.iter().try_for_each(|step| self.session.queue(step, lane));
        queued.map_err(|error| self.session.fault(error))
    }
}

impl Session {
    fn new(device: &DeviceInfo) -> Result<Self, CudaError> {
        compiler()?;
        let context = CudaContext::new(device.ordinal as usize).named("cuDevicePrimaryCtxRetain")?;
        // SAFETY: every buffer is a plain allocation that this module orders itself: it is
        // freed and read only after all work has ended.
        unsafe { context.disable_event_tracking() };
        let lanes = [Lane::new(&context)?, Lane::new(&context)?];
        let (lt, functions, queued) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Ok(Self { context, lanes, lt, functions, scratch: Scratch::default(), queued })
    }

    fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().named("cuCtxSetCurrent")
    }

    fn lane(&self, stream: Stream) -> Result<&Lane, BackendError> {
        self.lanes.get(stream.0 as usize).ok_or_else(|| BackendError::Failed {
            call: format!("stream {}", stream.0),
            why: format!("there are {STREAMS} streams, from 0"),
        })
    }

    /// What `work` gives, and how many milliseconds passed on the stream meanwhile.
    fn timed<T>(
        &self,
        lane: &Lane,
        work: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<(T, f32), BackendError> {
        let event = || {
            let event = lane.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
            event.named("cuEventRecord").map_err(|error| self.fault(error))
        };
        let start = event()?;
        let value = work()?;
        let end = event()?;
        let millis = start.elapsed_ms(&end).named("cuEventElapsedTime");
        Ok((value, millis.map_err(|error| self.fault(error))?))
    }

    fn queue(&self, step: &Ready, lane: &Lane) -> Result<(), CudaError> {
        let name = match step {
            Ready::Kernel { call, .. } => Some(format!("{} of {}", call.entry, call.unit)),
            Ready::Product(call) => Some(call.function().to_owned()),
            Ready::Fill { .. } | Ready::Copy { .. } | Ready::Upload { .. } => None,
        };
        if let Some(name) = name {
            *self.queued.lock().unwrap_or_else(PoisonError::into_inner) = name;
        }
        step.queue(lane)
    }

    /// The handle of cuBLASLt. Nothing asks for it where the library is missing.
    fn lt(&self) -> Result<Arc<Lt>, CudaError> {
        blas::once(&self.lt, || Lt::new(&self.context).map(Arc::new)).cloned()
    }

    /// Why a product is not made ready, as the backend's error.
    fn refused(&self, refusal: Refusal) -> BackendError {
        match refusal {
            Refusal::Unsupported(why) => why.into(),
            Refusal::Cuda(error) => self.fault(error),
        }
    }

    /// Makes what will be queued on a stream wait for what is queued on another.
    fn order(&self, from: &Lane, to: &Lane) -> Result<(), BackendError> {
        let ordered = to.stream.join(&from.stream).named("cuStreamWaitEvent");
        ordered.map_err(|error| self.fault(error))
    }

    /// Waits for all work on the device.
    fn synchronize(&self) -> Result<(), CudaError> {
        self.context.synchronize().named("cuCtxSynchronize")
    }

    /// An error as the backend's: a sticky one, which every later call returns too, means
    /// that the process has lost the device.
    fn fault(&self, error: CudaError) -> BackendError {
        // Some errors only show at the next synchronisation; one that is still there at the
        // one after that does not go away.
        let _ = self.synchronize();
        match self.synchronize() {
            Ok(()) => error.failed(),
            Err(_) => {
                let queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
                error.after(&queued).lost()
            }
        }
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, CudaError> {
        Memory::new(&self.context, bytes)
    }

    fn function(&self, unit: &Unit, entry: &'static str, cubins: &Cubins) -> Result<Function, CudaError> {
        let key = (unit.to_string(), entry);
        let functions = || self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions().get(&key) {
            return Ok(function.clone());
        }
        let cubin = cubins.get(unit)?;
        let module = self.context.load_module(Ptx::from_binary(cubin)).named("cuModuleLoadData")?;
        let function = module.load_function(entry).named(format!("cuModuleGetFunction of {entry}"))?;
        let parameters = parameters(&function)?;
        let function = Function { function, parameters };
        functions().insert(key, function.clone());
        Ok(function)
    }

    fn ready(&self, step: Step, cubins: &Cubins) -> Result<Ready, BackendError> {
        match step {
            Step::Zero { address, bytes } => Ok(Ready::Fill { address, bytes, value: 0 }),
            Step::Copy { from, to, bytes } => Ok(Ready::Copy { from, to, bytes }),
            Step::Kernel(call) => self.kernel(call, cubins).map_err(|error| self.fault(error)),
            Step::Product(product) => {
                let call = blas::Call::new(*product, || self.lt());
                Ok(Ready::Product(Box::new(call.map_err(|refusal| self.refused(refusal))?)))
            }
        }
    }

    fn kernel(&self, call: Call, cubins: &Cubins) -> Result<Ready, CudaError> {
        let function = self.function(&call.unit, call.entry, cubins)?;
        let given: Vec<_> = call.arguments.iter().map(|argument| argument.len).collect();
        let entry = || format!("{} of {}", call.entry, call.unit);
        if given != function.parameters {
            return Err(CudaError::Arguments { entry: entry(), expected: function.parameters, given });
        }
        if call.shared > 0 {
            // A kernel may have more than 48 KiB only where that is asked for.
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let set = function.function.set_attribute(attribute, call.shared as i32);
            set.named(format!("cuFuncSetAttribute of {}", entry()))?;
        }
        match u32::try_from(call.blocks) {
            Ok(blocks) if blocks <= i32::MAX as u32 => {
                Ok(Ready::Kernel { function: function.function, call, blocks })
            }
            _ => Err(CudaError::Grid { entry: entry(), blocks: call.blocks }),
        }
    }
}

type Shared = Arc<Memory>;

/// The elements of a buffer.
pub(crate) fn view(buffer: &Buffer) -> Result<View, BackendError> {
    let (memory, layout) = (buffer.memory::<Shared>()?, buffer.layout());
    let address = memory.address + (layout.guard + layout.offset) as u64;
    if !address.is_multiple_of(layout.ty.dtype.bytes() as u64) {
        return Err(Unsupported("takes elements aligned to their size".to_owned()).into());
    }
    Ok(View { address, ty: layout.ty.clone(), strides: layout.strides.clone() })
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        "cuda"
    }

    fn device(&self) -> Device {
        Device { name: self.info.name.clone(), properties: self.properties.clone() }
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        self.listed(op).map(drop)
    }

    fn variants(&self, op: &Op) -> Vec<String> {
        let listed = self.listed(op).unwrap_or_default();
        let numbered = if listed.contains(&CUBLASLT) { self.algorithms } else { 0 };
        let numbered = (0..numbered).map(|i| format!("{CUBLASLT}/{i}"));
        listed.into_iter().map(str::to_owned).chain(numbered).collect()
    }

    fn stepwise(&self) -> bool {
        true
    }

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        let session = self.session()?;
        let bytes = layout.total()?;
        let allocate = || {
            let memory = session.allocate(bytes)?;
            if bytes > 0 {
                let stream = &session.lanes[0].stream;
                // SAFETY: all bytes of the allocation.
                unsafe { result::memset_d8_async(memory.address, layout.poison, bytes, stream.cu_stream()) }
                    .named("cuMemsetD8Async")?;
                stream.synchronize().named("cuStreamSynchronize")?;
            }
            Ok(memory)
        };
        let memory = allocate().map_err(|error| session.fault(error))?;
        Ok(Buffer::new(layout.clone(), Shared::new(memory)))
    }

    fn alignment(&self, op: &Op, variant: &str) -> usize {
        // An allocation's own; cuBLASLt's heuristic looks no further.
        if ops::library(op, variant).is_some() { 256 } else { ops::alignment(op, variant) }
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let memory = buffer.memory::<Shared>()?;
        if memory.bytes != bytes.len() {
            return Err(BackendError::BufferSize { given: bytes.len(), expected: memory.bytes });
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let session = self.session()?;
        let stream = &session.lanes[0].stream;
        let copy = || {
            // A copy on the default stream may return before it has ended, and the streams
            // here do not wait for that one.
            // SAFETY: both sides have that many bytes; the source outlives the copy, which is
            // waited for.
            unsafe { result::memcpy_htod_async(memory.address, bytes, stream.cu_stream()) }
                .named("cuMemcpyHtoDAsync")?;
            stream.synchronize().named("cuStreamSynchronize")
        };
        copy().map_err(|error| session.fault(error))
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        let session = self.session()?;
        let lane = session.lane(launch.stream)?;
        let Queueable { steps, scratch } = self.ready(session, launch)?;
        if let Some(checked) = Checked::of(launch)? {
            checked.check(session, lane)?;
        }
        let queue = || {
            steps.iter().try_for_each(|step| session.queue(step, lane))?;
            scratch.map_or(Ok(()), |memory| session.scratch.give_back(memory, &lane.stream))
        };
        queue().map_err(|error| session.fault(error))
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        let memory = buffer.memory::<Shared>()?;
        let session = self.session()?;
        let mut bytes = vec![0; memory.bytes];
        let copy = |bytes: &mut [u8]| {
            session.synchronize()?;
            if bytes.is_empty() {
                return Ok(());
            }
            // SAFETY: both sides have that many bytes.
            unsafe { result::memcpy_dtoh_sync(bytes, memory.address) }.named("cuMemcpyDtoH")
        };
        copy(&mut bytes).map_err(|error| session.fault(error))?;
        Ok(bytes)
    }

    fn prepare(&self, calls: &[(&Op, &str)]) {
        let mut seen = HashSet::new();
        let units = calls.iter().flat_map(|(op, variant)| ops::kernels(op, variant));
        self.cubins.compile(units.filter(|unit| seen.insert(unit.to_string())).collect());
    }

    fn streams(&self) -> u32 {
        STREAMS as u32
    }

    fn ways(&self, op: &Op, inputs: &[TensorType]) -> Result<Vec<String>, BackendError> {
        let outputs = op.signature(inputs)?;
        let mut ways: Vec<_> = self.listed(op)?.into_iter().map(str::to_owned).collect();
        if !ways.iter().any(|way| way == CUBLASLT) {
            return Ok(ways);
        }
        ways.retain(|way| ops::library(op, way) != Some(Component::CublasLt));
        let product = match ops::product(op, CUBLASLT, inputs, &outputs) {
            Ok(Some(product)) => product,
            // Nothing is chosen where there is nothing to multiply.
            Ok(None) => return Ok([ways, vec![CUBLASLT.to_owned()]].concat()),
            Err(_) if !ways.is_empty() => return Ok(ways),
            Err(why) => return Err(why.into()),
        };
        let session = self.session()?;
        let lt = session.lt().map_err(|error| session.fault(error))?;
        match lt.offered(&product) {
            Ok(numbered) => ways.extend(numbered),
            Err(Refusal::Unsupported(_)) if !ways.is_empty() => {}
            Err(refusal) => return Err(session.refused(refusal)),
        }
        Ok(ways)
    }

    fn describe(&self, launch: Launch<'_>) -> Result<BTreeMap<String, String>, BackendError> {
        if ops::library(launch.op, launch.variant).is_none() {
            return Ok(BTreeMap::new());
        }
        let session = self.session()?;
        let mut facts = BTreeMap::new();
        for step in self.ready(session, launch)?.steps {
            if let Ready::Product(call) = step {
                facts.extend(call.describe().map_err(|error| session.fault(error))?);
            }
        }
        Ok(facts)
    }

    fn order(&self, from: Stream, to: Stream) -> Result<(), BackendError> {
        let session = self.session()?;
        session.order(session.lane(from)?, session.lane(to)?)
    }

    fn wait(&self, stream: Option<Stream>) -> Result<(), BackendError> {
        let session = self.session()?;
        let waited = match stream {
            Some(stream) => session.lane(stream)?.stream.synchronize().named("cuStreamSynchronize"),
            None => session.synchronize(),
        };
        waited.map_err(|error| session.fault(error))
    }

    fn without_workspace(&self, op: &Op, variant: &str) -> Option<String> {
        let is_there = variant == CUBLASLT && self.listed(op).is_ok_and(|it| it.contains(&NO_WORKSPACE));
        is_there.then(|| NO_WORKSPACE.to_owned())
    }

    fn address(&self, buffer: &Buffer) -> Option<u64> {
        buffer.memory::<Shared>().ok().map(|memory| memory.address)
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        self.record(&calls.iter().copied().map(Work::Launch).collect::<Vec<_>>())
    }

    fn record(&self, work: &[Work<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        Ok(Box::new(self.recorded(work)?))
    }
}
