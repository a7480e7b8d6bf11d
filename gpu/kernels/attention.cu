// Attention: one block of LANES threads a query, in the reference's order. Scores are computed anew
// where they are needed, so that any number of slots fits.
#include "softmax.cuh"

// A query's product with a key, c ascending.
__device__ __forceinline__ float score(const float *q, const Code<KV> *k, u32 d, float factor)
{
    float sum = 0;
    for (u32 c = 0; c < d; c++) sum = __fmaf_rn(q[c], number<KV>(k[c]), sum);
    return __fmul_rn(sum, factor);
}

// A tile is of up to LANES slots; 0 asks for two passes.
extern "C" __global__ void __launch_bounds__(LANES)
    queries(const Code<Q> *q, const Code<KV> *k, const Code<KV> *v, Code<OUT> *y, u64 heads, u64 kv_heads, u64 queries,
            u64 slots, u64 used, u64 d, float factor, bool is_causal, long long offset, u64 tile, float empty)
{
    __shared__ float query[LANES], weights[LANES];
    const float none = -__uint_as_float(0x7f800000);
    const u32 lane = threadIdx.x;
    for (u64 row = blockIdx.x; row < heads * queries; row += gridDim.x) {
        const u64 first = row / queries * kv_heads / heads * slots * d;
        const Code<KV> *const keys = k + first, *const values = v + first;
        const u64 count = seen(is_causal, offset, row % queries, used);
        __syncthreads();
        if (lane < d) query[lane] = number<Q>(q[row * d + lane]);
        __syncthreads();

        float max = none, sum = 0, acc = 0;
        if (tile == 0) {
            for (u64 j = lane; j < count; j += LANES) max = larger(max, score(query, keys + j * d, d, factor));
            max = tree_max(max);
        }
        const u64 step = tile ? tile : LANES;
        for (u64 begin = 0; begin < count; begin += step) {
            const u64 j = begin + lane;
            const bool is_in = lane < step && j < count;
            const float s = is_in ? score(query, keys + j * d, d, factor) : none;
            if (tile) {
                const float largest = larger(max, tree_max(s));
                if (largest == none) continue;
                const float rescale = canonical_exp(__fsub_rn(max, largest));
                max = largest;
                const float e = is_in ? canonical_exp(__fsub_rn(s, max)) : 0;
                weights[lane] = number<P>(rounded<P>(e));
                // The tree waits for all threads before and after.
                const float own = tree(e);
                if (begin == 0) sum = own;
                else {
                    sum = __fmaf_rn(sum, rescale, own);
                    acc = __fmul_rn(acc, rescale);
                }
            } else {
                if (max == none) break;
                const float e = is_in ? canonical_exp(__fsub_rn(s, max)) : 0;
                if (is_in) sum = __fadd_rn(sum, e);
                __syncthreads();
                weights[lane] = number<P>(rounded<P>(e));
                __syncthreads();
            }
            const u64 last = begin + step < count ? step : count - begin;
            if (lane < d) {
                for (u64 i = 0; i < last; i++) {
                    acc = __fmaf_rn(weights[i], number<KV>(values[(begin + i) * d + lane]), acc);
                }
            }
            __syncthreads();
        }
        if (tile == 0) sum = tree(sum);
        if (lane < d) y[row * d + lane] = rounded<OUT>(max == none ? empty : __fdiv_rn(acc, sum));
    }
}
