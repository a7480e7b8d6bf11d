//! The crate `float8` as a second opinion.

use super::scalar::{
    Scalar, check_policy, check_variant, constants, no_conversion, no_format, no_operation, predicates,
};
use float8::{F8E4M3, F8E5M2};
use half::f16;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::format::{
    E4M3FN, E5M2, F16, F32, F64, Format, Infinities, NanPolicy, Overflow, Policy,
};
use plumbline_reference::{Tensor, ops::Op};

/// The crate float8 0.7: an independent encoder and decoder of E4M3FN and E5M2.
///
/// Its conversions are right. Its predicates and constants are not: it takes the
/// largest finite value for an infinity, zero for a subnormal, and knows one of
/// E5M2's three NaN payloads. They are reported as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Float8;

const POLICY: Policy = Policy {
    overflow: Overflow::Saturate,
    infinities: Infinities::Saturate,
    nan: NanPolicy::SignKept,
    ..Policy::IEEE
};

const VARIANTS: [&str; 1] = ["crate"];

fn encoder(from: Format, to: Format) -> Option<fn(u64) -> u64> {
    Some(match (from, to) {
        (F16, E4M3FN) => |x| F8E4M3::from(f16::from_bits(x as u16)).to_bits().into(),
        (F32, E4M3FN) => |x| F8E4M3::from_f32(f32::from_bits(x as u32)).to_bits().into(),
        (F64, E4M3FN) => |x| F8E4M3::from_f64(f64::from_bits(x)).to_bits().into(),
        (F16, E5M2) => |x| F8E5M2::from(f16::from_bits(x as u16)).to_bits().into(),
        (F32, E5M2) => |x| F8E5M2::from_f32(f32::from_bits(x as u32)).to_bits().into(),
        (F64, E5M2) => |x| F8E5M2::from_f64(f64::from_bits(x)).to_bits().into(),
        _ => return None,
    })
}

fn decoder(from: Format, to: Format) -> Option<fn(u64) -> u64> {
    Some(match (from, to) {
        (E4M3FN, F16) => |x| F8E4M3::from_bits(x as u8).to_f16().to_bits().into(),
        (E4M3FN, F32) => |x| F8E4M3::from_bits(x as u8).to_f32().to_bits().into(),
        (E4M3FN, F64) => |x| F8E4M3::from_bits(x as u8).to_f64().to_bits(),
        (E5M2, F16) => |x| F8E5M2::from_bits(x as u8).to_f16().to_bits().into(),
        (E5M2, F32) => |x| F8E5M2::from_bits(x as u8).to_f32().to_bits().into(),
        (E5M2, F64) => |x| F8E5M2::from_bits(x as u8).to_f64().to_bits(),
        _ => return None,
    })
}

fn scalar(op: &Op) -> Result<Scalar, Unsupported> {
    match op {
        Op::Cast(cast) => {
            let code = encoder(cast.from, cast.to).ok_or_else(|| no_conversion(op, cast.from, cast.to))?;
            check_policy(cast.policy(), POLICY)?;
            Ok(Scalar::Elementwise(code))
        }
        Op::Decode(decode) => decoder(decode.from, decode.to)
            .map(Scalar::Elementwise)
            .ok_or_else(|| no_conversion(op, decode.from, decode.to)),
        Op::Classify(classify) => match classify.format {
            E4M3FN => Ok(Scalar::Elementwise(|x| predicates!(F8E4M3::from_bits(x as u8)))),
            E5M2 => Ok(Scalar::Elementwise(|x| predicates!(F8E5M2::from_bits(x as u8)))),
            other => Err(no_format(other)),
        },
        Op::FormatInfo(info) => match info.format {
            E4M3FN => Ok(Scalar::Constants(constants!(F8E4M3))),
            E5M2 => Ok(Scalar::Constants(constants!(F8E5M2))),
            other => Err(no_format(other)),
        },
        _ => Err(no_operation(op)),
    }
}

impl Backend for Float8 {
    fn name(&self) -> &str {
        "float8"
    }

    fn device(&self) -> Device {
        Device { name: "float8 0.7".to_owned(), ..Device::default() }
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        scalar(op).map(drop)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        VARIANTS.map(str::to_owned).to_vec()
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let scalar = scalar(op)?;
        check_variant(op, variant, &VARIANTS)?;
        scalar.run(op, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_codes, assert_agrees, edges, expected, run, sample};
    use super::*;
    use plumbline_reference::format::BF16;
    use plumbline_reference::ops::{Cast, Classify, Decode, FormatInfo};

    fn cast(from: Format, to: Format) -> Op {
        Cast::new(from, to).with_policy(POLICY).into()
    }

    /// The codes whose class float8 gets wrong, with what it says and what is right.
    fn wrong_classes(format: Format) -> Vec<(u64, u64, u64)> {
        let op = Classify { format }.into();
        let codes = all_codes(format);
        let got = run(&Float8, &op, &codes);
        let all = codes.iter().zip(got.into_iter().zip(expected(&op, &codes)));
        all.filter(|(_, (got, right))| got != right).map(|(&code, (got, right))| (code, got, right)).collect()
    }

    #[test]
    fn casts_from_f32_agree_at_edges_and_on_every_997th_input() {
        let every_997th: Vec<_> = (0..1 << 32).step_by(997).collect();
        for to in [E4M3FN, E5M2] {
            assert_agrees(&Float8, &cast(F32, to), &edges(F32, to));
            assert_agrees(&Float8, &cast(F32, to), &every_997th);
        }
    }

    #[test]
    fn casts_from_f16_agree_on_every_input() {
        for to in [E4M3FN, E5M2] {
            assert_agrees(&Float8, &cast(F16, to), &all_codes(F16));
        }
    }

    #[test]
    fn casts_from_f64_agree_at_edges_and_on_random_inputs() {
        for to in [E4M3FN, E5M2] {
            assert_agrees(&Float8, &cast(F64, to), &edges(F64, to));
            assert_agrees(&Float8, &cast(F64, to), &sample(F64, to));
        }
    }

    #[test]
    fn nan_keeps_its_sign() {
        let signs =
            |to| run(&Float8, &cast(F32, to), &[0x7fc0_0000, 0xffc0_0000]).into_iter().map(|x| x >> 7);
        assert!(signs(E4M3FN).eq([0, 1]) && signs(E5M2).eq([0, 1]));
    }

    #[test]
    fn decode_agrees_on_every_code() {
        for (from, to) in [E4M3FN, E5M2].into_iter().flat_map(|from| [F16, F32, F64].map(|to| (from, to))) {
            assert_agrees(&Float8, &Decode { from, to }.into(), &all_codes(from));
        }
    }

    #[test]
    fn predicates_are_wrong_where_they_are_known_to_be() {
        assert_eq!(
            wrong_classes(E4M3FN),
            [
                (0x00, 0x08, 0x04), // zero: subnormal
                (0x7e, 0x02, 0x10), // 448: infinite
                (0x7f, 0x09, 0x01), // NaN: also subnormal
                (0x80, 0x88, 0x84),
                (0xfe, 0x82, 0x90),
                (0xff, 0x89, 0x81),
            ]
        );
        assert_eq!(
            wrong_classes(E5M2),
            [
                (0x00, 0x08, 0x04), // zero: subnormal
                (0x7b, 0x02, 0x10), // 57344: infinite
                (0x7c, 0x10, 0x02), // infinity: normal
                (0x7d, 0x10, 0x01), // NaN: normal
                (0x7e, 0x09, 0x01), // NaN: also subnormal
                (0x7f, 0x10, 0x01), // NaN: normal
                (0x80, 0x88, 0x84),
                (0xfb, 0x82, 0x90),
                (0xfc, 0x90, 0x82),
                (0xfd, 0x90, 0x81),
                (0xfe, 0x89, 0x81),
                (0xff, 0x90, 0x81),
            ]
        );
    }

    #[test]
    fn largest_values_are_one_step_too_small() {
        for (format, max) in [(E4M3FN, 416.0), (E5M2, 49152.0)] {
            let op = FormatInfo { format }.into();
            let mut right = expected(&op, &[]);
            right[..2].copy_from_slice(&[max, -max].map(f64::to_bits));
            assert_eq!(run(&Float8, &op, &[]), right);
        }
    }

    #[test]
    fn what_is_not_implemented_is_unsupported_with_a_reason() {
        let why = |op: Op| Float8.supports(&op).unwrap_err().0;
        let declare = "implements one policy; declare nan: sign_kept";
        assert_eq!(why(Cast::new(F32, E4M3FN).into()), declare);
        assert_eq!(why(cast(BF16, E4M3FN)), "has no cast from bf16 to e4m3fn");
        assert_eq!(why(Decode { from: E5M2, to: BF16 }.into()), "has no decode from e5m2 to bf16");
        assert_eq!(why(Classify { format: F16 }.into()), "has no format f16");
    }
}
