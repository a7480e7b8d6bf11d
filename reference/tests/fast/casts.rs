//! Casts of every pair of formats.

use crate::inputs::{around, as_doubles, landmarks, positive_codes};
use crate::noise::noise;
use crate::support::{assert_agrees, main_policies, tensor, up_to_32_bits, vector, with_random};
use plumbline_reference::format::{BF16, F16, F32, F64, Policy, Rounding, TF32};
use plumbline_reference::ops::{Cast, Op};

#[test]
fn every_byte_under_every_policy() {
    for from in up_to_32_bits().filter(|format| format.storage_bits == 8) {
        // Bits of padding are set in some, and are to be ignored.
        let x = tensor(from, &[256], |i| i as u64);
        for to in up_to_32_bits() {
            for policy in Policy::all() {
                assert_agrees(Cast::new(from, to).with_policy(policy), &with_random(&x, &policy));
            }
        }
    }
}

#[test]
fn every_code_of_16_bits() {
    for from in [F16, BF16] {
        let x = tensor(from, &[1 << 16], |i| i as u64);
        for to in up_to_32_bits() {
            for policy in main_policies() {
                assert_agrees(Cast::new(from, to).with_policy(policy), &with_random(&x, &policy));
            }
        }
    }
}

#[test]
fn a_share_of_the_codes_of_16_bits_under_every_policy() {
    for from in [F16, BF16] {
        for to in up_to_32_bits() {
            for (offset, policy) in Policy::all().enumerate() {
                let x = tensor(from, &[1 << 11], |i| ((i << 5) | (offset % 32)) as u64);
                assert_agrees(Cast::new(from, to).with_policy(policy), &with_random(&x, &policy));
            }
        }
    }
}

#[test]
fn boundaries_and_midpoints_of_f32_under_every_policy() {
    for to in up_to_32_bits() {
        let x = vector(F32, &around(to, &landmarks(to)));
        for policy in Policy::all() {
            assert_agrees(Cast::new(F32, to).with_policy(policy), &with_random(&x, &policy));
        }
    }
}

#[test]
fn every_boundary_and_midpoint_of_16_bits() {
    for to in [F16, BF16] {
        let x = vector(F32, &around(to, &positive_codes(to)));
        for policy in main_policies() {
            assert_agrees(Cast::new(F32, to).with_policy(policy), &with_random(&x, &policy));
        }
    }
}

#[test]
fn padding_of_tf32_is_ignored() {
    for to in up_to_32_bits() {
        let x = vector(TF32, &around(to, &landmarks(to)));
        for policy in main_policies() {
            assert_agrees(Cast::new(TF32, to).with_policy(policy), &with_random(&x, &policy));
        }
    }
}

#[test]
fn f64_is_rounded_once() {
    for to in up_to_32_bits().filter(|&to| to != F32) {
        let x = vector(F64, &as_doubles(&around(to, &landmarks(to))));
        for policy in main_policies().into_iter().filter(|policy| policy.rounding != Rounding::Stochastic) {
            assert_agrees(Cast::new(F64, to).with_policy(policy), std::slice::from_ref(&x));
        }
    }
}

#[test]
fn a_sample_of_all_f32() {
    // An odd stride meets every low bit, all exponents and both signs.
    let x = tensor(F32, &[1 << 18], |i| (i as u64 * 16381) & 0xffff_ffff);
    let random = tensor(F32, &[1 << 18], |i| noise(i as u64) >> 32);
    for to in up_to_32_bits() {
        for rounding in Rounding::ALL {
            let policy = Policy { rounding, ..Policy::default() };
            for x in [&x, &random] {
                assert_agrees(Cast::new(F32, to).with_policy(policy), &with_random(x, &policy));
            }
        }
    }
}

#[test]
fn casts_that_would_round_twice_have_no_fast_path() {
    let stochastic = Policy { rounding: Rounding::Stochastic, ..Policy::default() };
    let without = [
        Cast::new(F64, F32),
        Cast::new(F32, F64),
        Cast::new(F64, F64),
        Cast::new(F64, F16).with_policy(stochastic),
    ];
    for cast in without {
        assert!(!Op::from(cast).has_fast_path(), "{cast:?}");
    }
}
