//! Elementwise operations: a source, a scale perhaps, a target.
#![allow(unsafe_code)] // Results are not zeroed before they are written.

use super::lanes::{Lanes, Out};
use super::output::{PAST_FROM, as_out, fence, written};
use super::source::{E4m3ToF16, Source};
use super::target::{Encoder, Map, Step};
use super::{Kernel, Simd};
use crate::format::{E4M3FN, F16, F32, F64, Format, Policy, Rounding};
use rayon::prelude::*;

/// A conversion that has a fast path.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    source: Source,
    /// Bytes of a code.
    from: usize,
    target: Target,
    to: usize,
    stochastic: bool,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    /// Codes of a format.
    Encoded(Encoder),
    /// f32 with canonical NaN, straight from the source.
    Widened,
    /// f16 with canonical NaN, straight from E4M3FN.
    Halves,
    /// f64 with canonical NaN.
    Doubles,
}

/// Factors of the elements: one for each `extent` of them in turn.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Divide by the factor, not multiply.
    pub(crate) divide: bool,
    /// The factors; one alone is that of every element.
    pub(crate) factors: Vec<f32>,
    /// How many elements share a factor.
    pub(crate) extent: usize,
}

impl Conversion {
    /// The cast. `None` where it has no fast path: to f64, and from f64 to f32 or
    /// with stochastic rounding. Other casts from f64 are rounded to odd first,
    /// to f32, which a rounding to 22 bits or fewer does not notice.
    #[must_use]
    pub fn cast(from: Format, to: Format, policy: &Policy) -> Option<Self> {
        Self::encoded(from, to, policy, false)
    }

    /// The cast of f32 that arithmetic gave, whose NaNs have no sign.
    pub(crate) fn scaled(from: Format, to: Format, policy: &Policy) -> Option<Self> {
        Self::encoded(from, to, policy, true)
    }

    /// The decoding. `None` where it has no fast path: from f64 to f32 or f64.
    #[must_use]
    pub fn decode(from: Format, to: Format) -> Option<Self> {
        let target = match to {
            F32 if from != F64 => Target::Widened,
            F64 if from != F64 => Target::Doubles,
            F16 if from == E4M3FN => Target::Halves,
            _ => return Self::cast(from, to, &Policy::IEEE),
        };
        Some(Self { source: Source::new(from), from: bytes(from), target, to: bytes(to), stochastic: false })
    }

    fn encoded(from: Format, to: Format, policy: &Policy, arithmetic: bool) -> Option<Self> {
        let stochastic = policy.rounding == Rounding::Stochastic;
        // Rounding twice is innocent only where the first is to odd with two more bits.
        let once = from != F64 || to.fraction_bits < 22 && !stochastic;
        if to == F64 || !once {
            return None;
        }
        let target = Target::Encoded(Encoder::new(to, policy, arithmetic));
        Some(Self { source: Source::new(from), from: bytes(from), target, to: bytes(to), stochastic })
    }

    /// Converts on this thread: little-endian codes `x` to as many codes `y`.
    /// `random` holds as many u32 for stochastic rounding and is not read otherwise.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn convert(&self, simd: Simd, x: &[u8], random: &[u8], y: &mut [u8]) {
        let job = Job { conversion: self, simd, x, scale: None, random, past: false };
        job.check(y.len());
        // SAFETY: fast paths write whole numbers, and nothing uninitialised.
        job.chunk(0, unsafe { as_out(y) });
    }

    /// The same on rayon's threads; large results are written past the caches.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn convert_parallel(&self, simd: Simd, x: &[u8], random: &[u8], y: &mut [u8]) {
        let job = Job { conversion: self, simd, x, scale: None, random, past: y.len() >= PAST_FROM };
        job.check(y.len());
        // SAFETY: as in `convert`.
        job.parallel(unsafe { as_out(y) });
    }

    /// The same into new memory, scaled if a scale is given.
    pub(crate) fn converted(&self, simd: Simd, x: &[u8], scale: Option<&Scale>, random: &[u8]) -> Vec<u8> {
        let len = x.len() / self.from * self.to;
        let job = Job { conversion: self, simd, x, scale, random, past: len >= PAST_FROM };
        job.check(len);
        // SAFETY: the job writes every element of its chunks, which cover the memory.
        unsafe { written(len, |y| job.parallel(y)) }
    }
}

fn bytes(format: Format) -> usize {
    format.storage_bits as usize / 8
}

/// Elements of one task: enough to hide its cost, few enough to spread.
const CHUNK: usize = 1 << 15;
/// Elements that pass through all stages before the next ones: their buffers stay in
/// the first-level cache.
const BLOCK: usize = 1 << 10;

/// A buffer between stages.
type Buffer = [u8; BLOCK * 4];

#[derive(Clone, Copy)]
struct Job<'a> {
    conversion: &'a Conversion,
    simd: Simd,
    x: &'a [u8],
    scale: Option<&'a Scale>,
    random: &'a [u8],
    /// Whether the result is written past the caches.
    past: bool,
}

impl Job<'_> {
    fn check(&self, y: usize) {
        let Conversion { from, to, stochastic, .. } = *self.conversion;
        let n = self.x.len() / from;
        assert_eq!((n * from, n * to), (self.x.len(), y), "input and output have different lengths");
        assert!(!stochastic || self.random.len() == n * 4, "one u32 of random bits for each element");
    }

    fn parallel(&self, y: &mut Out) {
        let bytes = CHUNK * self.conversion.to;
        if y.len() <= bytes {
            return self.chunk(0, y);
        }
        y.par_chunks_mut(bytes).enumerate().for_each(|(i, y)| self.chunk(i * CHUNK, y));
    }

    /// The elements from `start` on, as many as `y` holds.
    fn chunk(&self, start: usize, y: &mut Out) {
        if !self.past {
            return self.piece(start, y);
        }
        // Only what begins at a multiple of 64 bytes is written past the caches.
        let to = self.conversion.to;
        let (head, rest) = y.split_at_mut((y.as_ptr().align_offset(64) / to * to).min(y.len()));
        self.piece(start, head);
        self.piece(start + head.len() / to, rest);
        fence(self.simd);
    }

    fn piece(&self, start: usize, y: &mut Out) {
        let Conversion { source, from, target, to, .. } = self.conversion;
        let n = y.len() / to;
        let x = &self.x[start * from..][..n * from];
        match (source, target) {
            (_, Target::Halves) => self.simd.run(Map::<_, 1, 2>::new(E4m3ToF16, x, y).past(self.past)),
            (Source::Bits, Target::Encoded(encoder)) if self.scale.is_none() => {
                encoder.encode(self.simd, x, self.random(start, n), y, self.past);
            }
            (source, Target::Widened) if self.scale.is_none() => {
                source.widen_canonical(self.simd, *from, x, y, self.past);
            }
            _ => self.blocks(start, x, y),
        }
    }

    /// Random bits of the elements, where there are any.
    fn random(&self, start: usize, n: usize) -> &[u8] {
        if self.conversion.stochastic { &self.random[start * 4..][..n * 4] } else { &[] }
    }

    fn blocks(&self, start: usize, x: &[u8], y: &mut Out) {
        let Conversion { from, to, .. } = *self.conversion;
        let n = y.len() / to;
        let mut stages = Stages::default();
        if let Some(Scale { factors, .. }) = self.scale
            && let [factor] = factors[..]
        {
            fill(&mut stages.factors, factor);
        }
        let mut at = 0;
        while at < n {
            let end = (at + BLOCK).min(n);
            let (x, y) = (&x[at * from..end * from], &mut y[at * to..end * to]);
            self.block(start + at, x, &mut stages, y);
            at = end;
        }
    }

    /// Up to `BLOCK` elements through all stages.
    fn block(&self, start: usize, x: &[u8], stages: &mut Stages, y: &mut Out) {
        let Conversion { source, from, target, .. } = self.conversion;
        let (simd, n) = (self.simd, x.len() / from);
        let bits = match source {
            Source::Bits => x,
            _ => {
                // SAFETY: as in `convert`.
                source.widen(simd, *from, x, unsafe { as_out(&mut stages.widened[..n * 4]) });
                &stages.widened[..n * 4]
            }
        };
        let bits = match self.scale {
            None => bits,
            Some(scale) => {
                if scale.factors.len() > 1 {
                    scale.fill(start, &mut stages.factors[..n * 4]);
                }
                let factors = &stages.factors[..n * 4];
                // SAFETY: as in `convert`.
                let scaled = unsafe { as_out(&mut stages.scaled[..n * 4]) };
                if scale.divide {
                    simd.run(Map::<_, 4, 4> { second: factors, ..Map::new(Divide, bits, scaled) });
                } else {
                    simd.run(Map::<_, 4, 4> { second: factors, ..Map::new(Multiply, bits, scaled) });
                }
                &stages.scaled[..n * 4]
            }
        };
        match target {
            Target::Encoded(encoder) => encoder.encode(simd, bits, self.random(start, n), y, self.past),
            Target::Widened => Source::Bits.widen_canonical(simd, 4, bits, y, self.past),
            Target::Halves => unreachable!("codes become f16 in one step"),
            Target::Doubles => simd.run(ToDoubles { bits, doubles: y }),
        }
    }
}

/// Buffers between the stages of a block.
struct Stages {
    widened: Buffer,
    factors: Buffer,
    scaled: Buffer,
}

impl Default for Stages {
    fn default() -> Self {
        Self { widened: [0; BLOCK * 4], factors: [0; BLOCK * 4], scaled: [0; BLOCK * 4] }
    }
}

impl Scale {
    /// The factor of each element from `start` on.
    fn fill(&self, start: usize, factors: &mut [u8]) {
        let (mut at, n) = (0, factors.len() / 4);
        while at < n {
            let group = (start + at) / self.extent;
            let end = n.min((group + 1) * self.extent - start);
            fill(&mut factors[at * 4..end * 4], self.factors[group]);
            at = end;
        }
    }
}

fn fill(memory: &mut [u8], factor: f32) {
    memory.as_chunks_mut::<4>().0.fill(factor.to_le_bytes());
}

#[derive(Clone, Copy)]
struct Multiply;

impl Step for Multiply {
    const SECOND: bool = true;

    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, factor: L::V) -> L::V {
        l.fmul(x, factor)
    }
}

#[derive(Clone, Copy)]
struct Divide;

impl Step for Divide {
    const SECOND: bool = true;

    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::V, divisor: L::V) -> L::V {
        l.fdiv(x, divisor)
    }
}

/// f32 to f64, NaN canonical.
struct ToDoubles<'a> {
    bits: &'a [u8],
    doubles: &'a mut Out,
}

impl Kernel for ToDoubles<'_> {
    type Output = ();

    // A plain loop: the compiler vectorises it for the instruction set.
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        for (bits, slot) in self.bits.as_chunks::<4>().0.iter().zip(self.doubles.as_chunks_mut::<8>().0) {
            let x = f64::from(f32::from_le_bytes(*bits));
            let bits = if x.is_nan() { u64::MAX >> 1 } else { x.to_bits() };
            slot.write_copy_of_slice(&bits.to_le_bytes());
        }
    }
}
