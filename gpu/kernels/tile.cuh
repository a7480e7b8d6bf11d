// A tile of a matrix product by fused multiply-adds: operands in shared memory, sums in registers.
#pragma once
#include "fast.cuh"

// Outputs of a block: 64 by 64, of which a thread has 4 by 4. Operands of 16 products are in
// shared memory at a time.
constexpr int TILE = 64, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE, DEPTH = 16;

// Operands by k. A row is longer than a tile so that a column is not in one bank.
typedef float Operands[DEPTH][TILE + 4];

template <Format F>
__device__ __forceinline__ float operand(Code<F> code)
{
    if constexpr (F.exponent_bits == 8 && F.specials == Specials::Ieee) {
        // The upper bits of an f32.
        return __uint_as_float(u32(code) << (32 - F.storage_bits) & ~0u << (23 - F.fraction_bits));
    } else {
        return to_f32<F>(code);
    }
}

// Operands `first`.. of `extent` and products `k`..`end`; `beyond` stands in where there are none.
// `along` is the stride from one operand to the next, `deep` that from one product to the next.
template <Format F>
__device__ __forceinline__ void load(Operands &to, const Code<F> *from, u64 along, u64 deep, u64 first, u64 extent,
                                     u64 k, u64 end, float beyond)
{
    // Neighbouring threads take what are neighbours in memory.
    const bool by_product = deep == 1;
#pragma unroll
    for (int i = 0; i < TILE * DEPTH; i += THREADS) {
        const int each = i + int(threadIdx.x);
        const int product = by_product ? each % DEPTH : each / TILE;
        const int item = by_product ? each / DEPTH : each % TILE;
        const bool inside = first + item < extent && k + product < end;
        // Read in either case, so that the thread's loads do not wait for one another.
        const u64 index = (first + item) * along + (k + product) * deep;
        const float value = operand<F>(from[inside ? index : 0]);
        to[product][item] = inside ? value : beyond;
    }
}

// The sums of a thread's outputs, from `row` and `column` of the tile on, with the products in shared
// memory added in ascending k.
__device__ __forceinline__ void multiply_add(float (&sum)[EACH][EACH], const Operands &a, const Operands &b, int row,
                                             int column)
{
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        const float4 left = *reinterpret_cast<const float4 *>(&a[i][row]);
        const float4 right = *reinterpret_cast<const float4 *>(&b[i][column]);
        const float lefts[EACH] = {left.x, left.y, left.z, left.w};
        const float rights[EACH] = {right.x, right.y, right.z, right.w};
#pragma unroll
        for (int m = 0; m < EACH; m++) {
#pragma unroll
            for (int n = 0; n < EACH; n++) sum[m][n] = __fmaf_rn(lefts[m], rights[n], sum[m][n]);
        }
    }
}
