//! From the bits of f32 to codes, and the loop over memory that all steps share.

use super::general::{DOWN, General, GeneralStep, NEAREST_AWAY, NEAREST_EVEN, STOCHASTIC, TOWARD_ZERO, UP};
use super::lanes::{Lanes, Out};
use super::nearest::{F16Step, Nearest, NearestStep};
use super::{Kernel, Simd};
use crate::format::{Format, Policy, Value};
use std::mem::MaybeUninit;

/// What becomes of special values: `[of a positive one, of a negative one]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Codes {
    pub(super) zero: [u32; 2],
    /// Of finite values beyond the largest, and of negative ones where the format has
    /// no sign.
    pub(super) beyond: [u32; 2],
    pub(super) infinite: [u32; 2],
    pub(super) nan: [u32; 2],
}

impl Codes {
    /// As the definition encodes them.
    fn new(format: Format, policy: &Policy) -> Self {
        let encode = |of: fn(bool) -> Value| {
            [false, true].map(|negative| format.encode(of(negative), policy, 0) as u32)
        };
        Self {
            zero: encode(|negative| Value::Finite { negative, significand: 0, exponent: 0 }),
            beyond: encode(|negative| Value::Finite { negative, significand: 1, exponent: i32::MAX }),
            infinite: encode(|negative| Value::Infinite { negative }),
            nan: encode(|negative| Value::Nan { negative }),
        }
    }
}

/// How f32 are encoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To nearest even, no flushes.
    Nearest(Nearest),
    /// By any policy.
    General(General),
}

/// An encoding into codes of `width` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    target: Target,
    policy: Policy,
    width: usize,
    zero: bool,
}

impl Encoder {
    /// With `arithmetic`, a NaN is positive whatever its sign: one that comes from
    /// arithmetic has the sign that the processor happened to give it.
    pub(super) fn new(format: Format, policy: &Policy, arithmetic: bool) -> Self {
        let mut codes = Codes::new(format, policy);
        if arithmetic {
            codes.nan = [codes.nan[0]; 2];
        }
        let target = match Nearest::new(format, policy, &codes) {
            Some(nearest) => Target::Nearest(nearest),
            None => Target::General(General::new(format, policy, &codes)),
        };
        let width = format.storage_bits as usize / 8;
        Self { target, policy: *policy, width, zero: format.subnormals }
    }

    /// Codes of all f32 of `bits`; `random` holds as many u32 where the rounding is
    /// stochastic. With `past` codes are written past the caches.
    pub(super) fn encode(&self, simd: Simd, bits: &[u8], random: &[u8], codes: &mut Out, past: bool) {
        match self.width {
            1 => self.encode_to::<1>(simd, bits, random, codes, past),
            2 => self.encode_to::<2>(simd, bits, random, codes, past),
            _ => self.encode_to::<4>(simd, bits, random, codes, past),
        }
    }

    fn encode_to<const W: usize>(&self, simd: Simd, bits: &[u8], random: &[u8], codes: &mut Out, past: bool) {
        macro_rules! nearest {
            ($SATURATES:literal, $SAME_EXPONENTS:literal, $p:ident) => {{
                let step = NearestStep::<$SATURATES, $SAME_EXPONENTS>($p);
                simd.run(Map::<_, 4, W>::new(step, bits, codes).past(past))
            }};
        }
        match self.target {
            Target::Nearest(p) if p.is_f16 && p.saturates => {
                simd.run(Map::<_, 4, 2>::new(F16Step::<true>(p), bits, codes).past(past));
            }
            Target::Nearest(p) if p.is_f16 => {
                simd.run(Map::<_, 4, 2>::new(F16Step::<false>(p), bits, codes).past(past));
            }
            Target::Nearest(p) => match (p.saturates, p.same_exponents) {
                (true, true) => nearest!(true, true, p),
                (true, false) => nearest!(true, false, p),
                (false, true) => nearest!(false, true, p),
                (false, false) => nearest!(false, false, p),
            },
            Target::General(p) if self.zero => self.general::<W, true>(simd, p, bits, random, codes, past),
            // E8M0 alone has no zero, and codes of one byte.
            Target::General(p) => self.general::<1, false>(simd, p, bits, random, codes, past),
        }
    }

    fn general<const W: usize, const ZERO: bool>(
        &self,
        simd: Simd,
        p: General,
        bits: &[u8],
        random: &[u8],
        codes: &mut Out,
        past: bool,
    ) {
        macro_rules! with {
            ($ROUNDING:ident) => {
                simd.run(Map::<_, 4, W> {
                    second: random,
                    ..Map::new(GeneralStep::<$ROUNDING, ZERO>(p), bits, codes).past(past)
                })
            };
        }
        match self.policy.rounding as u8 {
            NEAREST_EVEN => with!(NEAREST_EVEN),
            TOWARD_ZERO => with!(TOWARD_ZERO),
            UP => with!(UP),
            DOWN => with!(DOWN),
            NEAREST_AWAY => with!(NEAREST_AWAY),
            _ => with!(STOCHASTIC),
        }
    }
}

/// What is done to each lane.
pub(super) trait Step: Copy {
    /// Whether there is a second operand: random bits, a factor.
    const SECOND: bool = false;

    /// The result for one register. `second` is 0 where there is none.
    fn apply<L: Lanes>(&self, l: L, x: L::V, second: L::V) -> L::V;
}

/// A step over memory: numbers of `FROM` bytes become numbers of `TO` bytes.
pub(super) struct Map<'a, S, const FROM: usize, const TO: usize> {
    pub(super) step: S,
    pub(super) x: &'a [u8],
    /// Numbers of four bytes, as many as in `x`.
    pub(super) second: &'a [u8],
    pub(super) y: &'a mut Out,
    /// Whether results are written past the caches.
    pub(super) past: bool,
}

impl<'a, S: Step, const FROM: usize, const TO: usize> Map<'a, S, FROM, TO> {
    pub(super) fn new(step: S, x: &'a [u8], y: &'a mut Out) -> Self {
        Self { step, x, second: &[], y, past: false }
    }

    pub(super) fn past(self, past: bool) -> Self {
        Self { past, ..self }
    }
}

/// Bytes of four of the largest registers.
const QUAD: usize = 256;
/// How far ahead of what is read memory is asked for, where it is large: the processor's own
/// prefetching ends with each page.
const AHEAD: usize = 4096;
/// Bytes that memory gives at once.
const LINE: usize = 64;

impl<S: Step, const FROM: usize, const TO: usize> Kernel for Map<'_, S, FROM, TO> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        // A copy that no store can change: its fields stay in registers.
        let step = self.step;
        let n = self.x.len() / FROM;
        assert_eq!((self.x.len(), self.y.len()), (n * FROM, n * TO));
        assert!(!S::SECOND || self.second.len() == n * 4);
        let quad = 4 * L::N;
        let mut at = 0;
        while n - at >= quad {
            let second = if S::SECOND { &self.second[at * 4..][..quad * 4] } else { &[] };
            let (x, y) = (&self.x[at * FROM..][..quad * FROM], &mut self.y[at * TO..][..quad * TO]);
            if self.past {
                let mut line = 0;
                while line < quad * FROM {
                    l.prefetch(x.as_ptr().wrapping_add(AHEAD + line));
                    line += LINE;
                }
            }
            four_registers::<L, S, FROM, TO>(l, step, x, second, y, self.past);
            at += quad;
        }
        if at == n {
            return;
        }
        // The rest goes through a buffer of full size.
        let (mut x, mut second, mut y) = ([0; QUAD], [0; QUAD], [MaybeUninit::uninit(); QUAD]);
        x[..(n - at) * FROM].copy_from_slice(&self.x[at * FROM..]);
        if S::SECOND {
            second[..(n - at) * 4].copy_from_slice(&self.second[at * 4..]);
        }
        four_registers::<L, S, FROM, TO>(l, step, &x, &second, &mut y, false);
        self.y[at * TO..].copy_from_slice(&y[..(n - at) * TO]);
    }
}

#[inline(always)]
fn four_registers<L: Lanes, S: Step, const FROM: usize, const TO: usize>(
    l: L,
    step: S,
    x: &[u8],
    second: &[u8],
    y: &mut Out,
    past: bool,
) {
    l.store::<TO>(
        [
            one_register::<L, S, FROM>(l, step, x, second, 0),
            one_register::<L, S, FROM>(l, step, x, second, 1),
            one_register::<L, S, FROM>(l, step, x, second, 2),
            one_register::<L, S, FROM>(l, step, x, second, 3),
        ],
        y,
        past,
    );
}

#[inline(always)]
fn one_register<L: Lanes, S: Step, const FROM: usize>(
    l: L,
    step: S,
    x: &[u8],
    second: &[u8],
    i: usize,
) -> L::V {
    let x = l.load::<FROM>(&x[i * L::N * FROM..]);
    let second = if S::SECOND { l.load::<4>(&second[i * L::N * 4..]) } else { l.splat(0) };
    step.apply(l, x, second)
}
