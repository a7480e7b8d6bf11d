//! Wrong casts.

use super::{Fault, bits, elementwise, f32_of};
use plumbline_conformance::adapter::Closure;
use plumbline_reference::format::{
    BF16, E2M1, E4M3FN, E4M3FNUZ, E5M2, F16, F32, Format, Infinities, NanPolicy, NegativeZero, Overflow,
    Policy, Rounding, Subnormals,
};
use plumbline_reference::ops::Cast;
use plumbline_reference::{Path, Tensor, TensorType};

const DEFAULT: Policy = Policy {
    rounding: Rounding::NearestEven,
    overflow: Overflow::Saturate,
    infinities: Infinities::Saturate,
    nan: NanPolicy::Canonical,
    subnormals: Subnormals::Kept,
    negative_zero: NegativeZero::Kept,
};
const TIES_AWAY: Policy = Policy { rounding: Rounding::NearestAway, ..DEFAULT };
const PROPAGATE: Policy = Policy { infinities: Infinities::Propagate, ..DEFAULT };
const TRUNCATE: Policy = Policy { rounding: Rounding::TowardZero, ..DEFAULT };

/// A fault of the cast from f32 under the default policy that is another policy.
fn other_policy(
    id: &'static str,
    about: &'static str,
    to: Format,
    policy: Policy,
    examples: &[(u64, u64, u64)],
) -> Fault {
    elementwise(id, about, Cast::new(F32, to), move |x| to.encode(F32.decode(x), &policy, 0), examples)
}

pub(super) fn faults() -> Vec<Fault> {
    vec![
        elementwise(
            "e4m3-off-by-one",
            "the sticky bit is made from some of the discarded bits: just above a tie is a tie",
            Cast::new(F16, E4M3FN),
            // The lowest bit of an f16 is one of those left out.
            |x| E4M3FN.encode(F16.decode(if F16.decode(x).is_nan() { x } else { x & !1 }), &DEFAULT, 0),
            &[(0x3f41, 0x3f, 0x3e), (0x3c40, 0x38, 0x38)],
        )
        .reported("microsoft/onnxruntime#16938"),
        elementwise(
            "double-rounding-f32-f16-fp8",
            "rounded to f16, then to FP8",
            Cast::new(F32, E4M3FN),
            |x| E4M3FN.encode(F16.decode(F16.encode(F32.decode(x), &Policy::IEEE, 0)), &DEFAULT, 0),
            &[(0x3f88_0001, 0x39, 0x38), (0x3a80_0008, 0x01, 0x00), (0x3d77_ffff, 0x17, 0x18)],
        )
        .reported("triton-lang/triton#11753, openxla/xla#17324"),
        other_policy(
            "e5m2-ties-away",
            "ties away from zero",
            E5M2,
            TIES_AWAY,
            &[(bits(1.125), 0x3c, 0x3d), (bits(1.625), 0x3e, 0x3f)],
        )
        .reported("ahrefs/ocannl#646"),
        other_policy(
            "e5m2-subnormals-flushed",
            "subnormal results become zero",
            E5M2,
            Policy { subnormals: Subnormals::FlushedAfter, ..DEFAULT },
            &[(0x3780_0000, 0x01, 0x00)],
        )
        .reported("ahrefs/ocannl#646"),
        other_policy(
            "e5m2-negative-zero-lost",
            "-0 becomes +0",
            E5M2,
            Policy { negative_zero: NegativeZero::Dropped, ..DEFAULT },
            &[(bits(-0.0), 0x80, 0x00)],
        )
        .reported("ahrefs/ocannl#646"),
        other_policy(
            "e5m2-overflow-not-saturated",
            "finite values beyond the largest become infinity where they should saturate",
            E5M2,
            Policy { overflow: Overflow::ToInfOrNan, ..DEFAULT },
            &[(bits(65504.0), 0x7b, 0x7c), (bits(61440.0), 0x7b, 0x7c)],
        )
        .reported("ahrefs/ocannl#646"),
        elementwise(
            "e5m2-overflow-saturated",
            "finite values beyond the largest saturate where they should become infinity",
            Cast { overflow: Overflow::ToInfOrNan, ..Cast::new(F32, E5M2) },
            |x| E5M2.encode(F32.decode(x), &DEFAULT, 0),
            &[(bits(65504.0), 0x7c, 0x7b)],
        )
        .reported("ahrefs/ocannl#646"),
        elementwise(
            "fnuz-negative-zero",
            "a zero result keeps its sign, which is the code of NaN",
            Cast { infinities: Infinities::Propagate, ..Cast::new(F32, E4M3FNUZ) },
            |x| {
                let sign = if f32_of(x).is_sign_negative() { E4M3FNUZ.sign_bit() } else { 0 };
                E4M3FNUZ.encode(F32.decode(x), &PROPAGATE, 0) | sign
            },
            &[(bits(-1e-8), 0x00, 0x80), (bits(-0.0), 0x00, 0x80)],
        )
        .reported("microsoft/onnxruntime#18473"),
        elementwise(
            "fnuz-infinity-saturates",
            "infinities become the largest values where they should become NaN",
            Cast { infinities: Infinities::Propagate, ..Cast::new(F32, E4M3FNUZ) },
            |x| E4M3FNUZ.encode(F32.decode(x), &DEFAULT, 0),
            &[(bits(f32::INFINITY), 0x80, 0x7f), (bits(f32::NEG_INFINITY), 0x80, 0xff)],
        )
        .reported("microsoft/onnxruntime#18473"),
        other_policy(
            "fp8-truncated",
            "discarded bits are dropped",
            E4M3FN,
            TRUNCATE,
            &[(bits(1.1), 0x39, 0x38), (bits(1.9375), 0x40, 0x3f)],
        )
        .reported("NVlabs/cutile-rs#250"),
        elementwise(
            "f16-carry-ored",
            "the carry out of the fraction is OR-ed into the exponent, not added",
            Cast::new(F32, F16),
            f16_with_carry_ored,
            &[(bits(0.49999), 0x3800, 0x3400), (bits(520.25), 0x6010, 0x6010)],
        )
        .reported("VoidStarKat/half-rs#24"),
        other_policy(
            "f16-ties-away",
            "ties away from zero",
            F16,
            TIES_AWAY,
            &[(bits(520.25), 0x6010, 0x6011), (0x3300_0000, 0x0000, 0x0001)],
        )
        .reported("VoidStarKat/half-rs#24"),
        elementwise(
            "e2m1-ties-away",
            "thresholds belong to the larger magnitude",
            Cast::new(F32, E2M1),
            |x| e2m1_by_thresholds(f32_of(x), |magnitude, threshold| magnitude >= threshold),
            &[(bits(0.25), 0, 1), (bits(1.25), 2, 3), (bits(2.5), 4, 5), (bits(5.0), 6, 7)],
        )
        .reported("tenstorrent/tt-metal#51971"),
        elementwise(
            "e2m1-ties-toward-zero",
            "thresholds belong to the smaller magnitude",
            Cast::new(F32, E2M1),
            |x| e2m1_by_thresholds(f32_of(x), |magnitude, threshold| magnitude > threshold),
            &[(bits(0.75), 2, 1), (bits(3.5), 6, 5)],
        )
        .reported("ROCm/aiter#3992"),
        elementwise(
            "e2m1-through-bf16",
            "rounded to bf16, then to E2M1: just above a tie is a tie",
            Cast::new(F32, E2M1),
            |x| E2M1.encode(BF16.decode(BF16.encode(F32.decode(x), &Policy::IEEE, 0)), &DEFAULT, 0),
            &[(0x3e80_0001, 1, 0)],
        )
        .reported("tenstorrent/tt-metal#51971"),
        elementwise(
            "e4m3-465-to-nan",
            "rounded as if the top binade were complete: 480 is the code of NaN",
            Cast::new(F32, E4M3FN),
            |x| {
                let right = E4M3FN.encode(F32.decode(x), &DEFAULT, 0);
                let magnitude = f32_of(x).abs();
                if magnitude > 464.0 && magnitude < 496.0 { right | 0x7f } else { right }
            },
            &[(bits(465.0), 0x7e, 0x7f), (bits(-495.0), 0xfe, 0xff), (bits(464.0), 0x7e, 0x7e)],
        ),
        other_policy(
            "nan-to-max-finite",
            "NaN becomes the largest finite value",
            E4M3FN,
            Policy { nan: NanPolicy::MaxFinite, ..DEFAULT },
            &[(bits(f32::NAN), 0x7f, 0x7e)],
        ),
        one_lane_off_by_one(),
    ]
}

/// Rounds to nearest even in the range of normal results, but joins the fields by
/// OR: a fraction that rounds up to 2^10 loses its carry where the exponent field is odd.
fn f16_with_carry_ored(x: u64) -> u64 {
    let (sign, exponent, fraction) = (x >> 31 << 15, x >> 23 & 0xff, x & 0x7f_ffff);
    // Biases 127 and 15.
    if !(113..=142).contains(&exponent) {
        return F16.encode(F32.decode(x), &DEFAULT, 0);
    }
    let rounded = (fraction + 0xfff + (fraction >> 13 & 1)) >> 13;
    let joined = (exponent - 112) << 10 | rounded;
    sign | joined.min(F16.max_finite())
}

/// The number of thresholds that the magnitude passes; NaN and infinity saturate.
fn e2m1_by_thresholds(x: f32, passes: fn(f32, f32) -> bool) -> u64 {
    const THRESHOLDS: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    if x.is_nan() {
        return E2M1.max_finite();
    }
    let magnitude = THRESHOLDS.into_iter().filter(|&threshold| passes(x.abs(), threshold)).count() as u64;
    magnitude | if x.is_sign_negative() { E2M1.sign_bit() } else { 0 }
}

/// Element 7 of every 16 is wrong in its lowest bit, as one lane of a vector.
fn one_lane_off_by_one() -> Fault {
    let id = "one-lane-off-by-one";
    let cast = Cast::new(F32, E4M3FN);
    let backend = Closure::new(id, cast, |inputs| {
        let x = &inputs[0];
        let y = Tensor::from_fn(TensorType::new(E4M3FN, x.shape()), Path::Parallel, |i| {
            E4M3FN.encode(F32.decode(x.code(i)), &DEFAULT, 0) ^ u64::from(i % 16 == 7)
        })?;
        Ok(vec![y])
    });
    let mut wrong = vec![0x38; 32];
    wrong[7] = 0x39;
    wrong[23] = 0x39;
    let example =
        super::Example { inputs: vec![super::f32_tensor(&[1.0; 32])], right: vec![0x38; 32], wrong };
    let about = "one lane of a vectorised kernel gives the neighbouring code";
    Fault { id, about, report: None, op: cast.into(), backend: Box::new(backend), example }
}
