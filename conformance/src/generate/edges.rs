//! The classes that are lists of codes: where conversions go wrong.

use super::ladder::{Codes, Exact, Ladder, Sampling};
use super::{GenerateError, Request};
use crate::case::Class;
use crate::seed::{hash, mix};
use plumbline_reference::format::{BF16, F16, F32, Format, Specials};

/// Code bits up to which `midpoints`, `representable` and `double_rounding` take every
/// value of the target; they sample larger formats in every binade.
const WHOLE_ALONE: u32 = 19;
/// The same within `edges`: TF32 whole would make it three million codes.
pub(super) const WHOLE_IN_EDGES: u32 = 16;

/// The codes of a list class for the request's source and target formats.
pub(super) fn codes(request: &Request<'_>) -> Result<Vec<u64>, GenerateError> {
    let source = request.source()?;
    let target = request.target();
    let ladder = target.map(Ladder::new);
    let sampling = Sampling { whole_up_to: WHOLE_ALONE, seed: request.seed };
    let mut out = Codes::new(Ladder::new(source));
    match (request.class, ladder) {
        (Class::Midpoints, Some(target)) => midpoints(&mut out, target, sampling),
        (Class::DoubleRounding, Some(target)) => double_rounding(&mut out, target, sampling),
        (Class::Midpoints | Class::DoubleRounding, None) => {
            let op = request.op.name();
            return Err(request.mismatch(format!(
                "needs a format that results are rounded to, and `{op}` has none; use `edges` or `representable`"
            )));
        }
        (Class::Representable, target) => representable(&mut out, target, sampling),
        (Class::BinadeEdges, target) => binade_edges(&mut out, target),
        (Class::Subnormals, target) => subnormals(&mut out, target, request.seed),
        (Class::Extremes, target) => extremes(&mut out, target),
        (Class::Nans, _) => nans(&mut out, request.seed),
        _ => return Ok(all(source, target, WHOLE_IN_EDGES, request.seed)),
    }
    let codes = out.into_vec();
    if codes.is_empty() {
        let to = target.map(|target| format!(" to {target}")).unwrap_or_default();
        return Err(request.mismatch(format!("has no values from {source}{to}; use `edges`")));
    }
    Ok(codes)
}

/// The codes of `edges`: every class below. Targets of more than `whole_up_to` code bits
/// are sampled.
pub(super) fn all(source: Format, target: Option<Format>, whole_up_to: u32, seed: u64) -> Vec<u64> {
    let target = target.map(Ladder::new);
    let sampling = Sampling { whole_up_to, seed };
    let mut out = Codes::new(Ladder::new(source));
    if let Some(target) = target {
        midpoints(&mut out, target, sampling);
        double_rounding(&mut out, target, sampling);
    }
    representable(&mut out, target, sampling);
    binade_edges(&mut out, target);
    subnormals(&mut out, target, seed);
    extremes(&mut out, target);
    nans(&mut out, seed);
    out.into_vec()
}

/// Midpoints of the target, from half its smallest value to the one above its
/// largest.
fn midpoints(out: &mut Codes, target: Ladder, sampling: Sampling) {
    sampling.midpoints(target).for_each(|midpoint| out.push_around(midpoint));
}

/// Values of the target; of the source where there is no target.
fn representable(out: &mut Codes, target: Option<Ladder>, sampling: Sampling) {
    let values = target.unwrap_or(out.source);
    sampling.indices(values).into_iter().for_each(|index| out.push_around(values.at(index)));
}

/// First and last value of every binade. The subnormals count as one.
fn binade_edges(out: &mut Codes, target: Option<Ladder>) {
    for ladder in [Some(out.source), target].into_iter().flatten() {
        let fraction_bits = ladder.format.fraction_bits;
        for field in 0..=ladder.max >> fraction_bits {
            let first = field << fraction_bits;
            let last = (first + (1 << fraction_bits) - 1).min(ladder.max);
            out.push_around(ladder.at(first));
            out.push_around(ladder.at(last));
        }
    }
}

/// Subnormals of the source; subnormals of the target, the midpoints between them and
/// random values in their range.
fn subnormals(out: &mut Codes, target: Option<Ladder>, seed: u64) {
    notable_subnormals(out.source.format, seed).into_iter().for_each(|index| out.push_index(index));
    let Some(target) = target.filter(|target| target.format.subnormals) else { return };
    for index in notable_subnormals(target.format, seed) {
        out.push_around(target.at(index));
        out.push_around(target.midpoint_above(index));
    }
    // From a quarter of the smallest: what rounds to zero counts as well.
    for exponent in target.at(1).exponent - 2..target.format.min_exponent() {
        for i in 0..4 {
            let fraction = random(seed, "subnormals", (exponent as u64) << 2 | i) >> 12;
            let value = Exact { significand: 1 << 52 | fraction, exponent: exponent - 52 };
            if let Some(place) = out.source.locate(value) {
                out.push_index(place.floor);
            }
        }
    }
}

/// Indices of subnormals: each fraction bit alone, each run of low ones, random ones;
/// and of the smallest normal number.
fn notable_subnormals(format: Format, seed: u64) -> Vec<u64> {
    if !format.subnormals {
        return Vec::new();
    }
    let min_normal = 1u64 << format.fraction_bits;
    let bits = (0..format.fraction_bits).flat_map(|bit| [1 << bit, (2 << bit) - 1]);
    let random = (0..4).map(|i| random(seed, format.name, i) % min_normal);
    bits.chain(random).chain([min_normal]).collect()
}

/// Zero, smallest, largest and just beyond, of source and target; infinity.
fn extremes(out: &mut Codes, target: Option<Ladder>) {
    for ladder in [Some(out.source), target].into_iter().flatten() {
        let Ladder { format, max } = ladder;
        let smallest = u64::from(format.subnormals);
        for index in [0, smallest, smallest << format.fraction_bits, max] {
            out.push_around(ladder.at(index));
        }
        let beyond = [ladder.midpoint_above(max), ladder.after(max), ladder.at(max).double()];
        beyond.into_iter().chain([ladder.at(smallest).half()]).for_each(|value| out.push_around(value));
    }
    out.push_index(out.source.top());
}

/// NaNs of both signs. IEEE formats have many: quiet and signalling ones with the
/// lowest, the highest, all and random payload bits set.
fn nans(out: &mut Codes, seed: u64) {
    let Ladder { format, max } = out.source;
    match format.specials {
        Specials::Ieee => {
            let quiet = 1 << (format.fraction_bits - 1);
            let random = (0..8).map(|i| random(seed, "nans", i));
            for payload in [0, 1, quiet >> 1, quiet - 1].into_iter().chain(random) {
                // A payload of zero without the quiet bit is infinity.
                for fraction in [quiet + payload % quiet, (payload % quiet).max(1)] {
                    out.push_index(out.source.top() + fraction);
                }
            }
        }
        Specials::NanAllOnes => out.push_index(max + 1),
        Specials::NanNegativeZero => out.push(format.sign_bit()),
        Specials::None => {}
    }
}

/// Values that an intermediate format rounds onto a midpoint of the target, which then
/// rounds the wrong way: not on the midpoint, but within half an intermediate ulp.
fn double_rounding(out: &mut Codes, target: Ladder, sampling: Sampling) {
    let (source, to) = (out.source, target.format);
    let between = to.fraction_bits + 1..source.format.fraction_bits;
    // Few midpoints leave room for each discarded bit on its own, which also finds
    // sticky bits left out.
    let every_bit = to.code_bits() <= 8;
    let intermediates = [F16, BF16, F32].into_iter().filter(|via| between.contains(&via.fraction_bits));
    for via in intermediates.map(Ladder::new) {
        for midpoint in sampling.midpoints(target) {
            // Only a midpoint that the intermediate format has can be rounded onto.
            let Some(onto) = via.locate(midpoint).filter(|place| place.is_exact()) else { continue };
            let Some(at) = source.locate(midpoint) else { continue };
            if let Some(limit) = source.locate(via.midpoint_above(onto.floor)) {
                distances(limit.ceil - 1 - at.floor, every_bit).for_each(|d| out.push_index(at.floor + d));
            }
            if onto.floor == 0 {
                continue;
            }
            if let Some(limit) = source.locate(via.midpoint_above(onto.floor - 1)) {
                distances(at.ceil - 1 - limit.floor, every_bit).for_each(|d| out.push_index(at.ceil - d));
            }
        }
    }
}

/// One, with `every_bit` each further power of two, and the furthest distance.
fn distances(furthest: u64, every_bit: bool) -> impl Iterator<Item = u64> {
    let powers = (0..if every_bit { u64::BITS } else { 1 }).map(|bit| 1 << bit);
    powers.chain([furthest]).filter(move |&distance| 0 < distance && distance <= furthest)
}

/// Random bits for a class.
fn random(seed: u64, topic: &str, i: u64) -> u64 {
    mix(seed ^ hash(topic), i)
}
