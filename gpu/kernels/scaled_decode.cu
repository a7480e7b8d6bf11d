// y[i] = f32(f32(x[i]) * s), NaN canonical.
#include "elementwise.cuh"
#include "scale.cuh"

template <int N>
__device__ __forceinline__ void scaled_decode(const Code<FROM> *x, u32 *y, u64 count, const float *s, u64 extent,
                                              u64 scales)
{
    elementwise<N, 1>(x, y, count, [=](const Code<FROM>(&in)[N], u32(&out)[N], u64 index) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (index + i >= count) break;
            out[i] = result_bits(__fmul_rn(to_f32<FROM>(in[i]), s[scale_index(index + i, extent, scales)]));
        }
    });
}

extern "C" __global__ void wide(const Code<FROM> *x, u32 *y, u64 count, const float *s, u64 extent, u64 scales)
{
    scaled_decode<VECTOR<Code<FROM>, u32>>(x, y, count, s, extent, scales);
}

extern "C" __global__ void single(const Code<FROM> *x, u32 *y, u64 count, const float *s, u64 extent, u64 scales)
{
    scaled_decode<1>(x, y, count, s, extent, scales);
}
