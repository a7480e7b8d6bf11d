//! `rope`: rotary position embedding: pairs of each head's elements, rotated by an angle that grows with
//! the token's position.
//!
//! Pair i, from 0 to `rotary_dim / 2`, of a token at position p is rotated by
//! `angle = p * base^(-2 i / rotary_dim)`: `y0 = x0 * cos - x1 * sin`, `y1 = x0 * sin + x1 * cos`;
//! with `inverse` by `-angle`. A pair is `(2 i, 2 i + 1)` (`interleaved`) or
//! `(i, i + rotary_dim / 2)` (`halves`). Elements from `rotary_dim` on, which is even and no more
//! than `head_dim` (left out: all of it), are copied, bit for bit where the formats of x and y are
//! the same.
//!
//! x is `[tokens, heads, head_dim]` of f32, f16 or bf16, `positions` is u32 `[tokens]`, y is like x
//! in a format of its own. `base` is the bits of an f32 from 1. Any extent may be 0.
//!
//! Canonical: `e = (2 i * ln(base)) / rotary_dim`, `angle = p * exp(-e)`, cosine and sine in f64 by
//! [`crate::math`], each operation rounded, so that large positions keep their accuracy; cosine and
//! sine are rounded to f32. With `inverse` the sine changes its sign. Then in f32 two products,
//! each rounded, and their difference or sum, rounded; then one rounding to the output's format,
//! overflow to infinity.
//!
//! NaN or an infinity in a pair spoils it alone; an infinity times a sine of 0 is NaN. NaN is the
//! canonical one.
//!
//! The bound holds for f32 implementations, with fma or without, whose cosine and sine are 2 ulp
//! off, of an angle that is off by what `angle` says: [`Angle::Accurate`], an error of 2^-22 at
//! most, relative for angles below 1, and of 2^-43 of the angle; or [`Angle::F32`] for engines that
//! compute powers and angles in f32: relative, `(16 + ln(base) + 5 i) * 2^-24` for a power that is
//! rounded, raised or multiplied up step by step, which at position 100,000 is an error of more
//! than a tenth of a radian.
//!
//! Errors name x if it has not three dimensions, positions that are not `[tokens]`, a `rotary_dim`
//! that is odd or larger than `head_dim`, an odd `head_dim` without one, a `base` below 1, infinite
//! or NaN, and formats other than the three.
//!
//! Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021); halves as
//! in GPT-NeoX.

use super::activation::{check_format, number, rounded};
use super::gemm::Bits32;
use super::{Inputs, Operation, SignatureError};
use crate::format::Format;
use crate::interval::{Interval, Steps};
use crate::{DType, Path, Tensor, TensorError, TensorType, math};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Format of the input: f32, f16 or bf16.
    pub from: Format,
    /// Format of the output.
    pub to: Format,
    /// Which elements are a pair.
    pub pairing: Pairing,
    /// How many elements of a head are rotated; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<usize>,
    /// Base of the powers.
    #[serde(default = "ten_thousand")]
    pub base: Bits32,
    /// Whether angles are negative.
    #[serde(default)]
    pub inverse: bool,
    /// How accurate the angle of an implementation has to be.
    #[serde(default)]
    pub angle: Angle,
}

fn ten_thousand() -> Bits32 {
    Bits32(10_000.0)
}

/// Which elements are a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Neighbours: `(2 i, 2 i + 1)`.
    Interleaved,
    /// The i-th of both halves: `(i, i + rotary_dim / 2)`.
    Halves,
}

impl Pairing {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Interleaved, Self::Halves];
}

/// How accurate an implementation's angle is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Angle {
    /// At any position.
    #[default]
    Accurate,
    /// As f32 is.
    F32,
}

/// Where an element of a head stands.
enum Place {
    /// In a pair: which, with which element, and as the second of both or not.
    Pair { pair: usize, other: usize, second: bool },
    /// Behind those that are rotated.
    Rest,
}

impl Rope {
    /// Full heads of f32, base 10,000.
    #[must_use]
    pub fn new(pairing: Pairing) -> Self {
        let (from, to) = (crate::format::F32, crate::format::F32);
        Self {
            from,
            to,
            pairing,
            rotary_dim: None,
            base: ten_thousand(),
            inverse: false,
            angle: Angle::default(),
        }
    }

    /// How many elements of a head are rotated.
    #[must_use]
    pub fn rotated(&self, head_dim: usize) -> usize {
        self.rotary_dim.unwrap_or(head_dim)
    }

    fn place(&self, column: usize, head_dim: usize) -> Place {
        let rotated = self.rotated(head_dim);
        let half = rotated / 2;
        if column >= rotated {
            return Place::Rest;
        }
        match self.pairing {
            Pairing::Interleaved => {
                Place::Pair { pair: column / 2, other: column ^ 1, second: column % 2 == 1 }
            }
            Pairing::Halves if column < half => {
                Place::Pair { pair: column, other: column + half, second: false }
            }
            Pairing::Halves => Place::Pair { pair: column - half, other: column - half, second: true },
        }
    }

    /// Cosine and sine of a pair, in f32.
    fn cos_sin(&self, position: u64, pair: usize, rotated: usize) -> [f32; 2] {
        let ln_base = math::log_f64(f64::from(self.base.0));
        let exponent = (2 * pair) as f64 * ln_base / rotated as f64;
        let angle = position as f64 * math::exp_f64(-exponent);
        let (sin, cos) = math::sin_cos_f64(angle);
        let sin = if self.inverse { -sin } else { sin };
        [cos as f32, sin as f32]
    }

    /// The same over intervals.
    fn cos_sin_real(&self, position: u64, pair: usize, rotated: usize, steps: Steps) -> [Interval; 2] {
        let base = f64::from(self.base.0);
        let power = libm::pow(base, -((2 * pair) as f64) / rotated as f64);
        let angle = position as f64 * power;
        let own = angle * (libm::log(base) + 4.0) * f64::EPSILON;
        let allowed = match (steps, self.angle) {
            (Steps::Real, _) => 0.0,
            (Steps::F32, Angle::Accurate) => angle * 2f64.powi(-43) + angle.min(1.0) * 2f64.powi(-22),
            (Steps::F32, Angle::F32) => angle * (16.0 + libm::log(base) + 5.0 * pair as f64) * 2f64.powi(-24),
        };
        let of = |value: f64| {
            let wide = Interval::at(value, |x| x, 16.0 * f64::EPSILON).widened(own + allowed);
            let within = Interval { low: wide.low.max(-1.0), high: wide.high.min(1.0) };
            within.rounded(steps, 4.0)
        };
        let (cos, sin) = (of(libm::cos(angle)), of(libm::sin(angle)));
        [cos, if self.inverse { -sin } else { sin }]
    }

    /// The canonical code of an element.
    fn element(&self, x: &Tensor, index: usize, cos_sin: impl Fn(usize) -> [f32; 2]) -> u64 {
        let head_dim = x.shape()[2];
        let column = index % head_dim;
        match self.place(column, head_dim) {
            Place::Rest if self.from == self.to => x.code(index),
            Place::Rest => rounded(self.to, number(x, self.from, index)),
            Place::Pair { pair, other, second } => {
                let [cos, sin] = cos_sin(pair);
                let own = number(x, self.from, index);
                let other = number(x, self.from, index - column + other);
                let y = if second { other * sin + own * cos } else { own * cos - other * sin };
                rounded(self.to, y)
            }
        }
    }

    /// Of an element: the token, its position, and how many elements of a head are rotated.
    fn token(&self, inputs: &[Tensor], index: usize) -> (u64, usize) {
        let shape = inputs[0].shape();
        (inputs[1].code(index / (shape[1] * shape[2])), self.rotated(shape[2]))
    }
}

/// A sum of products that may underflow: a zero of either sign, by the order of the steps.
fn either_zero(y: Interval) -> Interval {
    let smallest = f64::from(f32::from_bits(1));
    if y.low == 0.0 && y.high == 0.0 || y.low > smallest || y.high < -smallest {
        return y;
    }
    Interval { low: if y.low < 0.0 { y.low } else { -0.0 }, high: if y.high > 0.0 { y.high } else { 0.0 } }
}

impl Operation for Rope {
    const INPUTS: &'static [&'static str] = &["x", "positions"];

    fn signature(&self, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, SignatureError> {
        inputs.count(2)?;
        check_format(inputs, "from", self.from)?;
        check_format(inputs, "to", self.to)?;
        if !(1.0..=f32::MAX).contains(&self.base.0) {
            return Err(
                inputs.parameter_error("base", format!("is {}, expected a number from 1", self.base.0))
            );
        }
        let shape = inputs.dtype(0, self.from)?;
        let &[tokens, _, head_dim] = shape else {
            return Err(inputs.shape_error(0, "[tokens, heads, head_dim]".to_owned()));
        };
        let rotated = self.rotated(head_dim);
        if rotated % 2 == 1 || rotated > head_dim {
            let why = format!("is {rotated}, expected an even number of at most head_dim, {head_dim}");
            return Err(inputs.parameter_error("rotary_dim", why));
        }
        inputs.exactly(1, DType::U32, &[&[tokens]])?;
        Ok(vec![TensorType::new(self.to, shape)])
    }

    fn evaluate(&self, inputs: &[Tensor], path: Path) -> Result<Vec<Tensor>, TensorError> {
        let (x, positions) = (&inputs[0], &inputs[1]);
        let ty = TensorType::new(self.to, x.shape());
        let [_, heads, head_dim] = *x.shape() else { return Ok(vec![Tensor::from_codes(ty, &[])?]) };
        let rotated = self.rotated(head_dim);
        // Heads of a token have their angles in common.
        let of_token = |token: usize| -> Vec<u64> {
            let position = positions.code(token);
            let angles: Vec<_> = (0..rotated / 2).map(|pair| self.cos_sin(position, pair, rotated)).collect();
            let first = token * heads * head_dim;
            (first..first + heads * head_dim)
                .map(|index| self.element(x, index, |pair| angles[pair]))
                .collect()
        };
        let codes: Vec<u64> = if path == Path::Definition {
            let element = |index| {
                let (position, rotated) = self.token(inputs, index);
                self.element(x, index, |pair| self.cos_sin(position, pair, rotated))
            };
            (0..x.len()).map(element).collect()
        } else {
            (0..positions.len()).into_par_iter().flat_map_iter(of_token).collect()
        };
        Ok(vec![Tensor::from_codes(ty, &codes)?])
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
        let x = &inputs[0];
        let head_dim = x.shape()[2];
        let element = |known: &mut HashMap<(u64, usize), [Interval; 2]>, index: usize| {
            let column = index % head_dim;
            let own = number(x, self.from, index);
            let Place::Pair { pair, other, second } = self.place(column, head_dim) else {
                return f64::from(own).into();
            };
            let other = number(x, self.from, index - column + other);
            let (position, rotated) = self.token(inputs, index);
            let canonical = || {
                let [cos, sin] = self.cos_sin(position, pair, rotated);
                let y = if second { other * sin + own * cos } else { own * cos - other * sin };
                Interval::from(y)
            };
            if !own.is_finite() || !other.is_finite() {
                return canonical();
            }
            let [cos, sin] = *known
                .entry((position, pair))
                .or_insert_with(|| self.cos_sin_real(position, pair, rotated, steps));
            let product = |x: f32, factor: Interval| (Interval::from(x) * factor).rounded(steps, 1.0);
            let (first, last) = (product(own, cos), product(other, sin));
            let y = (if second { last + first } else { first - last }).rounded(steps, 1.0);
            let y = if steps == Steps::F32 { either_zero(y) } else { y };
            if y.is_number() { y } else { canonical() }
        };
        let chunk = |positions: &[usize]| -> Vec<Interval> {
            let mut known = HashMap::new();
            positions.iter().map(|&index| element(&mut known, index)).collect()
        };
        Some(positions.par_chunks(1 << 12).flat_map_iter(chunk).collect())
    }

    fn terms(&self, _: &[Tensor]) -> usize {
        2
    }

    fn sources(&self, inputs: &[Tensor], _: usize, index: usize) -> Vec<(usize, usize)> {
        let shape = inputs[0].shape();
        let column = index % shape[2];
        let token = index / (shape[1] * shape[2]);
        match self.place(column, shape[2]) {
            Place::Pair { other, .. } => vec![(0, index), (0, index - column + other), (1, token)],
            Place::Rest => vec![(0, index)],
        }
    }
}
