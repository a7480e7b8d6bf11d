//! How fast kernels move memory, beside a plain copy in the same run.

use crate::cuda::{Cuda, view};
use crate::ops;
use crate::plan::{Step, View};
use cudarc::driver::sys::CUdeviceptr;
use plumbline_reference::backend::{Backend, BackendError, Buffer, Layout};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32};
use plumbline_reference::ops::{Absmax, AbsmaxNan, Cast, Decode, Granularity, Op};
use plumbline_reference::{DType, TensorType};

/// One measurement.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// `copy`, or operation and variant: `cast f32 to e4m3fn, cvt`.
    pub name: String,
    /// Bytes read and written.
    pub bytes: u64,
    /// Milliseconds of each run on the device, in ascending order.
    pub millis: Vec<f32>,
}

impl Bandwidth {
    /// Milliseconds of the median run.
    #[must_use]
    pub fn median(&self) -> Option<f32> {
        self.millis.get(self.millis.len() / 2).copied()
    }
}

fn operations() -> Vec<Op> {
    let absmax = Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity: Granularity::Tensor };
    vec![
        Cast::new(F32, E4M3FN).into(),
        Cast::new(F32, E5M2).into(),
        Cast::new(F16, E4M3FN).into(),
        Cast::new(F32, F16).into(),
        Cast::new(F32, BF16).into(),
        Decode { from: E4M3FN, to: F32 }.into(),
        Decode { from: E4M3FN, to: F16 }.into(),
        Decode { from: F16, to: F32 }.into(),
        absmax.into(),
    ]
}

/// Source format of an operation of the list.
fn source(op: &Op) -> DType {
    DType::Float(match op {
        Op::Cast(op) => op.from,
        Op::Decode(op) => op.from,
        Op::Absmax(op) => op.from,
        _ => F32,
    })
}

impl Cuda {
    /// Measures a copy and the kernels on tensors of that many elements, taking turns: each
    /// runs once per round.
    pub fn bandwidth(&self, elements: usize, rounds: usize) -> Result<Vec<Bandwidth>, BackendError> {
        // Whole vectors of 16 bytes.
        let largest = (4 * elements).next_multiple_of(16);
        let x = self.filled(largest)?;
        let y = self.alloc(&Layout::contiguous(TensorType::new(DType::U8, [largest])))?;
        let (x, y) = (view(&x)?.address, view(&y)?.address);
        let mut runs = vec![(
            "copy".to_owned(),
            2 * largest as u64,
            self.load(vec![Step::Copy { from: x, to: y, bytes: largest }])?,
        )];
        for op in operations() {
            let input = TensorType::new(source(&op), [elements]);
            let output = op.signature(std::slice::from_ref(&input))?.swap_remove(0);
            let (input, output) = (View { address: x, ty: input }, View { address: y, ty: output });
            let bytes = input.count() * input.width() + output.count() * output.width();
            for variant in self.variants(&op) {
                let plan =
                    ops::plan(&op, &variant, std::slice::from_ref(&input), std::slice::from_ref(&output))?;
                let name = match &op {
                    Op::Cast(op) => format!("cast {} to {}, {variant}", op.from, op.to),
                    Op::Decode(op) => format!("decode {} to {}, {variant}", op.from, op.to),
                    op => format!("{} {}, {variant}", op.name(), source(op)),
                };
                // A warp for all of the tensor is no way to read it.
                if variant != ops::WARPS {
                    runs.push((name, bytes, self.load(plan)?));
                }
            }
        }
        let mut measured: Vec<Bandwidth> = runs
            .iter()
            .map(|(name, bytes, _)| Bandwidth { name: name.clone(), bytes: *bytes, millis: Vec::new() })
            .collect();
        for round in 0..=rounds {
            for (measured, (.., prepared)) in measured.iter_mut().zip(&runs) {
                let ((), millis) = self.timed(|| prepared.queue())?;
                // The first round warms up.
                if round > 0 {
                    measured.millis.push(millis);
                }
            }
        }
        for measured in &mut measured {
            measured.millis.sort_by(f32::total_cmp);
        }
        Ok(measured)
    }

    /// Memory that holds every pattern of 32 bits in turn.
    fn filled(&self, bytes: usize) -> Result<Buffer, BackendError> {
        let buffer = self.alloc(&Layout::contiguous(TensorType::new(DType::U8, [bytes])))?;
        let address: CUdeviceptr = view(&buffer)?.address;
        self.load(vec![crate::sweep::generate(F32, address, 0, bytes as u64 / 4)])?.queue()?;
        Ok(buffer)
    }
}
