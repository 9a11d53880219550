#pragma once

// int8 in groups of inputs that share a scale.

#include "kinds.h"

#if defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define HAS_INT8

namespace {

inline Ints rounded(Floats x) { // to the nearest, ties to even
#ifdef __AVX512F__
    return (Ints)_mm512_cvtps_epi32((__m512)x);
#else
    return (Ints)_mm256_cvtps_epi32((__m256)x);
#endif
}

// Rows, and how they are multiplied: int8 with a scale for each group, whose sums are int32. Groups are added in float32.
//
// The instructions multiply unsigned bytes with signed bytes. So 128 is added to the weights, and the sums of a group begin
// at −128 times the sum of the row's numbers. Behind the words of a row stand the FACTS of each of its groups: the scale, and
// where the sums begin.
struct Grouped {
    using Given = Word;
    using Sums = Ints;
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
    typedef uint16_t Evens __attribute__((vector_size(4 * LANES)));
    static constexpr bool GROUPED = true;
    static constexpr long GROUP = 64, NUMBERS = 4, UNITS = GROUP / NUMBERS, GIVEN = 1, FACTS = 2;
    static constexpr float MOST = 127.0f, LEAST = 1e-36f; // smaller numbers count as 0: their factor would be infinite

    // sums += products of the unsigned bytes of `w` and the signed bytes of `x`, four each
    static void add(Ints &sums, Ints w, Ints x) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
        sums = (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)w, (__m512i)x);
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
        sums = (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)w, (__m256i)x);
#else
        const Evens even = reinterpret_cast<Evens>(w) & 255, odd = reinterpret_cast<Evens>(w) >> 8;
        const Shorts both = reinterpret_cast<Shorts>(x);
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
    // The factor that brings numbers up to such a size into the range of int8.
    static float factor(float largest) { return largest > LEAST ? MOST / largest : 0.0f; }

    template <class N> static void give(const N *x, long count, long units, Word *to) {
        Word *facts = to + units;
        for (long first = 0; first < count; first += GROUP, to += UNITS, facts += FACTS) {
            const long here = std::min(GROUP, count - first);
            Ints most = {}, sums = {};
            each_vector(x + first, here, here, [&](long, Floats numbers) {
                const Ints size = reinterpret_cast<Ints>(numbers) & all_words(0x7fffffffu); // of NaN it is the largest
                most = size > most ? size : most;
            });
            const float largest = bits_as<float>(largest_lane(most)), by = factor(largest);
            const Ints kept = all_words(by > 0 ? ~0u : 0u); // neither NaN nor an infinite number becomes an integer
            each_vector(x + first, here, GROUP, [&](long i, Floats numbers) {
                const Ints whole = rounded(numbers * all(by)) & kept;
                const Bytes bytes = __builtin_convertvector(whole, Bytes);
                std::memcpy(to + i / NUMBERS, &bytes, sizeof(bytes));
                sums += whole;
            });
            facts[0] = bits_as<Word>(largest / MOST);
            facts[1] = static_cast<Word>(-128 * sum_of(sums));
        }
    }
};

// Weights of 8 bits. A group of a panel is a bfloat16 for each output, its scale, and then a row of words for each four inputs.
struct Int8 : Grouped {
    static constexpr long SCALES = PANEL / 2, GROUP_WORDS = SCALES + UNITS * PANEL; // of a panel's group

    // The weight of input i and output j.
    static float get(const Word *panel, long i, long j) {
        const Word *group = panel + i / GROUP * GROUP_WORDS;
        const Word word = group[SCALES + i % GROUP / NUMBERS * PANEL + j];
        return BFloat16::get(group, j) * static_cast<float>(static_cast<int32_t>(word >> 8 * (i % NUMBERS) & 255) - 128);
    }
    // Write the weights number(0) … number(inputs − 1) of output j.
    template <class F> static void pack(Word *panel, long j, long inputs, F number) {
        for (long first = 0; first < inputs; first += GROUP, panel += GROUP_WORDS) {
            int32_t largest = 0; // of NaN the bits are the largest
            for (long i = first; i < first + GROUP; ++i) largest = std::max(largest, bits_as<int32_t>(number(i)) & 0x7fffffff);
            const float most = bits_as<float>(largest);
            const Word scale = most == most ? BFloat16::round(most / MOST) : 0x7fc0;
            std::memcpy(reinterpret_cast<uint16_t *>(panel) + j, &scale, sizeof(uint16_t));
            const float by = most > LEAST && most < INF ? 1.0f / bits_as<float>(scale << 16) : 0.0f;
            for (long u = 0; u < UNITS; ++u) {
                Word word = 0;
                for (long i = 0; i < NUMBERS; ++i) word |= static_cast<Word>(whole(number(first + u * NUMBERS + i), by) + 128) << 8 * i;
                panel[SCALES + u * PANEL + j] = word;
            }
        }
    }
    static int32_t whole(float number, float by) {
        return by > 0 ? static_cast<int32_t>(std::lrint(std::max(-MOST, std::min(MOST, number * by)))) : 0;
    }
};

} // namespace
#endif
