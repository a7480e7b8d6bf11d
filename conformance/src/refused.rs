//! Inputs that do not fit an operation: an implementation must give an error, and write nothing.

use crate::attempt::{Attempt, panic_text};
use crate::case::Refusal;
use crate::setup::Subject;
use crate::verdict::Outcome;
use plumbline_reference::backend::{Buffer, Launch, Layout, Stream};
use plumbline_reference::ops::Op;
use plumbline_reference::{BackendError, Tensor, TensorType};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a backend on inputs that do not fit: by `run`, and on buffers where it has steps.
pub(crate) fn refused(
    subject: &Subject,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
    refusal: &Refusal,
) -> Attempt {
    let backend = &*subject.backend;
    let run = || backend.run(op, variant, inputs).map(|_| Wrote::Something);
    let launch = || launched(subject, op, variant, inputs, refusal);
    let calls: [(&str, &Call<'_>); 2] = [("run", &run), ("launch", &launch)];
    for (name, call) in calls.into_iter().take(if backend.stepwise() { 2 } else { 1 }) {
        let failed = |outcome, why: String| Attempt::without_outputs(outcome, format!("{name}: {why}"));
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Err(BackendError::Signature(_)) | Ok(Wrote::Nothing)) => (),
            Ok(Ok(Wrote::Something)) => {
                let why = format!("computes from inputs that do not fit: {}", refusal.because);
                return failed(Outcome::Fail, why);
            }
            Ok(Err(BackendError::Unsupported(why))) => return failed(Outcome::Unsupported, why.to_string()),
            Ok(Err(error)) => {
                let lost = matches!(error, BackendError::Lost { .. });
                let why = format!("does not say that the inputs do not fit, but: {error}");
                return Attempt { lost, ..failed(Outcome::Crashed, why) };
            }
            Err(panic) => {
                return failed(Outcome::Crashed, format!("panicked: {}", panic_text(&*panic)));
            }
        }
    }
    Attempt { message: None, ..Attempt::without_outputs(Outcome::Pass, String::new()) }
}

/// A call, to be made.
type Call<'a> = dyn Fn() -> Result<Wrote, BackendError> + 'a;

/// What a call did to the outputs.
enum Wrote {
    Nothing,
    Something,
}

/// What outputs hold before the call.
const POISON: u8 = 0xa5;

/// A call on buffers, which has to refuse and to leave them as they are.
fn launched(
    subject: &Subject,
    op: &Op,
    variant: &str,
    inputs: &[Tensor],
    refusal: &Refusal,
) -> Result<Wrote, BackendError> {
    let backend = &*subject.backend;
    let layout =
        |ty: TensorType| Layout { guard: subject.contract.guard, poison: POISON, ..Layout::contiguous(ty) };
    let buffer = |ty: &TensorType, tensor: Option<&Tensor>| -> Result<Buffer, BackendError> {
        let layout = layout(ty.clone());
        let buffer = backend.alloc(&layout)?;
        if let Some(tensor) = tensor {
            let mut bytes = vec![layout.poison; layout.total()?];
            layout.scatter(tensor, &mut bytes);
            backend.upload(&buffer, &bytes)?;
        }
        Ok(buffer)
    };
    let inputs = inputs.iter().map(|tensor| buffer(tensor.ty(), Some(tensor)));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let outputs = refusal.outputs.iter();
    let outputs = outputs.map(|output| buffer(&TensorType::new(output.dtype, output.shape.as_slice()), None));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let (inputs, refs): (Vec<_>, Vec<_>) = (inputs.iter().collect(), outputs.iter().collect());
    let call = Launch { op, variant, inputs: &inputs, outputs: &refs, stream: Stream::default() };
    match backend.launch(call) {
        Err(BackendError::Signature(_)) => (),
        Err(error) => return Err(error),
        Ok(()) => return Ok(Wrote::Something),
    }
    for output in &outputs {
        if backend.download(output)?.iter().any(|&byte| byte != POISON) {
            return Ok(Wrote::Something);
        }
    }
    Ok(Wrote::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::OutputSpec;
    use plumbline_reference::backend::{Device, Unsupported};
    use plumbline_reference::block::BlockFormat;
    use plumbline_reference::format::F32;
    use plumbline_reference::ops::{Activations, Gemv};
    use plumbline_reference::{Backend, Cpu, DType};
    use std::sync::Arc;

    /// How a backend takes inputs that do not fit.
    #[derive(Clone, Copy, PartialEq)]
    enum Way {
        Refuses,
        Computes,
        WritesAndRefuses,
        Fails,
        Panics,
    }

    /// Refuses in `run`, and does so or not in its steps.
    struct Stepwise(Way);

    impl Backend for Stepwise {
        fn name(&self) -> &str {
            "stepwise"
        }

        fn device(&self) -> Device {
            Cpu.device()
        }

        fn supports(&self, op: &Op) -> Result<(), Unsupported> {
            Cpu.supports(op)
        }

        fn variants(&self, op: &Op) -> Vec<String> {
            Cpu.variants(op)
        }

        fn stepwise(&self) -> bool {
            true
        }

        fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
            Cpu.alloc(layout)
        }

        fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
            Cpu.upload(buffer, bytes)
        }

        fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
            Cpu.download(buffer)
        }

        fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
            let write = || {
                let output = launch.outputs[0];
                Cpu.upload(output, &vec![0; output.layout().total().unwrap()])
            };
            match self.0 {
                Way::Refuses => launch.check(),
                Way::Computes => write(),
                Way::WritesAndRefuses => write().and_then(|()| launch.check()),
                Way::Fails => Err(BackendError::NoGraphs),
                Way::Panics => panic!("out of range"),
            }
        }
    }

    /// 300 activations for one block of 256 values.
    fn attempted(backend: impl Backend + 'static) -> (Outcome, Option<String>) {
        let zeros = |dtype: DType, shape: &[usize]| {
            let ty = TensorType::new(dtype, shape);
            let bytes = vec![0; shape.iter().product::<usize>() * dtype.bytes()];
            Tensor::from_bytes(ty, bytes).unwrap()
        };
        let inputs = [zeros(DType::U8, &[4, 1, 144]), zeros(F32.into(), &[300])];
        let refusal = Refusal {
            because: "K must be a multiple of 256".to_owned(),
            outputs: vec![OutputSpec { dtype: F32.into(), shape: vec![4] }],
        };
        let op = Gemv::new(BlockFormat::Q4K, Activations::F32).into();
        let attempt = refused(&Subject::shared(Arc::new(backend)), &op, "parallel", &inputs, &refusal);
        (attempt.outcome, attempt.message)
    }

    #[test]
    fn an_error_that_names_the_inputs_is_right_and_nothing_else() {
        assert_eq!(attempted(Cpu), (Outcome::Pass, None));
        assert_eq!(attempted(Stepwise(Way::Refuses)), (Outcome::Pass, None));
        for (way, outcome, part) in [
            (Way::Computes, Outcome::Fail, "launch: computes from inputs that do not fit: K must be"),
            (Way::WritesAndRefuses, Outcome::Fail, "launch: computes from inputs"),
            (Way::Fails, Outcome::Crashed, "does not say that the inputs do not fit, but: this backend"),
            (Way::Panics, Outcome::Crashed, "launch: panicked: out of range"),
        ] {
            let (given, message) = attempted(Stepwise(way));
            let message = message.unwrap();
            assert!(given == outcome && message.contains(part), "{given}: {message}");
        }
    }
}
