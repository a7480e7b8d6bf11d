//! Every f32 there is: `cargo test --release --test fast -- --ignored --nocapture`.
//!
//! `PLUMBLINE_EXHAUSTIVE=e4m3fn,f16` restricts it to those targets.

use plumbline_reference::fast::{Conversion, Simd};
use plumbline_reference::format::{ALL, F32, F64, Policy};
use plumbline_reference::ops::{Cast, Decode, Op};
use plumbline_reference::{Path, Tensor, TensorType};
use std::time::{Duration, Instant};

const SLICE: usize = 1 << 22;

#[test]
#[ignore = "2^32 inputs per format: minutes each, in release"]
fn every_f32_to_every_format() {
    let only = std::env::var("PLUMBLINE_EXHAUSTIVE").ok();
    let chosen = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == name));
    for to in ALL.into_iter().filter(|to| chosen(to.name)) {
        // To f64 only decoding has a fast path.
        let (op, conversion) = if to == F64 {
            (Decode { from: F32, to }.into(), Conversion::decode(F32, to))
        } else {
            (Op::from(Cast::new(F32, to)), Conversion::cast(F32, to, &Policy::default()))
        };
        let conversion = conversion.unwrap();
        let mut spent: Vec<_> = Simd::all().map(|simd| (simd, Duration::ZERO)).collect();
        for first in (0..1 << 32).step_by(SLICE) {
            let ty = TensorType::new(F32, [SLICE]);
            let x = Tensor::from_fn(ty, Path::Parallel, |i| (first + i) as u64).unwrap();
            let expected = op.evaluate(std::slice::from_ref(&x), Path::Parallel).unwrap().remove(0);
            let mut y = vec![0; expected.bytes().len()];
            for (simd, spent) in &mut spent {
                let start = Instant::now();
                conversion.convert_parallel(*simd, x.bytes(), &[], &mut y);
                *spent += start.elapsed();
                if y != expected.bytes() {
                    let got = Tensor::from_bytes(expected.ty().clone(), y.clone()).unwrap();
                    let i = (0..SLICE).find(|&i| got.code(i) != expected.code(i)).unwrap();
                    panic!(
                        "f32 {:#010x} to {to} on {}: {:#x}, not {:#x}",
                        first + i,
                        simd.name(),
                        got.code(i),
                        expected.code(i)
                    );
                }
            }
        }
        for (simd, spent) in &spent {
            println!("f32 to {to} on {}: all 2^32 equal, {spent:.2?} converting", simd.name());
        }
    }
}
