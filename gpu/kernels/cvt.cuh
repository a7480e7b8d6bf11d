// The conversion instruction that the host names: CVT is its PTX opcode; CVT_PAIR says that
// it converts two elements at once, packed into one register on the side of the narrower type.
#pragma once
#include "fast.cuh"

#if CVT_PAIR
// Two elements: the PTX operand list has the upper one first.
template <Format Source, Format Target>
__device__ __forceinline__ void cvt_pair(const Code<Source> (&in)[2], Code<Target> (&out)[2])
{
    if constexpr (Source.storage_bits == 32) {
        u16 pair;
        asm(CVT " %0, %1, %2;" : "=h"(pair) : "r"(in[1]), "r"(in[0]));
        out[0] = Code<Target>(pair & 0xff);
        out[1] = Code<Target>(pair >> 8);
    } else if constexpr (Source.storage_bits == 16) {
        u16 pair;
        asm(CVT " %0, %1;" : "=h"(pair) : "r"(u32(in[0]) | u32(in[1]) << 16));
        out[0] = Code<Target>(pair & 0xff);
        out[1] = Code<Target>(pair >> 8);
    } else {
        u32 pair;
        asm(CVT " %0, %1;" : "=r"(pair) : "h"(u16(in[0] | in[1] << 8)));
        out[0] = Code<Target>(pair & 0xffff);
        out[1] = Code<Target>(pair >> 16);
    }
}
#else
template <Format Source, Format Target>
__device__ __forceinline__ Code<Target> cvt_one(Code<Source> in)
{
    Code<Target> out;
    if constexpr (Source.storage_bits == 64 && Target.storage_bits == 64) asm(CVT " %0, %1;" : "=l"(out) : "l"(in));
    else if constexpr (Source.storage_bits == 64 && Target.storage_bits == 32) asm(CVT " %0, %1;" : "=r"(out) : "l"(in));
    else if constexpr (Source.storage_bits == 64) asm(CVT " %0, %1;" : "=h"(out) : "l"(in));
    else if constexpr (Source.storage_bits == 32 && Target.storage_bits == 64) asm(CVT " %0, %1;" : "=l"(out) : "r"(in));
    else if constexpr (Source.storage_bits == 32 && Target.storage_bits == 32) asm(CVT " %0, %1;" : "=r"(out) : "r"(in));
    else if constexpr (Source.storage_bits == 32) asm(CVT " %0, %1;" : "=h"(out) : "r"(in));
    else if constexpr (Target.storage_bits == 64) asm(CVT " %0, %1;" : "=l"(out) : "h"(in));
    else if constexpr (Target.storage_bits == 32) asm(CVT " %0, %1;" : "=r"(out) : "h"(in));
    else asm(CVT " %0, %1;" : "=h"(out) : "h"(in));
    return out;
}
#endif

template <Format Source, Format Target, int N>
__device__ __forceinline__ void cvt(const Code<Source> (&in)[N], Code<Target> (&out)[N])
{
#if CVT_PAIR
    if constexpr (N == 1) {
        const Code<Source> two[2] = {in[0], in[0]};
        Code<Target> results[2];
        cvt_pair<Source, Target>(two, results);
        out[0] = results[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const Code<Source> two[2] = {in[i], in[i + 1]};
            Code<Target> results[2];
            cvt_pair<Source, Target>(two, results);
            out[i] = results[0];
            out[i + 1] = results[1];
        }
    }
#else
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = cvt_one<Source, Target>(in[i]);
#endif
}
