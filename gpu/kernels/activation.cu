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
