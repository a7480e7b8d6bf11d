//! Operations: what each one means.
//!
//! An [`Op`] is a value; its fields are its parameters, so a case file *is* the
//! specification: `{cast: {from: f32, to: e4m3fn}}`. One file per operation
//! holds the parameters, the signature (types and shapes of outputs, or an error
//! that names what does not fit) and the definition. A new operation is a file, a
//! `mod` line, and a line in the table below.

pub mod absmax;
pub mod activation;
pub mod attention;
pub mod batched_gemv;
pub mod cast;
pub mod classify;
pub mod decode;
pub mod dequantize;
pub mod device_scaled_cast;
pub mod dispatch;
mod encoding;
pub mod format_info;
pub mod gelu_erf;
pub mod gelu_tanh;
pub mod gemm;
pub mod gemm_fused;
pub mod gemv;
pub mod int8_quantize;
pub mod kv_scatter;
pub mod layer_norm;
pub mod log_softmax;
pub mod math;
pub mod mma;
pub mod mx_dequantize;
pub mod mx_quantize;
mod norm;
pub mod prefill_linear;
pub mod quantize;
pub mod quick_gelu;
pub mod relu;
pub mod rms_norm;
pub mod rope;
mod row;
pub mod scaled_cast;
pub mod scaled_decode;
mod signature;
pub mod silu;
pub mod softmax;
pub mod swiglu;

pub use absmax::AbsmaxNan;
pub use activation::functions;
pub use attention::{Alignment, SoftmaxOrder};
pub use dequantize::BlockConversion;
pub use device_scaled_cast::{Special, Tiny};
pub use dispatch::Product;
pub(crate) use encoding::arithmetic;
pub use encoding::{Granularity, ScaleOp};
pub use gemm::{Bits32, Compute, EpilogueOrder, GemmScale, Operands};
pub use gemm_fused::FusedActivation;
pub use gemv::Activations;
pub use math::Elementary;
pub use mx_dequantize::{MxOrder, MxOutput};
pub use mx_quantize::{MxElementOp, NonFinite};
pub use prefill_linear::Route;
pub use rope::{Angle, Pairing};
pub use signature::SignatureError;
pub use softmax::{Causal, FullyMasked};

use crate::block::BlockFormat;
use crate::format::Format;
use crate::interval::{Interval, Steps};
use crate::program::Program;
use crate::{Path, Tensor, TensorError, TensorType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use signature::Inputs;

/// What every operation's file implements.
pub trait Operation {
    /// Names of the inputs, as the documentation and errors use them. Trailing
    /// inputs that only some parameters need are included.
    const INPUTS: &'static [&'static str];

    /// Names of the inputs that these parameters take, where they are not the first ones.
    fn input_names(&self) -> Vec<&'static str> {
        Self::INPUTS.to_vec()
    }

    /// Types of the outputs for inputs of these types.
    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError>;

    /// The inputs whose values [`Operation::check_values`] looks at.
    fn checked(&self) -> &'static [usize] {
        &[]
    }

    /// Whether the values of those inputs fit, or the element that does not. Called with types that
    /// fit the signature, and the tensors of the inputs that [`Operation::checked`] lists.
    fn check_values(&self, inputs: &[TensorType], values: &[Tensor]) -> Result<(), SignatureError> {
        let _ = (inputs, values);
        Ok(())
    }

    /// The outputs. Called with inputs that fit the signature, and whose values fit.
    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError>;

    /// The steps of an operation that is made of others, for inputs that fit the signature.
    fn program(&self, inputs: &Inputs<'_>) -> Result<Option<Program>, SignatureError> {
        let _ = inputs;
        Ok(None)
    }

    /// The format of the GGML blocks that an input consists of, if it does.
    fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
        let _ = input;
        None
    }

    /// Formats of input and output where each element is a function of the one input's element in its
    /// place, and of nothing else.
    fn pointwise(&self) -> Option<(Format, Format)> {
        None
    }

    /// Whether [`Path::Simd`] is a path of its own.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// The value that the definition rounds to give element `index` of an
    /// output, where that value is a number of its own (`x` for a cast).
    fn exact(&self, inputs: &[Tensor], output: usize, index: usize) -> Option<f64> {
        Some(self.enclosure(inputs, output, &[index], Steps::Real)?[0].middle())
    }

    /// Whether there are [enclosures](Operation::enclosure).
    fn has_enclosure(&self) -> bool {
        false
    }

    /// Of the elements at these row-major positions of an output: the interval that holds the exact
    /// value, or all that an implementation may reach before it rounds to the output's format,
    /// to nearest. Ends that are NaN: the result is NaN.
    fn enclosure(
        &self,
        inputs: &[Tensor],
        output: usize,
        positions: &[usize],
        steps: Steps,
    ) -> Option<Vec<Interval>> {
        let _ = (inputs, output, positions, steps);
        None
    }

    /// How many terms an element of an output with [enclosures](Operation::enclosure) is made of, when
    /// those of its row are made together: where there are many in all, rows are sampled.
    fn terms(&self, inputs: &[Tensor]) -> usize {
        let _ = inputs;
        1
    }

    /// Intervals, wider than enclosures and cheap, that hold every element of an output; infinite
    /// ones where nothing is known.
    fn limits(&self, inputs: &[Tensor], output: usize) -> Option<Vec<Interval>> {
        let _ = (inputs, output);
        None
    }

    /// Which elements `(input, index)` an output element is made from, for
    /// reports. Empty where it is all of them.
    fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
        let _ = output;
        (0..inputs.len()).filter(|&input| index < inputs[input].len()).map(|input| (input, index)).collect()
    }

    /// What there is to know of the right elements of an output, by their index: that a value on the way
    /// to one overflows, for one. They are right nevertheless.
    fn notes(&self, inputs: &[Tensor], output: usize) -> Vec<(usize, String)> {
        let _ = (inputs, output);
        Vec::new()
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $Type:ident,)*) => {
        $(pub use $name::$Type;)*

        /// An operation with its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        // Operations are few and rarely moved.
        #[allow(clippy::large_enum_variant)]
        pub enum Op {
            $($(#[$doc])* $Type($Type),)*
        }

        impl Op {
            /// Names of all operations.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// The operation's name: `cast`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Type(_) => stringify!($name),)* }
            }

            /// Names of the operation's inputs.
            #[must_use]
            pub fn input_names(&self) -> Vec<&'static str> {
                match self { $(Self::$Type(op) => op.input_names(),)* }
            }

            /// Types of the outputs, or what does not fit.
            pub fn signature(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, SignatureError> {
                let inputs = Inputs::new(self.name(), self.input_names(), inputs)?;
                match self { $(Self::$Type(op) => op.signature(&inputs),)* }
            }

            /// Checks the inputs and computes the outputs.
            pub fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, SignatureError> {
                let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
                self.signature(&types)?;
                self.check(inputs)?;
                Ok(self.compute(inputs, path)?)
            }

            /// The outputs for inputs that fit the signature.
            pub(crate) fn compute(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
                match self { $(Self::$Type(op) => op.evaluate(inputs, path),)* }
            }

            /// The steps of an operation that is made of others, or what does not fit.
            pub fn program(&self, inputs: &[TensorType]) -> Result<Option<Program>, SignatureError> {
                let inputs = Inputs::new(self.name(), self.input_names(), inputs)?;
                match self { $(Self::$Type(op) => op.program(&inputs),)* }
            }

            /// See [`Operation::checked`].
            #[must_use]
            pub fn checked(&self) -> &'static [usize] {
                match self { $(Self::$Type(op) => op.checked(),)* }
            }

            /// See [`Operation::check_values`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature.
            pub fn check_values(&self, inputs: &[TensorType], values: &[Tensor]) -> Result<(), SignatureError> {
                match self { $(Self::$Type(op) => op.check_values(inputs, values),)* }
            }

            /// The same of all inputs.
            ///
            /// # Panics
            /// If the inputs do not fit the signature.
            pub fn check(&self, inputs: &[Tensor]) -> Result<(), SignatureError> {
                if self.checked().is_empty() {
                    return Ok(());
                }
                let types: Vec<_> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
                let values: Vec<_> = self.checked().iter().map(|&input| inputs[input].clone()).collect();
                self.check_values(&types, &values)
            }

            /// See [`Operation::input_blocks`].
            #[must_use]
            pub fn input_blocks(&self, input: usize) -> Option<BlockFormat> {
                match self { $(Self::$Type(op) => op.input_blocks(input),)* }
            }

            /// See [`Operation::pointwise`].
            #[must_use]
            pub fn pointwise(&self) -> Option<(Format, Format)> {
                match self { $(Self::$Type(op) => op.pointwise(),)* }
            }

            /// See [`Operation::has_fast_path`].
            #[must_use]
            pub fn has_fast_path(&self) -> bool {
                match self { $(Self::$Type(op) => op.has_fast_path(),)* }
            }

            /// See [`Operation::exact`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature or there is no such element.
            #[must_use]
            pub fn exact(&self, inputs: &[Tensor], output: usize, index: usize) -> Option<f64> {
                match self { $(Self::$Type(op) => op.exact(inputs, output, index),)* }
            }

            /// See [`Operation::has_enclosure`].
            #[must_use]
            pub fn has_enclosure(&self) -> bool {
                match self { $(Self::$Type(op) => op.has_enclosure(),)* }
            }

            /// See [`Operation::enclosure`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature or there is no such element.
            #[must_use]
            pub fn enclosure(
                &self,
                inputs: &[Tensor],
                output: usize,
                positions: &[usize],
                steps: Steps,
            ) -> Option<Vec<Interval>> {
                match self { $(Self::$Type(op) => op.enclosure(inputs, output, positions, steps),)* }
            }

            /// See [`Operation::terms`].
            #[must_use]
            pub fn terms(&self, inputs: &[Tensor]) -> usize {
                match self { $(Self::$Type(op) => op.terms(inputs),)* }
            }

            /// See [`Operation::limits`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature.
            #[must_use]
            pub fn limits(&self, inputs: &[Tensor], output: usize) -> Option<Vec<Interval>> {
                match self { $(Self::$Type(op) => op.limits(inputs, output),)* }
            }

            /// See [`Operation::sources`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature or there is no such element.
            #[must_use]
            pub fn sources(&self, inputs: &[Tensor], output: usize, index: usize) -> Vec<(usize, usize)> {
                match self { $(Self::$Type(op) => op.sources(inputs, output, index),)* }
            }

            /// See [`Operation::notes`].
            ///
            /// # Panics
            /// If the inputs do not fit the signature.
            #[must_use]
            pub fn notes(&self, inputs: &[Tensor], output: usize) -> Vec<(usize, String)> {
                match self { $(Self::$Type(op) => op.notes(inputs, output),)* }
            }
        }

        $(impl From<$Type> for Op {
            fn from(op: $Type) -> Self {
                Self::$Type(op)
            }
        })*
    };
}

operations! {
    /// Elementwise encode.
    cast: Cast,
    /// Every code to a wider format.
    decode: Decode,
    /// Class and sign of every code.
    classify: Classify,
    /// Constants of a format.
    format_info: FormatInfo,
    /// Encode of a scaled value.
    scaled_cast: ScaledCast,
    /// Largest magnitude.
    absmax: Absmax,
    /// Encode scaled by an absmax read from memory.
    device_scaled_cast: DeviceScaledCast,
    /// Decode, then multiply by a scale read from memory.
    scaled_decode: ScaledDecode,
    /// Blocks of narrow floats that share a scale.
    mx_quantize: MxQuantize,
    /// Such blocks back to wide floats.
    mx_dequantize: MxDequantize,
    /// One matrix instruction on a batch of tiles.
    mma: Mma,
    /// A matrix product.
    gemm: Gemm,
    /// A matrix product with bias and activation.
    gemm_fused: GemmFused,
    /// GGML blocks to numbers.
    dequantize: Dequantize,
    /// A matrix of GGML blocks times a vector.
    gemv: Gemv,
    /// A matrix of GGML blocks times up to 16 vectors.
    batched_gemv: BatchedGemv,
    /// Activations times a matrix of GGML blocks, by an engine's steps.
    prefill_linear: PrefillLinear,
    /// The same by `batched_gemv` or by `prefill_linear`.
    dispatch: Dispatch,
    /// Numbers to GGML blocks.
    quantize: Quantize,
    /// Activations to blocks of 8-bit integers.
    int8_quantize: Int8Quantize,
    /// An elementary function of every element.
    math: Math,
    /// The rectified linear unit.
    relu: Relu,
    /// The sigmoid linear unit.
    silu: Silu,
    /// The Gaussian error linear unit by tanh.
    gelu_tanh: GeluTanh,
    /// The Gaussian error linear unit by erf.
    gelu_erf: GeluErf,
    /// The Gaussian error linear unit by a sigmoid.
    quick_gelu: QuickGelu,
    /// The gated linear unit with SiLU.
    swiglu: Swiglu,
    /// Exponentials over their sum, row by row.
    softmax: Softmax,
    /// The logarithm of softmax.
    log_softmax: LogSoftmax,
    /// Weighted means of values by the softmax of products of queries and keys.
    attention: Attention,
    /// Rows divided by the root of their mean square.
    rms_norm: RmsNorm,
    /// Rows with mean 0 and variance 1.
    layer_norm: LayerNorm,
    /// Rotary position embedding.
    rope: Rope,
    /// Packed rows of K or V into a cache.
    kv_scatter: KvScatter,
}
