//! `plumbline sweep`: a cast on every input there is.

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
use plumbline_reference::format::{ALL, Format, Policy};
use plumbline_reference::ops::{Cast, Op};
use plumbline_reference::{Backend, Cpu, DType};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// The operation
    #[arg(value_enum)]
    operation: Operation,
    /// Formats of the source, of at most 32 bits: names with commas between them, or `all`
    #[arg(long, value_parser = parse_formats, value_name = "FORMATS", default_value = "f32")]
    from: Formats,
    /// Formats of the result, likewise
    #[arg(long, value_parser = parse_formats, value_name = "FORMATS")]
    to: Formats,
    /// Sweep under every policy without random bits, or with `--against hardware` under every
    /// recorded one, not only the default one
    #[arg(long)]
    policies: bool,
    /// What the results are compared with; default: the staircase, or the definition where
    /// that has too many steps
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

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Operation {
    /// Elementwise encode
    Cast,
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
    let Operation::Cast = args.operation;
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
    // All that can be wrong with the options is found before the first sweep.
    let mut jobs = Vec::new();
    let mut left_out = 0;
    for &from in &args.from.formats {
        for &to in &args.to.formats {
            let of_pair = sweeper.jobs(from, to);
            match of_pair {
                Ok(of_pair) => jobs.extend(of_pair),
                // Of all formats, those that go.
                Err(_) if args.from.all || args.to.all => left_out += 1,
                Err(error) => return Err(error),
            }
        }
    }
    ensure!(!jobs.is_empty(), "none of these casts can be swept so; name one to see why");
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
    cast: Cast,
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
    /// The sweeps of the casts between two formats.
    fn jobs(&self, from: Format, to: Format) -> anyhow::Result<Vec<Job>> {
        let args = self.args;
        let usual = if self.is_recording_given { Against::Hardware } else { Against::usual(to) };
        let against = args.against.unwrap_or(usual);
        let all = Sweep::all_inputs(from)?;
        let inputs = args.partition.map_or(all.clone(), |partition| partition.of(all.clone()));
        ensure!(inputs.start < inputs.end, "the part has no inputs; use fewer parts");
        let is_recorded = |cast: &Cast| self.recordings.recorded(cast).is_some();
        let cast = Cast::new(from, to);
        let casts: Vec<Cast> = if args.policies {
            let is_swept = |cast: &Cast| against != Against::Hardware || is_recorded(cast);
            policies().map(|policy| cast.with_policy(policy)).filter(is_swept).collect()
        } else {
            vec![cast.with_policy(against.policy())]
        };
        ensure!(!casts.is_empty(), "no cast from {from} to {to} is recorded; choose another --against");
        let mut jobs = Vec::new();
        for cast in casts {
            against.check(&cast, self.recordings)?;
            let steps = self.recordings.recorded(&cast).is_some_and(|recorded| recorded.staircase.is_some());
            ensure!(
                against != Against::Hardware || steps || inputs == all,
                "only the digest of all results of {} is recorded; leave out --partition",
                brief(&Op::from(cast))
            );
            for variant in self.variants(&cast, against)? {
                jobs.push(Job { cast, against, variant, inputs: inputs.clone() });
            }
        }
        Ok(jobs)
    }

    fn variants(&self, cast: &Cast, against: Against) -> anyhow::Result<Vec<String>> {
        let mut variants = self.backend.variants(&Op::from(*cast));
        // Both are the definition, and it is not judged by itself.
        let itself = |variant: &str| {
            let is_definition = variant == "definition" || variant == "parallel";
            self.cuda.is_none() && against == Against::Definition && is_definition
        };
        match self.args.variant.as_deref() {
            None => variants.truncate(1),
            Some("all") => variants.retain(|variant| !itself(variant)),
            Some(variant) => variants = vec![variant.to_owned()],
        }
        ensure!(
            !variants.is_empty() && !variants.iter().any(|variant| itself(variant)),
            "{} would be the definition judged by itself; choose another --variant or --against",
            brief(&Op::from(*cast))
        );
        Ok(variants)
    }

    /// Whether any result differs.
    fn sweep(&self, job: &Job) -> anyhow::Result<bool> {
        let Job { cast, against, variant, inputs } = job;
        let op = Op::from(*cast);
        let oracle = against.oracle(cast, self.recordings);
        // A digest is that of all results.
        let is_whole = Sweep::all_inputs(cast.from)? == *inputs;
        let recorded = self.recordings.recorded(cast).filter(|_| *against == Against::Hardware);
        let digest = recorded.and_then(|recorded| recorded.digest).filter(|_| is_whole);
        let progress = Progress::new(inputs.end - inputs.start);
        let start = Instant::now();
        let sweep = Sweep {
            cast: *cast,
            backend: self.backend,
            variant,
            oracle: &oracle,
            nan: against.nan(),
            inputs: inputs.clone(),
        };
        let swept = match (self.cuda, &oracle) {
            (Some(cuda), Oracle::Staircase(_) | Oracle::Nothing) => sweep.run_on_device(cuda),
            _ => sweep.run(&|done| progress.show(done)).map(Swept::of_host),
        };
        let swept = swept.with_context(|| brief(&op))?;
        progress.clear();
        ensure!(
            swept.mismatched() == 0 || digest != Some(swept.findings.digest),
            "{}: the results have the recorded digest and not the recorded steps, so the recording is damaged; \
             record it again",
            brief(&op)
        );
        let judged = format!("{}/{variant}", self.backend.name());
        let is_digest_only = matches!(oracle, Oracle::Nothing);
        let comparison = Comparison { against: *against, is_digest_only, digest };
        super::print(&report(&judged, &comparison, cast, &swept, start.elapsed()))?;
        Ok(swept.mismatched() > 0 || comparison.digest_differs(&swept))
    }
}

impl Against {
    /// A result of more than 20 bits has more steps than are worth keeping.
    fn usual(to: Format) -> Self {
        if to.code_bits() <= 20 { Self::Staircase } else { Self::Definition }
    }

    /// The policy that the implementation has.
    fn policy(self) -> Policy {
        let sign_kept = plumbline_reference::format::NanPolicy::SignKept;
        match self {
            Self::Staircase | Self::Definition | Self::Hardware => Policy::default(),
            Self::Float8 => Policy { nan: sign_kept, ..Policy::default() },
            Self::Half => Policy { nan: sign_kept, ..Policy::IEEE },
        }
    }

    /// NaNs of the crates need only be NaN.
    fn nan(self) -> NanJudge {
        match self {
            Self::Float8 | Self::Half => NanJudge::Class,
            Self::Staircase | Self::Definition | Self::Hardware => NanJudge::Bits,
        }
    }

    fn backend(self) -> Option<&'static dyn Backend> {
        match self {
            Self::Definition => Some(&Cpu),
            Self::Float8 => Some(&Float8),
            Self::Half => Some(&Half),
            Self::Staircase | Self::Hardware => None,
        }
    }

    /// Whether it can say what is right.
    fn check(self, cast: &Cast, recordings: &Playback) -> anyhow::Result<()> {
        let op = Op::from(*cast);
        if self == Self::Staircase && Self::usual(cast.to) != self {
            bail!("a staircase to {} has too many steps; use --against definition", cast.to);
        }
        if self == Self::Hardware && recordings.recorded(cast).is_none() {
            let others = policies().any(|policy| recordings.recorded(&cast.with_policy(policy)).is_some());
            let hint = if others { "--policies sweeps the policies that are, or " } else { "" };
            bail!("{} is not recorded; {hint}choose another --against", brief(&op));
        }
        if let Some(backend) = self.backend()
            && let Err(why) = backend.supports(&op)
        {
            bail!("{} {why}; choose another --against", backend.name());
        }
        Ok(())
    }

    /// Says what is right, of a cast that was checked.
    fn oracle(self, cast: &Cast, recordings: &Playback) -> Oracle<'static> {
        if let Some(backend) = self.backend() {
            // Of the CPU's paths the definition's own, on the sweep's threads.
            let variant = match self {
                Self::Definition => "definition".to_owned(),
                _ => backend.variants(&Op::from(*cast)).into_iter().next().unwrap_or_default(),
            };
            return Oracle::Backend { backend, variant };
        }
        match recordings.recorded(cast).filter(|_| self == Self::Hardware) {
            Some(Recorded { staircase: Some(staircase), .. }) => Oracle::Staircase(staircase.clone()),
            Some(Recorded { staircase: None, .. }) => Oracle::Nothing,
            None => Oracle::Staircase(Staircase::new(cast)),
        }
    }
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

fn report(judged: &str, comparison: &Comparison, cast: &Cast, swept: &Swept, took: Duration) -> String {
    let Swept { findings, unexplained, millis } = swept;
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
        brief(&Op::from(*cast)),
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
        let (from, to) = (DType::from(cast.from), DType::from(cast.to));
        let [input, right, got] = [from.describe(input), to.describe(right), to.describe(got)];
        let _ =
            writeln!(text, "  {} x {fault}, first: {input} gives {got}, right is {right}", mismatches.count);
    }
    if *unexplained > 0 {
        let _ = writeln!(
            text,
            "  {unexplained} more, not sorted by kind: in later inputs, or right when cast again"
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
