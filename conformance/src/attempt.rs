//! One call of a backend, judged: what trials and fuzzing have in common.

use crate::judge::{Actual, Context, OutputVerdict, judge};
use crate::memory::{Execution, MemoryFault, execute};
use crate::setup::Subject;
use crate::source::{Built, Values};
use crate::verdict::Outcome;
use plumbline_reference::backend::Device;
use plumbline_reference::ops::Op;
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::{BackendError, Tensor, TensorType};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a call.
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    pub(crate) outputs: Vec<OutputVerdict>,
    pub(crate) memory: Vec<MemoryFault>,
    pub(crate) message: Option<String>,
    /// How the backend says that it made the call.
    pub(crate) how: BTreeMap<String, String>,
    /// What was judged.
    pub(crate) given: Vec<Output>,
    /// The device or process can no longer be used.
    pub(crate) lost: bool,
}

impl Attempt {
    pub(crate) fn without_outputs(outcome: Outcome, message: String) -> Self {
        Self {
            outcome,
            outputs: Vec::new(),
            memory: Vec::new(),
            message: Some(message),
            how: BTreeMap::new(),
            given: Vec::new(),
            lost: false,
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Runs a backend on the inputs and judges what it gives.
pub(crate) fn attempt(subject: &Subject, op: &Op, variant: &str, built: &Built) -> Attempt {
    // A foreign backend may panic; that is its verdict, not the end of the run.
    let run = AssertUnwindSafe(|| call(subject, op, variant, built));
    let Called { outputs: given, faults, how } = match catch_unwind(run) {
        Ok(Ok(called)) => called,
        Ok(Err(BackendError::Unsupported(why))) => {
            return Attempt::without_outputs(Outcome::Unsupported, why.to_string());
        }
        Ok(Err(error @ BackendError::Lost { .. })) => {
            let crashed = Attempt::without_outputs(Outcome::Crashed, error.to_string());
            return Attempt { lost: true, ..crashed };
        }
        Ok(Err(error)) => return Attempt::without_outputs(Outcome::Crashed, error.to_string()),
        Err(panic) => {
            let message = format!("panicked: {}", panic_text(&*panic));
            return Attempt::without_outputs(Outcome::Crashed, message);
        }
    };
    if given.len() != built.expected.len() {
        let message = format!("{} outputs, expected {}", given.len(), built.expected.len());
        return Attempt::without_outputs(Outcome::Fail, message);
    }
    let device = subject.backend.device();
    let context = Context { hints: Some(&how), ..context(subject, op, &built.inputs, &device) };
    let pairs = built.expected.iter().zip(&given).enumerate();
    let outputs: Vec<_> =
        pairs.map(|(i, (expected, given))| judge(context, i, expected, given.actual())).collect();
    let right = faults.is_empty() && outputs.iter().all(|output| output.ok);
    let outcome = if right { Outcome::Pass } else { Outcome::Fail };
    Attempt { outcome, outputs, memory: faults, message: None, how, given, lost: false }
}

/// What the outputs of a call are judged by.
pub(crate) fn context<'a>(
    subject: &Subject,
    op: &'a Op,
    inputs: &'a [Tensor],
    device: &'a Device,
) -> Context<'a> {
    Context {
        architecture: device.properties.get("compute capability").map(String::as_str),
        ..Context::new(op, inputs, subject.nan)
    }
}

/// What a call gave.
struct Called {
    outputs: Vec<Output>,
    faults: Vec<MemoryFault>,
    how: BTreeMap<String, String>,
}

/// What a call gave of one output.
pub(crate) enum Output {
    Whole(Tensor),
    /// The elements at the positions that are expected.
    Elements(Tensor),
}

impl Output {
    pub(crate) const fn tensor(&self) -> &Tensor {
        let (Self::Whole(tensor) | Self::Elements(tensor)) = self;
        tensor
    }

    /// Other elements in place of these.
    pub(crate) fn with(&self, tensor: Tensor) -> Self {
        match self {
            Self::Whole(_) => Self::Whole(tensor),
            Self::Elements(_) => Self::Elements(tensor),
        }
    }

    pub(crate) const fn actual(&self) -> Actual<'_> {
        match self {
            Self::Whole(tensor) => Actual::Whole(tensor),
            Self::Elements(tensor) => Actual::Elements(tensor),
        }
    }
}

/// The call, or of a large product with few expected elements only these, if the backend can.
fn call(subject: &Subject, op: &Op, variant: &str, built: &Built) -> Result<Called, BackendError> {
    let Built { inputs, output_strides, .. } = built;
    if let Some(outputs) = elements(subject, op, variant, built, inputs)? {
        return Ok(Called { outputs, faults: Vec::new(), how: BTreeMap::new() });
    }
    let Execution { outputs, faults, how } =
        execute(&*subject.backend, op, variant, inputs, output_strides, subject.contract)?;
    Ok(Called { outputs: outputs.into_iter().map(Output::Whole).collect(), faults, how })
}

/// What the call gives of other inputs, made once and without regard to memory.
pub(crate) fn outputs_of(
    subject: &Subject,
    op: &Op,
    variant: &str,
    built: &Built,
    inputs: &[Tensor],
) -> Result<Vec<Output>, BackendError> {
    let run = || match elements(subject, op, variant, built, inputs)? {
        Some(elements) => Ok(elements),
        None => {
            let outputs = subject.backend.run(op, variant, inputs)?;
            Ok(outputs.into_iter().map(Output::Whole).collect())
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(BackendError::Failed { call: op.name().to_owned(), why: panic_text(&*panic).to_owned() })
    })
}

/// The expected elements alone, where the product is large and the backend can.
fn elements(
    subject: &Subject,
    op: &Op,
    variant: &str,
    built: &Built,
    inputs: &[Tensor],
) -> Result<Option<Vec<Output>>, BackendError> {
    let (Op::Gemm(gemm), Some(positions)) = (op, sampled(op, built)) else { return Ok(None) };
    let Some(elements) = subject.backend.elements(op, variant, inputs, &positions)? else { return Ok(None) };
    let output = |codes: Vec<u64>| {
        let ty = TensorType::new(gemm.out, [codes.len()]);
        Ok(Output::Elements(Tensor::from_codes(ty, &codes)?))
    };
    elements.into_iter().map(output).collect::<Result<_, BackendError>>().map(Some)
}

/// Multiply-adds of the largest product that is always computed whole.
const MAX_WHOLE: u128 = 1 << 22;

/// The positions that a large product is judged at; `None` where it is judged whole.
fn sampled(op: &Op, built: &Built) -> Option<Vec<Vec<usize>>> {
    let Op::Gemm(gemm) = op else { return None };
    if Geometry::of(gemm, &built.inputs).multiply_adds() <= MAX_WHOLE {
        return None;
    }
    let positions = built.expected.iter().map(|expected| match &expected.values {
        Values::Sparse { at, .. } => Some(at.clone()),
        Values::Dense(_) | Values::Derived => None,
    });
    positions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Criterion;
    use crate::source::Expected;
    use plumbline_reference::backend::Unsupported;
    use plumbline_reference::format::{F16, F32};
    use plumbline_reference::ops::gemm::Gemm;
    use plumbline_reference::{Backend, Cpu};
    use std::sync::Arc;

    /// The reference that computes elements alone.
    struct OnlyElements;

    impl Backend for OnlyElements {
        fn name(&self) -> &str {
            "only elements"
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

        fn elements(
            &self,
            op: &Op,
            variant: &str,
            inputs: &[Tensor],
            positions: &[Vec<usize>],
        ) -> Result<Option<Vec<Vec<u64>>>, BackendError> {
            Cpu.elements(op, variant, inputs, positions)
        }
    }

    /// A product of `k` ones, judged at two positions against these codes.
    fn attempted(k: usize, codes: &[u64]) -> Attempt {
        let ones = |shape: [usize; 2]| {
            Tensor::from_codes(TensorType::new(F16, shape), &vec![0x3c00; shape[0] * shape[1]]).unwrap()
        };
        let values = Tensor::from_codes(TensorType::new(F32, [codes.len()]), codes).unwrap();
        let built = Built {
            inputs: vec![ones([256, k]), ones([k, 512])],
            expected: vec![Expected {
                values: Values::Sparse { at: vec![7, 256 * 512 - 1], values },
                ty: TensorType::new(F32, [256, 512]),
                criterion: Criterion::BitExact,
                nan: None,
                computed: false,
            }],
            ..Built::default()
        };
        let op = Gemm::new(F16, F16, F32).into();
        attempt(&Subject::shared(Arc::new(OnlyElements)), &op, "parallel", &built)
    }

    #[test]
    fn of_a_large_product_only_the_expected_elements_are_computed() {
        let sum = u64::from(33f32.to_bits());
        let right = attempted(33, &[sum, sum]);
        assert_eq!((right.outcome, right.outputs[0].elements), (Outcome::Pass, 2));
        let wrong = attempted(33, &[sum, sum + 1]);
        let first = wrong.outputs[0].first.as_ref().unwrap();
        assert_eq!((wrong.outcome, wrong.outputs[0].mismatches), (Outcome::Fail, 1));
        assert_eq!(first.coordinates, [255, 511]);
        // A smaller one is run whole, which this backend cannot.
        assert_eq!(attempted(32, &[0, 0]).outcome, Outcome::Crashed);
    }
}
