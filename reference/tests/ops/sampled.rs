//! One or more instances of every operation, with inputs of any length.

use crate::noise::noise;
use plumbline_reference::accumulate::{Accumulation, Block, Instruction};
use plumbline_reference::block::mx::{self, MxFormat};
use plumbline_reference::block::{BlockFormat, Int8Format};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, E8M0, F16, F32, F64, Policy, Rounding, TF32};
use plumbline_reference::ops::{
    Absmax, Activations, Alignment, Attention, BatchedGemv, Bits32, BlockConversion, Cast, Causal, Classify,
    Decode, Dequantize, DeviceScaledCast, Dispatch, Elementary, FormatInfo, FusedActivation, GeluErf,
    GeluTanh, Gemm, GemmFused, GemmScale, Gemv, Int8Quantize, KvScatter, LayerNorm, LogSoftmax, Math, Mma,
    MxDequantize, MxQuantize, Op, Pairing, PrefillLinear, Product, Quantize, QuickGelu, Relu, RmsNorm, Rope,
    Route, ScaleOp, ScaledCast, ScaledDecode, Silu, Softmax, SoftmaxOrder, Swiglu,
};
use plumbline_reference::{DType, Path, Tensor, TensorType};

/// An operation and the element types of its inputs: first those as long as asked
/// for, then one scalar f32 where it takes a scale. Those of a product are in `product_types`, those of
/// a layer in `layer_types`.
pub(crate) struct Sample {
    pub(crate) op: Op,
    x: Option<DType>,
    scale: bool,
    random: bool,
}

impl Sample {
    fn new(op: impl Into<Op>, x: impl Into<DType>) -> Self {
        Self { op: op.into(), x: Some(x.into()), scale: false, random: false }
    }

    fn product(op: impl Into<Op>) -> Self {
        Self { op: op.into(), x: None, scale: false, random: false }
    }

    fn scaled(self) -> Self {
        Self { scale: true, ..self }
    }

    fn random(self) -> Self {
        Self { random: true, ..self }
    }

    /// Inputs of that shape, or products of about as many elements: half of the elements any bit pattern, half of them of
    /// moderate size.
    pub(crate) fn inputs(&self, shape: &[usize]) -> Vec<Tensor> {
        let make = |dtype: DType, shape: &[usize], seed: u64| {
            let code = |i: usize| match (noise(i as u64 ^ seed << 32), dtype) {
                (bits, DType::Float(format)) if bits >> 63 == 0 => {
                    let moderate = (bits % 2001) as f32 / 7.0 - 140.0;
                    format.encode(moderate.into(), &Policy::default(), 0)
                }
                // Places for rows, each once.
                (_, DType::U32) if self.op.name() == "kv_scatter" => i as u64,
                (bits, dtype) => bits & dtype.code_mask(),
            };
            Tensor::from_fn(TensorType::new(dtype, shape), Path::Definition, code).unwrap()
        };
        if let Some(types) = product_types(&self.op, shape).or_else(|| layer_types(&self.op, shape)) {
            let inputs = types.iter().zip(1..);
            return inputs.map(|(ty, seed)| make(ty.dtype, &ty.shape, seed)).collect();
        }
        let x = self.x.map(|dtype| make(dtype, shape, 1));
        let scale = self.scale.then(|| crate::support::scalar(3.7));
        let random = self.random.then(|| make(DType::U32, shape, 2));
        x.into_iter().chain(scale).chain(random).collect()
    }

    /// Whether output element `i` comes from input element `i` alone (and a scale).
    pub(crate) fn elementwise(&self) -> bool {
        self.x.is_some() && self.op.name() != "absmax"
    }
}

/// Types of the inputs of a product whose `a` has about that shape, or of whole blocks.
fn product_types(op: &Op, shape: &[usize]) -> Option<Vec<TensorType>> {
    match op {
        Op::Gemm(gemm) => {
            let (m, k, n) = match *shape {
                [m, k] => (m, k, 3),
                _ => (shape.iter().product(), 3, 2),
            };
            let ty = |name| match name {
                "a" => TensorType::new(gemm.a, [m, k]),
                "b" => TensorType::new(gemm.b, [k, n]),
                "c" => TensorType::new(gemm.c.unwrap(), [m, n]),
                "scale_a" => TensorType::new(F32, [m]),
                "bias" => TensorType::new(gemm.bias.unwrap(), [n]),
                _ => TensorType::new(F32, []),
            };
            Some(op.input_names().into_iter().map(ty).collect())
        }
        Op::Mma(Mma { instruction }) => {
            let (tiles, of) = (1 + shape.iter().product::<usize>() / 16_384, instruction.shape());
            let ([a, b], c) = (instruction.operands(), instruction.accumulator());
            let inputs = [(a, [tiles, of.m, of.k]), (b, [tiles, of.n, of.k]), (c, [tiles, of.m, of.n])];
            Some(inputs.map(|(format, shape)| TensorType::new(format, shape)).to_vec())
        }
        Op::MxQuantize(op) => {
            let (x, scale) =
                (TensorType::new(op.from, blocks(op.format, shape, 1)), TensorType::new(F32, []));
            let random =
                (op.rounding == Rounding::Stochastic).then(|| TensorType::new(DType::U32, x.shape.clone()));
            let scale = op.format.layout().tensor_scale.then_some(scale);
            Some([x].into_iter().chain(scale).chain(random).collect())
        }
        Op::MxDequantize(op) => {
            let layout = op.format.layout();
            let units = blocks(op.format, shape, 1 + usize::from(op.packed));
            let codes = TensorType::new(mx::dtype(layout.element, op.packed), units);
            let scales = TensorType::new(layout.scale, blocks(op.format, shape, layout.block));
            let scale = layout.tensor_scale.then(|| TensorType::new(F32, []));
            Some([codes, scales].into_iter().chain(scale).collect())
        }
        Op::Quantize(op) => Some(vec![TensorType::new(F32, whole(op.to, shape))]),
        Op::Int8Quantize(op) => Some(vec![TensorType::new(F32, whole(op.to.blocks(), shape))]),
        Op::Dequantize(op) => Some(vec![TensorType::new(DType::U8, in_bytes(op.from, shape))]),
        Op::Gemv(op) => {
            let k = shape[shape.len() - 1];
            let x = whole(op.weights, &[k]);
            let w = in_bytes(op.weights, &[3, k]);
            Some(vec![TensorType::new(DType::U8, w), TensorType::new(F32, x)])
        }
        Op::BatchedGemv(BatchedGemv { weights, .. })
        | Op::PrefillLinear(PrefillLinear { weights, .. })
        | Op::Dispatch(Dispatch { weights, .. }) => {
            let k = shape[shape.len() - 1];
            let x = whole(*weights, &[2, k]);
            let w = in_bytes(*weights, &[3, k]);
            Some(vec![TensorType::new(DType::U8, w), TensorType::new(F32, x)])
        }
        Op::GemmFused(op) => {
            let (m, k) = match *shape {
                [m, k] => (m, k),
                _ => (shape.iter().product(), 3),
            };
            let (a, b) = (TensorType::new(op.a, [m, k]), TensorType::new(op.b, [k, 2]));
            Some(vec![a, b, TensorType::new(F32, [2])])
        }
        _ => None,
    }
}

/// Types of the inputs of a layer, of about as many elements as that shape has.
fn layer_types(op: &Op, shape: &[usize]) -> Option<Vec<TensorType>> {
    let count = shape.iter().fold(1usize, |count, &extent| count.saturating_mul(extent));
    let rows = [count / 16, 16];
    match op {
        Op::Swiglu(op) => Some(vec![TensorType::new(op.from, shape); 2]),
        Op::Softmax(op) => Some(vec![TensorType::new(op.from, rows)]),
        Op::LogSoftmax(op) => Some(vec![TensorType::new(op.from, shape)]),
        Op::Attention(op) => {
            let cache = TensorType::new(op.kv, [2, count / 8, 4]);
            Some(vec![TensorType::new(op.q, [4, 3, 4]), cache.clone(), cache])
        }
        Op::RmsNorm(op) => Some(vec![TensorType::new(op.from, rows)]),
        Op::LayerNorm(op) => {
            let vectors = [op.weight, op.bias].into_iter().flatten();
            let vectors = vectors.map(|format| TensorType::new(format, [count]));
            Some([TensorType::new(op.from, [1, count])].into_iter().chain(vectors).collect())
        }
        Op::Rope(op) => {
            let x = TensorType::new(op.from, [count / 12, 2, 6]);
            Some(vec![x, TensorType::new(DType::U32, [count / 12])])
        }
        Op::KvScatter(op) => {
            let (rows, cache) = ([count / 6, 2, 3], [2, count / 6 + 3, 3]);
            let positions = TensorType::new(DType::U32, [rows[0]]);
            Some(vec![TensorType::new(op.dtype, rows), positions, TensorType::new(op.dtype, cache)])
        }
        _ => None,
    }
}

/// That shape with its last extent rounded up to whole blocks.
fn whole(format: BlockFormat, shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape.last_mut().map(|k| *k = k.next_multiple_of(format.values())).unwrap();
    shape
}

/// The shape of the blocks of so many values.
fn in_bytes(format: BlockFormat, shape: &[usize]) -> Vec<usize> {
    let mut shape = whole(format, shape);
    shape.last_mut().map(|k| *k /= format.values()).unwrap();
    [shape, vec![format.bytes()]].concat()
}

/// That shape with its last extent, in units of `per` elements, as many whole blocks as hold it.
fn blocks(format: MxFormat, shape: &[usize], per: usize) -> Vec<usize> {
    let block = format.layout().block;
    let mut shape = shape.to_vec();
    shape.last_mut().map(|k| *k = k.div_ceil(block) * block / per).unwrap();
    shape
}

pub(crate) fn samples() -> Vec<Sample> {
    let exact = Gemm {
        c: Some(BF16),
        beta: Bits32(0.5),
        scale_a: GemmScale::Row,
        scale_b: GemmScale::Tensor,
        scale_out: true,
        bias: Some(F16),
        ..Gemm::new(E4M3FN, E5M2, E4M3FN)
    };
    let chain = Gemm::new(F16, F16, F16).accumulated(None, Accumulation::Chain(Block::HOPPER));
    let attention = Attention {
        causal: Alignment::BottomRight,
        softmax: SoftmaxOrder::Online(32),
        probabilities: BF16,
        ..Attention::new(F32, F16, BF16)
    };
    let norm = LayerNorm {
        from: F32,
        weight: Some(BF16),
        bias: Some(F32),
        to: F16,
        eps: Bits32(1e-5),
        compensated: false,
    };
    let stochastic = Policy { rounding: Rounding::Stochastic, ..Policy::default() };
    vec![
        Sample::new(Cast::new(F32, E4M3FN), F32),
        Sample::new(Cast::new(F64, F32), F64),
        Sample::new(Cast::new(F32, F16).with_policy(stochastic), F32).random(),
        Sample::new(Decode { from: E5M2, to: F32 }, E5M2),
        Sample::new(Decode { from: E8M0, to: F64 }, E8M0),
        Sample::new(Classify { format: BF16 }, BF16),
        Sample { op: FormatInfo { format: TF32 }.into(), x: None, scale: false, random: false },
        Sample::new(ScaledCast::new(F16, E4M3FN), F16).scaled(),
        Sample::new(ScaledCast { scale_op: ScaleOp::Reciprocal, ..ScaledCast::new(F32, E5M2) }, F32).scaled(),
        Sample::new(Absmax { from: F16, nan: Default::default(), granularity: Default::default() }, F16),
        Sample::new(DeviceScaledCast::new(BF16, E4M3FN), BF16).scaled(),
        Sample::new(DeviceScaledCast::new(F32, E4M3FN).with_policy(stochastic), F32).scaled().random(),
        Sample::new(ScaledDecode { from: E4M3FN, granularity: Default::default() }, E4M3FN).scaled(),
        Sample::product(MxQuantize::new(F32, MxFormat::Mxfp8E5m2)),
        Sample::product(
            MxQuantize { packed: true, ..MxQuantize::new(BF16, MxFormat::Nvfp4) }.with_policy(stochastic),
        ),
        Sample::product(MxDequantize { packed: true, ..MxDequantize::new(MxFormat::Nvfp4, F16) }),
        Sample::product(MxDequantize::new(MxFormat::Mxfp6E3m2, F32)),
        Sample::product(Dequantize { from: BlockFormat::Q5K, to: F16, conversion: BlockConversion::Direct }),
        Sample::product(Gemv::new(BlockFormat::Q4K, Activations::F32)),
        Sample::product(BatchedGemv {
            weights: BlockFormat::Q6K,
            activations: Activations::F32,
            accumulate: None,
        }),
        Sample::product(Quantize { to: BlockFormat::Q3K }),
        Sample::product(Quantize { to: BlockFormat::Q4_1 }),
        Sample::product(Int8Quantize { to: Int8Format::Q8_1, rounding: None }),
        Sample::product(Int8Quantize { to: Int8Format::Q8K, rounding: None }),
        Sample::product(Mma { instruction: Instruction::MmaF16F32 }),
        Sample::product(Mma { instruction: Instruction::WgmmaE4m3F16 }),
        Sample::product(PrefillLinear {
            pad: true,
            ..PrefillLinear::new(BlockFormat::Q4_0, Route::Fp8ViaF16)
        }),
        Sample::product(Dispatch::new(BlockFormat::Q8_0, 2, Product::Gemv, Route::Dequantized)),
        Sample::product(GemmFused::new(F16, F16, FusedActivation::Relu)),
        Sample::new(Math { function: Elementary::Sin, from: F32, to: F32 }, F32),
        Sample::new(Math { function: Elementary::NormalCdf, from: BF16, to: F16 }, BF16),
        Sample::new(Relu { from: F16, to: BF16 }, F16),
        Sample::new(Silu { from: F32, to: F16 }, F32),
        Sample::new(GeluTanh { from: BF16, to: BF16 }, BF16),
        Sample::new(GeluErf { from: F32, to: F32 }, F32),
        Sample::new(QuickGelu { from: F16, to: F32 }, F16),
        Sample::product(Swiglu { from: F32, to: BF16 }),
        Sample::product(Softmax { causal: Some(Causal { offset: 7 }), ..Softmax::new(F32, F32) }),
        Sample::product(LogSoftmax { scale: Bits32(0.25), ..LogSoftmax::new(F16, F32) }),
        Sample::product(attention),
        Sample::product(RmsNorm { from: F32, weight: None, to: F32, eps: Bits32(1e-6), compensated: true }),
        Sample::product(norm),
        Sample::product(Rope { rotary_dim: Some(4), ..Rope::new(Pairing::Halves) }),
        Sample::product(KvScatter { dtype: E4M3FN.into() }),
        Sample::product(exact),
        Sample::product(chain),
    ]
}

#[test]
fn every_operation_is_sampled() {
    let samples = samples();
    for name in Op::NAMES {
        assert!(samples.iter().any(|sample| sample.op.name() == *name), "no sample of {name}");
    }
}
