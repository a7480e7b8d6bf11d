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
    let (mut sweeps, mut different) = (0, 0);
    for &from in &args.from.formats {
        if args.from.all && Sweep::all_inputs(from).is_err() {
            continue;
        }
        for &to in &args.to.formats {
            for differs in sweeper.pair(from, to)? {
                sweeps += 1;
                different += u32::from(differs);
            }
        }
    }
    ensure!(sweeps > 0, "none of these casts is recorded; choose another --against");
    if sweeps > 1 {
        super::print(&format!("{sweeps} sweeps, {different} with differences"))?;
    }
    Ok(u8::from(different > 0))
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
    /// Sweeps the casts between two formats; for each, whether any result differs.
    fn pair(&self, from: Format, to: Format) -> anyhow::Result<Vec<bool>> {
        let args = self.args;
        let usual = if self.is_recording_given { Against::Hardware } else { Against::usual(to) };
        let against = args.against.unwrap_or(usual);
        let is_recorded = |cast: &Cast| self.recordings.recorded(cast).is_some();
        let cast = Cast::new(from, to);
        let casts: Vec<Cast> = if args.policies {
            let is_swept = |cast: &Cast| against != Against::Hardware || is_recorded(cast);
            policies().map(|policy| cast.with_policy(policy)).filter(is_swept).collect()
        } else {
            vec![cast.with_policy(against.policy())]
        };
        let mut differs = Vec::new();
        for cast in casts {
            if against == Against::Hardware && (args.from.all || args.to.all) && !is_recorded(&cast) {
                continue;
            }
            for variant in self.variants(&cast, against)? {
                differs.push(self.sweep(cast, against, &variant)?);
            }
        }
        Ok(differs)
    }

    fn variants(&self, cast: &Cast, against: Against) -> anyhow::Result<Vec<String>> {
        let mut variants = self.backend.variants(&Op::from(*cast));
        // The definition is not judged by itself.
        let itself =
            |variant: &str| self.cuda.is_none() && against == Against::Definition && variant == "definition";
        match self.args.variant.as_deref() {
            None => variants.truncate(1),
            Some("all") => variants.retain(|variant| !itself(variant)),
            Some(variant) => {
                ensure!(
                    !itself(variant),
                    "the definition is not judged by itself; choose another --variant or --against"
                );
                variants = vec![variant.to_owned()];
            }
        }
        Ok(variants)
    }

    /// Whether any result differs.
    fn sweep(&self, cast: Cast, against: Against, variant: &str) -> anyhow::Result<bool> {
        let op = Op::from(cast);
        let all = Sweep::all_inputs(cast.from)?;
        let inputs = self.args.partition.map_or(all.clone(), |partition| partition.of(all.clone()));
        ensure!(inputs.start < inputs.end, "the part has no inputs; use fewer parts");
        let oracle = against.oracle(&cast, self.recordings)?;
        // A digest is that of all results.
        let recorded = self.recordings.recorded(&cast).filter(|_| against == Against::Hardware);
        let digest = recorded.and_then(|recorded| recorded.digest).filter(|_| inputs == all);
        ensure!(
            digest.is_some() || !matches!(oracle, Oracle::Nothing),
            "only the digest of all results of {} is recorded; leave out --partition",
            brief(&op)
        );
        let progress = Progress::new(inputs.end - inputs.start);
        let start = Instant::now();
        let sweep =
            Sweep { cast, backend: self.backend, variant, oracle: &oracle, nan: against.nan(), inputs };
        let swept = match (self.cuda, &oracle) {
            (Some(cuda), Oracle::Staircase(_) | Oracle::Nothing) => sweep.run_on_device(cuda),
            _ => sweep.run(&|done| progress.show(done)).map(Swept::of_host),
        };
        let swept = swept.with_context(|| brief(&op))?;
        progress.clear();
        let judged = format!("{}/{variant}", self.backend.name());
        let comparison = Comparison { against, is_digest_only: matches!(oracle, Oracle::Nothing), digest };
        super::print(&report(&judged, &comparison, &cast, &swept, start.elapsed()))?;
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

    fn oracle(self, cast: &Cast, recordings: &Playback) -> anyhow::Result<Oracle<'static>> {
        let backend: &'static dyn Backend = match self {
            Self::Staircase if Self::usual(cast.to) != self => {
                bail!("a staircase to {} has too many steps; use --against definition", cast.to)
            }
            Self::Staircase => return Ok(Oracle::Staircase(Staircase::new(cast))),
            Self::Definition => &Cpu,
            Self::Hardware => match recordings.recorded(cast) {
                Some(Recorded { staircase: Some(staircase), .. }) => {
                    return Ok(Oracle::Staircase(staircase.clone()));
                }
                Some(Recorded { staircase: None, .. }) => return Ok(Oracle::Nothing),
                None => bail!(
                    "{} is not recorded; --policies sweeps the policies that are, or choose another --against",
                    brief(&Op::from(*cast))
                ),
            },
            Self::Float8 => &Float8,
            Self::Half => &Half,
        };
        let op = Op::from(*cast);
        if let Err(why) = backend.supports(&op) {
            bail!("{} {why}; choose another --against", backend.name());
        }
        let variants = backend.variants(&op);
        // Of the CPU's paths the definition's own, on the sweep's threads.
        let variant = if self == Self::Definition {
            Some("definition".to_owned())
        } else {
            variants.into_iter().next()
        };
        Ok(Oracle::Backend { backend, variant: variant.context("the oracle has no variant")? })
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
