//! Any length, any alignment, any layout; nothing is written elsewhere.

use crate::noise::noise;
use crate::support::{assert_agrees, tensor};
use plumbline_reference::fast::{Conversion, Simd};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, E8M0, F16, F32, F64, Format, Policy, Rounding};
use plumbline_reference::ops::{Cast, Decode};
use plumbline_reference::{DType, Tensor, TensorType};

const GUARD: u8 = 0xa5;

/// A conversion, its formats and the code that the definition gives.
type Sample = (Conversion, Format, Format, fn(u64, u32) -> u64);

fn samples() -> Vec<Sample> {
    const STOCHASTIC: Policy = Policy { rounding: Rounding::Stochastic, ..Policy::IEEE };
    let cast = |from, to, policy: Policy| Conversion::cast(from, to, &policy).unwrap();
    let decode = |from, to| Conversion::decode(from, to).unwrap();
    vec![
        (cast(F32, E4M3FN, Policy::default()), F32, E4M3FN, |x, _| {
            E4M3FN.encode(F32.decode(x), &Policy::default(), 0)
        }),
        (cast(F32, F16, STOCHASTIC), F32, F16, |x, r| F16.encode(F32.decode(x), &STOCHASTIC, r)),
        (cast(F64, E5M2, Policy::IEEE), F64, E5M2, |x, _| E5M2.encode(F64.decode(x), &Policy::IEEE, 0)),
        (cast(E4M3FN, E8M0, Policy::IEEE), E4M3FN, E8M0, |x, _| {
            E8M0.encode(E4M3FN.decode(x), &Policy::IEEE, 0)
        }),
        (decode(E4M3FN, F32), E4M3FN, F32, |x, _| F32.encode(E4M3FN.decode(x), &Policy::IEEE, 0)),
        (decode(E4M3FN, F16), E4M3FN, F16, |x, _| F16.encode(E4M3FN.decode(x), &Policy::IEEE, 0)),
        (decode(BF16, F32), BF16, F32, |x, _| F32.encode(BF16.decode(x), &Policy::IEEE, 0)),
        (decode(F16, F64), F16, F64, |x, _| F64.encode(F16.decode(x), &Policy::IEEE, 0)),
    ]
}

#[test]
fn every_length_at_every_alignment() {
    for (conversion, from, to, definition) in samples() {
        let bytes = |format: Format| format.storage_bits as usize / 8;
        let (from_bytes, to_bytes) = (bytes(from), bytes(to));
        let memory: Vec<u8> = (0..2048).map(|i| noise(i) as u8).collect();
        for n in 0..130 {
            for offset in 0..16 {
                let x = &memory[offset..][..n * from_bytes];
                let random = &memory[offset + 1..][..n * 4];
                let number =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
                let mut expected = vec![GUARD; 17 + n * to_bytes + 64];
                let codes = x.chunks(from_bytes).zip(random.chunks(4));
                for (i, (x, random)) in codes.enumerate() {
                    let code = definition(number(x), number(random) as u32).to_le_bytes();
                    expected[17 - offset + i * to_bytes..][..to_bytes].copy_from_slice(&code[..to_bytes]);
                }
                for simd in Simd::all() {
                    let mut y = vec![GUARD; expected.len()];
                    conversion.convert(simd, x, random, &mut y[17 - offset..][..n * to_bytes]);
                    assert!(y == expected, "{from} to {to}, {n} at {offset} on {}", simd.name());
                }
            }
        }
    }
}

#[test]
fn large_results_go_past_the_caches_unharmed() {
    // Just beyond 8 MiB of result, with a last block and a last task that are not full.
    let elements = |to: Format| (8 << 20) * 8 / to.storage_bits as usize + 1037;
    for (from, to) in [(F32, E4M3FN), (E4M3FN, E5M2), (F16, BF16)] {
        let x = tensor(from, &[elements(to)], |i| noise(i as u64) & DType::from(from).code_mask());
        assert_agrees(Cast::new(from, to), &[x]);
    }
    for (from, to) in [(E4M3FN, F32), (E4M3FN, F16), (BF16, F64)] {
        let x = tensor(from, &[elements(to)], |i| noise(i as u64) & DType::from(from).code_mask());
        assert_agrees(Decode { from, to }, &[x]);
    }
}

#[test]
fn results_of_any_alignment_go_past_the_caches() {
    let n = (8 << 20) + 77;
    let x = tensor(F32, &[n], |i| noise(i as u64) >> 32);
    let conversion = Conversion::cast(F32, E4M3FN, &Policy::default()).unwrap();
    let mut expected = vec![0; n];
    conversion.convert(Simd::best(), x.bytes(), &[], &mut expected);
    for simd in Simd::all() {
        for offset in [0, 1, 16, 63] {
            let mut y = vec![GUARD; n + 128];
            conversion.convert_parallel(simd, x.bytes(), &[], &mut y[offset..][..n]);
            assert!(y[offset..][..n] == expected[..], "{offset} on {}", simd.name());
            assert!(y[..offset].iter().chain(&y[offset + n..]).all(|&byte| byte == GUARD));
        }
    }
}

#[test]
fn strides_repeats_and_gaps_are_followed() {
    let storage = tensor(F32, &[4000], |i| noise(i as u64) >> 32).bytes().to_vec();
    for (shape, strides) in [([50, 40], vec![80, 2]), ([50, 40], vec![1, 50]), ([50, 40], vec![0, 1])] {
        let x = Tensor::from_strided(TensorType::new(F32, shape), strides, storage.clone()).unwrap();
        assert_agrees(Cast::new(F32, E4M3FN), std::slice::from_ref(&x));
        assert_agrees(Decode { from: F32, to: F64 }, &[x]);
    }
    // Bytes beyond the last element are no input.
    let x = Tensor::from_strided(TensorType::new(F32, [30]), vec![1], storage).unwrap();
    assert_agrees(Cast::new(F32, F16), &[x]);
}
