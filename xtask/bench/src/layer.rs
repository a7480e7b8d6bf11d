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

/// Elements of an input: as many as a cache holds, and more.
const SIZES: [usize; 2] = [1 << 20, 1 << 24];
/// Elements of a row.
const ROW: usize = 1 << 12;
/// Elements of the calls of a visit.
const ELEMENTS_OF_VISIT: usize = 1 << 25;

/// A function of so many elements on so many threads.
#[derive(Clone, Debug)]
pub struct Setting {
    name: &'static str,
    op: Op,
    elements: usize,
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
    let setting = |elements| all.clone().map(|(name, op)| Setting { name, op, elements, threads });
    SIZES.map(setting).concat()
}

impl Setting {
    pub fn threads(&self) -> usize {
        self.threads
    }

    pub fn name(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        let power = self.elements.ilog2();
        format!("layer/{}/2^{power}/{}-thread{plural}", self.name, self.threads)
    }

    /// Measures on the current thread pool.
    pub fn measure(&self, rounds: usize) -> Result<Comparison> {
        let number = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 20) as f32 - 8.0;
        let elements = self.elements;
        let ty = TensorType::new(F32, [elements / ROW, ROW]);
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
            let x = (0..elements).map(number).collect();
            let x = Candle::from_vec(x, elements, &Device::Cpu)?;
            let y = f(&x)?;
            contenders.push(("candle-core", Box::new(Theirs { f, x, y })));
        }
        let bytes = 4 * (self.op.input_names().len() + 1);
        let contenders = compare(contenders, elements, 0, ELEMENTS_OF_VISIT / elements, rounds);
        let conversion = self.name.to_owned();
        Ok(Comparison { conversion, elements, threads: self.threads, rounds, bytes, contenders })
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
