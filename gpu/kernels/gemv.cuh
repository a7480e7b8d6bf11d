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

#if WIDE
// Q4_K times one vector of Q8_1, of up to 1024 * Quads values, by accesses of 16 and 4 bytes for which
// both are aligned. A lane keeps its runs of the vector in registers; the rows of a warp, one after
// the other, pass through a ring in shared memory, so that the next ones are on their way while one
// is multiplied. Each block of threads has several rows and not one: what it reads first is read once.
__device__ __forceinline__ void copy_16(u32 to, const u8 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Later>
__device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
}

// c + the products of four pairs of u8 and i8.
__device__ __forceinline__ int dp4a_unsigned(u32 a, u32 b, int c)
{
    int d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// The f32 of an integer below 2^22 in magnitude: conversions take four times as long.
__device__ __forceinline__ float small_integer(int i)
{
    return __fsub_rn(__int_as_float(0x4b400000 + i), 12582912.0f);
}

// A run of the vector.
struct Run {
    u32 q8[8];
    float d8;
    int total;
};

constexpr int WARPS = 4, RING = 2, QUAD = 4 * Q4_K::BYTES;

template <int Quads>
using Rings = u8[WARPS][RING][Quads * QUAD];

// Whole: there are exactly as many values.
template <int Quads, bool Whole>
__device__ __forceinline__ void rows_in_turn(const u8 *w, const u8 *x, float *y, u32 rows, u32 k, Rings<Quads> &rings)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const u32 runs = Whole ? Quads * LANES : k / RUN;
    const u32 row_bytes = Whole ? Quads * QUAD : k / Q4_K::VALUES * Q4_K::BYTES;
    const u32 step = gridDim.x * WARPS;
    u32 next = blockIdx.x * WARPS + warp;
    const auto fetch = [&](int slot) {
        if (next < rows) {
            const u8 *row = w + u64(next) * row_bytes;
            const u32 to = u32(__cvta_generic_to_shared(rings[warp][slot]));
#pragma unroll
            for (u32 at = 0; at < Quads * QUAD; at += 16 * LANES) {
                const u32 own = at + 16 * lane;
                if (own < row_bytes) copy_16(to + own, row + own);
            }
            next += step;
        }
        end_of_copies();
    };
    u32 n = next;
#pragma unroll
    for (int i = 0; i < RING - 1; i++) fetch(i);

    Run own[Quads];
#pragma unroll
    for (int quad = 0; quad < Quads; quad++) {
        const u32 run = quad * LANES + lane;
        own[quad] = {};
        if (run >= runs) continue;
        const u32 *block = reinterpret_cast<const u32 *>(x + run * Q8_1::BYTES);
        own[quad].d8 = half_value(block[0]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            own[quad].q8[i] = block[1 + i];
            own[quad].total = dp4a(ONES, block[1 + i], own[quad].total);
        }
    }

    // Eight lanes have the sub-blocks of a block. The nibbles of an odd one are the high ones, whose
    // sum comes out 16 times too large.
    const int sub = lane % 8;
    const u32 mask = sub % 2 ? 0xf0f0f0f0 : 0x0f0f0f0f;
    const int shift = sub % 2 * 4;
    // Bits of the four scales, a byte each, that are together with the sub-block's.
    const bool is_low = sub < 4;
    const u32 low = is_low ? 0x3f3f3f3f : 0x0f0f0f0f, high = is_low ? 0 : 0x30303030;
    const u32 pick = 0x4440 | sub % 4;
    const u32 block_at = lane / 8 * Q4_K::BYTES, quants_at = block_at + Q4_K::qs + sub / 2 * 32;
    for (int slot = 0; n < rows; n += step, slot = (slot + 1) % RING) {
        wait_for_copies<RING - 2>();
        __syncwarp();
        fetch((slot + RING - 1) % RING);
        float sum = 0;
#pragma unroll
        for (int quad = 0; quad < Quads; quad++) {
            if (quad * LANES + lane >= runs) continue;
            const Run &run = own[quad];
            const u8 *blocks = rings[warp][slot] + quad * QUAD;
            const uint4 header = *reinterpret_cast<const uint4 *>(blocks + block_at);
            const uint4 q[2] = {reinterpret_cast<const uint4 *>(blocks + quants_at)[0],
                                reinterpret_cast<const uint4 *>(blocks + quants_at)[1]};
            int products = 0;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                products = dp4a_unsigned(q[i].x & mask, run.q8[4 * i], products);
                products = dp4a_unsigned(q[i].y & mask, run.q8[4 * i + 1], products);
                products = dp4a_unsigned(q[i].z & mask, run.q8[4 * i + 2], products);
                products = dp4a_unsigned(q[i].w & mask, run.q8[4 * i + 3], products);
            }
            products >>= shift;
            // The 12 bytes of scales and mins follow d and dmin.
            const u32 scales = ((is_low ? header.y : header.w) & low) | (header.y >> 2 & high);
            const u32 mins = ((is_low ? header.z : header.w >> 4) & low) | (header.z >> 2 & high);
            const float isum = small_integer(int(__byte_perm(scales, 0, pick)) * products);
            const float imin = small_integer(int(__byte_perm(mins, 0, pick)) * run.total);
            const float d = half_value(header.x), m = -half_value(header.x >> 16);
            sum = __fmaf_rn(__fmul_rn(run.d8, d), isum, sum);
            sum = __fmaf_rn(__fmul_rn(run.d8, m), imin, sum);
        }
        sum = tree(sum);
        if (lane == 0) y[n] = __uint_as_float(result_bits(sum));
        __syncwarp();
    }
}

#define IN_TURN(quads)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128) wide_##quads(const u8 *w, const u8 *x, float *y, u64 rows, \
                                                                   u64, u64 k)                                 \
    {                                                                                                          \
        __shared__ alignas(16) Rings<quads> rings;                                                             \
        if (k == quads * 4 * Q4_K::VALUES) rows_in_turn<quads, true>(w, x, y, u32(rows), u32(k), rings);       \
        else rows_in_turn<quads, false>(w, x, y, u32(rows), u32(k), rings);                                    \
    }
IN_TURN(1)
IN_TURN(2)
IN_TURN(3)
IN_TURN(4)
#endif

// The kernel of both operations, for any format and alignment.
extern "C" __global__ void any(const u8 *w, const u8 *x, float *y, u64 rows, u64 vectors, u64 k)
{
    products<WEIGHTS, ACTIVATIONS>(w, x, y, rows, vectors, k);
}
