// Pairs of x[token][head][..rotated] turned by positions[token] * base^(-2 pair / rotated), the rest
// copied. A thread has a pair, or an element of the rest.
#include "math.cuh"
#include "number.cuh"

extern "C" __global__ void rope(const Code<FROM> *x, const u32 *positions, Code<TO> *y, u64 threads, u64 heads,
                                u64 head_dim, u64 rotated, double ln_base)
{
    const u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (thread >= threads) return;
    const u64 pairs = rotated / 2, per_head = pairs + (head_dim - rotated);
    const u64 head = thread / per_head, pair = thread % per_head;
    const u64 first = head * head_dim;
    if (pair >= pairs) {
        const u64 at = first + rotated + (pair - pairs);
        if constexpr (FROM.storage_bits == TO.storage_bits && FROM.fraction_bits == TO.fraction_bits) y[at] = x[at];
        else y[at] = rounded<TO>(number<FROM>(x[at]));
        return;
    }
    const u64 a = first + (HALVES ? pair : 2 * pair), b = HALVES ? a + pairs : a + 1;
    const double exponent = __ddiv_rn(__dmul_rn(__ull2double_rn(2 * pair), ln_base), __ull2double_rn(rotated));
    const double position = __uint2double_rn(positions[head / heads]);
    const AngleF64 angle = reduce_f64(__dmul_rn(position, canonical_exp_f64(-exponent)));
    const float cos = (float)sine_f64(angle.quarters + 1, angle.rest);
    const double sin_f64 = sine_f64(angle.quarters, angle.rest);
    const float sin = (float)(INVERSE ? -sin_f64 : sin_f64);
    const float x0 = number<FROM>(x[a]), x1 = number<FROM>(x[b]);
    y[a] = rounded<TO>(__fsub_rn(__fmul_rn(x0, cos), __fmul_rn(x1, sin)));
    y[b] = rounded<TO>(__fadd_rn(__fmul_rn(x1, cos), __fmul_rn(x0, sin)));
}
