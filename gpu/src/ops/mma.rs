//! `mma`: the instruction itself.

use super::{MOST_BLOCKS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{SM_80, SM_89, SM_90, Source, Unit, constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::accumulate::Instruction;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{E4M3FN, Format};
use plumbline_reference::ops::Mma;

const SOURCE: Source = Source { name: "mma", text: include_str!("../../kernels/mma.cu") };

/// One PTX instruction per tile.
const INSTRUCTION: &str = "instruction";

/// A warpgroup, or four warps.
const THREADS: u32 = 128;

impl OnDevice for Mma {
    fn supports(&self, arch: ComputeCapability) -> Result<(), Unsupported> {
        match arch {
            SM_90 => Ok(()),
            arch if self.instruction.is_warpgroup() => {
                Err(Unsupported(format!("is {arch}, and wgmma is an instruction of {SM_90} alone")))
            }
            arch => Err(Unsupported(format!("is {arch}, and mma is defined by the arithmetic of {SM_90}"))),
        }
    }

    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![INSTRUCTION]
    }

    fn unit(&self, _: &str) -> Unit {
        unit(self.instruction)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let tiles = outputs[0].ty.shape[0] as u64;
        if tiles == 0 {
            return Ok(Vec::new());
        }
        let tiles_of_block = if self.instruction.is_warpgroup() { 1 } else { u64::from(THREADS / 32) };
        let tensors = inputs.iter().chain(outputs).map(|view| view.address);
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry: "mma",
            blocks: tiles.div_ceil(tiles_of_block).min(MOST_BLOCKS),
            threads: THREADS,
            shared: 0,
            arguments: tensors.chain([tiles]).map(Argument::from).collect(),
        })])
    }

    fn units() -> Vec<Unit> {
        Instruction::ALL.map(unit).to_vec()
    }
}

fn unit(instruction: Instruction) -> Unit {
    let [a, _] = instruction.operands();
    let defines = vec![
        ("INSTRUCTION", format!("\"{}\"", opcode(instruction))),
        ("OPERAND", constant(a)),
        ("ACCUMULATOR", constant(instruction.accumulator())),
        ("WARPGROUP", u8::from(instruction.is_warpgroup()).to_string()),
        ("FLAGS", format!("\"{}\"", flags(a))),
    ];
    let unit = Unit::new(SOURCE, defines);
    match instruction {
        _ if instruction.is_warpgroup() => Unit { since: SM_90, is_specific: true, ..unit },
        Instruction::MmaE4m3F32 | Instruction::MmaE5m2F32 => Unit { since: SM_89, ..unit },
        _ => Unit { since: SM_80, ..unit },
    }
}

/// The PTX opcode.
fn opcode(instruction: Instruction) -> String {
    let [a, b] = instruction.operands().map(ptx);
    let (k, c) = (instruction.shape().k, ptx(instruction.accumulator()));
    if instruction.is_warpgroup() {
        format!("wgmma.mma_async.sync.aligned.m64n8k{k}.{c}.{a}.{b}")
    } else {
        format!("mma.sync.aligned.m16n8k{k}.row.col.{c}.{a}.{b}.{c}")
    }
}

/// What follows the descriptors of `wgmma`: d is accumulated to, neither a nor b is negated,
/// nor transposed, where they can be.
fn flags(operand: Format) -> &'static str {
    if operand.storage_bits == 16 { "1, 1, 1, 0, 0" } else { "1, 1, 1" }
}

/// A format's name in PTX.
fn ptx(format: Format) -> &'static str {
    if format == E4M3FN { "e4m3" } else { format.name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{ARCHITECTURES, SM_100};

    #[test]
    fn opcodes_are_those_of_the_ptx_isa() {
        let expected = [
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
            "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32",
            "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16",
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
            "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32",
            "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3",
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3",
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2",
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2",
        ];
        assert_eq!(Instruction::ALL.map(opcode), expected);
    }

    /// The kernel's layouts are written for these.
    #[test]
    fn tiles_have_rows_of_32_bytes_and_8_columns() {
        for instruction in Instruction::ALL {
            let shape = instruction.shape();
            assert_eq!(shape.m, if instruction.is_warpgroup() { 64 } else { 16 });
            assert_eq!(shape.n, 8);
            for operand in instruction.operands() {
                assert_eq!(shape.k * operand.storage_bits as usize, 256, "{instruction:?}");
            }
        }
    }

    #[test]
    fn only_hopper_has_it() {
        for instruction in Instruction::ALL {
            for arch in ARCHITECTURES {
                assert_eq!(Mma { instruction }.supports(arch).is_ok(), arch == SM_90);
            }
        }
        let why = |instruction| Mma { instruction }.supports(SM_100).unwrap_err().0;
        assert_eq!(why(Instruction::WgmmaF16F32), "is sm_100, and wgmma is an instruction of sm_90 alone");
        assert_eq!(why(Instruction::MmaF16F32), "is sm_100, and mma is defined by the arithmetic of sm_90");
    }
}
