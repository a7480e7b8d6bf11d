//! What `rms_norm` and `layer_norm` have in common: one kernel, a block of threads per row.

use super::{LANES, MOST_BLOCKS};
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::activation::FORMATS;

const SOURCE: Source = Source { name: "norm", text: include_str!("../../kernels/norm.cu") };

/// The parameters of both.
#[derive(Clone, Copy)]
pub(super) struct Norm {
    pub(super) from: Format,
    pub(super) weight: Option<Format>,
    pub(super) bias: Option<Format>,
    pub(super) to: Format,
    pub(super) eps: f32,
    pub(super) compensated: bool,
    /// Whether the mean is taken off.
    pub(super) centered: bool,
}

impl Norm {
    pub(super) fn unit(self) -> Unit {
        let mut defines = vec![
            ("FROM", constant(self.from)),
            ("TO", constant(self.to)),
            ("CENTERED", u8::from(self.centered).to_string()),
            ("COMPENSATED", u8::from(self.compensated).to_string()),
        ];
        defines.extend(self.weight.map(|format| ("WEIGHT", constant(format))));
        defines.extend(self.bias.map(|format| ("BIAS", constant(format))));
        Unit::new(SOURCE, defines)
    }

    pub(super) fn plan(self, inputs: &[View], outputs: &[View]) -> Vec<Step> {
        let (x, y) = (&inputs[0], &outputs[0]);
        let n = x.ty.shape.last().copied().unwrap_or(1) as u64;
        if x.count() == 0 {
            return Vec::new();
        }
        let rows = x.count() / n;
        let vectors = inputs[1..].iter().map(|vector| vector.address.into());
        let first = [x.address, y.address, rows, n].map(Argument::from);
        let eps = [Argument::from(self.eps)];
        vec![Step::Kernel(Call {
            unit: self.unit(),
            entry: "norm_rows",
            blocks: rows.min(MOST_BLOCKS),
            threads: LANES,
            shared: 0,
            arguments: first.into_iter().chain(eps).chain(vectors).collect(),
        })]
    }

    /// The units of the usual formats: weights like the input, or f32.
    pub(super) fn units(centered: bool) -> Vec<Unit> {
        let mut units = Vec::new();
        for from in FORMATS {
            for to in FORMATS {
                let vectors =
                    if from == F32 { vec![None, Some(F32)] } else { vec![None, Some(from), Some(F32)] };
                for vector in vectors {
                    for compensated in [false, true] {
                        let bias = vector.filter(|_| centered);
                        let norm = Self { from, weight: vector, bias, to, eps: 0.0, compensated, centered };
                        units.push(norm.unit());
                    }
                }
            }
        }
        units
    }
}

/// Declares an operation by its parameters.
macro_rules! norm {
    ($Type:ident, $centered:literal, |$op:ident| $norm:expr) => {
        impl super::OnDevice for plumbline_reference::ops::$Type {
            fn variants(&self, _: crate::device::ComputeCapability) -> Vec<&'static str> {
                vec![super::CANONICAL]
            }

            fn unit(&self, _: &str) -> crate::module::Unit {
                let $op = self;
                $norm.unit()
            }

            fn plan(
                &self,
                _: &str,
                inputs: &[crate::plan::View],
                outputs: &[crate::plan::View],
            ) -> Result<Vec<crate::plan::Step>, plumbline_reference::backend::Unsupported> {
                let $op = self;
                Ok($norm.plan(inputs, outputs))
            }

            fn units() -> Vec<crate::module::Unit> {
                super::norm::Norm::units($centered)
            }
        }
    };
}
pub(super) use norm;
