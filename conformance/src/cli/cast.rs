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
mod tests;
