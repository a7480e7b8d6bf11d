// With m the largest finite value of TO and a the absmax of an element's group:
// q = m / a, dequant = a / m, y[i] = encode(x[i] op factor). See the reference for the edges.
#include "elementwise.cuh"
#include "scale.cuh"

enum class Tiny : u8 { Reciprocal, Quotient };
enum class Special : u8 { Propagate, Unit };

__device__ __forceinline__ bool is_infinite(float x) { return (__float_as_uint(x) & 0x7fffffff) == 0x7f800000; }

// An infinite factor becomes the largest f32 of its sign.
__device__ __forceinline__ float clamped(float factor)
{
    const u32 bits = __float_as_uint(factor);
    return is_infinite(factor) ? __uint_as_float((bits & 0x80000000) | 0x7f7fffff) : factor;
}

// Each element is multiplied by `factor`, or divided.
struct Factors {
    float factor, dequant;
    ScaleOp op;
};

__device__ __noinline__ Factors factors(float a, ScaleOp op, Tiny tiny, Special special)
{
    const float max = to_f32<TO>(Code<TO>(TO.max_finite()));
    if (special == Special::Unit && (is_nan(a) || is_infinite(a))) a = 1;
    if (a == 0) a = 1;
    const float q = __fdiv_rn(max, a);
    const bool invert = is_infinite(q) && tiny == Tiny::Reciprocal;
    const float dequant = invert ? __frcp_rn(clamped(q)) : __fdiv_rn(a, max);
    switch (op) {
    case ScaleOp::Multiply: return {clamped(q), dequant, ScaleOp::Multiply};
    case ScaleOp::Divide: return {dequant, dequant, ScaleOp::Divide};
    case ScaleOp::Reciprocal: break;
    }
    return {clamped(__frcp_rn(dequant)), dequant, ScaleOp::Multiply};
}

template <int N>
__device__ __forceinline__ void device_scaled_cast(const Code<FROM> *x, Code<TO> *y, u64 count, const float *a,
                                                   u64 extent, u64 scales, ScaleOp op, Tiny tiny,
                                                   Special special, const u32 *random, Policy policy)
{
    const bool is_default = policy.is_default();
    elementwise<N, 1>(x, y, count, [=](const Code<FROM>(&in)[N], Code<TO>(&out)[N], u64 index) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (index + i >= count) break;
            const Factors f = factors(a[scale_index(index + i, extent, scales)], op, tiny, special);
            const float scaled = apply_scale(f.op, to_f32<FROM>(in[i]), f.factor);
            out[i] = encode_result<TO>(scaled, is_default, policy, random ? random[index + i] : 0);
        }
    });
}

extern "C" __global__ void wide(const Code<FROM> *x, Code<TO> *y, u64 count, const float *a, u64 extent,
                                u64 scales, ScaleOp op, Tiny tiny, Special special, const u32 *random, Policy policy)
{
    device_scaled_cast<VECTOR<Code<FROM>, Code<TO>>>(x, y, count, a, extent, scales, op, tiny, special,
                                                     random, policy);
}

extern "C" __global__ void single(const Code<FROM> *x, Code<TO> *y, u64 count, const float *a, u64 extent, u64 scales, ScaleOp op, Tiny tiny, Special special, const u32 *random,
                                  Policy policy)
{
    device_scaled_cast<1>(x, y, count, a, extent, scales, op, tiny, special, random, policy);
}

// Apart from the casts, which read `a`: the two may be one tensor.
extern "C" __global__ void dequant(const float *a, u32 *y, u64 scales, Tiny tiny, Special special)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < scales) y[i] = result_bits(factors(a[i], ScaleOp::Multiply, tiny, special).dequant);
}
