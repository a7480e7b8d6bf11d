//! Operations that are made of others: the steps of each in turn, with the values between them in
//! scratch memory.

use super::{BITS, gemv};
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::TensorType;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Op;
use plumbline_reference::program::{self, Program};

/// What a value's address is a multiple of: as much as an allocation's own.
const ALIGNMENT: usize = 256;

/// The program of an operation on inputs that fit its signature.
pub(super) fn of(op: &Op, inputs: &[TensorType]) -> Result<Program, Unsupported> {
    match op.program(inputs) {
        Ok(Some(program)) => Ok(program),
        Ok(None) => Err(Unsupported(format!("has no steps for {}", op.name()))),
        Err(error) => Err(Unsupported(error.to_string())),
    }
}

/// Bytes that the values between the steps take.
pub(super) fn scratch(program: &Program) -> usize {
    let (_, end) = layout(program);
    end
}

/// How an operation among the steps is done, matrix products by that variant.
fn variant<'a>(op: &Op, product: &'a str) -> &'a str {
    match op {
        Op::Gemm(_) => product,
        Op::Gemv(_) | Op::BatchedGemv(_) => gemv::WARP,
        _ => BITS,
    }
}

/// The units of all steps.
pub(super) fn kernels(program: &Program, product: &str) -> Vec<Unit> {
    let of = |step: &program::Step| match step {
        program::Step::Call { op, .. } => super::kernels(op, variant(op, product)),
        program::Step::Rows { .. } => Vec::new(),
    };
    program.steps().iter().flat_map(of).collect()
}

/// Where each value that is neither input nor output begins, and where all of them end.
fn layout(program: &Program) -> (Vec<Option<usize>>, usize) {
    let mut end = 0;
    let offsets = program.types().iter().enumerate().map(|(value, ty)| {
        if value < program.inputs() || program.outputs().contains(&value) {
            return None;
        }
        let first = end;
        end += bytes(ty).next_multiple_of(ALIGNMENT);
        Some(first)
    });
    (offsets.collect(), end)
}

fn bytes(ty: &TensorType) -> usize {
    // Types of a program's values have been checked.
    ty.elements().map_or(0, |elements| elements * ty.dtype.bytes())
}

/// The steps, matrix products by that variant, given as many bytes of scratch memory as they take.
pub(super) fn plan(
    program: &Program,
    product: &str,
    scratch: u64,
    inputs: &[View],
    outputs: &[View],
) -> Result<Vec<Step>, Unsupported> {
    let (offsets, _) = layout(program);
    let view = |value: usize| match offsets[value] {
        Some(first) => View::contiguous(scratch + first as u64, program.types()[value].clone()),
        None if value < program.inputs() => inputs[value].clone(),
        None => {
            let output = program.outputs().iter().position(|&own| own == value);
            outputs[output.unwrap_or(0)].clone()
        }
    };
    let mut steps = Vec::new();
    for step in program.steps() {
        match step {
            program::Step::Call { op, inputs, outputs } => {
                let views = |values: &[usize]| values.iter().map(|&value| view(value)).collect::<Vec<_>>();
                steps.extend(super::plan(op, variant(op, product), 0, &views(inputs), &views(outputs))?);
            }
            program::Step::Rows { from, to } => steps.extend(rows(&view(*from), &view(*to))),
        }
    }
    Ok(steps)
}

/// Rows copied, and zeros after them.
fn rows(from: &View, to: &View) -> Vec<Step> {
    let (given, made) = (bytes(&from.ty), bytes(&to.ty));
    let (copied, rest) = (given.min(made), made.saturating_sub(given));
    let copy = Step::Copy { from: from.address, to: to.address, bytes: copied };
    let zero = Step::Zero { address: to.address + copied as u64, bytes: rest };
    [(copied, copy), (rest, zero)].into_iter().filter(|(bytes, _)| *bytes > 0).map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::DType;
    use plumbline_reference::accumulate::Accumulation;
    use plumbline_reference::block::BlockFormat;
    use plumbline_reference::format::F32;
    use plumbline_reference::ops::{PrefillLinear, Route};

    /// Types of w, x and y.
    fn types([m, n, k]: [usize; 3]) -> [TensorType; 3] {
        let (format, blocks) = (BlockFormat::Q4K, k / BlockFormat::Q4K.values());
        [
            TensorType::new(DType::U8, [n, blocks, format.bytes()]),
            TensorType::new(F32, [m, k]),
            TensorType::new(F32, [m, n]),
        ]
    }

    fn padded(route: Route) -> Op {
        let accumulate = Some(Accumulation::Fma);
        PrefillLinear { pad: true, accumulate, ..PrefillLinear::new(BlockFormat::Q4K, route) }.into()
    }

    #[test]
    fn values_between_steps_are_apart_and_within_the_scratch_memory() {
        for route in [Route::Dequantized, Route::F16, Route::Fp8ViaF16, Route::Fp8] {
            let [w, x, y] = types([17, 9, 512]);
            let program = of(&padded(route), &[w, x, y][..2]).unwrap();
            let (offsets, end) = layout(&program);
            let mut there: Vec<_> =
                offsets.iter().zip(program.types()).filter_map(|(&at, ty)| Some((at?, bytes(ty)))).collect();
            there.sort_unstable();
            assert!(there.iter().all(|(at, _)| at % ALIGNMENT == 0));
            assert!(there.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{there:?}");
            assert!(there.iter().all(|(at, bytes)| at + bytes <= end));
            assert!(there.len() >= 3, "{there:?}");
        }
    }

    #[test]
    fn steps_read_what_is_given_or_made_and_write_the_output_last() {
        let [w, x, y] = types([17, 9, 512]);
        let inputs = [View::contiguous(1 << 20, w), View::contiguous(2 << 20, x)];
        let output = View::contiguous(3 << 20, y);
        let scratch = 4 << 20;
        let op = padded(Route::Fp8ViaF16);
        let program = of(&op, &inputs.each_ref().map(|view| view.ty.clone())).unwrap();
        let steps = plan(&program, "tiled", scratch, &inputs, std::slice::from_ref(&output)).unwrap();
        // The rows of x in 32 rows, and those of y back.
        let row = 512 * 4;
        match (&steps[0], &steps[1], steps.last()) {
            (
                Step::Copy { from, to, bytes },
                Step::Zero { address, bytes: zeros },
                Some(Step::Copy { to: last, bytes: of_y, .. }),
            ) => {
                assert_eq!((*from, *to, *bytes), (inputs[1].address, scratch, 17 * row));
                assert_eq!((*address, *zeros), (scratch + (17 * row) as u64, 15 * row));
                assert_eq!((*last, *of_y), (output.address, 17 * 9 * 4));
            }
            other => panic!("{other:?}"),
        }
        // A kernel or two for each step, and none is missing.
        let kernels = steps.iter().filter(|step| matches!(step, Step::Kernel(_))).count();
        assert!(kernels >= 8, "{steps:?}");
    }
}
