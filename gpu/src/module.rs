//! Kernels: CUDA C++ in `kernels/`, compiled by NVRTC for one architecture.
//!
//! A [`Unit`] is one source with the constants that are baked into it. Compiled code is
//! kept on disk, keyed by everything that went into it.

mod cache;
mod nvrtc;

pub use cache::Cache;

use crate::device::{ComputeCapability, Fault, Library, Version, probe};
use crate::error::CudaError;
use plumbline_reference::block::{BlockFormat, E2M1_DOUBLED, IQ4};
use plumbline_reference::format::{ALL, Format, Specials};
use plumbline_reference::math;
use plumbline_reference::ops::{gelu_tanh, quick_gelu};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread;

/// A source file with its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the file without `.cu`.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
}

/// The headers that sources include, with the one that is made from the reference's table.
static HEADERS: LazyLock<[(&str, String); 17]> = LazyLock::new(|| {
    [
        ("activation.cuh", include_str!("../kernels/activation.cuh").to_owned()),
        ("blocks.cuh", include_str!("../kernels/blocks.cuh").to_owned()),
        ("constants.cuh", constants()),
        ("cvt.cuh", include_str!("../kernels/cvt.cuh").to_owned()),
        ("elementwise.cuh", include_str!("../kernels/elementwise.cuh").to_owned()),
        ("fast.cuh", include_str!("../kernels/fast.cuh").to_owned()),
        ("format.cuh", include_str!("../kernels/format.cuh").to_owned()),
        ("formats.cuh", formats()),
        ("gemv.cuh", include_str!("../kernels/gemv.cuh").to_owned()),
        ("layouts.cuh", layouts()),
        ("math.cuh", include_str!("../kernels/math.cuh").to_owned()),
        ("mx.cuh", include_str!("../kernels/mx.cuh").to_owned()),
        ("number.cuh", include_str!("../kernels/number.cuh").to_owned()),
        ("row.cuh", include_str!("../kernels/row.cuh").to_owned()),
        ("scale.cuh", include_str!("../kernels/scale.cuh").to_owned()),
        ("softmax.cuh", include_str!("../kernels/softmax.cuh").to_owned()),
        ("tile.cuh", include_str!("../kernels/tile.cuh").to_owned()),
    ]
});

/// A format's constant in `formats.cuh`.
#[must_use]
pub fn constant(format: Format) -> String {
    format.name.to_uppercase()
}

/// `formats.cuh`: one constant per format of the reference.
fn formats() -> String {
    let mut text = "#pragma once\n".to_owned();
    for format in ALL {
        let specials = match format.specials {
            Specials::Ieee => "Ieee",
            Specials::NanAllOnes => "NanAllOnes",
            Specials::NanNegativeZero => "NanNegativeZero",
            Specials::None => "None",
        };
        let Format {
            signed, exponent_bits, fraction_bits, bias, subnormals, storage_bits, low_padding, ..
        } = format;
        let name = constant(format);
        let _ = writeln!(
            text,
            "constexpr Format {name} = {{{signed}, {exponent_bits}, {fraction_bits}, {bias}, \
             Specials::{specials}, {subnormals}, {storage_bits}, {low_padding}}};"
        );
    }
    text
}

/// A block format's structure in `blocks.cuh`.
#[must_use]
pub fn block_constant(format: BlockFormat) -> String {
    format.name().to_uppercase()
}

/// `layouts.cuh`: sizes, groups and the byte at which each field begins, of every block format of
/// the reference, and the tables of those whose nibbles are looked up.
fn layouts() -> String {
    let mut text = "#pragma once\n".to_owned();
    for format in BlockFormat::ALL {
        let layout = format.layout();
        let any = format.unpack(&vec![0; layout.bytes]);
        let group = any.group.min(layout.values);
        let numbers = [("VALUES", layout.values), ("BYTES", layout.bytes), ("GROUP", group)];
        let fields = layout.offsets().map(|(at, field)| (field.name, at));
        let constants: Vec<_> =
            numbers.into_iter().chain(fields).map(|(name, value)| format!("{name} = {value}")).collect();
        let _ = writeln!(
            text,
            "struct Layout_{} {{\n    static constexpr int {};\n    static constexpr bool HAS_MINS = {};\n}};",
            block_constant(format),
            constants.join(", "),
            any.m.is_some(),
        );
    }
    for (name, table) in [("IQ4", IQ4), ("E2M1_DOUBLED", E2M1_DOUBLED)] {
        let values = table.map(|value| value.to_string()).join(", ");
        let _ = writeln!(text, "__device__ constexpr signed char {name}[16] = {{{values}}};");
    }
    text
}

/// `constants.cuh`: those of the canonical functions. Rust writes the shortest decimals that are
/// read back as the same number.
fn constants() -> String {
    let mut text = "#pragma once\n".to_owned();
    let mut scalar = |name: &str, ty: &str, value: String| {
        let _ = writeln!(text, "__device__ constexpr {ty} {name} = {value};");
    };
    let floats = [
        ("LOG2_E", math::LOG2_E),
        ("LN_2_F32", std::f32::consts::LN_2),
        ("TWO_OVER_PI", math::TWO_OVER_PI),
        ("FLT_LARGEST", f32::MAX),
        ("QUICK_GELU", quick_gelu::FACTOR),
        ("GELU_LINEAR", gelu_tanh::LINEAR),
        ("GELU_CUBIC", gelu_tanh::CUBIC),
    ];
    for (name, value) in floats {
        scalar(name, "float", format!("{value:e}f"));
    }
    let doubles = [
        ("LN_2_F64", std::f64::consts::LN_2),
        ("LOG2_E_F64", std::f64::consts::LOG2_E),
        ("TWO_OVER_PI_F64", math::TWO_OVER_PI_F64),
    ];
    for (name, value) in doubles {
        scalar(name, "double", format!("{value:e}"));
    }
    let mut table = |name: &str, ty: &str, values: Vec<String>| {
        let (count, values) = (values.len(), values.join(", "));
        let _ = writeln!(text, "__device__ constexpr {ty} {name}[{count}] = {{{values}}};");
    };
    let tables: [(&str, &[f32]); 12] = [
        ("LN_2", &math::LN_2),
        ("EXP", &math::EXP),
        ("EXP2", &math::EXP2),
        ("TANH", &math::TANH),
        ("ERF", &math::ERF),
        ("ERF_TAIL", &math::ERF_TAIL),
        ("NORMAL", &math::NORMAL),
        ("NORMAL_TAIL", &math::NORMAL_TAIL),
        ("LOG", &math::LOG),
        ("PI_HALVES", &math::PI_HALVES),
        ("SIN", &math::SIN),
        ("COS", &math::COS),
    ];
    for (name, values) in tables {
        table(name, "float", values.iter().map(|value| format!("{value:e}f")).collect());
    }
    let tables: [(&str, &[f64]); 4] = [
        ("PI_HALVES_F64", &math::PI_HALVES_F64),
        ("SIN_F64", &math::SIN_F64),
        ("COS_F64", &math::COS_F64),
        ("EXP_F64", &math::EXP_F64),
    ];
    for (name, values) in tables {
        table(name, "double", values.iter().map(|value| format!("{value:e}")).collect());
    }
    let words = math::TWO_OVER_PI_BITS.map(|word| format!("{word:#x}"));
    table("TWO_OVER_PI_BITS", "unsigned", words.to_vec());
    text
}

/// A source with its constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The source.
    pub source: Source,
    /// Names and values of the constants.
    pub defines: Vec<(&'static str, String)>,
    /// The oldest architecture that has its instructions.
    pub since: ComputeCapability,
    /// Whether no other architecture has them: the target is then `sm_90a`, not `sm_90`.
    pub is_specific: bool,
}

/// `__reduce_max_sync` and conversions to bf16 came with it; older devices are not supported.
pub const SM_80: ComputeCapability = ComputeCapability { major: 8, minor: 0 };
/// FP8 conversions.
pub const SM_89: ComputeCapability = ComputeCapability { major: 8, minor: 9 };
/// Hopper.
pub const SM_90: ComputeCapability = ComputeCapability { major: 9, minor: 0 };
/// Blackwell.
pub const SM_100: ComputeCapability = ComputeCapability { major: 10, minor: 0 };

/// The architectures that every kernel is compiled for where there is no device.
pub const ARCHITECTURES: [ComputeCapability; 4] = [SM_80, SM_89, SM_90, SM_100];

impl Unit {
    /// A unit for every supported architecture.
    #[must_use]
    pub fn new(source: Source, defines: Vec<(&'static str, String)>) -> Self {
        Self { source, defines, since: SM_80, is_specific: false }
    }

    /// A unit for the conversion between two formats.
    pub(crate) fn between(source: Source, from: Format, to: Format) -> Self {
        Self::new(source, vec![("FROM", constant(from)), ("TO", constant(to))])
    }

    /// A unit for one format.
    pub(crate) fn from(source: Source, from: Format) -> Self {
        Self::new(source, vec![("FROM", constant(from))])
    }

    /// Whether it runs on that architecture.
    #[must_use]
    pub fn is_for(&self, arch: ComputeCapability) -> bool {
        if self.is_specific { self.since == arch } else { self.since <= arch }
    }

    /// The compiler's options for an architecture. Contraction, flushing to zero and
    /// approximate division are off: each changes results.
    fn options(&self, arch: ComputeCapability) -> Vec<String> {
        let fixed = [
            "--std=c++20",
            "--device-as-default-execution-space",
            "--fmad=false",
            "--ftz=false",
            "--prec-div=true",
            "--prec-sqrt=true",
            "--generate-line-info",
        ];
        let defines = self.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}"));
        let suffix = if self.is_specific { "a" } else { "" };
        let arch = format!("--gpu-architecture={arch}{suffix}");
        fixed.into_iter().map(str::to_owned).chain([arch]).chain(defines).collect()
    }

    /// Everything that goes into the compiled code. NVRTC does not tell the last number of its
    /// version, so two builds of one release share their code.
    fn key(&self, arch: ComputeCapability, compiler: Version) -> String {
        let mut key = format!("NVRTC {compiler}\n{}.cu\n{}\n", self.source.name, self.source.text);
        for (name, text) in HEADERS.iter() {
            let _ = write!(key, "{name}\n{text}\n");
        }
        for option in self.options(arch) {
            key += &option;
            key.push('\n');
        }
        key
    }

    /// Compiles to a CUBIN, or takes it from the cache.
    pub fn compile(&self, arch: ComputeCapability, cache: &Cache) -> Result<Vec<u8>, CudaError> {
        let compiler = compiler()?;
        let key = self.key(arch, compiler.version);
        if let Some(cubin) = cache.get(&key) {
            return Ok(cubin);
        }
        let cubin = nvrtc::compile(self, &self.options(arch), &HEADERS[..]).map_err(|error| match error {
            nvrtc::Error::Call(error) => error,
            nvrtc::Error::Log(log) => {
                CudaError::Compile { unit: self.to_string(), arch: arch.to_string(), log }
            }
        })?;
        cache.put(&key, &cubin);
        Ok(cubin)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu", self.source.name)?;
        for (i, (name, value)) in self.defines.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { " with " } else { ", " })?;
        }
        Ok(())
    }
}

/// Compiled units of one architecture, each compiled once however many ask for it.
pub(crate) struct Cubins {
    arch: ComputeCapability,
    cache: Cache,
    compiled: Mutex<HashMap<String, Arc<Compiled>>>,
}

type Compiled = OnceLock<Result<Vec<u8>, CudaError>>;

impl Cubins {
    pub(crate) fn new(arch: ComputeCapability, cache: Cache) -> Self {
        Self { arch, cache, compiled: Mutex::default() }
    }

    /// The code of a unit; waits where another thread compiles it.
    pub(crate) fn get(&self, unit: &Unit) -> Result<Vec<u8>, CudaError> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let of_unit = compiled.entry(unit.to_string()).or_default().clone();
        drop(compiled);
        of_unit.get_or_init(|| unit.compile(self.arch, &self.cache)).clone()
    }

    /// Compiles units in the background, in that order, on all processors but one.
    pub(crate) fn compile(self: &Arc<Self>, units: Vec<Unit>) {
        let units = Arc::new(units);
        let next = Arc::new(AtomicUsize::new(0));
        let threads = thread::available_parallelism().map_or(1, usize::from) - 1;
        for _ in 0..threads.max(1).min(units.len()) {
            let (cubins, units, next) = (self.clone(), units.clone(), next.clone());
            thread::spawn(move || {
                while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Whoever needs the unit is told what is wrong with it.
                    let _ = cubins.get(unit);
                }
            });
        }
    }
}

/// The run-time compiler, or why there is none.
pub fn compiler() -> Result<&'static Library, CudaError> {
    probe().nvrtc.as_ref().map_err(|fault: &Fault| CudaError::Missing(fault.clone()))
}

#[cfg(test)]
mod tests;
