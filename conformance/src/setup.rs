//! What a run is asked for, and what it finds on this machine.

use crate::adapter::{DemoFault, Float8, Half, Playback, Reordered, demo_fault};
use crate::case::{Against, NanJudge, Profile};
use crate::load::LoadError;
use crate::memory::Contract;
use crate::seed;
use crate::waiver::WaiverError;
use crate::weights::WeightsError;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use plumbline_gpu::Cuda;
use plumbline_gpu::device::DeviceInfo;
use plumbline_gpu::module::Cache;
use plumbline_reference::{Backend, Cpu};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Which trials to run. Every option can also be given by its variable, which is how
/// `cargo test` and nextest are configured.
#[derive(Clone, Debug, clap::Args)]
pub struct Selection {
    /// Which backends to judge: those on the CPU, CUDA, or all that this machine has
    #[arg(long, env = "PLUMBLINE_BACKEND", value_enum, default_value = "auto")]
    pub backend: BackendChoice,
    /// How much to run
    #[arg(long, env = "PLUMBLINE_PROFILE", value_enum, default_value = "quick")]
    pub profile: Profile,
    /// A case file or folder of your own, in place of the built-in cases
    #[arg(long, env = "PLUMBLINE_CASES", value_name = "PATH")]
    pub cases: Option<PathBuf>,
    /// A GGUF model: decode its tensors of blocks and multiply with them, in place of the built-in
    /// cases
    #[arg(long, env = "PLUMBLINE_WEIGHTS", value_name = "MODEL.gguf", conflicts_with = "cases")]
    pub weights: Option<PathBuf>,
    /// Seed of random inputs; mixed with each case's name
    #[arg(long, env = "PLUMBLINE_SEED", default_value_t = 0)]
    pub seed: u64,
    /// Run part K of N of the trials, chosen by a hash of their names
    #[arg(long, env = "PLUMBLINE_PARTITION", value_name = "K/N")]
    pub partition: Option<Partition>,
    /// Fail, before any trial, where there is no usable GPU
    #[arg(long, env = "PLUMBLINE_REQUIRE_GPU", value_parser = BoolishValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub require_gpu: bool,
    /// The GPU to use, by CUDA's number for it; default: all
    #[arg(long, env = "PLUMBLINE_DEVICE", value_name = "N")]
    pub device: Option<u32>,
    /// Make every call at least so many times; the bits must be the same
    #[arg(long, env = "PLUMBLINE_RUNS", value_name = "N", default_value_t = Contract::default().runs, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub runs: u32,
    /// Judge so many of the algorithms that cuBLASLt offers for each product, one by one
    #[arg(long, env = "PLUMBLINE_ALGORITHMS", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub algorithms: u32,
    /// Allocate exactly the bytes of each tensor, with no guard zones around them, for a
    /// tool that watches allocations
    #[arg(long, env = "PLUMBLINE_EXACT_ALLOCATIONS", hide = true, value_parser = BoolishValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub exact_allocations: bool,
    /// Whether each case must prove that it can fail: in every profile but `quick`, always or never
    #[arg(long, env = "PLUMBLINE_VACUITY", value_enum, default_value = "auto")]
    pub vacuity: Vacuity,
    /// Judge a deliberately wrong backend instead, to see what a failure looks like
    #[arg(long, value_enum, value_name = "FAULT", num_args = 0..=1, require_equals = true,
          default_missing_value = "cast_465_to_nan")]
    pub demo_fault: Option<DemoFault>,
}

/// As if no option were given.
impl Default for Selection {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            profile: Profile::Quick,
            cases: None,
            weights: None,
            seed: 0,
            partition: None,
            require_gpu: false,
            device: None,
            runs: Contract::default().runs,
            algorithms: 0,
            exact_allocations: false,
            vacuity: Vacuity::Auto,
            demo_fault: None,
        }
    }
}

impl Selection {
    /// Whether each case must prove that it can fail.
    #[must_use]
    pub fn proves(&self) -> bool {
        match self.vacuity {
            Vacuity::Auto => self.profile != Profile::Quick,
            Vacuity::Always => true,
            Vacuity::Never => false,
        }
    }

    /// Options of a command line that selects the same trials, those of all parts, on
    /// that device.
    pub(crate) fn arguments(&self, device: Option<u32>) -> Vec<OsString> {
        let backend = self.backend.to_possible_value();
        let backend = backend.as_ref().map_or("auto", |value| value.get_name());
        let mut options = vec![
            format!("--backend={backend}").into(),
            format!("--profile={}", self.profile).into(),
            format!("--seed={}", self.seed).into(),
            format!("--runs={}", self.runs).into(),
            format!("--algorithms={}", self.algorithms).into(),
            format!("--vacuity={}", if self.proves() { "always" } else { "never" }).into(),
        ];
        if self.exact_allocations {
            options.push("--exact-allocations".into());
        }
        if let Some(cases) = &self.cases {
            let mut option = OsString::from("--cases=");
            option.push(cases);
            options.push(option);
        }
        if let Some(weights) = &self.weights {
            let mut option = OsString::from("--weights=");
            option.push(weights);
            options.push(option);
        }
        options.extend(device.or(self.device).map(|device| format!("--device={device}").into()));
        options.extend(self.demo_fault.map(|fault| format!("--demo-fault={fault}").into()));
        options
    }

    /// The variables that stand for options.
    pub(crate) fn variables() -> Vec<OsString> {
        let options = Self::augment_args(clap::Command::new("selection"));
        options.get_arguments().filter_map(clap::Arg::get_env).map(OsStr::to_owned).collect()
    }
}

/// Whether each case must prove that it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Vacuity {
    /// In every profile but `quick`
    Auto,
    /// In every profile
    Always,
    /// In none
    Never,
}

/// Which backends to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendChoice {
    /// The reference's own paths and the second opinions that run on the CPU
    Cpu,
    /// CUDA only; an error where it is missing
    Cuda,
    /// All that this machine has
    Auto,
}

/// Part `k` of `n`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    k: u64,
    n: u64,
}

impl Partition {
    /// Whether the trial of that name belongs to the part.
    #[must_use]
    pub const fn holds(self, name: &str) -> bool {
        seed::mix(seed::hash(name), 0) % self.n == self.k - 1
    }

    /// The part of a range, contiguous.
    #[must_use]
    pub fn of(self, range: Range<u64>) -> Range<u64> {
        let len = u128::from(range.end - range.start);
        let at = |k: u64| range.start + (len * u128::from(k) / u128::from(self.n)) as u64;
        at(self.k - 1)..at(self.k)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.k, self.n)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((k, n)) if 1 <= k && k <= n => Ok(Self { k, n }),
            _ => Err("write K/N with 1 <= K <= N, like 1/4".to_owned()),
        }
    }
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A case file is wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A waiver is wrong.
    #[error(transparent)]
    Waiver(#[from] WaiverError),
    /// A model cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The folder of fixtures was not found.
    #[error(
        "no fixtures: looked for a folder `fixtures` beside the executable and the current folder and above them; \
         set PLUMBLINE_FIXTURES to it"
    )]
    NoFixtures,
    /// A GPU was asked for.
    #[error(transparent)]
    NoGpu(#[from] plumbline_gpu::device::NoDevice),
    /// Another GPU was asked for than there are.
    #[error("no usable GPU has the number {device}, only {there:?}; `plumbline doctor` shows what was found")]
    NoSuchDevice {
        /// The number asked for.
        device: u32,
        /// The numbers of those that there are.
        there: Vec<u32>,
    },
    /// A fault that only the CPU shows.
    #[error(
        "`--demo-fault={fault}` is a fault of the CPU; with `--backend cuda` there are {}",
        DemoFault::names_on_cuda()
    )]
    NoSuchDefect {
        /// The fault.
        fault: DemoFault,
    },
    /// Nothing is left to run.
    #[error("{0}")]
    NothingToRun(String),
}

/// A backend under judgement.
#[derive(Clone)]
pub struct Subject {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// How its NaNs compare where a case does not say.
    pub nan: NanJudge,
    /// The variant that is itself an oracle: it is not judged by what it computes.
    pub oracle: Option<(Against, &'static str)>,
    /// Whether its trials run in worker processes unless the user says otherwise: it can
    /// end its process, block it, or make it useless.
    pub isolated: bool,
    /// Numbers of the devices that it runs on, one worker process each. Empty where it
    /// needs no device: then there are as many as trials at once.
    pub devices: Vec<u32>,
    /// How its calls are made.
    pub contract: Contract,
}

impl Subject {
    /// A backend from elsewhere, whose NaNs need only be NaN.
    pub fn foreign(backend: impl Backend + 'static) -> Self {
        Self::shared(Arc::new(backend))
    }

    /// The same of a backend that is shared already.
    #[must_use]
    pub fn shared(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            nan: NanJudge::Class,
            oracle: None,
            isolated: false,
            devices: Vec::new(),
            contract: Contract::default(),
        }
    }

    /// An oracle, and what must equal it bit for bit. It does its calls as they are queued.
    fn with_oracle(backend: impl Backend + 'static, oracle: Against, variant: &'static str) -> Self {
        let contract = Contract { queues: false, ..Contract::default() };
        Self { nan: NanJudge::Bits, oracle: Some((oracle, variant)), contract, ..Self::foreign(backend) }
    }
}

/// The folder of fixtures: `PLUMBLINE_FIXTURES`, or `fixtures` beside or above the
/// executable, or in or above the current folder.
pub fn fixtures() -> Result<PathBuf, SetupError> {
    let is_fixtures = |folder: &PathBuf| folder.join("cases").is_dir();
    if let Some(folder) = std::env::var_os("PLUMBLINE_FIXTURES") {
        return Some(PathBuf::from(folder)).filter(is_fixtures).ok_or(SetupError::NoFixtures);
    }
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    let above =
        starts.iter().flatten().flat_map(|start| start.ancestors()).map(|folder| folder.join("fixtures"));
    above.into_iter().find(is_fixtures).map(shorten).ok_or(SetupError::NoFixtures)
}

/// Relative to the current folder where it lies in it, as people read it.
fn shorten(path: PathBuf) -> PathBuf {
    let relative =
        std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).map(Path::to_owned).ok());
    relative.unwrap_or(path)
}

/// Starts the threads of operations, with room: one that waits for its part of an operation takes up
/// parts of other trials' meanwhile, on top of its stack. Where there are threads already, they stay.
pub fn start_threads() {
    let _ = rayon::ThreadPoolBuilder::new().stack_size(64 << 20).build_global();
}

/// The backends that a selection asks for.
pub fn subjects(selection: &Selection) -> Result<Vec<Subject>, SetupError> {
    let mut contract = Contract { runs: selection.runs, ..Contract::default() };
    if selection.exact_allocations {
        contract.guard = 0;
    }
    let with = |subject: Subject| {
        let contract = Contract { queues: subject.contract.queues, ..contract };
        Subject { contract, ..subject }
    };
    Ok(backends(selection)?.into_iter().map(with).collect())
}

/// What fuzzing judges besides the backends that a selection asks for: on the CPU, bounds of products.
/// Cases that say which bits are right have no use for it.
#[must_use]
pub fn also_fuzzed(selection: &Selection) -> Option<Subject> {
    let is_right = selection.backend != BackendChoice::Cuda && selection.demo_fault.is_none();
    is_right.then(|| Subject::foreign(Reordered))
}

fn backends(selection: &Selection) -> Result<Vec<Subject>, SetupError> {
    if selection.require_gpu || selection.backend == BackendChoice::Cuda {
        plumbline_gpu::device::require()?;
    }
    if selection.backend == BackendChoice::Cuda {
        return cuda(selection);
    }
    if let Some(fault) = selection.demo_fault {
        let isolated = fault.needs_isolation();
        return Ok(vec![Subject { isolated, ..Subject::shared(demo_fault(fault)) }]);
    }
    let cuda = if selection.backend == BackendChoice::Cpu { Vec::new() } else { cuda(selection)? };
    let mut subjects = vec![
        Subject::with_oracle(Cpu, Against::Definition, "definition"),
        Subject::with_oracle(Playback::h200().clone(), Against::H200, Playback::VARIANT),
    ];
    if selection.cases.is_none() {
        // Second opinions on the reference, whose known faults are waived in its own cases;
        // on cases of the user's own they would only repeat those faults.
        subjects.extend([Subject::foreign(Float8), Subject::foreign(Half)]);
    }
    subjects.extend(cuda);
    Ok(subjects)
}

/// The project's own kernels, where there is a CUDA device: on the one asked for, or on all
/// that are like the first.
fn cuda(selection: &Selection) -> Result<Vec<Subject>, SetupError> {
    let device = selection.device;
    let probe = plumbline_gpu::device::probe();
    match probe.usable() {
        Err(why) if device.is_some() => return Err(why.into()),
        Err(_) => return Ok(Vec::new()),
        Ok(_) => (),
    }
    let number = |found: &DeviceInfo| found.ordinal;
    let wanted = |found: &&DeviceInfo| device.is_none_or(|device| device == found.ordinal);
    let Some(first) = probe.devices.iter().find(wanted) else {
        let there = probe.devices.iter().map(number).collect();
        return device.map_or(Ok(Vec::new()), |device| Err(SetupError::NoSuchDevice { device, there }));
    };
    let like_first = |found: &&DeviceInfo| {
        (&found.name, found.compute_capability) == (&first.name, first.compute_capability)
    };
    let mut cuda = Cuda::new(probe, first, Cache::of_user()).with_algorithms(selection.algorithms);
    if let Some(fault) = selection.demo_fault {
        cuda = cuda.with_defect(fault.on_cuda().ok_or(SetupError::NoSuchDefect { fault })?);
    }
    Ok(vec![Subject {
        nan: NanJudge::Bits,
        isolated: true,
        devices: probe.devices.iter().filter(wanted).filter(like_first).map(number).collect(),
        ..Subject::foreign(cuda)
    }])
}
