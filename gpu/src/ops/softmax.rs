//! `softmax`.

use super::{CANONICAL, LANES, MOST_BLOCKS, OnDevice, activation};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::{Causal, FullyMasked, Softmax};

const SOURCE: Source = Source { name: "softmax", text: include_str!("../../kernels/softmax.cu") };

/// The step of either operation; `masked` is the result of an element that a row does not see.
pub(super) fn plan(
    unit: Unit,
    factor: f32,
    causal: Option<Causal>,
    fully_masked: FullyMasked,
    masked: f32,
    [x, y]: [&View; 2],
) -> Vec<Step> {
    if x.count() == 0 {
        return Vec::new();
    }
    let extent = |from_last: usize| x.ty.shape.iter().rev().nth(from_last).map_or(1, |&extent| extent as u64);
    let (n, queries) = (extent(0), extent(1));
    let rows = x.count() / n;
    let empty = if fully_masked == FullyMasked::Nan { f32::NAN } else { masked };
    let arguments: [Argument; 10] = [
        x.address.into(),
        y.address.into(),
        rows.into(),
        n.into(),
        queries.into(),
        factor.into(),
        u8::from(causal.is_some()).into(),
        (causal.map_or(0, |causal| causal.offset) as u64).into(),
        masked.into(),
        empty.into(),
    ];
    let blocks = rows.min(MOST_BLOCKS);
    vec![Step::Kernel(Call {
        unit,
        entry: "rows",
        blocks,
        threads: LANES,
        shared: 0,
        arguments: arguments.to_vec(),
    })]
}

impl OnDevice for Softmax {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![CANONICAL]
    }

    fn unit(&self, _: &str) -> Unit {
        Unit::between(SOURCE, self.from, self.to)
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let views = [&inputs[0], &outputs[0]];
        Ok(plan(self.unit(variant), self.scale.0, self.causal, self.fully_masked, 0.0, views))
    }

    fn units() -> Vec<Unit> {
        activation::pairs().map(|(from, to)| Unit::between(SOURCE, from, to)).collect()
    }
}
