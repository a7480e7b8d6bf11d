//! Deliberate copies of faults that real implementations had, each a small
//! implementation of what the wrong kernel does.
//!
//! An entry says which operation it is about, what is wrong, and inputs with their
//! right and wrong results; its backend does that operation and no other. The
//! generated cases must find every one of them without being told these inputs.

mod cast;
mod decode;
mod scaling;

use plumbline_conformance::adapter::Closure;
use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, Cpu, Tensor, TensorType};

/// A wrong implementation of an operation.
pub struct Fault {
    /// Short name.
    pub id: &'static str,
    /// What is wrong.
    pub about: &'static str,
    /// Where it was reported, if it was.
    pub report: Option<&'static str>,
    /// The operation.
    pub op: Op,
    /// The wrong implementation; supports `op` only.
    pub backend: Box<dyn Backend>,
    example: Example,
}

/// Inputs that show a fault, and the codes of the first output.
struct Example {
    inputs: Vec<Tensor>,
    right: Vec<u64>,
    wrong: Vec<u64>,
}

/// Every fault.
pub fn catalogue() -> Vec<Fault> {
    [cast::faults(), decode::faults(), scaling::faults()].into_iter().flatten().collect()
}

impl Fault {
    /// The same, reported there.
    fn reported(self, report: &'static str) -> Self {
        Self { report: Some(report), ..self }
    }
}

/// A fault of an elementwise operation. The examples are codes: input, right, wrong.
fn elementwise(
    id: &'static str,
    about: &'static str,
    op: impl Into<Op>,
    code: impl Fn(u64) -> u64 + Send + Sync + 'static,
    examples: &[(u64, u64, u64)],
) -> Fault {
    let op = op.into();
    let from = match &op {
        Op::Cast(op) => op.from,
        Op::Decode(op) => op.from,
        Op::Classify(op) => op.format,
        _ => panic!("{id}: {} is not elementwise", op.name()),
    };
    let example = Example {
        inputs: vec![tensor(from, &examples.iter().map(|example| example.0).collect::<Vec<_>>())],
        right: examples.iter().map(|example| example.1).collect(),
        wrong: examples.iter().map(|example| example.2).collect(),
    };
    let backend = Box::new(Closure::elementwise(id, op.clone(), code));
    Fault { id, about, report: None, op, backend, example }
}

fn tensor(format: Format, codes: &[u64]) -> Tensor {
    Tensor::from_codes(TensorType::new(format, [codes.len()]), codes).expect("a small tensor")
}

fn f32_tensor(values: &[f32]) -> Tensor {
    tensor(F32, &values.iter().map(|&value| bits(value)).collect::<Vec<_>>())
}

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

fn f32_of(code: u64) -> f32 {
    f32::from_bits(code as u32)
}

#[test]
fn every_example_shows_its_fault() {
    for Fault { id, about, report, op, backend, example } in catalogue() {
        let codes = |backend: &dyn Backend| {
            let outputs = backend.run(&op, &backend.variants(&op)[0], &example.inputs);
            outputs.unwrap_or_else(|error| panic!("{id}: {error}"))[0].codes().collect::<Vec<_>>()
        };
        assert_eq!(codes(&Cpu), example.right, "{id}: the reference");
        assert_eq!(codes(&*backend), example.wrong, "{id}: {about} ({report:?})");
        assert!(example.right.iter().zip(&example.wrong).any(|(right, wrong)| right != wrong), "{id}");
    }
}

#[test]
fn faults_have_distinct_names() {
    let mut ids: Vec<_> = catalogue().iter().map(|fault| fault.id).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
