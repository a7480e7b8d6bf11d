// The functions of the elementwise operations: the steps of the reference's files.
#pragma once
#include "math.cuh"

// x / (1 + e^-z), z a multiple of x.
__device__ __forceinline__ float times_sigmoid(float x, float z)
{
    // The larger of NaN and a number is that number: z is NaN only where x is, and x is a factor.
    const float e = exp_of_negative(fmaxf(-fabsf(z), -104.0f));
    const float numerator = __fmul_rn(maximum(x, -FLT_LARGEST), z < 0 ? e : 1.0f);
    return __fmul_rn(numerator, reciprocal(__fadd_rn(1.0f, e)));
}

__device__ __forceinline__ float relu(float x) { return x <= 0 ? 0 : x; }
__device__ __forceinline__ float silu(float x) { return times_sigmoid(x, x); }
__device__ __forceinline__ float quick_gelu(float x) { return times_sigmoid(x, __fmul_rn(x, QUICK_GELU)); }

__device__ __forceinline__ float gelu_tanh(float x)
{
    return times_sigmoid(x, __fmul_rn(x, __fmaf_rn(GELU_CUBIC, __fmul_rn(x, x), GELU_LINEAR)));
}

__device__ __forceinline__ float gelu_erf(float x)
{
    x = maximum(x, -FLT_LARGEST);
    return __fmul_rn(x, canonical_normal_cdf(x));
}

__device__ __forceinline__ float swiglu(float gate, float up) { return __fmul_rn(silu(gate), up); }
