//! Products with vectors.

use crate::noise::noise;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::fast::Simd;
use plumbline_reference::format::{F16, F32};
use plumbline_reference::ops::gemv::{Gemv, warp_order};
use plumbline_reference::ops::{Activations, BatchedGemv, BlockConversion, Dequantize, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};

fn f16(value: f64) -> [u8; 2] {
    (F16.encode(value.into(), &plumbline_reference::format::Policy::IEEE, 0) as u16).to_le_bytes()
}

/// Random blocks with moderate, distinct factors.
fn blocks(format: BlockFormat, shape: &[usize], seed: u64) -> Tensor {
    let count: usize = shape.iter().product();
    let mut bytes: Vec<u8> =
        (0..(count * format.bytes()) as u64).map(|i| noise(seed << 32 | i) as u8).collect();
    for (b, block) in bytes.chunks_exact_mut(format.bytes()).enumerate() {
        for (at, field) in format.layout().offsets() {
            use plumbline_reference::block::Kind;
            let value = 0.001 + (noise(seed ^ (b * 8 + at) as u64) % 4096) as f64 / 65536.0;
            match field.kind {
                Kind::F16 => block[at..at + 2].copy_from_slice(&f16(value)),
                Kind::F32 => block[at..at + 4].copy_from_slice(&(value as f32 / 3.0).to_le_bytes()),
                Kind::E8M0 => block[at] = 120 + block[at] % 16,
                _ => (),
            }
        }
    }
    let shape = [shape, &[format.bytes()]].concat();
    Tensor::from_bytes(TensorType::new(DType::U8, shape), bytes).unwrap()
}

fn numbers(shape: &[usize], seed: u64) -> Tensor {
    let ty = TensorType::new(F32, shape);
    Tensor::from_fn(ty, Path::Definition, |i| {
        let value = (noise(seed << 32 | i as u64) % 20001) as f32 / 10000.0 - 1.0;
        value.to_bits().into()
    })
    .unwrap()
}

fn activations(kind: Activations, outer: &[usize], k: usize, seed: u64) -> Tensor {
    match kind.blocks() {
        None => numbers(&[outer, &[k]].concat(), seed),
        Some(format) => blocks(format, &[outer, &[k / format.values()]].concat(), seed),
    }
}

fn f32s(op: &Op, inputs: &[Tensor]) -> Vec<f32> {
    let y = op.evaluate(inputs, Path::Definition).unwrap().remove(0);
    for path in [Path::Parallel].into_iter().chain(Simd::all().map(Path::Simd)) {
        assert!(op.evaluate(inputs, path).unwrap()[0] == y, "{op:?} on {path:?}");
    }
    y.codes().map(|code| f32::from_bits(code as u32)).collect()
}

fn decoded(format: BlockFormat, blocks: &Tensor) -> Vec<f32> {
    let op: Op = Dequantize { from: format, to: F32, conversion: BlockConversion::Direct }.into();
    f32s(&op, std::slice::from_ref(blocks))
}

/// The order of the kernels, written as a kernel is: 32 lanes and a tree.
fn warp(terms: impl Iterator<Item = (usize, f32, f32)>) -> f32 {
    let mut lanes = [0f32; 32];
    for (lane, a, b) in terms {
        lanes[lane] = a.mul_add(b, lanes[lane]);
    }
    let mut width = 16;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[test]
fn every_format_with_every_activation() {
    for weights in BlockFormat::ALL {
        for kind in Activations::ALL {
            let k = 1280;
            let w = blocks(weights, &[3, k / weights.values()], 1);
            let x = activations(kind, &[], k, 2);
            let inputs = [w.clone(), x.clone()];
            let exact = f32s(&Gemv::new(weights, kind).into(), &inputs);
            let ordered: Op =
                Gemv { accumulate: Some(warp_order(weights, kind)), ..Gemv::new(weights, kind) }.into();
            let ordered = f32s(&ordered, &inputs);
            let values = decoded(weights, &w);
            let numbers = kind.blocks().map_or_else(
                || x.codes().map(|code| f32::from_bits(code as u32)).collect(),
                |format| decoded(format, &x),
            );
            for n in 0..3 {
                let products = (0..k).map(|i| f64::from(values[n * k + i]) * f64::from(numbers[i]));
                let magnitude: f64 = products.clone().map(f64::abs).sum();
                let sum: f64 = products.sum();
                for (what, got) in [("exact", exact[n]), ("ordered", ordered[n])] {
                    let error = (f64::from(got) - sum).abs();
                    assert!(error <= 1e-6 * magnitude, "{weights} {kind:?} {what}: {got} {sum}");
                }
                if kind == Activations::F32 {
                    let terms = (0..k).map(|i| (i % 32, values[n * k + i], numbers[i]));
                    assert_eq!(ordered[n].to_bits(), warp(terms).to_bits(), "{weights}");
                }
            }
        }
    }
}

/// Integer products of Q4_K by Q8_1, written out.
#[test]
fn the_order_of_integer_products() {
    let (weights, k) = (BlockFormat::Q4K, 2304);
    let (w, x) = (blocks(weights, &[2, 9], 3), blocks(BlockFormat::Q8_1, &[72], 4));
    let kind = Activations::Q8_1;
    let op: Op = Gemv { accumulate: Some(warp_order(weights, kind)), ..Gemv::new(weights, kind) }.into();
    let got = f32s(&op, &[w.clone(), x.clone()]);
    let half = |bytes: &[u8]| F16.to_f64(u64::from(u16::from_le_bytes([bytes[0], bytes[1]]))) as f32;
    for (n, got) in got.iter().enumerate() {
        let terms = (0..k / 32).flat_map(|run| {
            let block = &w.bytes()[(n * 9 + run / 8) * 144..][..144];
            let x = &x.bytes()[run * 36..][..36];
            let (s, j) = (&block[4..16], run % 8);
            let (scale, min) = if j < 4 {
                (s[j] & 63, s[j + 4] & 63)
            } else {
                (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
            };
            let q = |i: usize| i32::from(block[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15);
            let q8 = |i: usize| i32::from(x[4 + i] as i8);
            let isum: i32 = (0..32).map(|i| q(i) * q8(i)).sum::<i32>() * i32::from(scale);
            let imin: i32 = (0..32).map(q8).sum::<i32>() * i32::from(min);
            let d8 = half(x);
            let pair = [(d8 * half(block), isum as f32), (d8 * -half(&block[2..]), imin as f32)];
            pair.map(|(factor, integer)| (run % 32, factor, integer))
        });
        assert_eq!(got.to_bits(), warp(terms).to_bits());
    }
}

/// A block sum of 96000 is beyond f16, and so the stored one is infinite; it is not read.
#[test]
fn large_activations_stay_finite() {
    let mut w = vec![0; 144];
    w[..2].copy_from_slice(&f16(1.0));
    // Scale 1 of every sub-block, quant 1.
    w[4..8].fill(1);
    w[12..16].fill(1);
    w[16..].fill(0x11);
    let mut x = Vec::new();
    for _ in 0..8 {
        x.extend([f16(3000.0 / 127.0), [0x00, 0x7c]].concat());
        x.extend([127; 32]);
    }
    let w = Tensor::from_bytes(TensorType::new(DType::U8, [1, 1, 144]), w).unwrap();
    let x = Tensor::from_bytes(TensorType::new(DType::U8, [8, 36]), x).unwrap();
    let (weights, kind) = (BlockFormat::Q4K, Activations::Q8_1);
    for accumulate in [None, Some(warp_order(weights, kind))] {
        let y = f32s(&Gemv { accumulate, ..Gemv::new(weights, kind) }.into(), &[w.clone(), x.clone()]);
        assert!((767_000.0..769_000.0).contains(&y[0]), "{y:?}");
    }
}

#[test]
fn k_at_every_multiple_of_a_block() {
    for k in (32..=1056).step_by(32) {
        let w = [&f16(1.0)[..], &[1; 32]].concat().repeat(k / 32);
        let w = Tensor::from_bytes(TensorType::new(DType::U8, [1, k / 32, 34]), w).unwrap();
        let x = Tensor::from_codes(TensorType::new(F32, [k]), &vec![127f32.to_bits().into(); k]).unwrap();
        let x8 = [&f16(1.0)[..], &[127; 32]].concat().repeat(k / 32);
        let x8 = Tensor::from_bytes(TensorType::new(DType::U8, [k / 32, 34]), x8).unwrap();
        for (kind, x) in [(Activations::F32, x), (Activations::Q8_0, x8)] {
            let order = warp_order(BlockFormat::Q8_0, kind);
            let op = Gemv { accumulate: Some(order), ..Gemv::new(BlockFormat::Q8_0, kind) };
            assert_eq!(f32s(&op.into(), &[w.clone(), x]), [127.0 * k as f32]);
        }
    }
}

#[test]
fn rows_of_a_batch_are_single_products() {
    for (weights, kind) in [
        (BlockFormat::Q4K, Activations::Q8_1),
        (BlockFormat::Q6K, Activations::F32),
        (BlockFormat::Q4_0, Activations::Q8_0),
    ] {
        let (w, k) = (blocks(weights, &[5, 512 / weights.values()], 5), 512);
        for m in [0, 1, 3, 16] {
            let x = activations(kind, &[m], k, 6);
            for accumulate in [None, Some(warp_order(weights, kind))] {
                let batched: Op =
                    BatchedGemv { weights, activations: kind, accumulate: accumulate.clone() }.into();
                let all = f32s(&batched, &[w.clone(), x.clone()]);
                assert_eq!(all.len(), 5 * m);
                let bytes = x.bytes().len().checked_div(m).unwrap_or(0);
                for i in 0..m {
                    let ty = TensorType::new(x.dtype(), &x.shape()[1..]);
                    let one = Tensor::from_bytes(ty, x.bytes()[i * bytes..][..bytes].to_vec()).unwrap();
                    let single = Gemv { weights, activations: kind, accumulate: accumulate.clone() };
                    assert_eq!(f32s(&single.into(), &[w.clone(), one]), all[i * 5..][..5]);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let error = |op: Op, w: &[usize], x: TensorType| {
        op.signature(&[TensorType::new(DType::U8, w), x]).unwrap_err().to_string()
    };
    let gemv: Op = Gemv::new(BlockFormat::Q4K, Activations::F32).into();
    assert_eq!(
        error(gemv.clone(), &[4, 2, 144], TensorType::new(F32, [500])),
        "gemv: input `x` has shape [500], expected K = 512, that of w, and not 500; K must be a \
         multiple of 256, the values of a block of q4_K"
    );
    assert_eq!(
        error(gemv.clone(), &[4, 2, 144], TensorType::new(F32, [2, 512])),
        "gemv: input `x` has shape [2, 512], expected one vector; several are for batched_gemv"
    );
    assert_eq!(
        error(gemv, &[2, 144], TensorType::new(F32, [512])),
        "gemv: input `w` has shape [2, 144], expected [N, K / 256, 144], blocks of q4_K"
    );
    let q8_k: Op = Gemv::new(BlockFormat::Q4_0, Activations::Q8K).into();
    assert_eq!(
        error(q8_k, &[4, 9, 18], TensorType::new(DType::U8, [2, 292])),
        "gemv: input `x` has shape [2, 292], expected K = 288, that of w, and not 512; K must be a \
         multiple of 256, the values of a block of q8_K"
    );
    let batched: Op =
        BatchedGemv { weights: BlockFormat::Q8_0, activations: Activations::F32, accumulate: None }.into();
    assert_eq!(
        error(batched, &[4, 1, 34], TensorType::new(F32, [17, 32])),
        "batched_gemv: input `x` has shape [17, 32], expected at most 16 vectors, and not 17; more are for gemm"
    );
}

#[test]
fn reports_show_the_first_block_of_a_row_and_of_a_vector() {
    let (w, k) = (blocks(BlockFormat::Q4_0, &[5, 4], 5), 128);
    for (kind, bytes) in [(Activations::F32, 4), (Activations::Q8_0, 34)] {
        let x = activations(kind, &[3], k, 6);
        let op: Op = BatchedGemv { weights: BlockFormat::Q4_0, activations: kind, accumulate: None }.into();
        let row = x.len() / 3;
        let sources = op.sources(&[w.clone(), x], 0, 2 * 5 + 4);
        let expected =
            (4 * 72..4 * 72 + 18).map(|i| (0, i)).chain((2 * row..2 * row + bytes).map(|i| (1, i)));
        assert_eq!(sources, expected.collect::<Vec<_>>());
    }
}
