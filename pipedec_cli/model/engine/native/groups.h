#pragma once

// Rows of 8 bits, and weights of 8, 6 or 4, in groups of inputs that share a scale.

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

// A number of 16 bits with 5 of exponent, as GGUF's blocks have it.
#ifdef __aarch64__
inline Floats load_small(const uint16_t *p) { return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
#elif defined(__AVX512F__)
inline Floats load_small(const uint16_t *p) { return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))); }
#else
inline Floats load_small(const uint16_t *p) { return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); }
#endif
inline float widened(uint16_t small) {
    uint16_t smalls[LANES] = {small};
    return load_small(smalls)[0];
}
// To the nearest, ties to even; ±∞ beyond the range.
inline uint16_t narrowed(float x) {
#ifdef __aarch64__
    return bits_as<uint16_t>(static_cast<__fp16>(x));
#else
    return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#endif
}

// Bytes as floats, and integers as bytes. GCC would convert them one by one.
template <class B> Floats load_bytes(const uint8_t *p) {
    constexpr bool HAS_SIGN = std::is_signed_v<B>;
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return (Floats)_mm512_cvtepi32_ps(HAS_SIGN ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
    return (Floats)_mm256_cvtepi32_ps(HAS_SIGN ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
    typedef B Few __attribute__((vector_size(LANES)));
    typedef std::conditional_t<HAS_SIGN, int16_t, uint16_t> Short;
    typedef Short Shorts __attribute__((vector_size(2 * LANES)));
    Few few;
    std::memcpy(&few, p, sizeof(few));
    return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(few, Shorts), Ints), Floats);
#endif
}
inline void store_bytes(uint8_t *p, Ints whole) {
    typedef int16_t Shorts __attribute__((vector_size(2 * LANES)));
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
#ifdef __AVX512F__
    const auto bytes = __builtin_convertvector(whole, Bytes);
#else
    const auto bytes = __builtin_convertvector(__builtin_convertvector(whole, Shorts), Bytes);
#endif
    std::memcpy(p, &bytes, sizeof(bytes));
}

constexpr long GROUP = 32;     // inputs of a row that share a scale
constexpr long PER_SUPER = 8;  // groups of weights whose scales share a factor, in kinds that have such
constexpr long SUPER = GROUP * PER_SUPER;

// Rows in integers: E of `Block` where matrices are integers, each of a kind of its own (see `Weights`).
//
// A word has four neighbouring inputs. Where the CPU cannot add four products at once, each group has its inputs twice: in
// bytes for weights of 4 bits, and 16 bits wide for those of 8: inputs 0 and 2 of four in a word, 1 and 3 in the next.
// Behind the words of a row stand the FACTS of each of its groups: the scale, the sums of its first and of its last 16
// integers, and scale · sum.
struct Integers {
    using Given = Word;
    typedef int16_t Wide __attribute__((vector_size(2 * LANES)));
    static constexpr bool GROUPED = true;
    static constexpr long NUMBERS = 4, UNITS = GROUP / NUMBERS, FACTS = 4;
#ifdef ADD_FOUR
    static constexpr bool IS_TWICE = false;
#else
    static constexpr bool IS_TWICE = true;
#endif
    static constexpr long GIVEN = IS_TWICE ? 3 : 1; // words of a row for four inputs
    static constexpr long ROW = UNITS * GIVEN;      // words of a group
    static constexpr float MOST = 127.0f, LEAST = 1e-36f; // smaller numbers count as 0: their factor would be infinite

    // The factor that brings numbers up to such a size into the range of int8.
    static float factor(float largest) { return largest > LEAST ? MOST / largest : 0.0f; }

    template <class N> static void give(const N *x, long count, long units, Word *to) {
        Word *facts = to + units * GIVEN;
        for (long first = 0; first < count; first += GROUP, to += ROW, facts += FACTS) {
            const long here = std::min(GROUP, count - first);
            N padded[GROUP];
            if (here < GROUP) std::fill(std::copy_n(x + first, here, padded), padded + GROUP, N{});
            give_group(here < GROUP ? padded : x + first, to, facts);
        }
    }
    // The same for one whole group.
    template <class N> static void give_group(const N *x, Word *to, Word *facts) {
        Ints most = {}, sums[2] = {};
        for (long i = 0; i < GROUP; i += LANES) {
            const Ints size = reinterpret_cast<Ints>(load(x + i)) & all_words(0x7fffffffu); // of NaN it is the largest
            most = size > most ? size : most;
        }
        const float largest = bits_as<float>(largest_lane(most)), by = factor(largest);
        const Ints kept = all_words(by > 0 ? ~0u : 0u); // neither NaN nor an infinite number becomes an integer
        for (long i = 0; i < GROUP; i += LANES) {
            const Ints whole = rounded(load(x + i) * all(by)) & kept;
            store_bytes(reinterpret_cast<uint8_t *>(to + i / NUMBERS), whole);
            if constexpr (IS_TWICE) {
                Wide wide = __builtin_convertvector(whole, Wide), parted;
                for (long n = 0; n < LANES; ++n) parted[n] = wide[n / 4 * 4 + n % 2 * 2 + n % 4 / 2];
                std::memcpy(to + UNITS + i / NUMBERS * 2, &parted, sizeof(parted));
            }
            sums[i / (GROUP / 2)] += whole;
        }
        const float scale = largest / MOST;
        const int32_t first = sum_of(sums[0]), last = sum_of(sums[1]);
        facts[0] = bits_as<Word>(scale);
        facts[1] = static_cast<Word>(first);
        facts[2] = static_cast<Word>(last);
        facts[3] = bits_as<Word>(scale * static_cast<float>(first + last));
    }
};

// The integers of up to a super-group of one output, as they are written into a panel.
struct Numbers {
    uint16_t factor = 0, least_factor = 0; // small numbers: of the scales, and of the minima
    uint8_t scales[2 * PER_SUPER] = {};    // of each group, or of each half of a group
    uint8_t minima[PER_SUPER] = {};
    uint8_t whole[SUPER] = {}; // without a sign: ZERO is added
};

// The same of LANES outputs, each in a lane.
struct LaneNumbers {
    uint16_t factors[LANES] = {}, least_factors[LANES] = {};
    Ints scales[2 * PER_SUPER] = {}, minima[PER_SUPER] = {}, whole[SUPER] = {};
};

// A kind of weights in integers of BITS bits. A weight is (integer − ZERO) · scale − minimum, where only kinds that HAVE_MINIMA
// have the latter. The scale is a small number of each GROUP; or, in kinds with supers, a factor of the super-group times a
// byte of the group. With HALVES each half of a group has a scale, whose byte has a sign.
//
// x86's instructions multiply unsigned bytes with signed bytes. So integers are kept without a sign, and the sums of a group
// begin at −ZERO times the sum of the row's numbers. Where bytes are SIGNED, ZERO is taken away as weights are read.
//
// A super-group of a panel begins with PANEL factors, and PANEL factors of minima. Each of its groups has PANEL bytes for each
// scale and the minimum, and then ROWS · PANEL words. Without supers the factor is the scale, and there are no bytes. A word has four
// neighbouring inputs in its bytes; with 4 bits it has four in the lower halves of its bytes and the next four in the upper. So have
// words of 6 bits the lower 4 of each; behind them stand UPPER · PANEL words with the upper 2, of sixteen neighbouring inputs each.
template <long BITS, int32_t ZERO, bool HAS_SUPERS, bool HAS_MINIMA, bool HAS_HALVES = false> struct Weights {
    typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
    typedef uint16_t Evens __attribute__((vector_size(4 * LANES)));
    static constexpr bool MINIMA = HAS_MINIMA, SUPERS = HAS_SUPERS;
    static constexpr long NUMBERS = Integers::NUMBERS, UNITS = Integers::UNITS;
    static constexpr long LOW = BITS == 8 ? 8 : 4, PARTS = 8 / LOW, ROWS = UNITS / PARTS, UPPER = BITS == 6 ? UNITS / 4 : 0;
    static constexpr long HALVES = HAS_HALVES ? 2 : 1;
    static constexpr long SCALES = HAS_SUPERS ? HALVES + HAS_MINIMA : 0; // bytes of a group and an output
    static constexpr long HEAD = PANEL / 2 * (1 + HAS_MINIMA), BEFORE = PANEL / 4 * SCALES; // words of a super-group and of a group
    static constexpr long GROUP_WORDS = BEFORE + (ROWS + UPPER) * PANEL, TOGETHER = HAS_SUPERS ? PER_SUPER : 1;
#ifdef ADD_FOUR
    static constexpr bool SHORT = false, WIDE_ROWS = false;
#else
    static constexpr bool SHORT = BITS == 4; // products are added in two halves of 16 bits: 16 of them are below 2^15
    static constexpr bool WIDE_ROWS = BITS > 4;
#endif
    static constexpr long GIVEN = 1 + WIDE_ROWS;  // words of a row for four inputs
    static constexpr long STEPS = PARTS * GIVEN;  // words of a row for a word of a panel
    static constexpr long BESIDE = WIDE_ROWS ? UNITS : 0; // where these words stand in a group of a row
    static_assert(!SHORT || GROUP / 2 * 127 * 15 < 1 << 15);

    // The words of so many groups, and of a panel.
    static long words(long groups) { return groups * GROUP_WORDS + (groups + TOGETHER - 1) / TOGETHER * HEAD; }

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
    // What the ZERO in the weights of a group, or of its half, adds to the sums of a row.
    static int32_t surplus(const Word *facts, long half) {
        return -ZERO * static_cast<int32_t>(HAS_HALVES ? facts[1 + half] : facts[1] + facts[2]);
    }
    // Where the sums begin, and what they are in the end.
    static Ints begin(const Word *facts, long half) {
        return SHORT || SIGNED || ZERO == 0 ? Ints{} : all_words(static_cast<Word>(surplus(facts, half)));
    }
    static Ints end(Ints sums, [[maybe_unused]] const Word *facts, [[maybe_unused]] long half) {
#ifndef ADD_FOUR
        if constexpr (SHORT) return added((Shorts)sums, Shorts{} + 1) + all_words(static_cast<Word>(surplus(facts, half)));
#endif
        return sums;
    }
    // Part k of row u of a group's words, from output j on, as `add` takes it.
    static Ints part(const Word *words, long u, long k, long j) {
        const Ints low = load_words(anew(words + u * PANEL) + j);
        Ints whole = LOW == 8 ? low : low >> LOW * (k / GIVEN) & all_words(0x0f0f0f0f);
        if constexpr (UPPER > 0) {
            const Ints high = load_words(anew(words + (ROWS + u / 2) * PANEL) + j) >> u % 2 * 4;
            whole |= high << (4 - 2 * (k / GIVEN)) & all_words(0x30303030);
        }
        if constexpr (WIDE_ROWS) return (Ints)(k % GIVEN ? (Evens)whole >> 8 : (Evens)whole & 255);
        if constexpr (!SIGNED || ZERO == 0) return whole;
        typedef uint8_t All __attribute__((vector_size(4 * LANES)));
        return (Ints)((All)whole - static_cast<uint8_t>(ZERO));
    }

    // The factors of LANES outputs from output j on, in a super-group; and those of the minima.
    static Floats factors(const Word *super, long j) { return load_small(reinterpret_cast<const uint16_t *>(super) + j); }
    static Floats least_factors(const Word *super, long j) { return HAS_MINIMA ? factors(super, PANEL + j) : Floats{}; }
    // The scales of a half of a group, of outputs that have these factors; and the group's minima.
    static Floats scales(Floats factors, const Word *group, long half, long j) {
        if constexpr (!HAS_SUPERS) return factors;
        const auto *bytes = reinterpret_cast<const uint8_t *>(group) + half * PANEL + j;
        return factors * load_bytes<std::conditional_t<HAS_HALVES, int8_t, uint8_t>>(bytes);
    }
    static Floats minima(Floats factors, const Word *group, long j) {
        if constexpr (!HAS_SUPERS) return factors;
        return factors * load_bytes<uint8_t>(reinterpret_cast<const uint8_t *>(group) + HALVES * PANEL + j);
    }

    // Where a super-group and a group begin.
    static long super_at(long group) { return group / TOGETHER * (HEAD + TOGETHER * GROUP_WORDS); }
    static long group_at(long group) { return super_at(group) + HEAD + group % TOGETHER * GROUP_WORDS; }
    // Where the number of input i of a group stands in its word, and its upper bits in theirs.
    static long shift(long i) { return 8 * (i % NUMBERS) + LOW * (i / NUMBERS % PARTS); }
    static long upper_shift(long i) { return 8 * (i % NUMBERS) + 2 * (i / NUMBERS % 4); }

    // The weight of input i and output j.
    static float get(const Word *panel, long i, long j) {
        const long number = i / GROUP, lane = j % LANES, from = j - lane;
        const Word *super = panel + super_at(number), *group = panel + group_at(number);
        const float whole = static_cast<float>(static_cast<int32_t>(whole_at(group + BEFORE + j, i % GROUP)) - ZERO);
        const float product = scales(factors(super, from), group, i % GROUP / (GROUP / HALVES), from)[lane] * whole;
        if constexpr (HAS_MINIMA) return product - minima(least_factors(super, from), group, from)[lane];
        else return product;
    }
    static Word whole_at(const Word *words, long i) {
        const Word low = words[i / (NUMBERS * PARTS) * PANEL] >> shift(i) & ((1 << LOW) - 1);
        if constexpr (UPPER == 0) return low;
        else return low | (words[(ROWS + i / 16) * PANEL] >> upper_shift(i) & 3) << LOW;
    }
    // Write the integers of some groups of output j, from group `first` on, which begins a super-group in kinds that have such.
    static void write(Word *panel, long j, long first, long groups, const Numbers &numbers) {
        auto *factors = reinterpret_cast<uint16_t *>(panel + super_at(first)) + j;
        factors[0] = numbers.factor;
        if constexpr (HAS_MINIMA) factors[PANEL] = numbers.least_factor;
        for (long g = 0; g < groups; ++g) {
            Word *group = panel + group_at(first + g);
            auto *bytes = reinterpret_cast<uint8_t *>(group) + j;
            for (long half = 0; half < HALVES && HAS_SUPERS; ++half) bytes[half * PANEL] = numbers.scales[g * HALVES + half];
            if constexpr (HAS_SUPERS && HAS_MINIMA) bytes[HALVES * PANEL] = numbers.minima[g];
            for (long u = 0; u < ROWS + UPPER; ++u) group[BEFORE + u * PANEL + j] = word_of<Word>(numbers.whole + g * GROUP, u);
        }
    }
    // The same of LANES outputs from output j on.
    static void write(Word *panel, long j, long first, long groups, const LaneNumbers &numbers) {
        auto *factors = reinterpret_cast<uint16_t *>(panel + super_at(first)) + j;
        std::copy_n(numbers.factors, LANES, factors);
        if constexpr (HAS_MINIMA) std::copy_n(numbers.least_factors, LANES, factors + PANEL);
        for (long g = 0; g < groups; ++g) {
            Word *group = panel + group_at(first + g);
            auto *bytes = reinterpret_cast<uint8_t *>(group) + j;
            for (long half = 0; half < HALVES && HAS_SUPERS; ++half) store_bytes(bytes + half * PANEL, numbers.scales[g * HALVES + half]);
            if constexpr (HAS_SUPERS && HAS_MINIMA) store_bytes(bytes + HALVES * PANEL, numbers.minima[g]);
            for (long u = 0; u < ROWS + UPPER; ++u) store_words(group + BEFORE + u * PANEL + j, word_of<Ints>(numbers.whole + g * GROUP, u));
        }
    }
    // Word u of a group of integers, of one output or of a vector of outputs.
    template <class V, class N> static V word_of(const N *whole, long u) {
        V word = {};
        const long upper = u - ROWS;
        if (upper >= 0)
            for (long i = 16 * upper; i < 16 * (upper + 1); ++i) word |= static_cast<V>(whole[i]) >> LOW << upper_shift(i);
        else
            for (long i = u * NUMBERS * PARTS; i < (u + 1) * NUMBERS * PARTS; ++i)
                word |= (static_cast<V>(whole[i]) & ((1 << LOW) - 1)) << shift(i);
        return word;
    }
};

using Eight = Weights<8, 128, false, false>;           // GGUF's Q8_0 and Q5_0
using EightFrom = Weights<8, 0, false, true>;          // Q5_1
using Four = Weights<4, 8, false, false>;              // Q4_0
using FourFrom = Weights<4, 0, false, true>;           // Q4_1
using SuperFour = Weights<4, 0, true, true>;           // Q4_K
using SuperFive = Weights<6, 0, true, true>;           // Q5_K
using SuperSix = Weights<6, 32, true, false, true>;    // Q6_K

// Call work(W{}) with a kind of weights in integers.
template <class F> void as_integers(long kind, F work) {
    switch (kind) {
    case EIGHT_FROM: return work(EightFrom{});
    case FOUR: return work(Four{});
    case FOUR_FROM: return work(FourFrom{});
    case SUPER_FOUR: return work(SuperFour{});
    case SUPER_FIVE: return work(SuperFive{});
    case SUPER_SIX: return work(SuperSix{});
    default: return work(Eight{});
    }
}

} // namespace
#endif
