use super::*;
use crate::case::CaseSpec;
use crate::seed::mix;
use plumbline_reference::format::{ALL, E4M3FN, E4M3FNUZ, E5M2, E8M0, F16, F32, F64, UE4M3};
use plumbline_reference::{Path, Tensor, TensorType};

fn cast(value: &str, from: Format, to: Format) -> String {
    run(&CastArgs { value: value.to_owned(), to, from, random: None }).unwrap()
}

/// The text without the case and the policies that give the default result.
fn essence(value: &str, from: Format, to: Format) -> String {
    let text = cast(value, from, to);
    let common = ["  ", "policy", "* differs", "- {"];
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !common.iter().any(|start| line.starts_with(start)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_whole_text() {
    let expected = "\
source       465.0        0x1.d1p+8  0x43e88000  f32 normal
result       448.0        0x1.cp+8   0x7e        e4m3fn normal
at or below  448.0        0x1.cp+8   0x7e
at or above  none finite
threshold    464.0        0x1.dp+8
error        -0.53125 ulp (an ulp of e4m3fn is 32.0 here)
source is    beyond the overflow threshold

policy                           code  value
  rounding       nearest_even    0x7e  448.0
  rounding       toward_zero     0x7e  448.0
  rounding       up              0x7e  448.0
  rounding       down            0x7e  448.0
  rounding       nearest_away    0x7e  448.0
  rounding       stochastic      0x7e  448.0
  overflow       saturate        0x7e  448.0
* overflow       to_inf_or_nan   0x7f  NaN
  infinities     saturate        0x7e  448.0
  infinities     propagate       0x7e  448.0
  nan            canonical       0x7e  448.0
  nan            sign_kept       0x7e  448.0
  nan            max_finite      0x7e  448.0
  subnormals     kept            0x7e  448.0
  subnormals     flushed_before  0x7e  448.0
  subnormals     flushed_after   0x7e  448.0
  negative_zero  kept            0x7e  448.0
  negative_zero  dropped         0x7e  448.0
* differs from the default

stochastic   0x7e whatever the random word is

- {name: cast_465, op: {cast: {from: f32, to: e4m3fn}}, \
inputs: [{dtype: f32, shape: [1], bits: [\"0x43e88000\"]}], \
expect: [{dtype: e4m3fn, shape: [1], bits: [\"0x7e\"]}]}
";
    assert_eq!(cast("465", F32, E4M3FN), expected);
    let from_bits = expected.replace("cast_465", "cast_0x43e88000");
    assert_eq!(cast("0x43e88000", F32, E4M3FN), from_bits);
}

#[test]
fn beyond_the_largest() {
    let expected = "\
source       464.0        0x1.dp+8  0x43e80000  f32 normal
result       448.0        0x1.cp+8  0x7e        e4m3fn normal
at or below  448.0        0x1.cp+8  0x7e
at or above  none finite
threshold    464.0        0x1.dp+8
error        -0.5 ulp (an ulp of e4m3fn is 32.0 here)
source is    on the overflow threshold: a tie that does not overflow
stochastic   0x7e whatever the random word is
";
    assert_eq!(essence("464", F32, E4M3FN), expected);
    let expected = "\
source       464.0000305175781  0x1.d00002p+8  0x43e80001  f32 normal
result       448.0              0x1.cp+8       0x7e        e4m3fn normal
at or below  448.0              0x1.cp+8       0x7e
at or above  none finite
threshold    464.0              0x1.dp+8
error        -0.5000009536743164 ulp (an ulp of e4m3fn is 32.0 here)
source is    beyond the overflow threshold
* overflow       to_inf_or_nan   0x7f  NaN
stochastic   0x7e whatever the random word is
";
    assert_eq!(essence("0x43e80001", F32, E4M3FN), expected);
    let expected = "\
source       450.0        0x1.c2p+8  0x43e10000  f32 normal
result       448.0        0x1.cp+8   0x7e        e4m3fn normal
at or below  448.0        0x1.cp+8   0x7e
at or above  none finite
threshold    464.0        0x1.dp+8
error        -0.0625 ulp (an ulp of e4m3fn is 32.0 here)
source is    beyond the finite values, but within the overflow threshold
stochastic   0x7e whatever the random word is
";
    assert_eq!(essence("450", F32, E4M3FN), expected);
    let expected = "\
source       65520.0      0x1.ffep+15  0x477ff000  f32 normal
result       65504.0      0x1.ffcp+15  0x7bff      f16 normal
at or below  65504.0      0x1.ffcp+15  0x7bff
at or above  none finite
threshold    65520.0      0x1.ffep+15
error        -0.5 ulp (an ulp of f16 is 32.0 here)
source is    on the overflow threshold: a tie that overflows
* overflow       to_inf_or_nan   0x7c00  inf
stochastic   0x7bff whatever the random word is
";
    assert_eq!(essence("65520", F32, F16), expected);
}

#[test]
fn between_values() {
    let expected = "\
source       1.0625001192092896  0x1.100002p+0  0x3f880001  f32 normal
result       1.125               0x1.2p+0       0x39        e4m3fn normal
at or below  1.0                 0x1p+0         0x38
midpoint     1.0625              0x1.1p+0
at or above  1.125               0x1.2p+0       0x39
error        0.4999990463256836 ulp (an ulp of e4m3fn is 0.125 here)
source is    above the midpoint
* rounding       toward_zero     0x38    1.0
* rounding       down            0x38    1.0
stochastic   0x39 if random >= 0x7ffff000 (p = 0.5000009536743164), else 0x38
";
    assert_eq!(essence("0x3f880001", F32, E4M3FN), expected);
    let expected = "\
-0.01 is not exact in f32; the nearest is -0.009999999776482582 (-0x1.47ae14p-7, 0xbc23d70a)
source       -0.009999999776482582  -0x1.47ae14p-7  0xbc23d70a  f32 normal
result       -0.009765625           -0x1.4p-7       0x85        e4m3fn subnormal
at or below  -0.01171875            -0x1.8p-7       0x86
midpoint     -0.0107421875          -0x1.6p-7
at or above  -0.009765625           -0x1.4p-7       0x85
error        0.11999988555908203 ulp (an ulp of e4m3fn is 0.001953125 here)
source is    above the midpoint
* rounding       down            0x86    -0.01171875
* subnormals     flushed_before  0x80    -0.0
* subnormals     flushed_after   0x80    -0.0
stochastic   0x86 if random >= 0xe147b000 (p = 0.11999988555908203), else 0x85
";
    assert_eq!(essence("-0.01", F32, E4M3FN), expected);
    let expected = "\
1e-8 is not exact in f32; the nearest is 9.99999993922529e-9 (0x1.5798eep-27, 0x322bcc77)
source       9.99999993922529e-9  0x1.5798eep-27  0x322bcc77  f32 normal
result       0.0                  0x0p+0          0x00        e4m3fnuz zero
at or below  0.0                  0x0p+0          0x00
midpoint     0.00048828125        0x1p-11
at or above  0.0009765625         0x1p-10         0x01
error        -1.0239999937766697e-5 ulp (an ulp of e4m3fnuz is 0.0009765625 here)
source is    below the midpoint
* rounding       up              0x01    0.0009765625
stochastic   0x01 if random >= 0xffff5434 (p = 1.0239891707897186e-5), else 0x00
";
    assert_eq!(essence("1e-8", F32, E4M3FNUZ), expected);
    let expected = "\
source       1.5  0x1.8p+0  0x3fc00000  f32 normal
result       2.0  0x1p+1    0x80        e8m0 normal
at or below  1.0  0x1p+0    0x7f
midpoint     1.5  0x1.8p+0
at or above  2.0  0x1p+1    0x80
error        0.5 ulp (an ulp of e8m0 is 1.0 here)
source is    on the midpoint: a tie
* rounding       toward_zero     0x7f    1.0
* rounding       down            0x7f    1.0
stochastic   0x80 if random >= 0x80000000 (p = 0.5), else 0x7f
";
    assert_eq!(essence("1.5", F32, E8M0), expected);
}

#[test]
fn values_of_the_target() {
    let expected = "\
source       -0.0  -0x0p+0  0x80000000  f32 zero
result       -0.0  -0x0p+0  0x80        e4m3fn zero
at or below  -0.0  -0x0p+0  0x80
at or above  -0.0  -0x0p+0  0x80
error        0.0 ulp (an ulp of e4m3fn is 0.001953125 here)
source is    a value of e4m3fn: there is nothing to round
* negative_zero  dropped         0x00  0.0
stochastic   0x80 whatever the random word is
";
    assert_eq!(essence("-0", F32, E4M3FN), expected);
    let expected = "\
source       -0.0  -0x0p+0  0x80000000  f32 zero
result       0.0   0x0p+0   0x00        e4m3fnuz zero
at or below  0.0   0x0p+0   0x00
at or above  0.0   0x0p+0   0x00
error        0.0 ulp (an ulp of e4m3fnuz is 0.0009765625 here)
source is    zero, whose sign e4m3fnuz does not have
stochastic   0x00 whatever the random word is
";
    assert_eq!(essence("-0", F32, E4M3FNUZ), expected);
    let expected = "\
source       1.5  0x1.8p+0  0x3e00              f16 normal
result       1.5  0x1.8p+0  0x3ff8000000000000  f64 normal
at or below  1.5  0x1.8p+0  0x3ff8000000000000
at or above  1.5  0x1.8p+0  0x3ff8000000000000
error        0.0 ulp (an ulp of f64 is 2.220446049250313e-16 here)
source is    a value of f64: there is nothing to round
stochastic   0x3ff8000000000000 whatever the random word is
";
    assert_eq!(essence("1.5", F16, F64), expected);
}

#[test]
fn specials() {
    let expected = "\
source       NaN  nan  0x7fffffff  f32 nan
result       NaN  nan  0x7f        e4m3fn nan
error        none: source or result is not finite
source is    NaN: only `nan` matters
* nan            max_finite      0x7e  448.0
stochastic   0x7f whatever the random word is
";
    assert_eq!(essence("nan", F32, E4M3FN), expected);
    let expected = "\
source       -NaN  -nan  0xffffffff  f32 nan
result       NaN   nan   0x7f        e4m3fn nan
error        none: source or result is not finite
source is    NaN: only `nan` matters
* nan            sign_kept       0xff  -NaN
* nan            max_finite      0x7e  448.0
stochastic   0x7f whatever the random word is
";
    assert_eq!(essence("-nan", F32, E4M3FN), expected);
    let expected = "\
source       -inf      -inf        0xff800000  f32 infinite
result       -57344.0  -0x1.cp+15  0xfb        e5m2 normal
error        none: source or result is not finite
source is    infinite: only `infinities` matters
* infinities     propagate       0xfc  -inf
stochastic   0xfb whatever the random word is
";
    assert_eq!(essence("-inf", F32, E5M2), expected);
}

#[test]
fn below_unsigned_formats() {
    let expected = "\
source       -1.0                   -0x1p+0   0xbf800000  f32 normal
result       5.877471754111438e-39  0x1p-127  0x00        e8m0 normal
at or below  none finite
at or above  5.877471754111438e-39  0x1p-127  0x00
error        about 1.0 ulp (an ulp of e8m0 is 1.0 here)
source is    negative, and e8m0 has no sign: it overflows
* overflow       to_inf_or_nan   0xff  NaN
stochastic   0x00 whatever the random word is
";
    assert_eq!(essence("-1", F32, E8M0), expected);
    let expected = "\
source       0.0                    0x0p+0    0x00000000  f32 zero
result       5.877471754111438e-39  0x1p-127  0x00        e8m0 normal
at or below  none finite
at or above  5.877471754111438e-39  0x1p-127  0x00
error        1.0 ulp (an ulp of e8m0 is 5.877471754111438e-39 here)
source is    below the smallest value, and e8m0 has no zero
stochastic   0x00 whatever the random word is
";
    assert_eq!(essence("0", F32, E8M0), expected);
    let expected = "\
-0.0005 is not exact in f32; the nearest is -0.0005000000237487257 (-0x1.0624dep-11, 0xba03126f)
source       -0.0005000000237487257  -0x1.0624dep-11  0xba03126f  f32 normal
result       0.0                     0x0p+0           0x00        ue4m3 zero
at or below  none finite
at or above  0.0                     0x0p+0           0x00
error        0.25600001215934753 ulp (an ulp of ue4m3 is 0.001953125 here)
source is    negative, and ue4m3 has no sign: it rounds to zero
stochastic   0x00 whatever the random word is
";
    assert_eq!(essence("-0.0005", F32, UE4M3), expected);
}

#[test]
fn stochastic_rounding() {
    let row = |random| {
        let args = CastArgs { value: "1.03125".to_owned(), to: E4M3FN, from: F32, random };
        let text = run(&args).unwrap();
        let find = |start: &str| {
            text.lines()
                .find(|line| line.trim_start_matches([' ', '*']).starts_with(start))
                .unwrap()
                .to_owned()
        };
        assert_eq!(find("stochastic   "), "stochastic   0x39 if random >= 0xc0000000 (p = 0.25), else 0x38");
        find("rounding       stochastic")
    };
    assert_eq!(row(None), "  rounding       stochastic      random  0x38 or 0x39");
    assert_eq!(row(Some(0xbfff_ffff)), "  rounding       stochastic      0x38  1.0");
    assert_eq!(row(Some(0xc000_0000)), "* rounding       stochastic      0x39  1.125");
}

#[test]
fn arguments() {
    use clap::{Args as _, FromArgMatches as _};
    let parse = |args: &[&str]| {
        let matches = CastArgs::augment_args(clap::Command::new("cast").no_binary_name(true));
        matches.try_get_matches_from(args).and_then(|matches| CastArgs::from_arg_matches(&matches))
    };
    for args in [["-1e-8", "--to", "e4m3fn"], ["--to", "e4m3fn", "-1e-8"]] {
        let args = parse(&args).unwrap();
        assert_eq!((args.value.as_str(), args.to, args.from, args.random), ("-1e-8", E4M3FN, F32, None));
    }
    let random =
        |word| parse(&["1", "--to", "f16", "--from", "f64", "--random", word]).map(|args| args.random);
    assert_eq!(random("0xffffffff").unwrap(), Some(u32::MAX));
    assert_eq!(random("17").unwrap(), Some(17));
    for word in ["", "0x", "-1", "+1", "0x+1", "4294967296", "0x1ffffffff", "x"] {
        assert!(random(word).is_err(), "{word}");
    }
    let error = parse(&["1", "--to", "e4m3"]).unwrap_err().to_string();
    assert!(error.contains("unknown format, expected one of e4m3fn, e5m2,"), "{error}");
}

#[test]
fn bad_numbers() {
    let error = |value: &str| {
        run(&CastArgs { value: value.to_owned(), to: F16, from: E4M3FN, random: None })
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error("0x1ff"), "`0x1ff` has 3 hex digits, but a code of e4m3fn has 2: write at most 2");
    assert!(error("--form").starts_with("`--form` is not a number: write"));
}

#[test]
fn names_of_cases() {
    let name = |value: &str| {
        let text = cast(value, F32, F16);
        text.split("name: ").nth(1).and_then(|rest| rest.split(',').next()).map(str::to_owned).unwrap()
    };
    assert_eq!(name("-1.5e-2"), "cast_-1.5e-2");
    assert_eq!(name("0x1.8p+1"), "cast_0x40400000");
    assert_eq!(name(&"1".repeat(30)), "cast_0x6fb3827a");
}

#[test]
fn texts_fit_and_cases_hold() {
    for i in 0..1500 {
        let [from, to] = [1, 2].map(|j| ALL[mix(i, j) as usize % ALL.len()]);
        let code = match i % 3 {
            0 => mix(i, 0) & from.code_mask(),
            1 => to_source(mix(i, 0) & to.code_mask(), to, from),
            _ => from.code_at(mix(i, 0) >> 20 & 0xff) & from.code_mask(),
        };
        let text = cast(&from.hex(code), from, to);
        let (case, rest) = text.trim_end().rsplit_once('\n').map(|(rest, case)| (case, rest)).unwrap();
        assert!(text.is_ascii());
        assert!(rest.lines().all(|line| line.len() < 100 && line.trim_end() == line), "{text}");
        assert_holds(case, &text);
    }
}

/// A code of `from` at or just beside a value of `to`.
fn to_source(code: u64, to: Format, from: Format) -> u64 {
    let near = from.encode(to.decode(code), &Policy::default(), 0);
    from.next_up(near).unwrap_or(near)
}

/// The case parses, and the reference gives what it expects.
fn assert_holds(case: &str, text: &str) {
    let yaml: serde_json::Value = serde_yaml::from_str(case).unwrap();
    let cases: Vec<CaseSpec> = serde_json::from_value(yaml).unwrap();
    let [case] = &cases[..] else { panic!("one case") };
    let (input, expected) = (&case.inputs[0], &case.expect.as_ref().unwrap()[0]);
    let bits = |bits: &Option<Vec<String>>| u64::from_str_radix(&bits.as_ref().unwrap()[0][2..], 16).unwrap();
    let x = Tensor::from_codes(TensorType::new(input.dtype.format().unwrap(), [1]), &[bits(&input.bits)])
        .unwrap();
    let y = case.op.evaluate(&[x], Path::Definition).unwrap();
    assert_eq!(y[0].code(0), bits(&expected.bits), "{text}");
    assert_eq!(expected.dtype, y[0].ty().dtype);
}
