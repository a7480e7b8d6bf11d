// Rows of GGML blocks times vectors. A warp has a row and a vector; lane l adds, by fma in ascending
// order, the products of the values k with k % 32 = l, or of 8-bit activations those of every 32nd
// run of 32 values; the lanes are then added in halves.
#pragma once
#include "blocks.cuh"

constexpr int LANES = 32;
constexpr int RUN = 32;
constexpr u32 ALL_LANES = 0xffffffff;

__device__ __forceinline__ float tree(float sum)
{
#pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, width));
    return sum;
}

// c + the products of four pairs of i8.
__device__ __forceinline__ int dp4a(u32 a, u32 b, int c)
{
    int d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

constexpr u32 ONES = 0x01010101;

// f32 activations.
template <class W>
__device__ __forceinline__ float lane_sum(const u8 *w, const float *x, u64 k_end, int lane)
{
    float sum = 0;
    for (u64 k = lane; k < k_end; k += LANES) {
        const u8 *block = w + k / W::VALUES * W::BYTES;
        sum = __fmaf_rn(value<W>(block, int(k % W::VALUES)), x[k], sum);
    }
    return sum;
}

// Activations in blocks of i8: integers first, whose sums are exact in f32.
template <class W, class X>
__device__ __forceinline__ float lane_sum(const u8 *w, const u8 *x, u64 k_end, int lane)
{
    constexpr int GROUP = W::GROUP < RUN ? W::GROUP : RUN;
    float sum = 0;
    for (u64 run = lane; run < k_end / RUN; run += LANES) {
        const u8 *wb = w + run * RUN / W::VALUES * W::BYTES;
        const u8 *xb = x + run * RUN / X::VALUES * X::BYTES;
        const int first = int(run * RUN % W::VALUES);
        const u8 *q8 = xb + X::qs + run * RUN % X::VALUES;
        int isum = 0, imin = 0;
        for (int group = 0; group < RUN; group += GROUP) {
            int products = 0, total = 0;
            for (int j = group; j < group + GROUP; j += 4) {
                u32 quants = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) quants |= u32(W::quant(wb, first + j + i) & 255) << (8 * i);
                const u32 activations = load32(q8 + j);
                products = dp4a(quants, activations, products);
                total = dp4a(ONES, activations, total);
            }
            const int g = (first + group) / W::GROUP;
            isum += W::scale(wb, g) * products;
            imin += W::min(wb, g) * total;
        }
        const float d8 = X::d(xb);
        sum = __fmaf_rn(__fmul_rn(d8, W::d(wb)), float(isum), sum);
        if constexpr (W::HAS_MINS) sum = __fmaf_rn(__fmul_rn(d8, W::m(wb)), float(imin), sum);
    }
    return sum;
}

// What stands for f32 activations.
struct Numbers {};

template <class A, class B>
constexpr bool IS_SAME = false;
template <class A>
constexpr bool IS_SAME<A, A> = true;

// y[m, n] for `rows` rows of `k` values and `vectors` vectors, in warps.
template <class W, class X>
__device__ __forceinline__ void products(const u8 *w, const u8 *x, float *y, u64 rows, u64 vectors, u64 k)
{
    const int lane = threadIdx.x % LANES;
    const u64 row_bytes = k / W::VALUES * W::BYTES;
    u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
    const u64 warps = u64(gridDim.x) * blockDim.x / LANES;
    for (; warp < rows * vectors; warp += warps) {
        const u64 n = warp % rows, m = warp / rows;
        float sum;
        if constexpr (IS_SAME<X, Numbers>) {
            sum = lane_sum<W>(w + n * row_bytes, reinterpret_cast<const float *>(x) + m * k, k, lane);
        } else {
            sum = lane_sum<W, X>(w + n * row_bytes, x + m * (k / X::VALUES * X::BYTES), k, lane);
        }
        sum = tree(sum);
        if (lane == 0) y[m * rows + n] = __uint_as_float(result_bits(sum));
    }
}

// Q4_K times Q8_1 by accesses of 16 and 4 bytes, for which the rows and vectors are aligned. Eight
// lanes have a block; two of them its 64 values of a chunk of 32 bytes, of which each reads half. So
// a lane multiplies half of its own run and half of its neighbour's, and both exchange sums.
template <int Rows>
__device__ __forceinline__ void wide_q4_k(const u8 *w, const u8 *x, float *y, u64 rows, u64 vectors, u64 k)
{
    const int lane = threadIdx.x % LANES;
    const int chunk = lane % 8 / 2, half = lane % 2;
    const u64 blocks = k / Q4_K::VALUES;
    const u64 row_bytes = blocks * Q4_K::BYTES;
    const u64 groups = (rows + Rows - 1) / Rows;
    u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
    const u64 warps = u64(gridDim.x) * blockDim.x / LANES;
    for (; warp < groups * vectors; warp += warps) {
        const u64 n = warp % groups * Rows, m = warp / groups;
        const u8 *vector = x + m * (k / RUN * Q8_1::BYTES);
        const u8 *row[Rows];
        float sum[Rows];
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            // Rows past the last are computed again and not written.
            row[r] = w + (n + r < rows ? n + r : rows - 1) * row_bytes;
            sum[r] = 0;
        }
#pragma unroll 2
        for (u64 first = 0; first < blocks; first += 4) {
            const u64 block = first + lane / 8;
            const bool is_there = block < blocks;
            const u64 at = is_there ? block : blocks - 1;
            uint4 header[Rows], quants[Rows];
#pragma unroll
            for (int r = 0; r < Rows; r++) {
                const u8 *b = row[r] + at * Q4_K::BYTES;
                header[r] = *reinterpret_cast<const uint4 *>(b);
                quants[r] = *reinterpret_cast<const uint4 *>(b + Q4_K::qs + 32 * chunk + 16 * half);
            }
            const u8 *runs = vector + (at * 8 + 2 * chunk) * Q8_1::BYTES;
            u32 low[4], high[4];
            int low_total = 0, high_total = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                low[i] = *reinterpret_cast<const u32 *>(runs + Q8_1::qs + 16 * half + 4 * i);
                high[i] = *reinterpret_cast<const u32 *>(runs + Q8_1::BYTES + Q8_1::qs + 16 * half + 4 * i);
                low_total = dp4a(ONES, low[i], low_total);
                high_total = dp4a(ONES, high[i], high_total);
            }
            const float d8 = to_f32<F16>(u16(*reinterpret_cast<const u32 *>(runs + half * Q8_1::BYTES + Layout_Q8_1::d)));
            const int total = (half ? high_total : low_total) +
                              __shfl_xor_sync(ALL_LANES, half ? low_total : high_total, 1);
#pragma unroll
            for (int r = 0; r < Rows; r++) {
                const u32 q[4] = {quants[r].x, quants[r].y, quants[r].z, quants[r].w};
                int low_sum = 0, high_sum = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    low_sum = dp4a(q[i] & 0x0f0f0f0f, low[i], low_sum);
                    high_sum = dp4a(q[i] >> 4 & 0x0f0f0f0f, high[i], high_sum);
                }
                const int products = (half ? high_sum : low_sum) +
                                     __shfl_xor_sync(ALL_LANES, half ? low_sum : high_sum, 1);
                // The 12 bytes of scales and mins follow d and dmin.
                const u32 a = header[r].y, b = header[r].z, c = header[r].w;
                const u32 scales = chunk < 2 ? a & 0x3f3f3f3f : (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
                const u32 mins = chunk < 2 ? b & 0x3f3f3f3f : (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
                const int byte = 8 * (2 * (chunk % 2) + half);
                const int isum = int(scales >> byte & 255) * products;
                const int imin = int(mins >> byte & 255) * total;
                const float d = to_f32<F16>(u16(header[r].x)), dmin = to_f32<F16>(u16(header[r].x >> 16));
                if (is_there) {
                    sum[r] = __fmaf_rn(__fmul_rn(d8, d), float(isum), sum[r]);
                    sum[r] = __fmaf_rn(__fmul_rn(d8, -dmin), float(imin), sum[r]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            const float total = tree(sum[r]);
            if (lane == 0 && n + r < rows) y[m * rows + n + r] = __uint_as_float(result_bits(total));
        }
    }
}

// The kernels of both operations.
extern "C" __global__ void any(const u8 *w, const u8 *x, float *y, u64 rows, u64 vectors, u64 k)
{
    products<WEIGHTS, ACTIVATIONS>(w, x, y, rows, vectors, k);
}

#if WIDE
extern "C" __global__ void wide(const u8 *w, const u8 *x, float *y, u64 rows, u64 vectors, u64 k)
{
    wide_q4_k<ROWS>(w, x, y, rows, vectors, k);
}
#endif
