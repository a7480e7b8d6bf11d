//! What this machine offers for CUDA, found out without a panic.
//!
//! cudarc panics when a library or a symbol is missing, so nothing of it may be
//! called before [`probe`] has found the library that the call lives in:
//! [`require`] for the driver, [`Probe::nvrtc`], [`Probe::cublas`] and
//! [`Probe::cublaslt`] for the others. An older library may still lack a function:
//! its version is there to be judged.

mod loader;

use crate::module::SM_80;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::fmt;
use std::sync::OnceLock;

/// A library's or the driver's version, as its maker writes it: `13.0`, `13.1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number, where the library tells it.
    pub patch: Option<u32>,
}

/// The oldest CUDA whose functions and results are those that are called here.
const OLDEST_CUDA: Version = Version { major: 13, minor: 0, patch: None };

impl Version {
    /// From CUDA's own encoding, in which 13000 is 13.0.
    fn from_cuda(code: u32) -> Self {
        Version { major: code / 1000, minor: code % 1000 / 10, patch: None }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        match self.patch {
            Some(patch) => write!(f, ".{patch}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The libraries that are loaded at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Component {
    /// The driver's library, which comes with the driver and not with the toolkit.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// cuBLAS.
    Cublas,
    /// cuBLASLt.
    CublasLt,
}

impl Component {
    /// The stems of the file's name, as cudarc has them and in its order.
    fn stems(self) -> &'static [&'static str] {
        match self {
            Component::Driver => &["cuda", "nvcuda"],
            Component::Nvrtc => &["nvrtc"],
            Component::Cublas => &["cublas"],
            Component::CublasLt => &["cublasLt"],
        }
    }

    /// Every file name that is tried, in order: the first that loads is the one
    /// that cudarc loads.
    fn candidates(self) -> Vec<String> {
        let stems = self.stems().iter();
        stems.flat_map(|stem| cudarc::get_lib_name_candidates(stem)).collect()
    }

    /// The one name among the candidates that a user knows it by.
    fn file(self) -> &'static str {
        match self {
            Component::Driver => "libcuda.so.1",
            Component::Nvrtc => "libnvrtc.so.13",
            Component::Cublas => "libcublas.so.13",
            Component::CublasLt => "libcublasLt.so.13",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Component::Driver => "CUDA driver",
            Component::Nvrtc => "NVRTC",
            Component::Cublas => "cuBLAS",
            Component::CublasLt => "cuBLASLt",
        })
    }
}

/// Why something of CUDA cannot be used. Displays as the cause in a few words;
/// [`Fault::remedy`] says what to do. Serialized with both.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No file of any of the names is on the loader's path.
    #[error("{} not found", .component.file())]
    NotFound {
        /// What was looked for.
        component: Component,
        /// Every name tried.
        tried: Vec<String>,
    },
    /// A file is there and the loader refuses it: not a library, made for
    /// another processor, or a library that it needs is missing.
    #[error("{file} does not load: {reason}")]
    NotLoadable {
        /// What was looked for.
        component: Component,
        /// The file's name.
        file: String,
        /// The loader's words.
        reason: String,
    },
    /// The library lacks a function, so it is another or an older one.
    #[error("{file} has no function {symbol}")]
    NoSymbol {
        /// What was looked for.
        component: Component,
        /// The file's name.
        file: String,
        /// The function.
        symbol: &'static str,
    },
    /// A call returned an error.
    #[error("{call}{} gave {error}", OfDevice(*.device))]
    Call {
        /// Whose function it is.
        component: Component,
        /// The function.
        call: &'static str,
        /// The device it asked about.
        device: Option<u32>,
        /// The status.
        code: i32,
        /// The status's name: `CUDA_ERROR_NO_DEVICE`.
        error: String,
    },
    /// The driver works and lists no device.
    #[error("the driver lists no device")]
    NoDevice,
    /// A library or the driver is older than what is called needs.
    #[error("{component} {found} is older than {needed}")]
    TooOld {
        /// What is too old.
        component: Component,
        /// Its version; of the driver, the newest CUDA that it runs.
        found: Version,
        /// The oldest that serves.
        needed: Version,
    },
    /// A device is older than any that the kernels are for.
    #[error("{name} is {found}, older than {needed}")]
    OldDevice {
        /// The device.
        name: String,
        /// Its compute capability.
        found: ComputeCapability,
        /// The oldest that serves.
        needed: ComputeCapability,
    },
}

struct OfDevice(Option<u32>);

impl fmt::Display for OfDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ordinal) => write!(f, " of device {ordinal}"),
            None => Ok(()),
        }
    }
}

/// Statuses of the driver that have a remedy of their own.
const STUB_LIBRARY: i32 = 34;
const NO_DEVICE: i32 = 100;
const SYSTEM_DRIVER_MISMATCH: i32 = 803;
const COMPAT_NOT_SUPPORTED_ON_DEVICE: i32 = 804;

const MAKE_VISIBLE: &str = "make a GPU visible (see `nvidia-smi`, CUDA_VISIBLE_DEVICES and a \
                            container's `--gpus all`)";

impl Fault {
    /// What the user can do about it: one clause, without a full stop.
    pub fn remedy(&self) -> &'static str {
        use Component::{Cublas, CublasLt, Driver, Nvrtc};
        match self {
            Fault::NotFound { .. } if cfg!(target_os = "macos") => "use a Linux machine with an NVIDIA GPU",
            Fault::NotFound { component, .. } => match component {
                Driver => {
                    "install the NVIDIA driver (package `nvidia-driver`, your cloud image's, or \
                     in a container `--gpus all`)"
                }
                Nvrtc => {
                    "install CUDA toolkit >= 13, or `pip install nvidia-cuda-nvrtc` and add its \
                     folder to LD_LIBRARY_PATH"
                }
                Cublas | CublasLt => {
                    "install CUDA toolkit >= 13, or `pip install nvidia-cublas` and add its \
                     folder to LD_LIBRARY_PATH"
                }
            },
            Fault::NotLoadable { component, .. } | Fault::NoSymbol { component, .. } => match component {
                Driver => "put the NVIDIA driver's own library in that file's place",
                Nvrtc | Cublas | CublasLt => {
                    "put the folder of a complete CUDA toolkit >= 13 first in LD_LIBRARY_PATH"
                }
            },
            Fault::Call { component: Driver, code, .. } => match *code {
                STUB_LIBRARY => "take the CUDA toolkit's `stubs` folder out of LD_LIBRARY_PATH",
                NO_DEVICE => MAKE_VISIBLE,
                SYSTEM_DRIVER_MISMATCH => {
                    "reboot, so that the kernel module and the driver's library are of one version"
                }
                COMPAT_NOT_SUPPORTED_ON_DEVICE => {
                    "take CUDA's `compat` folder out of LD_LIBRARY_PATH, or update the driver"
                }
                _ => "check the driver with `nvidia-smi`",
            },
            Fault::TooOld { component: Driver, .. } => "update the NVIDIA driver to one for CUDA >= 13",
            Fault::TooOld { .. } => "install CUDA toolkit >= 13 and put its folder first in LD_LIBRARY_PATH",
            Fault::OldDevice { .. } => "use a GPU of compute capability 8.0 or newer",
            Fault::Call { .. } => "reinstall CUDA toolkit >= 13",
            Fault::NoDevice => MAKE_VISIBLE,
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("cause", &self.to_string())?;
        map.serialize_entry("remedy", self.remedy())?;
        match self {
            Fault::NotFound { tried, .. } => map.serialize_entry("tried", tried)?,
            Fault::NotLoadable { file, reason, .. } => {
                map.serialize_entry("file", file)?;
                map.serialize_entry("reason", reason)?;
            }
            Fault::NoSymbol { file, symbol, .. } => {
                map.serialize_entry("file", file)?;
                map.serialize_entry("symbol", symbol)?;
            }
            Fault::Call { call, device, code, error, .. } => {
                map.serialize_entry("call", call)?;
                if let Some(device) = device {
                    map.serialize_entry("device", device)?;
                }
                map.serialize_entry("code", code)?;
                map.serialize_entry("error", error)?;
            }
            Fault::NoDevice | Fault::TooOld { .. } | Fault::OldDevice { .. } => {}
        }
        map.end()
    }
}

/// The driver that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverInfo {
    /// The newest CUDA that it runs.
    pub cuda: Version,
    /// Version of the kernel module: `580.159.04`. Absent where the system does
    /// not tell it (WSL, some sandboxes).
    pub kernel: Option<String>,
    /// The file's name that was loaded.
    pub file: String,
}

/// A library that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Its version. Names without a version are tried first, so it can be older
    /// than 13.
    pub version: Version,
    /// The file's name that was loaded.
    pub file: String,
}

/// A device's compute capability; displays as `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ComputeCapability {
    /// First number: 9 for Hopper.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// A device that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// CUDA's number for it in this process; CUDA_VISIBLE_DEVICES changes it.
    pub ordinal: u32,
    /// `NVIDIA H200`.
    pub name: String,
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// All of its memory, used or not.
    pub memory_bytes: u64,
    /// UUID in lower case, without the prefix that `nvidia-smi` puts before it.
    pub uuid: Option<String>,
}

impl DeviceInfo {
    /// What two devices of one kind have in common.
    fn kind(&self) -> String {
        format!("{}, {}, {} SMs", self.name, self.compute_capability, self.multiprocessors)
    }
}

/// What this machine offers for CUDA.
///
/// Without a driver there are no devices. With one there is a device or a fault
/// that says why not. The libraries are looked for in either case. Displays as
/// one line; serialized, a part that is missing has `cause` and `remedy` in
/// place of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The driver.
    #[serde(serialize_with = "either")]
    pub driver: Result<DriverInfo, Fault>,
    /// The usable devices, in CUDA's order.
    pub devices: Vec<DeviceInfo>,
    /// Why there is no device, or why one is left out.
    pub device_faults: Vec<Fault>,
    /// The run-time compiler.
    #[serde(serialize_with = "either")]
    pub nvrtc: Result<Library, Fault>,
    /// cuBLAS.
    #[serde(serialize_with = "either")]
    pub cublas: Result<Library, Fault>,
    /// cuBLASLt.
    #[serde(serialize_with = "either")]
    pub cublaslt: Result<Library, Fault>,
}

/// Without serde's `Ok` and `Err` around it.
fn either<T: Serialize, S: Serializer>(value: &Result<T, Fault>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Ok(present) => present.serialize(serializer),
        Err(fault) => fault.serialize(serializer),
    }
}

/// No device can be used. Displays as one line of cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no CUDA device: {fault}; {}", .fault.remedy())]
pub struct NoDevice {
    /// Why.
    pub fault: Fault,
}

impl Probe {
    /// The first usable device.
    pub fn require(&self) -> Result<&DeviceInfo, NoDevice> {
        self.devices.first().ok_or_else(|| NoDevice { fault: self.no_device().clone() })
    }

    /// The first device that the kernels run on, with a driver and a compiler that are new
    /// enough for what is called of them.
    pub fn usable(&self) -> Result<&DeviceInfo, NoDevice> {
        let no_device = |fault: Fault| NoDevice { fault };
        let device = self.require()?;
        for component in [Component::Driver, Component::Nvrtc] {
            self.recent(component).map_err(no_device)?;
        }
        if device.compute_capability < SM_80 {
            let (name, found) = (device.name.clone(), device.compute_capability);
            return Err(no_device(Fault::OldDevice { name, found, needed: SM_80 }));
        }
        Ok(device)
    }

    /// Whether a library is there and new enough for what is called of it.
    pub(crate) fn recent(&self, library: Component) -> Result<(), Fault> {
        let found = match library {
            Component::Driver => self.driver.as_ref().map(|driver| driver.cuda),
            Component::Nvrtc => self.nvrtc.as_ref().map(|library| library.version),
            Component::Cublas => self.cublas.as_ref().map(|library| library.version),
            Component::CublasLt => self.cublaslt.as_ref().map(|library| library.version),
        };
        match found.map_err(Clone::clone)? {
            found if found < OLDEST_CUDA => {
                Err(Fault::TooOld { component: library, found, needed: OLDEST_CUDA })
            }
            _ => Ok(()),
        }
    }

    /// Why there is no device, if there is none.
    fn no_device(&self) -> &Fault {
        match &self.driver {
            Err(fault) => fault,
            Ok(_) => self.device_faults.first().unwrap_or(&Fault::NoDevice),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = match &self.driver {
            Ok(driver) => driver,
            Err(fault) => return write!(f, "CUDA: no driver ({fault}); {}", fault.remedy()),
        };
        let mut remedies = Vec::new();
        if self.devices.is_empty() {
            let fault = self.no_device();
            write!(f, "CUDA: no device ({fault})")?;
            remedies.push(fault.remedy());
        }
        let kinds: Vec<String> = self.devices.iter().map(DeviceInfo::kind).collect();
        for (index, same) in kinds.chunk_by(PartialEq::eq).enumerate() {
            let separator = if index == 0 { "" } else { " + " };
            match same {
                [kind] => write!(f, "{separator}{kind}")?,
                _ => write!(f, "{separator}{} x {}", same.len(), same[0])?,
            }
        }
        match &driver.kernel {
            Some(kernel) => write!(f, ", driver {kernel} (CUDA {})", driver.cuda)?,
            None => write!(f, ", driver for CUDA {}", driver.cuda)?,
        }
        for (component, library) in [
            (Component::Nvrtc, &self.nvrtc),
            (Component::Cublas, &self.cublas),
            (Component::CublasLt, &self.cublaslt),
        ] {
            match library {
                Ok(library) => write!(f, ", {component} {}", library.version)?,
                Err(fault) => {
                    write!(f, ", no {component} ({fault})")?;
                    remedies.push(fault.remedy());
                }
            }
        }
        if !self.devices.is_empty() {
            for fault in &self.device_faults {
                write!(f, ", left out: {fault}")?;
                remedies.push(fault.remedy());
            }
        }
        // cuBLAS and cuBLASLt come together, and so do their remedies.
        remedies.dedup();
        remedies.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

/// What this machine offers for CUDA. The first call loads the libraries and
/// starts the driver; the libraries stay loaded and the answer is kept.
pub fn probe() -> &'static Probe {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    PROBE.get_or_init(|| {
        let (driver, devices, device_faults) = match loader::driver(kernel_version()) {
            Err(fault) => (Err(fault), Vec::new(), Vec::new()),
            Ok((driver, Ok((devices, faults)))) => (Ok(driver), devices, faults),
            Ok((driver, Err(fault))) => (Ok(driver), Vec::new(), vec![fault]),
        };
        Probe {
            driver,
            devices,
            device_faults,
            nvrtc: loader::nvrtc(),
            cublas: loader::blas(Component::Cublas),
            cublaslt: loader::blas(Component::CublasLt),
        }
    })
}

/// The first device of this machine that the kernels run on.
pub fn require() -> Result<&'static DeviceInfo, NoDevice> {
    probe().usable()
}

fn kernel_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    parse_kernel_version(&text)
}

/// The module's name before the version differs between the open and the closed
/// module and between processors, so the version is the first word of the line
/// that is numbers and dots.
fn parse_kernel_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    line.split_whitespace()
        .find(|word| word.contains('.') && word.split('.').all(is_number))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests;
