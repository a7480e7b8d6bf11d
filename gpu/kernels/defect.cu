// Casts from f32 to E4M3FN with one deliberate defect each, to see what becomes of it.
#include "fast.cuh"

__device__ __forceinline__ u64 cast_all(const u32 *x, u8 *y, u64 count)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) y[i] = convert_default<F32, E4M3FN>(x[i]);
    return i;
}

// Writes to an address that is in no allocation.
extern "C" __global__ void illegal_address(const u32 *x, u8 *y, u64 count)
{
    if (cast_all(x, y, count) == 0) *reinterpret_cast<volatile u32 *>(16) = 1;
}

// Never ends.
extern "C" __global__ void infinite_loop(const u32 *x, volatile u8 *y, u64 count)
{
    const u64 i = cast_all(x, const_cast<u8 *>(y), count);
    while (i == 0) y[0] = y[0] ^ 1;
}

// Writes one element past the end.
extern "C" __global__ void write_past_end(const u32 *x, u8 *y, u64 count)
{
    if (cast_all(x, y, count) == 0) y[count] = 0x55;
}

// Changes an input after it was read.
extern "C" __global__ void write_input(u32 *x, u8 *y, u64 count)
{
    const u64 i = cast_all(x, y, count);
    if (i + 1 == count) x[i] ^= 1;
}

// Leaves the last element out.
extern "C" __global__ void unwritten(const u32 *x, u8 *y, u64 count) { cast_all(x, y, count - 1); }

__device__ u32 tickets;

// Takes a ticket per element from a counter that outlives the launch; every other one, in a
// scrambled order, changes the result.
extern "C" __global__ void nondeterministic(const u32 *x, u8 *y, u64 count)
{
    const u64 i = cast_all(x, y, count);
    if (i < count) y[i] ^= atomicAdd(&tickets, 1) * 2654435769u >> 31;
}
