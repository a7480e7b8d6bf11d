//! AVX2: eight lanes.
#![allow(unsafe_code)] // Intrinsics; several times the speed of the portable arrays.

use super::Kernel;
use super::lanes::{Lanes, Out};
use std::arch::x86_64::*;

const N: usize = 8;

/// Proof that the processor has AVX2, and F16C and FMA beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }
}

/// Runs a kernel compiled for AVX2.
pub(super) fn run<K: Kernel>(lanes: Avx2, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,f16c,fma")]
    fn compiled<K: Kernel>(lanes: Avx2, kernel: K) -> K::Output {
        kernel.run(lanes)
    }
    // SAFETY: an `Avx2` exists only where `detect` found these features.
    unsafe { compiled(lanes, kernel) }
}

/// A register-to-register intrinsic.
macro_rules! op {
    ($name:ident($($argument:ident: $Type:ty),*) -> $Result:ty = $body:expr) => {
        #[inline(always)]
        fn $name(self, $($argument: $Type),*) -> $Result {
            // SAFETY: `self` exists only where the processor has AVX2, F16C and FMA.
            unsafe { $body }
        }
    };
}

/// Writes a register, perhaps past the caches.
///
/// # Safety
/// The processor must have AVX2; `memory` must be valid for it, and aligned if `past`.
#[inline(always)]
unsafe fn put(memory: *mut __m256i, v: __m256i, past: bool) {
    // SAFETY: the caller vouches for it.
    unsafe { if past { _mm256_stream_si256(memory, v) } else { _mm256_storeu_si256(memory, v) } }
}

impl Lanes for Avx2 {
    type V = __m256i;
    /// All ones in a lane for true.
    type M = __m256i;
    type D = __m256d;
    const N: usize = N;
    const DOUBLES: usize = N / 2;
    const HAS_TO_F16: bool = true;

    #[inline(always)]
    fn load<const W: usize>(self, memory: &[u8]) -> __m256i {
        let memory = memory[..N * W].as_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 8 * W bytes that are read, by
        // instructions that need no alignment.
        unsafe {
            match W {
                1 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(memory.cast())),
                2 => _mm256_cvtepu16_epi32(_mm_loadu_si128(memory.cast())),
                _ => _mm256_loadu_si256(memory.cast()),
            }
        }
    }

    #[inline(always)]
    fn load_signed(self, memory: &[u8]) -> __m256i {
        let memory = memory[..N].as_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 8 bytes that are read.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(memory.cast())) }
    }

    #[inline(always)]
    fn store<const W: usize>(self, v: [__m256i; 4], memory: &mut Out, past: bool) {
        let memory = memory[..4 * N * W].as_mut_ptr().cast::<__m256i>();
        let past = past && memory.is_aligned();
        // SAFETY: `self` proves the feature; the slice holds the 32 * W bytes that are written,
        // and is aligned where that is needed.
        unsafe {
            match W {
                1 => {
                    // Packing works within each half of a register: dword j of half i of the
                    // result holds numbers of half i of v[j].
                    let pairs = (_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
                    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                    let bytes = _mm256_packus_epi16(pairs.0, pairs.1);
                    put(memory, _mm256_permutevar8x32_epi32(bytes, order), past);
                }
                2 => {
                    for half in 0..2 {
                        let words = _mm256_packus_epi32(v[2 * half], v[2 * half + 1]);
                        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
                        put(memory.add(half), words, past);
                    }
                }
                _ => {
                    for (i, v) in v.into_iter().enumerate() {
                        put(memory.add(i), v, past);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn prefetch(self, memory: *const u8) {
        // SAFETY: a hint reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(memory.cast()) }
    }

    op!(fence() -> () = _mm_sfence());
    op!(splat(x: u32) -> __m256i = _mm256_set1_epi32(x as i32));
    op!(add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b));
    op!(sub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b));
    op!(and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b));
    op!(or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b));
    op!(min(a: __m256i, b: __m256i) -> __m256i = _mm256_min_epu32(a, b));
    op!(max(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epu32(a, b));
    // Variable shifts by a constant register take one step, shifts by a scalar two.
    op!(shl(a: __m256i, count: u32) -> __m256i = _mm256_sllv_epi32(a, _mm256_set1_epi32(count as i32)));
    op!(shr(a: __m256i, count: u32) -> __m256i = _mm256_srlv_epi32(a, _mm256_set1_epi32(count as i32)));
    op!(shl_each(a: __m256i, counts: __m256i) -> __m256i = _mm256_sllv_epi32(a, counts));
    op!(shr_each(a: __m256i, counts: __m256i) -> __m256i = _mm256_srlv_epi32(a, counts));
    op!(lt(a: __m256i, b: __m256i) -> __m256i = _mm256_cmpgt_epi32(b, a));
    op!(eq(a: __m256i, b: __m256i) -> __m256i = _mm256_cmpeq_epi32(a, b));
    op!(top_bit(a: __m256i) -> __m256i = _mm256_srai_epi32::<31>(a));
    op!(select(a: __m256i, yes: __m256i, no: __m256i) -> __m256i = _mm256_blendv_epi8(no, yes, a));
    op!(to_f16(a: __m256i) -> __m256i =
        _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(a))));
    op!(fadd(a: __m256i, b: __m256i) -> __m256i =
        _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))));
    op!(fsub(a: __m256i, b: __m256i) -> __m256i =
        _mm256_castps_si256(_mm256_sub_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))));
    op!(fmul(a: __m256i, b: __m256i) -> __m256i =
        _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))));
    op!(fdiv(a: __m256i, b: __m256i) -> __m256i =
        _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))));

    #[inline(always)]
    fn load_words(self, memory: &[u32]) -> __m256i {
        let memory = memory[..N].as_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 8 words that are read.
        unsafe { _mm256_loadu_si256(memory.cast()) }
    }

    #[inline(always)]
    fn store_words(self, v: __m256i, memory: &mut [u32]) {
        let memory = memory[..N].as_mut_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 8 words that are written.
        unsafe { _mm256_storeu_si256(memory.cast(), v) }
    }

    op!(shr_signed(a: __m256i, count: u32) -> __m256i =
        _mm256_srav_epi32(a, _mm256_set1_epi32(count as i32)));
    op!(max_signed(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epi32(a, b));
    op!(add_i16(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi16(a, b));
    op!(max_i16(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epi16(a, b));
    op!(fused(a: __m256i, b: __m256i, c: __m256i) -> __m256i = _mm256_castps_si256(_mm256_fmadd_ps(
        _mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _mm256_castsi256_ps(c))));
    op!(to_float(a: __m256i) -> __m256i = _mm256_castps_si256(_mm256_cvtepi32_ps(a)));

    #[inline(always)]
    fn lookup(self, table: &[u32; 16], a: __m256i) -> __m256i {
        let table: *const __m256i = table.as_ptr().cast();
        // SAFETY: `self` proves the feature; the table holds the 16 words that are read.
        unsafe {
            let low = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(table), a);
            let high = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(table.add(1)), a);
            let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(a));
            let found = _mm256_blendv_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), is_high);
            _mm256_castps_si256(found)
        }
    }

    #[inline(always)]
    fn write(self, v: __m256i, memory: &mut Out) {
        let memory = memory[..4 * N].as_mut_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(memory.cast(), v) }
    }

    op!(to_int(a: __m256i) -> __m256i = _mm256_cvttps_epi32(_mm256_castsi256_ps(a)));

    #[inline(always)]
    fn sum_toward_zero(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` exists only where the processor has AVX2, F16C and FMA.
        unsafe {
            // The bits of an f64 that an f32 has no room for.
            let kept = _mm256_castsi256_pd(_mm256_set1_epi64x(-1 << 29));
            let low = _mm256_add_pd(
                _mm256_cvtepi32_pd(_mm256_castsi256_si128(a)),
                _mm256_cvtepi32_pd(_mm256_castsi256_si128(b)),
            );
            let high = _mm256_add_pd(
                _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(a)),
                _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(b)),
            );
            let low = _mm256_cvtpd_ps(_mm256_and_pd(low, kept));
            let high = _mm256_cvtpd_ps(_mm256_and_pd(high, kept));
            _mm256_castps_si256(_mm256_set_m128(high, low))
        }
    }

    op!(splat_double(x: f64) -> __m256d = _mm256_set1_pd(x));
    op!(exact_multiply_add(a: __m256d, b: __m256d, c: __m256d) -> __m256d = _mm256_fmadd_pd(a, b, c));

    #[inline(always)]
    fn load_doubles(self, memory: &[f64]) -> __m256d {
        let memory = memory[..N / 2].as_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 4 numbers that are read.
        unsafe { _mm256_loadu_pd(memory) }
    }

    #[inline(always)]
    fn store_doubles(self, d: __m256d, memory: &mut [f64]) {
        let memory = memory[..N / 2].as_mut_ptr();
        // SAFETY: `self` proves the feature; the slice holds the 4 numbers that are written.
        unsafe { _mm256_storeu_pd(memory, d) }
    }
}
