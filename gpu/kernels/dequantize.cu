// GGML blocks to numbers, a thread for each value.
#include "blocks.cuh"

extern "C" __global__ void dequantize(const u8 *blocks, Code<TO> *y, u64 count)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const u8 *block = blocks + i / BLOCK::VALUES * BLOCK::BYTES;
    const int j = int(i % BLOCK::VALUES);
    if constexpr (TO.fraction_bits < 23 && ONCE) {
        y[i] = convert_ieee<F64, TO>(u64(__double_as_longlong(exact_value<BLOCK>(block, j))));
    } else {
        const u32 bits = result_bits(value<BLOCK>(block, j));
        if constexpr (TO.fraction_bits < 23) y[i] = convert_ieee<F32, TO>(bits);
        else y[i] = bits;
    }
}
