#pragma once

// Products of rows and panels.

#include "numbers.h"

namespace {

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

using Tile = void (*)(const float *, long, const Word *, long, long, float *, long, bool);

template <class E> Tile tile_of(long rows) {
    static constexpr Tile tiles[] = {
        tile<E, 1>, tile<E, 2>, tile<E, 3>, tile<E, 4>, tile<E, 5>, tile<E, 6>,
#if defined(__AVX512F__) || (defined(__aarch64__) && !defined(__AVX2__))
        tile<E, 7>, tile<E, 8>, tile<E, 9>, tile<E, 10>, tile<E, 11>, tile<E, 12>,
#endif
    };
    static_assert(sizeof(tiles) / sizeof(Tile) == TILE_ROWS, "a tile for every number of rows");
    return tiles[rows - 1];
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
            tile_of<E>(height)(x + row * x_row + from * E::NUMBERS, x_row, panel + from * stride, stride, count, out + row * out_row,
                               out_row, from > 0);
            row += height;
        }
    }
}

} // namespace
