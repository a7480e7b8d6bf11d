//! `gemm_fused`: a matrix product with bias and activation.
//!
//! `y[m, n] = act(sum over k of a[m, k] * b[k, n] + bias[n])` with a `[M, K]`, b `[K, N]` and bias f32 `[N]`,
//! y f32 `[M, N]`, as three steps, each rounded to f32:
//!
//! 1. `v`: the product, in the order of accumulation `accumulate`;
//! 2. `t = v + bias[n]`;
//! 3. `y = act(t)`, the operation of that name, of f32 into f32; NaN canonical.
//!
//! One kernel that does all three gives the same bits as three. Without `accumulate`, t is the exact sum of
//! products and bias, rounded once; it judges any implementation by a criterion with a bound.
//!
//! Activations are [`relu`](super::relu), where NaN stays NaN, [`gelu_tanh`](super::gelu_tanh) and
//! [`gelu_erf`](super::gelu_erf), which are two functions, [`quick_gelu`](super::quick_gelu),
//! [`silu`](super::silu), and `none`.
//!
//! The bias has one element per column of y, never one per row: any other length is an error, as are
//! a and b of different K.
//!
//! Source: the epilogues `BIAS`, `RELU_BIAS` and `GELU_BIAS` of cuBLASLt, its columns being our rows; the
//! activations by their own files.

use super::activation::Elementwise;
use super::gemm::{Gemm, OPERANDS};
use super::{Inputs, Op, Operation, SignatureError};
use crate::accumulate::Accumulation;
use crate::fast::{Function, Plan};
use crate::format::{F32, Format};
use crate::interval::{Interval, Steps};
use crate::program::{Program, fitting};
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A matrix product with bias and activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GemmFused {
    /// Format of a.
    pub a: Format,
    /// Format of b.
    pub b: Format,
    /// What follows on the bias.
    pub activation: FusedActivation,
    /// The order of accumulation; left out: exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<Accumulation>,
}

macro_rules! activations {
    ($($(#[$doc:meta])* $Name:ident,)*) => {
        /// An activation after a product.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum FusedActivation {
            /// None.
            None,
            $($(#[$doc])* $Name,)*
        }

        impl FusedActivation {
            /// Every one.
            pub const ALL: &'static [Self] = &[Self::None, $(Self::$Name,)*];

            /// The operation on f32, if there is one.
            #[must_use]
            pub fn op(self) -> Option<Op> {
                match self {
                    Self::None => None,
                    $(Self::$Name => Some(super::$Name { from: F32, to: F32 }.into()),)*
                }
            }

            /// The canonical value.
            #[must_use]
            pub fn of(self, t: f32) -> f32 {
                match self {
                    Self::None => t,
                    $(Self::$Name => super::$Name { from: F32, to: F32 }.of([t]),)*
                }
            }

            /// The values of an interval of finite numbers, by steps as precise as that.
            #[must_use]
            pub fn real(self, t: Interval, steps: Steps) -> Interval {
                match self {
                    Self::None => t,
                    $(Self::$Name => super::$Name { from: F32, to: F32 }.real([t], steps),)*
                }
            }
        }
    };
}

activations! {
    /// `max(t, 0)`; NaN stays NaN.
    Relu,
    /// The tanh approximation of the Gaussian error linear unit.
    GeluTanh,
    /// The Gaussian error linear unit.
    GeluErf,
    /// Its sigmoid approximation: `t * sigmoid(1.702 t)`.
    QuickGelu,
    /// `t * sigmoid(t)`.
    Silu,
}

impl GemmFused {
    /// The exact product.
    #[must_use]
    pub fn new(a: Format, b: Format, activation: FusedActivation) -> Self {
        Self { a, b, activation, accumulate: None }
    }

    /// The steps; the product and the bias are one, which rounds twice.
    fn steps(&self, types: &[TensorType]) -> Result<Program, SignatureError> {
        let mut program = Program::new(types);
        let t = program.one(self.gemm(), &[0, 1, 2])?;
        let y = match self.activation.op() {
            Some(activation) => program.one(activation, &[t])?,
            None => t,
        };
        Ok(program.returning(&[y]))
    }

    /// The product with its bias: the first two steps.
    #[must_use]
    pub fn gemm(&self) -> Gemm {
        Gemm { bias: Some(F32), accumulate: self.accumulate.clone(), ..Gemm::new(self.a, self.b, F32) }
    }
}

impl Operation for GemmFused {
    const INPUTS: &'static [&'static str] = &["a", "b", "bias"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        for (field, format) in [("a", self.a), ("b", self.b)] {
            if !OPERANDS.contains(&format) {
                let names = OPERANDS.map(|format| format.name).join(", ");
                return Err(inputs.parameter_error(field, format!("{format} is none of {names}")));
            }
        }
        if let Some(accumulate) = &self.accumulate {
            accumulate.check().map_err(|why| inputs.parameter_error("accumulate", why))?;
        }
        inputs.count(3)?;
        let &[m, k] = inputs.dtype(0, self.a)? else {
            return Err(inputs.shape_error(0, "[M, K]".to_owned()));
        };
        let &[own_k, n] = inputs.dtype(1, self.b)? else {
            return Err(inputs.shape_error(1, format!("[{k}, N]")));
        };
        if own_k != k {
            return Err(inputs.shape_error(1, format!("[{k}, N]")));
        }
        if *inputs.dtype(2, F32)? != [n] {
            return Err(inputs.shape_error(2, format!("[{n}], one element per column of y")));
        }
        Ok(vec![TensorType::new(F32, [m, n])])
    }

    fn program(&self, inputs: &Inputs<'_>) -> Result<Option<Program>, SignatureError> {
        self.signature(inputs)?;
        self.steps(inputs.types()).map(Some)
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
        fitting(self.steps(&types))?.evaluate(inputs, path)
    }

    fn has_fast_path(&self) -> bool {
        self.accumulate.as_ref().is_none_or(Plan::exists)
    }

    fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
        self.gemm().sources(inputs, output, index)
    }
}
