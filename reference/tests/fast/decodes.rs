//! Decodings of every pair of formats.

use crate::inputs::{around, as_doubles, landmarks};
use crate::support::{assert_agrees, tensor, up_to_32_bits, vector};
use plumbline_reference::format::{BF16, F16, F32, F64};
use plumbline_reference::ops::{Decode, Op, ScaledDecode};

#[test]
fn every_code_of_up_to_16_bits() {
    for from in up_to_32_bits().filter(|format| format.storage_bits <= 16) {
        let x = tensor(from, &[1 << from.storage_bits], |i| i as u64);
        for to in [F16, BF16, F32, F64] {
            assert_agrees(Decode { from, to }, std::slice::from_ref(&x));
        }
        for scale in [1.0, 3.7, -0.0, 1e-38, f32::MAX, f32::INFINITY, f32::NAN] {
            let scale = tensor(F32, &[], |_| scale.to_bits().into());
            let op = ScaledDecode { from, granularity: Default::default() };
            assert_agrees(op, &[x.clone(), scale]);
        }
    }
}

#[test]
fn every_byte_in_every_lane() {
    for from in up_to_32_bits().filter(|format| format.storage_bits == 8) {
        for first in 0..64 {
            let x = tensor(from, &[256], |i| ((first + i) % 256) as u64);
            for to in [F16, BF16, F32, F64] {
                assert_agrees(Decode { from, to }, std::slice::from_ref(&x));
            }
        }
    }
}

#[test]
fn boundaries_and_midpoints_of_wide_formats() {
    for to in [F16, BF16, F32, F64] {
        let near = if to == F64 { F32 } else { to };
        let codes = around(near, &landmarks(near));
        for from in up_to_32_bits().filter(|format| format.storage_bits == 32) {
            assert_agrees(Decode { from, to }, &[vector(from, &codes)]);
        }
        if [F16, BF16].contains(&to) {
            assert_agrees(Decode { from: F64, to }, &[vector(F64, &as_doubles(&codes))]);
        }
    }
    assert!(!Op::from(Decode { from: F64, to: F32 }).has_fast_path());
}
