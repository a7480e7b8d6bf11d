// One result per element: vectors where both pointers are aligned for them, single elements
// otherwise and at the end.
#pragma once
#include "fast.cuh"

template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
    T at[N];
};

// `convert(in, out, index)` converts N elements, of which `index` is the first. A thread has
// VECTORS vectors, all loaded before the first is converted; a block has VECTORS * blockDim.x,
// and the last block takes what fills no vector.
template <int N, int VECTORS, class From, class To, class Convert>
__device__ __forceinline__ void elementwise(const From *x, To *y, u64 count, Convert convert)
{
    const u64 vectors = count / N;
    const u64 first = u64(blockIdx.x) * (blockDim.x * VECTORS) + threadIdx.x;
    Vector<From, N> in[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const u64 at = first + u64(i) * blockDim.x;
        if (at < vectors) in[i] = reinterpret_cast<const Vector<From, N> *>(x)[at];
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const u64 at = first + u64(i) * blockDim.x;
        if (at < vectors) {
            Vector<To, N> out;
            convert(in[i].at, out.at, at * N);
            reinterpret_cast<Vector<To, N> *>(y)[at] = out;
        }
    }
    if constexpr (N > 1) {
        const u64 rest = vectors * N + threadIdx.x;
        if (blockIdx.x == gridDim.x - 1 && rest < count) {
            // Conversions of pairs take two elements: the second is computed and dropped.
            From one[N] = {x[rest]};
            To result[N];
            convert(one, result, rest);
            y[rest] = result[0];
        }
    }
}

// Elements of a vector: 16 bytes of the wider type, and no more than 4 elements of different
// widths, which was measured to be fastest.
template <class From, class To>
constexpr int VECTOR = sizeof(From) == sizeof(To) ? 16 / int(sizeof(To))
                       : sizeof(From) == 8 || sizeof(To) == 8 ? 2 : 4;

// Vectors of a thread: 16 elements in all, in at most 4.
template <class From, class To>
constexpr int UNROLL = VECTOR<From, To> < 4 ? 4 : 16 / VECTOR<From, To>;
