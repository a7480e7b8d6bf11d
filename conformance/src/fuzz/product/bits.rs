//! Bits of a product's inputs.

use super::super::bits::{Random, scale};
use super::inputs;
use plumbline_reference::format::{Format, Policy, Value};
use plumbline_reference::ops::Op;

/// What the elements of an input are like.
#[derive(Clone, Copy, Debug)]
enum Like {
    /// Any bits.
    Anything,
    /// Within 2^4 of 1.
    Moderate,
    /// Integers, whose sums are often zero.
    Integers,
    /// Few bits set, at distances at which sums are cut and rounded: ties and what is next to
    /// them.
    FewBits,
    /// Numbers of the whole range.
    WholeRange,
    /// Numbers within 2^4 of the largest.
    Large,
    /// Numbers within 2^4 of the smallest normal one.
    Small,
}

const LIKES: [Like; 9] = [
    Like::Anything,
    Like::Moderate,
    Like::Moderate,
    Like::Integers,
    Like::FewBits,
    Like::FewBits,
    Like::WholeRange,
    Like::Large,
    Like::Small,
];

/// How far below 1: lengths of significands and of what blocks keep, and their neighbours.
const DISTANCES: [i32; 20] = [0, 0, 0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 23, 24, 25, 26, 27];

/// The codes of every input.
pub(in crate::fuzz) fn fill(op: &Op, shape: &[usize], seed: u64) -> Vec<Vec<u64>> {
    let mut random = Random::new(seed);
    let usual = like(&mut random);
    // One NaN decides an element, so most inputs have none.
    let specials = random.below(4) == 0;
    let zeros = random.below(4) == 0;
    let inputs = inputs(op).unwrap_or_default();
    let codes = inputs.iter().map(|input| {
        let count = input.ty(shape).shape.iter().product::<usize>();
        if input.is_scale() {
            let is_one = random.below(2) == 0;
            return (0..count).map(|_| if is_one { 0x3f80_0000 } else { scale(&mut random, None) }).collect();
        }
        let like = if random.below(4) == 0 { like(&mut random) } else { usual };
        like.elements(input.format, count, [specials, zeros], &mut random)
    });
    codes.collect()
}

/// Numbers that are alike.
pub(in crate::fuzz) fn numbers(format: Format, count: usize, random: &mut Random) -> Vec<u64> {
    let (like, specials, zeros) = (like(random), random.below(4) == 0, random.below(4) == 0);
    like.elements(format, count, [specials, zeros], random)
}

fn like(random: &mut Random) -> Like {
    random.pick(&LIKES).unwrap_or(Like::Moderate)
}

impl Like {
    /// Elements of an input, with special values and zeros among them or not.
    fn elements(
        self,
        format: Format,
        count: usize,
        [specials, zeros]: [bool; 2],
        random: &mut Random,
    ) -> Vec<u64> {
        (0..count)
            .map(|_| match random.below(32) {
                0 if specials => special(format, random),
                1..=4 if zeros => 0,
                _ => self.element(format, random),
            })
            .collect()
    }

    fn element(self, format: Format, random: &mut Random) -> u64 {
        let (negative, step) = (random.below(2) == 1, random.below(9) as i32 - 4);
        let fraction = (random.word() >> 12) as f64 / 2f64.powi(52);
        let normal = |exponent: i32| (1.0 + fraction) * 2f64.powi(exponent);
        let magnitude = match self {
            Self::Anything => return random.word() & format.code_mask(),
            Self::WholeRange => {
                let code = random.word() & format.code_mask();
                return if matches!(format.decode(code), Value::Finite { .. }) { code } else { 0 };
            }
            Self::Moderate => normal(step),
            Self::Integers => random.below(9) as f64,
            Self::FewBits => {
                let ulp = 2f64.powi(-(format.fraction_bits as i32));
                let significand = random.pick(&[1.0, 1.0, 1.5, 1.0 + ulp, 2.0 - ulp]).unwrap_or(1.0);
                significand * 2f64.powi(-random.pick(&DISTANCES).unwrap_or(0))
            }
            Self::Large => normal(format.max_exponent() - step.abs()),
            Self::Small => normal(format.min_exponent() + step),
        };
        format.encode(Value::from(if negative { -magnitude } else { magnitude }), &Policy::default(), 0)
    }
}

/// Zeros, infinities and NaNs of both signs, the largest and the smallest numbers.
fn special(format: Format, random: &mut Random) -> u64 {
    let positive = [
        Some(0),
        format.infinity(),
        format.canonical_nan(),
        Some(format.min_positive()),
        Some(format.max_finite()),
    ];
    let code = random.pick(&positive).flatten().unwrap_or(0);
    if random.below(2) == 1 { code | format.sign_bit() } else { code }
}
