// y[i] = round(FUNCTION(x[i])), or of two inputs round(FUNCTION(x[i], second[i])).
#include "activation.cuh"
#include "elementwise.cuh"
#include "number.cuh"

#if ARGUMENTS == 2
#define SECOND , const Code<FROM> *second
#define PASS , second
#else
#define SECOND
#define PASS
#endif

template <int N>
__device__ __forceinline__ void activation(const Code<FROM> *x, Code<TO> *y, u64 count SECOND)
{
    elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(
        x, y, count, [=](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64 index) {
#if ARGUMENTS == 2
            Vector<Code<FROM>, N> others = {};
            if (index + N <= count) others = *reinterpret_cast<const Vector<Code<FROM>, N> *>(second + index);
            else others.at[0] = second[index];
#endif
#pragma unroll
            for (int i = 0; i < N; i++) {
#if ARGUMENTS == 2
                out[i] = rounded<TO>(FUNCTION(number<FROM>(in[i]), number<FROM>(others.at[i])));
#else
                out[i] = rounded<TO>(FUNCTION(number<FROM>(in[i])));
#endif
            }
        });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count SECOND)
{
    activation<VECTOR<Code<FROM>, Code<TO>>>(x, y, count PASS);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count SECOND)
{
    activation<1>(x, y, count PASS);
}

#ifdef TABLE
// The same for 16 bits by the results of all inputs, which each block has in its shared memory. There is
// room for one block on a multiprocessor, and about as many work as there are of those; others only end.
extern "C" __global__ void __launch_bounds__(1024, 1) table(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    extern __shared__ Code<TO> results[];
    u32 multiprocessors;
    asm("mov.u32 %0, %%nsmid;" : "=r"(multiprocessors));
    const u32 blocks = gridDim.x < multiprocessors ? gridDim.x : multiprocessors;
    if (blockIdx.x >= blocks) return;
    for (u32 code = threadIdx.x; code < 1u << 16; code += blockDim.x) {
        results[code] = rounded<TO>(FUNCTION(number<FROM>(Code<FROM>(code))));
    }
    __syncthreads();

    constexpr int N = 8, VECTORS = 4;
    const u64 stride = u64(blocks) * blockDim.x, first = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool is_aligned = (reinterpret_cast<u64>(x) | reinterpret_cast<u64>(y)) % 16 == 0;
    const u64 vectors = is_aligned ? count / N : 0;
    for (u64 at = first; at < vectors; at += VECTORS * stride) {
        Vector<Code<FROM>, N> in[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            if (at + i * stride < vectors) in[i] = reinterpret_cast<const Vector<Code<FROM>, N> *>(x)[at + i * stride];
        }
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            if (at + i * stride < vectors) {
                Vector<Code<TO>, N> out;
#pragma unroll
                for (int j = 0; j < N; j++) out.at[j] = results[in[i].at[j]];
                reinterpret_cast<Vector<Code<TO>, N> *>(y)[at + i * stride] = out;
            }
        }
    }
    for (u64 i = vectors * N + first; i < count; i += stride) y[i] = results[x[i]];
}
#endif
