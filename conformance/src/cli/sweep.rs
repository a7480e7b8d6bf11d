//! `plumbline sweep`: a cast or a function on every input there is.

use super::number::parse_format;
use crate::adapter::{Float8, Half, Playback, Recorded};
use crate::case::NanJudge;
use crate::hardware::Recording;
use crate::report::brief;
use crate::setup::Partition;
use crate::sweep::{Oracle, Staircase, Sweep, Swept, policies};
use anyhow::{Context, bail, ensure};
use plumbline_gpu::module::Cache;
use plumbline_gpu::{Cuda, device};
use plumbline_reference::format::{ALL, F32, Format, Policy};
use plumbline_reference::ops::{Cast, Op, functions};
use plumbline_reference::{Backend, Cpu, DType, TensorType};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// `cast`, or functions with commas between them: `silu,exp`; `functions` are all of them
    #[arg(value_parser = parse_subjects, value_name = "OPERATIONS")]
    operations: Subjects,
    /// Formats of the source, of at most 32 bits: names with commas between them, or `all`
    #[arg(long, value_parser = parse_formats, value_name = "FORMATS", default_value = "f32")]
    from: Formats,
    /// Formats of the result, likewise; default for functions: the source's
    #[arg(long, value_parser = parse_formats, value_name = "FORMATS")]
    to: Option<Formats>,
    /// Sweep under every policy without random bits, or with `--against hardware` under every
    /// recorded one, not only the default one
    #[arg(long)]
    policies: bool,
    /// What the results are compared with; default: of a cast the staircase, or the definition where
    /// that has too many steps, of a function the definition, on a device the reference
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// What is judged: the CPU reference, or the kernels on the first CUDA device
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Judged,
    /// Which of its ways is judged, or `all`; default: the usual one
    #[arg(long)]
    variant: Option<String>,
    /// A recording to compare with, as `plumbline record` writes it, in place of those that
    /// come with the project
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// Sweep part K of N of the inputs
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,
}

/// What is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Cast,
    /// By its name in [`functions`].
    Function(&'static str),
}

#[derive(Clone, Debug)]
struct Subjects(Vec<Subject>);

impl Subject {
    /// Every one but the cast.
    fn functions() -> impl Iterator<Item = Self> {
        functions(F32, F32).into_iter().map(|(name, _)| Self::Function(name))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cast => "cast",
            Self::Function(name) => name,
        }
    }
}

fn parse_subjects(text: &str) -> Result<Subjects, String> {
    if text == "functions" {
        return Ok(Subjects(Subject::functions().collect()));
    }
    let subject = |name: &str| {
        let known = || std::iter::once(Subject::Cast).chain(Subject::functions());
        known().find(|subject| subject.name() == name).ok_or_else(|| {
            let known: Vec<_> = known().map(Subject::name).collect();
            format!("no operation {name:?} can be swept; there are {}, and `functions`", known.join(", "))
        })
    };
    Ok(Subjects(text.split(',').map(|name| subject(name.trim())).collect::<Result<_, _>>()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Judged {
    /// The CPU reference
    Cpu,
    /// The kernels on the first CUDA device
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// The inputs at which the definition's result changes
    Staircase,
    /// The definition, computed for every input
    Definition,
    /// The CPU reference by its usual way, the fastest
    Reference,
    /// What a device gave: the recorded H200, or `--recording`
    Hardware,
    /// The crate float8
    Float8,
    /// The crate half
    Half,
}

/// Formats in the order in which they are swept.
#[derive(Clone, Debug)]
struct Formats {
    formats: Vec<Format>,
    /// Whether it is all of them: then those that cannot be swept are passed over.
    all: bool,
}

fn parse_formats(text: &str) -> Result<Formats, String> {
    if text == "all" {
        return Ok(Formats { formats: ALL.to_vec(), all: true });
    }
    let formats = text.split(',').map(|name| parse_format(name.trim())).collect::<Result<_, _>>()?;
    Ok(Formats { formats, all: false })
}

/// Sweeps; 1 where any result differs.
pub(super) fn run(args: &SweepArgs) -> anyhow::Result<u8> {
    let given = args.recording.as_deref().map(Recording::read).transpose()?.map(Playback::of);
    ensure!(
        given.is_none() || matches!(args.against, None | Some(Against::Hardware)),
        "--recording is what --against hardware compares with; leave one of them out"
    );
    let cuda = match args.backend {
        Judged::Cpu => None,
        Judged::Cuda => {
            Some(device::require().map(|device| Cuda::new(device::probe(), device, Cache::of_user()))?)
        }
    };
    let sweeper = Sweeper {
        args,
        recordings: given.as_ref().unwrap_or_else(|| Playback::h200()),
        is_recording_given: given.is_some(),
        cuda: cuda.as_ref(),
        backend: cuda.as_ref().map_or(&Cpu, |cuda| cuda),
    };
    if let Some(function) = args.operations.0.iter().find(|&&subject| subject != Subject::Cast) {
        ensure!(!args.policies, "--policies are of casts, and {} has none; leave it out", function.name());
    }
    // All that can be wrong with the options is found before the first sweep.
    let mut jobs = Vec::new();
    let mut left_out = 0;
    for &subject in &args.operations.0 {
        for &from in &args.from.formats {
            let own = Formats { formats: vec![from], all: false };
            let to = match (&args.to, subject) {
                (Some(to), _) => to,
                (None, Subject::Cast) => bail!("a cast needs --to, the formats of its results"),
                (None, _) => &own,
            };
            for &to_format in &to.formats {
                match sweeper.jobs(subject, from, to_format) {
                    Ok(found) => jobs.extend(found),
                    // Of all formats, those that go.
                    Err(_) if args.from.all || to.all => left_out += 1,
                    Err(error) => return Err(error),
                }
            }
        }
    }
    ensure!(!jobs.is_empty(), "none of these can be swept so; name one to see why");
    let mut different = 0;
    for job in &jobs {
        different += u32::from(sweeper.sweep(job)?);
    }
    if jobs.len() > 1 || left_out > 0 {
        let left_out = match left_out {
            0 => String::new(),
            left_out => format!("; {left_out} pairs of formats left out, name one to see why"),
        };
        super::print(&format!("{} sweeps, {different} with differences{left_out}", jobs.len()))?;
    }
    Ok(u8::from(different > 0))
}

/// One sweep.
struct Job {
    op: Op,
    /// Of inputs and results.
    formats: [Format; 2],
    against: Against,
    variant: String,
    inputs: Range<u64>,
}

/// What all sweeps of a run have in common.
struct Sweeper<'a> {
    args: &'a SweepArgs,
    recordings: &'a Playback,
    is_recording_given: bool,
    cuda: Option<&'a Cuda>,
    backend: &'a dyn Backend,
}

impl Sweeper<'_> {
    /// The sweeps of an operation between two formats.
    fn jobs(&self, subject: Subject, from: Format, to: Format) -> anyhow::Result<Vec<Job>> {
        let args = self.args;
        let usual = if self.is_recording_given {
            Against::Hardware
        } else {
            Against::usual(subject, to, args.backend)
        };
        let against = args.against.unwrap_or(usual);
        let all = Sweep::all_inputs(from)?;
        let inputs = args.partition.map_or(all.clone(), |partition| partition.of(all.clone()));
        ensure!(inputs.start < inputs.end, "the part has no inputs; use fewer parts");
        let is_recorded = |cast: &Cast| self.recordings.recorded(cast).is_some();
        let cast = Cast::new(from, to);
        let ops: Vec<Op> = match subject {
            Subject::Cast if args.policies => {
                let is_swept = |cast: &Cast| against != Against::Hardware || is_recorded(cast);
                let casts = policies().map(|policy| cast.with_policy(policy)).filter(is_swept);
                casts.map(Op::from).collect()
            }
            Subject::Cast => vec![cast.with_policy(against.policy()).into()],
            Subject::Function(of) => {
                functions(from, to).into_iter().filter(|&(name, _)| name == of).map(|(_, op)| op).collect()
            }
        };
        ensure!(!ops.is_empty(), "no cast from {from} to {to} is recorded; choose another --against");
        let mut jobs = Vec::new();
        for op in ops {
            op.signature(&[TensorType::new(from, [1])])?;
            against.check(&op, self.recordings)?;
            let steps = self.recorded(&op).is_some_and(|recorded| recorded.staircase.is_some());
            ensure!(
                against != Against::Hardware || steps || inputs == all,
                "only the digest of all results of {} is recorded; leave out --partition",
                brief(&op)
            );
            for variant in self.variants(&op, against)? {
                jobs.push(Job {
                    op: op.clone(),
                    formats: [from, to],
                    against,
                    variant,
                    inputs: inputs.clone(),
                });
            }
        }
        Ok(jobs)
    }

    /// What a device gave for a cast.
    fn recorded(&self, op: &Op) -> Option<&Recorded> {
        as_cast(op).and_then(|cast| self.recordings.recorded(cast))
    }

    fn variants(&self, op: &Op, against: Against) -> anyhow::Result<Vec<String>> {
        let mut variants = self.backend.variants(op);
        let fastest = variants.first().cloned();
        let itself = |variant: &str| {
            self.cuda.is_none()
                && match against {
                    // Both are the definition, and it is not judged by itself.
                    Against::Definition => variant == "definition" || variant == "parallel",
                    Against::Reference => fastest.as_deref() == Some(variant),
                    _ => false,
                }
        };
        match self.args.variant.as_deref() {
            None => variants.truncate(1),
            Some("all") => variants.retain(|variant| !itself(variant)),
            Some(variant) => variants = vec![variant.to_owned()],
        }
        ensure!(
            !variants.is_empty() && !variants.iter().any(|variant| itself(variant)),
            "{} would be judged by itself; choose another --variant or --against",
            brief(op)
        );
        Ok(variants)
    }

    /// Whether any result differs.
    fn sweep(&self, job: &Job) -> anyhow::Result<bool> {
        let Job { op, formats, against, variant, inputs } = job;
        let oracle = against.oracle(op, self.recordings);
        // A digest is that of all results.
        let is_whole = Sweep::all_inputs(formats[0])? == *inputs;
        let recorded = self.recorded(op).filter(|_| *against == Against::Hardware);
        let digest = recorded.and_then(|recorded| recorded.digest).filter(|_| is_whole);
        let progress = Progress::new(inputs.end - inputs.start);
        let start = Instant::now();
        let sweep = Sweep {
            op: op.clone(),
            backend: self.backend,
            variant,
            oracle: &oracle,
            nan: against.nan(),
            inputs: inputs.clone(),
        };
        let swept = match (self.cuda, &oracle) {
            (Some(cuda), _) => sweep.run_on_device(cuda, &|done| progress.show(done)),
            (None, _) => sweep.run(&|done| progress.show(done)).map(Swept::of_host),
        };
        let swept = swept.with_context(|| brief(op))?;
        progress.clear();
        ensure!(
            swept.mismatched() == 0 || digest != Some(swept.findings.digest),
            "{}: the results have the recorded digest and not the recorded steps, so the recording is damaged; \
             record it again",
            brief(op)
        );
        let judged = format!("{}/{variant}", self.backend.name());
        let is_digest_only = matches!(oracle, Oracle::Nothing);
        let comparison = Comparison { against: *against, is_digest_only, digest };
        super::print(&report(&judged, &comparison, job, &swept, start.elapsed()))?;
        Ok(swept.mismatched() > 0 || comparison.digest_differs(&swept))
    }
}

impl Against {
    /// A result of more than 20 bits has more steps than are worth keeping, and a function of a real
    /// number more than are worth finding.
    fn usual(subject: Subject, to: Format, judged: Judged) -> Self {
        match (subject, judged) {
            (Subject::Cast, _) if has_staircase(to) => Self::Staircase,
            (Subject::Cast, _) | (_, Judged::Cpu) => Self::Definition,
            (_, Judged::Cuda) => Self::Reference,
        }
    }

    /// The policy that the implementation has.
    fn policy(self) -> Policy {
        let sign_kept = plumbline_reference::format::NanPolicy::SignKept;
        match self {
            Self::Staircase | Self::Definition | Self::Reference | Self::Hardware => Policy::default(),
            Self::Float8 => Policy { nan: sign_kept, ..Policy::default() },
            Self::Half => Policy { nan: sign_kept, ..Policy::IEEE },
        }
    }

    /// NaNs of the crates need only be NaN.
    fn nan(self) -> NanJudge {
        match self {
            Self::Float8 | Self::Half => NanJudge::Class,
            Self::Staircase | Self::Definition | Self::Reference | Self::Hardware => NanJudge::Bits,
        }
    }

    fn backend(self) -> Option<&'static dyn Backend> {
        match self {
            Self::Definition | Self::Reference => Some(&Cpu),
            Self::Float8 => Some(&Float8),
            Self::Half => Some(&Half),
            Self::Staircase | Self::Hardware => None,
        }
    }

    /// Whether it can say what is right.
    fn check(self, op: &Op, recordings: &Playback) -> anyhow::Result<()> {
        let cast = as_cast(op);
        if self == Self::Staircase && !cast.is_some_and(|cast| has_staircase(cast.to)) {
            bail!("{} has no staircase, or one of too many steps; use --against definition", brief(op));
        }
        if self == Self::Hardware && cast.and_then(|cast| recordings.recorded(cast)).is_none() {
            let recorded = |cast: &Cast| {
                policies().any(|policy| recordings.recorded(&cast.with_policy(policy)).is_some())
            };
            if cast.is_none() {
                bail!("only casts are recorded, and no {}; leave out --recording and --against", brief(op));
            }
            let others = cast.is_some_and(recorded);
            let hint = if others { "--policies sweeps the policies that are, or " } else { "" };
            bail!("{} is not recorded; {hint}choose another --against", brief(op));
        }
        if let Some(backend) = self.backend()
            && let Err(why) = backend.supports(op)
        {
            bail!("{} {why}; choose another --against", backend.name());
        }
        Ok(())
    }

    /// Says what is right, of an operation that was checked.
    fn oracle(self, op: &Op, recordings: &Playback) -> Oracle<'static> {
        if let Some(backend) = self.backend() {
            // The definition's own path, on the sweep's threads.
            let variant = match self {
                Self::Definition => "definition".to_owned(),
                _ => backend.variants(op).into_iter().next().unwrap_or_default(),
            };
            return Oracle::Backend { backend, variant };
        }
        let Some(cast) = as_cast(op) else { return Oracle::Nothing };
        match recordings.recorded(cast).filter(|_| self == Self::Hardware) {
            Some(Recorded { staircase: Some(staircase), .. }) => Oracle::Staircase(staircase.clone()),
            Some(Recorded { staircase: None, .. }) => Oracle::Nothing,
            None => Oracle::Staircase(Staircase::new(cast)),
        }
    }
}

fn as_cast(op: &Op) -> Option<&Cast> {
    match op {
        Op::Cast(cast) => Some(cast),
        _ => None,
    }
}

/// Whether a cast to that format has few enough steps.
fn has_staircase(to: Format) -> bool {
    to.code_bits() <= 20
}

/// What a sweep was compared with.
struct Comparison {
    against: Against,
    /// Whether nothing but the digest was compared.
    is_digest_only: bool,
    /// The recorded digest of all results, where there is one and all were swept.
    digest: Option<u64>,
}

impl Comparison {
    fn digest_differs(&self, swept: &Swept) -> bool {
        self.digest.is_some_and(|digest| digest != swept.findings.digest)
    }
}

fn report(judged: &str, comparison: &Comparison, job: &Job, swept: &Swept, took: Duration) -> String {
    let Swept { findings, unexplained, uncounted, millis } = swept;
    let seconds = took.as_secs_f64();
    let rate = findings.inputs as f64 / seconds / 1e9;
    let against = format!("{:?}", comparison.against).to_lowercase();
    let on_device = millis.map(|millis| format!(", {millis:.1} ms on the device")).unwrap_or_default();
    let found = match comparison.digest {
        Some(digest) if comparison.is_digest_only => format!("recorded {digest:016x}"),
        _ => format!("{} mismatches", swept.mismatched()),
    };
    let mut text = format!(
        "{} {judged} against {against}: {} inputs in {seconds:.2} s ({rate:.2} G/s{on_device}), digest {:016x}, {found}\n",
        brief(&job.op),
        findings.inputs,
        findings.digest,
    );
    match comparison.digest {
        Some(_) if comparison.is_digest_only && comparison.digest_differs(swept) => {
            text +=
                "  the results differ; their digests cannot say for which inputs: --against definition can\n";
        }
        Some(digest) if swept.mismatched() == 0 && comparison.digest_differs(swept) => {
            let _ = writeln!(
                text,
                "  the recording has these results, but the digest {digest:016x}: it is damaged"
            );
        }
        _ => (),
    }
    for (fault, mismatches) in &findings.mismatches {
        let (input, right, got) = mismatches.first;
        let [from, to] = job.formats.map(DType::from);
        let [input, right, got] = [from.describe(input), to.describe(right), to.describe(got)];
        let _ =
            writeln!(text, "  {} x {fault}, first: {input} gives {got}, right is {right}", mismatches.count);
    }
    if *unexplained > 0 {
        let _ = writeln!(
            text,
            "  {unexplained} more, not sorted by kind: in later inputs, or right when computed again"
        );
    }
    if *uncounted > 0 {
        let _ = writeln!(
            text,
            "  {uncounted} chunks of inputs more whose digests differ, counted as one mismatch each: in later inputs, \
             or right when computed again"
        );
    }
    text
}

/// A line on a terminal that says how far a sweep is.
struct Progress {
    total: u64,
    start: Instant,
    last: Mutex<Instant>,
    shown: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        let now = Instant::now();
        Self { total, start: now, last: Mutex::new(now), shown: stderr().is_terminal() }
    }

    fn show(&self, done: u64) {
        // Whoever finds the clock busy leaves the line to the one who has it.
        let (true, Ok(mut last)) = (self.shown, self.last.try_lock()) else { return };
        if last.elapsed() < Duration::from_millis(200) {
            return;
        }
        *last = Instant::now();
        let rate = done as f64 / self.start.elapsed().as_secs_f64();
        let left = (self.total - done.min(self.total)) as f64 / rate;
        let percent = 100 * done / self.total.max(1);
        let _ = write!(stderr(), "\r{percent:3}%  {:.2} G/s  {left:.0} s left ", rate / 1e9);
    }

    fn clear(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r{:40}\r", "");
        }
    }
}
