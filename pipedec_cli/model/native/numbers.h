#pragma once

// Numbers as they lie in memory and in registers.
//
// Matrices are stored in 32-bit words, each one float32 or two neighbouring bfloat16 of the summed dimension. A panel is
// [units][PANEL] words: for each word of the input, PANEL outputs side by side. Keys are panels as well (outputs are the
// columns of the grid), and so are values (outputs are the places within a head).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

using Word = uint32_t;
constexpr int64_t WORD_BYTES = sizeof(Word);

// LANES floats make a vector; TILE_ROWS rows of two vectors fit into the registers.
#if defined(__AVX512F__)
constexpr int LANES = 16, TILE_ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, TILE_ROWS = 6;
#elif defined(__aarch64__)
constexpr int LANES = 4, TILE_ROWS = 12;
#else
constexpr int LANES = 4, TILE_ROWS = 6;
#endif
constexpr long PANEL = 2 * LANES;
constexpr long CHUNK = 768;         // words of the summed dimension of a panel that stay near for all rows
constexpr long AHEAD = 40 * PANEL; // how far ahead of the sums weights are asked for, in words
constexpr float INF = std::numeric_limits<float>::infinity();

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float LooseFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Floats load(const float *p) { return *reinterpret_cast<const LooseFloats *>(p); }
inline void store(float *p, Floats v) { *reinterpret_cast<LooseFloats *>(p) = v; }
inline Ints load_words(const Word *p) { return *reinterpret_cast<const LooseInts *>(p); }
inline Floats all(float x) { return x - Floats{}; }
inline Ints all_words(Word x) { return static_cast<int32_t>(x) - Ints{}; }
inline Floats as_floats(Ints x) { return reinterpret_cast<Floats>(x); }
inline long round_up(long n, long to) { return (n + to - 1) / to * to; }

inline float from_bits(Word bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline Word to_bits(float x) {
    Word bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
#ifdef __AVX512F__
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

// How the numbers of weights, keys and values stand in words. What they are multiplied with is float32, and so are sums.
struct Float32 {
    static constexpr long NUMBERS = 1;
    static float get(const void *p, long i) { return static_cast<const float *>(p)[i]; }
    static Word pack(float first, float) { return to_bits(first); }
    static void unpack(const Word *words, Floats *numbers) { numbers[0] = as_floats(load_words(words)); }
};

struct BFloat16 {
    static constexpr long NUMBERS = 2;
    static float get(const void *p, long i) {
        return from_bits(static_cast<Word>(static_cast<const uint16_t *>(p)[i]) << 16);
    }
    static Word round(float x) { // to the nearest, ties to even
        const Word bits = to_bits(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
    static Word pack(float first, float second) { return round(first) | round(second) << 16; }
    static void unpack(const Word *words, Floats *numbers) {
        const Ints both = load_words(words);
        numbers[0] = as_floats(both << 16);
        numbers[1] = as_floats(both & all_words(0xffff0000u));
    }
};

} // namespace
