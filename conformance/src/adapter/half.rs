//! The crate `half` as a second opinion.

use super::scalar::{
    Scalar, check_policy, check_variant, constants, no_conversion, no_format, no_operation, predicates,
};
use half::{bf16, f16};
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::format::{BF16, F16, F32, F64, Format, NanPolicy, Policy};
use plumbline_reference::{Tensor, ops::Op};

/// The crate half 2.7: an independent encoder and decoder of binary16 and bfloat16.
///
/// Variant `software` is the crate's integer code. Variant `dispatched`, where
/// there is one, uses the processor's conversion if it has one (F16C, FP16).
///
/// From f64 the crate is wrong: its integer code drops the low 32 bits of the
/// significand, so that a value just above a tie counts as the tie. That is
/// reported as it is. What its dispatching function gives from f64 depends on the
/// processor (F16C rounds twice, FP16 once), so it is no variant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Half;

const POLICY: Policy = Policy { nan: NanPolicy::SignKept, ..Policy::IEEE };

const DISPATCHED: &str = "dispatched";
const SOFTWARE: &str = "software";

#[expect(clippy::disallowed_methods, reason = "its defect is what is reported")]
fn encoder(from: Format, to: Format, variant: &str) -> Option<fn(u64) -> u64> {
    Some(match (from, to, variant) {
        (F32, F16, DISPATCHED) => |x| f16::from_f32(f32::from_bits(x as u32)).to_bits().into(),
        (F32, F16, SOFTWARE) => |x| f16::from_f32_const(f32::from_bits(x as u32)).to_bits().into(),
        (F64, F16, SOFTWARE) => |x| f16::from_f64_const(f64::from_bits(x)).to_bits().into(),
        (F32, BF16, SOFTWARE) => |x| bf16::from_f32(f32::from_bits(x as u32)).to_bits().into(),
        (F64, BF16, SOFTWARE) => |x| bf16::from_f64(f64::from_bits(x)).to_bits().into(),
        _ => return None,
    })
}

fn decoder(from: Format, to: Format, variant: &str) -> Option<fn(u64) -> u64> {
    Some(match (from, to, variant) {
        (F16, F32, DISPATCHED) => |x| f16::from_bits(x as u16).to_f32().to_bits().into(),
        (F16, F32, SOFTWARE) => |x| f16::from_bits(x as u16).to_f32_const().to_bits().into(),
        (F16, F64, DISPATCHED) => |x| f16::from_bits(x as u16).to_f64().to_bits(),
        (F16, F64, SOFTWARE) => |x| f16::from_bits(x as u16).to_f64_const().to_bits(),
        (BF16, F32, SOFTWARE) => |x| bf16::from_bits(x as u16).to_f32().to_bits().into(),
        (BF16, F64, SOFTWARE) => |x| bf16::from_bits(x as u16).to_f64().to_bits(),
        _ => return None,
    })
}

/// Every operation has the variant `software`.
fn variants(op: &Op) -> &'static [&'static str] {
    match op {
        Op::Cast(cast) if (cast.from, cast.to) == (F32, F16) => &[DISPATCHED, SOFTWARE],
        Op::Decode(decode) if decode.from == F16 => &[DISPATCHED, SOFTWARE],
        _ => &[SOFTWARE],
    }
}

fn scalar(op: &Op, variant: &str) -> Result<Scalar, Unsupported> {
    match op {
        Op::Cast(cast) => {
            let code = encoder(cast.from, cast.to, variant);
            let code = code.ok_or_else(|| no_conversion(op, cast.from, cast.to))?;
            check_policy(cast.policy(), POLICY)?;
            Ok(Scalar::Elementwise(code))
        }
        Op::Decode(decode) => decoder(decode.from, decode.to, variant)
            .map(Scalar::Elementwise)
            .ok_or_else(|| no_conversion(op, decode.from, decode.to)),
        Op::Classify(classify) => match classify.format {
            F16 => Ok(Scalar::Elementwise(|x| predicates!(f16::from_bits(x as u16)))),
            BF16 => Ok(Scalar::Elementwise(|x| predicates!(bf16::from_bits(x as u16)))),
            other => Err(no_format(other)),
        },
        Op::FormatInfo(info) => match info.format {
            F16 => Ok(Scalar::Constants(constants!(f16))),
            BF16 => Ok(Scalar::Constants(constants!(bf16))),
            other => Err(no_format(other)),
        },
        _ => Err(no_operation(op)),
    }
}

impl Backend for Half {
    fn name(&self) -> &str {
        "half"
    }

    fn device(&self) -> Device {
        Device { name: "half 2.7".to_owned(), ..Device::default() }
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        scalar(op, SOFTWARE).map(drop)
    }

    fn variants(&self, op: &Op) -> Vec<String> {
        variants(op).iter().map(|&name| name.to_owned()).collect()
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.supports(op)?;
        check_variant(op, variant, variants(op))?;
        scalar(op, variant)?.run(op, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_codes, assert_agrees, edges, expected, run, sample};
    use super::*;
    use plumbline_reference::TensorType;
    use plumbline_reference::format::E4M3FN;
    use plumbline_reference::ops::{Cast, Classify, Decode, FormatInfo};

    fn cast(from: Format, to: Format) -> Op {
        Cast::new(from, to).with_policy(POLICY).into()
    }

    #[test]
    fn casts_from_f32_agree_at_edges_and_on_random_inputs() {
        for to in [F16, BF16] {
            assert_agrees(&Half, &cast(F32, to), &edges(F32, to));
            assert_agrees(&Half, &cast(F32, to), &sample(F32, to));
        }
    }

    #[test]
    fn nan_keeps_its_sign() {
        let signs = |to| run(&Half, &cast(F32, to), &[0x7fc0_0000, 0xffc0_0000]).into_iter().map(|x| x >> 15);
        assert!(signs(F16).eq([0, 1]) && signs(BF16).eq([0, 1]));
    }

    #[test]
    fn decode_and_classify_agree_on_every_code() {
        for format in [F16, BF16] {
            for to in [F32, F64] {
                assert_agrees(&Half, &Decode { from: format, to }.into(), &all_codes(format));
            }
            assert_agrees(&Half, &Classify { format }.into(), &all_codes(format));
        }
    }

    #[test]
    fn constants_agree() {
        for format in [F16, BF16] {
            assert_agrees(&Half, &FormatInfo { format }.into(), &[]);
        }
    }

    #[test]
    fn just_above_half_the_smallest_f16_is_lost_from_f64() {
        let x = [2.980232238769532e-8f64.to_bits()];
        assert_eq!(run(&Half, &cast(F64, F16), &x), [0x0000]);
        assert_eq!(expected(&cast(F64, F16), &x), [0x0001]);
    }

    #[test]
    fn casts_from_f64_are_those_of_the_input_without_its_low_32_bits() {
        for to in [F16, BF16] {
            let op = cast(F64, to);
            let inputs = [edges(F64, to), sample(F64, to)].concat();
            let is_finite = |x: &u64| f64::from_bits(*x).is_finite();
            let finite: Vec<_> = inputs.into_iter().filter(is_finite).collect();
            let cut: Vec<_> = finite.iter().map(|x| x >> 32 << 32).collect();
            assert_eq!(run(&Half, &op, &finite), expected(&op, &cut));
            assert_ne!(run(&Half, &op, &finite), expected(&op, &finite));
        }
    }

    #[test]
    fn what_is_not_implemented_is_unsupported_with_a_reason() {
        let why = |op: Op| Half.supports(&op).unwrap_err().0;
        let declare =
            "implements one policy; declare infinities: propagate, nan: sign_kept, overflow: to_inf_or_nan";
        assert_eq!(why(Cast::new(F32, F16).into()), declare);
        assert_eq!(why(cast(F32, E4M3FN)), "has no cast from f32 to e4m3fn");
    }

    #[test]
    fn f64_has_no_dispatched_variant() {
        assert_eq!(Half.variants(&cast(F64, F16)), [SOFTWARE]);
        let x = Tensor::from_codes(TensorType::new(F64, [1]), &[0]).unwrap();
        let result = Half.run(&cast(F64, F16), DISPATCHED, &[x]);
        assert!(matches!(result, Err(BackendError::Variant { .. })), "{result:?}");
    }
}
