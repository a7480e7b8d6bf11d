//! `gemm_fused`: in one kernel, or the product, the bias and the activation one after another.

use super::{MOST_BLOCKS, OnDevice, gemm};
use crate::blas::Way;
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::TensorType;
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::F32;
use plumbline_reference::ops::gemm::{Gemm, OPERANDS};
use plumbline_reference::ops::{FusedActivation, GemmFused};

const SOURCE: Source = Source { name: "gemm_fused", text: include_str!("../../kernels/gemm_fused.cu") };

/// One launch.
const FUSED: &str = "fused";
/// Three of them, the product by this crate's kernel.
const STEPS: &str = "steps";

/// Rows and columns of a block's tile.
const TILE: u64 = 64;

impl OnDevice for GemmFused {
    fn supports(&self, _: ComputeCapability) -> Result<(), Unsupported> {
        match &self.accumulate {
            None | Some(Accumulation::Fma) => Ok(()),
            Some(_) => Err(Unsupported("has a kernel for gemm_fused in the order of fma alone".to_owned())),
        }
    }

    fn variants(&self, arch: ComputeCapability) -> Vec<&'static str> {
        let libraries = match self.accumulate {
            None => product(self, None).variants(arch),
            Some(_) => Vec::new(),
        };
        [FUSED, STEPS].into_iter().chain(libraries).collect()
    }

    fn is_kernel(&self, variant: &str) -> bool {
        Way::by_name(variant).is_none()
    }

    fn unit(&self, _: &str) -> Unit {
        unit(self)
    }

    fn kernels(&self, variant: &str) -> Vec<Unit> {
        let own = if variant == STEPS {
            product(self, Some(Accumulation::Fma)).kernels(gemm::TILED)
        } else {
            Vec::new()
        };
        // Bias and activation follow on a library's product too.
        own.into_iter().chain([unit(self)]).collect()
    }

    fn scratch(&self, variant: &str, inputs: &[TensorType]) -> Result<usize, Unsupported> {
        Ok(if variant == FUSED { 0 } else { 2 * bytes(&inputs[0], &inputs[1]) })
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        self.plan_in(0, variant, inputs, outputs)
    }

    fn plan_in(
        &self,
        scratch: u64,
        variant: &str,
        inputs: &[View],
        outputs: &[View],
    ) -> Result<Vec<Step>, Unsupported> {
        let (a, b, bias, y) = (&inputs[0], &inputs[1], &inputs[2], &outputs[0]);
        if y.count() == 0 {
            return Ok(Vec::new());
        }
        let [m, n] = [y.ty.shape[0], y.ty.shape[1]].map(|extent| extent as u64);
        let call = |entry, blocks, threads, arguments: &[u64]| {
            let arguments = arguments.iter().copied().map(Argument::from).collect();
            Step::Kernel(Call { unit: unit(self), entry, blocks, threads, shared: 0, arguments })
        };
        if variant == FUSED {
            let k = a.ty.shape[1] as u64;
            let blocks = (m.div_ceil(TILE) * n.div_ceil(TILE)).min(MOST_BLOCKS);
            let arguments = [a.address, b.address, bias.address, y.address, m, n, k];
            return Ok(vec![call(FUSED, blocks, 256, &arguments)]);
        }
        let v = View::contiguous(scratch, y.ty.clone());
        let t = scratch + bytes(&a.ty, &b.ty) as u64;
        let (order, way) =
            if variant == STEPS { (Some(Accumulation::Fma), gemm::TILED) } else { (None, variant) };
        let mut steps = product(self, order).plan(way, &inputs[..2], std::slice::from_ref(&v))?;
        let blocks = y.count().div_ceil(THREADS.into());
        steps.push(call("add_bias", blocks, THREADS, &[v.address, bias.address, t, m, n]));
        steps.push(call("activate", blocks, THREADS, &[t, y.address, y.count()]));
        Ok(steps)
    }

    fn units() -> Vec<Unit> {
        let operands = OPERANDS.into_iter().flat_map(|a| OPERANDS.map(|b| (a, b)));
        let of = |(a, b)| FusedActivation::ALL.iter().map(move |&it| unit(&GemmFused::new(a, b, it)));
        operands.flat_map(of).collect()
    }
}

/// The product alone.
fn product(op: &GemmFused, accumulate: Option<Accumulation>) -> Gemm {
    Gemm { accumulate, ..Gemm::new(op.a, op.b, F32) }
}

/// Bytes of the output, up to where another tensor may begin.
fn bytes(a: &TensorType, b: &TensorType) -> usize {
    (4 * a.shape[0] * b.shape[1]).next_multiple_of(256)
}

fn unit(op: &GemmFused) -> Unit {
    // Its device function has the operation's name.
    let activation = op.activation.op().map_or("none", |activation| activation.name());
    let defines =
        vec![("FROM_A", constant(op.a)), ("FROM_B", constant(op.b)), ("ACTIVATION", activation.to_owned())];
    Unit::new(SOURCE, defines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::SM_90;

    #[test]
    fn steps_hand_on_what_the_one_before_has_made() {
        let op = GemmFused {
            accumulate: Some(Accumulation::Fma),
            ..GemmFused::new(F32, F32, FusedActivation::Silu)
        };
        assert_eq!(op.variants(SM_90), [FUSED, STEPS]);
        let view = |address, shape: &[usize]| View::contiguous(address, TensorType::new(F32, shape));
        let inputs = [view(1 << 20, &[5, 7]), view(2 << 20, &[7, 100]), view(3 << 20, &[100])];
        let (output, scratch) = ([view(4 << 20, &[5, 100])], 5u64 << 20);
        let types = inputs.each_ref().map(|view| view.ty.clone());
        let entries = |variant| -> Vec<_> {
            let steps = op.plan_in(scratch, variant, &inputs, &output).unwrap().into_iter();
            let call = |step| match step {
                Step::Kernel(call) => call,
                step => panic!("{step:?}"),
            };
            steps.map(call).collect()
        };
        let address = |argument: &Argument| u64::from_le_bytes(argument.bytes[..8].try_into().unwrap());
        let fused = entries(FUSED);
        assert_eq!((fused.len(), fused[0].entry, fused[0].blocks), (1, FUSED, 2));
        assert_eq!(op.scratch(FUSED, &types).unwrap(), 0);

        let steps = entries(STEPS);
        assert_eq!(
            steps.iter().map(|call| call.entry).collect::<Vec<_>>(),
            ["tiled", "add_bias", "activate"]
        );
        let [v, t] = [scratch, scratch + 2048];
        assert_eq!(op.scratch(STEPS, &types).unwrap(), 2 * 2048);
        let first: Vec<_> = steps[1].arguments.iter().map(address).collect();
        assert_eq!(first, [v, inputs[2].address, t, 5, 100]);
        let last: Vec<_> = steps[2].arguments.iter().map(address).collect();
        assert_eq!(last, [t, output[0].address, 500]);
    }

    #[test]
    fn libraries_make_the_product_where_no_order_is_given() {
        let plain = GemmFused::new(F32, F32, FusedActivation::Relu);
        let variants = plain.variants(SM_90);
        assert!(
            [FUSED, STEPS, "cublas", "cublaslt"].iter().all(|way| variants.contains(way)),
            "{variants:?}"
        );
        let pairwise = GemmFused { accumulate: Some(Accumulation::Pairwise), ..plain };
        assert!(OnDevice::supports(&pairwise, SM_90).is_err());
    }
}
