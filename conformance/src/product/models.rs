//! The orders of accumulation that may explain a product: a small set, declared here.
//!
//! Those of cuBLAS and cuBLASLt are measured on an H200: by masked inputs that reveal the
//! tree, and by reproducing every bit of recorded products.

use plumbline_reference::accumulate::{Accumulation, Block, Reduce, Split, Sum};
use plumbline_reference::format::{BF16, Rounding, TF32};
use plumbline_reference::ops::gemm::{Compute, EpilogueOrder, Gemm, Operands};
use std::collections::BTreeMap;

/// A named order of accumulation, with what comes before and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name in reports: `chain of hopper, split-K 3 by 64`.
    pub name: String,
    /// What the operands are converted to first.
    pub operands: Option<Operands>,
    /// The order; `None` is the exact sum.
    pub accumulate: Option<Accumulation>,
    /// The order of the epilogue.
    pub epilogue: EpilogueOrder,
}

impl Model {
    fn new(name: impl Into<String>, accumulate: impl Into<Accumulation>) -> Self {
        Self {
            name: name.into(),
            operands: None,
            accumulate: Some(accumulate.into()),
            epilogue: EpilogueOrder::default(),
        }
    }

    /// The product by this model.
    #[must_use]
    pub fn of(&self, gemm: &Gemm) -> Gemm {
        Gemm {
            accumulate: self.accumulate.clone(),
            operands: self.operands,
            epilogue: self.epilogue,
            ..gemm.clone()
        }
    }
}

/// How an implementation says that it makes a product: names and values of the algorithm.
pub type Hints = BTreeMap<String, String>;

/// Which tensor core, if any, a product is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Fp8,
    F16,
    Tf32,
    Half,
    F32,
}

fn family(gemm: &Gemm) -> Family {
    match gemm.compute {
        Compute::F16 => Family::F16,
        Compute::Tf32 => Family::Tf32,
        Compute::F32 if gemm.a.storage_bits == 8 && gemm.b.storage_bits == 8 => Family::Fp8,
        Compute::F32 if [gemm.a, gemm.b].contains(&TF32) => Family::Tf32,
        Compute::F32 if gemm.a.storage_bits == 32 || gemm.b.storage_bits == 32 => Family::F32,
        Compute::F32 => Family::Half,
    }
}

/// The tensor cores' blocks of a family: those of the architecture, or of all where it is
/// not known or has none that is, the newest first.
fn blocks(family: Family, architecture: Option<&str>) -> Vec<(&'static str, Block)> {
    const AMPERE_AND_ADA: &[&str] = &["sm_80", "sm_86", "sm_87", "sm_89"];
    const HOPPER_AND_BLACKWELL: &[&str] = &["sm_90", "sm_120"];
    let rows: &[(&str, &[&str])] = match family {
        Family::Fp8 => &[("hopper_fp8", &["sm_90"]), ("ada_fp8", &["sm_89"]), ("blackwell_fp8", &["sm_120"])],
        Family::F16 => &[
            ("hopper_f16", HOPPER_AND_BLACKWELL),
            ("ampere_f16", AMPERE_AND_ADA),
            ("turing_f16", &["sm_75"]),
            ("volta_f16", &["sm_70", "sm_72"]),
        ],
        Family::Tf32 => &[("hopper_tf32", HOPPER_AND_BLACKWELL), ("ampere_tf32", AMPERE_AND_ADA)],
        Family::Half => &[
            ("hopper", HOPPER_AND_BLACKWELL),
            ("ampere", AMPERE_AND_ADA),
            ("turing", &["sm_75"]),
            ("volta", &["sm_70", "sm_72"]),
        ],
        Family::F32 => &[],
    };
    let here: Vec<_> =
        rows.iter().filter(|(_, of)| architecture.is_none_or(|own| of.contains(&own))).collect();
    let rows = if here.is_empty() { rows.iter().collect() } else { here };
    rows.into_iter().filter_map(|(name, _)| Block::NAMED.into_iter().find(|(row, _)| row == name)).collect()
}

const FMA: &str = "fma in ascending k";

/// Every arithmetic of a product, without split-K: what its bound is derived from. Those of
/// the architecture where it is known (`sm_90`), else of all.
#[must_use]
pub fn arithmetics(gemm: &Gemm, architecture: Option<&str>) -> Vec<Model> {
    let family = family(gemm);
    let chains = blocks(family, architecture).into_iter();
    // Volta and Turing have no bf16.
    let has_bf16 = |name: &str| !["volta", "turing"].contains(&name);
    let is_bf16 = [gemm.a, gemm.b].contains(&BF16);
    let chains = chains.filter(move |(name, _)| !is_bf16 || has_bf16(name));
    let chains =
        chains.map(|(name, block)| Model::new(format!("chain of {name}"), Accumulation::Chain(block)));
    match family {
        Family::Fp8 => {
            let promoted = chains.clone().filter_map(|model| {
                let name = format!("{}, promoted every 128", model.name);
                Some(Model::new(name, Sum::new(Split::Every(128), model.accumulate?)))
            });
            let halves = Model::new("mma.sync of FP8 in halves", Accumulation::HalvesThenAdd(Block::HOPPER));
            let fast = chains.clone().filter(|_| gemm.fast_accumulation);
            let is_hopper = architecture.is_none_or(|own| own == "sm_90");
            fast.chain(promoted).chain(is_hopper.then_some(halves)).collect()
        }
        Family::F16 => chains.collect(),
        Family::Tf32 => {
            let roundings = [
                (Rounding::NearestEven, "to tf32"),
                (Rounding::TowardZero, "cut to tf32"),
                (Rounding::NearestAway, "to tf32, ties away"),
            ];
            let converted = |(rounding, words)| {
                let operands = Some(Operands { to: TF32, rounding });
                chains.clone().map(move |model| {
                    let name = format!("operands {words}, {}", model.name);
                    Model { name, operands, ..model }
                })
            };
            roundings.into_iter().flat_map(converted).chain([Model::new(FMA, Accumulation::Fma)]).collect()
        }
        Family::Half => chains.chain([Model::new(FMA, Accumulation::Fma)]).collect(),
        Family::F32 => vec![
            Model::new(FMA, Accumulation::Fma),
            Model::new("multiply, then add, in ascending k", Accumulation::MultiplyAdd),
            Model::new("pairwise", Accumulation::Pairwise),
        ],
    }
}

/// The models that may explain a product of `k` factors: exact, its arithmetics, and those in
/// parts. What the hints say (`split_k`) comes first.
#[must_use]
pub fn models(gemm: &Gemm, k: usize, architecture: Option<&str>, hints: &Hints) -> Vec<Model> {
    let family = family(gemm);
    let exact = Model { accumulate: None, ..Model::new("exact", Accumulation::Fma) };
    let mut models = vec![exact];
    let arithmetics = arithmetics(gemm, architecture);
    // A library may say a number that stands for something else.
    let hinted: Option<usize> = hints.get("split_k").and_then(|parts| parts.parse().ok());
    let hinted = hinted.filter(|&parts| parts <= k);
    // Of long sums fewer, as each takes its time.
    let most = if k > LONG { MOST_PARTS / 4 } else { MOST_PARTS };
    for parts in hinted.into_iter().chain(1..=most) {
        if parts <= 1 {
            models.extend(arithmetics.iter().flat_map(|model| with_residue_first(model, family)));
            continue;
        }
        for model in &arithmetics {
            models.extend(split(gemm, model, family, parts, k));
        }
    }
    if matches!(family, Family::F32 | Family::Tf32) {
        models.extend(by_lanes());
    }
    let epilogues = epilogues(gemm);
    let with = |model: &Model| {
        epilogues
            .iter()
            .map(|&(epilogue, words)| Model {
                name: format!("{}{words}", model.name),
                epilogue,
                ..model.clone()
            })
            .collect::<Vec<_>>()
    };
    let mut all = Vec::with_capacity(models.len() * epilogues.len());
    for model in &models {
        // The exact sum is rounded once, whatever the epilogue.
        let variants = if model.accumulate.is_none() { vec![model.clone()] } else { with(model) };
        all.extend(variants);
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|model| seen.insert((model.operands, model.accumulate.clone(), model.epilogue)));
    all
}

/// Products from which on fewer parts are tried.
const LONG: usize = 12288;

/// Parts of split-K that are tried.
pub(super) const MOST_PARTS: usize = 36;

/// Buffers that partial sums are added in.
const MOST_BUFFERS: usize = 8;

/// A model, and with tiles of CUTLASS where the rest of K comes first.
fn with_residue_first(model: &Model, family: Family) -> Vec<Model> {
    let tiles: &[usize] = match (family, &model.accumulate) {
        (Family::Tf32, Some(Accumulation::Chain(_))) => &[16, 32],
        (Family::Half | Family::F16, Some(Accumulation::Chain(_))) => &[32, 64, 128],
        _ => &[],
    };
    let residue_first = tiles.iter().filter_map(|&tile| match model.accumulate {
        Some(Accumulation::Chain(block)) => Some(Model {
            name: format!("{}, the rest of tiles of {tile} first", model.name),
            accumulate: Some(Accumulation::ResidueFirst { tile, block }),
            ..model.clone()
        }),
        _ => None,
    });
    [model.clone()].into_iter().chain(residue_first).collect()
}

/// A model in so many parts, where K makes as many.
fn split(gemm: &Gemm, model: &Model, family: Family, parts: usize, k: usize) -> Vec<Model> {
    let mut split = Vec::new();
    let mut add = |name: String, sum: Sum| {
        // Fewer parts make the same ones.
        if sum.split.filled(k) < parts {
            return;
        }
        split.push(Model { name, accumulate: Some(sum.into()), ..model.clone() });
    };
    // CUTLASS cuts K into multiples of an access, nvjet into multiples of a tile.
    let granules: &[usize] = match family {
        Family::Fp8 => &[128],
        Family::F16 | Family::Half => &[64, 8],
        Family::Tf32 | Family::F32 => &[4],
    };
    for each in with_residue_first(model, family) {
        let Some(accumulate) = &each.accumulate else { continue };
        for &granule in granules {
            let sum = Sum::new(Split::Contiguous { parts, granule }, accumulate.clone());
            let name = format!("{}, split-K {parts} by {granule}", each.name);
            if gemm.out.storage_bits == 16 {
                let partials = Sum { partials: gemm.out, ..sum.clone() };
                add(format!("{name}, parts rounded to {}", gemm.out.name), partials);
                add(format!("{name}, added in {}", gemm.out.name), Sum { sums: gemm.out, ..sum.clone() });
            }
            add(name, sum);
        }
    }
    if let (Family::F32, Some(Accumulation::Fma)) = (family, &model.accumulate) {
        let dealt = Sum::new(Split::Interleaved { parts, run: 8 }, Accumulation::Fma);
        let name = format!("{}, tiles of 8 dealt to {parts} parts", model.name);
        for buffers in 1..parts.min(MOST_BUFFERS + 1) {
            let name = format!("{name}, added in {buffers} buffers");
            add(name, Sum { reduce: Reduce::Buffers(buffers), ..dealt.clone() });
        }
        add(name, dealt);
    }
    split
}

/// Matrix-vector kernels: k dealt to lanes.
fn by_lanes() -> Vec<Model> {
    let dealt = |parts, run| Split::Interleaved { parts, run };
    let mut models = Vec::new();
    for (chunk, per_lane) in [(512, 32), (256, 16)] {
        let lane = Sum::new(Split::Every(per_lane), Accumulation::Fma);
        let name = format!("16 lanes, each summed in chunks of {chunk} of K, added in order");
        models.push(Model::new(name, Sum::new(dealt(16, 1), lane.into())));
    }
    for count in [32, 16, 2, 4, 8, 64, 128, 256] {
        let contiguous = Split::Contiguous { parts: count, granule: 1 };
        let runs = [1, 2, 4].map(|run| (format!("{count} lanes by runs of {run}"), dealt(count, run)));
        for (name, split) in [(format!("{count} lanes of contiguous k"), contiguous)].into_iter().chain(runs)
        {
            for (reduce, words) in [(Reduce::Halves, "in halves"), (Reduce::Ascending, "in order")] {
                let sum = Sum { reduce, ..Sum::new(split, Accumulation::Fma) };
                models.push(Model::new(format!("{name}, added {words}"), sum));
            }
        }
    }
    models
}

/// The epilogues that differ for a product, with words for those that are not the usual.
fn epilogues(gemm: &Gemm) -> Vec<(EpilogueOrder, &'static str)> {
    let mut epilogues = vec![(EpilogueOrder::FusedProduct, "")];
    if gemm.reads_c() {
        epilogues.push((EpilogueOrder::FusedAddend, "; fma(beta, c, alpha * sum)"));
        if gemm.beta.0 == 1.0 && gemm.out.storage_bits == 16 {
            epilogues.push((EpilogueOrder::RoundedProduct, "; rounded before c is added"));
        }
    } else if gemm.bias.is_some() {
        epilogues.push((EpilogueOrder::FusedBias, "; fma(alpha, sum, bias)"));
    }
    epilogues
}

#[cfg(test)]
mod tests {
    use super::{Hints, models};
    use plumbline_reference::format::{BF16, E4M3FN, F16, F32};
    use plumbline_reference::ops::gemm::{Compute, Gemm};

    #[test]
    fn no_model_is_there_twice_and_hints_come_first() {
        let tf32 = Gemm { compute: Compute::Tf32, ..Gemm::new(F32, F32, F32) };
        let products =
            [Gemm::new(F16, F16, F16), Gemm::new(BF16, BF16, F32), Gemm::new(E4M3FN, E4M3FN, F32), tf32];
        for gemm in products {
            let all = models(&gemm, 4096, Some("sm_90"), &Hints::new());
            let mut names: Vec<_> = all.iter().map(|model| &model.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len());
            assert!(
                all.iter().all(|model| model.accumulate.as_ref().is_none_or(|order| order.check().is_ok()))
            );
            let hinted =
                models(&gemm, 4096, Some("sm_90"), &Hints::from([("split_k".to_owned(), "7".to_owned())]));
            assert!(hinted[1].name.contains("split-K 7"), "{}", hinted[1].name);
            assert_eq!(hinted.len(), all.len());
            let absurd = Hints::from([("split_k".to_owned(), u32::MAX.to_string())]);
            assert_eq!(models(&gemm, 4096, Some("sm_90"), &absurd), all);
        }
    }
}
