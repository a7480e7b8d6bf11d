// y[i] = encode(f32(x[i] op s)).
#include "elementwise.cuh"
#include "scale.cuh"

template <int N>
__device__ __forceinline__ void scaled_cast(const Code<FROM> *x, Code<TO> *y, u64 count, const float *s, u64 extent,
                                            u64 scales, ScaleOp op, const u32 *random, Policy policy)
{
    const bool is_default = policy.is_default();
    elementwise<N, 1>(x, y, count, [=](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64 index) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            // Elements past the end are dropped; they have neither scale nor random bits.
            if (index + i >= count) break;
            const float scaled = apply_scale(op, to_f32<FROM>(in[i]), s[scale_index(index + i, extent, scales)]);
            out[i] = encode_result<TO>(scaled, is_default, policy, random ? random[index + i] : 0);
        }
    });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count, const float *s, u64 extent, u64 scales,
                                ScaleOp op, const u32 *random, Policy policy)
{
    scaled_cast<VECTOR<Code<FROM>, Code<TO>>>(x, y, count, s, extent, scales, op, random, policy);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count, const float *s, u64 extent, u64 scales,
                                  ScaleOp op, const u32 *random, Policy policy)
{
    scaled_cast<1>(x, y, count, s, extent, scales, op, random, policy);
}
