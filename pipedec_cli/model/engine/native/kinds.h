#pragma once

// The kinds of numbers in memory.
//
// Matrices are stored in 32-bit words: one float32, two neighbouring bfloat16, or four neighbouring int8 of the summed
// dimension. A panel is [units][PANEL] words: for each word of the input, PANEL outputs side by side; of integers see groups.h. Keys are panels as
// well (outputs are the columns of the grid), and so are values (outputs are the places within a head).

#include <new>
#include <vector>

#include "vectors.h"

#ifdef __linux__
#include <sys/mman.h>
#endif
#if defined(__AVX512VNNI__) && defined(__AVX512BF16__) && defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
#define HAS_TILES
#endif

namespace {

constexpr size_t LARGE_PAGE = 1 << 21;
#ifdef HAS_TILES
constexpr long TILE = 16; // rows of a tile register, and words in each of them
#else
constexpr long TILE = 1;
#endif

// Ask for large pages, which make first use and the look-up of addresses faster. A refusal does no harm.
inline void use_large_pages([[maybe_unused]] void *memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

// Memory that begins at a line of the cache, or at a large page.
template <class T> struct Aligned {
    using value_type = T;
    Aligned() = default;
    template <class U> Aligned(const Aligned<U> &) {}
    T *allocate(size_t n) {
        void *memory = ::operator new(n * sizeof(T), alignment(n));
        if (n * sizeof(T) >= LARGE_PAGE) use_large_pages(memory, n * sizeof(T));
        return static_cast<T *>(memory);
    }
    void deallocate(T *p, size_t n) { ::operator delete(p, alignment(n)); }
    static std::align_val_t alignment(size_t n) { return std::align_val_t{n * sizeof(T) < LARGE_PAGE ? 64 : LARGE_PAGE}; }
    template <class U> bool operator==(const Aligned<U> &) const { return true; }
    template <class U> bool operator!=(const Aligned<U> &) const { return false; }
};
template <class T> using Buffer = std::vector<T, Aligned<T>>;

// ---- kinds of numbers
//
// A word holds NUMBERS of them, and the height of a matrix is a multiple of UNITS words. Rows to be multiplied are `Given`:
// floats as they are, or words that `give` makes of floats. A word of a panel has GIVEN parts, each for one of a row's `Given`.

struct Float32 {
    using Given = float;
    using Sums = Floats;
    static constexpr bool GROUPED = false;
    static constexpr long NUMBERS = 1, UNITS = 1, GIVEN = 1;
    static float get(const void *p, long i) { return static_cast<const float *>(p)[i]; }
    static Word pack(const float *numbers) { return bits_as<Word>(numbers[0]); }
    static Floats part(Ints words, long) { return as_floats(words); }
    static Floats add(Floats sums, Floats w, const float *x) { return multiply_add(w, all(*x), sums); }
};

// The rows that are multiplied with it stay float32.
struct BFloat16 {
    using Given = float;
    using Sums = Floats;
    static constexpr bool GROUPED = false;
    static constexpr long NUMBERS = 2, UNITS = 1, GIVEN = 2;
    static float get(const void *p, long i) {
        return bits_as<float>(Word{static_cast<const uint16_t *>(p)[i]} << 16);
    }
    static Word round(float x) { // to the nearest, ties to even
        const Word bits = bits_as<Word>(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
    static Word pack(const float *numbers) { return round(numbers[0]) | round(numbers[1]) << 16; }
    static Floats part(Ints words, long k) { return as_floats(k ? words & all_words(0xffff0000u) : words << 16); }
    static Floats add(Floats sums, Floats w, const float *x) { return multiply_add(w, all(*x), sums); }
};

#ifdef HAS_PAIRS
// bfloat16 that are multiplied two at a time with rows that are rounded to bfloat16; sums are float32.
struct Pairs : BFloat16 {
    using Given = Word;
    static constexpr long UNITS = TILE, GIVEN = 1;
    static Ints part(Ints words, long) { return words; }
    static Floats add(Floats sums, Ints w, const Word *x) {
#ifdef __aarch64__
        return (Floats)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)all_words(*x), (bfloat16x8_t)w);
#else
        return (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)all_words(*x), (__m512bh)w);
#endif
    }
    static void give(const float *x, long count, long units, Word *to) {
        auto *halves = reinterpret_cast<uint16_t *>(to);
        long i = 0;
        for (; i + LANES <= count; i += LANES) store(halves + i, load(x + i));
        for (; i < units * NUMBERS; i += LANES) { // zeros behind the numbers
            float rest[LANES] = {};
            if (i < count) std::copy(x + i, x + count, rest);
            store(halves + i, load(rest));
        }
    }
};
#endif

// The kinds of weights. All but the first two are integers; groups.h says what they are.
enum Kind { FLOAT32, BFLOAT16, EIGHT, EIGHT_FROM, FOUR, FOUR_FROM, SUPER_FOUR, SUPER_FIVE, SUPER_SIX };

// The height of a panel for so many inputs, in words.
template <class E> long units(long inputs) { return round_up((inputs + E::NUMBERS - 1) / E::NUMBERS, E::UNITS); }
// The words of a row to be multiplied: in groups they have more than the numbers.
template <class E> long given_words(long inputs) {
    if constexpr (E::GROUPED) return units<E>(inputs) / E::UNITS * (E::ROW + E::FACTS);
    else return units<E>(inputs) * E::GIVEN;
}

} // namespace
