//! Elementwise functions and softmax of f32, beside candle-core, whose results differ in last bits.

use anyhow::Result;
use candle_core::{Device, Tensor as Candle};
use plumbline_reference::format::F32;
use plumbline_reference::ops::{
    Elementary, GeluErf, GeluTanh, Math, Op, QuickGelu, Relu, Silu, Softmax, Swiglu,
};
use plumbline_reference::{Path, Tensor, TensorType};

use crate::contender::Contender;
use crate::conversion::Named;
use crate::measure::{Comparison, compare};

/// Elements of an input: too many for a cache.
const ELEMENTS: usize = 1 << 24;
/// Elements of a row.
const ROW: usize = 1 << 12;
/// Calls of a visit.
const CALLS: usize = 2;

/// A function on so many threads.
#[derive(Clone, Debug)]
pub struct Setting {
    name: &'static str,
    op: Op,
    threads: usize,
}

/// Every function.
pub fn settings(threads: usize) -> Vec<Setting> {
    let (from, to) = (F32, F32);
    let all: [(&'static str, Op); 9] = [
        ("exp", Math { function: Elementary::Exp, from, to }.into()),
        ("tanh", Math { function: Elementary::Tanh, from, to }.into()),
        ("relu", Relu { from, to }.into()),
        ("silu", Silu { from, to }.into()),
        ("quick_gelu", QuickGelu { from, to }.into()),
        ("gelu_tanh", GeluTanh { from, to }.into()),
        ("gelu_erf", GeluErf { from, to }.into()),
        ("swiglu", Swiglu { from, to }.into()),
        ("softmax", Softmax::new(from, to).into()),
    ];
    all.map(|(name, op)| Setting { name, op, threads }).into()
}

impl Setting {
    pub fn threads(&self) -> usize {
        self.threads
    }

    pub fn name(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("layer/{}/{}-thread{plural}", self.name, self.threads)
    }

    /// Measures on the current thread pool.
    pub fn measure(&self, rounds: usize) -> Result<Comparison> {
        let number = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 20) as f32 - 8.0;
        let ty = TensorType::new(F32, [ELEMENTS / ROW, ROW]);
        let x = Tensor::from_fn(ty, Path::fastest(), |i| number(i).to_bits().into())?;
        let inputs = vec![x; self.op.input_names().len()];
        let y = self.op.evaluate(&inputs, Path::fastest())?.remove(0);
        let mut contenders: Vec<Named<'_>> = vec![("plumbline", Box::new(Ours { op: &self.op, inputs, y }))];
        let f: Option<fn(&Candle) -> candle_core::Result<Candle>> = match self.name {
            "exp" => Some(Candle::exp),
            "tanh" => Some(Candle::tanh),
            "relu" => Some(Candle::relu),
            "silu" => Some(Candle::silu),
            "gelu_tanh" => Some(Candle::gelu),
            "gelu_erf" => Some(Candle::gelu_erf),
            _ => None,
        };
        if let Some(f) = f {
            let x = (0..ELEMENTS).map(number).collect();
            let x = Candle::from_vec(x, ELEMENTS, &Device::Cpu)?;
            let y = f(&x)?;
            contenders.push(("candle-core", Box::new(Theirs { f, x, y })));
        }
        let bytes = 4 * (self.op.input_names().len() + 1);
        let contenders = compare(contenders, ELEMENTS, 0, CALLS, rounds);
        let conversion = self.name.to_owned();
        Ok(Comparison { conversion, elements: ELEMENTS, threads: self.threads, rounds, bytes, contenders })
    }
}

/// The reference's fast path.
struct Ours<'a> {
    op: &'a Op,
    inputs: Vec<Tensor>,
    y: Tensor,
}

impl Contender for Ours<'_> {
    fn convert(&mut self) {
        if let Ok(mut y) = self.op.evaluate(&self.inputs, Path::fastest()) {
            self.y = y.remove(0);
        }
    }

    fn code(&self, i: usize) -> u64 {
        self.y.code(i)
    }
}

/// candle-core's, on as many threads as it takes.
struct Theirs {
    f: fn(&Candle) -> candle_core::Result<Candle>,
    x: Candle,
    y: Candle,
}

impl Contender for Theirs {
    fn convert(&mut self) {
        if let Ok(y) = (self.f)(&self.x) {
            self.y = y;
        }
    }

    fn code(&self, i: usize) -> u64 {
        let y = self.y.get(i).and_then(|y| y.to_scalar::<f32>());
        y.map_or(0, |y| y.to_bits().into())
    }
}
