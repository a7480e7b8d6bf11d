// y = encode((alpha * scale_a * scale_b * (a * b) + beta * c + bias) * scale_out) with a defined
// order of accumulation: one chain of fused multiply-adds in ascending k from +0, or the sums of
// such chains over parts of k, added in ascending order.
#include "tile.cuh"

// A tensor as a matrix per batch, with its strides in elements; those along which it has one
// element for all are 0. A tensor that there is not has no address.
struct Matrix {
    u64 address, batch, row, column;

    __device__ __forceinline__ u64 index(u64 b, u64 m, u64 n) const { return b * batch + m * row + n * column; }
};

// Formats of c and bias, in the host's order.
enum class Stored : u8 { F32, F16, BF16, E4M3FN, E5M2 };

__device__ __forceinline__ float value(const Matrix &x, Stored format, u64 index)
{
    switch (format) {
    case Stored::F32: return reinterpret_cast<const float *>(x.address)[index];
    case Stored::F16: return operand<F16>(reinterpret_cast<const u16 *>(x.address)[index]);
    case Stored::BF16: return operand<BF16>(reinterpret_cast<const u16 *>(x.address)[index]);
    case Stored::E4M3FN: return operand<E4M3FN>(reinterpret_cast<const u8 *>(x.address)[index]);
    case Stored::E5M2: return operand<E5M2>(reinterpret_cast<const u8 *>(x.address)[index]);
    }
    return 0;
}

__device__ __forceinline__ float scale(const Matrix &x, u64 b, u64 m, u64 n)
{
    return x.address ? reinterpret_cast<const float *>(x.address)[x.index(b, m, n)] : 1;
}

// Outputs of 8 bits saturate, others overflow to infinity.
template <Format F>
__device__ __forceinline__ Code<F> encode_output(float x)
{
    const u32 bits = result_bits(x);
    if constexpr (F.fraction_bits == 23) return bits;
    else if constexpr (F.storage_bits == 8) return convert_default<F32, F>(bits);
    else return convert_ieee<F32, F>(bits);
}

// A block takes one tile after another. There are `parts` parts of `length` products, the last
// ones of which may be shorter or empty.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tiled(u64 batches, u64 rows, u64 columns, u64 products, u64 parts, u64 length, Matrix a, Matrix b, Matrix y,
          float alpha, float beta, Matrix c, Stored c_format, Matrix scale_a, Matrix scale_b, Matrix bias,
          Stored bias_format, Matrix scale_out)
{
    alignas(16) __shared__ Operands a_operands, b_operands;
    __shared__ float sums[TILE][TILE + 1];
    const int row = threadIdx.x / SIDE * EACH, column = threadIdx.x % SIDE * EACH;
    const u64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (u64 tile = blockIdx.x; tile < batches * down * across; tile += gridDim.x) {
        const u64 batch = tile / (down * across);
        const u64 first_row = tile / across % down * TILE, first_column = tile % across * TILE;
        const Code<FROM_A> *a_batch = reinterpret_cast<const Code<FROM_A> *>(a.address) + batch * a.batch;
        const Code<FROM_B> *b_batch = reinterpret_cast<const Code<FROM_B> *>(b.address) + batch * b.batch;

        float total[EACH][EACH];
        for (u64 part = 0; part < parts; part++) {
            const u64 begin = part * length;
            const u64 end = begin + length < products ? begin + length : products;
            float sum[EACH][EACH] = {};
            for (u64 k = begin; k < end; k += DEPTH) {
                __syncthreads();
                // Past the end products are -0, which leave any sum as it is; +0 would not leave -0.
                load<FROM_A>(a_operands, a_batch, a.row, a.column, first_row, rows, k, end, -0.0f);
                load<FROM_B>(b_operands, b_batch, b.column, b.row, first_column, columns, k, end, 0.0f);
                __syncthreads();
                multiply_add(sum, a_operands, b_operands, row, column);
            }
#pragma unroll
            for (int m = 0; m < EACH; m++) {
#pragma unroll
                for (int n = 0; n < EACH; n++) {
                    total[m][n] = part == 0 ? sum[m][n] : __fadd_rn(total[m][n], sum[m][n]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < EACH; m++) {
#pragma unroll
            for (int n = 0; n < EACH; n++) sums[row + m][column + n] = total[m][n];
        }
        __syncthreads();

        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            const u64 m = first_row + i / TILE, n = first_column + i % TILE;
            if (m >= rows || n >= columns) continue;
            const float sum = sums[i / TILE][i % TILE];
            const float factor =
                __fmul_rn(__fmul_rn(alpha, scale(scale_a, batch, m, n)), scale(scale_b, batch, m, n));
            float t = c.address
                          ? __fmaf_rn(factor, sum, __fmul_rn(beta, value(c, c_format, c.index(batch, m, n))))
                          : __fmul_rn(factor, sum);
            if (bias.address) t = __fadd_rn(t, value(bias, bias_format, bias.index(batch, m, n)));
            if (scale_out.address) t = __fmul_rn(t, scale(scale_out, batch, m, n));
            reinterpret_cast<Code<TO> *>(y.address)[y.index(batch, m, n)] = encode_output<TO>(t);
        }
        __syncthreads();
    }
}
