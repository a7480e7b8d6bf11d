//! A wrong cast.

use crate::adapter::Closure;
use plumbline_reference::format::{E4M3FN, F32, Policy};
use plumbline_reference::ops::Cast;

/// A cast from f32 to E4M3FN with one classic fault: it rounds as if the top binade
/// were complete, so that magnitudes between 464 and 496 become 480, whose code is
/// NaN's.
#[must_use]
pub fn cast_465_to_nan() -> Closure<'static> {
    Closure::elementwise("demo-fault", Cast::new(F32, E4M3FN), |x| {
        let right = E4M3FN.encode(F32.decode(x), &Policy::default(), 0);
        let magnitude = F32.to_f64(x).abs();
        if magnitude > 464.0 && magnitude < 496.0 { 0x7f | right & E4M3FN.sign_bit() } else { right }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::{Backend, Cpu, Tensor, TensorType, ops::Op};

    #[test]
    fn only_465_and_its_like_are_wrong() {
        let values = [0.0f32, 0.001, 1.0, 448.0, 464.0, 465.0, -465.0, 495.9, 496.0, 1e30, f32::INFINITY];
        let codes = values.map(|x| u64::from(x.to_bits()));
        let x = [Tensor::from_codes(TensorType::new(F32, [codes.len()]), &codes).unwrap()];
        let op = Op::from(Cast::new(F32, E4M3FN));
        let run = |backend: &dyn Backend| {
            let outputs = backend.run(&op, &backend.variants(&op)[0], &x).unwrap();
            outputs[0].codes().collect::<Vec<_>>()
        };
        let mut expected = run(&Cpu);
        expected[5..8].copy_from_slice(&[0x7f, 0xff, 0x7f]);
        assert_eq!(run(&cast_465_to_nan()), expected);
    }
}
