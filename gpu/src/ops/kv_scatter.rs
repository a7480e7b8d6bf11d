//! `kv_scatter`. Positions are checked before: see the `checked` module of the backend.

use super::{BITS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, THREADS, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{BF16, E4M3FN, F32};
use plumbline_reference::ops::KvScatter;

const SOURCE: Source = Source { name: "kv_scatter", text: include_str!("../../kernels/kv_scatter.cu") };

impl OnDevice for KvScatter {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![BITS]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::new(SOURCE, vec![("BITS", (8 * self.dtype.bytes()).to_string())])
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (rows, positions, cache, new) = (&inputs[0], &inputs[1], &inputs[2], &outputs[0]);
        let mut steps = Vec::new();
        let bytes = (cache.count() * cache.width()) as usize;
        if bytes > 0 && cache.address != new.address {
            steps.push(Step::Copy { from: cache.address, to: new.address, bytes });
        }
        if rows.count() > 0 {
            let extents = rows.ty.shape[1..].iter().chain([&cache.ty.shape[1]]);
            let first = [rows.address, positions.address, new.address, rows.count()].map(Argument::from);
            let extents = extents.map(|&extent| Argument::from(extent as u64));
            steps.push(Step::Kernel(Call {
                unit: self.unit(variant),
                entry: "kv_scatter",
                blocks: rows.count().div_ceil(THREADS.into()),
                threads: THREADS,
                shared: 0,
                arguments: first.into_iter().chain(extents).collect(),
            }));
        }
        Ok(steps)
    }

    fn units() -> Vec<Unit> {
        [E4M3FN, BF16, F32].map(|format| Self { dtype: format.into() }.unit(BITS)).to_vec()
    }
}
