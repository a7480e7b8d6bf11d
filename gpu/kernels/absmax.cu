// y[group] = max |x| over `extent` consecutive elements, as f32 bits: a maximum of bit
// patterns, so no order of evaluation changes it.
#include "fast.cuh"

enum class AbsmaxNan : u8 { Propagate, Ignore };

// f32 bits of a magnitude, which order as the numbers do. With `propagate`, a NaN is the
// canonical one, above every other pattern; otherwise it counts as absent.
__device__ __forceinline__ u32 magnitude(Code<FROM> code, AbsmaxNan nan)
{
    const u32 bits = __float_as_uint(to_f32<FROM>(code)) & 0x7fffffff;
    return bits <= 0x7f800000 ? bits : nan == AbsmaxNan::Propagate ? 0x7fffffff : 0;
}

__device__ __forceinline__ u32 larger(u32 a, u32 b) { return a > b ? a : b; }

// The part of x[0..count) that falls to `lane` of `lanes`: elements up to the first aligned
// vector, vectors of 16 bytes, and the rest.
__device__ __forceinline__ u32 partial(const Code<FROM> *x, u64 count, u64 lane, u64 lanes, AbsmaxNan nan)
{
    constexpr int N = 16 / int(sizeof(Code<FROM>));
    constexpr int UNROLL = 4;
    struct alignas(16) Vector {
        Code<FROM> at[N];
    };
    const u64 to_aligned = (16 - reinterpret_cast<u64>(x) % 16) % 16 / sizeof(Code<FROM>);
    const u64 head = to_aligned < count ? to_aligned : count;
    const u64 vectors = (count - head) / N;
    u32 max = 0;
    for (u64 i = lane; i < head; i += lanes) max = larger(max, magnitude(x[i], nan));
    const Vector *aligned = reinterpret_cast<const Vector *>(x + head);
    u64 i = lane;
    for (; i + (UNROLL - 1) * lanes < vectors; i += UNROLL * lanes) {
        Vector vector[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) vector[u] = aligned[i + u * lanes];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int j = 0; j < N; j++) max = larger(max, magnitude(vector[u].at[j], nan));
        }
    }
    for (; i < vectors; i += lanes) {
        const Vector vector = aligned[i];
#pragma unroll
        for (int j = 0; j < N; j++) max = larger(max, magnitude(vector.at[j], nan));
    }
    for (u64 i = head + vectors * N + lane; i < count; i += lanes) max = larger(max, magnitude(x[i], nan));
    return max;
}

// Few long groups: `slices` blocks share one, and meet in y, which holds zeros.
extern "C" __global__ void long_groups(const Code<FROM> *x, u32 *y, u64 groups, u64 extent, u64 slices, AbsmaxNan nan)
{
    __shared__ u32 of_warp[32];
    const u64 group = blockIdx.x / slices, slice = blockIdx.x % slices;
    const u64 lane = slice * blockDim.x + threadIdx.x;
    u32 max = partial(x + group * extent, extent, lane, slices * blockDim.x, nan);
    max = __reduce_max_sync(0xffffffff, max);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = max;
    __syncthreads();
    if (threadIdx.x < 32) {
        max = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
        max = __reduce_max_sync(0xffffffff, max);
        if (threadIdx.x == 0) atomicMax(y + group, max);
    }
}

// Many short groups: a warp takes one after another.
extern "C" __global__ void short_groups(const Code<FROM> *x, u32 *y, u64 groups, u64 extent, AbsmaxNan nan)
{
    const u64 warps = u64(gridDim.x) * (blockDim.x / 32);
    for (u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32; group < groups; group += warps) {
        const u32 max = __reduce_max_sync(0xffffffff, partial(x + group * extent, extent, threadIdx.x % 32, 32, nan));
        if (threadIdx.x % 32 == 0) y[group] = max;
    }
}
