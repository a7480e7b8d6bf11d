// y[i] = encode(x[i]): from the bits of the source directly, rounded once.
#include "elementwise.cuh"

#ifdef CVT
#include "cvt.cuh"

template <int N>
__device__ __forceinline__ void cast(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(x, y, count, [](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64) { cvt<FROM, TO>(in, out); });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    cast<VECTOR<Code<FROM>, Code<TO>>>(x, y, count);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count) { cast<1>(x, y, count); }

#else

// The default policy as a constant, and any policy. `random` is null unless rounding is
// stochastic.
template <int N, bool DEFAULT>
__device__ __forceinline__ void cast(const Code<FROM> *x, Code<TO> *y, u64 count, const u32 *random, Policy policy)
{
    elementwise<N, UNROLL<Code<FROM>, Code<TO>>>(x, y, count, [=](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64 index) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 bits = !DEFAULT && random && index + i < count ? random[index + i] : 0;
            out[i] = DEFAULT ? convert_default<FROM, TO>(in[i]) : convert<FROM, TO>(in[i], policy, bits);
        }
    });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    cast<VECTOR<Code<FROM>, Code<TO>>, true>(x, y, count, nullptr, Policy());
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count)
{
    cast<1, true>(x, y, count, nullptr, Policy());
}

extern "C" __global__ void wide_any(const Code<FROM> *x, Code<TO> *y, u64 count, const u32 *random, Policy policy)
{
    cast<VECTOR<Code<FROM>, Code<TO>>, false>(x, y, count, random, policy);
}

extern "C" __global__ void single_any(const Code<FROM> *x, Code<TO> *y, u64 count, const u32 *random, Policy policy)
{
    cast<1, false>(x, y, count, random, policy);
}
#endif
