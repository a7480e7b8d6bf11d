//! The strategy over whole samples: parameters, then a shape, then bits.

use super::bits::{Pool, Random, rounding_word, scale};
use super::operation::Kind;
use super::sample::{Parts, Sample};
use super::shape::shapes;
use super::shrink::Shrinking;
use super::target::Scope;
use super::{blocks, layers, mx, product, quantize};
use crate::generate::GenerateError;
use crate::generate::unit;
use crate::seed::{hash, mix};
use plumbline_reference::format::Format;
use plumbline_reference::ops::Op;
use proptest::prelude::*;
use proptest::strategy::{NewTree, ValueTree};
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// Samples of one target.
pub(super) struct Samples<'a> {
    scope: &'a Scope,
    any: BoxedStrategy<Op>,
    seed: u64,
    pools: RefCell<HashMap<Formats, Rc<Pool>>>,
}

type Formats = (&'static str, Option<&'static str>);

impl<'a> Samples<'a> {
    /// The pools that bits are drawn from depend on the seed.
    pub(super) fn new(scope: &'a Scope, kind: Kind, seed: u64) -> Self {
        Self { scope, any: (kind.any)(), seed, pools: RefCell::default() }
    }

    fn pool(&self, from: Format, to: Option<Format>) -> Rc<Pool> {
        let key = (from.name, to.map(|to| to.name));
        let make = || {
            let seed = mix(self.seed ^ hash(from.name), hash(key.1.unwrap_or_default()));
            Rc::new(Pool::new(from, to, seed))
        };
        self.pools.borrow_mut().entry(key).or_insert_with(make).clone()
    }

    /// Any parameters that the target does; where it does not do those drawn, some of
    /// the simple ones.
    fn operation(&self, runner: &mut TestRunner) -> Result<Op, proptest::test_runner::Reason> {
        let op = self.any.new_tree(runner)?.current();
        if self.scope.allows(&op) {
            return Ok(op);
        }
        let simple = &self.scope.simple;
        Ok(simple[(0..simple.len()).new_tree(runner)?.current()].clone())
    }

    fn fill(&self, op: Op, shape: Vec<usize>, pattern: Pattern, seed: u64) -> Result<Sample, GenerateError> {
        if product::inputs(&op).is_some() {
            let codes = product::fill(&op, &shape, seed);
            return Ok(Sample { op, shape, codes });
        }
        if mx::inputs(&op).is_some() {
            let codes = mx::fill(&op, &shape, seed);
            return Ok(Sample { op, shape, codes });
        }
        if let Some(format) = quantize::format(&op) {
            let codes = vec![quantize::fill(format, shape.iter().product(), seed)];
            return Ok(Sample { op, shape, codes });
        }
        if blocks::is_of_blocks(&op) {
            let codes = blocks::fill(&op, &shape, seed)?;
            return Ok(Sample { op, shape, codes });
        }
        if layers::is_of_layers(&op) {
            let codes = layers::fill(&op, &shape, seed);
            return Ok(Sample { op, shape, codes });
        }
        let parts = Parts::of(&op);
        let mut random = Random::new(seed);
        let count = if parts.from.is_some() { shape.iter().product() } else { 0 };
        let groups = parts.groups(&shape);
        let scales: Vec<_> =
            (0..if parts.scaled { groups } else { 0 }).map(|_| scale(&mut random, parts.to)).collect();
        let units: Vec<_> = scales.iter().map(|&scale| unit(&op, f32::from_bits(scale as u32))).collect();
        let x = parts.from.map_or_else(Vec::new, |from| {
            let (pool, extent) = (self.pool(from, parts.to), count.checked_div(groups).unwrap_or(0));
            elements(&mut random, &pool, pattern, count, |i| {
                units.get(i.checked_div(extent)?).copied().flatten()
            })
        });
        let words = (0..if parts.stochastic { count } else { 0 }).map(|_| rounding_word(&mut random));
        let is_there = [parts.from.is_some(), parts.scaled, parts.stochastic];
        let codes = [x, scales, words.collect()].into_iter().zip(is_there);
        let codes = codes.filter_map(|(codes, is_there)| is_there.then_some(codes)).collect();
        Ok(Sample { op, shape, codes })
    }
}

/// How the elements of a tensor go together.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Each by itself.
    Anything,
    /// No NaN and no infinity, which would decide every maximum.
    Numbers,
    /// One element, at the end of a vector or block of threads or next to it; the
    /// others are alike.
    Needle,
}

fn patterns() -> impl Strategy<Value = Pattern> {
    prop_oneof![3 => Just(Pattern::Anything), 1 => Just(Pattern::Numbers), 2 => Just(Pattern::Needle)]
}

fn elements(
    random: &mut Random,
    pool: &Pool,
    pattern: Pattern,
    count: usize,
    unit: impl Fn(usize) -> Option<f64>,
) -> Vec<u64> {
    match pattern {
        Pattern::Anything => (0..count).map(|i| pool.element(random, unit(i))).collect(),
        Pattern::Numbers => (0..count).map(|i| pool.finite(pool.element(random, unit(i)))).collect(),
        Pattern::Needle => {
            let like = if random.below(2) == 0 { 0 } else { pool.finite(pool.element(random, unit(0))) };
            let mut elements = vec![like; count];
            if count > 0 {
                let at = needle_position(random, count);
                elements[at] = pool.element(random, unit(at));
            }
            elements
        }
    }
}

/// First, last, at a multiple of a power of two or just before it, or anywhere.
fn needle_position(random: &mut Random, count: usize) -> usize {
    let last = count - 1;
    let anywhere = random.below(count);
    let power = 1usize << random.below(15);
    match random.below(5) {
        0 => 0,
        1 => last,
        2 => anywhere / power * power,
        3 => (anywhere / power * power).saturating_sub(1),
        _ => anywhere,
    }
}

impl fmt::Debug for Samples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl<'a> Strategy for Samples<'a> {
    type Tree = Shrinking<'a>;
    type Value = Sample;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let op = self.operation(runner)?;
        let shapes = match product::inputs(&op) {
            Some(_) => product::shapes(&op),
            None if blocks::is_of_blocks(&op) => blocks::shapes(&op),
            None if layers::is_of_layers(&op) => layers::shapes(&op),
            None => shapes(Parts::of(&op).granularity),
        };
        let shape = shapes.new_tree(runner)?.current();
        let pattern = patterns().new_tree(runner)?.current();
        let seed = any::<u64>().new_tree(runner)?.current();
        let sample = self.fill(op, shape, pattern, seed).map_err(|error| error.to_string())?;
        Ok(Shrinking::new(self.scope, sample))
    }
}
