// d[t] = a[t] * transpose(b[t]) + c[t] by one instruction. The host names it: INSTRUCTION is its
// PTX opcode, OPERAND a format as wide as those of a and b, ACCUMULATOR the format of c and d.
// WARPGROUP says that four warps do it together, with FLAGS after its descriptors.
#include "format.cuh"

constexpr int WARP = 32;
constexpr int M = WARPGROUP ? 64 : 16, N = 8;
// A row of a or b is 32 bytes long, whatever the operands: words of 4 bytes are what
// registers hold and what layouts are written in.
constexpr int WORDS = 8;
constexpr int PER_WORD = 32 / OPERAND.storage_bits;

struct Place {
    int row, column;
};

// The word of a that a lane has in register i of `mma.sync` (PTX ISA, fragments of m16n8k8 for
// tf32, m16n8k16 for 16 bits and m16n8k32 for 8 bits, which are one in words).
constexpr Place place_of_a(int lane, int i) { return {lane / 4 + 8 * (i % 2), lane % 4 + 4 * (i / 2)}; }

// The word of b, of which row n of K elements is column n of the product's right side.
constexpr Place place_of_b(int lane, int i) { return {lane / 4, lane % 4 + 4 * i}; }

// Element i of c and d; a warp of a warpgroup has 16 rows.
constexpr Place place_of_c(int thread, int i)
{
    return {thread / WARP * 16 + thread % WARP / 4 + 8 * (i / 2), 2 * (thread % 4) + i % 2};
}

// Shared memory of `wgmma` without swizzling, K-major: core matrices of 8 rows of 16 bytes, the
// two of 8 whole rows side by side.
constexpr int CORE = 8 * 4, LEADING = CORE, STRIDE = 2 * CORE;
constexpr int core_matrix_word(int row, int word)
{
    return row / 8 * STRIDE + word / 4 * LEADING + row % 8 * 4 + word % 4;
}

template <int ROWS, int COLUMNS, class Where>
constexpr bool has_each_once(int threads, int registers, Where where)
{
    bool seen[ROWS * COLUMNS] = {};
    for (int thread = 0; thread < threads; thread++) {
        for (int i = 0; i < registers; i++) {
            const Place place = where(thread, i);
            if (place.row < 0 || place.row >= ROWS || place.column < 0 || place.column >= COLUMNS) return false;
            if (seen[place.row * COLUMNS + place.column]) return false;
            seen[place.row * COLUMNS + place.column] = true;
        }
    }
    return threads * registers == ROWS * COLUMNS;
}

static_assert(has_each_once<16, WORDS>(WARP, 4, place_of_a));
static_assert(has_each_once<8, WORDS>(WARP, 2, place_of_b));
static_assert(has_each_once<M, N>(2 * M, 4, place_of_c));
static_assert(has_each_once<1, M * WORDS>(M, WORDS, [](int row, int word) {
    return Place{0, core_matrix_word(row, word)};
}));

// A word of the codes of a row, which are aligned to their own size alone.
__device__ __forceinline__ u32 word_of(const Code<OPERAND> *row, int word)
{
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < PER_WORD; i++) bits |= u32(row[word * PER_WORD + i]) << (i * OPERAND.storage_bits);
    return bits;
}

__device__ __forceinline__ void load_c(const Code<ACCUMULATOR> *c, int thread, Code<ACCUMULATOR> (&d)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Place place = place_of_c(thread, i);
        d[i] = c[place.row * N + place.column];
    }
}

__device__ __forceinline__ void store_d(Code<ACCUMULATOR> *d, int thread, const Code<ACCUMULATOR> (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Place place = place_of_c(thread, i);
        d[place.row * N + place.column] = from[i];
    }
}

// Four accumulators in the registers that `execute` makes d of: floats, or pairs of halves.
template <class Execute>
__device__ __forceinline__ void accumulate(Code<ACCUMULATOR> (&d)[4], Execute execute)
{
    if constexpr (ACCUMULATOR.storage_bits == 32) {
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++) values[i] = __uint_as_float(d[i]);
        execute(values);
#pragma unroll
        for (int i = 0; i < 4; i++) d[i] = __float_as_uint(values[i]);
    } else {
        u32 pairs[2] = {u32(d[0]) | u32(d[1]) << 16, u32(d[2]) | u32(d[3]) << 16};
        execute(pairs);
#pragma unroll
        for (int i = 0; i < 4; i++) d[i] = Code<ACCUMULATOR>(pairs[i / 2] >> (i % 2 * 16));
    }
}

#if WARPGROUP

// Matrix descriptor: start, leading and stride offset in units of 16 bytes; no swizzling.
__device__ __forceinline__ u64 descriptor(const u32 *tile)
{
    const u64 start = u64(__cvta_generic_to_shared(tile)) & 0x3ffff;
    return start >> 4 | u64(LEADING * 4 >> 4) << 16 | u64(STRIDE * 4 >> 4) << 32;
}

__device__ __forceinline__ void execute(float (&d)[4], u64 a, u64 b)
{
    asm volatile(INSTRUCTION " {%0, %1, %2, %3}, %4, %5, " FLAGS ";"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b)
                 : "memory");
}

__device__ __forceinline__ void execute(u32 (&d)[2], u64 a, u64 b)
{
    asm volatile(INSTRUCTION " {%0, %1}, %2, %3, " FLAGS ";" : "+r"(d[0]), "+r"(d[1]) : "l"(a), "l"(b) : "memory");
}

template <int ROWS>
__device__ __forceinline__ void stage(u32 *tile, const Code<OPERAND> *rows)
{
    for (int i = threadIdx.x; i < ROWS * WORDS; i += 4 * WARP) {
        const int row = i / WORDS, word = i % WORDS;
        tile[core_matrix_word(row, word)] = word_of(rows + row * WORDS * PER_WORD, word);
    }
}

// A block is a warpgroup, which takes one tile after another.
extern "C" __global__ void __launch_bounds__(4 * WARP)
    mma(const Code<OPERAND> *a, const Code<OPERAND> *b, const Code<ACCUMULATOR> *c, Code<ACCUMULATOR> *d, u64 tiles)
{
    alignas(128) __shared__ u32 a_tile[M * WORDS], b_tile[N * WORDS];
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        stage<M>(a_tile, a + tile * M * WORDS * PER_WORD);
        stage<N>(b_tile, b + tile * N * WORDS * PER_WORD);
        // What was written is read by the asynchronous proxy.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        Code<ACCUMULATOR> sums[4];
        load_c(c + tile * M * N, threadIdx.x, sums);
        accumulate(sums, [=](auto &registers) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            execute(registers, descriptor(a_tile), descriptor(b_tile));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        });
        store_d(d + tile * M * N, threadIdx.x, sums);
        __syncthreads();
    }
}

#else

__device__ __forceinline__ void execute(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void execute(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile(INSTRUCTION " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 word_at(const Code<OPERAND> *rows, Place place)
{
    return word_of(rows + place.row * WORDS * PER_WORD, place.column);
}

// A warp takes one tile after another.
extern "C" __global__ void
    mma(const Code<OPERAND> *a, const Code<OPERAND> *b, const Code<ACCUMULATOR> *c, Code<ACCUMULATOR> *d, u64 tiles)
{
    const int lane = threadIdx.x % WARP;
    const u64 warps = u64(gridDim.x) * (blockDim.x / WARP);
    for (u64 tile = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP; tile < tiles; tile += warps) {
        u32 a_words[4], b_words[2];
#pragma unroll
        for (int i = 0; i < 4; i++) a_words[i] = word_at(a + tile * M * WORDS * PER_WORD, place_of_a(lane, i));
#pragma unroll
        for (int i = 0; i < 2; i++) b_words[i] = word_at(b + tile * N * WORDS * PER_WORD, place_of_b(lane, i));
        Code<ACCUMULATOR> sums[4];
        load_c(c + tile * M * N, lane, sums);
        accumulate(sums, [&](auto &registers) { execute(registers, a_words, b_words); });
        store_d(d + tile * M * N, lane, sums);
    }
}

#endif
