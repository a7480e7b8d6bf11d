//! Trees by name: the orders of accumulation that have a given tree.

use super::tree::{Key, Tree};
use plumbline_reference::accumulate::{Accumulation, Block, Reduce, Split, Sum};
use plumbline_reference::format::F32;

/// Chunks of up to so many products are called promotion, longer ones split-K. At one K the
/// two are the same order.
const PROMOTION: usize = 128;

/// Every order of accumulation with that tree that is worth a name, the plainest first.
/// Blocks are of the kind given. Fused and rounded products have the same tree: only bits
/// tell them apart.
#[must_use]
pub fn recognise(tree: &Tree, block: Option<Block>) -> Vec<Accumulation> {
    let len = tree.leaves();
    if len < 2 {
        // A product by itself.
        return vec![Accumulation::MultiplyAdd];
    }
    let blocks = block.into_iter().flat_map(|block| {
        let tiles = [16, 32, 64, 128].map(|tile| Accumulation::ResidueFirst { tile, block });
        [Accumulation::Chain(block), Accumulation::HalvesThenAdd(block)].into_iter().chain(tiles)
    });
    let mut is_found = false;
    let plain: Vec<_> = [Accumulation::Fma, Accumulation::MultiplyAdd, Accumulation::Pairwise]
        .into_iter()
        .chain(blocks)
        .filter(|accumulation| {
            // Where K is whole tiles, a chain is that chain.
            let is_same_chain = is_found && matches!(accumulation, Accumulation::ResidueFirst { .. });
            let fits = !is_same_chain && Tree::of(accumulation, len) == *tree;
            is_found |= fits;
            fits
        })
        .collect();
    if !plain.is_empty() {
        return plain;
    }
    let sums = tree.sums();
    let mut found = Vec::new();
    for (first, products) in tree.parts_of_first() {
        let Some(split) = split(&products, len) else { continue };
        let is_whole = |part: &Vec<usize>| part.is_empty() || sums.contains(&Key::of(part));
        if !split.of(len).iter().all(is_whole) {
            continue;
        }
        for each in recognise(&tree.part(first), block) {
            // Lanes of lanes are lanes.
            if is_dealt(split) && matches!(&each, Accumulation::Sum(sum) if is_dealt(sum.split)) {
                continue;
            }
            let plain = [Reduce::Ascending, Reduce::Neighbours, Reduce::Halves, Reduce::Descending];
            let reduces = plain.into_iter().chain((1..=8).map(Reduce::Buffers));
            let of = |reduce| Sum { reduce, ..Sum::new(split, each.clone()) }.into();
            found.extend(reduces.map(of).find(|sum| Tree::of(sum, len) == *tree));
        }
    }
    // Stable: among equally deep ones, those of short parts stay first.
    found.sort_by_key(depth);
    let least = found.first().map_or(0, depth);
    found.retain(|accumulation| depth(accumulation) <= least + 1);
    found
}

fn is_dealt(split: Split) -> bool {
    matches!(split, Split::Interleaved { .. })
}

fn depth(accumulation: &Accumulation) -> usize {
    match accumulation {
        Accumulation::Sum(sum) => 1 + depth(&sum.each),
        _ => 0,
    }
}

/// The split of `len` products whose first part these are.
fn split(first: &[usize], len: usize) -> Option<Split> {
    let gap = first.windows(2).position(|pair| pair[1] != pair[0] + 1);
    let Some(gap) = gap else {
        let chunk = first.len();
        if chunk <= PROMOTION {
            return Some(Split::Every(chunk));
        }
        let parts = len.div_ceil(chunk);
        let fits = |&granule: &usize| len.div_ceil(granule).div_ceil(parts) * granule == chunk;
        let granule = [64, 128, 32, 16, 8].into_iter().find(fits).unwrap_or(chunk);
        return Some(Split::Contiguous { parts, granule });
    };
    let run = gap + 1;
    let period = first[run];
    let split = Split::Interleaved { parts: period / run, run };
    let same =
        period.is_multiple_of(run) && (0..len).filter(|&k| split.part(k, len) == 0).eq(first.iter().copied());
    same.then_some(split)
}

/// What an order does, in words.
#[must_use]
pub fn describe(accumulation: &Accumulation, len: usize) -> String {
    let block = |block: &Block| {
        let named = Block::NAMED.iter().find(|(_, named)| named == block);
        let name = named.map_or(String::new(), |(name, _)| format!(" ({name})"));
        format!("{} products{name}", block.products)
    };
    match accumulation {
        Accumulation::Fma => "one ascending chain of fused multiply-adds".to_owned(),
        Accumulation::MultiplyAdd if len == 1 => "a rounded product".to_owned(),
        Accumulation::MultiplyAdd => "one ascending chain of rounded products".to_owned(),
        Accumulation::Pairwise => "halves of halves (pairwise)".to_owned(),
        Accumulation::Chain(own) => format!("one chain of blocks of {}", block(own)),
        Accumulation::ResidueFirst { tile, block: own } => {
            format!("one chain of blocks of {}, the rest of tiles of {tile} first", block(own))
        }
        Accumulation::HalvesThenAdd(own) => {
            format!("two chained blocks of {} for every 32 products, each pair added in f32", block(own))
        }
        Accumulation::Sum(sum) => {
            let lengths: Vec<_> = sum.split.of(len).iter().map(Vec::len).filter(|&len| len > 0).collect();
            let first = lengths.first().copied().unwrap_or(0);
            let split = match sum.split {
                Split::Contiguous { .. } => format!("{} contiguous parts of {first}", lengths.len()),
                Split::Every(1) => "every product by itself".to_owned(),
                Split::Every(n) => {
                    format!("a fresh sum every {n} ({} contiguous parts)", len.div_ceil(n))
                }
                Split::Interleaved { parts, run } => format!("k dealt in runs of {run} to {parts} lanes"),
            };
            let reduce = match sum.reduce {
                Reduce::Ascending => "ascending".to_owned(),
                Reduce::Descending => "descending".to_owned(),
                Reduce::Neighbours => "as neighbours".to_owned(),
                Reduce::Halves => "by halves".to_owned(),
                Reduce::Buffers(count) => format!("in {count} buffers"),
            };
            let partials = if sum.partials == F32 { String::new() } else { format!(" in {}", sum.partials) };
            format!("{split}, each {}, added {reduce}{partials}", describe(&sum.each, first))
        }
    }
}
