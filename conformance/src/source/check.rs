//! What a case may ask for.

use crate::case::{Against, CaseSpec, Criterion};
use crate::locate::Step;
use crate::strides;
use plumbline_reference::ops::{Dispatch, Op, Route, SignatureError};
use plumbline_reference::{Tensor, TensorType};

/// Bytes of the largest tensor that a case may ask for, and of all buffers of a sequence: several copies
/// are held at once.
pub(crate) const MAX_CASE_BYTES: usize = 1 << 30;

pub(crate) fn check_size(ty: &TensorType) -> Result<(), String> {
    let fits = ty.elements().is_ok_and(|elements| elements * ty.dtype.bytes() <= MAX_CASE_BYTES);
    let shape = &ty.shape;
    let limit = MAX_CASE_BYTES >> 30;
    if fits {
        Ok(())
    } else {
        Err(format!(
            "shape {shape:?} of {} needs more than {limit} GiB, the largest tensor of a case",
            ty.dtype
        ))
    }
}

/// Requires an exact product where the criterion judges those.
pub(crate) fn check_product(op: &Op, judge: Criterion) -> Result<(), String> {
    let is_judged = match (op, judge) {
        (_, criterion) if !criterion.is_of_products() => true,
        (Op::Gemm(gemm), _) => gemm.accumulate.is_none(),
        (Op::Gemv(gemv), Criterion::Bound) => gemv.accumulate.is_none(),
        (Op::BatchedGemv(gemv), Criterion::Bound) => gemv.accumulate.is_none(),
        (Op::GemmFused(fused), Criterion::Bound) => fused.accumulate.is_none(),
        (Op::PrefillLinear(linear), Criterion::Bound) => linear.accumulate.is_none(),
        // Models are of products that the steps end with.
        (Op::PrefillLinear(linear), Criterion::Explained) => {
            linear.accumulate.is_none() && ![Route::Fp8ViaF16, Route::Fused].contains(&linear.route)
        }
        (
            Op::Dispatch(Dispatch { route: Route::Dequantized | Route::Fused, gemv, gemm, .. }),
            Criterion::Bound,
        ) => gemv.is_none() && gemm.is_none(),
        (op, Criterion::Bound) => op.has_enclosure(),
        _ => false,
    };
    if is_judged {
        return Ok(());
    }
    Err("`bound`, `explained` and `freivalds` judge `gemm` without `accumulate`; `bound` also `gemv`, \
         `batched_gemv`, `gemm_fused`, `prefill_linear`, `dispatch` whose products are of f32, and layer \
         operations; `explained` also `prefill_linear` where it ends with a product"
        .to_owned())
}

/// Requires inputs that the reference refuses for the reason given, and nothing that says what a
/// result would be.
pub(super) fn check_refused(spec: &CaseSpec, types: &[TensorType], shaped: bool) -> Result<(), String> {
    let Some(refusal) = &spec.refused else { return Ok(()) };
    let has_result = spec.expect.is_some()
        || spec.output_strides.is_some()
        || spec.against != Against::Definition
        || spec.judge != Criterion::default();
    if has_result {
        return Err("there is no result to expect or judge; leave out what is said of one".to_owned());
    }
    if !shaped {
        return Err("every input needs a `shape`".to_owned());
    }
    for output in &refusal.outputs {
        check_size(&TensorType::new(output.dtype, output.shape.as_slice()))?;
    }
    match spec.op.signature(types) {
        // Known when the inputs are made.
        Ok(_) if !spec.op.checked().is_empty() => Ok(()),
        result => check_reason(spec, result.err()),
    }
}

/// Requires values that the reference refuses for the reason given, where types fit.
pub(super) fn check_refused_values(spec: &CaseSpec, inputs: &[Tensor]) -> Result<(), String> {
    let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
    match spec.op.signature(&types) {
        Ok(_) => check_reason(spec, spec.op.check(inputs).err()),
        Err(_) => Ok(()),
    }
}

fn check_reason(spec: &CaseSpec, error: Option<SignatureError>) -> Result<(), String> {
    let because = spec.refused.as_ref().map_or("", |refusal| &refusal.because);
    match error {
        None => Err(format!("the inputs fit {}", spec.op.name())),
        Some(error) if !because.is_empty() && error.to_string().contains(because) => Ok(()),
        Some(error) => Err(format!("because: the reference says `{error}`; write words of that")),
    }
}

/// Requires strides that an input can have, and memory for them.
pub(super) fn check_span(ty: &TensorType, strides: &[usize]) -> Result<(), String> {
    let why = |why| format!("strides: {why}");
    strides::check(ty, strides, true).map_err(why)?;
    let span = ty.span(strides).unwrap_or(usize::MAX);
    check_size(&TensorType::new(ty.dtype, [span])).map_err(why)
}

/// Requires strides that the outputs can have, as far as their shapes are known. The error
/// comes with its field.
pub(super) fn check_output_strides(
    spec: &CaseSpec,
    outputs: Option<&Vec<TensorType>>,
) -> Result<(), (Vec<Step>, String)> {
    let (Some(all), Some(outputs)) = (&spec.output_strides, outputs) else { return Ok(()) };
    let field = Step::Key("output_strides".into());
    if all.len() != outputs.len() {
        let (given, op) = (all.len(), spec.op.name());
        let why = format!(
            "strides of {given} outputs given, {op} gives {}; write null for one without gaps",
            outputs.len()
        );
        return Err((vec![field], why));
    }
    for (i, (strides, ty)) in all.iter().zip(outputs).enumerate() {
        let Some(strides) = strides else { continue };
        let span = || check_size(&TensorType::new(ty.dtype, [ty.span(strides).unwrap_or(usize::MAX)]));
        strides::check(ty, strides, false)
            .and_then(|()| span())
            .map_err(|why| (vec![field.clone(), Step::Index(i)], why))?;
    }
    Ok(())
}

pub(crate) fn check_criterion(criterion: Criterion) -> Result<(), String> {
    // Written so that NaN does not pass. Looser ones accept a zero for anything.
    match criterion {
        Criterion::BitExact | Criterion::Bound | Criterion::Explained | Criterion::Freivalds => Ok(()),
        Criterion::Ulp(n) if (0.0..=1e6).contains(&n) => Ok(()),
        Criterion::Ulp(_) => Err("a tolerance in ulp is a number from 0 to 1e6".to_owned()),
        Criterion::Allclose { rtol, atol }
            if (0.0..1.0).contains(&rtol) && (0.0..=f64::MAX).contains(&atol) =>
        {
            Ok(())
        }
        Criterion::Allclose { .. } => {
            Err("the tolerance rtol is from 0 to less than 1, atol is finite and not negative".to_owned())
        }
    }
}
