use super::*;
use plumbline_reference::Cpu;
use plumbline_reference::TensorType;
use plumbline_reference::backend::{Device, Graph, Launch, Unsupported};
use plumbline_reference::format::{E4M3FN, F32};
use plumbline_reference::ops::{Absmax, AbsmaxNan, Cast, Granularity};
use std::sync::{Arc, Mutex};

/// The reference, then something that a wrong kernel does to memory.
struct Vandal(fn(&Cpu, &Launch<'_>));

impl Backend for Vandal {
    fn name(&self) -> &str {
        "vandal"
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

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        Cpu.launch(launch)?;
        (self.0)(&Cpu, &launch);
        Ok(())
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        Cpu.download(buffer)
    }
}

/// Changes the bytes of a buffer, given where its first element begins.
fn edit(cpu: &Cpu, buffer: &Buffer, change: impl FnOnce(&mut [u8], usize)) {
    let mut bytes = cpu.download(buffer).unwrap();
    let layout = buffer.layout();
    change(&mut bytes, layout.guard + layout.offset);
    cpu.upload(buffer, &bytes).unwrap();
}

fn faults(vandal: fn(&Cpu, &Launch<'_>)) -> Vec<MemoryFault> {
    let x = Tensor::from_codes(TensorType::new(F32, [5]), &[0x3f80_0000, 0, 0xffff_ffff, 0xff80_0000, 1])
        .unwrap();
    let op = Op::from(Cast::new(F32, E4M3FN));
    execute(&Vandal(vandal), &op, "parallel", &[x], &[], Contract::default()).unwrap().faults
}

#[test]
fn the_reference_keeps_the_contract() {
    assert_eq!(faults(|_, _| ()), []);
}

#[test]
fn a_write_past_either_end_is_found_whatever_it_writes() {
    for value in [0x00, 0xff, 0x7e] {
        // Function pointers cannot capture: one closure per value.
        let past = match value {
            0x00 => {
                faults(|cpu, launch| edit(cpu, launch.outputs[0], |bytes, start| bytes[start + 5] = 0x00))
            }
            0xff => {
                faults(|cpu, launch| edit(cpu, launch.outputs[0], |bytes, start| bytes[start + 5] = 0xff))
            }
            _ => faults(|cpu, launch| edit(cpu, launch.outputs[0], |bytes, start| bytes[start + 5] = 0x7e)),
        };
        let expected = MemoryFault::OutOfBounds { tensor: "output 0".to_owned(), offset: 5, len: 5 };
        assert_eq!(past, [expected], "{value:#x}");
    }
    let before = faults(|cpu, launch| edit(cpu, launch.inputs[0], |bytes, start| bytes[start - 1] = 1));
    assert_eq!(before, [MemoryFault::OutOfBounds { tensor: "input x".to_owned(), offset: -1, len: 20 }]);
}

#[test]
fn a_write_to_an_input_is_found() {
    let changed = faults(|cpu, launch| edit(cpu, launch.inputs[0], |bytes, start| bytes[start + 4] ^= 1));
    assert_eq!(changed, [MemoryFault::InputChanged { tensor: "input x".to_owned(), index: 1 }]);
}

#[test]
fn elements_that_are_not_written_are_found_though_any_byte_is_a_legal_code() {
    let unwritten = faults(|cpu, launch| {
        let poison = launch.outputs[0].layout().poison;
        edit(cpu, launch.outputs[0], |bytes, start| bytes[start + 3..start + 5].fill(poison));
    });
    assert_eq!(unwritten, [MemoryFault::Unwritten { tensor: "output 0".to_owned(), count: 2, index: 3 }]);
}

#[test]
fn a_result_that_depends_on_memory_outside_its_inputs_is_found() {
    let unstable = faults(|cpu, launch| {
        let guard = cpu.download(launch.inputs[0]).unwrap()[0];
        edit(cpu, launch.outputs[0], |bytes, start| bytes[start] = guard & 0x7e);
    });
    assert_eq!(unstable, [MemoryFault::Unstable { tensor: "output 0".to_owned(), count: 1, index: 0 }]);
}

#[test]
fn an_absmax_of_nothing_writes_its_zero() {
    let op = Op::from(Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity: Granularity::Tensor });
    let x = Tensor::from_codes(TensorType::new(F32, [0]), &[]).unwrap();
    let execution = execute(&Cpu, &op, "parallel", &[x], &[], Contract::default()).unwrap();
    assert_eq!((execution.outputs[0].code(0), execution.faults), (0, vec![]));
}

/// Every place within 16 bytes where an element can begin comes up.
#[test]
fn calls_are_made_at_every_alignment() {
    use plumbline_reference::format::{F16, F64};
    for (format, places) in [(E4M3FN, 16), (F16, 8), (F32, 4), (F64, 2)] {
        let ty = |elements| TensorType::new(format, [elements]);
        let width = 16 / places;
        let offset = |elements, run, buffer| Surroundings { run }.offset(&ty(elements), buffer, 1);
        assert!((0..100).all(|elements| offset(elements, 0, 1) == 0 && offset(elements, 3, 0) == 0));
        let mut seen: Vec<_> = (0..100).map(|elements| offset(elements, 1, 0)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (1..places).map(|place| place * width).collect::<Vec<_>>(), "{format}");
    }
}

/// The usual calls have every poison around aligned buffers but one, NaN around others, and an
/// aligned input with an output that is not; with the recorded ones, every poison.
#[test]
fn poisons_meet_alignments() {
    let ty = TensorType::new(F32, [7]);
    let met = |run| {
        let surroundings = Surroundings { run };
        let aligned = |buffer| surroundings.offset(&ty, buffer, 1) == 0;
        (surroundings.poison(), aligned(0), aligned(1))
    };
    let usual: Vec<_> = (0..6).map(met).collect();
    assert_eq!(
        usual,
        [
            (0x00, true, true),
            (0xff, false, false),
            (0x7b, true, true),
            (0x00, true, false),
            (0xff, true, true),
            (0x7b, false, false),
        ]
    );
    assert_eq!(Contract::default().runs, 4);
}

/// Reads one element past the input of a maximum, on the aligned path alone.
#[test]
fn a_maximum_that_reads_past_its_input_is_found_under_both_policies_of_nan() {
    for nan in [AbsmaxNan::Propagate, AbsmaxNan::Ignore] {
        let op = Op::from(Absmax { from: F32, nan, granularity: Granularity::Tensor });
        let x = Tensor::from_codes(TensorType::new(F32, [5]), &[0x3f80_0000; 5]).unwrap();
        let vandal = Vandal(|cpu, launch| {
            let (input, layout) = (cpu.download(launch.inputs[0]).unwrap(), launch.inputs[0].layout());
            let start = layout.guard + layout.offset;
            let past = u32::from_le_bytes(input[start + 20..start + 24].try_into().unwrap());
            // 0xffffffff is NaN, which the kernel passes over under either policy.
            if layout.offset == 0 && (0x3f80_0000..0x7f80_0000).contains(&past) {
                edit(cpu, launch.outputs[0], |bytes, start| {
                    bytes[start..start + 4].copy_from_slice(&past.to_le_bytes());
                });
            }
        });
        let faults = execute(&vandal, &op, "parallel", &[x], &[], Contract::default()).unwrap().faults;
        assert_eq!(faults, [MemoryFault::Unstable { tensor: "output 0".to_owned(), count: 1, index: 0 }]);
    }
}

#[test]
fn a_write_into_a_gap_is_found() {
    let ty = TensorType::new(F32, [2, 2]);
    let layout = Layout { strides: vec![3, 1], guard: 8, poison: 0xff, ..Layout::contiguous(ty) };
    let mut bytes = vec![0xff; layout.total().unwrap()];
    for index in 0..4 {
        bytes[layout.byte_of(index)..][..4].fill(0x3f);
    }
    let buffer = Buffer::new(layout.clone(), ());
    assert_eq!(out_of_bounds("x", &buffer, &bytes), Ok(None));
    let gap = layout.byte_of(1) + 4;
    bytes[gap + 3] = 0;
    let fault = MemoryFault::OutOfBounds { tensor: "x".to_owned(), offset: 11, len: 20 };
    assert_eq!(out_of_bounds("x", &buffer, &bytes), Ok(Some(fault)));
}

/// The reference with two streams and graphs. Some results go wrong: element 2 on the second
/// stream, element 3 from the second replay of a graph on.
struct Streamed {
    second_stream: bool,
    second_replay: bool,
}

type Shared = Arc<Mutex<Vec<u8>>>;

/// A call that can be made again: operation, variant, and each buffer's layout and bytes.
struct Recorded {
    op: Op,
    variant: String,
    inputs: Vec<(Layout, Shared)>,
    outputs: Vec<(Layout, Shared)>,
    wrong: bool,
    replays: Cell<u32>,
}

impl Recorded {
    fn new(call: &Launch<'_>, wrong: bool) -> Self {
        let shared = |buffer: &&Buffer| (buffer.layout().clone(), buffer.memory::<Shared>().unwrap().clone());
        Self {
            op: call.op.clone(),
            variant: call.variant.to_owned(),
            inputs: call.inputs.iter().map(shared).collect(),
            outputs: call.outputs.iter().map(shared).collect(),
            wrong,
            replays: Cell::new(0),
        }
    }

    fn run(&self) {
        let gather = |(layout, bytes): &(Layout, Shared)| layout.gather(&bytes.lock().unwrap()).unwrap();
        let inputs: Vec<_> = self.inputs.iter().map(gather).collect();
        let results = Cpu.run(&self.op, &self.variant, &inputs).unwrap();
        for ((layout, bytes), result) in self.outputs.iter().zip(&results) {
            layout.scatter(result, &mut bytes.lock().unwrap());
        }
    }

    fn spoil(&self, index: usize) {
        let (layout, bytes) = &self.outputs[0];
        bytes.lock().unwrap()[layout.byte_of(index)] ^= 1;
    }
}

impl Graph for Recorded {
    fn replay(&self) -> Result<(), BackendError> {
        self.run();
        if self.wrong && self.replays.replace(self.replays.get() + 1) > 0 {
            self.spoil(3);
        }
        Ok(())
    }
}

impl Backend for Streamed {
    fn name(&self) -> &str {
        "streamed"
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
        let bytes = vec![layout.poison; layout.total()?];
        Ok(Buffer::new(layout.clone(), Shared::new(Mutex::new(bytes))))
    }

    fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        buffer.memory::<Shared>()?.lock().unwrap().copy_from_slice(bytes);
        Ok(())
    }

    fn launch(&self, launch: Launch<'_>) -> Result<(), BackendError> {
        let call = Recorded::new(&launch, false);
        call.run();
        if self.second_stream && launch.stream == Stream(1) {
            call.spoil(2);
        }
        Ok(())
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        Ok(buffer.memory::<Shared>()?.lock().unwrap().clone())
    }

    fn streams(&self) -> u32 {
        2
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn capture(&self, calls: &[Launch<'_>]) -> Result<Box<dyn Graph + '_>, BackendError> {
        let [call] = calls else { return Err(BackendError::NoGraphs) };
        Ok(Box::new(Recorded::new(call, self.second_replay)))
    }
}

#[test]
fn streams_and_replays_give_the_same_bits() {
    let faults = |second_stream, second_replay| {
        let codes = [0x3f80_0000, 0x4000_0000, 0x4040_0000, 0x4080_0000, 0x40a0_0000];
        let x = Tensor::from_codes(TensorType::new(F32, [5]), &codes).unwrap();
        let op = Op::from(Cast::new(F32, E4M3FN));
        let backend = Streamed { second_stream, second_replay };
        execute(&backend, &op, "parallel", &[x], &[], Contract::default()).unwrap().faults
    };
    let tensor = || "output 0".to_owned();
    assert_eq!(faults(false, false), []);
    assert_eq!(faults(true, false), [MemoryFault::Concurrent { tensor: tensor(), count: 1, index: 2 }]);
    assert_eq!(faults(false, true), [MemoryFault::Replayed { tensor: tensor(), count: 1, index: 3 }]);
}

/// A product of two batches that share a, over columns with gaps.
fn strided() -> (Op, Vec<Tensor>, Vec<Option<Vec<usize>>>) {
    use plumbline_reference::ops::gemm::Gemm;
    let tensor = |shape: [usize; 3], first: u64, strides: [usize; 3]| {
        let count: usize = shape.iter().product();
        let codes: Vec<_> = (0..count as u64).map(|i| 0x30 + first + i % 16).collect();
        let tensor = Tensor::from_codes(TensorType::new(E4M3FN, shape), &codes).unwrap();
        tensor.with_strides(&strides).unwrap()
    };
    let a = tensor([2, 2, 3], 0, [0, 4, 1]);
    let b = tensor([2, 3, 2], 5, [10, 1, 4]);
    (Gemm::new(E4M3FN, E4M3FN, F32).into(), vec![a, b], vec![Some(vec![9, 1, 3])])
}

#[test]
fn calls_on_strided_tensors_keep_the_contract() {
    let (op, inputs, strides) = strided();
    let right = Cpu.run(&op, "definition", &inputs).unwrap();
    for (second_stream, second_replay, kinds) in [(false, false, 0), (true, false, 1), (false, true, 1)] {
        let backend = Streamed { second_stream, second_replay };
        let execution = execute(&backend, &op, "parallel", &inputs, &strides, Contract::default()).unwrap();
        assert_eq!(execution.outputs, right);
        assert_eq!(execution.faults.len(), kinds, "{:?}", execution.faults);
    }
}

#[test]
fn faults_on_strided_tensors_are_found() {
    let (op, inputs, strides) = strided();
    let faults = |vandal: fn(&Cpu, &Launch<'_>)| {
        execute(&Vandal(vandal), &op, "parallel", &inputs, &strides, Contract::default()).unwrap().faults
    };
    assert_eq!(faults(|_, _| ()), []);
    // The last element of both batches of a: the first that differs is named.
    let changed = faults(|cpu, launch| edit(cpu, launch.inputs[0], |bytes, start| bytes[start + 6] ^= 1));
    assert_eq!(changed, [MemoryFault::InputChanged { tensor: "input a".to_owned(), index: 5 }]);
    let read_gap = faults(|cpu, launch| edit(cpu, launch.inputs[0], |bytes, start| bytes[start + 3] = 1));
    assert_eq!(read_gap, [MemoryFault::OutOfBounds { tensor: "input a".to_owned(), offset: 3, len: 7 }]);
    let gap = faults(|cpu, launch| edit(cpu, launch.outputs[0], |bytes, start| bytes[start + 8] = 1));
    assert_eq!(gap, [MemoryFault::OutOfBounds { tensor: "output 0".to_owned(), offset: 8, len: 56 }]);
    let unwritten = faults(|cpu, launch| {
        let (poison, layout) = (launch.outputs[0].layout().poison, launch.outputs[0].layout().clone());
        edit(cpu, launch.outputs[0], |bytes, _| bytes[layout.byte_of(5)..][..4].fill(poison));
    });
    assert_eq!(unwritten, [MemoryFault::Unwritten { tensor: "output 0".to_owned(), count: 1, index: 5 }]);
}
