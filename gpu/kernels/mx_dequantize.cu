// y[i] = codes[i] * scales[i / BLOCK], by the tensor's scale where there is one. See the reference
// for the orders and roundings.
#include "mx.cuh"

enum class Order : u8 { CodesFirst, ScalesFirst };
enum class Output : u8 { Direct, ViaF32 };

// By a power of two: the product is exact, and so is it in f32 unless it overflows there and in
// narrower formats alike.
__device__ __forceinline__ Code<TO> product(u8 code, u8 scale)
{
    Value<Significand<ELEMENT>> value = decode<ELEMENT>(code);
    if (scale == E8M0_NAN) value.kind = Kind::Nan;
    const int e = exponent_of(scale);
    value.exponent += e;
    value.log2 += e;
    return encode<TO>(value, IEEE, 0);
}

// No product has more than 2 + 4 + 24 significant bits: f64 is exact.
__device__ __forceinline__ Code<TO> product(u8 code, u8 scale, float t, Order order, Output output)
{
    const double c = to_f32<ELEMENT>(code), s = to_f32<SCALE>(scale);
    const double exact = order == Order::CodesFirst ? __dmul_rn(__dmul_rn(c, s), t)
                                                    : __dmul_rn(c, __fmul_rn(to_f32<SCALE>(scale), t));
    u64 bits = u64(__double_as_longlong(exact));
    if (output == Output::ViaF32) {
        return convert<F32, TO>(convert<F64, F32>(bits, IEEE, 0), IEEE, 0);
    }
    return convert<F64, TO>(bits, IEEE, 0);
}

extern "C" __global__ void dequantize(const u8 *codes, const u8 *scales, Code<TO> *y, u64 count,
                                      const float *tensor_scale, Order order, Output output, bool packed)
{
    const u64 lanes = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += lanes) {
        const u8 code = code_at(codes, i, packed), scale = scales[i / BLOCK];
        if constexpr (HAS_TENSOR_SCALE) y[i] = product(code, scale, *tensor_scale, order, output);
        else y[i] = product(code, scale);
    }
}
