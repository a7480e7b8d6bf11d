// The functions of the elementwise operations: the steps of the reference's files.
#pragma once
#include "math.cuh"

// x / (1 + e^-z), z a multiple of x.
__device__ __forceinline__ float times_sigmoid(float x, float z)
{
    const float e = canonical_exp(-fabsf(z));
    x = x < -FLT_LARGEST ? -FLT_LARGEST : x;
    const float numerator = z < 0 ? __fmul_rn(x, e) : x;
    return __fdiv_rn(numerator, __fadd_rn(1.0f, e));
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
    x = x < -FLT_LARGEST ? -FLT_LARGEST : x;
    return __fmul_rn(x, canonical_normal_cdf(x));
}

__device__ __forceinline__ float swiglu(float gate, float up) { return __fmul_rn(silu(gate), up); }
