//! The encoder against a search in the list of all values.

#[path = "../common/codes.rs"]
mod codes;
mod oracle;
#[path = "../common/value.rs"]
mod value;

use codes::all_codes;
use oracle::Oracle;
use plumbline_reference::format::{
    ALL, BF16, E4M3FN, F16, F32, F64, Format, Overflow, Policy, Rounding, Specials, TF32, Value,
};
use rayon::prelude::*;
use value::value;

/// Formats that no specification knows, of five and six bits, one for each kind of
/// special codes.
const INVENTED: [Format; 5] = {
    let five_bits = Format {
        name: "invented",
        signed: true,
        exponent_bits: 2,
        fraction_bits: 2,
        bias: 2,
        specials: Specials::Ieee,
        subnormals: true,
        storage_bits: 8,
        low_padding: 0,
        source: "",
    };
    [
        five_bits,
        Format { specials: Specials::None, low_padding: 3, ..five_bits },
        Format { exponent_bits: 3, bias: -1, specials: Specials::NanAllOnes, ..five_bits },
        Format { exponent_bits: 3, fraction_bits: 1, specials: Specials::NanNegativeZero, ..five_bits },
        Format { exponent_bits: 4, signed: false, ..five_bits },
    ]
};

fn small_formats() -> impl Iterator<Item = Format> {
    ALL.into_iter().filter(|format| format.code_bits() <= 8).chain(INVENTED)
}

const RANDOM_WORDS: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xb504_f333, u32::MAX];

/// Every policy, with each random word where rounding is stochastic.
fn with_random_words(policies: impl Iterator<Item = Policy>) -> Vec<(Policy, u32)> {
    let words = |policy: &Policy| match policy.rounding {
        Rounding::Stochastic => RANDOM_WORDS.to_vec(),
        _ => vec![0],
    };
    policies.flat_map(|policy| words(&policy).into_iter().map(move |word| (policy, word))).collect()
}

/// The source codes of a number and of its two neighbours on either side, if the
/// source holds the number.
fn vicinity(source: Format, x: f64) -> Vec<u64> {
    let code = source.encode(Value::from(x), &Policy::IEEE, 0);
    if value(source, code).to_bits() != x.to_bits() {
        return vec![];
    }
    let up = std::iter::successors(Some(code), |&code| source.next_up(code)).take(3);
    let down = std::iter::successors(Some(code), |&code| source.next_down(code)).take(3).skip(1);
    up.chain(down).collect()
}

/// The finite magnitudes of a format and the one that would come next.
fn values(oracle: &Oracle) -> impl Iterator<Item = f64> + Clone {
    oracle.magnitudes.iter().copied().chain([oracle.beyond])
}

/// The middle of every two neighbours.
fn midpoints(oracle: &Oracle) -> impl Iterator<Item = f64> {
    values(oracle).zip(values(oracle).skip(1)).map(|(low, high)| (low + high) / 2.0)
}

/// Numbers that have nothing to do with the target.
fn far_and_special() -> Vec<f64> {
    let smallest_f32 = [1, 2, 3, 0x40_0000, 0x7f_ffff].map(|bits| f64::from(f32::from_bits(bits)));
    let extremes = [0.0, f64::MIN_POSITIVE, 1e-60, 1e30, f64::from(f32::MAX), 1e60, f64::MAX, f64::INFINITY];
    let finite = smallest_f32.into_iter().chain(extremes).chain([f64::from_bits(1)]);
    finite.collect()
}

/// Checks the encoding of one source code under each of the choices.
fn check(oracle: &Oracle, source: Format, code: u64, choices: &[(Policy, u32)]) {
    let (target, x, decoded) = (oracle.format, value(source, code), source.decode(code));
    for ((policy, random), expected) in choices.iter().zip(oracle.encode_all(x, choices)) {
        let got = target.encode(decoded, policy, *random);
        assert!(
            got == expected,
            "{source} {} ({x:e}) to {target}: {}, expected {}; {policy:?}, random {random:#x}",
            source.hex(code),
            target.hex(got),
            target.hex(expected),
        );
    }
}

/// Checks both signs of numbers and their neighbours in each of the sources.
fn check_around(oracle: &Oracle, sources: &[Format], numbers: Vec<f64>, choices: &[(Policy, u32)]) {
    numbers.into_par_iter().flat_map_iter(|x| [x, -x]).for_each(|x| {
        for &source in sources {
            vicinity(source, x).into_iter().for_each(|code| check(oracle, source, code, choices));
        }
    });
}

fn check_nan(oracle: &Oracle, source: Format, choices: &[(Policy, u32)]) {
    let nan = source.canonical_nan().expect("a source with NaN");
    let signalling = source.infinity().expect("a source with infinity") + source.min_positive();
    for code in [nan, signalling, nan | source.sign_bit(), signalling | source.sign_bit()] {
        check(oracle, source, code, choices);
    }
}

const SOURCES: [Format; 4] = [F64, F32, F16, BF16];

#[test]
fn small_formats_around_every_value_and_midpoint_under_every_policy() {
    let choices = with_random_words(Policy::all());
    assert_eq!(choices.len(), 360 + 72 * RANDOM_WORDS.len());
    for target in small_formats() {
        let oracle = Oracle::new(target);
        let numbers = values(&oracle).chain(midpoints(&oracle)).chain(far_and_special());
        check_around(&oracle, &SOURCES, numbers.collect(), &choices);
        SOURCES.iter().for_each(|&source| check_nan(&oracle, source, &choices));
    }
}

#[test]
fn small_formats_from_every_code_of_16_bits() {
    let policies = Rounding::ALL.into_iter().flat_map(|rounding| {
        [Overflow::Saturate, Overflow::ToInfOrNan].map(|overflow| Policy {
            rounding,
            overflow,
            ..Policy::default()
        })
    });
    let choices = with_random_words(policies);
    for target in small_formats() {
        let oracle = Oracle::new(target);
        for source in [F16, BF16] {
            (0..1 << 16).into_par_iter().for_each(|code| check(&oracle, source, code, &choices));
        }
    }
}

#[test]
fn small_formats_from_every_code_of_small_formats() {
    let choices = with_random_words(Policy::all());
    for target in small_formats() {
        let oracle = Oracle::new(target);
        for source in small_formats() {
            all_codes(source).for_each(|code| check(&oracle, source, code, &choices));
        }
    }
}

/// Every `stride`-th value and midpoint: under every rounding with neighbours in f64
/// and f32; midpoints under every policy with neighbours in f32; every 61st under
/// every policy with neighbours in all sources.
fn check_large_format(target: Format, stride: usize) {
    let oracle = Oracle::new(target);
    let midpoints: Vec<_> = midpoints(&oracle).step_by(stride).collect();
    let numbers: Vec<_> = values(&oracle).step_by(stride).chain(midpoints.iter().copied()).collect();
    let few = Rounding::ALL.map(|rounding| Policy { rounding, ..Policy::IEEE });
    check_around(&oracle, &[F64, F32], numbers.clone(), &with_random_words(few.into_iter()));

    let all = with_random_words(Policy::all());
    check_around(&oracle, &[F32], midpoints, &all);

    let ends =
        [oracle.magnitudes[1], oracle.beyond, (oracle.beyond + value(target, target.max_finite())) / 2.0];
    let sample = numbers.into_iter().step_by(61).chain(ends).chain(far_and_special());
    check_around(&oracle, &SOURCES, sample.collect(), &all);
    SOURCES.iter().for_each(|&source| check_nan(&oracle, source, &all));
}

#[test]
fn f16_around_every_value_and_midpoint() {
    check_large_format(F16, 1);
}

#[test]
fn bf16_around_every_value_and_midpoint() {
    check_large_format(BF16, 1);
}

#[test]
fn tf32_around_every_29th_value_and_midpoint() {
    check_large_format(TF32, 29);
}

/// The oracle itself, where the answer is known.
#[test]
fn the_oracle_knows_the_ties_of_e4m3() {
    let oracle = Oracle::new(E4M3FN);
    let code = |x, policy| oracle.encode_all(x, &[(policy, 0)]).next().unwrap();
    let ieee = |x| code(x, Policy::IEEE);
    assert_eq!([1.0625, 1.1875, 464.0, -464.0].map(ieee), [0x38, 0x3a, 0x7e, 0xfe]);
    assert_eq!([464.0f64.next_up(), 479.0, f64::INFINITY].map(ieee), [0x7f; 3]);
    let saturate = |x| code(x, Policy::default());
    assert_eq!([464.0f64.next_up(), 479.0, f64::INFINITY].map(saturate), [0x7e; 3]);
}
