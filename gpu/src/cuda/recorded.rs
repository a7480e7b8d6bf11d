//! Work that is recorded once and replayed.

use super::checked::Checked;
use super::ready::Ready;
use super::{Cuda, Session, Shared};
use crate::blas::Lane;
use crate::error::Named;
use crate::memory::{Memory, Pinned};
use cudarc::driver::{CudaGraph, sys};
use plumbline_reference::BackendError;
use plumbline_reference::backend::{Graph, Stream, Work};
use std::sync::PoisonError;

impl Cuda {
    /// Records work as a graph.
    pub(crate) fn recorded(&self, work: &[Work<'_>]) -> Result<Recorded<'_>, BackendError> {
        let session = self.session()?;
        let mut steps = Vec::new();
        let (mut memory, mut scratch, mut checked) = (Vec::new(), Vec::new(), Vec::new());
        for (i, item) in work.iter().enumerate() {
            match *item {
                Work::Launch(call) => {
                    let ready = self.ready(session, call)?;
                    if let Some(values) = Checked::of(call)? {
                        values.require_unwritten(&work[..i])?;
                        checked.push(values);
                    }
                    steps.extend(ready.steps);
                    scratch.extend(ready.scratch);
                    for buffer in call.inputs.iter().chain(call.outputs) {
                        memory.push(buffer.memory::<Shared>()?.clone());
                    }
                }
                Work::Upload { buffer, bytes } => {
                    let target = buffer.memory::<Shared>()?;
                    if target.bytes != bytes.len() {
                        return Err(BackendError::BufferSize { given: bytes.len(), expected: target.bytes });
                    }
                    let from = Pinned::new(&session.context, bytes).map_err(|error| session.fault(error))?;
                    steps.push(Ready::Upload { from, to: target.address });
                    memory.push(target.clone());
                }
            }
        }
        // A stream of its own: whatever else is queued meanwhile must not be recorded.
        let lane = Lane::new(&session.context).map_err(|error| session.fault(error))?;
        let record = || {
            let stream = &lane.stream;
            // Handles and workspaces cannot be made during the capture.
            steps.iter().try_for_each(|step| step.prepare(&lane))?;
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            stream.begin_capture(mode).named("cuStreamBeginCapture")?;
            let queued = steps.iter().try_for_each(|step| session.queue(step, &lane));
            // Ended in either case, or the stream stays in capture.
            let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).named("cuStreamEndCapture");
            queued?;
            graph
        };
        let graph = record().map_err(|error| session.fault(error))?;
        let kernel = session.queued.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Recorded {
            session,
            kernel,
            graph,
            lane,
            checked,
            _steps: steps,
            _memory: memory,
            _scratch: scratch,
        })
    }
}

/// Work recorded as a graph.
pub(crate) struct Recorded<'a> {
    session: &'a Session,
    /// The last kernel or library call.
    kernel: String,
    /// None where the calls have no steps.
    graph: Option<CudaGraph>,
    /// The stream that it runs on, with the workspace that its products use.
    lane: Lane,
    /// What is checked before a replay.
    checked: Vec<Checked>,
    /// What was recorded, with the memory of the host that copies read.
    _steps: Vec<Ready>,
    /// What the graph's kernels read and write.
    _memory: Vec<Shared>,
    /// What they keep values in, each call its own: as long as the graph can be replayed.
    _scratch: Vec<Memory>,
}

impl Recorded<'_> {
    /// How many milliseconds of the device's time a replay takes.
    pub(crate) fn timed(&self) -> Result<f32, BackendError> {
        let ((), millis) = self.session.timed(&self.lane, || self.replay())?;
        Ok(millis)
    }
}

impl Graph for Recorded<'_> {
    fn replay(&self) -> Result<(), BackendError> {
        self.session.bind().map_err(|error| self.session.fault(error))?;
        self.checked.iter().try_for_each(|checked| checked.check(self.session, &self.lane))?;
        let Some(graph) = &self.graph else { return Ok(()) };
        self.kernel.clone_into(&mut self.session.queued.lock().unwrap_or_else(PoisonError::into_inner));
        graph.launch().named("cuGraphLaunch").map_err(|error| self.session.fault(error))
    }

    fn replay_on(&self, stream: Stream) -> Result<(), BackendError> {
        let lane = self.session.lane(stream)?;
        self.session.order(lane, &self.lane)?;
        self.replay()?;
        self.session.order(&self.lane, lane)
    }
}
