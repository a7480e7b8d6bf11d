// GGML's block formats: a block taken apart into integers and two factors, byte by byte, so that
// any alignment will do. Value j is (d * scale[g]) * quant[j] + m * min[g], with g = j / GROUP.
// `layouts.cuh`, with GROUP, HAS_MINS and the byte at which each field begins, is made from the
// reference's own table.
#pragma once
#include "fast.cuh"
#include "layouts.cuh"

__device__ __forceinline__ u32 load16(const u8 *p) { return p[0] | u32(p[1]) << 8; }
__device__ __forceinline__ u32 load32(const u8 *p) { return load16(p) | load16(p + 2) << 16; }

// The f32 of an f16; NaNs are of any payload.
__device__ __forceinline__ float half_value(u32 code)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(u16(code)));
    return value;
}
__device__ __forceinline__ float half_at(const u8 *p) { return half_value(load16(p)); }

// The low nibbles of 16 bytes are values 0 to 15, the high ones 16 to 31.
__device__ __forceinline__ int nibble16(const u8 *qs, int j) { return qs[j % 16] >> (j / 16 * 4) & 15; }

// Two bits of value v: 32 bytes hold 128 values, each byte one of every 32.
__device__ __forceinline__ int two_bits(const u8 *qs, int v)
{
    return qs[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
}

// The nibble of value v: 32 bytes hold 64 values, the low nibbles the first 32.
__device__ __forceinline__ int nibble32(const u8 *qs, int v) { return qs[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15; }

// What most formats have: one group without a min.
template <class Layout>
struct Plain : Layout {
    static __device__ float d(const u8 *b) { return half_at(b + Layout::d); }
    static __device__ float m(const u8 *) { return 0; }
    static __device__ int scale(const u8 *, int) { return 1; }
    static __device__ int min(const u8 *, int) { return 0; }
};

// One group with a min.
template <class Layout>
struct WithMin : Plain<Layout> {
    static __device__ float m(const u8 *b) { return half_at(b + Layout::m); }
    static __device__ int min(const u8 *, int) { return 1; }
};

struct Q4_0 : Plain<Layout_Q4_0> {
    static __device__ int quant(const u8 *b, int j) { return nibble16(b + qs, j) - 8; }
};

struct Q4_1 : WithMin<Layout_Q4_1> {
    static __device__ int quant(const u8 *b, int j) { return nibble16(b + qs, j); }
};

struct Q5_0 : Plain<Layout_Q5_0> {
    static __device__ int quant(const u8 *b, int j)
    {
        return (nibble16(b + qs, j) | (b[qh + j / 8] >> (j % 8) & 1) << 4) - 16;
    }
};

struct Q5_1 : WithMin<Layout_Q5_1> {
    static __device__ int quant(const u8 *b, int j) { return nibble16(b + qs, j) | (b[qh + j / 8] >> (j % 8) & 1) << 4; }
};

struct Q8_0 : Plain<Layout_Q8_0> {
    static __device__ int quant(const u8 *b, int j) { return (signed char)b[qs + j]; }
};

struct Q8_1 : Plain<Layout_Q8_1> {
    static __device__ int quant(const u8 *b, int j) { return (signed char)b[qs + j]; }
};

struct Q2_K : Plain<Layout_Q2_K> {
    static __device__ float m(const u8 *b) { return -half_at(b + dmin); }
    static __device__ int scale(const u8 *b, int g) { return b[scales + g] & 15; }
    static __device__ int min(const u8 *b, int g) { return b[scales + g] >> 4; }
    static __device__ int quant(const u8 *b, int v) { return two_bits(b + qs, v); }
};

struct Q3_K : Plain<Layout_Q3_K> {
    static __device__ int scale(const u8 *b, int g)
    {
        const int low = b[scales + g % 8] >> (g / 8 * 4) & 15;
        return (low | (b[scales + 8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    }
    static __device__ int quant(const u8 *b, int v)
    {
        return two_bits(b + qs, v) + 4 * (b[hmask + v % 32] >> (v / 32) & 1) - 4;
    }
};

// Q4_K, and Q5_K without its fifth bits.
template <class Layout>
struct FourBits : Plain<Layout> {
    static __device__ float m(const u8 *b) { return -half_at(b + Layout::dmin); }
    static __device__ int scale(const u8 *b, int g)
    {
        const u8 *s = b + Layout::scales;
        return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    }
    static __device__ int min(const u8 *b, int g)
    {
        const u8 *s = b + Layout::scales;
        return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
    static __device__ int quant(const u8 *b, int v) { return nibble32(b + Layout::qs, v); }
};

struct Q4_K : FourBits<Layout_Q4_K> {};

struct Q5_K : FourBits<Layout_Q5_K> {
    static __device__ int quant(const u8 *b, int v)
    {
        return nibble32(b + qs, v) | (b[qh + v % 32] >> (v / 32) & 1) << 4;
    }
};

struct Q6_K : Plain<Layout_Q6_K> {
    static __device__ int scale(const u8 *b, int g) { return (signed char)b[scales + g]; }
    static __device__ int quant(const u8 *b, int v)
    {
        const int low = b[ql + v / 128 * 64 + v % 64] >> (v % 128 / 64 * 4) & 15;
        return (low | two_bits(b + qh, v) << 4) - 32;
    }
};

struct Q8_K : Plain<Layout_Q8_K> {
    static __device__ float d(const u8 *b) { return __uint_as_float(load32(b + Layout_Q8_K::d)); }
    static __device__ int quant(const u8 *b, int v) { return (signed char)b[qs + v]; }
};

struct IQ4_NL : Plain<Layout_IQ4_NL> {
    static __device__ int quant(const u8 *b, int j) { return IQ4[nibble16(b + qs, j)]; }
};

struct IQ4_XS : Plain<Layout_IQ4_XS> {
    static __device__ int scale(const u8 *b, int g)
    {
        const int low = b[scales_l + g / 2] >> (g % 2 * 4) & 15;
        return (low | (load16(b + scales_h) >> (2 * g) & 3) << 4) - 32;
    }
    static __device__ int quant(const u8 *b, int v) { return IQ4[nibble16(b + qs + v / 32 * 16, v % 32)]; }
};

struct TQ1_0 : Plain<Layout_TQ1_0> {
    // Digit n, from the most significant, of a byte that holds ternary digits as a fraction.
    static __device__ int digit(u32 byte, int n)
    {
        for (int i = 0; i < n; i++) byte = byte * 3 & 255;
        return int(byte * 3 >> 8);
    }
    static __device__ int quant(const u8 *b, int v)
    {
        if (v < 160) return digit(b[qs + v % 32], v / 32) - 1;
        if (v < 240) return digit(b[qs + 32 + v % 16], (v - 160) / 16) - 1;
        return digit(b[qh + v % 4], (v - 240) / 4) - 1;
    }
};

struct TQ2_0 : Plain<Layout_TQ2_0> {
    static __device__ int quant(const u8 *b, int v) { return two_bits(b + qs, v) - 1; }
};

struct MXFP4 : Plain<Layout_MXFP4> {
    // 2^(e - 128), the first two of which are subnormal.
    static __device__ float d(const u8 *b)
    {
        const u32 code = b[e];
        return __uint_as_float(code < 2 ? 0x00200000u << code : (code - 1) << 23);
    }
    static __device__ int quant(const u8 *b, int j) { return E2M1_DOUBLED[nibble16(b + qs, j)]; }
};

// Value j, rounded once where it is a sum or of Q8_K.
template <class B>
__device__ __forceinline__ float value(const u8 *b, int j)
{
    const int g = j / B::GROUP;
    const float product = __fmul_rn(__fmul_rn(B::d(b), float(B::scale(b, g))), float(B::quant(b, j)));
    if constexpr (B::HAS_MINS) return __fadd_rn(product, __fmul_rn(B::m(b), float(B::min(b, g))));
    else return product;
}

// The same without any rounding.
template <class B>
__device__ __forceinline__ double exact_value(const u8 *b, int j)
{
    const int g = j / B::GROUP;
    const double product = __dmul_rn(__dmul_rn(B::d(b), B::scale(b, g)), B::quant(b, j));
    if constexpr (B::HAS_MINS) return __dadd_rn(product, __dmul_rn(B::m(b), B::min(b, g)));
    else return product;
}
