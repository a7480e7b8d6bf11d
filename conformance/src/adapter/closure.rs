//! A function as a backend.

use super::scalar::{check_inputs, check_variant, elementwise};
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::{Tensor, ops::Op};

/// A backend over a function, for one operation with its parameters.
///
/// The inputs have been checked against the operation when the function is called;
/// what it returns is not: that is for the judge.
///
/// ```
/// use plumbline_conformance::adapter::Closure;
/// use plumbline_reference::format::{E8M0, F32};
/// use plumbline_reference::{Backend, Tensor, TensorType, ops::{Decode, Op}};
///
/// let op = Op::from(Decode { from: E8M0, to: F32 });
/// let shift = Closure::elementwise("shift", op.clone(), |code| code << 23);
/// let codes = Tensor::from_codes(TensorType::new(E8M0, [2]), &[127, 255])?;
/// let values = shift.run(&op, "closure", &[codes])?;
/// // 1, and infinity where NaN would be right
/// assert_eq!(values[0].codes().collect::<Vec<_>>(), [0x3f80_0000, 0x7f80_0000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Closure<'a> {
    name: String,
    op: Op,
    function: Box<Function<'a>>,
}

type Function<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>, BackendError> + Send + Sync + 'a;

const VARIANTS: [&str; 1] = ["closure"];

impl<'a> Closure<'a> {
    /// A backend of that name that computes `op` by `function`, from inputs to
    /// outputs.
    pub fn new(
        name: impl Into<String>,
        op: impl Into<Op>,
        function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, BackendError> + Send + Sync + 'a,
    ) -> Self {
        Self { name: name.into(), op: op.into(), function: Box::new(function) }
    }

    /// A backend of that name that computes `op` by `code`, from the code of each
    /// element of its one input to that of its one output. For other operations it
    /// gives an error when it runs.
    pub fn elementwise(
        name: impl Into<String>,
        op: impl Into<Op>,
        code: impl Fn(u64) -> u64 + Send + Sync + 'a,
    ) -> Self {
        let op = op.into();
        Self::new(name, op.clone(), move |inputs| elementwise(&op, inputs, &code))
    }
}

impl Backend for Closure<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Device {
        Device { name: "closure".to_owned(), ..Device::default() }
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        if *op == self.op {
            return Ok(());
        }
        // As a case file would write it.
        let only = serde_json::to_string(&self.op).unwrap_or_else(|_| self.op.name().to_owned());
        Err(Unsupported(format!("does only {only}")))
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        VARIANTS.map(str::to_owned).to_vec()
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.supports(op)?;
        check_variant(op, variant, &VARIANTS)?;
        check_inputs(op, inputs)?;
        (self.function)(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::TensorType;
    use plumbline_reference::format::{E4M3FN, E5M2, F16, F32};
    use plumbline_reference::ops::{Cast, FormatInfo};

    fn zeros() -> Closure<'static> {
        Closure::elementwise("zeros", Cast::new(F32, E4M3FN), |_| 0)
    }

    #[test]
    fn only_its_own_operation_is_supported() {
        assert_eq!(zeros().supports(&Cast::new(F32, E4M3FN).into()), Ok(()));
        let Unsupported(why) = zeros().supports(&Cast::new(F32, E5M2).into()).unwrap_err();
        assert!(why.starts_with(r#"does only {"cast":{"from":"f32","to":"e4m3fn""#), "{why}");
    }

    #[test]
    fn an_elementwise_function_needs_an_elementwise_operation() {
        let op = Op::from(FormatInfo { format: F32 });
        let result = Closure::elementwise("zeros", op.clone(), |_| 0).run(&op, "closure", &[]);
        assert!(matches!(result, Err(BackendError::Failed { .. })), "{result:?}");
    }

    #[test]
    fn inputs_that_do_not_fit_never_reach_the_function() {
        let x = Tensor::from_codes(TensorType::new(F16, [1]), &[0]).unwrap();
        let result = zeros().run(&Cast::new(F32, E4M3FN).into(), "closure", &[x]);
        assert!(matches!(result, Err(BackendError::Signature(_))), "{result:?}");
    }
}
