// A cast on every input there is, without any of them leaving the device: inputs, a check
// of the results that shares nothing with the kernels that made them, a digest, and the
// inputs at which the result changes.
#include "format.cuh"

// x[i] is the code at index `start + i`, in the order of the codes' patterns. `x` is aligned
// for vectors, and `count` a multiple of their length.
extern "C" __global__ void generate(Code<FROM> *x, u64 start, u64 count)
{
    constexpr int N = 16 / int(sizeof(Code<FROM>));
    struct alignas(16) Vector {
        Code<FROM> at[N];
    };
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i * N >= count) return;
    Vector codes;
#pragma unroll
    for (int j = 0; j < N; j++) codes.at[j] = Code<FROM>((start + i * N + j) << FROM.low_padding);
    reinterpret_cast<Vector *>(x)[i] = codes;
}

// A hash of the index, the last steps of MurmurHash3, of which some bits are kept and some set: what is
// measured on.
extern "C" __global__ void noise(u32 *x, u64 count, u64 kept, u64 set)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    u32 bits = u32(i);
    bits = (bits ^ bits >> 16) * 0x85ebca6b;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35;
    x[i] = ((bits ^ bits >> 16) & u32(kept)) | u32(set);
}

// First input of a step, as an index, and the right result from there to the next step.
struct Step {
    u64 start;
    u64 code;
};

constexpr int RUN = 16;

// Counts results that are not those of the staircase, per chunk of `chunk` inputs (a multiple
// of RUN). `start` and `count` are multiples of it too; steps begin at index 0.
extern "C" __global__ void check(const Code<TO> *y, u64 start, u64 count, u64 chunk, const Step *steps, u64 step_count,
                                 u32 *mismatches)
{
    const u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * RUN;
    if (first >= count) return;
    struct alignas(sizeof(Code<TO>) * RUN < 16 ? sizeof(Code<TO>) * RUN : 16) Results {
        Code<TO> at[RUN];
    };
    const Results results = *reinterpret_cast<const Results *>(y + first);
    // The last step that begins at or before the first input.
    u64 step = 0, after = step_count;
    while (after - step > 1) {
        const u64 middle = step + (after - step) / 2;
        if (steps[middle].start <= start + first) step = middle;
        else after = middle;
    }
    Code<TO> right = Code<TO>(steps[step].code);
    u64 next = step + 1 < step_count ? steps[step + 1].start : ~0ull;
    u32 wrong = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        if (start + first + i >= next) {
            step++;
            right = Code<TO>(steps[step].code);
            next = step + 1 < step_count ? steps[step + 1].start : ~0ull;
        }
        wrong += results.at[i] != right;
    }
    if (wrong) atomicAdd(mismatches + first / chunk, wrong);
}

// The sums of the digest: lane l of a chunk takes words l, l + 4, l + 8, ... of 8 bytes.
extern "C" __global__ void digest(const u64 *words, u64 words_of_chunk, u64 chunks, u64 *sums)
{
    const u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u64 chunk = thread / 4, lane = thread % 4;
    if (chunk >= chunks) return;
    constexpr u64 MULTIPLIER = 0x9E3779B97F4A7C15;
    const u64 *of_chunk = words + chunk * words_of_chunk;
    u64 sum = MULTIPLIER;
    // Loads that do not wait for the sum hide the memory's latency.
#pragma unroll 8
    for (u64 i = lane; i < words_of_chunk; i += 4) {
        const u64 product = (sum ^ of_chunk[i]) * MULTIPLIER;
        sum = product << 31 | product >> 33;
    }
    sums[thread] = sum;
}

// Lists the inputs whose result is not that of the input before, in any order, and the first
// input here, which has none before it. `listed` counts all of them, also those beyond `capacity`.
extern "C" __global__ void steps(const Code<TO> *y, u64 start, u64 count, Step *list, u64 capacity, u64 *listed)
{
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count || (i > 0 && y[i] == y[i - 1])) return;
    const u64 at = atomicAdd(listed, u64(1));
    if (at < capacity) list[at] = {start + i, u64(y[i])};
}
