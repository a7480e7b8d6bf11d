// softmax and log_softmax: one block of LANES threads a row, in the reference's order.
#pragma once
#include "math.cuh"
#include "row.cuh"

// The larger; NaN where one is.
__device__ __forceinline__ float larger(float a, float b) { return is_nan(a) || a > b ? a : b; }

// How many elements a row sees: the first ones.
__device__ __forceinline__ u64 seen(bool is_causal, long long offset, u64 query, u64 all)
{
    if (!is_causal) return all;
    // No overflow: both are far below 2^62, or the sum is beyond all elements anyway.
    if (offset >= (long long)all) return all;
    const long long count = (long long)query + offset + 1;
    return count < 0 ? 0 : (u64)count < all ? (u64)count : all;
}

// `masked` is the result of an element that a row does not see; all of a row that sees nothing are
// `empty`.
template <Format From, Format To, bool LOG>
__device__ __forceinline__ void softmax(const Code<From> *x, Code<To> *y, u64 rows, u64 n, u64 queries, float factor,
                                        bool is_causal, long long offset, float masked, float empty)
{
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const Code<From> *const in = x + row * n;
        Code<To> *const out = y + row * n;
        const u64 count = seen(is_causal, offset, row % queries, n);
        const float none = -__uint_as_float(0x7f800000);
        float max = none;
        for (u64 j = threadIdx.x; j < count; j += LANES) max = larger(max, __fmul_rn(number<From>(in[j]), factor));
        max = tree_max(max);
        if (max == none) {
            for (u64 j = threadIdx.x; j < n; j += LANES) out[j] = rounded<To>(empty);
            continue;
        }
        float sum = 0;
        for (u64 j = threadIdx.x; j < count; j += LANES) {
            const float s = __fmul_rn(number<From>(in[j]), factor);
            sum = __fadd_rn(sum, canonical_exp(__fsub_rn(s, max)));
        }
        sum = tree(sum);
        const float log = LOG ? canonical_log(sum) : 0;
        for (u64 j = threadIdx.x; j < n; j += LANES) {
            float result = masked;
            if (j < count) {
                const float difference = __fsub_rn(__fmul_rn(number<From>(in[j]), factor), max);
                result = LOG ? __fsub_rn(difference, log) : __fdiv_rn(canonical_exp(difference), sum);
            }
            out[j] = rounded<To>(result);
        }
    }
}
