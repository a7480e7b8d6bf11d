// Microscaling blocks: what quantization and dequantization have in common. ELEMENT and SCALE are
// the formats of a block of BLOCK elements; with a scale of fraction bits there is one of the
// tensor too.
#pragma once
#include "fast.cuh"

constexpr bool HAS_TENSOR_SCALE = SCALE.fraction_bits != 0;

// The code of element i, of which a byte may hold two, the even index in the low nibble.
__device__ __forceinline__ u8 code_at(const u8 *codes, u64 i, bool packed)
{
    return packed ? codes[i / 2] >> (4 * (i % 2)) & 0xf : codes[i];
}

// The exponent of an E8M0 code that is not NaN.
__device__ __forceinline__ int exponent_of(u8 scale) { return int(scale) - E8M0.bias; }

constexpr u8 E8M0_NAN = 0xff;
