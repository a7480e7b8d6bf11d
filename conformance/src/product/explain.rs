//! Which order of accumulation gives exactly these bits.

use super::models::Model;
use super::sample::Sample;
use plumbline_reference::format::Format;
use plumbline_reference::ops::gemm::Gemm;
use plumbline_reference::{Path, Tensor};

/// What a search gave.
pub(super) struct Explanation {
    /// The model that gives the same bits everywhere, or the one that comes nearest.
    pub(super) model: Model,
    /// What that model gives at each position of the sample.
    pub(super) right: Vec<u64>,
    /// Positions of the sample at which it does not give the same bits.
    pub(super) mismatches: usize,
    /// Further models that give the same bits at all positions where models are compared.
    pub(super) others: usize,
    /// Models that were tried.
    pub(super) tried: usize,
}

/// Numbers of positions at which models are compared. The first that is right at all of them
/// is then tried at the whole sample.
const COMPARED: [usize; 3] = [4, 32, 512];

/// Searches the models in their order.
pub(super) fn explain(
    gemm: &Gemm,
    inputs: &[Tensor],
    sample: &Sample,
    models: &[Model],
    got: impl Fn(usize) -> u64,
) -> Option<Explanation> {
    let codes = |model: &Model, positions: &[usize]| model.of(gemm).at(inputs, positions, Path::fastest());
    let differing = |right: &[u64], positions: &[usize]| {
        let pairs = right.iter().zip(positions);
        pairs.filter(|&(&right, &position)| !same(gemm.out, right, got(position))).count()
    };
    let mut alive: Vec<&Model> = models.iter().collect();
    let mut nearest = models.first()?;
    for count in COMPARED {
        let positions = sample.spread(count);
        let scores = alive.iter().map(|&model| (differing(&codes(model, &positions), &positions), model));
        let scores: Vec<_> = scores.collect();
        nearest = scores.iter().min_by_key(|(score, _)| *score).map_or(nearest, |(_, model)| *model);
        alive = scores.into_iter().filter(|(score, _)| *score == 0).map(|(_, model)| model).collect();
    }
    let others = alive.len().saturating_sub(1);
    if alive.is_empty() {
        alive.push(nearest);
    }
    let mut best: Option<Explanation> = None;
    for model in alive {
        let right = codes(model, &sample.positions);
        let mismatches = differing(&right, &sample.positions);
        if best.as_ref().is_none_or(|best| mismatches < best.mismatches) {
            best = Some(Explanation { model: model.clone(), right, mismatches, others, tried: models.len() });
        }
        if mismatches == 0 {
            break;
        }
    }
    best
}

/// Whether two codes are the same number, any NaN being the same as any other.
pub(super) fn same(format: Format, right: u64, got: u64) -> bool {
    right == got || format.decode(right).is_nan() && format.decode(got).is_nan()
}
