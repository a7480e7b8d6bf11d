//! What a run covered, and what it could not.

use crate::case::Against;
use crate::coverage::{self, GateReport, Matrix};
use crate::registry::{LeftOut, Registry};
use crate::verdict::{Outcome, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Backends that refuse inputs by their operation's signature, as the loader of cases does.
const OURS: [&str; 2] = ["cpu", "cuda"];

/// Counts over a run, and what is missing from it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Coverage {
    /// Trials by outcome.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Elements compared.
    pub elements: usize,
    /// Calls whose inputs did not fit and were rightly refused, by backend.
    pub refusals: BTreeMap<String, usize>,
    /// Seconds.
    pub seconds: f64,
    /// Trials by backend with variant, then by operation.
    pub trials: BTreeMap<String, BTreeMap<String, usize>>,
    /// Matrix products by the model that explains them.
    pub explained: BTreeMap<String, usize>,
    /// Trials that passed though there is something to know of right elements, by operation.
    pub noted: BTreeMap<String, usize>,
    /// Cases that a backend does not do, by backend and its reason.
    pub unsupported: BTreeMap<String, BTreeMap<String, usize>>,
    /// What was not covered, and why.
    pub not_covered: Vec<String>,
    /// Of a run of all built-in cases: which cells it must cover and does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateReport>,
    /// How many trials exercised each cell.
    #[serde(skip)]
    pub matrix: Matrix,
}

impl Coverage {
    /// Counts the verdicts of a run.
    #[must_use]
    pub fn new(verdicts: &[Verdict], registry: &Registry, cuda: &str, took: Duration) -> Self {
        let mut coverage = Self { seconds: took.as_secs_f64(), ..Self::default() };
        for verdict in verdicts {
            *coverage.outcomes.entry(verdict.outcome).or_default() += 1;
            coverage.elements += verdict.elements;
            if verdict.refusal && verdict.outcome == Outcome::Pass {
                *coverage.refusals.entry(verdict.backend.clone()).or_default() += 1;
            }
            let backend = format!("{}/{}", verdict.backend, verdict.variant);
            *coverage.trials.entry(backend).or_default().entry(verdict.kind().to_owned()).or_default() += 1;
        }
        let explained = verdicts.iter().flat_map(|verdict| &verdict.outputs).filter(|output| output.ok);
        for explanation in explained.filter_map(|output| output.explanation.as_ref()) {
            // Without how many others give the same bits.
            let model = explanation.split(" (").next().unwrap_or(explanation);
            *coverage.explained.entry(model.to_owned()).or_default() += 1;
        }
        for verdict in verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Pass) {
            if verdict.outputs.iter().any(|output| output.notes.is_some()) {
                *coverage.noted.entry(verdict.kind().to_owned()).or_default() += 1;
            }
        }
        coverage.unsupported = registry.left_out.unsupported.clone();
        coverage.not_covered = not_covered(&registry.left_out, verdicts, cuda);
        let counts = coverage::count(verdicts);
        coverage.gate = registry.gate.as_ref().and_then(|gate| gate.check(&registry.trials, &counts));
        coverage.matrix = Matrix::new(counts);
        coverage
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    /// 0 where everything passed or failed as waived, 1 where something failed or was not covered that
    /// must be, 2 where a case could not be built.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.count(Outcome::Error) > 0 {
            2
        } else {
            let failed = Outcome::ALL.iter().any(|&outcome| !outcome.is_ok() && self.count(outcome) > 0);
            u8::from(failed || self.gate.as_ref().is_some_and(|gate| !gate.missing.is_empty()))
        }
    }

    /// Whether nothing was compared. Refusals alone show nothing of what a backend computes.
    #[must_use]
    pub fn compared_nothing(&self) -> bool {
        self.elements == 0 && self.exit_code() == 0
    }

    /// Whom refusals judge.
    fn describe_refusals(&self) -> Vec<String> {
        let of = |ours: bool| -> Vec<_> {
            let there = self.refusals.iter().filter(|(backend, _)| OURS.contains(&backend.as_str()) == ours);
            there.map(|(backend, count)| format!("{backend} {count}")).collect()
        };
        let lines = [
            (of(false), "inputs that do not fit were refused"),
            (of(true), "the same, by the check that their cases are made with, which says nothing of them"),
        ];
        let there = lines.into_iter().filter(|(backends, _)| !backends.is_empty());
        there.map(|(backends, what)| format!("{}: {what}", backends.join(", "))).collect()
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
    for (what, tensors) in &left_out.weights {
        lines.push(format!("{tensors} {what}"));
    }
    if left_out.partitions > 0 {
        lines.push(format!("{} trials of other partitions", left_out.partitions));
    }
    if left_out.proofs {
        lines.push("whether each case can fail; run with `--vacuity always`".to_owned());
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
        independent.entry(&verdict.case).or_insert((verdict.kind(), false)).1 |= second;
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
        let Self { elements, seconds, .. } = self;
        writeln!(f, "covered: {trials} trials, {elements} elements in {seconds:.1} s")?;
        for (backend, operations) in &self.trials {
            let operations: Vec<_> = operations.iter().map(|(op, count)| format!("{op} {count}")).collect();
            writeln!(f, "  {backend:<18} {}", operations.join(", "))?;
        }
        if !self.refusals.is_empty() {
            writeln!(f, "refusals:")?;
            for line in self.describe_refusals() {
                writeln!(f, "  {line}")?;
            }
        }
        if !self.explained.is_empty() {
            writeln!(f, "explained by:")?;
            let mut models: Vec<_> = self.explained.iter().collect();
            models.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
            for (model, count) in models {
                writeln!(f, "  {count:>5} {model}")?;
            }
        }
        for (op, count) in &self.noted {
            writeln!(
                f,
                "notes: on right elements of {count} trials of {op} that passed; see their verdicts"
            )?;
        }
        writeln!(f, "not covered:")?;
        for line in &self.not_covered {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "exercised: {} cells", self.matrix.cells())?;
        if let Some(GateReport { cells, missing }) = &self.gate {
            match missing.iter().map(|missing| missing.count).sum::<usize>() {
                0 => writeln!(f, "gate: all of {cells} demanded cells are covered")?,
                uncovered => writeln!(f, "gate: {uncovered} of {cells} demanded cells are not covered:")?,
            }
            missing.iter().try_for_each(|missing| writeln!(f, "  {missing}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_whom_they_judge_and_do_not_stand_for_a_comparison() {
        let refusals = [("cpu", 3), ("cuda", 2), ("mine", 1)].map(|(name, count)| (name.to_owned(), count));
        let passed = BTreeMap::from([(Outcome::Pass, 6)]);
        let coverage = Coverage { outcomes: passed, refusals: refusals.into(), ..Coverage::default() };
        assert!(coverage.compared_nothing());
        let text = coverage.to_string();
        assert!(
            text.contains("  mine 1: inputs that do not fit were refused\n  cpu 3, cuda 2: the same,"),
            "{text}"
        );
        assert!(!Coverage { elements: 1, ..coverage }.compared_nothing());
    }
}
