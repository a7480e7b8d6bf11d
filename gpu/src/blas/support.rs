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
