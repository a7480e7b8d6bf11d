//! What a fused block does with its terms.
//!
//! Every question is a short list of products, put where one block adds them, and the
//! outputs that each hypothesis expects. Products of the block that a question does not name,
//! and all other blocks, are zero. The large terms of a question cancel, so that what is left
//! of the small ones shows. Sources: arXiv:2511.10909, arXiv:2512.07004.

use super::ProbeError;
use super::target::{Dot, Target, exponents, nearest, power};
use super::tree::Blocks;
use plumbline_reference::accumulate::{Block, BlockOutput};
use plumbline_reference::format::{F16, F32, Format};
use serde::Serialize;

/// What a question revealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// What was asked.
    pub question: &'static str,
    /// What was seen.
    pub answer: String,
}

/// What was found about a block.
#[derive(Clone, Debug, Serialize)]
pub struct BlockFindings {
    /// Every question with its answer, in the order in which they were asked.
    pub answers: Vec<Answer>,
    /// The block with these properties.
    pub block: Option<Block>,
    /// What of the block no question could show with these operands: it is that of the named
    /// block most like it.
    pub assumed: Vec<&'static str>,
}

/// The positions that questions use.
struct Asker<'a> {
    target: &'a Target<'a>,
    blocks: &'a Blocks,
    formats: [Format; 2],
    /// Exponent of the large terms.
    large: i32,
    answers: Vec<Answer>,
}

/// The factors of a product.
type Factors = (f64, f64);
/// Products to be placed in one block.
type Terms = Vec<Factors>;

/// Places terms at products of blocks; `None` where there are too few.
fn place(blocks: &[(&[Factors], &[usize])]) -> Option<Dot> {
    let fits = blocks.iter().all(|(terms, slots)| terms.len() <= slots.len());
    let placed = blocks.iter().flat_map(|(terms, slots)| terms.iter().zip(*slots));
    fits.then(|| Dot { terms: placed.map(|(&(a, b), &k)| (k, a, b)).collect(), c: 0.0 })
}

/// How the sum of a block is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kept {
    bits: u32,
    nearest: bool,
}

/// The widest alignment that is looked for.
const WIDEST: i32 = 40;

/// Asks about the blocks of a chain.
pub(super) fn ask(target: &Target<'_>, blocks: &Blocks) -> Result<BlockFindings, ProbeError> {
    let formats = target.factors();
    let highest = formats.map(|format| exponents(format).0);
    let room = if target.gemm().out == F16 { 12 } else { 60 };
    let large = (highest[0] + highest[1] - 1).min(room);
    // The first block may be the rest of a tile, and so may the last.
    let lengths = [Some(&blocks.first), blocks.next.as_ref(), Some(&blocks.last)];
    let products = lengths.into_iter().flatten().map(Vec::len).max().unwrap_or(0);
    let mut asker = Asker { target, blocks, formats, large, answers: Vec::new() };
    let is_whole = products == target.extents().k;
    let shown = if is_whole { format!("at least {products}") } else { products.to_string() };
    asker.note("products of a block (L)", shown);
    let Some(fraction_bits) = asker.fraction_bits()? else {
        let (answers, block) = (asker.answers, None);
        return Ok(BlockFindings { answers, block, assumed: vec![] });
    };
    asker.alignment(fraction_bits)?;
    asker.products(fraction_bits)?;
    let kept = asker.kept(fraction_bits)?;
    let min_exponent = match kept {
        Some(kept) => asker.min_exponent(fraction_bits, kept)?,
        None => None,
    };
    asker.late_c(fraction_bits)?;

    let is_f16 = kept.is_some_and(|kept| kept == Kept { bits: 10, nearest: true });
    let output = match kept {
        Some(Kept { bits: 23, nearest: true }) => Some(BlockOutput::NearestF32),
        Some(_) if is_f16 => Some(BlockOutput::NearestF16),
        Some(Kept { bits, nearest: false }) => Some(BlockOutput::Truncate(bits)),
        _ => None,
    };
    let mut assumed = Vec::new();
    let output = output.unwrap_or_else(|| {
        assumed.push("output");
        BlockOutput::Truncate(23)
    });
    let (products, fraction_bits) = (products as u32, fraction_bits as u32);
    let min_exponent = min_exponent.unwrap_or_else(|| {
        assumed.push("min_exponent");
        let of = |block: &Block| (block.products, block.fraction_bits, block.output);
        let mut named = Block::NAMED.iter().map(|(_, block)| block);
        let alike = named.find(|block| of(block) == (products, fraction_bits, output));
        alike.map_or(if is_f16 { -21 } else { -133 }, |block| block.min_exponent)
    });
    let block = Some(Block { products, fraction_bits, min_exponent, output });
    Ok(BlockFindings { answers: asker.answers, block, assumed })
}

impl Asker<'_> {
    fn note(&mut self, question: &'static str, answer: String) {
        self.answers.push(Answer { question, answer });
    }

    /// The factors of `2^exponent`, both normal where that is possible.
    fn factors(&self, exponent: i32) -> Option<Factors> {
        let [(high_a, normal_a, low_a), (high_b, normal_b, low_b)] = self.formats.map(exponents);
        let within = |low_a: i32, low_b: i32| {
            let near = exponent.div_euclid(2);
            let a = near.max(low_a).min(high_a);
            let b = (exponent - a).max(low_b).min(high_b);
            let a = exponent - b;
            (low_a..=high_a).contains(&a).then(|| (power(a), power(b)))
        };
        within(normal_a, normal_b).or_else(|| within(low_a, low_b))
    }

    /// Products as sums of signed powers of two; `None` where the formats cannot hold one.
    fn powers(&self, terms: &[(f64, i32)]) -> Option<Terms> {
        terms.iter().map(|&(factor, exponent)| self.term(factor, 1.0, exponent)).collect()
    }

    /// `a * b * 2^exponent` with a and b below 2.
    fn term(&self, a: f64, b: f64, exponent: i32) -> Option<Factors> {
        let (own_a, own_b) = self.factors(exponent)?;
        let term = (own_a * a, own_b * b);
        let holds = |format: Format, value| format.to_f64(nearest(format, value)) == value;
        (holds(self.formats[0], term.0) && holds(self.formats[1], term.1)).then_some(term)
    }

    /// Places terms in the first block.
    fn dot(&self, terms: &[Factors]) -> Option<Dot> {
        place(&[(terms, &self.blocks.first)])
    }

    /// Asks a question of which each hypothesis expects other outputs; that of the answer.
    fn question<T: Copy>(
        &mut self,
        question: &'static str,
        dots: Option<Vec<Dot>>,
        hypotheses: &[(&[f64], &str, T)],
    ) -> Result<Option<T>, ProbeError> {
        let Some(dots) = dots else {
            self.note(question, "not asked: the formats have no such values".to_owned());
            return Ok(None);
        };
        let outputs = self.target.dots(&dots)?;
        let found = hypotheses.iter().find(|(expected, ..)| *expected == outputs);
        let answer = found.map_or_else(|| format!("none of those known: {outputs:?}"), |it| it.1.to_owned());
        self.note(question, answer);
        Ok(found.map(|it| it.2))
    }

    /// The least power of two below the large terms that is kept beside them.
    fn fraction_bits(&mut self) -> Result<Option<i32>, ProbeError> {
        let question = "fraction bits kept when terms are aligned (F)";
        let e = self.large;
        let dots = (1..=WIDEST).map_while(|f| {
            let terms = self.powers(&[(1.0, e), (-1.0, e), (1.0, e - f)])?;
            self.shows(e - f).then(|| self.dot(&terms)).flatten()
        });
        let dots: Vec<_> = dots.collect();
        let values = self.target.dots(&dots)?;
        let kept = values.iter().take_while(|&&value| value > 0.0).count();
        if kept == dots.len() {
            self.note(question, format!("at least {kept}"));
            return Ok(None);
        }
        self.note(question, kept.to_string());
        Ok(Some(kept as i32))
    }

    /// Whether the output can show `2^exponent`.
    fn shows(&self, exponent: i32) -> bool {
        exponent >= exponents(self.target.gemm().out).2
    }

    fn alignment(&mut self, bits: i32) -> Result<(), ProbeError> {
        let e = self.large;
        let last = power(e - bits);
        let dots = [1.5, -1.5]
            .iter()
            .map(|&small| self.dot(&self.powers(&[(1.0, e), (-1.0, e), (small, e - bits - 1)])?))
            .collect();
        let dots = if self.shows(e - bits) { dots } else { None };
        self.question(
            "terms are cut when aligned",
            dots,
            &[
                (&[0.0, 0.0], "toward zero", ()),
                (&[0.0, -last], "down", ()),
                (&[last, -last], "to nearest", ()),
                (&[last, 0.0], "up", ()),
            ],
        )?;
        Ok(())
    }

    /// What exponent a product has.
    fn products(&mut self, bits: i32) -> Result<(), ProbeError> {
        let e = self.large - 1;
        let last = power(e - bits);
        let dot = self.powers(&[(1.0, e - bits)]).and_then(|small| {
            let terms = [self.term(1.5, 1.5, e)?, self.term(-1.5, 1.5, e)?, small[0]];
            self.dot(&terms).filter(|_| self.shows(e - bits))
        });
        let own = "the sum of its factors' exponents (not renormalised)";
        self.question(
            "exponent of a product",
            dot.map(|dot| vec![dot]),
            &[(&[last], own, ()), (&[0.0], "that of its value (renormalised)", ())],
        )?;

        // Factors of a with the least exponent, and the largest of b: aligned by their
        // exponent, not by their value, they push out two terms just below.
        let [(_, normal, least), (high, ..)] = self.formats.map(exponents);
        let pushed = normal + high - bits - 1;
        let pair = |others: &[Factors]| {
            let small = self.powers(&[(1.0, pushed), (1.0, pushed)])?;
            let terms: Vec<_> = others.iter().copied().chain(small).collect();
            Some(vec![self.dot(&terms).filter(|_| self.shows(pushed + 1))?])
        };
        let small = (power(least), power(high));
        let subnormal = pair(&[small, (-small.0, small.1)]);
        let zero = pair(&[(0.0, power(high))]);
        let both = power(pushed + 1);
        self.question(
            "exponent of a subnormal factor",
            subnormal,
            &[
                (&[0.0], "that of the least normal number (not normalised)", ()),
                (&[both], "that of its value (normalised)", ()),
            ],
        )?;
        self.question(
            "products that are zero",
            zero,
            &[
                (&[both], "do not count in the largest exponent", ()),
                (&[0.0], "count in the largest exponent", ()),
            ],
        )?;
        Ok(())
    }

    /// How the block's sum is encoded. The large terms sum to 4.5 * 2^e, which makes two
    /// more bits of alignment visible. They are taken away again in the next block; if the
    /// output is an f32, it shows the sum itself, that of the last block, as a further one
    /// would align it once more.
    fn kept(&mut self, bits: i32) -> Result<Option<Kept>, ProbeError> {
        let question = "the sum of a block";
        let e = self.large - 2;
        let direct = self.target.gemm().out == F32;
        let base = |sign: f64| -> Option<Terms> {
            Some(vec![self.term(1.5 * sign, 1.5, e)?, self.term(1.5 * sign, 1.5, e)?])
        };
        let with = |sign: f64, small: &[i32]| -> Option<Dot> {
            let small: Vec<_> = small.iter().map(|&q| (sign, e + 2 - q)).collect();
            let terms: Vec<_> = base(sign)?.into_iter().chain(self.powers(&small)?).collect();
            if direct {
                return place(&[(&terms, &self.blocks.last)]);
            }
            place(&[(&terms, &self.blocks.first), (&base(-sign)?, self.blocks.next.as_ref()?)])
        };
        let over = |value: f64, sign: f64| if direct { value - sign * 4.5 * power(e) } else { value };
        let reach = bits + 2;
        let dots: Option<Vec<_>> = (4..=reach).map(|q| with(1.0, &[q])).collect();
        let Some(dots) = dots else {
            self.note(question, "not asked: there is no next block to read it from".to_owned());
            return Ok(None);
        };
        let values = self.target.dots(&dots)?;
        let kept = 3 + values.iter().take_while(|&&value| over(value, 1.0) > 0.0).count() as i32;
        // Three quarters of the last bit, of both signs, then ties at an even and an odd one.
        let (quarter, half) = (kept + 2, kept + 1);
        let dots = [
            with(1.0, &[half, quarter]),
            with(-1.0, &[half, quarter]),
            with(1.0, &[half]),
            with(1.0, &[kept, half]),
        ];
        let dots: Option<Vec<_>> = dots.into_iter().collect();
        let (Some(dots), true) = (dots, quarter <= reach) else {
            self.note(question, format!("keeps at least {kept} fraction bits"));
            return Ok(None);
        };
        let last = power(e + 2 - kept);
        let signs = [1.0, -1.0, 1.0, 1.0];
        let values: Vec<_> =
            self.target.dots(&dots)?.into_iter().zip(signs).map(|(y, sign)| over(y, sign) / last).collect();
        let (rounding, nearest) = match values[..] {
            [0.0, 0.0, 0.0, 1.0] => ("cut toward zero", Some(false)),
            [1.0, -1.0, 0.0, 2.0] => ("rounded to nearest even", Some(true)),
            [1.0, -1.0, 1.0, 2.0] => ("rounded to nearest, ties away from zero", None),
            [0.0, -1.0, 0.0, 1.0] => ("rounded down", None),
            [1.0, 0.0, 1.0, 2.0] => ("rounded up", None),
            _ => ("rounded in an unknown way", None),
        };
        self.note(question, format!("{rounding} to {kept} fraction bits"));
        Ok(nearest.map(|nearest| Kept { bits: kept as u32, nearest }))
    }

    /// The least exponent of alignment: where smaller terms vanish although no larger term is
    /// there. They show only if they make up the output's smallest number.
    fn min_exponent(&mut self, bits: i32, kept: Kept) -> Result<Option<i32>, ProbeError> {
        let question = "least exponent of alignment (e0)";
        let out = self.target.gemm().out;
        let holds_accumulator = if kept.bits == 10 { out == F16 } else { out == F32 && kept.bits == 23 };
        let shown = exponents(out).2;
        let dots = (2..=WIDEST).map_while(|below| {
            let last = shown - below;
            let terms = if kept.nearest {
                // Above a tie, or on it.
                self.powers(&[(1.0, shown - 1), (1.0, last)])?
            } else {
                // 2^shown in pieces, the last ones of 2^last.
                let significand = 1 + self.formats[0].fraction_bits as i32;
                let bits = (below - 1).min(significand);
                let copies = 1usize.checked_shl((below - bits) as u32)?;
                let body = self.term(2.0 - power(1 - bits), 1.0, shown - 1)?;
                let small = self.powers(&[(1.0, last)])?[0];
                [body].into_iter().chain(std::iter::repeat_n(small, copies)).collect()
            };
            self.dot(&terms)
        });
        let dots: Vec<_> = if holds_accumulator { dots.collect() } else { vec![] };
        let values = self.target.dots(&dots)?;
        let seen = values.iter().take_while(|&&value| value > 0.0).count();
        if seen == 0 || seen == dots.len() {
            self.note(question, "not asked: products and outputs are not that small".to_owned());
            return Ok(None);
        }
        let exponent = shown - 1 - seen as i32 + bits;
        if exponent == shown - 1 {
            self.note(question, format!("below {exponent}, if there is one"));
            return Ok(None);
        }
        self.note(question, exponent.to_string());
        Ok(Some(exponent))
    }

    /// Whether c is one of the terms: then products just below its last bit are cut.
    fn late_c(&mut self, bits: i32) -> Result<(), ProbeError> {
        let gemm = self.target.gemm();
        if !gemm.reads_c() || gemm.beta.0 != 1.0 || gemm.out != F32 {
            return Ok(());
        }
        let copies = self.blocks.first.len().min(8);
        let small = vec![(1.0, -bits - 1); copies];
        let late = 1.0 + copies as f64 * power(-bits - 1);
        let dot = self.powers(&small).and_then(|terms| self.dot(&terms));
        let dot = dot.filter(|_| f64::from(late as f32) == late && late > 1.0);
        self.question(
            "c",
            dot.map(|dot| vec![Dot { c: 1.0, ..dot }]),
            &[(&[1.0], "is a term of the first block", ()), (&[late], "is added to the sum", ())],
        )?;
        Ok(())
    }
}
