//! Inputs that are GGML blocks.

use super::{Input, beside};
use crate::case::TensorSpec;
use crate::recording::Recordings;
use crate::weights::Rows;
use plumbline_reference::DType;
use plumbline_reference::ops::Op;
use std::path::Path;

/// Rows of a GGUF file, where the case asks for them.
pub(super) fn resolve_rows(
    spec: &TensorSpec,
    file: &Path,
    recordings: &mut Recordings,
) -> Result<Option<Rows>, String> {
    let is_model = |file: &&Path| file.extension().is_some_and(|it| it.eq_ignore_ascii_case("gguf"));
    let model = spec.file.as_deref().filter(is_model);
    let Some(model) = model else {
        return match spec.rows {
            Some(_) => Err("`rows` goes with a GGUF file".to_owned()),
            None => Ok(None),
        };
    };
    let TensorSpec { dtype, shape, blocks, tensor, bits, generate, seed, lanes, strides, .. } = spec;
    let alone =
        bits.is_none() && generate.is_none() && seed.is_none() && lanes.is_none() && strides.is_none();
    let (Some(tensor), true, DType::U8, None) = (tensor, alone, dtype, shape) else {
        return Err(
            "a tensor of a GGUF file has `dtype: u8`, `file`, `tensor`, perhaps `blocks` and `rows`, and \
                    nothing else"
                .to_owned(),
        );
    };
    let rows = recordings.rows(&beside(file, model), tensor, spec.rows)?;
    match blocks {
        Some(format) if *format != rows.format() => {
            Err(format!("blocks: tensor `{tensor}` is {} in the file, not {format}", rows.format()))
        }
        _ => Ok(Some(rows)),
    }
}

/// The shape of an input. That of blocks is written in values.
pub(crate) fn shape_in_elements(spec: &TensorSpec) -> Result<Option<Vec<usize>>, String> {
    let Some(format) = spec.blocks else { return Ok(spec.shape.clone()) };
    if spec.dtype != DType::U8 {
        return Err(format!("blocks: the bytes of blocks are u8, not {}", spec.dtype));
    }
    match spec.shape.as_deref() {
        Some([outer @ .., k]) if k % format.values() == 0 => {
            Ok(Some([outer, &[k / format.values(), format.bytes()]].concat()))
        }
        Some([.., k]) => {
            let values = format.values();
            Err(format!(
                "shape: blocks of {format} hold {values} values each, and {k} is no multiple of that"
            ))
        }
        _ => Err("`blocks` needs `shape`, whose last dimension counts values".to_owned()),
    }
}

/// Requires blocks whose format is known to be those that the operation takes: others of the same
/// size would give a result too.
pub(super) fn check_blocks(op: &Op, i: usize, spec: &TensorSpec, input: Input) -> Result<Input, String> {
    let known = match &input {
        Input::Rows(rows) => Some(rows.format()),
        Input::Given(_) | Input::Generated { .. } => spec.blocks,
    };
    match (known, op.input_blocks(i)) {
        (Some(known), Some(taken)) if known != taken => {
            Err(format!("blocks: these are blocks of {known}, and {} takes {taken} here", op.name()))
        }
        _ => Ok(input),
    }
}
