//! Conversion instructions: which one does a conversion under a policy (PTX ISA, `cvt`).

use crate::device::ComputeCapability;
use crate::module::{SM_80, SM_89, SM_90, Unit};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, Policy, Rounding, TF32};
use plumbline_reference::ops::Cast;

/// A conversion instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Its opcode.
    pub(super) ptx: &'static str,
    /// Whether it converts two elements at once.
    pub(super) pair: bool,
    /// The oldest architecture that has it.
    pub(super) since: ComputeCapability,
}

impl Instruction {
    /// The unit that converts by it: with the constants that `cvt.cuh` reads.
    pub(super) fn on(&self, mut unit: Unit) -> Unit {
        unit.defines.push(("CVT", format!("\"{}\"", self.ptx)));
        unit.defines.push(("CVT_PAIR", u8::from(self.pair).to_string()));
        Unit { since: self.since, ..unit }
    }
}

/// A row: formats, policy, instruction.
pub(super) type Row = (Format, Format, Policy, Instruction);

/// Every instruction that does what a policy says for all inputs. Those to and from f64 do
/// not: they keep a NaN's payload. Nor does `cvt.rna.tf32.f32`: of the NaN 0x7f801000 an H200 makes infinity.
pub(super) fn table() -> Vec<Row> {
    let saturating = Policy::default();
    let ieee = |rounding| Policy { rounding, ..Policy::IEEE };
    let row = |from, to, policy, ptx, pair, since| (from, to, policy, Instruction { ptx, pair, since });
    use Rounding::{Down, NearestEven, TowardZero, Up};
    vec![
        row(F32, E4M3FN, saturating, "cvt.rn.satfinite.e4m3x2.f32", true, SM_89),
        row(F32, E5M2, saturating, "cvt.rn.satfinite.e5m2x2.f32", true, SM_89),
        row(F16, E4M3FN, saturating, "cvt.rn.satfinite.e4m3x2.f16x2", true, SM_89),
        row(F16, E5M2, saturating, "cvt.rn.satfinite.e5m2x2.f16x2", true, SM_89),
        row(E4M3FN, F16, Policy::IEEE, "cvt.rn.f16x2.e4m3x2", true, SM_89),
        row(E5M2, F16, Policy::IEEE, "cvt.rn.f16x2.e5m2x2", true, SM_89),
        row(F32, F16, ieee(NearestEven), "cvt.rn.f16.f32", false, SM_80),
        row(F32, F16, ieee(TowardZero), "cvt.rz.f16.f32", false, SM_80),
        row(F32, F16, ieee(Up), "cvt.rp.f16.f32", false, SM_80),
        row(F32, F16, ieee(Down), "cvt.rm.f16.f32", false, SM_80),
        row(F32, F16, saturating, "cvt.rn.satfinite.f16.f32", false, SM_80),
        row(F32, BF16, ieee(NearestEven), "cvt.rn.bf16.f32", false, SM_80),
        row(F32, BF16, ieee(TowardZero), "cvt.rz.bf16.f32", false, SM_80),
        row(F32, BF16, saturating, "cvt.rn.satfinite.bf16.f32", false, SM_80),
        row(F32, TF32, ieee(NearestEven), "cvt.rn.tf32.f32", false, SM_90),
        row(F32, TF32, ieee(TowardZero), "cvt.rz.tf32.f32", false, SM_90),
        row(F16, F32, Policy::IEEE, "cvt.f32.f16", false, SM_80),
    ]
}

/// The instruction of a conversion under a policy, if one does it on that architecture.
pub(super) fn instruction(
    from: Format,
    to: Format,
    policy: Policy,
    arch: ComputeCapability,
) -> Option<Instruction> {
    let found = table().into_iter().find(|(f, t, p, _)| (*f, *t, *p) == (from, to, policy));
    found.map(|(.., instruction)| instruction).filter(|instruction| instruction.since <= arch)
}

/// The instructions of an architecture, each with the conversion that it does.
pub(crate) fn instructions(arch: ComputeCapability) -> Vec<(Cast, &'static str)> {
    let rows = table().into_iter().filter(|(.., instruction)| instruction.since <= arch);
    rows.map(|(from, to, policy, it)| (Cast::new(from, to).with_policy(policy), it.ptx)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{CVT, OnDevice};
    use super::*;

    #[test]
    fn every_instruction_is_reached_by_the_cast_that_it_does() {
        for arch in crate::module::ARCHITECTURES {
            for (cast, ptx) in instructions(arch) {
                assert!(cast.variants(arch).contains(&CVT), "{cast:?}");
                let found = instruction(cast.from, cast.to, cast.policy(), arch);
                assert_eq!(found.map(|found| found.ptx), Some(ptx));
            }
        }
        assert!(instructions(SM_80).len() < instructions(SM_90).len());
    }
}
