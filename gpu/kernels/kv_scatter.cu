// cache[head][positions[token]] = rows[token][head]. All positions are below max_len, and differ.
#include "format.cuh"

#if BITS == 8
using Element = u8;
#elif BITS == 16
using Element = u16;
#else
using Element = u32;
#endif

extern "C" __global__ void kv_scatter(const Element *rows, const u32 *positions, Element *cache, u64 count, u64 heads,
                                      u64 head_dim, u64 max_len)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const u64 column = i % head_dim, head = i / head_dim % heads, token = i / head_dim / heads;
    cache[(head * max_len + positions[token]) * head_dim + column] = rows[i];
}
