// y[i] is the value of x[i] in a wider format: exact where that holds it, otherwise rounded
// once to nearest even; NaN canonical.
#include "elementwise.cuh"

#ifdef CVT
#include "cvt.cuh"
#endif

template <int N>
__device__ __forceinline__ void decode_all(const Code<FROM> *x, Code<TO> *y, u64 count)
{
#ifdef CVT
    elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(x, y, count, [](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64) {
        cvt<FROM, TO>(in, out);
    });
#else
    if constexpr (FROM.storage_bits == 8) {
        // A block computes each code once and looks it up from then on.
        __shared__ Code<TO> table[256];
        for (int code = threadIdx.x; code < 256; code += blockDim.x) {
            table[code] = convert_ieee<FROM, TO>(Code<FROM>(code));
        }
        __syncthreads();
        const Code<TO> *values = table;
        elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(x, y, count, [=](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64) {
#pragma unroll
            for (int i = 0; i < N; i++) out[i] = values[in[i]];
        });
    } else {
        elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(x, y, count, [](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64) {
#pragma unroll
            for (int i = 0; i < N; i++) out[i] = convert_ieee<FROM, TO>(in[i]);
        });
    }
#endif
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    decode_all<VECTOR<Code<FROM>, Code<TO>>>(x, y, count);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count) { decode_all<1>(x, y, count); }
