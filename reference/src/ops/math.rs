//! `math`: an elementary function of every element.
//!
//! The canonical functions of [`crate::math`] as an operation, so that any implementation can be
//! held against them: on all f32, bit for bit between Plumbline's own backends, by `ulp` or
//! `bound` for others. Formats, NaN and rounding are those of the activations; special values
//! those of C's Annex F.

use super::{Inputs, Operation, SignatureError, activation};
use crate::fast::Function;
use crate::format::Format;
use crate::interval::{Interval, Steps};
use crate::{Path, Tensor, TensorError, TensorType, math};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An elementary function of every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Math {
    /// Which.
    pub function: Elementary,
    /// Format of the input: f32, f16 or bf16.
    pub from: Format,
    /// Format of the output: f32, f16 or bf16.
    pub to: Format,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $Name:ident: $name:ident, |$x:ident| $real:expr, $ulp:expr;)*) => {
        /// A function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Elementary {
            $($(#[$doc])* $Name,)*
        }

        impl Elementary {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$Name,)*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$Name => stringify!($name),)* }
            }

            /// The canonical value.
            #[must_use]
            pub fn canonical(self, x: f32) -> f32 {
                match self { $(Self::$Name => math::$name(x),)* }
            }

            /// The value in f64, and how many ulp of f32 an implementation may be off: twice what
            /// CUDA documents of its function of that name.
            fn real(self, x: f64) -> (f64, f64) {
                match self { $(Self::$Name => { let $x = x; ($real, $ulp) })* }
            }

            fn evaluate(self, op: Math, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
                match self { $(Self::$Name => activation::evaluate(functions::$Name, (op.from, op.to), inputs, path),)* }
            }
        }

        mod functions {
            use super::*;

            $(
                #[derive(Clone, Copy)]
                pub(super) struct $Name;

                impl Function<1> for $Name {
                    #[inline(always)]
                    fn of(self, [x]: [f32; 1]) -> f32 {
                        math::$name(x)
                    }
                }
            )*
        }
    };
}

functions! {
    /// `e^x`.
    Exp: exp, |x| libm::exp(x), 2.0;
    /// `2^x`.
    Exp2: exp2, |x| libm::exp2(x), 4.0;
    /// The hyperbolic tangent.
    Tanh: tanh, |x| libm::tanh(x), 2.0;
    /// The error function.
    Erf: erf, |x| libm::erf(x), 4.0;
    /// The distribution function of the standard normal distribution.
    NormalCdf: normal_cdf, |x| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2), 10.0;
    /// The sine.
    Sin: sin, |x| libm::sin(x), 4.0;
    /// The cosine.
    Cos: cos, |x| libm::cos(x), 4.0;
    /// The natural logarithm.
    Log: log, |x| libm::log(x), 2.0;
    /// `1 / sqrt(x)`.
    Rsqrt: rsqrt, |x| 1.0 / x.sqrt(), 4.0;
}

impl Operation for Math {
    const INPUTS: &'static [&'static str] = &["x"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        activation::signature::<1>(inputs, self.from, self.to)
    }

    fn pointwise(&self) -> Option<(Format, Format)> {
        Some((self.from, self.to))
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        self.function.evaluate(*self, inputs, path)
    }

    fn has_fast_path(&self) -> bool {
        true
    }

    fn has_enclosure(&self) -> bool {
        true
    }

    fn enclosure(
        &self,
        inputs: &[Tensor],
        _: usize,
        positions: &[usize],
        steps: Steps,
    ) -> Option<Vec<Interval>> {
        let interval = |&i: &usize| {
            let x = self.from.to_f64(inputs[0].code(i));
            let canonical = self.function.canonical(x as f32);
            // Where the function has a pole or none at all, the canonical value is all there is.
            let (value, ulp) = self.function.real(x);
            if x.is_finite() && value.is_finite() && !canonical.is_nan() {
                Interval::at(value, |x| x, 16.0 * f64::EPSILON).rounded(steps, 2.0 * ulp)
            } else {
                f64::from(canonical).into()
            }
        };
        Some(positions.iter().map(interval).collect())
    }
}
