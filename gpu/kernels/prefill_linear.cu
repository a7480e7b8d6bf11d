// y[m, n] = sum over k of x[m, k] * w[n, k] with w GGML blocks, which are decoded inside of the product.
// WEIGHTS is their format, and K a multiple of its values, so of 32.
#include "blocks.cuh"
#include "tile.cuh"

#if FUSED

// Weights `first`.. of `extent` rows, from product `k` on.
__device__ __forceinline__ void decode(Operands &to, const u8 *w, u64 row_bytes, u64 first, u64 extent, u64 k)
{
    static_assert(WEIGHTS::VALUES % DEPTH == 0, "products of a step are of one block");
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        const int product = i % DEPTH, item = i / DEPTH;
        const bool inside = first + item < extent;
        const u8 *block = w + (inside ? first + item : 0) * row_bytes + k / WEIGHTS::VALUES * WEIGHTS::BYTES;
        const float weight = value<WEIGHTS>(block, int(k % WEIGHTS::VALUES) + product);
        to[product][item] = inside ? weight : 0;
    }
}

// One chain of fused multiply-adds in ascending k from +0. A block takes one tile after another.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    fused(const u8 *w, const float *x, float *y, u64 rows, u64 columns, u64 products)
{
    alignas(16) __shared__ Operands x_operands, w_operands;
    const int row = threadIdx.x / SIDE * EACH, column = threadIdx.x % SIDE * EACH;
    const u64 row_bytes = products / WEIGHTS::VALUES * WEIGHTS::BYTES;
    const u64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (u64 tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
        const u64 first_row = tile / across * TILE, first_column = tile % across * TILE;
        float sum[EACH][EACH] = {};
        for (u64 k = 0; k < products; k += DEPTH) {
            __syncthreads();
            load<F32>(x_operands, reinterpret_cast<const u32 *>(x), products, 1, first_row, rows, k, products, 0);
            decode(w_operands, w, row_bytes, first_column, columns, k);
            __syncthreads();
            multiply_add(sum, x_operands, w_operands, row, column);
        }
#pragma unroll
        for (int m = 0; m < EACH; m++) {
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                const u64 at_row = first_row + row + m, at_column = first_column + column + n;
                if (at_row < rows && at_column < columns) {
                    y[at_row * columns + at_column] = __uint_as_float(result_bits(sum[m][n]));
                }
            }
        }
    }
}

#else

// Outputs of a block of four warps, of which each has 16 rows, and products at a time. Rows of f16 in
// shared memory are words of two, and longer than they need so that a column is not in one bank.
constexpr int WARP = 32, TILE_THREADS = 4 * WARP;
constexpr int TILE_ROWS = 64, TILE_COLUMNS = 32, TILE_DEPTH = 32;
constexpr int WORDS = TILE_DEPTH / 2, PITCH = WORDS + 4;
// Rows, columns and words of one instruction.
constexpr int MMA_ROWS = 16, MMA_COLUMNS = 8, MMA_WORDS = 8;

// Overflow gives infinity.
__device__ __forceinline__ u32 activation(float x) { return convert_ieee<F32, F16>(__float_as_uint(x)); }

// ONCE: rounded to f16 from the real number, else to f32 first.
__device__ __forceinline__ u32 weight(const u8 *row, u64 k)
{
    const u8 *block = row + k / WEIGHTS::VALUES * WEIGHTS::BYTES;
    const int j = int(k % WEIGHTS::VALUES);
    if constexpr (ONCE) return convert_ieee<F64, F16>(u64(__double_as_longlong(exact_value<WEIGHTS>(block, j))));
    else return convert_ieee<F32, F16>(result_bits(value<WEIGHTS>(block, j)));
}

// d += a * transpose(b) by one instruction (PTX ISA, fragments of m16n8k16).
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A chain of instructions in ascending k from +0. A block takes one tile after another; rows and columns
// that there are not are zeros.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    f16_tiles(const u8 *w, const float *x, float *y, u64 rows, u64 columns, u64 products)
{
    __shared__ u32 x_words[TILE_ROWS][PITCH], w_words[TILE_COLUMNS][PITCH];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u64 row_bytes = products / WEIGHTS::VALUES * WEIGHTS::BYTES;
    const u64 across = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS, down = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (u64 tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
        const u64 first_row = tile / across * TILE_ROWS, first_column = tile % across * TILE_COLUMNS;
        float sums[TILE_COLUMNS / MMA_COLUMNS][4] = {};
        for (u64 k = 0; k < products; k += TILE_DEPTH) {
            __syncthreads();
            for (int i = threadIdx.x; i < TILE_ROWS * WORDS; i += TILE_THREADS) {
                const int row = i / WORDS, word = i % WORDS;
                u32 pair = 0;
                if (first_row + row < rows) {
                    const float *at = x + (first_row + row) * products + k + 2 * word;
                    pair = activation(at[0]) | activation(at[1]) << 16;
                }
                x_words[row][word] = pair;
            }
            for (int i = threadIdx.x; i < TILE_COLUMNS * WORDS; i += TILE_THREADS) {
                const int column = i / WORDS, word = i % WORDS;
                u32 pair = 0;
                if (first_column + column < columns) {
                    const u8 *row = w + (first_column + column) * row_bytes;
                    pair = weight(row, k + 2 * word) | weight(row, k + 2 * word + 1) << 16;
                }
                w_words[column][word] = pair;
            }
            __syncthreads();
#pragma unroll
            for (int step = 0; step < WORDS; step += MMA_WORDS) {
                u32 a[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[i] = x_words[warp * MMA_ROWS + lane / 4 + 8 * (i % 2)][step + lane % 4 + 4 * (i / 2)];
                }
#pragma unroll
                for (int n = 0; n < TILE_COLUMNS / MMA_COLUMNS; n++) {
                    u32 b[2];
#pragma unroll
                    for (int i = 0; i < 2; i++) b[i] = w_words[n * MMA_COLUMNS + lane / 4][step + lane % 4 + 4 * i];
                    multiply(sums[n], a, b);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < TILE_COLUMNS / MMA_COLUMNS; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u64 row = first_row + warp * MMA_ROWS + lane / 4 + 8 * (i / 2);
                const u64 column = first_column + n * MMA_COLUMNS + 2 * (lane % 4) + i % 2;
                if (row < rows && column < columns) {
                    y[row * columns + column] = __uint_as_float(result_bits(sums[n][i]));
                }
            }
        }
    }
}

#endif
