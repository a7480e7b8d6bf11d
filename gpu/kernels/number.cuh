// Inputs and outputs of layers: f32, f16 and bf16, to and from f32 by instructions.
#pragma once
#include "fast.cuh"

// Exact; of NaN some NaN.
template <Format F>
__device__ __forceinline__ float number(Code<F> code)
{
    if constexpr (F.storage_bits == 32) return __uint_as_float(code);
    else if constexpr (F.fraction_bits == BF16.fraction_bits) return __uint_as_float(u32(code) << 16);
    else {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(code));
        return x;
    }
}

// To nearest even, overflow to infinity; NaN canonical.
template <Format F>
__device__ __forceinline__ Code<F> rounded(float x)
{
    if constexpr (F.storage_bits == 32) return result_bits(x);
    else {
        Code<F> code;
        if constexpr (F.fraction_bits == BF16.fraction_bits) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(x));
        else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
        return code;
    }
}
