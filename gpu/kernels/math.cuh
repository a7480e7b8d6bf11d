// Canonical elementary functions: the steps of the reference's math.rs, with its constants.
#pragma once
#include "constants.cuh"
#include "format.cuh"

constexpr float ROUND = 3 << 22;
constexpr double ROUND_F64 = 3ull << 51;
constexpr u32 TWO_THIRDS = 0x3f2aaaab;

template <int N>
__device__ __forceinline__ float polynomial(float x, const float (&coefficients)[N])
{
    float sum = coefficients[N - 1];
#pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = __fmaf_rn(sum, x, coefficients[i]);
    return sum;
}

template <int N>
__device__ __forceinline__ double polynomial(double x, const double (&coefficients)[N])
{
    double sum = coefficients[N - 1];
#pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = __fma_rn(sum, x, coefficients[i]);
    return sum;
}

// NaN stays, as in the minimum.
__device__ __forceinline__ float maximum(float x, float low)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(low));
    return x;
}

__device__ __forceinline__ float minimum(float x, float high)
{
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(high));
    return x;
}

__device__ __forceinline__ float clamp(float x, float low, float high) { return minimum(maximum(x, low), high); }

// 1 / x rounded, x from 2^-125 to 2^125, or NaN: the instruction's result after a step of Newton's, as a
// division does it, without the cases that do not occur here. Sweeps of the functions over every f32
// compare it with the host's division.
__device__ __forceinline__ float reciprocal(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return __fmaf_rn(__fmaf_rn(-x, r, 1.0f), r, r);
}

__device__ __forceinline__ float power(int n) { return __uint_as_float((u32)(n + 127) << 23); }

__device__ __forceinline__ float scale(float p, int n)
{
    const int half = n >> 1;
    return __fmul_rn(__fmul_rn(p, power(half)), power(n - half));
}

// e^x as p * 2^n.
struct Scaled {
    float p;
    int n;
};

__device__ __forceinline__ Scaled exp_scaled(float x)
{
    const float rounded = __fadd_rn(__fmul_rn(x, LOG2_E), ROUND);
    const float n = __fsub_rn(rounded, ROUND);
    const float r = __fmaf_rn(n, -LN_2[1], __fmaf_rn(n, -LN_2[0], x));
    return {polynomial(r, EXP), (int)(__float_as_uint(rounded) - __float_as_uint(ROUND))};
}

__device__ __forceinline__ float canonical_exp(float x)
{
    const Scaled e = exp_scaled(clamp(x, -104.0f, 89.0f));
    return scale(e.p, e.n);
}

// For arguments from -104 to 0; of NaN some number.
__device__ __forceinline__ float exp_of_negative(float x)
{
    const Scaled e = exp_scaled(x);
    return __fmul_rn(__uint_as_float(__float_as_uint(e.p) + ((u32)(e.n + 64) << 23)), 0x1p-64f);
}

__device__ __forceinline__ float canonical_exp2(float x)
{
    x = clamp(x, -151.0f, 129.0f);
    const float rounded = __fadd_rn(x, ROUND);
    const float r = __fsub_rn(x, __fsub_rn(rounded, ROUND));
    return scale(polynomial(r, EXP2), (int)(__float_as_uint(rounded) - __float_as_uint(ROUND)));
}

__device__ __forceinline__ float canonical_tanh(float x)
{
    const float a = fabsf(x), s = __fmul_rn(x, x);
    const float small = __fmaf_rn(__fmul_rn(x, s), polynomial(s, TANH), x);
    const Scaled e = exp_scaled(__fmul_rn(2.0f, minimum(a, 16.0f)));
    const float q = reciprocal(__fmaf_rn(e.p, power(e.n), 1.0f));
    const float large = __fmaf_rn(-2.0f, q, 1.0f);
    return copysignf(a < 0.55f ? small : large, x);
}

__device__ __forceinline__ float canonical_erf(float x)
{
    const float a = fabsf(x);
    const float small = __fmaf_rn(x, polynomial(__fmul_rn(x, x), ERF), x);
    const float e = exp_of_negative(-polynomial(minimum(a, 4.0f), ERF_TAIL));
    const float large = copysignf(__fsub_rn(1.0f, e), x);
    // NaN is in `small`.
    return a >= 1.0f ? large : small;
}

__device__ __forceinline__ float canonical_normal_cdf(float x)
{
    const float a = minimum(fabsf(x), 14.5f);
    const float q = reciprocal(__fadd_rn(a, 4.0f));
    const float ratio = __fmul_rn(q, polynomial(__fmul_rn(__fsub_rn(a, 4.0f), q), NORMAL_TAIL));
    const float half = __fmul_rn(0.5f, a), s = __fmul_rn(half, a), low = __fmaf_rn(half, a, -s);
    float tail = __fmul_rn(exp_of_negative(maximum(-s, -104.0f)), ratio);
    tail = __fmaf_rn(tail, -low, tail);
    const float small = __fmaf_rn(x, polynomial(__fmul_rn(x, x), NORMAL), 0.5f);
    const float large = x > 0.0f ? __fsub_rn(1.0f, tail) : tail;
    return fabsf(x) < 1.0f ? small : large;
}

// 1 / sqrt(x), each rounded by a step of Newton's from the instruction's result.
__device__ __forceinline__ float canonical_rsqrt(float x)
{
    // Instructions take a subnormal number for 0.
    const bool is_small = x < 0x1p-100f;
    const float scaled = __fmul_rn(x, is_small ? 0x1p64f : 1.0f);
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(scaled));
    const float g = __fmul_rn(scaled, r);
    const float root = __fmaf_rn(__fmaf_rn(-g, g, scaled), __fmul_rn(0.5f, r), g);
    const float y = __fmul_rn(reciprocal(root), is_small ? 0x1p32f : 1.0f);
    // Of 0 and infinity the instruction's result is right, and the steps give NaN.
    return y == y ? y : r;
}

__device__ __forceinline__ float canonical_log(float x)
{
    const bool is_small = x < 0x1p-126f;
    const u32 bits = __float_as_uint(is_small ? __fmul_rn(x, 0x1p23f) : x);
    const int exponent = (int)(bits - TWO_THIRDS) >> 23;
    const float f = __fsub_rn(__uint_as_float(bits - ((u32)exponent << 23)), 1.0f);
    const float n = __fsub_rn(__int2float_rn(exponent), is_small ? 23.0f : 0.0f);
    const float log = __fmaf_rn(n, LN_2_F32, __fmaf_rn(__fmul_rn(f, f), polynomial(f, LOG), f));
    if (x > 0 && x <= FLT_LARGEST) return log;
    return x == 0 ? __uint_as_float(0xff800000) : x > 0 ? x : __uint_as_float(0x7fffffff);
}

// For arguments from -700 to 700.
__device__ __forceinline__ double canonical_exp_f64(double x)
{
    const double rounded = __dadd_rn(__dmul_rn(x, LOG2_E_F64), ROUND_F64);
    const u64 n = (u64)__double_as_longlong(rounded) - (u64)__double_as_longlong(ROUND_F64);
    const double r = __fma_rn(__dsub_rn(rounded, ROUND_F64), -LN_2_F64, x);
    return __dmul_rn(polynomial(r, EXP_F64), __longlong_as_double((long long)((n + 1023) << 52)));
}

// An angle in quarter turns, and what is left as the sum of two.
struct Angle {
    u32 quarters;
    float high, low;
};

__device__ __forceinline__ Angle reduce(float x)
{
    const float rounded = __fmaf_rn(x, TWO_OVER_PI, ROUND);
    const float n = __fsub_rn(rounded, ROUND);
    const float first = __fmaf_rn(n, -PI_HALVES[0], x);
    const float product = __fmul_rn(n, PI_HALVES[1]);
    const float rest = __fmaf_rn(n, PI_HALVES[1], -product);
    const float high = __fsub_rn(first, product);
    const float low = __fsub_rn(__fsub_rn(__fsub_rn(first, high), product), rest);
    return {__float_as_uint(rounded), high, __fmaf_rn(n, -PI_HALVES[2], low)};
}

__device__ __forceinline__ u64 two_over_pi_bits(u32 word, u32 shift)
{
    const u64 pair = (u64)TWO_OVER_PI_BITS[word] << 32 | TWO_OVER_PI_BITS[word + 1];
    return pair << shift >> 32;
}

__device__ __noinline__ Angle reduce_huge(float x)
{
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7f800000) == 0x7f800000) return {0, __uint_as_float(0x7fffffff), 0};
    const u64 m = (bits & 0x7fffff) | 0x800000;
    const u32 first = (bits >> 23 & 0xff) - 120;
    const u32 word = first / 32, shift = first % 32;
    const u64 low = m * two_over_pi_bits(word + 2, shift);
    const u64 middle = m * two_over_pi_bits(word + 1, shift) + (low >> 32);
    const u32 high = (u32)(m * two_over_pi_bits(word, shift) + (middle >> 32));
    const u64 fraction = (u64)high << 34 | (middle & 0xffffffff) << 2 | (low & 0xffffffff) >> 30;
    const u32 quarters = (high >> 30) + (u32)(fraction >> 63);
    const double rest = __dmul_rn(__ll2double_rn((long long)fraction), PI_HALVES_F64[0] / 18446744073709551616.0);
    const float sum = __double2float_rn(rest), left = __double2float_rn(__dsub_rn(rest, (double)sum));
    return x < 0 ? Angle{0u - quarters, -sum, -left} : Angle{quarters, sum, left};
}

__device__ __forceinline__ float shifted_sine(float x, u32 shift)
{
    const Angle angle = fabsf(x) < 0x1p20f ? reduce(x) : reduce_huge(x);
    const float s = __fmaf_rn(angle.high, angle.high, __fmul_rn(__fmul_rn(2.0f, angle.low), angle.high));
    const float odd = __fmaf_rn(__fmul_rn(angle.high, s), polynomial(s, SIN), angle.low);
    const float sin = __fadd_rn(angle.high, odd);
    const float cos = __fmaf_rn(s, __fmaf_rn(s, polynomial(s, COS), -0.5f), 1.0f);
    const u32 quarters = angle.quarters + shift;
    const float value = quarters & 1 ? cos : sin;
    return quarters & 2 ? -value : value;
}

__device__ __forceinline__ float canonical_sin(float x) { return x == 0 ? x : shifted_sine(x, 0); }
__device__ __forceinline__ float canonical_cos(float x) { return shifted_sine(x, 1); }

// An angle in quarter turns, and what is left of it, in f64.
struct AngleF64 {
    u32 quarters;
    double rest;
};

__device__ __forceinline__ AngleF64 reduce_f64(double x)
{
    const double rounded = __dadd_rn(__dmul_rn(x, TWO_OVER_PI_F64), ROUND_F64);
    const double n = __dsub_rn(rounded, ROUND_F64);
    const double rest = __fma_rn(n, -PI_HALVES_F64[1], __fma_rn(n, -PI_HALVES_F64[0], x));
    return {(u32)__double_as_longlong(rounded), rest};
}

__device__ __forceinline__ double sine_f64(u32 quarters, double r)
{
    const double s = __dmul_rn(r, r);
    const double sin = __fma_rn(__dmul_rn(r, s), polynomial(s, SIN_F64), r);
    const double cos = __fma_rn(__dmul_rn(s, s), polynomial(s, COS_F64), __fma_rn(s, -0.5, 1.0));
    const double value = quarters & 1 ? cos : sin;
    return quarters & 2 ? -value : value;
}
