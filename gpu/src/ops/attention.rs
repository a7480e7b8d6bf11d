//! `attention`.

use super::{CANONICAL, LANES, MOST_BLOCKS, OnDevice};
use crate::device::ComputeCapability;
use crate::module::{Source, Unit, constant};
use crate::plan::{Argument, Call, Step, View};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::activation::FORMATS;
use plumbline_reference::ops::{Attention, FullyMasked, SoftmaxOrder};

const SOURCE: Source = Source { name: "attention", text: include_str!("../../kernels/attention.cu") };

impl OnDevice for Attention {
    fn variants(&self, _: ComputeCapability) -> Vec<&'static str> {
        vec![CANONICAL]
    }

    fn unit(&self, _: &str) -> Unit {
        let formats = [("Q", self.q), ("KV", self.kv), ("OUT", self.out), ("P", self.probabilities)];
        Unit::new(SOURCE, formats.map(|(name, format)| (name, constant(format))).to_vec())
    }

    fn plan(&self, variant: &str, inputs: &[View], outputs: &[View]) -> Result<Vec<Step>, Unsupported> {
        let (q, k, v, y) = (&inputs[0], &inputs[1], &inputs[2], &outputs[0]);
        if y.count() == 0 {
            return Ok(Vec::new());
        }
        let extent = |view: &View, i: usize| view.ty.shape[i] as u64;
        let (heads, queries, d) = (extent(q, 0), extent(q, 1), extent(q, 2));
        let slots = k.ty.shape[1];
        let offset = self.offset(queries as usize, slots);
        let tile = match self.softmax {
            SoftmaxOrder::TwoPass => 0,
            SoftmaxOrder::Online(tile) => tile as u64,
        };
        let empty = if self.fully_masked == FullyMasked::Nan { f32::NAN } else { 0.0 };
        let arguments: [Argument; 15] = [
            q.address.into(),
            k.address.into(),
            v.address.into(),
            y.address.into(),
            heads.into(),
            extent(k, 0).into(),
            queries.into(),
            (slots as u64).into(),
            (self.used(slots) as u64).into(),
            d.into(),
            self.factor(d as usize).into(),
            u8::from(offset.is_some()).into(),
            (offset.unwrap_or(0) as u64).into(),
            tile.into(),
            empty.into(),
        ];
        let blocks = (heads * queries).min(MOST_BLOCKS);
        let (unit, arguments) = (self.unit(variant), arguments.to_vec());
        Ok(vec![Step::Kernel(Call { unit, entry: "queries", blocks, threads: LANES, shared: 0, arguments })])
    }

    fn units() -> Vec<Unit> {
        let mut units = Vec::new();
        for q in FORMATS {
            for kv in FORMATS {
                for out in FORMATS {
                    let of = |probabilities| Self { probabilities, ..Self::new(q, kv, out) }.unit(CANONICAL);
                    units.extend(FORMATS.map(of));
                }
            }
        }
        units
    }
}
