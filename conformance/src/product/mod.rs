//! Judging matrix products: by a derived bound, by a model that explains every bit, and by
//! Freivalds' check. Each says what it guarantees. Products of GGML blocks have a bound of their
//! own, and operations whose last steps are a product the one that follows from it.

mod blocks;
mod bound;
mod explain;
mod freivalds;
mod fused;
mod integers;
mod models;
mod prefill;
mod sample;

pub(crate) use blocks::BlockProduct;
pub(crate) use fused::FusedProduct;
pub use models::{Hints, Model, arithmetics, models};
pub(crate) use prefill::PrefillProduct;

use crate::case::Criterion;
use crate::seed::{hash, mix};
use explain::{explain, same};
use freivalds::Found;
use plumbline_reference::Tensor;
use plumbline_reference::format::Class;
use plumbline_reference::ops::gemm::{Gemm, Geometry};
use sample::Sample;

/// A wrong element.
pub(crate) struct Wrong {
    pub(crate) position: usize,
    pub(crate) right: u64,
    pub(crate) got: u64,
}

/// What judging a product gave.
#[derive(Default)]
pub(crate) struct Judged {
    /// Elements looked at.
    pub(crate) elements: usize,
    pub(crate) wrong: Vec<Wrong>,
    /// Whether every element looked at has the bits of the exact result or of the model.
    pub(crate) bit_exact: bool,
    pub(crate) max_error_over_bound: Option<f64>,
    /// The model, or what else was found.
    pub(crate) explanation: Option<String>,
    /// What the check finds and with what certainty.
    pub(crate) guarantee: String,
    /// Why nothing could be judged.
    pub(crate) impossible: Option<String>,
}

impl Judged {
    /// An output without elements.
    pub(crate) fn of_nothing() -> Self {
        Self { bit_exact: true, guarantee: "there are no elements".to_owned(), ..Self::default() }
    }
}

/// What a bound says, from what it says of each element.
fn of_elements(judged: Vec<bound::Judged>, mut guarantee: String) -> Judged {
    let unbounded = judged.iter().filter(|element| element.unbounded).count();
    let ratios = judged.iter().filter_map(|element| element.ratio);
    if unbounded > 0 {
        guarantee += &format!(", but for {unbounded} whose sums may leave f32's range and are not bounded");
    }
    let mostly_unbounded = 2 * unbounded > judged.len();
    Judged {
        elements: judged.len() - unbounded,
        bit_exact: judged.iter().all(|element| element.right == element.got),
        max_error_over_bound: ratios.reduce(f64::max),
        impossible: mostly_unbounded
            .then(|| "most sums may leave the accumulator's range, and are not bounded".to_owned()),
        wrong: judged
            .into_iter()
            .filter(|element| !element.ok)
            .map(|element| Wrong { position: element.position, right: element.right, got: element.got })
            .collect(),
        explanation: None,
        guarantee,
    }
}

/// A product and what is known of who made it.
pub(crate) struct Product<'a> {
    pub(crate) gemm: &'a Gemm,
    pub(crate) inputs: &'a [Tensor],
    /// The device's architecture where it is known: `sm_90`.
    pub(crate) architecture: Option<&'a str>,
    pub(crate) hints: &'a Hints,
}

impl Product<'_> {
    fn sample(&self) -> Sample {
        // The same positions for every backend, others for other inputs.
        let seed = self.inputs[0].codes().take(16).fold(hash("sample"), mix);
        let Geometry { batch, m, n, k, .. } = Geometry::of(self.gemm, self.inputs);
        Sample::of([batch, m, n, k], seed)
    }

    /// By a criterion of products.
    pub(crate) fn judge(&self, criterion: Criterion, actual: &Tensor) -> Judged {
        if actual.is_empty() {
            return Judged::of_nothing();
        }
        match criterion {
            Criterion::Freivalds => self.freivalds(actual),
            Criterion::Explained => self.explained(actual),
            _ => self.within_bound(actual),
        }
    }

    /// By the derived bound, element by element.
    fn within_bound(&self, actual: &Tensor) -> Judged {
        let sample = self.sample();
        let judged = bound::judge(self.gemm, self.inputs, &sample, self.architecture, |position| {
            actual.code(position)
        });
        of_elements(judged, sample.guarantee())
    }

    /// By the declared models.
    fn explained(&self, actual: &Tensor) -> Judged {
        let sample = self.sample();
        let k = Geometry::of(self.gemm, self.inputs).k;
        let models = models(self.gemm, k, self.architecture, self.hints);
        let got = |position: usize| actual.code(position);
        let Some(found) = explain(self.gemm, self.inputs, &sample, &models, got) else {
            return Judged::default();
        };
        let name = &found.model.name;
        let explanation = match (found.mismatches, found.others) {
            (0, 0) => name.clone(),
            (0, others) => {
                format!("{name} ({others} more of {} models give the same bits where tried)", found.tried)
            }
            (mismatches, _) => format!(
                "none of {} models; the nearest where tried, {name}, differs in {mismatches} of {} elements",
                found.tried,
                sample.positions.len()
            ),
        };
        let pairs = found.right.iter().zip(&sample.positions);
        let wrong = pairs
            .map(|(&right, &position)| Wrong { position, right, got: got(position) })
            .filter(|element| !same(self.gemm.out, element.right, element.got));
        Judged {
            elements: sample.positions.len(),
            wrong: wrong.collect(),
            bit_exact: found.mismatches == 0,
            max_error_over_bound: None,
            explanation: Some(explanation),
            guarantee: sample.guarantee(),
            impossible: None,
        }
    }

    /// By Freivalds' check of integers, every element.
    fn freivalds(&self, actual: &Tensor) -> Judged {
        let seed = mix(hash("freivalds"), hash(&format!("{:?}", self.gemm)));
        let Found { rows, examined } = match freivalds::check(self.gemm, self.inputs, actual, seed) {
            Ok(found) => found,
            Err(why) => return Judged { impossible: Some(why), ..Judged::default() },
        };
        let in_full = examined.len();
        let wrong = examined.into_iter().flat_map(|row| {
            let first = row.first;
            row.right.into_iter().enumerate().map(move |(i, right)| (first + i, right))
        });
        let wrong = wrong.map(|(position, right)| Wrong { position, right, got: actual.code(position) });
        // As integers: zeros of either sign are the same.
        let zero = |code: u64| self.gemm.out.classify(code) == Class::Zero;
        let wrong = wrong.filter(|it| it.right != it.got && !(zero(it.right) && zero(it.got)));
        let wrong: Vec<_> = wrong.collect();
        Judged {
            elements: actual.len(),
            // A row that fails holds a wrong element, or the check itself is wrong.
            impossible: (rows > 0 && wrong.is_empty())
                .then(|| "a row fails without a wrong element".to_owned()),
            wrong,
            // The signs of zeros are not looked at.
            bit_exact: false,
            max_error_over_bound: None,
            explanation: (rows > 0)
                .then(|| format!("Freivalds' check: {rows} rows of the product are wrong; {in_full} of them in full:")),
            guarantee:
                "every number, the sign of zeros aside, by Freivalds' check modulo 2^61 - 1: a wrong row passes \
                 with probability 2^-61"
                    .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
