//! What a run covered, and what it could not.

use crate::case::Against;
use crate::registry::{LeftOut, Registry};
use crate::verdict::{Outcome, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Counts over a run, and what is missing from it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Coverage {
    /// Trials by outcome.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Elements compared.
    pub elements: usize,
    /// Calls whose inputs did not fit and were rightly refused.
    pub refusals: usize,
    /// Seconds.
    pub seconds: f64,
    /// Trials by backend with variant, then by operation.
    pub trials: BTreeMap<String, BTreeMap<String, usize>>,
    /// Matrix products by the model that explains them.
    pub explained: BTreeMap<String, usize>,
    /// Cases that a backend does not do, by backend and its reason.
    pub unsupported: BTreeMap<String, BTreeMap<String, usize>>,
    /// What was not covered, and why.
    pub not_covered: Vec<String>,
}

impl Coverage {
    /// Counts the verdicts of a run.
    #[must_use]
    pub fn new(verdicts: &[Verdict], registry: &Registry, cuda: &str, took: Duration) -> Self {
        let mut coverage = Self { seconds: took.as_secs_f64(), ..Self::default() };
        for verdict in verdicts {
            *coverage.outcomes.entry(verdict.outcome).or_default() += 1;
            coverage.elements += verdict.elements;
            coverage.refusals += usize::from(verdict.refusal && verdict.outcome == Outcome::Pass);
            let backend = format!("{}/{}", verdict.backend, verdict.variant);
            *coverage.trials.entry(backend).or_default().entry(verdict.op.name().to_owned()).or_default() +=
                1;
        }
        let explained = verdicts.iter().flat_map(|verdict| &verdict.outputs).filter(|output| output.ok);
        for explanation in explained.filter_map(|output| output.explanation.as_ref()) {
            // Without how many others give the same bits.
            let model = explanation.split(" (").next().unwrap_or(explanation);
            *coverage.explained.entry(model.to_owned()).or_default() += 1;
        }
        coverage.unsupported = registry.left_out.unsupported.clone();
        coverage.not_covered = not_covered(&registry.left_out, verdicts, cuda);
        coverage
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    /// 0 where everything passed or failed as waived, 1 where something failed, 2 where
    /// a case could not be built.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.count(Outcome::Error) > 0 {
            2
        } else {
            u8::from(Outcome::ALL.iter().any(|&outcome| !outcome.is_ok() && self.count(outcome) > 0))
        }
    }

    /// Whether anything was judged at all.
    #[must_use]
    pub fn is_vacuous(&self) -> bool {
        self.elements + self.refusals == 0 && self.exit_code() == 0
    }
}

fn not_covered(left_out: &LeftOut, verdicts: &[Verdict], cuda: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if verdicts.iter().all(|verdict| verdict.backend != "cuda") {
        lines.push(format!("GPU: no CUDA trials; {cuda}"));
    }
    for (profile, cases) in &left_out.profiles {
        lines.push(format!("{cases} cases of the profile `{profile}`; run with `--profile {profile}`"));
    }
    for (backend, reasons) in &left_out.unsupported {
        lines.push(format!("{} cases that {backend} does not do", reasons.values().sum::<usize>()));
    }
    if left_out.partitions > 0 {
        lines.push(format!("{} trials of other partitions", left_out.partitions));
    }
    let alone = alone(verdicts);
    if !alone.is_empty() {
        let counts: Vec<_> = alone.iter().map(|(op, count)| format!("{op} {count}")).collect();
        lines.push(format!("cases that only the reference computed and judged: {}", counts.join(", ")));
    }
    lines
}

/// By operation, the cases whose only judge was the reference itself: no given bits, no
/// recording, no second implementation.
fn alone(verdicts: &[Verdict]) -> BTreeMap<&'static str, usize> {
    let mut independent: BTreeMap<&str, (&'static str, bool)> = BTreeMap::new();
    for verdict in verdicts {
        let second = verdict.backend != "cpu" || verdict.oracle != Some(Against::Definition);
        independent.entry(&verdict.case).or_insert((verdict.op.name(), false)).1 |= second;
    }
    let mut counts = BTreeMap::new();
    for (op, _) in independent.into_values().filter(|(_, second)| !second) {
        *counts.entry(op).or_default() += 1;
    }
    counts
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trials: usize = self.outcomes.values().sum();
        let refusals = match self.refusals {
            0 => String::new(),
            refusals => format!(", {refusals} refusals"),
        };
        let Self { elements, seconds, .. } = self;
        writeln!(f, "covered: {trials} trials, {elements} elements{refusals} in {seconds:.1} s")?;
        for (backend, operations) in &self.trials {
            let operations: Vec<_> = operations.iter().map(|(op, count)| format!("{op} {count}")).collect();
            writeln!(f, "  {backend:<18} {}", operations.join(", "))?;
        }
        if !self.explained.is_empty() {
            writeln!(f, "explained by:")?;
            let mut models: Vec<_> = self.explained.iter().collect();
            models.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
            for (model, count) in models {
                writeln!(f, "  {count:>5} {model}")?;
            }
        }
        writeln!(f, "not covered:")?;
        for line in &self.not_covered {
            writeln!(f, "  {line}")?;
        }
        let counts: Vec<_> = Outcome::ALL
            .iter()
            .filter(|&&outcome| {
                outcome == Outcome::Pass || outcome == Outcome::Fail || self.count(outcome) > 0
            })
            .map(|&outcome| format!("{} {outcome}", self.count(outcome)))
            .collect();
        write!(f, "result: {}", counts.join(", "))
    }
}
