#pragma once

// Weights of 8 or 4 bits, and rows of 8, in groups of inputs that share a scale.

#include "kinds.h"

#if defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__)) || defined(__ARM_FEATURE_DOTPROD)
#define HAS_INT8

namespace {

#if defined(__ARM_FEATURE_DOTPROD)
using Whole = int8x16_t;
inline int32x4_t add_four(Whole sums, Whole w, Whole x) { return vdotq_s32((int32x4_t)sums, w, x); }
#define ADD_FOUR add_four
#elif defined(__AVX512F__)
#define WIDE(NAME) _mm512_##NAME
using Whole = __m512i;
#else
#define WIDE(NAME) _mm256_##NAME
using Whole = __m256i;
#endif
// Multiplies four pairs of bytes and adds the products, where the CPU can.
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define ADD_FOUR _mm512_dpbusd_epi32
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
#define ADD_FOUR _mm256_dpbusd_avx_epi32
#endif

// To the nearest, ties to even.
#ifdef __aarch64__
inline Ints rounded(Floats x) { return (Ints)vcvtnq_s32_f32((float32x4_t)x); }
constexpr bool SIGNED = true; // whether four products of signed bytes are added at once
#else
inline Ints rounded(Floats x) { return (Ints)WIDE(cvtps_epi32)(x); }
constexpr bool SIGNED = false;
#endif

// Weights of BITS bits and rows of 8 with a scale for each GROUP inputs, whose sums are int32. Groups are added in float32.
//
// x86's instructions multiply unsigned bytes with signed bytes. So ZERO is added to the weights, and the sums of a group begin
// at −ZERO times the sum of the row's numbers. Where bytes are SIGNED, ZERO is taken away again as weights are read.
//
// Behind the words of a row stand the FACTS of each of its groups: the scale, and where the sums begin. A group of a panel is a
// bfloat16 for each output, its scale, and then ROWS of words. A word has four neighbouring inputs in its bytes; with 4 bits it
// has four in the lower halves of its bytes and the next four in the upper.
template <long BITS, long WIDTH> struct Grouped {
    using Given = Word;
    using Sums = Ints;
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    typedef int16_t Wide __attribute__((vector_size(2 * LANES)));
    typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
    typedef uint16_t Evens __attribute__((vector_size(4 * LANES)));
    static constexpr bool GROUPED = true;
    static constexpr long GROUP = WIDTH, NUMBERS = 4, UNITS = GROUP / NUMBERS, FACTS = 2;
    static constexpr long PARTS = 8 / BITS, ROWS = UNITS / PARTS, SCALES = PANEL / 2, GROUP_WORDS = SCALES + ROWS * PANEL;
    static constexpr int32_t ZERO = 1 << (BITS - 1), HIGHEST = ZERO - 1, LOWEST = BITS == 8 ? -HIGHEST : -ZERO;
#ifdef ADD_FOUR
    static constexpr bool SHORT = false, WIDE_ROWS = false;
#else
    static constexpr bool SHORT = BITS == 4; // products are added in two halves of 16 bits: 16 of them are below 2^15
    static constexpr bool WIDE_ROWS = BITS == 8; // rows are 16 bits wide: inputs 0 and 2 of four in a word, 1 and 3 in the next
#endif
    static constexpr long GIVEN = 1 + WIDE_ROWS; // words of a row for four inputs
    static constexpr long STEPS = PARTS * GIVEN; // words of a row for a word of a panel
    static_assert(!SHORT || GROUP / 2 * 127 * (2 * ZERO - 1) < 1 << 15);
    static constexpr float MOST = 127.0f, LEAST = 1e-36f; // smaller numbers count as 0: their factor would be infinite

    // sums + products of a part of a panel's words and a word of a row
    static Ints add(Ints sums, Ints w, const Word *x) {
#ifdef ADD_FOUR
        return (Ints)ADD_FOUR((Whole)sums, (Whole)w, (Whole)all_words(*x));
#elif defined(__AVX512F__)
        if constexpr (SHORT) return (Ints)((Shorts)sums + (Shorts)WIDE(maddubs_epi16)((Whole)w, (Whole)all_words(*x)));
        else return sums + added((Shorts)w, (Shorts)all_words(*x));
#else // GCC would compute all products of expressions first, and AVX2 has too few registers for them
        Ints products;
        if constexpr (SHORT) __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(w), "x"(all_words(*x)));
        else __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(w), "x"(all_words(*x)));
        return sums;
#endif
    }
#ifndef __aarch64__
    // Products, each added to its neighbour.
    static Ints added(Shorts a, Shorts b) { return (Ints)WIDE(madd_epi16)((Whole)a, (Whole)b); }
#endif
    // Where the sums of a group begin, and what they are in the end.
    static Ints begin(Word fact) { return SHORT || SIGNED ? Ints{} : all_words(fact); }
    static Ints end(Ints sums, [[maybe_unused]] Word fact) {
#ifndef ADD_FOUR
        if constexpr (SHORT) return added((Shorts)sums, Shorts{} + 1) + all_words(fact);
#endif
        return sums;
    }
    // The factor that brings numbers up to such a size into the range of int8.
    static float factor(float largest) { return largest > LEAST ? MOST / largest : 0.0f; }

    template <class N> static void give(const N *x, long count, long units, Word *to) {
        Word *facts = to + units * GIVEN;
        for (long first = 0; first < count; first += GROUP, to += UNITS * GIVEN, facts += FACTS) {
            const long here = std::min(GROUP, count - first);
            N padded[GROUP];
            if (here < GROUP) std::fill(std::copy_n(x + first, here, padded), padded + GROUP, N{});
            give_group(here < GROUP ? padded : x + first, to, facts);
        }
    }
    // The same for one whole group.
    template <class N> static void give_group(const N *x, Word *to, Word *facts) {
        Ints most = {}, sums = {};
        for (long i = 0; i < GROUP; i += LANES) {
            const Ints size = reinterpret_cast<Ints>(load(x + i)) & all_words(0x7fffffffu); // of NaN it is the largest
            most = size > most ? size : most;
        }
        const float largest = bits_as<float>(largest_lane(most)), by = factor(largest);
        const Ints kept = all_words(by > 0 ? ~0u : 0u); // neither NaN nor an infinite number becomes an integer
        for (long i = 0; i < GROUP; i += LANES) {
            const Ints whole = rounded(load(x + i) * all(by)) & kept;
            if constexpr (WIDE_ROWS) {
                Wide wide = __builtin_convertvector(whole, Wide), parted;
                for (long n = 0; n < LANES; ++n) parted[n] = wide[n / 4 * 4 + n % 2 * 2 + n % 4 / 2];
                std::memcpy(to + i / NUMBERS * GIVEN, &parted, sizeof(parted));
            } else {
                const Bytes bytes = __builtin_convertvector(whole, Bytes);
                std::memcpy(to + i / NUMBERS, &bytes, sizeof(bytes));
            }
            sums += whole;
        }
        facts[0] = bits_as<Word>(largest / MOST);
        facts[1] = static_cast<Word>(-ZERO * sum_of(sums));
    }

    // Part k of the words of a panel, as `add` takes it.
    static Ints part(Ints words, long k) {
        if constexpr (WIDE_ROWS) return (Ints)(k ? (Evens)words >> 8 : (Evens)words & 255);
        const Ints whole = BITS == 8 ? words : words >> BITS * k & all_words(0x0f0f0f0f);
        if constexpr (!SIGNED) return whole;
        typedef uint8_t All __attribute__((vector_size(4 * LANES)));
        return (Ints)((All)whole - static_cast<uint8_t>(ZERO));
    }
    // Where the number of input i of a group stands in its word.
    static long shift(long i) { return 8 * (i % NUMBERS) + BITS * (i / NUMBERS % PARTS); }
    // The weight of input i and output j.
    static float get(const Word *panel, long i, long j) {
        const Word *group = panel + i / GROUP * GROUP_WORDS;
        const Word word = group[SCALES + i % GROUP / (NUMBERS * PARTS) * PANEL + j];
        return BFloat16::get(group, j) * static_cast<float>(static_cast<int32_t>(word >> shift(i % GROUP) & ((1 << BITS) - 1)) - ZERO);
    }
    // Write the weights number(0) … number(inputs − 1) of output j. In 4 bits the largest becomes −8, whatever its sign.
    template <class F> static void pack(Word *panel, long j, long inputs, F number) {
        for (long first = 0; first < inputs; first += GROUP, panel += GROUP_WORDS) {
            float numbers[GROUP];
            for (long i = 0; i < GROUP; ++i) numbers[i] = number(first + i);
            Ints sizes = {};
            for (long i = 0; i < GROUP; i += LANES) {
                const Ints some = reinterpret_cast<Ints>(load(numbers + i)) & all_words(0x7fffffffu);
                sizes = some > sizes ? some : sizes; // of NaN the bits are the largest
            }
            const int32_t most = largest_lane(sizes);
            const float size = bits_as<float>(most);
            const float *of_size = std::find_if(numbers, numbers + GROUP - 1, [&](float x) { return (bits_as<int32_t>(x) & 0x7fffffff) == most; });
            const float step = BITS == 8 ? size / HIGHEST : *of_size / LOWEST;
            const Word scale = step == step ? BFloat16::round(step) : 0x7fc0;
            std::memcpy(reinterpret_cast<uint16_t *>(panel) + j, &scale, sizeof(uint16_t));
            const bool plain = size > LEAST && size < INF; // else all become 0
            const Floats by = all(plain ? 1.0f / bits_as<float>(scale << 16) : 0.0f), low = all(LOWEST), high = all(HIGHEST);
            const Ints kept = all_words(plain ? ~0u : 0u);
            int32_t whole[GROUP];
            for (long i = 0; i < GROUP; i += LANES) {
                Floats scaled = load(numbers + i) * by;
                scaled = scaled < high ? scaled : high;
                const Ints some = (rounded(scaled > low ? scaled : low) & kept) + ZERO;
                std::memcpy(whole + i, &some, sizeof(some));
            }
            Word *words = panel + SCALES + j;
            for (long u = 0; u < ROWS; ++u, words += PANEL) {
                *words = 0;
                for (long i = u * NUMBERS * PARTS; i < (u + 1) * NUMBERS * PARTS; ++i) *words |= static_cast<Word>(whole[i]) << shift(i);
            }
        }
    }
};


using Int8 = Grouped<8, 64>;
using Int4 = Grouped<4, 32>;
template <> struct HeadOf<Int4> { // of all matrices it suffers most in 4 bits
    using Kind = Int8;
};

} // namespace
#endif
