// scales[block] from the largest magnitude of a block, codes[i] = encode(x[i] / scale). See the
// reference for the rules and the edges.
#include "mx.cuh"

enum class ScaleRule : u8 { Floor, Ceil, Even, Rceil, CeilLog2 };
enum class NonFinite : u8 { NanScale, PerElement, Saturate };
enum class ElementOp : u8 { Divide, Reciprocal };

constexpr u32 INFINITE = 0x7f800000;

// A magnitude as f32 bits, which order as the numbers do; 0 for one that counts as absent. With
// `nan_scale` all that is not finite is beyond every number.
__device__ __forceinline__ u32 magnitude(Code<FROM> code, NonFinite non_finite)
{
    const u32 bits = __float_as_uint(to_f32<FROM>(code)) & 0x7fffffff;
    if (bits < INFINITE) return bits;
    switch (non_finite) {
    case NonFinite::NanScale: return 0x7fffffff;
    case NonFinite::PerElement: return 0;
    case NonFinite::Saturate: break;
    }
    return bits == INFINITE ? bits : 0;
}

// The 24 significant bits of a positive value.
__device__ __forceinline__ u32 significant(Value<u32> value)
{
    return value.significand << (23 - highest_bit(value.significand));
}

// The code of the E8M0 scale of a block whose largest magnitude is `a`.
__device__ __forceinline__ u8 power_of_two_scale(u32 a, ScaleRule rule)
{
    if (a > INFINITE) return E8M0_NAN;
    if (a == INFINITE) return u8(E8M0.max_finite());
    if (a == 0) return 0;
    const Value<u32> value = decode<F32>(a);
    const u32 bits = significant(value);
    // Of the element format's largest value, and of the least that rounds up to a power of two.
    constexpr u32 fraction = u32(ELEMENT.max_magnitude() & ELEMENT.fraction_mask());
    constexpr u32 max = (1u << ELEMENT.fraction_bits | fraction) << (23 - ELEMENT.fraction_bits);
    constexpr u32 carries = ((2u << (ELEMENT.fraction_bits + 1)) - 1) << (22 - ELEMENT.fraction_bits);
    int e = value.log2 - ELEMENT.max_exponent();
    switch (rule) {
    case ScaleRule::Floor: break;
    case ScaleRule::Ceil: e += bits > max; break;
    case ScaleRule::Even: e += bits >= carries; break;
    case ScaleRule::Rceil: {
        const float largest = to_f32<ELEMENT>(Code<ELEMENT>(ELEMENT.max_finite()));
        const float quotient = __fmul_rn(__uint_as_float(a), __frcp_rn(largest));
        return convert<F32, E8M0>(__float_as_uint(quotient), Policy{Rounding::Up}, 0);
    }
    case ScaleRule::CeilLog2: e += bits != 1u << 23; break;
    }
    e += E8M0.bias;
    return u8(e < 0 ? 0 : e);
}

// The code of the scale of a block whose largest magnitude is `a`.
__device__ __forceinline__ u8 scale_of(u32 a, ScaleRule rule, float tensor_scale)
{
    if constexpr (!HAS_TENSOR_SCALE) {
        return power_of_two_scale(a, rule);
    } else {
        const float largest = to_f32<ELEMENT>(Code<ELEMENT>(ELEMENT.max_finite()));
        const float scale = __fdiv_rn(__fdiv_rn(__uint_as_float(a), largest), tensor_scale);
        return convert<F32, SCALE>(result_bits(scale), Policy(), 0);
    }
}

__device__ __noinline__ u8 element(Code<FROM> code, u8 scale, float tensor_scale, ElementOp op, Policy policy,
                                   u32 random)
{
    if ((scale & SCALE.magnitude_mask()) == SCALE.magnitude_mask()) return encode_nan<ELEMENT>(false, policy.nan);
    Value<Significand<FROM>> value = decode<FROM>(code);
    if constexpr (!HAS_TENSOR_SCALE) {
        const int e = exponent_of(scale);
        value.exponent -= e;
        value.log2 -= e;
        return encode<ELEMENT>(value, policy, random);
    } else {
        if (value.kind != Kind::Finite) return encode<ELEMENT>(value, policy, random);
        const float x = to_f32<FROM>(code);
        const float factor = __fmul_rn(to_f32<SCALE>(scale), tensor_scale);
        float scaled;
        if (factor == 0) {
            scaled = __fmul_rn(x, factor);
        } else if (op == ElementOp::Divide) {
            scaled = __fdiv_rn(x, factor);
        } else {
            const u32 inverse = __float_as_uint(__frcp_rn(factor));
            const bool is_infinite = (inverse & 0x7fffffff) == INFINITE;
            scaled = __fmul_rn(x, __uint_as_float(is_infinite ? (inverse & 0x80000000) | 0x7f7fffff : inverse));
        }
        return convert<F32, ELEMENT>(result_bits(scaled), policy, random);
    }
}

// A lane per element, so that a warp has one block or two. All lanes of a warp take part to the
// end, those beyond the last element with nothing.
extern "C" __global__ void quantize(const Code<FROM> *x, u8 *codes, u8 *scales, u64 count, const float *tensor_scale,
                                    ScaleRule rule, NonFinite non_finite, ElementOp op, bool packed,
                                    const u32 *random, Policy policy)
{
    const float t = HAS_TENSOR_SCALE ? *tensor_scale : 1;
    const u64 lanes = u64(gridDim.x) * blockDim.x;
    const u64 lane = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    // The first lane of the warp decides for all of them.
    for (u64 i = lane; i - threadIdx.x % 32 < count; i += lanes) {
        const bool is_there = i < count;
        const Code<FROM> code = is_there ? x[i] : Code<FROM>(0);
        u32 a = magnitude(code, non_finite);
#pragma unroll
        for (int distance = BLOCK / 2; distance > 0; distance /= 2) {
            const u32 other = __shfl_xor_sync(0xffffffff, a, distance);
            a = a > other ? a : other;
        }
        const u8 scale = scale_of(a, rule, t);
        const u8 own = element(code, scale, t, op, policy, random && is_there ? random[i] : 0);
        const u32 next = __shfl_down_sync(0xffffffff, u32(own), 1);
        if (!is_there) continue;
        if (i % BLOCK == 0) scales[i / BLOCK] = scale;
        if (!packed) codes[i] = own;
        else if (i % 2 == 0) codes[i / 2] = u8(own | next << 4);
    }
}
