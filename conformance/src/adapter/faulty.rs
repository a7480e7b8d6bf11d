//! A backend with a fault put in, to see that the fault is found.

use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::format::E4M3FN;
use plumbline_reference::{Cpu, Path, Tensor, ops::Op};
use std::sync::Arc;

/// From the right outputs of an operation on these inputs to wrong ones.
pub type Corrupt = fn(&Op, &[Tensor], Vec<Tensor>) -> Result<Vec<Tensor>, BackendError>;

/// Another backend whose outputs are altered for some operations; all else passes
/// through.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    name: String,
    applies: fn(&Op) -> bool,
    corrupt: Corrupt,
}

impl Faulty {
    /// `inner`, under that name, with the outputs of operations that `applies` picks
    /// replaced by what `corrupt` makes of them.
    pub fn new(
        inner: Arc<dyn Backend>,
        name: impl Into<String>,
        applies: fn(&Op) -> bool,
        corrupt: Corrupt,
    ) -> Self {
        Self { inner, name: name.into(), applies, corrupt }
    }
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Device {
        let mut device = self.inner.device();
        device.properties.insert("fault".to_owned(), self.name.clone());
        device
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        self.inner.supports(op)
    }

    fn variants(&self, op: &Op) -> Vec<String> {
        self.inner.variants(op)
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let outputs = self.inner.run(op, variant, inputs)?;
        if (self.applies)(op) { (self.corrupt)(op, inputs, outputs) } else { Ok(outputs) }
    }
}

/// The reference with one classic fault, to show what a failure looks like: a cast
/// to E4M3FN that rounds as if the exponent's top binade were complete, so that
/// magnitudes between 464 and 496 become 480, whose code is NaN's.
#[must_use]
pub fn demo_fault() -> Faulty {
    let applies = |op: &Op| matches!(op, Op::Cast(cast) if cast.to == E4M3FN);
    Faulty::new(Arc::new(Cpu), "demo-fault", applies, |op, inputs, outputs| {
        let Op::Cast(cast) = op else { return Ok(outputs) };
        let corrupted = outputs.into_iter().map(|right| {
            Tensor::from_fn(right.ty().clone(), Path::Parallel, |i| {
                let magnitude = cast.from.to_f64(inputs[0].code(i)).abs();
                let sign = right.code(i) & E4M3FN.sign_bit();
                if magnitude > 464.0 && magnitude < 496.0 { 0x7f | sign } else { right.code(i) }
            })
        });
        Ok(corrupted.collect::<Result<_, _>>()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::TensorType;
    use plumbline_reference::format::{E5M2, F32};
    use plumbline_reference::ops::Cast;

    #[test]
    fn demo_fault_turns_465_and_its_like_into_nan_and_nothing_else() {
        let values = [0.0f32, 0.001, 1.0, 448.0, 464.0, 465.0, -465.0, 495.9, 496.0, 1e30, f32::INFINITY];
        let codes = values.map(|x| u64::from(x.to_bits()));
        let x = [Tensor::from_codes(TensorType::new(F32, [codes.len()]), &codes).unwrap()];
        let run = |backend: &dyn Backend, to| {
            let outputs = backend.run(&Cast::new(F32, to).into(), "parallel", &x).unwrap();
            outputs[0].codes().collect::<Vec<_>>()
        };
        let mut expected = run(&Cpu, E4M3FN);
        expected[5..8].copy_from_slice(&[0x7f, 0xff, 0x7f]);
        assert_eq!(run(&demo_fault(), E4M3FN), expected);
        assert_eq!(run(&demo_fault(), E5M2), run(&Cpu, E5M2));
    }
}
