//! Operations on the device. A new one is a file here, one in `kernels/`, and a line in the
//! table below, which is also its `mod` line.

mod activation;
mod cvt;
mod norm;
mod program;

pub(crate) use absmax::WARPS;
pub(crate) use cvt::instructions;

use crate::blas::{Product, Way};
use crate::device::{Component, ComputeCapability};
use crate::module::Unit;
use crate::plan::{Step, View};
use plumbline_reference::TensorType;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::Rounding;
use plumbline_reference::ops::{self, Op};

/// What every operation's file implements.
trait OnDevice {
    /// Whether there is a way to do it on that architecture, or why there is none.
    fn supports(&self, arch: ComputeCapability) -> Result<(), Unsupported> {
        let _ = arch;
        Ok(())
    }

    /// The ways to do it on that architecture, the usual one first.
    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str>;

    /// Bytes that the first element of every tensor must be aligned to.
    fn alignment(&self, variant: &str) -> usize {
        let _ = variant;
        1
    }

    /// Whether one of the variants is a kernel of this crate, and no library's.
    fn is_kernel(&self, variant: &str) -> bool {
        let _ = variant;
        true
    }

    /// The unit of such a variant.
    fn unit(&self, variant: &str) -> Unit;

    /// The units that a variant launches kernels of, whatever the inputs.
    fn kernels(&self, variant: &str) -> Vec<Unit> {
        if self.is_kernel(variant) { vec![self.unit(variant)] } else { Vec::new() }
    }

    /// Bytes of memory that one of the variants needs besides its tensors.
    fn scratch(&self, variant: &str, inputs: &[TensorType]) -> Result<usize, Unsupported> {
        let _ = (variant, inputs);
        Ok(0)
    }

    /// What one of the variants does with tensors that fit the signature, or why it cannot with
    /// these.
    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported>;

    /// The same where it needs scratch memory, which begins at that address.
    fn plan_in(
        &self,
        scratch: u64,
        variant: &str,
        inputs: &[View],
        outputs: &[View],
    ) -> Result<Vec<Step>, Unsupported> {
        let _ = scratch;
        self.plan(variant, inputs, outputs)
    }

    /// Every unit that some parameters need.
    fn units() -> Vec<Unit>;
}

macro_rules! operations {
    ($($name:ident: $Type:ident,)*) => {
        $(mod $name;)*

        /// The ways to do an operation on that architecture, or why there is none.
        pub(crate) fn variants(op: &Op, arch: ComputeCapability) -> Result<Vec<&'static str>, Unsupported> {
            match op {
                $(Op::$Type(op) => op.supports(arch).map(|()| op.variants(arch)),)*
                other => Err(no_kernel(other)),
            }
        }

        /// Bytes of memory that one of the variants needs besides its tensors.
        pub(crate) fn scratch(
            op: &Op,
            variant: &str,
            inputs: &[TensorType],
        ) -> Result<usize, Unsupported> {
            match op {
                $(Op::$Type(op) => op.scratch(variant, inputs),)*
                other => Err(no_kernel(other)),
            }
        }

        /// The steps of one of the variants, whose tensors are contiguous but where the
        /// operation [takes strides](takes_strides), with its scratch memory at that address.
        pub(crate) fn plan(
            op: &Op,
            variant: &str,
            scratch: u64,
            inputs: &[View],
            outputs: &[View],
        ) -> Result<Vec<Step>, Unsupported> {
            match op {
                $(Op::$Type(op) => op.plan_in(scratch, variant, inputs, outputs),)*
                other => Err(no_kernel(other)),
            }
        }

        /// Bytes that the first element of every tensor must be aligned to.
        pub(crate) fn alignment(op: &Op, variant: &str) -> usize {
            match op {
                $(Op::$Type(op) => op.alignment(variant),)*
                _ => 1,
            }
        }

        /// The units that one of the variants launches kernels of.
        pub(crate) fn kernels(op: &Op, variant: &str) -> Vec<Unit> {
            match op {
                $(Op::$Type(op) => op.kernels(variant),)*
                _ => Vec::new(),
            }
        }

        /// Every unit of every operation.
        #[must_use]
        pub fn units() -> Vec<Unit> {
            [$(ops::$Type::units(),)*].concat()
        }
    };
}

/// Whether an operation takes tensors that are not contiguous.
pub(crate) fn takes_strides(op: &Op) -> bool {
    matches!(op, Op::Gemm(_))
}

/// Whether an input may share its buffer with an output: where a kernel reads an element before
/// it writes the same one, and no other.
pub(crate) fn may_share(op: &Op, input: usize, output: usize) -> bool {
    match op {
        Op::Gemm(op) => gemm::position(op, "c") == Some(input),
        Op::Mma(_) => input == 2,
        Op::Cast(_) | Op::Decode(_) | Op::ScaledCast(_) | Op::DeviceScaledCast(_) | Op::ScaledDecode(_) => {
            input == output
        }
        Op::Math(_)
        | Op::Relu(_)
        | Op::Silu(_)
        | Op::GeluTanh(_)
        | Op::GeluErf(_)
        | Op::QuickGelu(_)
        | Op::Swiglu(_) => true,
        Op::RmsNorm(op) => input == 0 && op.from == op.to,
        Op::LayerNorm(op) => input == 0 && op.from == op.to,
        Op::Rope(op) => input == 0 && op.from == op.to,
        Op::KvScatter(_) => input == 2,
        _ => false,
    }
}

/// The library that does one of the variants, where a library does it.
pub(crate) fn library(op: &Op, variant: &str) -> Option<Component> {
    let has_product = matches!(op, Op::Gemm(_) | Op::PrefillLinear(_) | Op::Dispatch(_) | Op::GemmFused(_));
    has_product.then(|| Way::by_name(variant)).flatten().map(Way::component)
}

/// The product that a library's variant asks for on contiguous tensors, if it asks for one.
pub(crate) fn product(
    op: &Op,
    variant: &str,
    inputs: &[TensorType],
    outputs: &[TensorType],
) -> Result<Option<Product>, Unsupported> {
    // cuBLASLt's heuristic looks at the alignment of addresses and never at what is there.
    const SCRATCH: u64 = 1 << 60;
    let mut addresses = (1u64..).map(|i| i << 40);
    let mut views = |types: &[TensorType]| -> Vec<_> {
        types.iter().zip(&mut addresses).map(|(ty, address)| View::contiguous(address, ty.clone())).collect()
    };
    let (inputs, outputs) = (views(inputs), views(outputs));
    let steps = plan(op, variant, SCRATCH, &inputs, &outputs)?;
    Ok(steps.into_iter().find_map(|step| match step {
        Step::Product(product) => Some(*product),
        _ => None,
    }))
}

fn no_kernel(op: &Op) -> Unsupported {
    Unsupported(format!("has no kernel for {}", op.name()))
}

operations! {
    cast: Cast,
    decode: Decode,
    scaled_cast: ScaledCast,
    absmax: Absmax,
    device_scaled_cast: DeviceScaledCast,
    scaled_decode: ScaledDecode,
    mx_quantize: MxQuantize,
    mx_dequantize: MxDequantize,
    mma: Mma,
    gemm: Gemm,
    dequantize: Dequantize,
    gemv: Gemv,
    batched_gemv: BatchedGemv,
    int8_quantize: Int8Quantize,
    prefill_linear: PrefillLinear,
    dispatch: Dispatch,
    gemm_fused: GemmFused,
    math: Math,
    relu: Relu,
    silu: Silu,
    gelu_tanh: GeluTanh,
    gelu_erf: GeluErf,
    quick_gelu: QuickGelu,
    swiglu: Swiglu,
    softmax: Softmax,
    log_softmax: LogSoftmax,
    attention: Attention,
    rms_norm: RmsNorm,
    layer_norm: LayerNorm,
    rope: Rope,
    kv_scatter: KvScatter,
}

/// Threads of a block that has a row: `LANES` of `row.cuh`.
const LANES: u32 = 256;

/// Blocks of threads at once: a kernel whose work may need more goes on with the rest in the same
/// blocks.
const MOST_BLOCKS: u64 = 1 << 16;

/// The variant that computes with integers and runs on any architecture.
const BITS: &str = "bits";
/// The variant that follows the canonical steps.
const CANONICAL: &str = "canonical";
/// The variant of the conversion instruction.
pub(crate) const CVT: &str = "cvt";

/// Address of the random bits: the last input of stochastic rounding, else null.
fn random(rounding: Rounding, inputs: &[View]) -> u64 {
    match inputs.last() {
        Some(random) if rounding == Rounding::Stochastic => random.address,
        _ => 0,
    }
}

/// How many elements share a scale, and how many scales there are.
fn scales(x: &View, scales: &View) -> [u64; 2] {
    let count = scales.count();
    [x.count().checked_div(count).unwrap_or(0).max(1), count]
}
