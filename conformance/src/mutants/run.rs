//! Which mutants the cases of a profile kill.
//!
//! A case is built once for all mutants of its operation that still live, the cheapest case first,
//! and so is its right result. A mutant whose outputs are the right ones bit for bit need not be judged:
//! the judge sees outputs alone.

use super::{How, Mutant, VARIANT, same, wrong};
use crate::attempt::{Attempt, attempt, panic_text};
use crate::case::Profile;
use crate::load::LoadError;
use crate::refused::refused;
use crate::sequence::{self, Sequence};
use crate::setup::Subject;
use crate::source::{Built, Case};
use crate::suite::Test;
use crate::verdict::Outcome;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::ops::Op;
use plumbline_reference::{Cpu, Path, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A case gave a verdict against it.
    Killed,
    /// None did.
    Survived,
    /// It did something that is not its fault: an error or a panic. That is the harness's own mistake.
    Broken,
}

/// A mutant and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its name.
    pub mutant: String,
    /// Its operation.
    pub operation: &'static str,
    /// The word for how it is made.
    pub kind: &'static str,
    /// What became of it.
    pub fate: Fate,
    /// The cheapest case that kills it, or the one in which it broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What the verdict says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Cases that it ran.
    pub cases: usize,
    /// Cases in which its outputs were others than the right ones, or that looked at memory.
    pub touched: usize,
}

/// What a run gave.
#[derive(Debug)]
pub struct Run {
    /// Every mutant, in the order of the table.
    pub judged: Vec<Judged>,
    /// Cases of the profile that are too large for the CPU, by operation.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Seconds.
    pub seconds: f64,
}

/// The most that a case may cost, in multiply-adds: what every mutant can compute in well under a second.
const MOST: u64 = 1 << 25;

/// A mutant at work.
struct Subjected<'a> {
    mutant: &'a Mutant,
    subject: Subject,
    judged: Mutex<Judged>,
}

impl<'a> Subjected<'a> {
    fn new(mutant: &'a Mutant) -> Self {
        let judged = Judged {
            mutant: mutant.name(),
            operation: mutant.operation,
            kind: mutant.how.kind(),
            fate: Fate::Survived,
            case: None,
            why: None,
            cases: 0,
            touched: 0,
        };
        Self { mutant, subject: Subject::shared(mutant.backend()), judged: judged.into() }
    }

    fn lives(&self) -> bool {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).fate == Fate::Survived
    }

    /// Takes down what a case says. `None`: the case does not concern it.
    fn meet(&self, case: &str, attempt: Option<Attempt>) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.cases += 1;
        let Some(attempt) = attempt else { return };
        judged.touched += 1;
        judged.fate = match attempt.outcome {
            Outcome::Fail => Fate::Killed,
            Outcome::Crashed if self.mutant.may_crash() => Fate::Killed,
            Outcome::Crashed | Outcome::Error | Outcome::TimedOut => Fate::Broken,
            Outcome::Pass | Outcome::Mistrusted | Outcome::Waived | Outcome::Unsupported => return,
        };
        judged.case = Some(case.to_owned());
        judged.why = Some(reason(&attempt));
    }
}

/// The first thing that a verdict says against a backend.
fn reason(attempt: &Attempt) -> String {
    let output = attempt.outputs.iter().find(|output| !output.ok);
    let of_output = output.map(|output| match (&output.shape, &output.worst) {
        (Some(shape), _) => shape.clone(),
        (None, Some(worst)) => format!(
            "{} of {} elements; {}: {} in place of {}",
            output.mismatches, output.elements, worst.fault, worst.actual.value, worst.expected.value
        ),
        (None, None) => format!("{} of {} elements", output.mismatches, output.elements),
    });
    let of_memory = attempt.memory.first().map(ToString::to_string);
    of_memory.or(of_output).or_else(|| attempt.message.clone()).unwrap_or_default()
}

/// Lets the cases of a profile meet the mutants of their operations.
pub fn run(mutants: &[Mutant], tests: &[Test], profile: Profile, seed: u64) -> Result<Run, LoadError> {
    let start = Instant::now();
    let mut groups: BTreeMap<&'static str, (Vec<Subjected<'_>>, Vec<&Test>)> = BTreeMap::new();
    for mutant in mutants {
        groups.entry(mutant.operation).or_default().0.push(Subjected::new(mutant));
    }
    let mut left_out = BTreeMap::new();
    for test in tests.iter().filter(|test| test.profile() <= profile) {
        let Some((_, of_group)) = groups.get_mut(test.kind()) else { continue };
        if matches!(test, Test::Case(case) if case.spec.device_only || case.cost() > MOST) {
            *left_out.entry(test.kind()).or_default() += 1;
        } else {
            of_group.push(test);
        }
    }
    // The cheapest case first, and the operation with most cases.
    let mut groups: Vec<_> = groups.into_values().collect();
    for (_, tests) in &mut groups {
        tests.sort_by_cached_key(|test| (cost(test), test.name().to_owned()));
    }
    groups.sort_by_key(|(mutants, tests)| std::cmp::Reverse(mutants.len() * tests.len()));
    let failed = Mutex::new(None);
    in_parallel(&groups, |(mutants, tests)| {
        for test in tests {
            let living: Vec<_> = mutants.iter().filter(|mutant| mutant.lives()).collect();
            if living.is_empty() {
                break;
            }
            if let Err(error) = meet(&living, test, seed) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let judged =
        |mutant: &Subjected<'_>| mutant.judged.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut of_name: BTreeMap<String, Judged> = groups
        .iter()
        .flat_map(|(mutants, _)| mutants.iter().map(|mutant| (mutant.mutant.name(), judged(mutant))))
        .collect();
    let judged = mutants.iter().filter_map(|mutant| of_name.remove(&mutant.name())).collect();
    Ok(Run { judged, left_out, seconds: start.elapsed().as_secs_f64() })
}

/// Does something with every item, on threads of its own: those of rayon would take up another item
/// while they wait within one.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads < 2 {
        return items.iter().for_each(work);
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// What a test costs, beside others of its kind.
fn cost(test: &Test) -> u64 {
    match test {
        Test::Case(case) => case.cost(),
        Test::Sequence(sequence) => sequence.cost(),
    }
}

/// Builds a test and lets mutants meet it.
fn meet(living: &[&Subjected<'_>], test: &Test, seed: u64) -> Result<(), LoadError> {
    let case = match test {
        Test::Sequence(sequence) => {
            in_parallel(living, |mutant| mutant.meet(&sequence.name, in_sequence(mutant, sequence, seed)));
            return Ok(());
        }
        Test::Case(case) => case,
    };
    let built = case.build(seed)?;
    let right = match case.spec.refused {
        Some(_) => None,
        None => case.spec.op.evaluate(&built.inputs, Path::fastest()).ok(),
    };
    in_parallel(living, |mutant| mutant.meet(&case.name, in_case(mutant, case, &built, right.as_deref())));
    Ok(())
}

fn in_sequence(mutant: &Subjected<'_>, sequence: &Sequence, seed: u64) -> Option<Attempt> {
    let variants = sequence.variants(&mutant.subject).ok()?;
    let attempts = variants.iter().map(|way| sequence::attempt(&mutant.subject, sequence, way, seed, false));
    attempts.reduce(|first, next| if first.outcome.is_ok() { next } else { first })
}

/// What a case says of a mutant; `None` where it does just what is right.
fn in_case(mutant: &Subjected<'_>, case: &Case, built: &Built, right: Option<&[Tensor]>) -> Option<Attempt> {
    let (op, how) = (&case.spec.op, mutant.mutant.how);
    let backend = &*mutant.subject.backend;
    backend.supports(op).ok()?;
    let variant = backend.variants(op).into_iter().next()?;
    if let Some(refusal) = &case.spec.refused {
        let is_called = matches!(how, How::Demo(_) | How::Steps(_));
        return is_called.then(|| refused(&mutant.subject, op, &variant, &built.inputs, refusal));
    }
    let right = right?;
    let outputs = match how {
        How::Right | How::Steps(_) => return Some(attempt(&mutant.subject, op, &variant, built)),
        How::Demo(_) if backend.stepwise() => return Some(attempt(&mutant.subject, op, &variant, built)),
        How::Demo(_) => catch_unwind(AssertUnwindSafe(|| backend.run(op, &variant, &built.inputs).map(Some))),
        How::Meaning(_) | How::Encoding(_) | How::Inputs(_) | How::Outputs(_) => {
            catch_unwind(AssertUnwindSafe(|| wrong(how, op, &built.inputs, right)))
        }
    };
    let crashed = |message: String| Some(Attempt::without_outputs(Outcome::Crashed, message));
    match outputs {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(outputs))) if same(&outputs, right) => None,
        Ok(Ok(Some(outputs))) => Some(attempt(&Subject::foreign(Given(outputs)), op, VARIANT, built)),
        Ok(Err(error)) => crashed(error.to_string()),
        Err(panic) => crashed(format!("panicked: {}", panic_text(&*panic))),
    }
}

/// Outputs that are there already.
struct Given(Vec<Tensor>);

impl Backend for Given {
    fn name(&self) -> &str {
        VARIANT
    }

    fn device(&self) -> Device {
        Cpu.device()
    }

    fn supports(&self, _: &Op) -> Result<(), Unsupported> {
        Ok(())
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![VARIANT.to_owned()]
    }

    fn run(&self, _: &Op, _: &str, _: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Ok(self.0.clone())
    }
}
