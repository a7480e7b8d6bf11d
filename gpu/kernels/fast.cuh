// Fast paths beside `convert`, equal to it: to f32, exactly, and from f32 under the default
// policy or IEEE's, in about fifteen instructions without a branch.
#pragma once
#include "format.cuh"

__device__ __forceinline__ bool is_nan(float x) { return (__float_as_uint(x) & 0x7fffffff) > 0x7f800000; }

// A float of exponent `e` with fraction 0.
constexpr u32 power_of_two(int e) { return u32(e + 127) << 23; }

// Formats whose fields, shifted into those of an f32, are its value but for a power of two.
template <Format F>
constexpr bool WIDENS = F.is_signed && F.subnormals && F.exponent_bits < 8 &&
                        F.specials != Specials::NanNegativeZero && F.storage_bits <= 16;

// A code as an f32; exact for every format but F64. NaN is canonical, except of an f32.
template <Format F>
__device__ __forceinline__ float to_f32(Code<F> code)
{
    if constexpr (F.fraction_bits == 23) {
        return __uint_as_float(u32(code));
    } else if constexpr (WIDENS<F>) {
        constexpr u32 magnitude_mask = u32(F.magnitude_mask());
        const u32 magnitude = code & magnitude_mask;
        const u32 sign = (code & u32(F.sign_bit())) << (31 - F.magnitude_bits());
        // Exact, subnormal operands included.
        const float value = __fmul_rn(__uint_as_float(magnitude << (23 - F.fraction_bits)),
                                      __uint_as_float(power_of_two(127 - F.bias)));
        u32 bits = __float_as_uint(value) | sign;
        if constexpr (F.specials == Specials::Ieee) {
            constexpr u32 infinity = u32(F.infinity());
            if (magnitude == infinity) bits = 0x7f800000 | sign;
            if (magnitude > infinity) bits = 0x7fffffff;
        } else if constexpr (F.specials == Specials::NanAllOnes) {
            if (magnitude == magnitude_mask) bits = 0x7fffffff;
        }
        return __uint_as_float(bits);
    } else {
        return __uint_as_float(convert<F, F32>(code, IEEE, 0));
    }
}

// Formats that f32 rounds to by adding half of the discarded fraction.
template <Format F>
constexpr bool NARROWS = F.has_negative_zero() && F.fraction_bits < 23 && F.exponent_bits <= 8 &&
                         F.low_padding == 0 && F.storage_bits <= 16 &&
                         (F.exponent_bits < 8 || F.bias == 127);

// f32 bits to a format, to nearest even. SATURATE gives the largest finite value for
// overflow and infinities, otherwise both give infinity; NaN is canonical.
template <Format F, bool SATURATE>
__device__ __forceinline__ Code<F> nearest(u32 x)
{
    constexpr int SHIFT = 23 - F.fraction_bits;
    const u32 magnitude = x & 0x7fffffff;
    const u32 even = (magnitude >> SHIFT) & 1;
    u32 result = (magnitude + ((1u << (SHIFT - 1)) - 1) + even) >> SHIFT;
    if constexpr (F.exponent_bits < 8) {
        // A sum with 2^23 ulp of the smallest normal binade has the rounded multiple of that
        // ulp in its low bits.
        constexpr u32 magic = power_of_two(F.min_exponent() - F.fraction_bits + 23);
        const u32 tiny = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(magic))) - magic;
        const u32 normal = result - (u32(127 - F.bias) << F.fraction_bits);
        result = magnitude < power_of_two(F.min_exponent()) ? tiny : normal;
    }
    constexpr u32 most = u32(SATURATE || !F.has_infinity() ? F.max_finite() : F.infinity());
    static_assert(SATURATE || F.has_infinity(), "without infinity an overflow is NaN");
    result = result < most ? result : most;
    result |= (x >> (31 - F.magnitude_bits())) & u32(F.sign_bit());
    constexpr u32 nan = u32(F.has_nan() ? F.canonical_nan() : F.max_finite());
    return Code<F>(magnitude > 0x7f800000 ? nan : result);
}

// Under the default policy.
template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> convert_default(Code<Source> code)
{
    // From 8 bits up to BF16 and F32, no value is rounded before its encoding.
    if constexpr (NARROWS<Target> && Source.fraction_bits <= 23) {
        return nearest<Target, true>(__float_as_uint(to_f32<Source>(code)));
    } else {
        return convert<Source, Target>(code, Policy(), 0);
    }
}

// Under IEEE's policy.
template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> convert_ieee(Code<Source> code)
{
    if constexpr (Target.fraction_bits == 23 && Source.fraction_bits < 23) {
        return __float_as_uint(to_f32<Source>(code));
    } else if constexpr (NARROWS<Target> && Target.has_infinity() && Source.fraction_bits <= 23) {
        return nearest<Target, false>(__float_as_uint(to_f32<Source>(code)));
    } else {
        return convert<Source, Target>(code, IEEE, 0);
    }
}

// The code of an arithmetic result: a NaN is positive, whatever sign it has.
template <Format Target>
__device__ __forceinline__ Code<Target> encode_result(float x, bool is_default, Policy policy, u32 random)
{
    const u32 bits = is_nan(x) ? 0x7fffffffu : __float_as_uint(x);
    return is_default ? convert_default<F32, Target>(bits) : convert<F32, Target>(bits, policy, random);
}

// The bits of an arithmetic result, NaN canonical.
__device__ __forceinline__ u32 result_bits(float x) { return is_nan(x) ? 0x7fffffffu : __float_as_uint(x); }
