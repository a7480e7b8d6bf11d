//! `mx_blocks`: blocks where microscaling goes wrong.

use super::{GenerateError, Request, positional};
use crate::seed::mix;
use plumbline_reference::Tensor;
use plumbline_reference::block::mx::Layout;
use plumbline_reference::format::{E8M0, F32, Format, Policy, Value};
use plumbline_reference::ops::{MxQuantize, Op};

pub(super) fn generate(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let Op::MxQuantize(op) = request.op else {
        let name = request.op.name();
        return Err(
            request.mismatch(format!("is for `mx_quantize`, not `{name}`; use `edges` or `random_bits`"))
        );
    };
    if request.input != 0 || request.dtype != op.from.into() {
        return Err(request.mismatch(format!("is for `x`, which is {}; use `random_bits`", op.from)));
    }
    let shape = positional::shape(request)?;
    let tensor_scale = request.others.get(1).and_then(Option::as_ref).filter(|scale| !scale.is_empty());
    let tensor_scale = tensor_scale.map_or(1.0, |scale| f32::from_bits(scale.code(0) as u32));
    let blocks = Blocks::new(op, tensor_scale);
    positional::fill(request, shape, |i| blocks.code(request.seed, i))
}

/// Elements by their index, blocks of all kinds in turn.
pub(crate) struct Blocks {
    from: Format,
    layout: Layout,
    tensor_scale: f64,
    /// Of the elements, in units of the scale.
    values: Vec<f64>,
    midpoints: Vec<f64>,
    max: f64,
    /// Largest magnitudes at which some rule changes its mind, in units of the scale.
    thresholds: Vec<f64>,
}

impl Blocks {
    pub(crate) fn new(op: &MxQuantize, tensor_scale: f32) -> Self {
        let layout = op.format.layout();
        let element = layout.element;
        let magnitudes = 0..=element.max_finite();
        let values: Vec<_> =
            magnitudes.map(|code| element.to_f64(code)).filter(|value| value.is_finite()).collect();
        let max = element.to_f64(element.max_finite());
        let last_binade = 2f64.powi(element.max_exponent());
        let carries = last_binade * (2.0 - 2f64.powi(-1 - element.fraction_bits as i32));
        let steps = values.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
        let usable = tensor_scale.is_finite() && tensor_scale != 0.0;
        Self {
            from: op.from,
            layout,
            tensor_scale: if usable { tensor_scale.abs().into() } else { 1.0 },
            midpoints: steps.collect(),
            values,
            max,
            thresholds: vec![last_binade, max, carries, 2.0 * last_binade],
        }
    }

    /// Element `i` of the input of that seed.
    pub(crate) fn code(&self, seed: u64, i: u64) -> u64 {
        let extent = self.layout.block as u64;
        let (block, place) = (i / extent, i % extent);
        let (of_block, own) = (mix(seed, 2 * block + 1), mix(seed.rotate_left(17), 2 * i));
        let anywhere = of_block >> 32 & (extent - 1);
        let is_needle = place == [0, extent - 1, anywhere][(of_block >> 8) as usize % 3];
        let unit = self.unit(of_block);
        match of_block & 7 {
            0 => own & self.from.code_mask(),
            1 => {
                let magnitude = (1.0 + (own >> 12) as f64 * 2f64.powi(-52)) * 2f64.powi(-((own & 15) as i32));
                self.near(magnitude * unit, own, 0)
            }
            2 | 3 if is_needle => {
                let threshold = self.thresholds[(of_block >> 40) as usize % self.thresholds.len()];
                self.near(threshold * self.half_step(of_block) * unit, own, 2)
            }
            2 | 3 => self.near(pick(&self.values, own >> 8) * unit, own, 0),
            4 | 5 if is_needle => self.near(self.max * unit, own, 0),
            4 | 5 => self.near(pick(&self.midpoints, own >> 8) * unit, own, 1),
            6 => own & (self.from.min_normal() - 1) | own & self.from.sign_bit(),
            _ if is_needle => {
                let of = [
                    self.from.infinity(),
                    self.from.canonical_nan(),
                    None,
                    Some(self.from.max_finite()),
                    Some(1),
                ];
                let code = of[(of_block >> 44) as usize % of.len()].unwrap_or(self.from.min_normal() >> 1);
                code | if of_block >> 52 & 1 == 1 { self.from.sign_bit() } else { 0 }
            }
            _ => [0, self.from.sign_bit(), self.from.encode(1.0.into(), &Policy::default(), 0)]
                [(of_block >> 24) as usize % 3],
        }
    }

    /// What an element of 1 is, under a scale that is random but for its block.
    fn unit(&self, of_block: u64) -> f64 {
        let random = of_block >> 16;
        if self.layout.scale == E8M0 {
            // Of f16 more than half would be beyond its range.
            let (low, count) =
                if self.from.max_exponent() < F32.max_exponent() { (-26, 34) } else { (-150, 270) };
            return 2f64.powi(low + (random % count) as i32);
        }
        self.layout.scale.to_f64(1 + random % self.layout.scale.max_finite()) * self.tensor_scale
    }

    /// 1, or for a scale with a fraction the midpoint to the next: where the scale itself is
    /// rounded.
    fn half_step(&self, of_block: u64) -> f64 {
        let scale = self.layout.scale;
        let code = 1 + (of_block >> 16) % scale.max_finite();
        if scale == E8M0 || code == scale.max_finite() {
            return 1.0;
        }
        (1.0 + scale.to_f64(code + 1) / scale.to_f64(code)) / 2.0
    }

    /// The code nearest to that value, of a random sign, moved by up to that many codes.
    fn near(&self, value: f64, random: u64, codes: u64) -> u64 {
        let signed = if random >> 63 == 1 { -value } else { value };
        let mut code = self.from.encode(Value::from(signed), &Policy::default(), 0);
        let steps = (random >> 56 & 0x3f) % (2 * codes + 1);
        for _ in 0..steps.abs_diff(codes) {
            let next = if steps > codes { self.from.next_up(code) } else { self.from.next_down(code) };
            code = next.unwrap_or(code);
        }
        code
    }
}

fn pick(of: &[f64], random: u64) -> f64 {
    of[random as usize % of.len()]
}
