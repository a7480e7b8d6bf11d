//! The steps of a backend: memory laid out by the caller, written only where the
//! outputs lie.

use plumbline_reference::backend::{
    Backend, BackendError, Buffer, Device, Launch, Layout, Staged, Stream, Unsupported, Work,
};
use plumbline_reference::fast::Simd;
use plumbline_reference::format::{E4M3FN, F16, F32, F64};
use plumbline_reference::ops::{Absmax, Cast, DeviceScaledCast, Granularity, Op};
use plumbline_reference::{Cpu, Tensor, TensorType};

const POISON: u8 = 0xa5;
const GUARD: usize = 13;

/// Layouts with guard zones, an odd offset, and between elements no gaps, a gap
/// behind each row, gaps everywhere, or columns first.
fn layouts(ty: &TensorType) -> Vec<Layout> {
    let contiguous = ty.contiguous_strides();
    let padded = contiguous.iter().map(|&stride| if stride == 1 { 1 } else { stride + 3 }).collect();
    let spread = contiguous.iter().map(|stride| stride * 3).collect();
    let columns_first = match ty.shape[..] {
        [rows, _] => vec![1, rows],
        _ => contiguous.clone(),
    };
    let layout = |strides: Vec<usize>, offset| Layout {
        ty: ty.clone(),
        strides,
        offset,
        guard: GUARD,
        poison: POISON,
    };
    vec![layout(contiguous, 1), layout(padded, 7), layout(spread, 3), layout(columns_first, 0)]
}

fn x() -> Tensor {
    let codes: Vec<u64> = (0..35).map(|i| (i as f32 * 1.37 - 20.0).to_bits().into()).collect();
    Tensor::from_codes(TensorType::new(F32, [5, 7]), &codes).expect("35 codes")
}

fn scalar(value: f32) -> Tensor {
    Tensor::from_codes(TensorType::new(F32, []), &[value.to_bits().into()]).expect("one code")
}

/// Operations with one and two outputs, elementwise and not.
fn calls() -> [(Op, Vec<Tensor>); 3] {
    [
        (Cast::new(F32, F16).into(), vec![x()]),
        (DeviceScaledCast::new(F32, E4M3FN).into(), vec![x(), scalar(3.0)]),
        (Absmax { from: F32, nan: Default::default(), granularity: Granularity::Row }.into(), vec![x()]),
    ]
}

/// Whether each byte of a buffer belongs to an element.
fn occupied(layout: &Layout) -> Vec<bool> {
    let mut occupied = vec![false; layout.total().expect("a small layout")];
    for i in 0..layout.ty.elements().expect("a small layout") {
        let at = layout.byte_of(i);
        occupied[at..at + layout.ty.dtype.bytes()].fill(true);
    }
    occupied
}

#[test]
fn outputs_equal_those_of_run_and_everything_else_keeps_its_poison() {
    for (op, inputs) in calls() {
        for variant in Cpu.variants(&op) {
            let expected = Cpu.run(&op, &variant, &inputs).unwrap();
            for kind in 0..4 {
                let staged =
                    Staged::launch(&Cpu, &op, &variant, &inputs, |ty| layouts(&ty).swap_remove(kind))
                        .unwrap();
                assert_eq!(staged.outputs.len(), expected.len());
                for (buffer, expected) in staged.outputs.iter().zip(&expected) {
                    let (layout, bytes) = (buffer.layout(), Cpu.download(buffer).unwrap());
                    assert_eq!(
                        layout.gather(&bytes).unwrap().to_contiguous(),
                        *expected,
                        "{} {layout:?}",
                        op.name()
                    );
                    let outside = occupied(layout).into_iter().zip(&bytes).filter(|(occupied, _)| !occupied);
                    let mut count = 0;
                    for (_, &byte) in outside {
                        assert_eq!(byte, POISON, "{} {layout:?}", op.name());
                        count += 1;
                    }
                    assert!(count >= 2 * GUARD);
                }
            }
        }
    }
}

#[test]
fn inputs_stay_as_they_were_uploaded() {
    for (op, inputs) in calls() {
        let staged =
            Staged::launch(&Cpu, &op, "parallel", &inputs, |ty| layouts(&ty).swap_remove(2)).unwrap();
        for (buffer, input) in staged.inputs.iter().zip(&inputs) {
            let mut expected = vec![POISON; buffer.layout().total().unwrap()];
            buffer.layout().scatter(input, &mut expected);
            assert_eq!(Cpu.download(buffer).unwrap(), expected);
        }
    }
}

#[test]
fn fresh_memory_is_poisoned_and_upload_replaces_all_of_it() {
    let layout = layouts(x().ty()).swap_remove(1);
    let buffer = Cpu.alloc(&layout).unwrap();
    let total = layout.total().unwrap();
    // Guards, offset, and the last of 5 padded rows, which ends with its elements.
    assert_eq!(total, 2 * GUARD + 7 + 4 * (4 * 10 + 7));
    assert_eq!(Cpu.download(&buffer).unwrap(), vec![POISON; total]);
    let bytes: Vec<u8> = (0..total).map(|i| i as u8).collect();
    Cpu.upload(&buffer, &bytes).unwrap();
    assert_eq!(Cpu.download(&buffer).unwrap(), bytes);
    let refusal = Cpu.upload(&buffer, &bytes[1..]).unwrap_err();
    assert_eq!(refusal, BackendError::BufferSize { given: total - 1, expected: total });
}

#[test]
fn a_strided_tensor_is_laid_out_by_its_elements() {
    let strided =
        Tensor::from_strided(TensorType::new(F32, [2, 2]), vec![1, 2], x().bytes().to_vec()).unwrap();
    let layout = Layout::contiguous(strided.ty().clone());
    let mut bytes = vec![0; layout.total().unwrap()];
    layout.scatter(&strided, &mut bytes);
    assert_eq!(layout.gather(&bytes).unwrap(), strided.to_contiguous());
}

fn launch<'a>(op: &'a Op, inputs: &'a [&'a Buffer], outputs: &'a [&'a Buffer]) -> Launch<'a> {
    Launch { op, variant: "definition", inputs, outputs, stream: Stream::default() }
}

#[test]
fn a_buffer_may_be_input_and_output() {
    let op = Op::from(Cast::new(F32, F32));
    let layout = layouts(x().ty()).swap_remove(0);
    let buffer = Cpu.alloc(&layout).unwrap();
    let mut bytes = vec![POISON; layout.total().unwrap()];
    layout.scatter(&x(), &mut bytes);
    Cpu.upload(&buffer, &bytes).unwrap();
    Cpu.launch(launch(&op, &[&buffer], &[&buffer])).unwrap();
    assert_eq!(Cpu.download(&buffer).unwrap(), bytes);
}

#[test]
fn a_second_launch_sees_what_the_first_wrote() {
    let alloc = |ty: &TensorType| Cpu.alloc(&Layout::contiguous(ty.clone())).unwrap();
    let (there, back) = (Op::from(Cast::new(F32, F16)), Op::from(Cast::new(F16, F32)));
    let (source, middle) = (alloc(x().ty()), alloc(&TensorType::new(F16, [5, 7])));
    let target = alloc(x().ty());
    Cpu.upload(&source, x().bytes()).unwrap();
    Cpu.launch(launch(&there, &[&source], &[&middle])).unwrap();
    Cpu.launch(launch(&back, &[&middle], &[&target])).unwrap();
    let halves = there.evaluate(&[x()], plumbline_reference::Path::Definition).unwrap();
    let expected = back.evaluate(&halves, plumbline_reference::Path::Definition).unwrap();
    assert_eq!(Cpu.download(&target).unwrap(), expected[0].bytes());
}

#[test]
fn output_buffers_of_another_type_are_refused_and_left_alone() {
    let op = Op::from(Cast::new(F32, F16));
    let alloc = |ty: TensorType| Cpu.alloc(&Layout::contiguous(ty)).unwrap();
    let (input, right) = (alloc(x().ty().clone()), alloc(TensorType::new(F16, [5, 7])));
    let refusal = |outputs: &[&Buffer]| Cpu.launch(launch(&op, &[&input], outputs)).unwrap_err().to_string();
    for ty in [TensorType::new(F16, [7, 5]), TensorType::new(F16, [4]), TensorType::new(F32, [5, 7])] {
        let wrong = alloc(ty.clone());
        let before = Cpu.download(&wrong).unwrap();
        let message = format!("cast: output buffers hold [{ty}], the operation gives [f16[5, 7]]");
        assert_eq!(refusal(&[&wrong]), message);
        assert_eq!(Cpu.download(&wrong).unwrap(), before);
    }
    assert_eq!(refusal(&[]), "cast: output buffers hold [], the operation gives [f16[5, 7]]");
    assert!(refusal(&[&right, &right]).contains("hold [f16[5, 7], f16[5, 7]]"));
    assert_eq!(Cpu.launch(launch(&op, &[&input], &[&right])), Ok(()));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let op = Op::from(Cast::new(F16, F32));
    let expected = "cast: input `x` is f32, expected f16";
    assert_eq!(Cpu.run(&op, "parallel", &[x()]).unwrap_err().to_string(), expected);
    let staged = Staged::launch(&Cpu, &op, "parallel", &[x()], Layout::contiguous);
    assert_eq!(staged.err().unwrap().to_string(), expected);
    let input = Cpu.alloc(&Layout::contiguous(x().ty().clone())).unwrap();
    assert_eq!(Cpu.launch(launch(&op, &[&input], &[&input])).unwrap_err().to_string(), expected);
}

#[test]
fn an_unknown_variant_is_refused_with_those_there_are() {
    let op = Op::from(Cast::new(F32, F16));
    let message = format!("no variant `fast` of cast, only {:?}", Cpu.variants(&op));
    assert_eq!(Cpu.run(&op, "fast", &[x()]).unwrap_err().to_string(), message);
}

#[test]
fn variants_are_those_that_the_operation_has() {
    let fast = Cpu.variants(&Cast::new(F32, F16).into());
    assert_eq!(fast[0], Simd::best().name());
    assert!(fast.ends_with(&["portable", "parallel", "definition"].map(str::to_owned)), "{fast:?}");
    // From f64 to f32 there is no fast path.
    assert_eq!(Cpu.variants(&Cast::new(F64, F32).into()), ["parallel", "definition"]);
}

#[test]
fn layouts_that_no_memory_has_are_refused() {
    let contiguous = Layout::contiguous(x().ty().clone());
    let refused = [
        Layout { strides: vec![1], ..contiguous.clone() },
        Layout { strides: vec![usize::MAX, 1], ..contiguous.clone() },
        Layout { strides: vec![1 << 60, 1], ..contiguous.clone() },
        Layout { offset: usize::MAX, ..contiguous.clone() },
        Layout { guard: usize::MAX / 2 + 1, ..contiguous.clone() },
        Layout { guard: 4 << 30, ..contiguous },
    ];
    for layout in refused {
        assert!(Cpu.alloc(&layout).is_err(), "{layout:?}");
    }
    let short = Layout { strides: vec![1], ..Layout::contiguous(x().ty().clone()) };
    let message = "f32[5, 7] with strides [1], offset 0 and guard zones of 0 bytes: one stride per dimension \
                   and at most 8 GiB";
    assert_eq!(short.total().unwrap_err().to_string(), message);
}

#[test]
fn an_empty_tensor_has_guard_zones_too() {
    let op = Op::from(Cast::new(F32, F16));
    let empty = Tensor::from_bytes(TensorType::new(F32, [0, 7]), vec![]).unwrap();
    let staged = Staged::launch(&Cpu, &op, "parallel", &[empty], |ty| layouts(&ty).swap_remove(0)).unwrap();
    assert_eq!(Cpu.download(&staged.outputs[0]).unwrap(), [POISON; 2 * GUARD + 1]);
}

/// A backend that gives `run` and nothing else.
struct OnlyRun;

impl Backend for OnlyRun {
    fn name(&self) -> &str {
        "only_run"
    }

    fn device(&self) -> Device {
        Device::default()
    }

    fn supports(&self, _: &Op) -> Result<(), Unsupported> {
        Ok(())
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![]
    }
}

#[test]
fn a_backend_without_steps_says_so() {
    assert!(Cpu.stepwise() && !OnlyRun.stepwise());
    let (op, inputs) = (Op::from(Cast::new(F32, F16)), [x()]);
    assert_eq!(OnlyRun.run(&op, "", &inputs), Err(BackendError::NotStepwise));
}

#[test]
fn memory_of_another_backend_is_refused() {
    let foreign = Buffer::new(Layout::contiguous(x().ty().clone()), 7u8);
    assert_eq!(Cpu.download(&foreign), Err(BackendError::ForeignBuffer));
    assert_eq!(Cpu.upload(&foreign, &[]), Err(BackendError::ForeignBuffer));
    assert_eq!(foreign.memory::<u8>(), Ok(&7));
}

/// `Cpu` through the provided `run`.
struct Stepwise;

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

    fn alloc(&self, layout: &Layout) -> Result<Buffer, BackendError> {
        Cpu.alloc(layout)
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        Cpu.upload(buffer, bytes)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        Cpu.launch(launch)
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        Cpu.download(buffer)
    }
}

#[test]
fn the_provided_run_does_the_steps() {
    for (op, inputs) in calls() {
        let expected = Cpu.run(&op, "definition", &inputs).unwrap();
        assert_eq!(Stepwise.run(&op, "definition", &inputs), Ok(expected), "{}", op.name());
    }
}

/// A graph works on what its buffers hold when it is replayed, and copies what the host's memory
/// held when it was recorded.
#[test]
fn a_graph_is_calls_done_again() {
    let op = Op::from(Cast::new(F32, F16));
    let alloc = |ty: &TensorType| Cpu.alloc(&Layout::contiguous(ty.clone())).unwrap();
    let (source, target) = (alloc(x().ty()), alloc(&TensorType::new(F16, [5, 7])));
    let before = Cpu.download(&target).unwrap();
    let (inputs, outputs) = ([&source], [&target]);
    let call = launch(&op, &inputs, &outputs);
    let graph = Cpu.capture(&[call]).unwrap();
    assert_eq!(Cpu.download(&target).unwrap(), before);
    Cpu.upload(&source, x().bytes()).unwrap();
    graph.replay().unwrap();
    let expected = op.evaluate(&[x()], plumbline_reference::Path::Definition).unwrap();
    assert_eq!(Cpu.download(&target).unwrap(), expected[0].bytes());

    let mut bytes = vec![0; x().bytes().len()];
    let upload = Work::Upload { buffer: &source, bytes: &bytes };
    let graph = Cpu.record(&[upload, Work::Launch(call)]).unwrap();
    bytes.fill(0x3f);
    Cpu.upload(&source, &bytes).unwrap();
    graph.replay_on(Stream(1)).unwrap();
    assert_eq!(Cpu.download(&target).unwrap(), vec![0; 70]);

    let short = Work::Upload { buffer: &source, bytes: &bytes[1..] };
    let refusal = Cpu.record(&[short]).err().unwrap();
    assert_eq!(refusal, BackendError::BufferSize { given: bytes.len() - 1, expected: bytes.len() });
}

#[test]
fn what_a_backend_does_not_have_is_an_error() {
    let none =
        |result: Result<(), BackendError>| assert!(matches!(result, Err(BackendError::Unsupported(_))));
    none(OnlyRun.order(Stream(0), Stream(1)));
    none(OnlyRun.wait(None));
    let buffer = Cpu.alloc(&Layout::contiguous(x().ty().clone())).unwrap();
    none(OnlyRun.record(&[Work::Upload { buffer: &buffer, bytes: &[] }]).map(drop));
    assert_eq!(OnlyRun.record(&[]).err(), Some(BackendError::NoGraphs));
}
