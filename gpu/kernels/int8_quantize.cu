// y = blocks of 8-bit integers, a warp each; bytes, since a block may lie anywhere. See the
// reference for the formula, its edges and its order.
#include "fast.cuh"
#include "layouts.cuh"

enum class Int8Rounding : u8 { NearestAway, NearestEven };

constexpr u32 INFINITE = 0x7f800000;
constexpr u32 WARP = 0xffffffff;

// Rounded and from -127 to 127; NaN is 0.
__device__ __forceinline__ int to_int8(float x, Int8Rounding rounding)
{
    if (is_nan(x)) return 0;
    const float near = x < -127 ? -127.0f : x > 127 ? 127.0f : x;
    if (rounding == Int8Rounding::NearestEven) return __float2int_rn(near);
    const int towards_zero = __float2int_rz(near);
    const float rest = near - float(towards_zero);
    return towards_zero + int(rest >= 0.5f) - int(rest <= -0.5f);
}

__device__ __forceinline__ u16 to_f16(float x) { return convert_ieee<F32, F16>(result_bits(x)); }

template <class Word>
__device__ __forceinline__ void store(u8 *to, Word word)
{
#pragma unroll
    for (int i = 0; i < int(sizeof(Word)); i++) to[i] = u8(word >> (8 * i));
}

// The bits of the largest magnitude of a warp; those of an infinity or of NaN are above all others.
__device__ __forceinline__ u32 largest(u32 bits) { return __reduce_max_sync(WARP, bits & 0x7fffffff); }

// Calls f(x, y) for each of a warp's blocks.
template <class Layout, class F>
__device__ __forceinline__ void each_block(const float *x, u8 *y, u64 blocks, F f)
{
    const u64 warps = u64(gridDim.x) * (blockDim.x / 32);
    for (u64 block = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32; block < blocks; block += warps)
        f(x + Layout::VALUES * block, y + Layout::BYTES * block);
}

// Q8_0, and Q8_1 with its sum. A lane per value.
template <class Layout, bool WITH_SUM>
__device__ __forceinline__ void quantize_32(const float *x, u8 *y, Int8Rounding rounding)
{
    static_assert(Layout::VALUES == 32);
    const int lane = threadIdx.x % 32;
    const float value = x[lane];
    const u32 amax = largest(__float_as_uint(value));
    const bool finite = amax < INFINITE;
    const float d = finite ? __fdiv_rn(__uint_as_float(amax), 127.0f) : __uint_as_float(0x7fffffff);
    const float id = d == 0 ? 0.0f : __fdiv_rn(1.0f, d);
    const int q = finite ? to_int8(__fmul_rn(value, id), rounding) : 0;
    if (lane == 0) store(y + Layout::d, to_f16(d));
    if constexpr (WITH_SUM) {
        const int sum = __reduce_add_sync(WARP, q);
        if (lane == 1) store(y + Layout::s, to_f16(__fmul_rn(d, float(sum))));
    }
    y[Layout::qs + lane] = u8(q);
}

// Q8_K. A lane has every 32nd value, so that 16 lanes have the values of a sum.
__device__ __forceinline__ void quantize_256(const float *x, u8 *y, Int8Rounding rounding)
{
    using Layout = Layout_Q8_K;
    constexpr int N = Layout::VALUES / 32;
    const int lane = threadIdx.x % 32;
    float value[N];
    u32 mine = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        value[i] = x[32 * i + lane];
        const u32 magnitude = __float_as_uint(value[i]) & 0x7fffffff;
        mine = magnitude > mine ? magnitude : mine;
    }
    const u32 amax = largest(mine);
    // The first value that has it, as 2 * position + sign.
    u32 first = ~0u;
#pragma unroll
    for (int i = N - 1; i >= 0; i--) {
        const u32 bits = __float_as_uint(value[i]);
        if ((bits & 0x7fffffff) == amax) first = u32(32 * i + lane) * 2 + (bits >> 31);
    }
    const u32 sign = __reduce_min_sync(WARP, first) << 31;
    const bool finite = amax < INFINITE, zero = amax == 0;
    const float iscale = __fdiv_rn(-127.0f, __uint_as_float(amax | sign));
    const float d = !finite ? __uint_as_float(0x7fffffff) : zero ? 0.0f : __fdiv_rn(1.0f, iscale);
    if (lane == 0) store(y + Layout::d, result_bits(d));
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int q = finite && !zero ? to_int8(__fmul_rn(iscale, value[i]), rounding) : 0;
        y[Layout::qs + 32 * i + lane] = u8(q);
        int sum = q;
#pragma unroll
        for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(WARP, sum, step);
        if (lane % 16 == 0) store(y + Layout::bsums + 2 * (2 * i + lane / 16), u16(sum));
    }
}

extern "C" __global__ void q8_0(const float *x, u8 *y, u64 blocks, Int8Rounding rounding)
{
    each_block<Layout_Q8_0>(x, y, blocks, [=](const float *x, u8 *y) {
        quantize_32<Layout_Q8_0, false>(x, y, rounding);
    });
}

extern "C" __global__ void q8_1(const float *x, u8 *y, u64 blocks, Int8Rounding rounding)
{
    each_block<Layout_Q8_1>(x, y, blocks, [=](const float *x, u8 *y) {
        quantize_32<Layout_Q8_1, true>(x, y, rounding);
    });
}

extern "C" __global__ void q8_k(const float *x, u8 *y, u64 blocks, Int8Rounding rounding)
{
    each_block<Layout_Q8_K>(x, y, blocks, [=](const float *x, u8 *y) {
        quantize_256(x, y, rounding);
    });
}
