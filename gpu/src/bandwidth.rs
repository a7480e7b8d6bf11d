//! How fast kernels move memory, beside a plain copy in the same run.

use crate::cuda::{Cuda, view};
use crate::ops;
use crate::plan::{Step, View};
use cudarc::driver::sys::CUdeviceptr;
use plumbline_reference::backend::{Backend, BackendError, Buffer, Launch, Layout, Stream, Work};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, Cast, Decode, Elementary, Gemv, Granularity, Op, Swiglu, functions,
};
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

/// What is measured: name, source format, operation.
fn operations() -> Vec<(String, Format, Op)> {
    let cast = |from, to| (format!("cast {from} to {to}"), from, Cast::new(from, to).into());
    let decode = |from, to| (format!("decode {from} to {to}"), from, Decode { from, to }.into());
    let absmax = Absmax { from: F32, nan: AbsmaxNan::Propagate, granularity: Granularity::Tensor };
    let mut all = vec![
        cast(F32, E4M3FN),
        cast(F32, E5M2),
        cast(F16, E4M3FN),
        cast(F32, F16),
        cast(F32, BF16),
        decode(E4M3FN, F32),
        decode(E4M3FN, F16),
        decode(F16, F32),
        (format!("absmax {F32}"), F32, absmax.into()),
    ];
    for format in [F32, F16, BF16] {
        let (from, to) = (format, format);
        let these = functions(from, to).into_iter().chain([("swiglu", Swiglu { from, to }.into())]);
        all.extend(these.map(|(name, op)| (format!("{name} {format}"), format, op)));
    }
    all
}

impl Cuda {
    /// Measures a copy and the kernels on tensors of that many elements, taking turns: each
    /// runs once per round.
    pub fn bandwidth(&self, elements: usize, rounds: usize) -> Result<Vec<Bandwidth>, BackendError> {
        // Whole vectors of 16 bytes.
        let largest = (4 * elements).next_multiple_of(16);
        let x = self.filled(largest)?;
        let second = self.filled(largest)?;
        let angles = self.noise(&TensorType::new(DType::U8, [largest]), largest, ANGLES)?;
        let y = self.alloc(&Layout::contiguous(TensorType::new(DType::U8, [largest])))?;
        let [x, second, angles, y] = [&x, &second, &angles, &y].map(view);
        let [x, second, angles, y] = [x?.address, second?.address, angles?.address, y?.address];
        let mut runs = vec![(
            "copy".to_owned(),
            2 * largest as u64,
            self.load(vec![Step::Copy { from: x, to: y, bytes: largest }])?,
        )];
        for (name, from, op) in operations() {
            let input = TensorType::new(from, [elements]);
            let types = vec![input; if matches!(op, Op::Swiglu(_)) { 2 } else { 1 }];
            let output = op.signature(&types)?.swap_remove(0);
            let turns =
                matches!(&op, Op::Math(op) if [Elementary::Sin, Elementary::Cos].contains(&op.function));
            let mut contents = vec![(name.clone(), x)];
            if turns && from == F32 {
                contents.push((format!("{name} below 2^17"), angles));
            }
            let output = View::contiguous(y, output);
            for (name, x) in contents {
                let views = [x, second].into_iter().zip(types.clone());
                let inputs: Vec<_> = views.map(|(address, ty)| View::contiguous(address, ty)).collect();
                let bytes = inputs.iter().chain([&output]).map(|view| view.count() * view.width()).sum();
                for variant in self.variants(&op) {
                    let plan = ops::plan(&op, &variant, 0, &inputs, std::slice::from_ref(&output))?;
                    // A warp for all of the tensor is no way to read it.
                    if variant != ops::WARPS {
                        runs.push((format!("{name}, {variant}"), bytes, self.load(plan)?));
                    }
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

    /// Measures a product of that many rows and columns on matrices that take turns, so that none
    /// is in the cache when its turn comes, by each variant. Each turn is one call of a graph.
    pub fn gemv_bandwidth(
        &self,
        op: &Gemv,
        [rows, k]: [usize; 2],
        rounds: usize,
    ) -> Result<Vec<Bandwidth>, BackendError> {
        let blocks = |format: BlockFormat| [k / format.values(), format.bytes()];
        let w = TensorType::new(DType::U8, [&[rows][..], &blocks(op.weights)].concat());
        let x = match op.activations.blocks() {
            None => TensorType::new(F32, [k]),
            Some(format) => TensorType::new(DType::U8, blocks(format)),
        };
        let op = Op::from(op.clone());
        let y = op.signature(&[w.clone(), x.clone()])?.swap_remove(0);
        let views = [&w, &x, &y].map(|ty| View::contiguous(0, ty.clone()));
        let [w_bytes, ..] = views.clone().map(|view| view.count() * view.width());
        let bytes: u64 = views.iter().map(|view| view.count() * view.width()).sum();
        let turns = MUCH.div_ceil(w_bytes.max(1)).clamp(2, 64) as usize;
        let of = |ty: &TensorType| {
            let bytes = View::contiguous(0, ty.clone());
            self.filled_as(ty, (bytes.count() * bytes.width()) as usize)
        };
        let weights = (0..turns).map(|_| of(&w)).collect::<Result<Vec<_>, _>>()?;
        let (x, y) = (of(&x)?, of(&y)?);
        let inputs: Vec<_> = weights.iter().map(|w| [w, &x]).collect();
        let outputs = [&y];
        let mut measured = Vec::new();
        for variant in self.variants(&op) {
            let call = |inputs| Launch {
                op: &op,
                variant: &variant,
                inputs,
                outputs: &outputs,
                stream: Stream::default(),
            };
            let calls: Vec<_> = inputs.iter().map(|inputs| Work::Launch(call(&inputs[..]))).collect();
            let graph = self.recorded(&calls)?;
            let mut millis = Vec::new();
            for round in 0..=rounds {
                let replay = graph.timed()?;
                // The first round warms up.
                if round > 0 {
                    millis.push(replay / turns as f32);
                }
            }
            millis.sort_by(f32::total_cmp);
            measured.push(Bandwidth {
                name: format!("{} of {rows} x {k}, {variant}", op.name()),
                bytes,
                millis,
            });
        }
        Ok(measured)
    }

    /// A tensor of any bits of those that are kept, and those that are set.
    fn noise(&self, ty: &TensorType, bytes: usize, [kept, set]: [u32; 2]) -> Result<Buffer, BackendError> {
        let buffer = self.alloc(&Layout::contiguous(ty.clone()))?;
        let address: CUdeviceptr = view(&buffer)?.address;
        self.load(vec![crate::sweep::noise(address, bytes as u64 / 4, kept, set)])?.queue()?;
        Ok(buffer)
    }

    /// A tensor of any bits.
    fn filled_as(&self, ty: &TensorType, bytes: usize) -> Result<Buffer, BackendError> {
        self.noise(ty, bytes, [u32::MAX, 0])
    }

    /// Memory that holds any bits.
    fn filled(&self, bytes: usize) -> Result<Buffer, BackendError> {
        self.filled_as(&TensorType::new(DType::U8, [bytes]), bytes)
    }
}

/// The bits that are kept, and set, of f32 from 2 to 2^17 and from -2^17 to -2: angles, as positions make
/// them. Of any bits, two of five are of 2^20 or more.
const ANGLES: [u32; 2] = [0x87ff_ffff, 0x4000_0000];

/// Several times what a cache holds.
const MUCH: u64 = 512 << 20;
