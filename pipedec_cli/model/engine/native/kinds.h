#pragma once

// The kinds of numbers in memory.
//
// Matrices are stored in 32-bit words: one float32, two neighbouring bfloat16, or four neighbouring int8 of the summed
// dimension. A panel is [units][PANEL] words: for each word of the input, PANEL outputs side by side. Keys are panels as
// well (outputs are the columns of the grid), and so are values (outputs are the places within a head).

#include <new>
#include <type_traits>
#include <vector>

#include "vectors.h"

#ifdef __linux__
#include <sys/mman.h>
#endif
#if defined(__AVX512BF16__) && defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
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
// floats as they are, or words that `give` makes of floats. A panel begins with HEADER rows of facts about its outputs.

struct Float32 {
    using Given = float;
    using Sums = Floats;
    static constexpr long NUMBERS = 1, UNITS = 1, GIVEN = 1, HEADER = 0;
    static float get(const void *p, long i) { return static_cast<const float *>(p)[i]; }
    static Word pack(const float *numbers) { return bits_as<Word>(numbers[0]); }
    static Floats weights(const Word *words) { return as_floats(load_words(words)); }
    static void add(Sums &sums, Floats w, const float *x) { sums = multiply_add(w, all(x[0]), sums); }
};

// The rows that are multiplied with it stay float32.
struct BFloat16 {
    using Given = float;
    using Sums = Floats;
    struct Widened {
        Floats first, second;
        friend void in_registers(Widened &w) {
            in_registers(w.first);
            in_registers(w.second);
        }
    };
    static constexpr long NUMBERS = 2, UNITS = 1, GIVEN = 2, HEADER = 0;
    static float get(const void *p, long i) {
        return bits_as<float>(Word{static_cast<const uint16_t *>(p)[i]} << 16);
    }
    static Word round(float x) { // to the nearest, ties to even
        const Word bits = bits_as<Word>(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
    static Word pack(const float *numbers) { return round(numbers[0]) | round(numbers[1]) << 16; }
    static Widened weights(const Word *words) {
        const Ints both = load_words(words);
        return {as_floats(both << 16), as_floats(both & all_words(0xffff0000u))};
    }
    static void add(Sums &sums, const Widened &w, const float *x) {
        sums = multiply_add(w.first, all(x[0]), sums);
        sums = multiply_add(w.second, all(x[1]), sums);
    }
};

// Call write(place, vector) for `count` numbers, followed by zeros up to `padded`, a multiple of NUMBERS, in whole vectors.
template <class N, class F> void each_vector(const N *x, long count, long padded, F write) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) write(i, load(x + i));
    for (; i < padded; i += LANES) {
        N rest[LANES] = {};
        if (i < count) std::copy(x + i, x + count, rest);
        write(i, load(rest));
    }
}

#ifdef __AVX512BF16__
// bfloat16 that are multiplied two at a time with rows that are rounded to bfloat16; sums are float32.
struct Pairs : BFloat16 {
    using Given = Word;
    static constexpr long UNITS = TILE, GIVEN = 1;
    static Ints weights(const Word *words) { return load_words(words); }
    static void add(Sums &sums, Ints w, const Word *x) {
        sums = (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)all_words(x[0]), (__m512bh)w);
    }
    static float give(const float *x, long count, long units, Word *to) {
        auto *halves = reinterpret_cast<uint16_t *>(to);
        each_vector(x, count, units * NUMBERS, [&](long i, Floats numbers) { store(halves + i, numbers); });
        return 1.0f;
    }
};
#endif

#if defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define HAS_INT8
// int8 with a scale for each output, multiplied with int8 with a scale for each row; sums are int32.
//
// The instructions multiply unsigned bytes with signed bytes. So 128 is added to the rows' numbers, and the header has the
// correction: −128 times the sum of each output's weights. The other row of the header has the scales.
struct Int8 {
    using Given = Word;
    using Sums = Ints;
    static constexpr long NUMBERS = 4, UNITS = TILE, GIVEN = 1, HEADER = 2;
    static constexpr float MOST = 127.0f;
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
    typedef uint16_t Evens __attribute__((vector_size(4 * LANES)));

    static float get(const void *p, long i) { return static_cast<const int8_t *>(p)[i]; }
    static Ints weights(const Word *words) { return load_words(words); }
    static void add(Sums &sums, Ints w, const Word *x) {
        const Ints given = all_words(x[0]);
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
        sums = (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)given, (__m512i)w);
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
        sums = (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)given, (__m256i)w);
#else
        const Evens even = reinterpret_cast<Evens>(given) & 255, odd = reinterpret_cast<Evens>(given) >> 8;
        const Shorts both = reinterpret_cast<Shorts>(w);
        sums += added(reinterpret_cast<Shorts>(even), both << 8 >> 8) + added(reinterpret_cast<Shorts>(odd), both >> 8);
#endif
    }
    // Products, each added to its neighbour.
    static Ints added(Shorts a, Shorts b) {
#ifdef __AVX512F__
        return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#else
        return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
    }
    static Ints rounded(Floats x) { // to the nearest, ties to even
#ifdef __AVX512F__
        return (Ints)_mm512_cvtps_epi32((__m512)x);
#else
        return (Ints)_mm256_cvtps_epi32((__m256)x);
#endif
    }
    // The largest absolute value; NaN if a number is NaN, whose bits count as the largest.
    template <class N> static float largest(const N *x, long count) {
        Ints most = {};
        each_vector(x, count, count, [&](long, Floats numbers) {
            const Ints size = reinterpret_cast<Ints>(numbers) & all_words(0x7fffffffu);
            most = size > most ? size : most;
        });
        int32_t bits = 0;
        for (int lane = 0; lane < LANES; ++lane) bits = std::max(bits, most[lane]);
        return bits_as<float>(bits);
    }
    // The factor that brings numbers up to such a size into the range of int8.
    static float factor(float largest) { return largest > 0 ? MOST / largest : 0.0f; }
    static int32_t whole(float x) { return x == x ? static_cast<int32_t>(std::lrint(x)) : 0; }
    static Word pack(const float *numbers) {
        Word word = 0;
        for (int i = 0; i < NUMBERS; ++i) word |= (static_cast<Word>(whole(numbers[i])) & 255) << 8 * i;
        return word;
    }
    // Write column j of the header for an output's weights; gives the factor of the weights before they are packed.
    template <class F> static float open(Word *header, long j, long inputs, F number) {
        int32_t largest = 0;
        for (long i = 0; i < inputs; ++i) largest = std::max(largest, bits_as<int32_t>(number(i)) & 0x7fffffff);
        const float most = bits_as<float>(largest), by = factor(most);
        int32_t sum = 0;
        for (long i = 0; i < inputs; ++i) sum += whole(number(i) * by);
        header[j] = bits_as<Word>(most / MOST);
        header[PANEL + j] = bits_as<Word>(-128 * sum);
        return by;
    }
    template <class N> static float give(const N *x, long count, long units, Word *to) {
        const float most = largest(x, count), by = factor(most);
        each_vector(x, count, units * NUMBERS, [&](long i, Floats numbers) {
            const Bytes bytes = __builtin_convertvector(rounded(numbers * all(by)) + all_words(128), Bytes);
            std::memcpy(to + i / NUMBERS, &bytes, sizeof(bytes));
        });
        return most / MOST;
    }
    // Sums [rows][PANEL] to float32.
    static void finish(const Word *header, const float *scales, long rows, const float *sums, float *out, long out_row) {
        for (long j = 0; j < PANEL; j += LANES) {
            const Floats scale = as_floats(load_words(header + j));
            const Ints more = load_words(header + PANEL + j);
            for (long r = 0; r < rows; ++r) {
                const Ints sum = reinterpret_cast<Ints>(load(sums + r * PANEL + j)) + more;
                store(out + r * out_row + j, __builtin_convertvector(sum, Floats) * scale * all(scales[r]));
            }
        }
    }
};
#endif

// The height of a panel for so many inputs, in words; and the words of a panel with its header.
template <class E> long units(long inputs) { return round_up((inputs + E::NUMBERS - 1) / E::NUMBERS, E::UNITS); }
template <class E> long panel_words(long inputs) { return (units<E>(inputs) + E::HEADER) * PANEL; }

} // namespace
