#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(LANES)
    rows(const Code<FROM> *x, Code<TO> *y, u64 rows, u64 n, u64 queries, float factor, bool is_causal, long long offset,
         float masked, float empty)
{
    softmax<FROM, TO, true>(x, y, rows, n, queries, factor, is_causal, offset, masked, empty);
}
