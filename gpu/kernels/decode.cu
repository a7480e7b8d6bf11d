// y[i] is the value of x[i] in a wider format: exact where that holds it, otherwise rounded
// once to nearest even; NaN canonical.
#include "elementwise.cuh"

#ifdef CVT
#include "cvt.cuh"
#endif

template <int N>
__device__ __forceinline__ void decode_all(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    elementwise<N, 4>(x, y, count, [](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64) {
#ifdef CVT
        cvt<FROM, TO>(in, out);
#else
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = convert_ieee<FROM, TO>(in[i]);
#endif
    });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    decode_all<VECTOR<Code<FROM>, Code<TO>>>(x, y, count);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count) { decode_all<1>(x, y, count); }
