#pragma once

// Numbers as they lie in memory and in registers, and what is computed with them.
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

template <class To, class From> To bits_as(From x) {
    To y;
    static_assert(sizeof(x) == sizeof(y), "the same bits");
    std::memcpy(&y, &x, sizeof(y));
    return y;
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
    static Word pack(float first, float) { return bits_as<Word>(first); }
    static void unpack(const Word *words, Floats *numbers) { numbers[0] = as_floats(load_words(words)); }
};

struct BFloat16 {
    static constexpr long NUMBERS = 2;
    static float get(const void *p, long i) {
        return bits_as<float>(Word{static_cast<const uint16_t *>(p)[i]} << 16);
    }
    static Word round(float x) { // to the nearest, ties to even
        const Word bits = bits_as<Word>(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
    static Word pack(float first, float second) { return round(first) | round(second) << 16; }
    static void unpack(const Word *words, Floats *numbers) {
        const Ints both = load_words(words);
        numbers[0] = as_floats(both << 16);
        numbers[1] = as_floats(both & all_words(0xffff0000u));
    }
};

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

// T5 v1.1's GELU: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), with tanh u = ±(1 − e^−2|u|) / (1 + e^−2|u|).
inline Floats gelu(Floats x) {
    const Floats u = all(0.79788456f) * (x + all(0.044715f) * x * x * x);
    const Ints sign = reinterpret_cast<Ints>(u) & all_words(0x80000000u);
    const Floats size = as_floats(reinterpret_cast<Ints>(u) ^ sign);
    const Floats e = exponential(all(-2.0f) * size);
    const Floats tanh = as_floats(reinterpret_cast<Ints>((all(1.0f) - e) / (all(1.0f) + e)) ^ sign);
    return all(0.5f) * x * (all(1.0f) + tanh);
}

inline float sum_of(Floats v) {
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += v[i];
    return sum;
}

// The largest of some numbers, which fill whole panels.
inline float largest_of(const float *numbers, long padded) {
    Floats most = all(-INF);
    for (long i = 0; i < padded; i += LANES) {
        const Floats some = load(numbers + i);
        most = some > most ? some : most;
    }
    float largest = most[0];
    for (int lane = 1; lane < LANES; ++lane) largest = std::max(largest, most[lane]);
    return largest;
}

// Scores to e^(score − largest), in place; returns their sum.
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

// ---- products of rows and panels

// out[R][PANEL] (+)= x[R][numbers] · panel[units][PANEL]; neighbouring words of the sum lie `stride` words apart.
template <class E, int R>
void tile(const float *x, long x_row, const Word *panel, long stride, long units, float *out, long out_row, bool more) {
    Floats left[R], right[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        left[r] = more ? load(out + r * out_row) : Floats{};
        right[r] = more ? load(out + r * out_row + LANES) : Floats{};
    }
    for (long u = 0; u < units; ++u, panel += stride) {
        __builtin_prefetch(panel + AHEAD);
        if (PANEL * 4 > 64) __builtin_prefetch(panel + AHEAD + LANES);
        Floats left_weights[E::NUMBERS], right_weights[E::NUMBERS];
        E::unpack(panel, left_weights);
        E::unpack(panel + LANES, right_weights);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
            for (int i = 0; i < E::NUMBERS; ++i) {
                const Floats value = all(x[r * x_row + u * E::NUMBERS + i]);
                left[r] = multiply_add(left_weights[i], value, left[r]);
                right[r] = multiply_add(right_weights[i], value, right[r]);
            }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        store(out + r * out_row, left[r]);
        store(out + r * out_row + LANES, right[r]);
    }
}

template <class E, int R = TILE_ROWS, class... Arguments> void tile_of(long rows, Arguments... arguments) {
    if (rows == R) tile<E, R>(arguments...);
    else if constexpr (R > 1) tile_of<E, R - 1>(rows, arguments...);
}

// The same for any number of rows. What of x is beyond its numbers, up to a whole word, must be 0. A chunk of the panel serves all of them before the next chunk is read.
template <class E>
void product(const float *x, long x_row, long rows, const Word *panel, long stride, long units, float *out, long out_row) {
    const long blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long chunk = rows <= 4 ? units : CHUNK;
    for (long from = 0; from < units; from += chunk) {
        const long count = std::min(chunk, units - from);
        for (long block = 0, row = 0; block < blocks; ++block) {
            const long height = rows / blocks + (block < rows % blocks);
            tile_of<E>(height, x + row * x_row + from * E::NUMBERS, x_row, panel + from * stride, stride, count, out + row * out_row,
                               out_row, from > 0);
            row += height;
        }
    }
}

} // namespace
