// Fast paths beside `convert`, equal to it, under the default policy and IEEE's: about fifteen
// instructions without a branch.
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

// Results that rounding the source's magnitude as an integer gives: the target has fewer
// fraction bits, and no subnormal source is a normal number of the target.
template <Format Source, Format Target>
constexpr bool NARROWS = Source.specials == Specials::Ieee && Source.fraction_bits <= 23 && Source.low_padding == 0 &&
                         Target.has_negative_zero() && Target.low_padding == 0 && Target.storage_bits <= 16 &&
                         Source.fraction_bits > Target.fraction_bits && Source.bias >= Target.bias;

// Rounded to nearest even. SATURATE gives the largest finite value for overflow and
// infinities, otherwise both give infinity; NaN is canonical.
template <Format Source, Format Target, bool SATURATE>
__device__ __forceinline__ Code<Target> nearest(Code<Source> code)
{
    static_assert(SATURATE || Target.has_infinity(), "without infinity an overflow is NaN");
    constexpr int SHIFT = Source.fraction_bits - Target.fraction_bits;
    constexpr int BIAS = Source.bias - Target.bias;
    const u32 x = code;
    const u32 magnitude = x & u32(Source.magnitude_mask());
    const u32 even = (magnitude >> SHIFT) & 1;
    u32 result = (magnitude + ((1u << (SHIFT - 1)) - 1) + even) >> SHIFT;
    if constexpr (BIAS > 0) {
        // A sum with 2^23 ulp of the smallest normal binade has the rounded multiple of that
        // ulp in its low bits. As bits of an f32 the magnitude lacks a power of two.
        constexpr u32 magic = power_of_two(Target.min_exponent() - Target.fraction_bits + 23);
        const float unscaled = __uint_as_float(magnitude << (23 - Source.fraction_bits));
        const float sum = __fmaf_rn(unscaled, __uint_as_float(power_of_two(127 - Source.bias)), __uint_as_float(magic));
        const u32 tiny = __float_as_uint(sum) - magic;
        const u32 normal = result - (u32(BIAS) << Target.fraction_bits);
        result = magnitude < u32(BIAS + 1) << Source.fraction_bits ? tiny : normal;
    }
    constexpr u32 most = u32(SATURATE ? Target.max_finite() : Target.infinity());
    result = result < most ? result : most;
    result |= x >> (Source.magnitude_bits() - Target.magnitude_bits()) & u32(Target.sign_bit());
    constexpr u32 nan = u32(Target.has_nan() ? Target.canonical_nan() : Target.max_finite());
    return Code<Target>(magnitude > u32(Source.infinity()) ? nan : result);
}

// Formats whose every value is zero or a normal number of a 16-bit target.
template <Format Source, Format Target>
constexpr bool IS_EXACT = WIDENS<Source> && Target.storage_bits == 16 && Source.fraction_bits <= Target.fraction_bits &&
                          Source.max_exponent() <= Target.max_exponent() &&
                          Source.min_exponent() - Source.fraction_bits >= Target.min_exponent() &&
                          (Target.bias == 127 || !Source.has_infinity());

template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> exact(Code<Source> code)
{
    const u32 x = __float_as_uint(to_f32<Source>(code));
    constexpr int SHIFT = 23 - Target.fraction_bits;
    if constexpr (Target.bias == 127) return Code<Target>(x >> SHIFT);
    const u32 magnitude = x & 0x7fffffff;
    const u32 sign = x >> 16 & 0x8000;
    u32 result = ((magnitude >> SHIFT) - (u32(127 - Target.bias) << Target.fraction_bits)) | sign;
    result = magnitude == 0 ? sign : result;
    return Code<Target>(magnitude > 0x7f800000 ? u32(Target.canonical_nan()) : result);
}

// Formats that differ in the length of the fraction alone: the longer one is padded.
template <Format Source, Format Target>
constexpr bool PADS = Source.specials == Specials::Ieee && Target.specials == Specials::Ieee &&
                      Source.exponent_bits == Target.exponent_bits && Source.low_padding == 0 &&
                      Target.low_padding == 0 && Source.fraction_bits < Target.fraction_bits &&
                      Target.storage_bits <= 32;

template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> padded(Code<Source> code)
{
    const bool nan = (code & Source.magnitude_mask()) > Source.infinity();
    const u32 result = u32(code) << (Target.fraction_bits - Source.fraction_bits);
    return Code<Target>(nan ? u32(Target.canonical_nan()) : result);
}

// Under the default policy.
template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> convert_default(Code<Source> code)
{
    if constexpr (NARROWS<Source, Target>) return nearest<Source, Target, true>(code);
    else if constexpr (Source.fraction_bits <= 23 && NARROWS<F32, Target>) {
        // No value is rounded before its encoding.
        return nearest<F32, Target, true>(__float_as_uint(to_f32<Source>(code)));
    } else return convert<Source, Target>(code, Policy(), 0);
}

// Under IEEE's policy.
template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> convert_ieee(Code<Source> code)
{
    if constexpr (PADS<Source, Target>) return padded<Source, Target>(code);
    else if constexpr (Target.fraction_bits == 23 && Source.fraction_bits < 23) {
        return __float_as_uint(to_f32<Source>(code));
    } else if constexpr (IS_EXACT<Source, Target>) return exact<Source, Target>(code);
    else if constexpr (NARROWS<Source, Target> && Target.has_infinity()) return nearest<Source, Target, false>(code);
    else if constexpr (Source.fraction_bits <= 23 && NARROWS<F32, Target> && Target.has_infinity()) {
        return nearest<F32, Target, false>(__float_as_uint(to_f32<Source>(code)));
    } else return convert<Source, Target>(code, IEEE, 0);
}

// The bits of an arithmetic result, NaN canonical.
__device__ __forceinline__ u32 result_bits(float x) { return is_nan(x) ? 0x7fffffffu : __float_as_uint(x); }

// The code of an arithmetic result: a NaN is positive, whatever sign it has.
template <Format Target>
__device__ __forceinline__ Code<Target> encode_result(float x, bool is_default, Policy policy, u32 random)
{
    const u32 bits = result_bits(x);
    return is_default ? convert_default<F32, Target>(bits) : convert<F32, Target>(bits, policy, random);
}
