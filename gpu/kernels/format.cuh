// Number formats as data, with decode and encode over them: what the reference's `format`
// module says, step by step, in integers of the width that a pair of formats needs.
// `formats.cuh`, with one constant per format, is made from the reference's own table.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum class Specials { Ieee, NanAllOnes, NanNegativeZero, None };

struct Format {
    bool is_signed;
    int exponent_bits;
    int fraction_bits;
    int bias;
    Specials specials;
    bool subnormals;
    int storage_bits;
    int low_padding;

    constexpr int magnitude_bits() const { return exponent_bits + fraction_bits; }
    constexpr u64 magnitude_mask() const { return ~0ull >> (64 - magnitude_bits()); }
    constexpr u64 exponent_mask() const { return (1ull << exponent_bits) - 1; }
    constexpr u64 fraction_mask() const { return (1ull << fraction_bits) - 1; }
    constexpr u64 sign_bit() const { return is_signed ? 1ull << (magnitude_bits() + low_padding) : 0; }
    constexpr bool has_infinity() const { return specials == Specials::Ieee; }
    constexpr bool has_nan() const { return specials != Specials::None; }
    constexpr bool has_negative_zero() const
    {
        return is_signed && subnormals && specials != Specials::NanNegativeZero;
    }
    constexpr u64 max_magnitude() const
    {
        return specials == Specials::Ieee         ? ((exponent_mask() - 1) << fraction_bits) | fraction_mask()
               : specials == Specials::NanAllOnes ? magnitude_mask() - 1
                                                  : magnitude_mask();
    }
    constexpr u64 max_finite() const { return max_magnitude() << low_padding; }
    constexpr u64 lowest() const { return is_signed ? max_finite() | sign_bit() : 0; }
    constexpr u64 infinity() const { return exponent_mask() << fraction_bits << low_padding; }
    constexpr u64 canonical_nan() const
    {
        return specials == Specials::NanNegativeZero ? sign_bit() : magnitude_mask() << low_padding;
    }
    constexpr int max_exponent() const { return int(max_magnitude() >> fraction_bits) - bias; }
    constexpr int min_exponent() const { return int(subnormals) - bias; }
};

#include "formats.cuh"

// The choices of an encoding, in the order of the reference's enumerations.
enum class Rounding : u8 { NearestEven, TowardZero, Up, Down, NearestAway, Stochastic };
enum class Overflow : u8 { Saturate, ToInfOrNan };
enum class Infinities : u8 { Saturate, Propagate };
enum class NanPolicy : u8 { Canonical, SignKept, MaxFinite };
enum class Subnormals : u8 { Kept, FlushedBefore, FlushedAfter };
enum class NegativeZero : u8 { Kept, Dropped };

struct Policy {
    Rounding rounding = Rounding::NearestEven;
    Overflow overflow = Overflow::Saturate;
    Infinities infinities = Infinities::Saturate;
    NanPolicy nan = NanPolicy::Canonical;
    Subnormals subnormals = Subnormals::Kept;
    NegativeZero negative_zero = NegativeZero::Kept;

    constexpr bool is_default() const
    {
        return rounding == Rounding::NearestEven && overflow == Overflow::Saturate &&
               infinities == Infinities::Saturate && nan == NanPolicy::Canonical &&
               subnormals == Subnormals::Kept && negative_zero == NegativeZero::Kept;
    }
};

// IEEE 754 conversion: nothing saturates.
constexpr Policy IEEE = {Rounding::NearestEven, Overflow::ToInfOrNan, Infinities::Propagate};

template <bool Condition, class Then, class Else>
struct Select {
    typedef Then Type;
};
template <class Then, class Else>
struct Select<false, Then, Else> {
    typedef Else Type;
};

template <int Bits>
struct Unsigned;
template <>
struct Unsigned<8> {
    typedef u8 Type;
};
template <>
struct Unsigned<16> {
    typedef u16 Type;
};
template <>
struct Unsigned<32> {
    typedef u32 Type;
};
template <>
struct Unsigned<64> {
    typedef u64 Type;
};

// A stored code of a format.
template <Format F>
using Code = typename Unsigned<F.storage_bits>::Type;

// The significand of a value; 32 bits hold up to 24.
template <Format F>
using Significand = typename Select<(F.fraction_bits > 23), u64, u32>::Type;

enum class Kind : u8 { Finite, Infinite, Nan };

// (-1)^negative * significand * 2^exponent.
template <class S>
struct Value {
    Kind kind;
    bool negative;
    S significand;
    int exponent;
    // floor(log2 |value|); see `decode` for what it is of a subnormal value.
    int log2;
};

__device__ __forceinline__ int highest_bit(u32 x) { return 31 - __clz(int(x)); }
__device__ __forceinline__ int highest_bit(u64 x) { return 63 - __clzll((long long)x); }

// The value of a code. Without EXACT_LOG2, `log2` of a subnormal value and of zero is
// only known to lie below the format's smallest exponent.
template <Format F, bool EXACT_LOG2 = true>
__device__ __forceinline__ Value<Significand<F>> decode(Code<F> code)
{
    typedef Significand<F> S;
    constexpr S magnitude_mask = S(F.magnitude_mask()), fraction_mask = S(F.fraction_mask());
    constexpr S exponents = S(F.exponent_mask() << F.fraction_bits), hidden = S(1) << F.fraction_bits;
    const S magnitude = S(code >> F.low_padding) & magnitude_mask;
    Value<S> value;
    value.negative = F.is_signed && (S(code) & S(F.sign_bit())) != 0;
    value.kind = Kind::Finite;
    if constexpr (F.specials == Specials::Ieee) {
        value.kind = magnitude > exponents ? Kind::Nan : magnitude == exponents ? Kind::Infinite : Kind::Finite;
    } else if constexpr (F.specials == Specials::NanAllOnes) {
        value.kind = magnitude == magnitude_mask ? Kind::Nan : Kind::Finite;
    } else if constexpr (F.specials == Specials::NanNegativeZero) {
        value.kind = value.negative && magnitude == 0 ? Kind::Nan : Kind::Finite;
    }
    const int field = int(magnitude >> F.fraction_bits);
    const bool subnormal = F.subnormals && field == 0;
    value.significand = (magnitude & fraction_mask) | (subnormal ? S(0) : hidden);
    value.exponent = field + int(subnormal) - F.bias - F.fraction_bits;
    value.log2 = field - F.bias;
    if constexpr (EXACT_LOG2) {
        if (subnormal) value.log2 = value.exponent + highest_bit(value.significand);
    }
    return value;
}

// significand / 2^shift for a shift of at least 1, rounded to an integer. The significand
// is below 2^(bits - 8), so from bits - 1 on all shifts round alike, except for stochastic
// rounding, where they do from 97 on.
template <class W>
__device__ __forceinline__ W rounded(W significand, int shift, Rounding rounding, bool negative, u32 random)
{
    constexpr int LAST = 8 * int(sizeof(W)) - 1;
    const int near = shift < LAST ? shift : LAST;
    const W kept = significand >> near;
    const W rest = significand & ((W(1) << near) - 1);
    const W half = W(1) << (near - 1);
    bool away = false;
    switch (rounding) {
    case Rounding::NearestEven: away = rest > half || (rest == half && (kept & 1)); break;
    case Rounding::NearestAway: away = rest >= half; break;
    case Rounding::TowardZero: away = false; break;
    case Rounding::Up: away = rest > 0 && !negative; break;
    case Rounding::Down: away = rest > 0 && negative; break;
    case Rounding::Stochastic: {
        // floor(rest / 2^shift * 2^32): below 2^32.
        const int down = shift - 32;
        const u64 fraction = down <= 0 ? u64(rest) << -down : down < 64 ? u64(rest) >> down : 0;
        away = (fraction + random) >> 32 != 0;
        break;
    }
    }
    return kept + W(away);
}

template <Format F>
__device__ __forceinline__ Code<F> saturated(bool negative)
{
    return Code<F>(negative ? F.lowest() : F.max_finite());
}

// Infinity, else NaN, else the largest finite value.
template <Format F>
__device__ __forceinline__ Code<F> beyond(bool negative, NanPolicy nan)
{
    if constexpr (F.has_infinity()) return Code<F>(F.infinity() | (negative ? F.sign_bit() : 0));
    if constexpr (!F.has_nan()) return saturated<F>(negative);
    return Code<F>(F.canonical_nan() | (negative && nan == NanPolicy::SignKept ? F.sign_bit() : 0));
}

template <Format F>
__device__ __forceinline__ Code<F> encode_nan(bool negative, NanPolicy nan)
{
    if (nan == NanPolicy::MaxFinite) return Code<F>(F.max_finite());
    const bool keep = negative && nan == NanPolicy::SignKept;
    if constexpr (F.has_nan()) return Code<F>(F.canonical_nan() | (keep ? F.sign_bit() : 0));
    return saturated<F>(keep);
}

// The code of a value under a policy, rounded once.
template <Format F, class S>
__device__ __forceinline__ Code<F> encode(Value<S> value, Policy policy, u32 random)
{
    // Wide enough for the source's significand and for the result's magnitude.
    typedef typename Select<(F.fraction_bits > 23 || sizeof(S) == 8), u64, u32>::Type W;
    const bool negative = value.negative;
    if (value.kind == Kind::Nan) return encode_nan<F>(negative, policy.nan);
    if (value.kind == Kind::Infinite) {
        return policy.infinities == Infinities::Saturate ? saturated<F>(negative) : beyond<F>(negative, policy.nan);
    }
    const bool keeps_sign = F.has_negative_zero() && policy.negative_zero == NegativeZero::Kept;
    const Code<F> zero = Code<F>(negative && keeps_sign ? F.sign_bit() : 0);
    const bool tiny = value.log2 < F.min_exponent();
    const bool flushed = tiny && F.subnormals && policy.subnormals == Subnormals::FlushedBefore;
    if (value.significand == 0 || flushed) return zero;

    W magnitude;
    if (value.log2 > F.max_exponent()) {
        magnitude = W(F.max_magnitude() + 1);
    } else if (tiny && !F.subnormals) {
        magnitude = 0;
    } else {
        const int binade = tiny ? F.min_exponent() : value.log2;
        const int shift = binade - F.fraction_bits - value.exponent;
        const W significand = W(value.significand);
        const W integer = shift > 0 ? rounded<W>(significand, shift, policy.rounding, negative, random)
                                    : significand << -shift;
        // Exponent and fraction as one number: a carry out of the fraction moves on to the
        // next binade by itself.
        constexpr W hidden = F.subnormals ? W(0) : W(1) << F.fraction_bits;
        magnitude = (W(binade - F.min_exponent()) << F.fraction_bits) + integer - hidden;
    }

    const bool subnormal = F.subnormals && magnitude >> F.fraction_bits == 0;
    if ((F.subnormals && magnitude == 0) || (subnormal && policy.subnormals == Subnormals::FlushedAfter)) {
        return zero;
    }
    if ((negative && !F.is_signed) || magnitude > W(F.max_magnitude())) {
        const bool back = policy.rounding == Rounding::TowardZero || (policy.rounding == Rounding::Up && negative) ||
                          (policy.rounding == Rounding::Down && !negative);
        return policy.overflow == Overflow::Saturate || back ? saturated<F>(negative)
                                                             : beyond<F>(negative, policy.nan);
    }
    return Code<F>((magnitude << F.low_padding) | W(negative ? F.sign_bit() : 0));
}

// From one format to another, rounded once. Not inlined: a kernel that takes any policy
// would otherwise hold a copy per element.
template <Format Source, Format Target>
__device__ __noinline__ Code<Target> convert(Code<Source> code, Policy policy, u32 random)
{
    // Where all subnormal values of the source lie below the target's normal ones, that is
    // all that `encode` needs to know of their logarithm.
    constexpr bool exact_log2 = Source.min_exponent() > Target.min_exponent();
    return encode<Target>(decode<Source, exact_log2>(code), policy, random);
}
