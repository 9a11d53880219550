#pragma once

// Vectors of numbers in registers, and functions of them element by element.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#ifdef __SSE2__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HAS_PAIRS
#endif

namespace {

using Word = uint32_t;
constexpr int64_t WORD_BYTES = sizeof(Word);

// LANES floats make a vector; TILE_ROWS rows of two vectors fit into the registers.
#if defined(__AVX512F__)
#define FEATURES "AVX-512"
constexpr int LANES = 16, TILE_ROWS = 12;
#elif defined(__AVX2__)
#define FEATURES "AVX2"
constexpr int LANES = 8, TILE_ROWS = 6;
#elif defined(__aarch64__)
#define FEATURES "NEON"
constexpr int LANES = 4, TILE_ROWS = 12;
#else
#define FEATURES "plain vectors"
constexpr int LANES = 4, TILE_ROWS = 6;
#endif
constexpr long PANEL = 2 * LANES;
constexpr int STEPS_TOGETHER = LANES == 8 ? 2 : 1; // of few registers a loop is bound by the instructions beside its products
constexpr long AHEAD = 40; // how far ahead weights are fetched into the cache, in units
constexpr float INF = std::numeric_limits<float>::infinity();

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float LooseFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// bfloat16 is the upper half of a float32.
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef uint16_t LooseHalves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

inline Floats load(const float *p) { return *reinterpret_cast<const LooseFloats *>(p); }
inline void store(float *p, Floats v) { *reinterpret_cast<LooseFloats *>(p) = v; }
inline Ints load_words(const Word *p) { return *reinterpret_cast<const LooseInts *>(p); }
inline void store_words(Word *p, Ints v) { *reinterpret_cast<LooseInts *>(p) = v; }
inline Floats all(float x) { return x - Floats{}; }
inline Ints all_words(Word x) { return static_cast<int32_t>(x) - Ints{}; }
inline Floats as_floats(Ints x) { return reinterpret_cast<Floats>(x); }
// Load a vector once for all its products: GCC may otherwise load it up to four times.
template <class V> void in_registers([[maybe_unused]] V &vector) {
#if defined(__SSE2__)
    __asm__("" : "+v"(vector));
#elif defined(__aarch64__)
    __asm__("" : "+w"(vector));
#endif
}
// The same place. The compiler loads its words again: AVX2 has too few registers to keep them.
inline const Word *anew(const Word *place) {
    if constexpr (LANES == 8) __asm__ volatile("" : "+r"(place));
    return place;
}
inline long round_up(long n, long to) { return (n + to - 1) / to * to; }

inline Floats load(const uint16_t *p) {
    return as_floats(__builtin_convertvector(*reinterpret_cast<const LooseHalves *>(p), Ints) << 16);
}
// To the nearest bfloat16, ties to even.
inline void store(uint16_t *p, Floats v) {
#ifdef __AVX512BF16__
    const Halves halves = (Halves)_mm512_cvtneps_pbh((__m512)v);
#else
    const Ints bits = reinterpret_cast<Ints>(v);
    const Halves halves = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, Halves);
#endif
    *reinterpret_cast<LooseHalves *>(p) = halves;
}

template <class To, class From> To bits_as(From x) {
    To y;
    static_assert(sizeof(x) == sizeof(y), "the same bits");
    std::memcpy(&y, &x, sizeof(y));
    return y;
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
#ifdef __AVX512F__
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b)); // else GCC moves sums from register to register
    return c;
#else
    return a * b + c;
#endif
}

// ---- element by element

// e^x for x ≤ 0, to about two units in the last place; 0 below the smallest normal number, -∞ included.
inline Floats exponential(Floats x) {
    const Ints tiny = x < all(-87.0f);
    const Floats magic = all(12582912.0f); // 1.5 · 2^23: adding it rounds to an integer in the low bits
    const Floats shifted = x * all(1.44269504f) + magic;
    const Floats n = shifted - magic;
    Floats r = x - n * all(0.693359375f); // ln 2 in two parts
    r = r + n * all(2.12194440e-4f);
    Floats p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.0f);
    const Ints scale = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic)) << 23;
    return as_floats((reinterpret_cast<Ints>(p) + scale) & ~tiny);
}

inline Floats relu(Floats x) { return x > Floats{} ? x : Floats{}; }

// tanh u = ±(1 − e^−2|u|) / (1 + e^−2|u|)
inline Floats hyperbolic_tangent(Floats u) {
    const Ints sign = reinterpret_cast<Ints>(u) & all_words(0x80000000u);
    const Floats size = as_floats(reinterpret_cast<Ints>(u) ^ sign);
    const Floats e = exponential(all(-2.0f) * size);
    return as_floats(reinterpret_cast<Ints>((all(1.0f) - e) / (all(1.0f) + e)) ^ sign);
}

// T5 v1.1's GELU: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
inline Floats gelu(Floats x) {
    const Floats u = all(0.79788456f) * (x + all(0.044715f) * x * x * x);
    return all(0.5f) * x * (all(1.0f) + hyperbolic_tangent(u));
}

// x / (1 + e^−x), where the exponent is kept at or below 0.
inline Floats silu(Floats x) {
    const Floats e = exponential(x > Floats{} ? -x : x);
    return x * (x > Floats{} ? all(1.0f) : e) / (all(1.0f) + e);
}

template <class V> auto sum_of(V v) {
#ifdef __AVX512F__
    if constexpr (std::is_same_v<V, Floats>) return _mm512_reduce_add_ps((__m512)v);
    else return _mm512_reduce_add_epi32((__m512i)v);
#else
    auto sum = v[0];
    for (int lane = 1; lane < LANES; ++lane) sum += v[lane];
    return sum;
#endif
}

template <class V> auto largest_lane(V v) {
#ifdef __AVX512F__
    if constexpr (std::is_same_v<V, Floats>) return _mm512_reduce_max_ps((__m512)v);
    else return _mm512_reduce_max_epi32((__m512i)v);
#else
    auto largest = v[0];
    for (int lane = 1; lane < LANES; ++lane) largest = std::max(largest, v[lane]);
    return largest;
#endif
}

// A vector's first `count` numbers; −∞ behind them.
inline Floats until(long count, Floats v) {
    if (count >= LANES) return v;
    for (long i = std::max(0L, count); i < LANES; ++i) v[i] = -INF;
    return v;
}

// The largest of `padded` numbers, which are whole panels.
inline float largest_of(const float *numbers, long padded) {
    Floats most = all(-INF);
    for (long i = 0; i < padded; i += LANES) {
        const Floats some = load(numbers + i);
        most = some > most ? some : most;
    }
    return largest_lane(most);
}

// The place of the first of `padded` numbers that equals `wanted`; `padded` if there is none.
inline long first_equal(const float *numbers, long padded, float wanted) {
    long i = 0;
    for (; i < padded; i += LANES) {
        const Ints equal = load(numbers + i) == all(wanted);
        int32_t any = 0;
        for (int lane = 0; lane < LANES; ++lane) any |= equal[lane];
        if (any) break;
    }
    return i < padded ? std::find(numbers + i, numbers + i + LANES, wanted) - numbers : padded;
}

// The sum of e^(score − largest).
inline float sum_of_exponentials(const float *scores, long padded, float largest) {
    Floats sums = {};
    for (long i = 0; i < padded; i += LANES) sums = sums + exponential(load(scores + i) - all(largest));
    return sum_of(sums);
}

// Replace scores by e^(score − largest); gives their sum.
inline float exponentials(float *scores, long padded) {
    const float largest = largest_of(scores, padded);
    Floats sums = {};
    for (long i = 0; i < padded; i += LANES) {
        const Floats e = exponential(load(scores + i) - all(largest));
        store(scores + i, e);
        sums = sums + e;
    }
    return sum_of(sums);
}

} // namespace
