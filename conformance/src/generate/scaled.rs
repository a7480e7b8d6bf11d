//! `scaled_edges`: midpoints of the target as they look before the operation scales
//! them.

use super::ladder::{Codes, Exact, Ladder, Sampling};
use super::{GenerateError, Request, edges, layout, positional};
use crate::seed::mix;
use plumbline_reference::format::{Format, Rounding};
use plumbline_reference::ops::{DeviceScaledCast, Granularity, Op, ScaleOp};
use plumbline_reference::{DType, Tensor, TensorType};

/// With one scale: every candidate for it. With one per row or block: at each element
/// a random candidate for its own.
pub(super) fn generate(request: &Request<'_>) -> Result<Tensor, GenerateError> {
    let source = request.source()?;
    let scaling = Scaling::of(request.op).ok_or_else(|| not_scaled(request))?;
    let shape = match (request.shape, scaling.granularity) {
        (Some(shape), _) => shape,
        (None, Granularity::Tensor) => &[1],
        (None, _) => return Err(request.mismatch("needs a `shape` [M, K] where scales are per row or block")),
    };
    let units = scaling.units(request, shape)?;
    let candidates = Candidates::new(source, scaling.to, request.seed, units.contains(&None));
    if scaling.granularity == Granularity::Tensor {
        let mut codes = Codes::new(candidates.source);
        for unit in units {
            (0..candidates.count(unit)).for_each(|i| codes.push(candidates.code(unit, i)));
        }
        return layout::list(request, &codes.into_vec());
    }
    positional::fill(request, shape, |i| {
        let unit = units[scaling.granularity.scale_index(shape, i as usize)];
        candidates.code(unit, mix(request.seed, i) as usize % candidates.count(unit))
    })
}

fn not_scaled(request: &Request<'_>) -> GenerateError {
    request.mismatch(format!(
        "is for operations that scale and encode, and `{}` does not; use `edges`",
        request.op.name()
    ))
}

/// The x that an operation scales to 1 by this scale (or absmax). `None` where no x
/// survives the scale, or the operation does not scale and encode.
pub(crate) fn unit(op: &Op, scale: f32) -> Option<f64> {
    Scaling::of(op)?.unit(scale)
}

/// The x that is scaled to 1. `None` for scales that no x survives: 0, infinity, NaN.
type Unit = Option<f64>;

/// How the request's operation scales.
struct Scaling {
    to: Format,
    granularity: Granularity,
    scale_op: ScaleOp,
    rounding: Rounding,
    /// Where scales are made from an absmax on the way.
    absmax: Option<DeviceScaledCast>,
}

impl Scaling {
    /// `None` for operations that do not scale and encode.
    fn of(op: &Op) -> Option<Self> {
        match op {
            Op::ScaledCast(op) => {
                let (to, granularity, scale_op, rounding) = (op.to, op.granularity, op.scale_op, op.rounding);
                Some(Self { to, granularity, scale_op, rounding, absmax: None })
            }
            Op::DeviceScaledCast(op) => {
                let (to, granularity, scale_op, rounding) = (op.to, op.granularity, op.scale_op, op.rounding);
                Some(Self { to, granularity, scale_op, rounding, absmax: Some(*op) })
            }
            _ => None,
        }
    }

    /// The unit of each scale, once the operation accepts them for an `x` of that shape.
    fn units(&self, request: &Request<'_>, shape: &[usize]) -> Result<Vec<Unit>, GenerateError> {
        let scales = request.others.get(1).and_then(Option::as_ref).ok_or_else(|| {
            request.mismatch("needs the second input, the scales, as `bits` or from a `file`")
        })?;
        let mut types = vec![TensorType::new(request.dtype, shape), scales.ty().clone()];
        if self.rounding == Rounding::Stochastic {
            types.push(TensorType::new(DType::U32, shape));
        }
        let fits = request.op.signature(&types);
        fits.map_err(|error| request.mismatch(format!("does not fit the case: {error}")))?;
        Ok(scales.codes().map(|code| self.unit(f32::from_bits(code as u32))).collect())
    }

    fn unit(&self, scale: f32) -> Unit {
        let factor = match (&self.absmax, self.scale_op) {
            (None, _) => scale,
            (Some(op), ScaleOp::Multiply) => op.factors(scale).0,
            (Some(op), ScaleOp::Divide | ScaleOp::Reciprocal) => op.factors(scale).1,
        };
        let unit = match self.scale_op {
            ScaleOp::Multiply => 1.0 / f64::from(factor),
            ScaleOp::Divide => f64::from(factor),
            ScaleOp::Reciprocal => 1.0 / f64::from(1.0 / factor),
        };
        Some(unit).filter(|unit| unit.is_finite() && *unit != 0.0)
    }
}

/// What `x` may be for a scale, by index.
struct Candidates {
    source: Ladder,
    midpoints: Vec<f64>,
    /// Of no midpoint, but with every scale.
    specials: Vec<u64>,
    /// For scales without a unit.
    edges: Vec<u64>,
}

/// Source codes around the one nearest to where a midpoint comes from. Scaling rounds
/// once or twice, so what lands on the midpoint, if anything does, is at most two away.
const OFFSETS: [i64; 5] = [0, -1, 1, -2, 2];

impl Candidates {
    fn new(source: Format, to: Format, seed: u64, with_edges: bool) -> Self {
        let sampling = Sampling { whole_up_to: 16, seed };
        Self {
            source: Ladder::new(source),
            midpoints: sampling.midpoints(Ladder::new(to)).map(Exact::to_f64).collect(),
            specials: specials(Ladder::new(source)),
            edges: if with_edges {
                edges::all(source, Some(to), edges::WHOLE_IN_EDGES, seed)
            } else {
                Vec::new()
            },
        }
    }

    /// How many there are.
    fn count(&self, unit: Unit) -> usize {
        match unit {
            Some(_) => self.specials.len() + 2 * OFFSETS.len() * self.midpoints.len(),
            None => self.edges.len(),
        }
    }

    /// The `i`-th.
    fn code(&self, unit: Unit, i: usize) -> u64 {
        let Some(unit) = unit else { return self.edges[i] };
        let Some(i) = i.checked_sub(self.specials.len()) else { return self.specials[i] };
        let (offset, i) = (OFFSETS[i % OFFSETS.len()], i / OFFSETS.len());
        let (negative, midpoint) = (i % 2 == 1, self.midpoints[i / 2]);
        let index = self.source.nearest(midpoint * unit).saturating_add_signed(offset).min(self.source.top());
        self.source.code(index, negative)
    }
}

/// Zero, the largest value and infinity of both signs, and NaN.
fn specials(source: Ladder) -> Vec<u64> {
    let mut codes = Codes::new(source);
    [0, source.max, source.top()].into_iter().for_each(|index| codes.push_index(index));
    source.format.canonical_nan().into_iter().for_each(|nan| codes.push(nan));
    codes.into_vec()
}
