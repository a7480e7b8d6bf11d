// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row: a block a row, in the order
// of row.cuh. CENTERED 0: the mean counts as 0. WEIGHT and BIAS are formats, if there are such.
#include "math.cuh"
#include "row.cuh"

// Adds y, which holds the last error already, to a lane: Kahan's sum.
struct Lane {
    float sum = 0, error = 0;

    __device__ __forceinline__ void add(float y)
    {
        const float next = __fadd_rn(sum, y);
        const float left = __fsub_rn(__fsub_rn(next, sum), y);
        error = fabsf(left) <= FLT_LARGEST ? left : 0;
        sum = next;
    }

    __device__ __forceinline__ void term(float x)
    {
        if (COMPENSATED) add(__fsub_rn(x, error));
        else sum = __fadd_rn(sum, x);
    }

    __device__ __forceinline__ void square(float x)
    {
        if (COMPENSATED) add(__fmaf_rn(x, x, -error));
        else sum = __fmaf_rn(x, x, sum);
    }
};

extern "C" __global__ void norm_rows(const Code<FROM> *x, Code<TO> *y, u64 rows, u64 n, float eps
#ifdef WEIGHT
                                     , const Code<WEIGHT> *weight
#endif
#ifdef BIAS
                                     , const Code<BIAS> *bias
#endif
)
{
    const float count = __ull2float_rn(n);
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const Code<FROM> *in = x + row * n;
        Code<TO> *out = y + row * n;
        float mean = 0;
        if (CENTERED) {
            Lane lane;
            for (u64 i = threadIdx.x; i < n; i += LANES) lane.term(number<FROM>(in[i]));
            mean = __fdiv_rn(tree(lane.sum), count);
        }
        Lane lane;
        for (u64 i = threadIdx.x; i < n; i += LANES) {
            const float value = number<FROM>(in[i]);
            lane.square(CENTERED ? __fsub_rn(value, mean) : value);
        }
        const float r = canonical_rsqrt(__fadd_rn(__fdiv_rn(tree(lane.sum), count), eps));
        for (u64 i = threadIdx.x; i < n; i += LANES) {
            const float value = number<FROM>(in[i]);
            float result = __fmul_rn(CENTERED ? __fsub_rn(value, mean) : value, r);
#ifdef WEIGHT
            result = __fmul_rn(result, number<WEIGHT>(weight[i]));
#endif
#ifdef BIAS
            result = __fadd_rn(result, number<BIAS>(bias[i]));
#endif
            out[i] = rounded<TO>(result);
        }
    }
}
