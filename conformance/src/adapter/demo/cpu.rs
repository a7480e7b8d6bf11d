//! Faults of calls and of memory, on the CPU.

use super::DemoFault;
use plumbline_reference::backend::{Backend, BackendError, Buffer, Device, Launch, Layout, Unsupported};
use plumbline_reference::{Cpu, ops::Op};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::{process, thread};

/// The calls that go wrong are those whose first input has this many elements.
const ELEMENTS: usize = 4;
const VARIANT: &str = "faulty";

/// The reference, except that some calls go wrong.
pub(super) struct Faulty {
    fault: DemoFault,
    calls: AtomicU8,
    lost: AtomicBool,
}

impl Faulty {
    pub(super) const fn new(fault: DemoFault) -> Self {
        Self { fault, calls: AtomicU8::new(0), lost: AtomicBool::new(false) }
    }

    /// What goes wrong in place of a result.
    fn call_fault(&self) -> Result<(), BackendError> {
        match self.fault {
            DemoFault::Abort => process::abort(),
            DemoFault::Exit => process::exit(0),
            DemoFault::Hang => loop {
                thread::park();
            },
            DemoFault::Panic => panic!("a deliberate panic"),
            DemoFault::OutOfMemory => {
                let asked = isize::MAX as usize;
                let granted = Vec::<u8>::new().try_reserve_exact(asked);
                granted.map_err(|error| BackendError::Failed {
                    call: format!("allocating {asked} bytes"),
                    why: error.to_string(),
                })
            }
            DemoFault::Lost => {
                self.lost.store(true, Relaxed);
                Err(lost())
            }
            _ => Ok(()),
        }
    }

    /// What goes wrong beside a result.
    fn memory_fault(&self, launch: &Launch<'_>) -> Result<(), BackendError> {
        let ([input, ..], [output, ..]) = (launch.inputs, launch.outputs) else { return Ok(()) };
        let width = output.layout().ty.dtype.bytes();
        match self.fault {
            DemoFault::WritePastEnd => edit(output, |bytes, _, end| flip(bytes, end, 0xff)),
            DemoFault::WriteInput => edit(input, |bytes, start, _| flip(bytes, start, 1)),
            DemoFault::Unwritten => {
                let poison = output.layout().poison;
                edit(output, |bytes, start, end| {
                    bytes[end.saturating_sub(width).max(start)..end].fill(poison)
                })
            }
            DemoFault::Nondeterministic => {
                let calls = self.calls.fetch_add(1, Relaxed);
                edit(output, |bytes, start, _| flip(bytes, start, calls & 7))
            }
            DemoFault::ReadsOutside => {
                let (start, _) = elements(input)?;
                let bytes = Cpu.download(input)?;
                let before = start.checked_sub(1).map_or(0, |at| bytes[at]);
                edit(output, |bytes, start, _| flip(bytes, start, before & 1))
            }
            _ => Ok(()),
        }
    }
}

fn lost() -> BackendError {
    BackendError::Lost { call: "launch".to_owned(), why: "a deliberate loss of the device".to_owned() }
}

/// The bytes that a buffer's elements take.
fn elements(buffer: &Buffer) -> Result<(usize, usize), BackendError> {
    let layout = buffer.layout();
    let start = layout.guard + layout.offset;
    Ok((start, start + layout.span()?))
}

/// Changes the bytes of a buffer, given where its elements begin and end.
fn edit(buffer: &Buffer, change: impl FnOnce(&mut [u8], usize, usize)) -> Result<(), BackendError> {
    let (start, end) = elements(buffer)?;
    let mut bytes = Cpu.download(buffer)?;
    change(&mut bytes, start, end);
    Cpu.upload(buffer, &bytes)
}

/// Flips bits of a byte, if there is one.
fn flip(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= bits;
    }
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        "demo-fault"
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        Cpu.supports(op)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANT.to_owned()]
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
        if launch.variant != VARIANT {
            let (variant, known) = (launch.variant.to_owned(), self.variants(launch.op));
            return Err(BackendError::Variant { op: launch.op.name(), variant, known });
        }
        if self.lost.load(Relaxed) {
            return Err(lost());
        }
        let first = launch.inputs.first().map(|input| input.layout().ty.elements());
        let wrong = first.transpose()? == Some(ELEMENTS);
        if wrong {
            self.call_fault()?;
        }
        Cpu.launch(Launch { variant: "parallel", ..launch })?;
        if wrong { self.memory_fault(&launch) } else { Ok(()) }
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, BackendError> {
        Cpu.download(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Contract, MemoryFault, execute};
    use clap::ValueEnum;
    use plumbline_reference::format::{E4M3FN, F32};
    use plumbline_reference::{Tensor, TensorType, ops::Cast};

    fn call(faulty: &Faulty, elements: usize) -> Result<Vec<MemoryFault>, BackendError> {
        let x = Tensor::from_codes(TensorType::new(F32, [elements]), &vec![0x3f80_0000; elements]).unwrap();
        Ok(execute(faulty, &Cast::new(F32, E4M3FN).into(), VARIANT, &[x], &[], Contract::default())?.faults)
    }

    #[test]
    fn only_tensors_of_four_elements_go_wrong() {
        for &fault in DemoFault::value_variants() {
            let faulty = Faulty::new(fault);
            assert_eq!(call(&faulty, 3), Ok(vec![]), "{fault}");
            assert_eq!(call(&faulty, 5), Ok(vec![]), "{fault}");
        }
    }

    #[test]
    fn faults_of_memory_break_the_contract() {
        let broken = |fault| call(&Faulty::new(fault), ELEMENTS).unwrap();
        let output = || "output 0".to_owned();
        let past = MemoryFault::OutOfBounds { tensor: output(), offset: 4, len: 4 };
        assert_eq!(broken(DemoFault::WritePastEnd), [past]);
        let input = MemoryFault::InputChanged { tensor: "input x".to_owned(), index: 0 };
        assert_eq!(broken(DemoFault::WriteInput), [input]);
        let unwritten = MemoryFault::Unwritten { tensor: output(), count: 1, index: 3 };
        assert_eq!(broken(DemoFault::Unwritten), [unwritten]);
        for fault in [DemoFault::Nondeterministic, DemoFault::ReadsOutside] {
            let unstable = MemoryFault::Unstable { tensor: output(), count: 1, index: 0 };
            assert_eq!(broken(fault), [unstable], "{fault}");
        }
    }

    #[test]
    fn a_lost_device_stays_lost() {
        let faulty = Faulty::new(DemoFault::Lost);
        assert_eq!(call(&faulty, ELEMENTS), Err(lost()));
        assert_eq!(call(&faulty, 3), Err(lost()));
    }

    #[test]
    fn absurd_memory_is_refused_and_not_an_abort() {
        let refused = call(&Faulty::new(DemoFault::OutOfMemory), ELEMENTS);
        assert!(matches!(refused, Err(BackendError::Failed { .. })), "{refused:?}");
    }
}
