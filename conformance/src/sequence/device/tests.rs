use super::*;
use crate::adapter::Engine;
use crate::load::load_tests;
use crate::suite::Test;
use plumbline_reference::backend::Device;
use std::sync::Arc;

/// What is done before each call.
type Before = fn(&Engine, &Launch<'_>) -> Result<(), BackendError>;

/// The engine, except that something is done before each call.
struct Disturbed {
    engine: Engine,
    before: Before,
}

impl Backend for Disturbed {
    fn name(&self) -> &str {
        "disturbed"
    }

    fn device(&self) -> Device {
        self.engine.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        self.engine.supports(op)
    }

    fn variants(&self, op: &Op) -> Vec<String> {
        self.engine.variants(op)
    }

    fn stepwise(&self) -> bool {
        true
    }

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        self.engine.alloc(layout)
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        self.engine.upload(buffer, bytes)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        (self.before)(&self.engine, &launch)?;
        self.engine.launch(launch)
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        self.engine.download(buffer)
    }
}

/// Flips the byte after the elements of a buffer, or before their end.
fn flip(engine: &Engine, buffer: &Buffer, inside: bool) -> Result<(), BackendError> {
    let mut bytes = engine.download(buffer)?;
    let end = buffer.layout().guard + buffer.layout().span()?;
    bytes[end - usize::from(inside)] ^= 1;
    engine.upload(buffer, &bytes)
}

fn attempted(before: Before, text: &str) -> Attempt {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    std::fs::write(&file, text).unwrap();
    let Test::Sequence(sequence) = load_tests(&file).unwrap().remove(0) else { panic!("is a case") };
    let subject = Subject::shared(Arc::new(Disturbed { engine: Engine::new(), before }));
    attempt(&subject, &sequence, "engine", 0, false)
}

/// A cast of x, and steps after it.
fn with_steps(before: Before, steps: &[&str]) -> Attempt {
    let head = r#"sequences:
  - name: a
    buffers:
      x: {dtype: f32, shape: [3]}
      u: {dtype: f32, shape: [3]}
      y: {dtype: f16, shape: [3]}
      m: {dtype: f32, shape: []}
    steps:
      - allocate: [x, u, y, m]
      - write: {buffer: x, bits: ["0x3f800000", "0x3f800000", "0x3f800000"]}
      - write: {buffer: u, bits: ["0x3f800000", "0x40000000", "0x3f800000"]}
      - call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}
"#;
    let text = steps.iter().fold(head.to_owned(), |text, step| format!("{text}      - {step}\n"));
    attempted(before, &text)
}

const ABSMAX: &str = "call: {op: {absmax: {from: f32}}, inputs: [x], outputs: [m]}";

fn without_absmax(launch: &Launch<'_>) -> Result<(), BackendError> {
    match launch.op {
        Op::Absmax(_) => Err(Unsupported("has no absmax today".to_owned()).into()),
        _ => Ok(()),
    }
}

#[test]
fn what_is_unsupported_later_hides_no_failure_before_it() {
    let right = with_steps(|_, launch| without_absmax(launch), &["check: {buffer: y}", ABSMAX]);
    assert_eq!((right.outcome, right.outputs.len()), (Outcome::Unsupported, 1));

    let wrong = with_steps(|_, launch| without_absmax(launch), &["check: {buffer: x, equals: u}", ABSMAX]);
    assert_eq!((wrong.outcome, wrong.outputs[0].mismatches), (Outcome::Fail, 1));
    let message = wrong.message.unwrap();
    assert!(message.contains("steps[5]: ") && message.contains("has no absmax today"), "{message}");

    // Nor a broken contract of memory.
    let past_end: Before = |engine, launch| {
        without_absmax(launch)?;
        flip(engine, launch.inputs[0], false)
    };
    let wrong = with_steps(past_end, &["check: {buffer: x}", ABSMAX]);
    assert_eq!((wrong.outcome, wrong.outputs[0].ok, wrong.memory.len()), (Outcome::Fail, true, 1));
}

/// What nobody checks is looked at when it is freed, or at the end.
#[test]
fn freed_buffers_are_looked_at() {
    for rest in ["free: y", "free: x", "free: [m, y, x]"] {
        let steps = ["check: {buffer: u}", rest];
        let past_end = with_steps(|engine, launch| flip(engine, launch.inputs[0], false), &steps);
        assert_eq!(past_end.outcome, Outcome::Fail, "{rest}");
        assert!(
            matches!(&*past_end.memory, [MemoryFault::OutOfBounds { tensor, .. }] if tensor == "buffer x"),
            "{rest}: {:?}",
            past_end.memory
        );
        let changed = with_steps(|engine, launch| flip(engine, launch.inputs[0], true), &steps);
        let fault = MemoryFault::InputChanged { tensor: "buffer x".to_owned(), index: 2 };
        assert_eq!((changed.outcome, changed.memory), (Outcome::Fail, vec![fault]), "{rest}");
        let right = with_steps(|_, _| Ok(()), &steps);
        assert_eq!((right.outcome, right.memory), (Outcome::Pass, Vec::new()), "{rest}");
    }
}

/// Notes are of the inputs, also where all is right.
#[test]
fn what_is_right_has_its_notes() {
    for op in [
        "{prefill_linear: {weights: q8_0, route: fp8_via_f16, accumulate: fma}}",
        "{dispatch: {weights: q8_0, route: fp8_via_f16, threshold: 1, at_threshold: gemv, gemv: fma, gemm: fma}}",
    ] {
        let text = format!(
            r#"sequences:
  - name: a
    buffers:
      w: {{dtype: u8, blocks: q8_0, shape: [3, 160]}}
      x: {{dtype: f32, shape: [2, 160]}}
      y: {{dtype: f32, shape: [2, 3]}}
    steps:
      - allocate: [w, x, y]
      - write: {{buffer: w, generate: {{block_fields: {{d: ["0x3c00"], qs: ["0x01"]}}}}}}
      - write: {{buffer: x, generate: ones}}
      - call: {{op: {op}, inputs: [w, x], outputs: [y]}}
      - check: {{buffer: y}}
"#
        );
        let attempt = attempted(|_, _| Ok(()), &text);
        assert_eq!((attempt.outcome, attempt.message), (Outcome::Pass, None));
        assert_eq!(attempt.outputs[0].notes.as_ref().map(|notes| notes.elements), Some(6));
    }
}
