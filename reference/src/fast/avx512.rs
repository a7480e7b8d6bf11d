//! AVX-512: sixteen lanes.
#![allow(unsafe_code)] // Intrinsics; several times the speed of the portable arrays.

use super::Kernel;
use super::lanes::{Lanes, Out};
use std::arch::x86_64::*;

const N: usize = 16;

/// Proof that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has.then_some(Self(()))
    }
}

/// Runs a kernel compiled for AVX-512.
pub(super) fn run<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn compiled<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
        kernel.run(lanes)
    }
    // SAFETY: an `Avx512` exists only where `detect` found these features.
    unsafe { compiled(lanes, kernel) }
}

/// A register-to-register intrinsic.
macro_rules! op {
    ($name:ident($($argument:ident: $Type:ty),*) -> $Result:ty = $body:expr) => {
        #[inline(always)]
        fn $name(self, $($argument: $Type),*) -> $Result {
            // SAFETY: `self` exists only where the processor has AVX-512 F, BW, DQ and VL.
            unsafe { $body }
        }
    };
}

/// Writes a register, perhaps past the caches.
///
/// # Safety
/// The processor must have AVX-512 F; `memory` must be valid for it, and aligned if `past`.
#[inline(always)]
unsafe fn put(memory: *mut __m512i, v: __m512i, past: bool) {
    // SAFETY: the caller vouches for it.
    unsafe { if past { _mm512_stream_si512(memory, v) } else { _mm512_storeu_si512(memory, v) } }
}

impl Lanes for Avx512 {
    type V = __m512i;
    type M = __mmask16;
    type D = __m512d;
    const N: usize = N;
    const DOUBLES: usize = N / 2;
    const HAS_TO_F16: bool = true;

    #[inline(always)]
    fn load<const W: usize>(self, memory: &[u8]) -> __m512i {
        let memory = memory[..N * W].as_ptr();
        // SAFETY: `self` proves the features; the slice holds the 16 * W bytes that are read,
        // by instructions that need no alignment.
        unsafe {
            match W {
                1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(memory.cast())),
                2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(memory.cast())),
                _ => _mm512_loadu_si512(memory.cast()),
            }
        }
    }

    #[inline(always)]
    fn load_signed(self, memory: &[u8]) -> __m512i {
        let memory = memory[..N].as_ptr();
        // SAFETY: `self` proves the features; the slice holds the 16 bytes that are read.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(memory.cast())) }
    }

    #[inline(always)]
    fn store<const W: usize>(self, v: [__m512i; 4], memory: &mut Out, past: bool) {
        let memory = memory[..4 * N * W].as_mut_ptr().cast::<__m512i>();
        let past = past && memory.is_aligned();
        // SAFETY: `self` proves the features; the slice holds the 64 * W bytes that are written,
        // and is aligned where that is needed.
        unsafe {
            match W {
                1 => {
                    // Packing works within each quarter of a register: dword j of quarter i of
                    // the result holds numbers of quarter i of v[j].
                    let pairs = (_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
                    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                    let bytes = _mm512_packus_epi16(pairs.0, pairs.1);
                    put(memory, _mm512_permutexvar_epi32(order, bytes), past);
                }
                2 => {
                    let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
                    for half in 0..2 {
                        let words = _mm512_packus_epi32(v[2 * half], v[2 * half + 1]);
                        let words = _mm512_permutexvar_epi64(order, words);
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
    op!(splat(x: u32) -> __m512i = _mm512_set1_epi32(x as i32));
    op!(add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b));
    op!(sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b));
    op!(and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b));
    op!(or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b));
    op!(min(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epu32(a, b));
    op!(max(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epu32(a, b));
    // Variable shifts by a constant register take one step, shifts by a scalar two.
    op!(shl(a: __m512i, count: u32) -> __m512i = _mm512_sllv_epi32(a, _mm512_set1_epi32(count as i32)));
    op!(shr(a: __m512i, count: u32) -> __m512i = _mm512_srlv_epi32(a, _mm512_set1_epi32(count as i32)));
    op!(shl_each(a: __m512i, counts: __m512i) -> __m512i = _mm512_sllv_epi32(a, counts));
    op!(shr_each(a: __m512i, counts: __m512i) -> __m512i = _mm512_srlv_epi32(a, counts));
    op!(lt(a: __m512i, b: __m512i) -> __mmask16 = _mm512_cmplt_epi32_mask(a, b));
    op!(eq(a: __m512i, b: __m512i) -> __mmask16 = _mm512_cmpeq_epi32_mask(a, b));
    op!(top_bit(a: __m512i) -> __mmask16 = _mm512_movepi32_mask(a));
    op!(select(a: __mmask16, yes: __m512i, no: __m512i) -> __m512i = _mm512_mask_blend_epi32(a, no, yes));
    op!(to_f16(a: __m512i) -> __m512i =
        _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(a))));
    op!(fadd(a: __m512i, b: __m512i) -> __m512i =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))));
    op!(fsub(a: __m512i, b: __m512i) -> __m512i =
        _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))));
    op!(fmul(a: __m512i, b: __m512i) -> __m512i =
        _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))));
    op!(fdiv(a: __m512i, b: __m512i) -> __m512i =
        _mm512_castps_si512(_mm512_div_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))));

    #[inline(always)]
    fn load_words(self, memory: &[u32]) -> __m512i {
        let memory = memory[..N].as_ptr();
        // SAFETY: `self` proves the features; the slice holds the 16 words that are read.
        unsafe { _mm512_loadu_si512(memory.cast()) }
    }

    #[inline(always)]
    fn store_words(self, v: __m512i, memory: &mut [u32]) {
        let memory = memory[..N].as_mut_ptr();
        // SAFETY: `self` proves the features; the slice holds the 16 words that are written.
        unsafe { _mm512_storeu_si512(memory.cast(), v) }
    }

    op!(shr_signed(a: __m512i, count: u32) -> __m512i =
        _mm512_srav_epi32(a, _mm512_set1_epi32(count as i32)));
    op!(max_signed(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32(a, b));
    op!(add_i16(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi16(a, b));
    op!(max_i16(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi16(a, b));
    op!(fused(a: __m512i, b: __m512i, c: __m512i) -> __m512i = _mm512_castps_si512(_mm512_fmadd_ps(
        _mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _mm512_castsi512_ps(c))));
    op!(to_float(a: __m512i) -> __m512i = _mm512_castps_si512(_mm512_cvtepi32_ps(a)));
    op!(lookup(table: &[u32; 16], a: __m512i) -> __m512i =
        _mm512_permutexvar_epi32(a, _mm512_loadu_si512(table.as_ptr().cast())));

    #[inline(always)]
    fn write(self, v: __m512i, memory: &mut Out) {
        let memory = memory[..4 * N].as_mut_ptr();
        // SAFETY: `self` proves the features; the slice holds the 64 bytes that are written.
        unsafe { _mm512_storeu_si512(memory.cast(), v) }
    }

    op!(to_int(a: __m512i) -> __m512i = _mm512_cvttps_epi32(_mm512_castsi512_ps(a)));

    #[inline(always)]
    fn sum_toward_zero(self, a: __m512i, b: __m512i) -> __m512i {
        const CUT: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        // SAFETY: `self` exists only where the processor has AVX-512 F, BW, DQ and VL.
        unsafe {
            let sum = _mm512_add_epi32(a, b);
            let overflow = _mm512_and_si512(_mm512_xor_si512(a, sum), _mm512_xor_si512(b, sum));
            if _mm512_movepi32_mask(overflow) == 0 {
                return _mm512_castps_si512(_mm512_cvt_roundepi32_ps::<CUT>(sum));
            }
            let low = _mm512_add_pd(
                _mm512_cvtepi32_pd(_mm512_castsi512_si256(a)),
                _mm512_cvtepi32_pd(_mm512_castsi512_si256(b)),
            );
            let high = _mm512_add_pd(
                _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(a)),
                _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(b)),
            );
            let (low, high) = (_mm512_cvt_roundpd_ps::<CUT>(low), _mm512_cvt_roundpd_ps::<CUT>(high));
            _mm512_castps_si512(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high))
        }
    }

    op!(splat_double(x: f64) -> __m512d = _mm512_set1_pd(x));
    op!(exact_multiply_add(a: __m512d, b: __m512d, c: __m512d) -> __m512d = _mm512_fmadd_pd(a, b, c));

    #[inline(always)]
    fn load_doubles(self, memory: &[f64]) -> __m512d {
        let memory = memory[..N / 2].as_ptr();
        // SAFETY: `self` proves the features; the slice holds the 8 numbers that are read.
        unsafe { _mm512_loadu_pd(memory) }
    }

    #[inline(always)]
    fn store_doubles(self, d: __m512d, memory: &mut [f64]) {
        let memory = memory[..N / 2].as_mut_ptr();
        // SAFETY: `self` proves the features; the slice holds the 8 numbers that are written.
        unsafe { _mm512_storeu_pd(memory, d) }
    }
}
