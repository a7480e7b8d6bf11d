// y[m, n] = act(v + bias[n]), v one chain of fused multiply-adds in ascending k from +0: in one kernel, or
// the last two steps by themselves, with the same bits.
// ACTIVATION is the name of its function.
#include "activation.cuh"
#include "tile.cuh"

__device__ __forceinline__ float none(float t) { return t; }

// NaN canonical.
__device__ __forceinline__ float activated(float t) { return __uint_as_float(result_bits(ACTIVATION(t))); }

// A block takes one tile after another.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    fused(const Code<FROM_A> *a, const Code<FROM_B> *b, const float *bias, float *y, u64 rows, u64 columns,
          u64 products)
{
    alignas(16) __shared__ Operands a_operands, b_operands;
    const int row = threadIdx.x / SIDE * EACH, column = threadIdx.x % SIDE * EACH;
    const u64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (u64 tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
        const u64 first_row = tile / across * TILE, first_column = tile % across * TILE;
        float sum[EACH][EACH] = {};
        for (u64 k = 0; k < products; k += DEPTH) {
            __syncthreads();
            // Past the end products are -0, which leave any sum as it is.
            load<FROM_A>(a_operands, a, products, 1, first_row, rows, k, products, -0.0f);
            load<FROM_B>(b_operands, b, 1, columns, first_column, columns, k, products, 0.0f);
            __syncthreads();
            multiply_add(sum, a_operands, b_operands, row, column);
        }
#pragma unroll
        for (int m = 0; m < EACH; m++) {
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                const u64 at_row = first_row + row + m, at_column = first_column + column + n;
                if (at_row < rows && at_column < columns) {
                    y[at_row * columns + at_column] = activated(__fadd_rn(sum[m][n], bias[at_column]));
                }
            }
        }
    }
}

// t[m, n] = v[m, n] + bias[n].
extern "C" __global__ void add_bias(const float *v, const float *bias, float *t, u64 rows, u64 columns)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < rows * columns) t[i] = __fadd_rn(v[i], bias[i % columns]);
}

extern "C" __global__ void activate(const float *t, float *y, u64 count)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) y[i] = activated(t[i]);
}
