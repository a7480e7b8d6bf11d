//! Every f32 there is: `cargo test --release --test fast -- --ignored --nocapture`.
//!
//! `PLUMBLINE_EXHAUSTIVE=e4m3fn,f16` restricts it to those targets.

use plumbline_reference::fast::{Conversion, Simd};
use plumbline_reference::format::{
    BF16, E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, Format, Infinities, Overflow,
    Policy, TF32, UE4M3,
};
use plumbline_reference::{Path, Tensor, TensorType};
use std::time::{Duration, Instant};

const SLICE: usize = 1 << 22;

/// The default policy as a constant.
const DEFAULT: Policy =
    Policy { overflow: Overflow::Saturate, infinities: Infinities::Saturate, ..Policy::IEEE };

/// A format and its encoding of the f32 from one on.
type Definition = (Format, fn(usize) -> Tensor);

/// The definition with formats as constants, which the compiler makes several times
/// faster than with formats as values.
macro_rules! definitions {
    ($($FORMAT:ident),*) => {
        [$(($FORMAT, |first| {
            let code = |i| $FORMAT.encode(F32.decode((first + i) as u64), &DEFAULT, 0);
            Tensor::from_fn(TensorType::new($FORMAT, [SLICE]), Path::Parallel, code).unwrap()
        })),*]
    };
}

const DEFINITIONS: [Definition; 13] =
    definitions![E4M3FN, E5M2, F16, BF16, E4M3FNUZ, E5M2FNUZ, TF32, F32, E8M0, E2M3, E3M2, E2M1, UE4M3];

#[test]
#[ignore = "2^32 inputs per format: minutes each, in release"]
fn every_f32_to_every_format() {
    let only = std::env::var("PLUMBLINE_EXHAUSTIVE").ok();
    let chosen = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == name));
    for (to, definition) in DEFINITIONS.into_iter().filter(|(to, _)| chosen(to.name)) {
        let conversion = Conversion::cast(F32, to, &Policy::default()).unwrap();
        assert_eq!(DEFAULT, Policy::default());
        let mut spent: Vec<_> = Simd::all().map(|simd| (simd, Duration::ZERO)).collect();
        for first in (0..1 << 32).step_by(SLICE) {
            let ty = TensorType::new(F32, [SLICE]);
            let x = Tensor::from_fn(ty, Path::Parallel, |i| (first + i) as u64).unwrap();
            let expected = definition(first);
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
