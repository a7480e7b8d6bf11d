//! Recording a device.

use super::{Conversion, Recording};
use crate::case::NanJudge;
use crate::report::brief;
use crate::sweep::{Oracle, Staircase, Sweep, SweepError};
use plumbline_gpu::Cuda;
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, BackendError};

/// Why a device was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The device failed.
    #[error("{op}: {error}")]
    Device {
        /// The conversion.
        op: String,
        /// What it said.
        error: BackendError,
    },
    /// The sweep failed.
    #[error("{op}: {error}")]
    Sweep {
        /// The conversion.
        op: String,
        /// Why.
        error: SweepError,
    },
    /// Two passes over all inputs that do not fit together.
    #[error(
        "{op}: the results have digest {results:016x}, those of the steps found {steps:016x}: the device gave \
         other results the second time, or steps were missed; nothing is written"
    )]
    Digest {
        /// The conversion.
        op: String,
        /// The digest of the device's results.
        results: u64,
        /// The digest of the results that the steps stand for.
        steps: u64,
    },
}

/// Runs every conversion instruction of a device on every input; `progress` is told of each
/// conversion as it is done.
pub fn record(
    cuda: &Cuda,
    command: &str,
    progress: &mut dyn FnMut(&Conversion),
) -> Result<Recording, RecordError> {
    let instructions = cuda.instructions();
    let ops: Vec<_> = instructions.iter().map(|(cast, _)| Op::from(*cast)).collect();
    let backend: &dyn Backend = cuda;
    backend.prepare(&ops.iter().map(|op| (op, Cuda::INSTRUCTION)).collect::<Vec<_>>());
    let mut conversions = Vec::with_capacity(ops.len());
    for ((cast, instruction), op) in instructions.into_iter().zip(&ops) {
        let staircase = if Conversion::has_staircase(&cast) {
            let steps = cuda.steps(&cast, Cuda::INSTRUCTION);
            let steps = steps.map_err(|error| RecordError::Device { op: brief(op), error })?;
            Some(Staircase::of(cast.to, steps))
        } else {
            None
        };
        let failed = |error| RecordError::Sweep { op: brief(op), error };
        let inputs = Sweep::all_inputs(cast.from).map_err(failed)?;
        let digest_of_steps = staircase.as_ref().map(|steps| steps.digest(inputs.clone()));
        let sweep = Sweep {
            op: op.clone(),
            backend,
            variant: Cuda::INSTRUCTION,
            oracle: &Oracle::Nothing,
            nan: NanJudge::Bits,
            inputs,
        };
        let results = sweep.run_on_device(cuda, &|_| ()).map_err(failed)?.findings.digest;
        if let Some(steps) = digest_of_steps.filter(|&steps| steps != results) {
            return Err(RecordError::Digest { op: brief(op), results, steps });
        }
        let conversion = Conversion { cast, instruction: instruction.to_owned(), digest: results, staircase };
        progress(&conversion);
        conversions.push(conversion);
    }
    Ok(Recording {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        command: command.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device: cuda.device(),
        conversions,
    })
}
