//! Matrix products in every order of accumulation.

use crate::noise::noise;
use crate::support::{assert_agrees, tensor};
use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput, Instruction, Reduce, Split, Sum};
use plumbline_reference::fast::Simd;
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, F64, Format, Rounding, TF32};
use plumbline_reference::ops::gemm::OPERANDS;
use plumbline_reference::ops::{Bits32, EpilogueOrder, Gemm, GemmScale, Mma, Op, Operands};
use plumbline_reference::{Path, Tensor};

/// What operands are made of.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// Any bit pattern.
    Bits,
    /// Any finite number.
    Finite,
    /// From 1/16 to 16: what inference multiplies.
    Moderate,
    /// Numbers that differ by less than a format's precision, in ties and cancellations.
    Close,
    /// Below the smallest normal number.
    Subnormal,
    /// The largest binades.
    Huge,
    /// Mostly zeros of both signs.
    Sparse,
    /// All fraction bits set, all of one sign: sums as large as they get.
    Full,
    /// -0 times positive numbers.
    Vanishing,
    /// Within three binades from that exponent on, a few fraction bits set.
    From(i32),
}

const NUMBERS: [Numbers; 9] = [
    Numbers::Bits,
    Numbers::Finite,
    Numbers::Moderate,
    Numbers::Close,
    Numbers::Subnormal,
    Numbers::Huge,
    Numbers::Sparse,
    Numbers::Full,
    Numbers::Vanishing,
];

impl Numbers {
    fn code(self, format: Format, seed: u64, i: usize) -> u64 {
        let random = noise(i as u64 ^ seed << 40);
        let sign = if random >> 63 == 1 { format.sign_bit() } else { 0 };
        let fraction = |random: u64| random & ((1 << format.fraction_bits) - 1);
        let code = |field: i32, fraction: u64| {
            sign | format.code_at((field.max(0) as u64) << format.fraction_bits | fraction)
        };
        let largest = format.max_exponent() + format.bias;
        match self {
            Self::Bits if format.storage_bits == 32 => random & 0xffff_ffff,
            Self::Bits => random & format.code_mask(),
            Self::Finite => {
                let magnitude = random % (format.max_finite() >> format.low_padding);
                sign | format.code_at(magnitude)
            }
            Self::Moderate => code(format.bias - 4 + (random >> 40) as i32 % 8, fraction(random)),
            Self::Close => {
                code(format.bias - (random >> 40) as i32 % 2, fraction(random) & fraction(random >> 32) & 1)
            }
            Self::Subnormal => code(0, fraction(random)),
            Self::Huge => code(largest - 1 - (random >> 40) as i32 % 3, fraction(random)),
            Self::Full => {
                let sign = if seed == 2 { format.sign_bit() } else { 0 };
                sign | (code(format.bias, fraction(u64::MAX)) & !format.sign_bit())
            }
            Self::Vanishing if seed == 1 => format.sign_bit(),
            Self::Vanishing => Self::Moderate.code(format, seed, i) & !format.sign_bit(),
            Self::From(exponent) => {
                let field = format.bias + exponent + (random >> 40) as i32 % 3;
                code(field, fraction(random) & fraction(random >> 32))
            }
            Self::Sparse if random >> 40 & 7 > 0 => sign,
            Self::Sparse => Self::Finite.code(format, seed, i),
        }
    }

    fn tensor(self, format: Format, shape: &[usize], seed: u64) -> Tensor {
        tensor(format, shape, |i| self.code(format, seed, i))
    }
}

/// M, N, K: no multiples of anything, one element, several tiles.
const SHAPES: [[usize; 3]; 4] = [[5, 37, 71], [1, 1, 16], [18, 3, 33], [3, 65, 5]];

fn gemm(a: Format, b: Format, accumulate: Option<Accumulation>) -> Gemm {
    Gemm { accumulate, ..Gemm::new(a, b, F32) }
}

fn assert_products_agree(gemm: &Gemm, shapes: &[[usize; 3]], numbers: &[Numbers]) {
    for &[m, n, k] in shapes {
        for &numbers in numbers {
            let inputs = [numbers.tensor(gemm.a, &[m, k], 1), numbers.tensor(gemm.b, &[k, n], 2)];
            assert_agrees(gemm.clone(), &inputs);
        }
    }
}

fn named_blocks() -> impl Iterator<Item = Block> {
    Block::NAMED.into_iter().map(|(_, block)| block)
}

#[test]
fn every_named_block_on_every_format() {
    for block in named_blocks() {
        for format in OPERANDS {
            let gemm = gemm(format, format, Some(Accumulation::Chain(block)));
            assert_products_agree(&gemm, &SHAPES, &NUMBERS);
        }
    }
}

#[test]
fn blocks_of_any_parameters() {
    for i in 0..120 {
        let random = noise(i);
        let block = Block {
            products: 1 + (random % 40) as u32,
            fraction_bits: 1 + (random >> 8) as u32 % 40,
            min_exponent: (random >> 16) as u8 as i32 * 2 - 255,
            output: match random >> 60 {
                0 | 1 => BlockOutput::NearestF32,
                2 | 3 => BlockOutput::NearestF16,
                _ => BlockOutput::Truncate(1 + (random >> 32) as u32 % 23),
            },
        };
        let a = OPERANDS[(random >> 40) as usize % 6];
        let b = OPERANDS[(random >> 48) as usize % 6];
        let chain = gemm(a, b, Some(Accumulation::Chain(block)));
        assert_products_agree(&chain, &SHAPES[..1], &NUMBERS);
        let likely =
            Block { min_exponent: -133 + i as i32, fraction_bits: block.fraction_bits % 28 + 1, ..block };
        assert_products_agree(&gemm(a, b, Some(Accumulation::Chain(likely))), &SHAPES[..1], &NUMBERS[2..4]);
    }
}

#[test]
fn mixed_operands() {
    for (a, b) in [(E4M3FN, E5M2), (E5M2, E4M3FN), (F16, BF16), (TF32, F32)] {
        for block in [Block::HOPPER, Block::HOPPER_FP8, Block::BLACKWELL_FP8] {
            assert_products_agree(&gemm(a, b, Some(Accumulation::Chain(block))), &SHAPES, &NUMBERS);
        }
    }
}

#[test]
fn the_ends_of_what_registers_hold() {
    for format in [BF16, TF32] {
        for block in [Block::HOPPER, Block::HOPPER_TF32, Block::AMPERE, Block::HOPPER_FP8] {
            let gemm = gemm(format, format, Some(Accumulation::Chain(block)));
            for exponent in (-70..-20).chain(50..64) {
                assert_products_agree(&gemm, &[[2, 33, 34]], &[Numbers::From(exponent)]);
            }
        }
    }
}

#[test]
fn a_sum_beyond_31_bits() {
    // The accumulator is almost as large as each of sixteen products of the largest significands.
    for format in [F16, BF16] {
        let one = (format.bias as u64) << format.fraction_bits;
        let largest = one + (1 << format.fraction_bits) - 1;
        for sign in [0, format.sign_bit()] {
            let a = tensor(format, &[1, 32], |k| sign | if (1..16).contains(&k) { 0 } else { largest });
            let b = tensor(format, &[32, 33], |i| if i < 33 { one } else { largest - (i as u64 % 3) });
            assert_agrees(gemm(format, format, Some(Accumulation::Chain(Block::HOPPER))), &[a, b]);
        }
    }
}

#[test]
fn instructions_on_accumulators_of_any_size() {
    for instruction in Instruction::ALL {
        let ([a, b], c, shape) = (instruction.operands(), instruction.accumulator(), instruction.shape());
        for exponent in (-130..128).step_by(7) {
            let inputs = [
                Numbers::Sparse.tensor(a, &[1, shape.m, shape.k], 1),
                Numbers::Moderate.tensor(b, &[1, shape.n, shape.k], 2),
                Numbers::From(exponent.clamp(c.min_exponent() - 1, c.max_exponent() - 2)).tensor(
                    c,
                    &[1, shape.m, shape.n],
                    3,
                ),
            ];
            assert_agrees(Mma { instruction }, &inputs);
        }
    }
}

#[test]
fn single_multiply_adds() {
    for accumulate in [Accumulation::Fma, Accumulation::MultiplyAdd] {
        for format in OPERANDS {
            assert_products_agree(&gemm(format, format, Some(accumulate.clone())), &SHAPES, &NUMBERS);
        }
    }
}

#[test]
fn halves_of_fp8() {
    for block in [Block::HOPPER, Block::HOPPER_FP8, Block::AMPERE] {
        for format in [E4M3FN, E5M2, F16, BF16] {
            let gemm = gemm(format, format, Some(Accumulation::HalvesThenAdd(block)));
            assert_products_agree(&gemm, &SHAPES, &NUMBERS);
        }
    }
}

#[test]
fn sums_of_every_kind_of_part() {
    let splits = [
        Split::Contiguous { parts: 3, granule: 16 },
        Split::Contiguous { parts: 9, granule: 10 },
        Split::Every(32),
        Split::Every(1),
        Split::Interleaved { parts: 5, run: 1 },
        Split::Interleaved { parts: 32, run: 4 },
    ];
    let each = [
        Accumulation::Fma,
        Accumulation::MultiplyAdd,
        Accumulation::Chain(Block::HOPPER),
        Accumulation::Chain(Block::HOPPER_F16),
        Accumulation::HalvesThenAdd(Block::HOPPER),
        Accumulation::ResidueFirst { tile: 32, block: Block::HOPPER },
        Accumulation::ResidueFirst { tile: 20, block: Block::HOPPER_TF32 },
    ];
    let reduces = [
        Reduce::Ascending,
        Reduce::Descending,
        Reduce::Neighbours,
        Reduce::Halves,
        Reduce::Buffers(1),
        Reduce::Buffers(3),
    ];
    for split in splits {
        for each in &each {
            for reduce in reduces {
                for (partials, sums) in
                    [(F32, F32), (F16, F32), (BF16, F32), (F32, BF16), (F64, F16), (E5M2, E5M2)]
                {
                    let sum = Sum { split, each: each.clone(), reduce, partials, sums };
                    let gemm = gemm(F16, F16, Some(Accumulation::Sum(Box::new(sum))));
                    let numbers = [Numbers::Moderate, Numbers::Bits, Numbers::Sparse, Numbers::Vanishing];
                    assert_products_agree(&gemm, &[[2, 5, 71]], &numbers);
                }
            }
        }
    }
}

#[test]
fn sums_of_sums() {
    let promoted = |each, n| Accumulation::from(Sum::new(Split::Every(n), each));
    let split = |each, parts| {
        let split = Split::Contiguous { parts, granule: 64 };
        Accumulation::from(Sum { reduce: Reduce::Halves, partials: BF16, ..Sum::new(split, each) })
    };
    let chain = Accumulation::Chain(Block::HOPPER_FP8);
    let gemm = gemm(E4M3FN, E4M3FN, Some(split(promoted(chain, 48), 3)));
    assert_products_agree(&gemm, &[[7, 9, 300], [33, 40, 64], [2, 2, 0]], &NUMBERS);
    let pairwise = gemm.accumulated(None, promoted(Accumulation::Pairwise, 48));
    assert!(!Op::from(pairwise).has_fast_path());
}

#[test]
fn exact_sums() {
    for (a, b) in OPERANDS.map(|format| (format, format)).into_iter().chain([(E4M3FN, E5M2), (F32, F16)]) {
        assert_products_agree(&gemm(a, b, None), &SHAPES, &NUMBERS);
    }
}

#[test]
fn exact_sums_beyond_what_an_f64_holds() {
    // Digits as large as they get, up and down again; the first number makes the others long.
    let k = 19_999;
    let code = |i: usize| match i {
        0 => 1f32,
        i if i <= k / 2 => ((1 << 24) - 1) as f32 * 65536.0,
        _ => ((1 << 24) - 1) as f32 * -65536.0,
    };
    let a = tensor(F32, &[1, k], |i| code(i).to_bits().into());
    let b = tensor(F32, &[k, 1], |i| code(i).abs().to_bits().into());
    assert_agrees(gemm(F32, F32, None), &[a, b]);
}

/// Everything that comes after the sum.
fn dressed(accumulate: Option<Accumulation>) -> Gemm {
    Gemm {
        alpha: Bits32(-1.7),
        beta: Bits32(0.3),
        c: Some(BF16),
        scale_a: GemmScale::Row,
        scale_b: GemmScale::Tensor,
        scale_out: true,
        bias: Some(F16),
        ..gemm(E4M3FN, E4M3FN, accumulate)
    }
}

fn dress(m: usize, n: usize, numbers: Numbers) -> Vec<Tensor> {
    vec![
        numbers.tensor(BF16, &[2, m, n], 3),
        numbers.tensor(F32, &[m], 4),
        numbers.tensor(F32, &[1], 5),
        numbers.tensor(F32, &[], 6),
        numbers.tensor(F16, &[n], 7),
    ]
}

const EPILOGUES: [EpilogueOrder; 4] = [
    EpilogueOrder::FusedProduct,
    EpilogueOrder::FusedAddend,
    EpilogueOrder::FusedBias,
    EpilogueOrder::RoundedProduct,
];

#[test]
fn epilogues_batches_and_transposes() {
    for accumulate in [None, Some(Accumulation::Fma), Some(Accumulation::Chain(Block::HOPPER_FP8))] {
        for out in [F32, F16, BF16, E4M3FN, E5M2] {
            for (transposes, epilogue) in EPILOGUES.into_iter().enumerate() {
                let (transpose_a, transpose_b) = (transposes & 1 == 1, transposes & 2 == 2);
                let gemm = Gemm { out, transpose_a, transpose_b, epilogue, ..dressed(accumulate.clone()) };
                let (m, n, k) = (4, 33, 50);
                let a = if transpose_a { [2, k, m] } else { [2, m, k] };
                let b = if transpose_b { [2, n, k] } else { [2, k, n] };
                for numbers in [Numbers::Moderate, Numbers::Bits, Numbers::Sparse] {
                    let factors = [numbers.tensor(E4M3FN, &a, 1), numbers.tensor(E4M3FN, &b, 2)];
                    assert_agrees(gemm.clone(), &[&factors[..], &dress(m, n, numbers)].concat());
                }
            }
        }
    }
}

#[test]
fn converted_operands() {
    for to in [TF32, BF16, F16, E4M3FN] {
        for rounding in [Rounding::NearestEven, Rounding::TowardZero, Rounding::NearestAway] {
            let operands = Some(Operands { to, rounding });
            let gemm = gemm(F32, F32, None).accumulated(operands, Accumulation::Chain(Block::HOPPER_TF32));
            assert_products_agree(&gemm, &SHAPES[..1], &NUMBERS);
        }
    }
}

#[test]
fn nothing_to_multiply() {
    let promoted = Sum { reduce: Reduce::Halves, ..Sum::new(Split::Every(16), Accumulation::MultiplyAdd) };
    let orders = [
        None,
        Some(Accumulation::Fma),
        Some(Accumulation::MultiplyAdd),
        Some(Accumulation::Chain(Block::HOPPER)),
        Some(Accumulation::HalvesThenAdd(Block::HOPPER)),
        Some(Accumulation::Sum(Box::new(promoted))),
    ];
    for accumulate in orders {
        for [batch, m, n, k] in
            [[1, 0, 3, 4], [1, 3, 0, 4], [1, 3, 4, 0], [0, 3, 4, 5], [1, 0, 0, 0], [2, 1, 2, 0]]
        {
            let gemm = gemm(F16, F16, accumulate.clone());
            let inputs = [
                Numbers::Moderate.tensor(F16, &[batch, m, k], 1),
                Numbers::Moderate.tensor(F16, &[batch, k, n], 2),
            ];
            assert_agrees(gemm, &inputs);
        }
    }
}

#[test]
fn every_instruction() {
    for instruction in Instruction::ALL {
        let ([a, b], c, shape) = (instruction.operands(), instruction.accumulator(), instruction.shape());
        for numbers in NUMBERS {
            let inputs = [
                numbers.tensor(a, &[3, shape.m, shape.k], 1),
                numbers.tensor(b, &[3, shape.n, shape.k], 2),
                numbers.tensor(c, &[3, shape.m, shape.n], 3),
            ];
            assert_agrees(Mma { instruction }, &inputs);
        }
    }
}

#[test]
fn large_tiles_of_every_alignment() {
    for (m, n, k) in [(33, 97, 64), (64, 31, 40), (16, 32, 48)] {
        let gemm = gemm(F16, F16, Some(Accumulation::Chain(Block::HOPPER)));
        assert_products_agree(&gemm, &[[m, n, k]], &[Numbers::Moderate, Numbers::Finite]);
    }
}

#[test]
fn elements_alone_are_those_of_the_whole() {
    let (m, n, k) = (3, 40, 50);
    for accumulate in [None, Some(Accumulation::Fma), Some(Accumulation::Chain(Block::HOPPER_FP8))] {
        let gemm = dressed(accumulate);
        for numbers in [Numbers::Moderate, Numbers::Bits] {
            let factors = [numbers.tensor(E4M3FN, &[2, m, k], 1), numbers.tensor(E4M3FN, &[2, k, n], 2)];
            let inputs = [&factors[..], &dress(m, n, numbers)].concat();
            let whole = Op::from(gemm.clone()).evaluate(&inputs, Path::Definition).unwrap();
            let positions: Vec<_> = (0..2 * m * n).step_by(7).collect();
            let expected: Vec<_> = positions.iter().map(|&i| whole[0].code(i)).collect();
            assert_eq!(gemm.at(&inputs, &positions, Path::Definition), expected);
            for simd in Simd::all() {
                assert_eq!(gemm.at(&inputs, &positions, Path::Simd(simd)), expected, "{}", simd.name());
            }
        }
    }
}
