//! `plumbline cast`: what a cast of one number must give, and why.

use super::decode::{class_name, midpoint, threshold};
use super::number::{Number, aligned, code_row, is_digits, line, parse, parse_format, row, same, value_row};
use anyhow::Context as _;
use plumbline_reference::format::{Decimal, Format, Overflow, Policy, Rounding, Value};

/// Shows what a cast of one number must give, under every policy.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CastArgs {
    /// The number: 465, -1e-8, nan, 0x1.d1p+8, or the bits of a code, 0x43e88000
    #[arg(allow_hyphen_values = true)]
    pub(super) value: String,
    /// The format of the result
    #[arg(long, value_parser = parse_format, value_name = "FORMAT")]
    pub(super) to: Format,
    /// The format of the source
    #[arg(long, value_parser = parse_format, value_name = "FORMAT", default_value = "f32")]
    pub(super) from: Format,
    /// The 32 random bits of stochastic rounding, in decimal or hex
    #[arg(long, value_parser = parse_random, value_name = "WORD")]
    pub(super) random: Option<u32>,
}

/// The text to print.
pub(super) fn run(args: &CastArgs) -> anyhow::Result<String> {
    let number = parse(&args.value, args.from)?;
    let cast = Cast { source: args.from.decode(number.code), to: args.to, random: args.random };
    let note = number.note(&args.value, args.from).map_or(String::new(), |note| note + "\n\n");
    let policies = cast.policies().context("the policies have no names")?;
    Ok(format!("{note}{}\n{policies}\n{}", cast.summary(args.from, number), cast.case(args, number)))
}

fn parse_random(text: &str) -> Result<u32, String> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // The standard parser would take a sign.
    let word = if is_digits(digits, radix) { u32::from_str_radix(digits, radix).ok() } else { None };
    word.ok_or_else(|| "not 32 bits: write a number from 0 to 0xffffffff".to_owned())
}

/// One value on its way into a format.
struct Cast {
    source: Value,
    to: Format,
    random: Option<u32>,
}

/// Where the source lies among the values of the target.
enum Place {
    /// It is NaN or infinite.
    Special,
    /// It is the value of that code.
    On(u64),
    /// It is between the values of two neighbouring codes.
    Between(u64, u64),
    /// It is above the value of that code, the largest.
    Above(u64),
    /// It is below the value of that code, the least.
    Below(u64),
}

impl Cast {
    fn encode(&self, policy: &Policy, random: u32) -> u64 {
        self.to.encode(self.source, policy, random)
    }

    fn result(&self) -> u64 {
        self.encode(&Policy::default(), 0)
    }

    /// Every format's values are exact in f64, and so are comparisons there.
    fn x(&self) -> f64 {
        self.source.to_f64()
    }

    fn place(&self) -> Place {
        if !matches!(self.source, Value::Finite { .. }) {
            return Place::Special;
        }
        let round = |rounding| self.encode(&Policy { rounding, ..Policy::default() }, 0);
        let (down, up) = (round(Rounding::Down), round(Rounding::Up));
        // Saturation brings a source that is out of range to the wrong side of it.
        match (self.to.to_f64(down) <= self.x(), self.to.to_f64(up) >= self.x()) {
            (true, true) if down == up => Place::On(down),
            (true, true) => Place::Between(down, up),
            (true, false) => Place::Above(down),
            _ => Place::Below(up),
        }
    }
}

/// Source, result, and where the source lies between the target's values.
impl Cast {
    fn summary(&self, from: Format, number: Number) -> String {
        let remark = |format: Format, code| format!("{format} {}", class_name(format, code));
        let mut rows = vec![
            code_row("source", from, number.code, &remark(from, number.code)),
            code_row("result", self.to, self.result(), &remark(self.to, self.result())),
        ];
        let (bracket, place) = self.bracket();
        rows.extend(bracket);
        aligned(&rows) + &line("error", &self.error()) + &line("source is", &place)
    }

    /// Rows of the values around the source, and where it lies among them.
    fn bracket(&self) -> (Vec<Vec<String>>, String) {
        let to = self.to;
        let code = |label, code| code_row(label, to, code, "");
        let none = |label| row(label, ["none finite".to_owned()]);
        match self.place() {
            Place::Special => (vec![], self.special_place()),
            Place::On(on) => {
                let text = if same(self.source, to.decode(on)) {
                    format!("a value of {to}: there is nothing to round")
                } else {
                    format!("zero, whose sign {to} does not have")
                };
                (vec![code("at or below", on), code("at or above", on)], text)
            }
            Place::Between(down, up) => {
                let midpoint = midpoint(to.decode(down), to.decode(up));
                let rows =
                    vec![code("at or below", down), value_row("midpoint", midpoint), code("at or above", up)];
                (rows, self.against_midpoint(midpoint))
            }
            Place::Above(largest) => {
                let (threshold, text) = self.beyond(largest);
                (vec![code("at or below", largest), none("at or above"), threshold], text)
            }
            Place::Below(least) if to.signed => {
                let (threshold, text) = self.beyond(least);
                (vec![none("at or below"), code("at or above", least), threshold], text)
            }
            Place::Below(least) => {
                (vec![none("at or below"), code("at or above", least)], self.below_unsigned())
            }
        }
    }

    fn special_place(&self) -> String {
        let (class, field) = if self.source.is_nan() { ("NaN", "nan") } else { ("infinite", "infinities") };
        format!("{class}: only `{field}` matters")
    }

    fn against_midpoint(&self, midpoint: Value) -> String {
        let midpoint = midpoint.to_f64();
        let text = if self.x() < midpoint {
            "below the midpoint"
        } else if self.x() > midpoint {
            "above the midpoint"
        } else {
            "on the midpoint: a tie"
        };
        text.to_owned()
    }

    /// The row of the overflow threshold, and where a source beyond the largest
    /// (or least) value lies.
    fn beyond(&self, extreme: u64) -> (Vec<String>, String) {
        let extreme = self.to.decode(extreme);
        let threshold = threshold(extreme);
        let odd = matches!(extreme, Value::Finite { significand, .. } if significand & 1 == 1);
        let (x, limit) = (self.x().abs(), threshold.to_f64().abs());
        let text = if x < limit {
            "beyond the finite values, but within the overflow threshold"
        } else if x > limit {
            "beyond the overflow threshold"
        } else if odd {
            "on the overflow threshold: a tie that overflows"
        } else {
            "on the overflow threshold: a tie that does not overflow"
        };
        (value_row("threshold", threshold), text.to_owned())
    }

    /// Where a source below an unsigned format lies.
    fn below_unsigned(&self) -> String {
        let overflow = Policy { overflow: Overflow::ToInfOrNan, ..Policy::default() };
        if self.x() >= 0.0 {
            format!("below the smallest value, and {} has no zero", self.to)
        } else if self.encode(&overflow, 0) == self.result() {
            format!("negative, and {} has no sign: it rounds to zero", self.to)
        } else {
            format!("negative, and {} has no sign: it overflows", self.to)
        }
    }

    /// The result's error in units of the target's last place at the source.
    fn error(&self) -> String {
        let result = self.to.decode(self.result());
        let (Value::Finite { .. }, Value::Finite { .. }) = (self.source, result) else {
            return "none: source or result is not finite".to_owned();
        };
        // A power of two, so that only the subtraction can round.
        let ulp = self.ulp();
        let (result, source) = (result.to_f64() / ulp, self.x() / ulp);
        let error = result - source;
        // Knuth's two-sum: what the subtraction lost.
        let source_part = error - result;
        let lost = (result - (error - source_part)) - (source + source_part);
        let about = if lost == 0.0 { "" } else { "about " };
        format!("{about}{error:?} ulp (an ulp of {} is {ulp:?} here)", self.to)
    }

    /// Unit of the last place of the target in the source's binade, or in the
    /// nearest binade that the target has.
    fn ulp(&self) -> f64 {
        let (least, largest) = (self.to.min_exponent(), self.to.max_exponent());
        let binade = match self.source {
            Value::Finite { significand, exponent, .. } if significand != 0 => {
                (exponent + significand.ilog2() as i32).clamp(least, largest)
            }
            _ => least,
        };
        let exponent = binade - self.to.fraction_bits as i32;
        Value::Finite { negative: false, significand: 1, exponent }.to_f64()
    }
}

/// The results under every policy.
impl Cast {
    /// One row per choice of each field, the other fields at their defaults.
    fn policies(&self) -> serde_json::Result<String> {
        let mut rows = vec![["policy", "", "code", "value"].map(str::to_owned).to_vec()];
        for (field, choice, policy) in choices()? {
            rows.push(self.policy_row(field, choice, &policy));
        }
        Ok(aligned(&rows) + "* differs from the default\n\n" + &self.stochastic())
    }

    fn policy_row(&self, field: &str, choice: String, policy: &Policy) -> Vec<String> {
        let undecided = policy.rounding == Rounding::Stochastic && self.random.is_none();
        let [low, high] = [0, u32::MAX].map(|random| self.encode(policy, random));
        if undecided && low != high {
            let either = format!("{} or {}", self.to.hex(low), self.to.hex(high));
            return vec![format!("  {field}"), choice, "random".to_owned(), either];
        }
        let code = self.encode(policy, self.random.unwrap_or(0));
        let mark = if code == self.result() { ' ' } else { '*' };
        let value = Decimal(self.to.decode(code)).to_string();
        vec![format!("{mark} {field}"), choice, self.to.hex(code), value]
    }

    /// Which random words take stochastic rounding away from zero.
    fn stochastic(&self) -> String {
        let policy = Policy { rounding: Rounding::Stochastic, ..Policy::default() };
        let [toward, away] = [0, u32::MAX].map(|random| self.encode(&policy, random));
        let text = if toward == away {
            format!("{} whatever the random word is", self.to.hex(toward))
        } else {
            // Words from some threshold on round away.
            let (mut below, mut threshold) = (0, u32::MAX);
            while threshold - below > 1 {
                let middle = below + (threshold - below) / 2;
                if self.encode(&policy, middle) == away { threshold = middle } else { below = middle }
            }
            let probability = ((1u64 << 32) - u64::from(threshold)) as f64 / (1u64 << 32) as f64;
            let [toward, away] = [toward, away].map(|code| self.to.hex(code));
            format!("{away} if random >= {threshold:#010x} (p = {probability:?}), else {toward}")
        };
        line("stochastic", &text)
    }
}

/// Each choice of each field, by the names that case files use, with the other
/// fields at their defaults.
fn choices() -> serde_json::Result<Vec<(&'static str, String, Policy)>> {
    const FIELDS: [&str; 6] = ["rounding", "overflow", "infinities", "nan", "subnormals", "negative_zero"];
    let default = serde_json::to_value(Policy::default())?;
    let all: Vec<_> = Policy::all()
        .map(|policy| Ok((policy, serde_json::to_value(policy)?)))
        .collect::<serde_json::Result<_>>()?;
    let mut choices = Vec::new();
    for field in FIELDS {
        for (policy, value) in &all {
            let others_default = FIELDS.iter().all(|&other| other == field || value[other] == default[other]);
            if let (true, Some(choice)) = (others_default, value[field].as_str()) {
                choices.push((field, choice.to_owned(), *policy));
            }
        }
    }
    Ok(choices)
}

/// The cast as a case.
impl Cast {
    /// An entry of a case file's list.
    fn case(&self, args: &CastArgs, number: Number) -> String {
        let (from, to) = (args.from, self.to);
        let (name, source, result) = (case_name(args, number), from.hex(number.code), to.hex(self.result()));
        format!(
            "- {{name: {name}, op: {{cast: {{from: {from}, to: {to}}}}}, \
             inputs: [{{dtype: {from}, shape: [1], bits: [\"{source}\"]}}], \
             expect: [{{dtype: {to}, shape: [1], bits: [\"{result}\"]}}]}}\n"
        )
    }
}

/// `cast_465`: the number as typed, or its bits where that makes no plain name.
fn case_name(args: &CastArgs, number: Number) -> String {
    let plain = args.value.len() <= 24
        && args.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    if plain { format!("cast_{}", args.value) } else { format!("cast_{}", args.from.hex(number.code)) }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(
                find("stochastic   "),
                "stochastic   0x39 if random >= 0xc0000000 (p = 0.25), else 0x38"
            );
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
        let bits =
            |bits: &Option<Vec<String>>| u64::from_str_radix(&bits.as_ref().unwrap()[0][2..], 16).unwrap();
        let x = Tensor::from_codes(TensorType::new(input.dtype.format().unwrap(), [1]), &[bits(&input.bits)])
            .unwrap();
        let y = case.op.evaluate(&[x], Path::Definition).unwrap();
        assert_eq!(y[0].code(0), bits(&expected.bits), "{text}");
        assert_eq!(expected.dtype, y[0].ty().dtype);
    }
}
