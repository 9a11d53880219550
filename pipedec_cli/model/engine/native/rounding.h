#pragma once

// From floats and from the blocks of GGUF files to the integers of a panel.

#include "groups.h"

#ifdef HAS_INT8

namespace {

constexpr float TINY = 1e-30f; // numbers that are smaller count as 0

inline int32_t nearest(float x) { return static_cast<int32_t>(std::nearbyint(x)); }
inline int32_t clamped(int32_t x, int32_t low, int32_t high) { return std::max(low, std::min(high, x)); }

inline bool all_finite(const float *x, long count) {
    return std::all_of(x, x + count, [](float number) { return std::isfinite(number); });
}

// ---- one scale a group

// 8 bits, the largest number ±127. What is not finite makes the scale so, and with it every product.
inline void round_to_eight(const float *x, Numbers &to) {
    float most = 0;
    for (long i = 0; i < GROUP; ++i) most = std::max(most, std::abs(x[i]));
    to.factor = narrowed(all_finite(x, GROUP) ? most / 127 : std::numeric_limits<float>::quiet_NaN());
    const float scale = widened(to.factor), by = scale > 0 && std::isfinite(scale) ? 1 / scale : 0;
    for (long i = 0; i < GROUP; ++i) to.whole[i] = static_cast<uint8_t>(128 + clamped(nearest(x[i] * by), -127, 127));
}

// ---- scales and minima of a super-group

// A scale and a minimum, with which integers from 0 to `highest` are near numbers.
struct Line {
    float scale = 0, minimum = 0;
};

inline Floats within(Floats x, float low, float high) {
    x = x < all(low) ? all(low) : x;
    return x > all(high) ? all(high) : x;
}
inline Floats whole_of(Floats x, float low, float high) { return __builtin_convertvector(rounded(within(x, low, high)), Floats); }

// A group of numbers, and how much the error of each counts.
struct Weighed {
    static constexpr long VECTORS = GROUP / LANES;
    Floats x[VECTORS], weights[VECTORS];
};

// What a line loses: the weighted sum of the squares of its errors.
inline float lost(const Weighed &of, Line line, float highest) {
    const Floats by = all(1 / line.scale), scale = all(line.scale), minimum = all(line.minimum);
    Floats sum = {};
    for (long v = 0; v < Weighed::VECTORS; ++v) {
        const Floats whole = whole_of((of.x[v] + minimum) * by, 0, highest), apart = scale * whole - minimum - of.x[v];
        sum = sum + of.weights[v] * apart * apart;
    }
    return sum_of(sum);
}

// The line that weighted least squares give for the integers round((x − least) · by); without a scale if there is none.
inline Line fitted(const Weighed &of, float least, float by, float highest) {
    Floats w = {}, wx = {}, wq = {}, wqq = {}, wqx = {}; // weighted sums of 1, x, q, q², q·x
    for (long v = 0; v < Weighed::VECTORS; ++v) {
        const Floats q = whole_of((of.x[v] - all(least)) * all(by), 0, highest), weighted = of.weights[v] * q;
        w = w + of.weights[v], wx = wx + of.weights[v] * of.x[v];
        wq = wq + weighted, wqq = wqq + weighted * q, wqx = wqx + weighted * of.x[v];
    }
    const double ones = sum_of(w), x = sum_of(wx), q = sum_of(wq), qq = sum_of(wqq), qx = sum_of(wqx);
    const double determinant = ones * qq - q * q;
    if (determinant <= 0) return {};
    const Line line{static_cast<float>((ones * qx - x * q) / determinant), static_cast<float>((q * qx - qq * x) / determinant)};
    return line.minimum < 0 ? Line{static_cast<float>(qx / qq), 0} : line;
}

// The best line for a group of numbers. Candidates for the scale divide the range of the numbers into a little more or fewer
// steps than `highest`; each is bettered by weighted least squares for the integers that it gives. The minimum is at least 0:
// it is what is taken away.
inline Line best_line(const Weighed &of, float least, float most, float highest) {
    if (most - least < TINY) return {0, -least};
    Line best{(most - least) / highest, -least};
    float fewest = lost(of, best, highest);
    constexpr long CANDIDATES = 10;
    for (long k = 0; k <= CANDIDATES; ++k) {
        const float steps = highest - 1.0f + 0.2f * static_cast<float>(k);
        const Line line = fitted(of, least, steps / (most - least), highest);
        if (!(line.scale > 0)) continue;
        const float now = lost(of, line, highest);
        if (now < fewest) fewest = now, best = line;
    }
    return best;
}

// The error of a large number counts more, since it moves a product more.
inline Weighed weighed(const float *x) {
    Weighed made;
    Floats squares = {};
    for (long v = 0; v < Weighed::VECTORS; ++v) {
        made.x[v] = load(x + v * LANES);
        squares = squares + made.x[v] * made.x[v];
    }
    const Floats usual = all(std::sqrt(sum_of(squares) / GROUP));
    for (long v = 0; v < Weighed::VECTORS; ++v) made.weights[v] = usual + (made.x[v] < Floats{} ? -made.x[v] : made.x[v]);
    return made;
}

// Bytes of 6 bits for scales or minima, and their factor.
inline float shared_factor(const float *numbers, long count, uint8_t *bytes, uint16_t &factor) {
    const float most = *std::max_element(numbers, numbers + count);
    factor = narrowed(most / 63);
    const float step = widened(factor), by = step > 0 ? 1 / step : 0;
    for (long i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(clamped(nearest(numbers[i] * by), 0, 63));
    return step;
}

// 4 bits in up to PER_SUPER groups, each with a scale and a minimum of 6 bits.
inline void round_to_super_four(const float *x, long groups, Numbers &to) {
    constexpr int32_t HIGHEST = 15;
    if (!all_finite(x, groups * GROUP)) return void(to.factor = to.least_factor = narrowed(std::numeric_limits<float>::quiet_NaN()));
    float scales[PER_SUPER] = {}, minima[PER_SUPER] = {};
    for (long g = 0; g < groups; ++g) {
        const float *group = x + g * GROUP;
        const float least = std::min(0.0f, *std::min_element(group, group + GROUP)), most = *std::max_element(group, group + GROUP);
        const Line line = best_line(weighed(group), least, most, HIGHEST);
        scales[g] = line.scale, minima[g] = line.minimum;
    }
    const float scale = shared_factor(scales, PER_SUPER, to.scales, to.factor);
    const float minimum = shared_factor(minima, PER_SUPER, to.minima, to.least_factor);
    for (long g = 0; g < groups; ++g) {
        const float step = scale * to.scales[g], least = minimum * to.minima[g], by = step > 0 ? 1 / step : 0;
        for (long i = g * GROUP; i < (g + 1) * GROUP; ++i) to.whole[i] = static_cast<uint8_t>(clamped(nearest((x[i] + least) * by), 0, HIGHEST));
    }
}

// The best scale for half a group of numbers that are near integers from −32 to 31, by weighted least squares.
inline float best_scale(const float *x) {
    constexpr long HALF = GROUP / 2, VECTORS = (HALF + LANES - 1) / LANES;
    static_assert(HALF % LANES == 0, "whole vectors");
    float most = 0;
    for (long i = 0; i < HALF; ++i)
        if (std::abs(x[i]) > std::abs(most)) most = x[i];
    if (std::abs(most) < TINY) return 0;
    float best = 0, gained = -1;
    for (long k = -4; k <= 4; ++k) { // −32 stands for the largest, whatever its sign
        const Floats by = all(-(32.0f + 0.2f * static_cast<float>(k)) / most);
        Floats wqx = {}, wqq = {};
        for (long v = 0; v < VECTORS; ++v) {
            const Floats some = load(x + v * LANES), q = whole_of(by * some, -32, 31), weighted = some * some * q;
            wqx = wqx + weighted * some, wqq = wqq + weighted * q;
        }
        const float qx = sum_of(wqx), qq = sum_of(wqq);
        if (!(qq > 0)) continue;
        const float gain = qx * qx / qq;
        if (gain > gained) gained = gain, best = qx / qq;
    }
    return best;
}

// 6 bits in up to PER_SUPER groups, whose halves have a scale of 8 bits each.
inline void round_to_super_six(const float *x, long groups, Numbers &to) {
    constexpr long HALF = GROUP / 2;
    const long halves = 2 * groups;
    if (!all_finite(x, groups * GROUP)) return void(to.factor = narrowed(std::numeric_limits<float>::quiet_NaN()));
    float scales[2 * PER_SUPER] = {}, most = 0;
    for (long h = 0; h < halves; ++h) {
        scales[h] = best_scale(x + h * HALF);
        most = std::max(most, std::abs(scales[h]));
    }
    to.factor = narrowed(most / 127);
    const float factor = widened(to.factor), by = factor > 0 ? 1 / factor : 0;
    for (long h = 0; h < halves; ++h) {
        const int32_t scale = clamped(nearest(scales[h] * by), -127, 127);
        to.scales[h] = static_cast<uint8_t>(static_cast<int8_t>(scale));
        const float step = factor * static_cast<float>(scale), per = step != 0 ? 1 / step : 0;
        for (long i = h * HALF; i < (h + 1) * HALF; ++i) to.whole[i] = static_cast<uint8_t>(32 + clamped(nearest(x[i] * per), -32, 31));
    }
}

// Round floats of `groups` groups to a kind that weights are rounded to here.
template <class W> void round_to(const float *x, long groups, Numbers &to) {
    if constexpr (std::is_same_v<W, SuperFour>) round_to_super_four(x, groups, to);
    else if constexpr (std::is_same_v<W, SuperSix>) round_to_super_six(x, groups, to);
    else round_to_eight(x, to); // `Eight`; no others are asked for
}

// ---- GGUF's blocks

// The numbers of ggml's types that are read as they are.
enum Blocks { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

inline uint16_t small_at(const uint8_t *block, long at) {
    uint16_t number;
    std::memcpy(&number, block + at, sizeof(number));
    return number;
}

// A minimum here is taken away, and a small number's highest bit is its sign.
inline uint16_t negated(uint16_t small) { return small ^ 0x8000; }

// A block of 32 numbers: 16 bytes have the lower 4 bits, first those of the first 16 numbers. `high` are their fifth bits.
inline void read_nibbles(const uint8_t *nibbles, uint32_t high, uint8_t *whole) {
    for (long i = 0; i < 16; ++i) {
        whole[i] = static_cast<uint8_t>((nibbles[i] & 15) | (high >> i & 1) << 4);
        whole[i + 16] = static_cast<uint8_t>(nibbles[i] >> 4 | (high >> (i + 16) & 1) << 4);
    }
}

inline uint32_t word_at(const uint8_t *block, long at) {
    uint32_t word;
    std::memcpy(&word, block + at, sizeof(word));
    return word;
}

// The scales and minima, of 6 bits, of a super-block's 8 blocks, which 12 bytes hold.
inline void read_six_bits(const uint8_t *bytes, Numbers &to) {
    for (long g = 0; g < 4; ++g) {
        to.scales[g] = bytes[g] & 63;
        to.minima[g] = bytes[g + 4] & 63;
        to.scales[g + 4] = static_cast<uint8_t>((bytes[g + 8] & 15) | bytes[g] >> 6 << 4);
        to.minima[g + 4] = static_cast<uint8_t>(bytes[g + 8] >> 4 | bytes[g + 4] >> 6 << 4);
    }
}

inline void read_q6_k(const uint8_t *block, Numbers &to) {
    const uint8_t *low = block, *high = block + 128;
    for (long half = 0; half < 2; ++half, low += 64, high += 32)
        for (long i = 0; i < 32; ++i) {
            uint8_t *whole = to.whole + 128 * half + i;
            whole[0] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
            whole[32] = static_cast<uint8_t>((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            whole[64] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            whole[96] = static_cast<uint8_t>(low[i + 32] >> 4 | high[i] >> 6 << 4);
        }
    std::copy_n(block + 192, 2 * PER_SUPER, to.scales);
    to.factor = small_at(block, 208);
}

// Q4_K and Q5_K: of each 32 bytes the lower halves are a block, and the upper halves the next.
inline void read_super_lines(const uint8_t *block, bool five, Numbers &to) {
    to.factor = small_at(block, 0);
    to.least_factor = small_at(block, 2);
    read_six_bits(block + 4, to);
    const uint8_t *high = block + 16, *low = block + (five ? 48 : 16);
    for (long g = 0; g < PER_SUPER; ++g)
        for (long i = 0; i < GROUP; ++i) {
            const int nibble = low[g / 2 * GROUP + i] >> g % 2 * 4 & 15;
            to.whole[g * GROUP + i] = static_cast<uint8_t>(nibble | (five ? (high[i] >> g & 1) << 4 : 0));
        }
}

// The bytes of a block, and how many groups it has; 0 for a type that is not read.
struct BlockSize {
    long bytes, groups;
};
inline BlockSize block_size(long type) {
    switch (type) {
    case Q4_0: return {18, 1};
    case Q4_1: return {20, 1};
    case Q5_0: return {22, 1};
    case Q5_1: return {24, 1};
    case Q8_0: return {34, 1};
    case Q4_K: return {144, PER_SUPER};
    case Q5_K: return {176, PER_SUPER};
    case Q6_K: return {210, PER_SUPER};
    default: return {0, 0};
    }
}

// The kind that holds all numbers of a type exactly; −1 for a type that is not read.
inline long kind_of_blocks(long type) {
    switch (type) {
    case Q4_0: return FOUR;
    case Q4_1: return FOUR_FROM;
    case Q5_0: case Q8_0: return EIGHT;
    case Q5_1: return EIGHT_FROM;
    case Q4_K: return SUPER_FOUR;
    case Q5_K: return SUPER_FIVE;
    case Q6_K: return SUPER_SIX;
    default: return -1;
    }
}

inline void read_block(long type, const uint8_t *block, Numbers &to) {
    to.factor = small_at(block, 0);
    switch (type) {
    case Q4_0: return read_nibbles(block + 2, 0, to.whole);
    case Q4_1: to.least_factor = negated(small_at(block, 2)); return read_nibbles(block + 4, 0, to.whole);
    case Q5_0:
        read_nibbles(block + 6, word_at(block, 2), to.whole);
        for (long i = 0; i < GROUP; ++i) to.whole[i] = static_cast<uint8_t>(to.whole[i] - 16 + 128);
        return;
    case Q5_1: to.least_factor = negated(small_at(block, 2)); return read_nibbles(block + 8, word_at(block, 4), to.whole);
    case Q8_0:
        for (long i = 0; i < GROUP; ++i) to.whole[i] = static_cast<uint8_t>(block[2 + i] + 128);
        return;
    case Q4_K: return read_super_lines(block, false, to);
    case Q5_K: return read_super_lines(block, true, to);
    default: return read_q6_k(block, to);
    }
}

} // namespace
#endif
