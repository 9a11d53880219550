#pragma once

// From floats to the integers of a panel.
//
// LANES outputs are rounded at a time, each in a lane of its own. No number passes from lane to lane, and each product that is
// added is rounded once: so a matrix becomes the same integers on every CPU.

#include "groups.h"

#ifdef HAS_INT8

namespace {

constexpr float TINY = 1e-30f;         // numbers that are smaller count as 0
constexpr float ROUNDING = 12582912.0f; // 1.5 · 2^23: what is added to it is rounded to an integer, ties to even

inline Floats smaller(Floats a, Floats b) {
#ifdef __aarch64__
    return a < b ? a : b;
#else
    return (Floats)WIDE(min_ps)(a, b);
#endif
}
inline Floats larger(Floats a, Floats b) {
#ifdef __aarch64__
    return a > b ? a : b;
#else
    return (Floats)WIDE(max_ps)(a, b);
#endif
}
inline Floats within(Floats x, float low, float high) { return smaller(larger(x, all(low)), all(high)); }
inline Floats size_of(Floats x) { return as_floats(reinterpret_cast<Ints>(x) & all_words(0x7fffffffu)); }

// The integer next to a · b, as a float. Beyond 2^22 it is some large number.
inline Floats whole_product(Floats a, Floats b) { return multiply_add(a, b, all(ROUNDING)) - all(ROUNDING); }

// 1 / x; 0 where there is none.
inline Floats inverse(Floats x) {
    const Ints is_zero = x == Floats{};
    return as_floats(reinterpret_cast<Ints>(all(1) / (is_zero ? all(1) : x)) & ~is_zero);
}

// Small numbers that are near floats, and what they are.
inline Floats as_small(Floats x, uint16_t *smalls) {
    for (long lane = 0; lane < LANES; ++lane) smalls[lane] = narrowed(x[lane]);
    return load_small(smalls);
}

// The numbers of LANES outputs, one behind the other. Where an output has one that is not finite, all count as 0.
struct LaneFloats {
    Floats x[SUPER];
    Ints finite;

    // Take `count` numbers of each row of a matrix. A lane that is not `there` has zeros.
    template <class S> void take(const void *matrix, const long *rows, long first, long count, Ints there) {
        auto *numbers = reinterpret_cast<float *>(x);
        for (long lane = 0; lane < LANES; ++lane)
            for (long i = 0; i < count; ++i) numbers[i * LANES + lane] = S::get(matrix, rows[lane] + first + i);
        std::fill(x + count, x + round_up(count, GROUP), Floats{});
        Floats whole = {};
        for (long i = 0; i < count; ++i) whole = whole + (x[i] - x[i]); // 0, or no number
        finite = ~there | (whole == Floats{});
        const Ints kept = there & finite;
        for (long i = 0; i < count; ++i) x[i] = as_floats(reinterpret_cast<Ints>(x[i]) & kept);
    }
    // A factor that makes every product of an output no number whose weights were not finite.
    Floats marked(Floats factor) const { return finite ? factor : all(std::numeric_limits<float>::quiet_NaN()); }
};

// ---- one scale a group

// 8 bits, the largest number ±127.
inline void round_to_eight(const LaneFloats &from, LaneNumbers &to) {
    Floats most = {};
    for (long i = 0; i < GROUP; ++i) most = larger(most, size_of(from.x[i]));
    const Floats by = inverse(as_small(most / all(127), to.factors));
    for (long i = 0; i < GROUP; ++i) to.whole[i] = rounded(within(from.x[i] * by, -127, 127)) + 128;
    as_small(from.marked(load_small(to.factors)), to.factors);
}

// ---- scales and minima of a super-group

// Scales and minima, with which integers from 0 to `HIGHEST` are near numbers.
struct Lines {
    Floats scale, minimum;
};

// A group of numbers, and how much the error of each counts. A large number's counts more, since it moves a product more.
struct Weighed {
    Floats x[GROUP], weights[GROUP];                // x − `least`
    Floats least = {}, range, w = {}, wx = {}, wxx = {}; // weighted sums of 1, x and x²

    explicit Weighed(const Floats *numbers) {
        Floats most = numbers[0], squares = {};
        for (long i = 0; i < GROUP; ++i) {
            least = smaller(least, numbers[i]);
            most = larger(most, numbers[i]);
            squares = multiply_add(numbers[i], numbers[i], squares);
        }
        range = most - least;
        Floats usual = squares / all(GROUP);
        for (long lane = 0; lane < LANES; ++lane) usual[lane] = std::sqrt(usual[lane]);
        for (long i = 0; i < GROUP; ++i) {
            x[i] = numbers[i] - least;
            weights[i] = usual + size_of(numbers[i]);
            const Floats weighted = weights[i] * x[i];
            w = w + weights[i];
            wx = wx + weighted;
            wxx = multiply_add(weighted, x[i], wxx);
        }
    }
};

// Lines by weighted least squares, and what they lose: the weighted sums of the squares of their errors.
struct Fit {
    Lines lines;
    Floats lost;
};

// The lines for integers, of which whole(x) gives one. A minimum is at least 0: it is what is taken away.
template <class F> Fit fitted(const Weighed &of, F whole) {
    Floats q = {}, qq = {}, qx = {}; // weighted sums of q, q² and q · x
    for (long i = 0; i < GROUP; ++i) {
        const Floats integer = whole(of.x[i]), weighted = of.weights[i] * integer;
        q = q + weighted;
        qq = multiply_add(weighted, integer, qq);
        qx = multiply_add(weighted, of.x[i], qx);
    }
    const Floats per = inverse(of.w * qq - q * q);
    Floats scale = (of.w * qx - of.wx * q) * per, below = (q * qx - qq * of.wx) * per; // below `least`
    const Ints is_above = below < of.least;
    scale = is_above ? multiply_add(of.least, q, qx) * inverse(qq) : scale;
    below = is_above ? of.least : below;
    const Floats lost = scale * (scale * qq - all(2) * (below * q + qx)) + below * (below * of.w + all(2) * of.wx) + of.wxx;
    return {{scale, below - of.least}, lost};
}

// The best lines for a group of numbers. Candidates divide the range of the numbers into a little more or fewer steps than
// `HIGHEST`; each is bettered by weighted least squares for the integers that it gives, and the best of them a few times more.
template <int HIGHEST> Lines best_lines(const Floats *numbers) {
    constexpr long CANDIDATES = 9, BETTERED = 2;
    const Weighed of(numbers);
    const Ints is_flat = of.range < all(TINY);
    const Floats per = inverse(is_flat ? Floats{} : of.range);
    Lines best{of.range / all(HIGHEST), -of.least};
    Floats fewest = all(INF);
    for (long k = 0; k < CANDIDATES; ++k) {
        const Floats by = all(HIGHEST - 2.4f + 0.4f * static_cast<float>(k)) * per;
        const Fit fit = fitted(of, [&](Floats x) { return smaller(whole_product(x, by), all(HIGHEST)); });
        const Ints is_better = (fit.lines.scale > Floats{}) & (fit.lost < fewest);
        fewest = is_better ? fit.lost : fewest;
        best.scale = is_better ? fit.lines.scale : best.scale;
        best.minimum = is_better ? fit.lines.minimum : best.minimum;
    }
    for (long k = 0; k < BETTERED; ++k) {
        const Floats by = inverse(best.scale), beyond = best.minimum + of.least;
        const Lines lines = fitted(of, [&](Floats x) { return within(whole_product(x + beyond, by), 0, HIGHEST); }).lines;
        const Ints is_line = lines.scale > Floats{};
        best.scale = is_line ? lines.scale : best.scale;
        best.minimum = is_line ? lines.minimum : best.minimum;
    }
    return {is_flat ? Floats{} : best.scale, is_flat ? -of.least : best.minimum};
}

// Bytes of 6 bits for the scales or minima of groups, and their factors.
inline Floats shared_factors(const Floats *numbers, long groups, Ints *bytes, uint16_t *factors) {
    Floats most = {};
    for (long g = 0; g < groups; ++g) most = larger(most, numbers[g]);
    const Floats step = as_small(most / all(63), factors), by = inverse(step);
    for (long g = 0; g < groups; ++g) bytes[g] = rounded(within(numbers[g] * by, 0, 63));
    return step;
}

inline Floats floats_of(Ints whole) { return __builtin_convertvector(whole, Floats); }

// 4 bits in up to PER_SUPER groups, each with a scale and a minimum of 6 bits.
inline void round_to_super_four(const LaneFloats &from, long groups, LaneNumbers &to) {
    constexpr int HIGHEST = 15;
    Floats scales[PER_SUPER], minima[PER_SUPER];
    for (long g = 0; g < groups; ++g) {
        const Lines lines = best_lines<HIGHEST>(from.x + g * GROUP);
        scales[g] = lines.scale, minima[g] = lines.minimum;
    }
    const Floats scale = shared_factors(scales, groups, to.scales, to.factors);
    const Floats minimum = shared_factors(minima, groups, to.minima, to.least_factors);
    for (long g = 0; g < groups; ++g) {
        const Floats by = inverse(scale * floats_of(to.scales[g])), least = minimum * floats_of(to.minima[g]);
        for (long i = g * GROUP; i < (g + 1) * GROUP; ++i) to.whole[i] = rounded(within((from.x[i] + least) * by, 0, HIGHEST));
    }
    as_small(from.marked(scale), to.factors);
}

// The best scales for halves of a group, of numbers that are near integers from −32 to 31, by weighted least squares.
inline Floats best_scales(const Floats *numbers) {
    constexpr long HALF = GROUP / 2;
    Floats most = {};
    for (long i = 0; i < HALF; ++i) most = size_of(numbers[i]) > size_of(most) ? numbers[i] : most;
    const Ints is_zero = size_of(most) < all(TINY);
    const Floats per = inverse(is_zero ? Floats{} : most);
    Floats best = {}, gained = all(-1);
    for (long k = -4; k <= 4; ++k) { // −32 stands for the largest, whatever its sign
        const Floats by = all(-(32.0f + 0.2f * static_cast<float>(k))) * per;
        Floats qx = {}, qq = {};
        for (long i = 0; i < HALF; ++i) {
            const Floats x = numbers[i], q = within(whole_product(x, by), -32, 31), weighted = x * x * q;
            qx = multiply_add(weighted, x, qx);
            qq = multiply_add(weighted, q, qq);
        }
        const Floats scale = qx * inverse(qq), gain = qx * scale;
        const Ints is_better = gain > gained;
        gained = is_better ? gain : gained;
        best = is_better ? scale : best;
    }
    return best;
}

// 6 bits in up to PER_SUPER groups, whose halves have a scale of 8 bits each.
inline void round_to_super_six(const LaneFloats &from, long groups, LaneNumbers &to) {
    constexpr long HALF = GROUP / 2;
    const long halves = 2 * groups;
    Floats scales[2 * PER_SUPER], most = {};
    for (long h = 0; h < halves; ++h) {
        scales[h] = best_scales(from.x + h * HALF);
        most = larger(most, size_of(scales[h]));
    }
    const Floats factor = as_small(most / all(127), to.factors), by = inverse(factor);
    for (long h = 0; h < halves; ++h) {
        to.scales[h] = rounded(within(scales[h] * by, -127, 127));
        const Floats per = inverse(factor * floats_of(to.scales[h]));
        for (long i = h * HALF; i < (h + 1) * HALF; ++i) to.whole[i] = rounded(within(from.x[i] * per, -32, 31)) + 32;
    }
    as_small(from.marked(factor), to.factors);
}

// Round up to a super-group of numbers to a kind that weights are rounded to here.
template <class W> void round_to(const LaneFloats &from, long groups, LaneNumbers &to) {
    if constexpr (std::is_same_v<W, SuperFour>) round_to_super_four(from, groups, to);
    else if constexpr (std::is_same_v<W, SuperSix>) round_to_super_six(from, groups, to);
    else round_to_eight(from, to); // `Eight`; no others are asked for
}

} // namespace
#endif
