//! Fast paths: the operations of the cast family, GGML blocks and matrix products on SIMD
//! registers.
//!
//! The definition says what is right and is written to be read; the code here says
//! the same to a processor, and tests prove that no bit differs. Nothing is shared
//! but the codes of special values, which are asked of the definition.
//!
//! Every algorithm is written once, over a register of 32-bit lanes. In a cast, a
//! source is widened to the bits of f32 lane by lane, scaled if the operation says
//! so, and encoded; in a product, lanes are columns. [`Simd`] picks the register at run time: AVX-512, AVX2, or
//! arrays that the compiler vectorises for its baseline (SSE2, NEON).
//!
//! `unsafe` is what registers cost: the intrinsics of an instruction set may run
//! only where it exists. Each register's type is the proof that it does, so unsafe
//! code is confined to the registers' own files, the dispatch below, and output
//! memory that is written without being zeroed first.

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod conversion;
mod functions;
mod general;
mod lanes;
mod magnitude;
mod nearest;
mod output;
mod portable;
mod product;
mod rows;
mod source;
mod target;

pub(crate) use attention::{add_weighted, scores};
pub(crate) use blocks::{Vectors, dequantized};
pub use blocks::{dequantize, dequantize_parallel};
pub use conversion::Conversion;
pub(crate) use conversion::Scale;
pub(crate) use functions::{Function, map};
pub(crate) use magnitude::Magnitude;
pub(crate) use product::{Factor, Plan, exact};
pub(crate) use rows::{Row, rows};

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use lanes::Lanes;
use portable::Portable;

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable(Portable),
}

impl Simd {
    /// Every instruction set that this processor has, the fastest first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let native = [Avx512::detect().map(Isa::Avx512), Avx2::detect().map(Isa::Avx2)];
        #[cfg(not(target_arch = "x86_64"))]
        let native = [None];
        native.into_iter().flatten().chain([Isa::Portable(Portable)]).map(Self)
    }

    /// The fastest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::all().next().unwrap_or(Self(Isa::Portable(Portable)))
    }

    /// `avx512`, `avx2` or `portable`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            Isa::Portable(_) => "portable",
        }
    }

    /// Runs a kernel compiled for the instruction set.
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(lanes) => avx512::run(lanes, kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(lanes) => avx2::run(lanes, kernel),
            Isa::Portable(lanes) => kernel.run(lanes),
        }
    }
}

/// A loop over memory, compiled once for each instruction set.
///
/// `run` and all that it calls on lanes must be `#[inline(always)]` and free of
/// closures: code that is not inlined into the dispatching function is compiled
/// without the instruction set.
trait Kernel {
    /// What it returns.
    type Output;

    /// The loop.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}
