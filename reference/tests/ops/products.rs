//! What products refuse: shapes, formats, parameters and orders of accumulation.

use plumbline_reference::accumulate::{Accumulation, Block, BlockOutput, Instruction, Reduce, Split, Sum};
use plumbline_reference::format::{BF16, E4M3FN, E8M0, F16, F32, F64, Rounding, TF32};
use plumbline_reference::ops::{Bits32, Compute, Gemm, GemmScale, Mma, Op, Operands};
use plumbline_reference::{DType, TensorType};
use serde_json::json;

fn ty(dtype: impl Into<DType>, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

fn refusal(op: impl Into<Op>, inputs: &[TensorType]) -> String {
    op.into().signature(inputs).unwrap_err().to_string()
}

fn output(op: impl Into<Op>, inputs: &[TensorType]) -> TensorType {
    op.into().signature(inputs).unwrap().swap_remove(0)
}

fn plain() -> Gemm {
    Gemm::new(F16, F16, F32)
}

/// a and b of a product of those extents.
fn factors(m: usize, k: usize, n: usize) -> [TensorType; 2] {
    [ty(F16, &[m, k]), ty(F16, &[k, n])]
}

/// The product with one more input, of that type.
fn with(gemm: Gemm, input: TensorType) -> Result<TensorType, String> {
    let [a, b] = factors(2, 5, 3);
    let outputs = Op::from(gemm).signature(&[a, b, input]);
    outputs.map(|mut outputs| outputs.swap_remove(0)).map_err(|error| error.to_string())
}

#[test]
fn the_output_has_the_rows_of_a_and_the_columns_of_b() {
    assert_eq!(output(plain(), &factors(2, 5, 3)), ty(F32, &[2, 3]));
    assert_eq!(output(plain(), &factors(0, 5, 3)), ty(F32, &[0, 3]));
    assert_eq!(output(plain(), &factors(2, 0, 3)), ty(F32, &[2, 3]));
    let transposed = Gemm { transpose_a: true, transpose_b: true, ..plain() };
    assert_eq!(output(transposed, &[ty(F16, &[5, 2]), ty(F16, &[3, 5])]), ty(F32, &[2, 3]));
    assert_eq!(output(plain(), &[ty(F16, &[4, 2, 5]), ty(F16, &[4, 5, 3])]), ty(F32, &[4, 2, 3]));
}

#[test]
fn factors_are_matrices_that_fit_together() {
    let message = "gemm: input `a` has shape [4], expected [M, K], or with a batch in front";
    assert_eq!(refusal(plain(), &[ty(F16, &[4]), ty(F16, &[4, 3])]), message);
    let transposed = Gemm { transpose_a: true, transpose_b: true, ..plain() };
    let message = "gemm: input `a` has shape [], expected [K, M], or with a batch in front";
    assert_eq!(refusal(transposed.clone(), &[ty(F16, &[]), ty(F16, &[4, 3])]), message);
    let message = "gemm: input `b` has shape [1, 1, 4, 3], expected [K, N], or with a batch in front";
    assert_eq!(refusal(plain(), &[ty(F16, &[2, 4]), ty(F16, &[1, 1, 4, 3])]), message);
    let message = "gemm: input `b` has shape [4, 3], expected [5, N]";
    assert_eq!(refusal(plain(), &[ty(F16, &[2, 5]), ty(F16, &[4, 3])]), message);
    let message = "gemm: input `b` has shape [5, 3], expected [N, 5]";
    assert_eq!(refusal(transposed, &[ty(F16, &[5, 2]), ty(F16, &[5, 3])]), message);
    for shape in [&[5, 3][..], &[6, 5, 3]] {
        let message = format!("gemm: input `b` has shape {shape:?}, expected [7, 5, N]");
        assert_eq!(refusal(plain(), &[ty(F16, &[7, 2, 5]), ty(F16, shape)]), message);
    }
    let message = "gemm: input `b` is bf16, expected f16";
    assert_eq!(refusal(plain(), &[ty(F16, &[2, 5]), ty(BF16, &[5, 3])]), message);
}

#[test]
fn other_inputs_have_the_extents_of_the_output() {
    let c = |shape: &[usize]| {
        let gemm = Gemm { c: Some(BF16), beta: Bits32(1.0), ..plain() };
        with(gemm, ty(BF16, shape))
    };
    assert_eq!(c(&[2, 3]), Ok(ty(F32, &[2, 3])));
    assert_eq!(c(&[3, 2]).unwrap_err(), "gemm: input `c` has shape [3, 2], expected [2, 3]");

    let bias = |shape: &[usize]| with(Gemm { bias: Some(F16), ..plain() }, ty(F16, shape));
    assert!(bias(&[3]).is_ok());
    assert_eq!(bias(&[2]).unwrap_err(), "gemm: input `bias` has shape [2], expected [3]");

    let scale_a = |scale_a, shape: &[usize]| with(Gemm { scale_a, ..plain() }, ty(F32, shape));
    let scale_b = |scale_b, shape: &[usize]| with(Gemm { scale_b, ..plain() }, ty(F32, shape));
    for shape in [&[][..], &[1]] {
        assert!(scale_a(GemmScale::Tensor, shape).is_ok() && scale_b(GemmScale::Tensor, shape).is_ok());
    }
    assert!(scale_a(GemmScale::Row, &[2]).is_ok() && scale_b(GemmScale::Row, &[3]).is_ok());
    let message =
        |name, given, expected| format!("gemm: input `{name}` has shape {given}, expected {expected}");
    let tensor = "[] or [1]";
    assert_eq!(scale_a(GemmScale::Tensor, &[2]).unwrap_err(), message("scale_a", "[2]", tensor));
    assert_eq!(scale_b(GemmScale::Tensor, &[1, 1]).unwrap_err(), message("scale_b", "[1, 1]", tensor));
    assert_eq!(scale_a(GemmScale::Row, &[3]).unwrap_err(), message("scale_a", "[3]", "[2]"));
    assert_eq!(scale_b(GemmScale::Row, &[]).unwrap_err(), message("scale_b", "[]", "[3]"));
    let scale_out = with(Gemm { scale_out: true, ..plain() }, ty(F32, &[2]));
    assert_eq!(scale_out.unwrap_err(), message("scale_out", "[2]", tensor));
    let scale_out = with(Gemm { scale_out: true, ..plain() }, ty(F16, &[]));
    assert_eq!(scale_out.unwrap_err(), "gemm: input `scale_out` is f16, expected f32");
}

#[test]
fn only_the_inputs_that_parameters_ask_for_are_expected() {
    let gemm = Gemm { bias: Some(F16), scale_b: GemmScale::Tensor, ..plain() };
    let message = "gemm: 2 inputs given, expected 4: a, b, scale_b, bias";
    assert_eq!(refusal(gemm, &factors(2, 5, 3)), message);
}

#[test]
fn formats_and_parameters_that_no_product_has_are_refused() {
    let refusal = |gemm| refusal(gemm, &factors(2, 5, 3));
    let operands = "f32, tf32, f16, bf16, e4m3fn, e5m2";
    assert_eq!(refusal(Gemm::new(F64, F16, F32)), format!("gemm: `a`: f64 is none of {operands}"));
    assert_eq!(refusal(Gemm::new(F16, E8M0, F32)), format!("gemm: `b`: e8m0 is none of {operands}"));
    let outputs = "is none of f32, f16, bf16, e4m3fn, e5m2";
    assert_eq!(refusal(Gemm::new(F16, F16, TF32)), format!("gemm: `out`: {outputs}"));
    assert_eq!(refusal(Gemm { c: Some(F64), ..plain() }), format!("gemm: `c`: {outputs}"));
    assert_eq!(refusal(Gemm { bias: Some(E8M0), ..plain() }), format!("gemm: `bias`: {outputs}"));
    for beta in [1.0, f32::NAN, f32::from_bits(1)] {
        let message = "gemm: `beta`: is not zero, and there is no input c to multiply";
        assert_eq!(refusal(Gemm { beta: Bits32(beta), ..plain() }), message);
    }
    assert_eq!(output(Gemm { beta: Bits32(-0.0), ..plain() }, &factors(2, 5, 3)), ty(F32, &[2, 3]));
    for a in [F16, BF16, E4M3FN] {
        let gemm = Gemm { compute: Compute::Tf32, ..Gemm::new(a, F32, F32) };
        assert_eq!(refusal(gemm), "gemm: `compute`: tf32 is for operands in f32");
    }
    let gemm = Gemm { compute: Compute::F16, ..Gemm::new(F16, BF16, F32) };
    assert_eq!(refusal(gemm), "gemm: `compute`: f16 is for operands in f16");
}

#[test]
fn operands_are_converted_for_an_order_of_accumulation() {
    let operands = |to, rounding| Some(Operands { to, rounding });
    let refusal = |gemm| refusal(gemm, &factors(2, 5, 3));
    let gemm = Gemm { operands: operands(TF32, Rounding::NearestEven), ..plain() };
    assert_eq!(refusal(gemm), "gemm: `operands`: goes with `accumulate`");
    for operands in [operands(F64, Rounding::NearestEven), operands(TF32, Rounding::Stochastic)] {
        let message = "gemm: `operands`: are converted to any format but f64, and not at random";
        assert_eq!(refusal(plain().accumulated(operands, Accumulation::Fma)), message);
    }
    let converted = plain().accumulated(operands(E8M0, Rounding::Up), Accumulation::Fma);
    assert_eq!(output(converted, &factors(2, 5, 3)), ty(F32, &[2, 3]));
}

/// What is wrong with an order of accumulation.
fn complaint(accumulate: &Accumulation) -> String {
    let own = accumulate.check().unwrap_err();
    let message = refusal(plain().accumulated(None, accumulate.clone()), &factors(2, 5, 3));
    assert_eq!(message, format!("gemm: `accumulate`: {own}"));
    own
}

/// The order, alone and within sums of sums.
fn nested(order: Accumulation) -> [Accumulation; 3] {
    let sum = Accumulation::from(Sum::new(Split::Every(4), order.clone()));
    let twice = Sum::new(Split::Contiguous { parts: 2, granule: 1 }, sum.clone()).into();
    [order, sum, twice]
}

#[test]
fn blocks_have_products_and_bits_that_sums_hold() {
    let usual = Block::HOPPER;
    let blocks = [
        Block { products: 0, ..usual },
        Block { products: 257, ..usual },
        Block { fraction_bits: 0, ..usual },
        Block { fraction_bits: 41, ..usual },
        Block { min_exponent: 301, ..usual },
        Block { min_exponent: -301, ..usual },
        Block { output: BlockOutput::Truncate(0), ..usual },
        Block { output: BlockOutput::Truncate(24), ..usual },
    ];
    for block in blocks {
        let orders = [
            Accumulation::Chain(block),
            Accumulation::HalvesThenAdd(block),
            Accumulation::ResidueFirst { tile: 16, block },
        ];
        for order in orders.into_iter().flat_map(nested) {
            assert!(complaint(&order).starts_with("a block has 1 to 256 products"), "{order:?}");
        }
    }
    for (_, block) in Block::NAMED {
        assert_eq!(Accumulation::Chain(block).check(), Ok(()));
    }
}

#[test]
fn tiles_parts_runs_and_buffers_are_at_least_one() {
    for order in nested(Accumulation::ResidueFirst { tile: 0, block: Block::HOPPER }) {
        assert!(complaint(&order).ends_with("; a tile has products"), "{order:?}");
    }
    let splits = [
        Split::Every(0),
        Split::Every((1 << 20) + 1),
        Split::Contiguous { parts: 0, granule: 1 },
        Split::Contiguous { parts: 1, granule: 0 },
        Split::Interleaved { parts: 0, run: 1 },
        Split::Interleaved { parts: 1, run: 0 },
    ];
    for order in splits.into_iter().flat_map(|split| nested(Sum::new(split, Accumulation::Fma).into())) {
        assert_eq!(complaint(&order), "parts, runs and granules are from 1 to 2^20", "{order:?}");
    }
    let no_buffer = Sum { reduce: Reduce::Buffers(0), ..Sum::new(Split::Every(4), Accumulation::Fma) };
    for order in nested(no_buffer.into()) {
        assert_eq!(complaint(&order), "there is at least one buffer", "{order:?}");
    }
}

#[test]
fn halves_are_of_f32() {
    for block in [Block::HOPPER_F16, Block { output: BlockOutput::NearestF16, ..Block::HOPPER }] {
        for order in nested(Accumulation::HalvesThenAdd(block)) {
            assert_eq!(complaint(&order), "what is added in f32 are blocks of f32", "{order:?}");
        }
    }
    let nearest = Block { output: BlockOutput::NearestF32, ..Block::HOPPER };
    assert_eq!(Accumulation::HalvesThenAdd(nearest).check(), Ok(()));
}

#[test]
fn instructions_have_tiles_of_their_shape() {
    let mma = Mma { instruction: Instruction::MmaE4m3F32 };
    let [a, b, c] = [ty(E4M3FN, &[3, 16, 32]), ty(E4M3FN, &[3, 8, 32]), ty(F32, &[3, 16, 8])];
    assert_eq!(output(mma, &[a.clone(), b.clone(), c.clone()]), c);
    let refused = |i: usize, input: TensorType| {
        let mut inputs = [a.clone(), b.clone(), c.clone()];
        inputs[i] = input;
        refusal(mma, &inputs)
    };
    for shape in [&[16, 32][..], &[3, 16, 16], &[3, 8, 32], &[3, 1, 16, 32]] {
        let message = format!("mma: input `a` has shape {shape:?}, expected [tiles, 16, 32]");
        assert_eq!(refused(0, ty(E4M3FN, shape)), message);
    }
    let message = "mma: input `b` has shape [2, 8, 32], expected [3, 8, 32]";
    assert_eq!(refused(1, ty(E4M3FN, &[2, 8, 32])), message);
    let message = "mma: input `c` has shape [3, 8, 16], expected [3, 16, 8]";
    assert_eq!(refused(2, ty(F32, &[3, 8, 16])), message);
    assert_eq!(refused(2, ty(F16, &[3, 16, 8])), "mma: input `c` is f16, expected f32");
    let message = "mma: 2 inputs given, expected 3: a, b, c";
    assert_eq!(refusal(mma, &[a.clone(), b.clone()]), message);
}

/// What reading a product with one more field says.
fn unread(field: &str, value: serde_json::Value) -> String {
    let mut gemm = json!({ "a": "f16", "b": "f16", "out": "f32" });
    gemm[field] = value;
    serde_json::from_value::<Op>(json!({ "gemm": gemm })).unwrap_err().to_string()
}

#[test]
fn factors_are_written_as_bits() {
    let error = |text| unread("alpha", json!(text));
    assert!(error("1.0").contains("`1.0` is not a bit pattern; write quoted hex"));
    assert!(error("0x3f80").contains("`0x3f80` has 4 hex digits, f32 has 8"));
    assert!(error("0x3f80000g").contains("is not a bit pattern"));
    assert!(unread("alpha", json!(1.0)).contains("expected a string"));
    assert!(unread("beta", json!("0x1")).contains("has 1 hex digits"));
}

#[test]
fn a_block_that_is_not_there_lists_those_that_are() {
    let error = unread("accumulate", json!({ "chain": "kepler" }));
    assert!(error.contains("no block is named `kepler`, there are volta, "), "{error}");
    for (name, _) in Block::NAMED {
        assert!(error.contains(name), "{error}");
    }
    let error = unread("accumulate", json!({ "chan": "hopper" }));
    assert!(error.contains("unknown variant `chan`"), "{error}");
}
