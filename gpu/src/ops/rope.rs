//! `rope`.

use super::{CANONICAL, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::math;
use plumbline_reference::ops::activation::FORMATS;
use plumbline_reference::ops::{Pairing, Rope};

const SOURCE: Source = Source { name: "rope", text: include_str!("../../kernels/rope.cu") };

impl OnDevice for Rope {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![CANONICAL]
    }

    fn unit(&self, _: &str) -> Unit {
        let defines = [
            ("FROM", constant(self.from)),
            ("TO", constant(self.to)),
            ("HALVES", u8::from(self.pairing == Pairing::Halves).to_string()),
            ("INVERSE", u8::from(self.inverse).to_string()),
        ];
        Unit::new(SOURCE, defines.to_vec())
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (x, positions, y) = (&inputs[0], &inputs[1], &outputs[0]);
        let [_, heads, head_dim] = *x.ty.shape else { return Ok(Vec::new()) };
        if x.count() == 0 {
            return Ok(Vec::new());
        }
        let rotated = self.rotated(head_dim);
        // A thread for each pair, and for each element that is copied.
        let (pairs, rest) = (rotated / 2, head_dim - rotated);
        let threads = positions.count() * (heads * (pairs + rest)) as u64;
        let numbers = [heads, head_dim, rotated].map(|extent| Argument::from(extent as u64));
        let ln_base = math::log_f64(f64::from(self.base.0));
        let first = [x.address, positions.address, y.address, threads].map(Argument::from);
        Ok(vec![Step::Kernel(Call {
            unit: self.unit(variant),
            entry: "rope",
            blocks: threads.div_ceil(THREADS.into()),
            threads: THREADS,
            shared: 0,
            arguments: first.into_iter().chain(numbers).chain([ln_base.into()]).collect(),
        })])
    }

    fn units() -> Vec<Unit> {
        let mut units = Vec::new();
        for from in FORMATS {
            for to in FORMATS {
                for pairing in Pairing::ALL {
                    for inverse in [false, true] {
                        let op = Self { from, to, inverse, ..Self::new(pairing) };
                        units.push(op.unit(CANONICAL));
                    }
                }
            }
        }
        units
    }
}
