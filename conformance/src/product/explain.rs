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
const COMPARED: [usize; 2] = [4, 32];

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
    let mut candidates = alive.into_iter();
    let whole = |model: &Model, others: usize| {
        let right = codes(model, &sample.positions);
        let mismatches = differing(&right, &sample.positions);
        Explanation { model: model.clone(), right, mismatches, others, tried: models.len() }
    };
    let first = candidates.next().unwrap_or(nearest);
    let mut best = whole(first, candidates.len());
    while let Some(model) = candidates.next() {
        // A model that explains all is right where the best one is not.
        let pairs = best.right.iter().zip(&sample.positions);
        let wrong = pairs.filter(|&(&right, &position)| !same(gemm.out, right, got(position)));
        let wrong: Vec<_> = wrong.map(|(_, &position)| position).take(COMPARED[1]).collect();
        if wrong.is_empty() {
            break;
        }
        if differing(&codes(model, &wrong), &wrong) == 0 {
            let other = whole(model, candidates.len());
            if other.mismatches < best.mismatches {
                best = other;
            }
        }
    }
    Some(best)
}

/// Whether two codes are the same number, any NaN being the same as any other.
pub(super) fn same(format: Format, right: u64, got: u64) -> bool {
    right == got || format.decode(right).is_nan() && format.decode(got).is_nan()
}
