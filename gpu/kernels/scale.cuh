// Scales: how one is applied, and which one an element has. Divisions are long: none of these
// is inlined once per element of a vector.
#pragma once
#include "fast.cuh"

enum class ScaleOp : u8 { Multiply, Divide, Reciprocal };

// `extent` consecutive elements share a scale.
__device__ __noinline__ u64 scale_index(u64 i, u64 extent, u64 scales) { return scales == 1 ? 0 : i / extent; }

// x op s, rounded to f32; the reciprocal is rounded first.
__device__ __noinline__ float apply_scale(ScaleOp op, float x, float s)
{
    switch (op) {
    case ScaleOp::Multiply: return __fmul_rn(x, s);
    case ScaleOp::Divide: return __fdiv_rn(x, s);
    case ScaleOp::Reciprocal: return __fmul_rn(x, __frcp_rn(s));
    }
    return 0;
}
