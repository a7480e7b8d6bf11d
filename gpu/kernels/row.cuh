// Sums over a row in the order of the reference's row.rs: one block of LANES threads a row.
#pragma once
#include "number.cuh"

constexpr int LANES = 256;

// The lanes' sum, upper halves added to lower ones, for every thread. All threads call it.
__device__ __forceinline__ float tree(float lane)
{
    __shared__ float lanes[LANES];
    // What an earlier call left may still be read.
    __syncthreads();
    lanes[threadIdx.x] = lane;
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) lanes[threadIdx.x] = __fadd_rn(lanes[threadIdx.x], lanes[threadIdx.x + half]);
    }
    __syncthreads();
    return lanes[0];
}

// The largest of the lanes, for every thread; NaN where one is NaN.
__device__ __forceinline__ float tree_max(float lane)
{
    __shared__ float lanes[LANES];
    __syncthreads();
    lanes[threadIdx.x] = lane;
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const float a = lanes[threadIdx.x], b = lanes[threadIdx.x + half];
            lanes[threadIdx.x] = is_nan(a) || a > b ? a : b;
        }
    }
    __syncthreads();
    return lanes[0];
}
