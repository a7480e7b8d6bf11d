use super::*;
use plumbline_reference::Cpu;
use plumbline_reference::TensorType;
use plumbline_reference::backend::{Device, Launch, Unsupported};
use plumbline_reference::format::{E4M3FN, F32};
use plumbline_reference::ops::{Absmax, AbsmaxNan, Cast, Granularity};

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
    execute(&Vandal(vandal), &op, "parallel", &[x], Contract::default()).unwrap().faults
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
    let execution = execute(&Cpu, &op, "parallel", &[x], Contract::default()).unwrap();
    assert_eq!((execution.outputs[0].code(0), execution.faults), (0, vec![]));
}
