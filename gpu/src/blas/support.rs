//! Which products each library takes, by its table of types. Shapes and strides are judged
//! later, and what the table allows may still have no kernel.

use super::product::{Way, is_fp8};
use crate::device::ComputeCapability;
use crate::module::{SM_89, SM_90};
use plumbline_reference::format::{BF16, E5M2, F16, F32, Format, Policy, TF32, Value};
use plumbline_reference::ops::{Bits32, Compute, Gemm, GemmScale};

/// Whether the way's library takes the product, or why not.
pub(crate) fn check(way: Way, gemm: &Gemm) -> Result<(), String> {
    if gemm.accumulate.is_some() {
        return Err("no library promises an order of accumulation".to_owned());
    }
    scalars(gemm)?;
    match way {
        Way::Cublas => cublas(gemm),
        Way::CublasLt(_) => cublaslt(gemm),
    }
}

/// Whether the architecture has it, or why not.
pub(crate) fn device(gemm: &Gemm, arch: ComputeCapability) -> Result<(), String> {
    if is_fp8(gemm.a) && arch < SM_89 {
        return Err(format!("FP8 products need {SM_89}, this is {arch}"));
    }
    if [gemm.scale_a, gemm.scale_b].contains(&GemmScale::Row) && arch != SM_90 {
        return Err(format!("scales per row are there only on {SM_90}, this is {arch}"));
    }
    Ok(())
}

/// With sums in f16, alpha and beta are f16.
fn scalars(gemm: &Gemm) -> Result<(), String> {
    let is_f16 = |Bits32(value): Bits32| f16(value).is_some();
    if gemm.compute == Compute::F16 && !(is_f16(gemm.alpha) && is_f16(gemm.beta)) {
        return Err("the libraries take alpha and beta in f16 with sums in f16".to_owned());
    }
    Ok(())
}

/// The code of a value that f16 holds.
pub(crate) fn f16(value: f32) -> Option<u16> {
    let code = F16.encode(Value::from(value), &Policy::IEEE, 0);
    let back = F32.encode(F16.decode(code), &Policy::IEEE, 0);
    (value.is_nan() || back == u64::from(value.to_bits())).then_some(code as u16)
}

/// What both libraries have: operands of one format wider than 8 bits.
fn wide(gemm: &Gemm) -> Result<(), String> {
    let Gemm { a, b, out, .. } = *gemm;
    if [a, b].contains(&TF32) {
        return Err("the libraries take f32 operands with compute tf32".to_owned());
    }
    let outputs: &[Format] = match (a, gemm.compute) {
        _ if a != b => &[],
        (F32, _) => &[F32],
        (F16, Compute::F16) => &[F16],
        (F16 | BF16, _) => &[a, F32],
        _ => &[],
    };
    if !outputs.contains(&out) {
        return Err(format!("the libraries have no product of {a} and {b} into {out}"));
    }
    if gemm.scale_a != GemmScale::None || gemm.scale_b != GemmScale::None || gemm.scale_out {
        return Err("the libraries have scales only with FP8".to_owned());
    }
    if let Some(c) = gemm.c.filter(|c| gemm.reads_c() && *c != out) {
        return Err(format!("the libraries take c in the output's format, not {c} with {out}"));
    }
    Ok(())
}

fn cublas(gemm: &Gemm) -> Result<(), String> {
    if is_fp8(gemm.a) || is_fp8(gemm.b) {
        return Err("cuBLAS has no FP8".to_owned());
    }
    wide(gemm)?;
    if gemm.bias.is_some() {
        return Err("cuBLAS has no bias".to_owned());
    }
    Ok(())
}

fn cublaslt(gemm: &Gemm) -> Result<(), String> {
    if is_fp8(gemm.a) && is_fp8(gemm.b) {
        return fp8(gemm);
    }
    wide(gemm)?;
    match gemm.bias {
        Some(bias) if bias != gemm.out => {
            Err(format!("cuBLASLt takes a bias in the output's format, not {bias} with {}", gemm.out))
        }
        _ => Ok(()),
    }
}

fn fp8(gemm: &Gemm) -> Result<(), String> {
    let Gemm { a, b, out, c, bias, scale_a, scale_b, .. } = *gemm;
    if [a, b] == [E5M2, E5M2] {
        return Err("cuBLASLt has no product of e5m2 and e5m2".to_owned());
    }
    if out == E5M2 && ![a, b].contains(&E5M2) {
        return Err("cuBLASLt has e5m2 outputs only with an operand in e5m2".to_owned());
    }
    let addend = c.filter(|_| gemm.reads_c());
    if is_fp8(out) {
        let named = addend.into_iter().chain(bias);
        let mut formats: Vec<_> = named.collect();
        formats.dedup();
        if formats.len() > 1 || formats.iter().any(|format| ![F16, BF16].contains(format)) {
            return Err("with FP8 outputs cuBLASLt takes c and bias both in f16 or both in bf16".to_owned());
        }
    } else {
        if addend.is_some_and(|c| c != out) {
            return Err("cuBLASLt takes c in the output's format".to_owned());
        }
        let expected = if out == F32 { BF16 } else { out };
        if bias.is_some_and(|bias| bias != expected) {
            return Err(format!("cuBLASLt takes a bias in {expected} with FP8 operands and {out} outputs"));
        }
        if gemm.scale_out {
            return Err("cuBLASLt scales only FP8 outputs".to_owned());
        }
    }
    let rows = [scale_a, scale_b].map(|scale| scale == GemmScale::Row);
    if rows[0] != rows[1] {
        return Err("cuBLASLt has scales per row of both operands or of neither".to_owned());
    }
    if rows[0] && is_fp8(out) {
        return Err("cuBLASLt has no FP8 outputs with scales per row".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::product::Algorithm;
    use super::*;
    use plumbline_reference::format::E4M3FN;

    const LT: Way = Way::CublasLt(Algorithm::First);

    fn ways(gemm: &Gemm) -> [bool; 2] {
        [Way::Cublas, LT].map(|way| check(way, gemm).is_ok())
    }

    #[test]
    fn types() {
        for (a, b, out, expected) in [
            (F32, F32, F32, [true, true]),
            (F16, F16, F16, [true, true]),
            (F16, F16, F32, [true, true]),
            (F16, F16, BF16, [false, false]),
            (BF16, BF16, BF16, [true, true]),
            (BF16, BF16, F32, [true, true]),
            (F32, F32, F16, [false, false]),
            (F16, BF16, F32, [false, false]),
            (TF32, TF32, F32, [false, false]),
            (E4M3FN, E4M3FN, F32, [false, true]),
            (E4M3FN, E4M3FN, F16, [false, true]),
            (E4M3FN, E5M2, BF16, [false, true]),
            (E5M2, E4M3FN, E5M2, [false, true]),
            (E4M3FN, E4M3FN, E4M3FN, [false, true]),
            (E4M3FN, E4M3FN, E5M2, [false, false]),
            (E5M2, E5M2, F32, [false, false]),
            (E4M3FN, F16, F32, [false, false]),
            (F16, E4M3FN, F32, [false, false]),
        ] {
            assert_eq!(ways(&Gemm::new(a, b, out)), expected, "{a} {b} {out}");
        }
    }

    #[test]
    fn what_is_added_has_the_right_format() {
        let f16 = Gemm::new(F16, F16, F16);
        let c = |c| Gemm { c: Some(c), beta: Bits32(1.0), ..f16.clone() };
        assert_eq!(ways(&c(F16)), [true, true]);
        assert_eq!(ways(&c(F32)), [false, false]);
        // What is not read does not count.
        assert_eq!(ways(&Gemm { beta: Bits32(-0.0), ..c(F32) }), [true, true]);
        assert_eq!(ways(&Gemm { bias: Some(F16), ..f16.clone() }), [false, true]);
        assert_eq!(ways(&Gemm { bias: Some(F32), ..f16 }), [false, false]);
        let fp8 = |out| Gemm::new(E4M3FN, E4M3FN, out);
        let bias = |out, bias| ways(&Gemm { bias: Some(bias), ..fp8(out) })[1];
        assert!(bias(F32, BF16) && bias(F16, F16) && bias(BF16, BF16) && bias(E4M3FN, F16));
        assert!(!bias(F32, F32) && !bias(F16, BF16) && !bias(E4M3FN, F32));
        let both = |c| Gemm { c: Some(c), beta: Bits32(1.0), bias: Some(BF16), ..fp8(E4M3FN) };
        assert_eq!((ways(&both(BF16))[1], ways(&both(F16))[1]), (true, false));
    }

    #[test]
    fn scales_are_for_fp8() {
        let scaled = |scale_a, scale_b, gemm: Gemm| Gemm { scale_a, scale_b, ..gemm };
        let (fp8, f16) = (|out| Gemm::new(E4M3FN, E4M3FN, out), Gemm::new(F16, F16, F16));
        use GemmScale::{None, Row, Tensor};
        assert_eq!(ways(&scaled(Tensor, None, f16.clone())), [false, false]);
        assert_eq!(ways(&Gemm { scale_out: true, ..f16 }), [false, false]);
        assert!(ways(&scaled(Tensor, Tensor, fp8(F32)))[1] && ways(&scaled(Tensor, None, fp8(F16)))[1]);
        assert!(ways(&scaled(Row, Row, fp8(BF16)))[1]);
        assert!(!ways(&scaled(Row, Tensor, fp8(BF16)))[1] && !ways(&scaled(Row, Row, fp8(E4M3FN)))[1]);
        assert!(ways(&Gemm { scale_out: true, ..fp8(E4M3FN) })[1]);
        assert!(!ways(&Gemm { scale_out: true, ..fp8(F16) })[1]);
        let by_row = scaled(Row, Row, fp8(BF16));
        assert!(device(&by_row, SM_90).is_ok() && device(&by_row, crate::module::SM_100).is_err());
        assert!(device(&fp8(F32), SM_89).is_ok() && device(&fp8(F32), crate::module::SM_80).is_err());
    }

    #[test]
    fn sums_in_f16_take_scalars_in_f16() {
        let gemm = Gemm { compute: Compute::F16, ..Gemm::new(F16, F16, F16) };
        assert_eq!(ways(&gemm), [true, true]);
        assert_eq!(ways(&Gemm { out: F32, ..gemm.clone() }), [false, false]);
        assert_eq!(ways(&Gemm { alpha: Bits32(-0.5), ..gemm.clone() }), [true, true]);
        assert_eq!(ways(&Gemm { alpha: Bits32(0.1), ..gemm.clone() }), [false, false]);
        assert_eq!(ways(&Gemm { alpha: Bits32(65536.0), ..gemm }), [false, false]);
        assert_eq!([1.0, -2.0, f32::INFINITY].map(f16), [Some(0x3c00), Some(0xc000), Some(0x7c00)]);
        assert!(f16(f32::NAN).is_some() && f16(1e-8).is_none());
    }
}
