//! What looks like a fault and changes nothing.
//!
//! Such mutants cannot be killed, so they do not count. Each stands here with a proof that runs: over
//! every input there is, or by a property that is checked.

use super::{How, InputFault, Meaning, OutputFault, wrong};
use crate::seed;
use plumbline_reference::accumulate::{Accumulation, Instruction, Shape};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{ALL, BF16, E4M3FN, E5M2, F16, F32, Format};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, Cast, FormatInfo, Granularity, LogSoftmax, Mma, Op, PrefillLinear, Relu, Route,
    Softmax,
};
use plumbline_reference::{DType, Path, Tensor, TensorType};

/// A mutant that is no fault.
#[derive(Clone, Copy)]
pub struct Equal {
    /// Its name, as a mutant has one.
    pub name: &'static str,
    /// Why nothing changes.
    pub why: &'static str,
    how: How,
    inputs: fn() -> Vec<(Op, Vec<Tensor>)>,
}

/// Every one.
pub const EQUALS: &[Equal] = &[
    Equal {
        name: "cast/through_f32_from_16_bits",
        why: "f32 holds every f16 and bf16, so nothing is rounded on the way",
        how: How::Inputs(InputFault::Through(0, F32)),
        inputs: || {
            let pairs = [F16, BF16].into_iter().flat_map(|from| [E4M3FN, E5M2].map(|to| (from, to)));
            pairs.map(|(from, to)| (Cast::new(from, to).into(), vec![codes(from)])).collect()
        },
    },
    Equal {
        name: "cast/toward_zero_to_f32",
        why: "every code of at most 16 bits is an f32 that is not rounded",
        how: How::Meaning(Meaning::Field("rounding", "toward_zero")),
        inputs: || {
            let narrow = ALL.into_iter().filter(|format| format.code_bits() <= 16);
            narrow.map(|from| (Cast::new(from, F32).into(), vec![codes(from)])).collect()
        },
    },
    Equal {
        name: "absmax/zero_without_sign",
        why: "a magnitude has no sign: every group of one bf16",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: magnitudes,
    },
    Equal {
        name: "absmax/sign_lost",
        why: "a magnitude has no sign: every group of one bf16",
        how: How::Outputs(OutputFault::SignLost),
        inputs: magnitudes,
    },
    Equal {
        name: "relu/sign_lost",
        why: "no result of relu is negative, nor is one -0",
        how: How::Outputs(OutputFault::SignLost),
        inputs: || [F16, BF16].map(|from| (Relu { from, to: from }.into(), vec![codes(from)])).into(),
    },
    Equal {
        name: "relu/zero_without_sign",
        why: "no result of relu is negative, nor is one -0",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: || [F16, BF16].map(|from| (Relu { from, to: from }.into(), vec![codes(from)])).into(),
    },
    Equal {
        name: "softmax/sign_lost",
        why: "an exponential over a sum of such has no sign: every bf16 beside itself, 0, 1, +Inf and -Inf",
        how: How::Outputs(OutputFault::SignLost),
        inputs: || vec![(Softmax::new(BF16, F32).into(), vec![pairs()])],
    },
    Equal {
        name: "softmax/zero_without_sign",
        why: "an exponential over a sum of such has no sign: every bf16 beside itself, 0, 1, +Inf and -Inf",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: || vec![(Softmax::new(BF16, F32).into(), vec![pairs()])],
    },
    Equal {
        name: "softmax/infinity_is_large",
        why: "no exponential is larger than the sum that it is a part of: every bf16 beside the same",
        how: How::Outputs(OutputFault::InfinityIsLarge),
        inputs: || vec![(Softmax::new(BF16, F32).into(), vec![pairs()])],
    },
    Equal {
        name: "log_softmax/zero_without_sign",
        why: "a difference of equal numbers is +0, and no other one is 0: every bf16 beside the same",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: || vec![(LogSoftmax::new(BF16, F32).into(), vec![pairs()])],
    },
    Equal {
        name: "mma/zero_without_sign",
        why: "a block encodes every sum of 0 as +0: products and addends of all signs that are 0 or become so",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: zeros,
    },
    Equal {
        name: "prefill_linear/dequantized_for_fused",
        why: "by definition the fused route has the bits of the other",
        how: How::Meaning(Meaning::For("route", "fused", "dequantized")),
        inputs: || prefill(Route::Fused),
    },
    Equal {
        name: "prefill_linear/f16_for_tiles",
        why: "by definition the route of tiles has the bits of the other",
        how: How::Meaning(Meaning::For("route", "f16_tiles", "f16")),
        inputs: || prefill(Route::F16Tiles),
    },
    Equal {
        name: "format_info/nan_is_zero",
        why: "the constants of every format are finite",
        how: How::Outputs(OutputFault::NanIsZero),
        inputs: constants,
    },
    Equal {
        name: "format_info/nan_is_large",
        why: "the constants of every format are finite",
        how: How::Outputs(OutputFault::NanIsLarge),
        inputs: constants,
    },
    Equal {
        name: "format_info/infinity_is_large",
        why: "the constants of every format are finite",
        how: How::Outputs(OutputFault::InfinityIsLarge),
        inputs: constants,
    },
    Equal {
        name: "format_info/zero_without_sign",
        why: "no constant of any format is -0",
        how: How::Outputs(OutputFault::ZeroWithoutSign),
        inputs: constants,
    },
];

/// A tile of each instruction, of zeros and the smallest numbers of both signs.
fn zeros() -> Vec<(Op, Vec<Tensor>)> {
    let of = |&instruction: &Instruction| {
        let (Shape { m, n, k }, c) = (instruction.shape(), instruction.accumulator());
        let tensor = |format: Format, rows: usize, columns: usize, period: usize| {
            let least = format.min_positive();
            let codes = [format.sign_bit(), format.sign_bit() | least, 0, least];
            let code = |i: usize| codes[i / columns / period % 4];
            Tensor::from_fn(TensorType::new(format, [1, rows, columns]), Path::Definition, code)
                .expect("this is no large tensor")
        };
        let [a, b] = instruction.operands();
        let inputs = vec![tensor(a, m, k, 1), tensor(b, n, k, 1), tensor(c, m, n, 4)];
        (Mma { instruction }.into(), inputs)
    };
    Instruction::ALL.iter().map(of).collect()
}

/// A product of blocks of all bytes, by a route in ascending order.
fn prefill(route: Route) -> Vec<(Op, Vec<Tensor>)> {
    let (n, m, format) = (23, 5, BlockFormat::Q4K);
    let op = PrefillLinear { accumulate: Some(Accumulation::Fma), ..PrefillLinear::new(format, route) };
    let bytes = TensorType::new(DType::U8, [n, 1, format.bytes()]);
    // Factors of moderate size: the second byte of an f16 is 0x2c to 0x2f.
    let byte = |i: usize| match i % format.bytes() {
        1 | 3 => 0x2c + i as u64 % 4,
        _ => seed::mix(1, i as u64) & 0xff,
    };
    let number = |i: usize| u64::from((seed::mix(2, i as u64) as i16 as f32 / 1024.0).to_bits());
    let w = Tensor::from_fn(bytes, Path::Definition, byte);
    let x = Tensor::from_fn(TensorType::new(F32, [m, format.values()]), Path::Definition, number);
    vec![(op.into(), [w, x].map(|tensor| tensor.expect("this is no large tensor")).into())]
}

fn constants() -> Vec<(Op, Vec<Tensor>)> {
    ALL.into_iter().map(|format| (FormatInfo { format }.into(), Vec::new())).collect()
}

fn magnitudes() -> Vec<(Op, Vec<Tensor>)> {
    let op = |nan| Absmax { from: BF16, nan, granularity: Granularity::Row }.into();
    let x = shaped(BF16, vec![BF16.code_count() as usize, 1]);
    [AbsmaxNan::Propagate, AbsmaxNan::Ignore].map(|nan| (op(nan), vec![x.clone()])).into()
}

/// Rows of two: every bf16 beside itself and beside a few others.
fn pairs() -> Tensor {
    let others = [0x0000, 0x3f80, 0x7f80, 0xff80];
    let (count, kinds) = (BF16.code_count() as usize, others.len() + 1);
    let code = |i: usize| {
        let (row, own) = (i / 2, (i / 2 / kinds) as u64);
        if i.is_multiple_of(2) { own } else { others.get(row % kinds).copied().unwrap_or(own) }
    };
    Tensor::from_fn(TensorType::new(BF16, [count * kinds, 2]), Path::Definition, code)
        .expect("this is no large tensor")
}

/// Every code of a format, in order.
fn codes(format: Format) -> Tensor {
    shaped(format, vec![format.code_count() as usize])
}

fn shaped(format: Format, shape: Vec<usize>) -> Tensor {
    Tensor::from_fn(TensorType::new(format, shape), Path::Definition, |i| format.code_at(i as u64))
        .expect("no format of 16 bits has too many codes")
}

impl Equal {
    /// Requires every result to be the same; how many there are.
    pub fn prove(&self) -> Result<usize, String> {
        let mut results = 0;
        for (op, inputs) in (self.inputs)() {
            if let How::Meaning(meaning) = self.how
                && meaning.of(&op).is_none()
            {
                return Err(format!("{} is no other meaning of {}", self.name, op.name()));
            }
            let right = op.evaluate(&inputs, Path::fastest()).map_err(|error| error.to_string())?;
            if wrong(self.how, &op, &inputs, &right).map_err(|error| error.to_string())?.is_some() {
                return Err(format!("{} changes a result of {}", self.name, op.name()));
            }
            results += right.iter().map(Tensor::len).sum::<usize>();
        }
        if results == 0 { Err(format!("{}: nothing was compared", self.name)) } else { Ok(results) }
    }
}
