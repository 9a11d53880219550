#pragma once

// What encoder and decoder have in common: T5's norm, and the inner half of its feed-forward part.

#include "elementwise.h"
#include "products.h"

namespace {

// x = row / sqrt(mean of squares + epsilon) · weight · scale, packed.
template <class E>
void normalise(const float *row, long width, const float *weight, float epsilon, float scale, Word *x) {
    Floats squares = {};
    long i = 0;
    for (; i + LANES <= width; i += LANES) squares = squares + load(row + i) * load(row + i);
    float sum = sum_of(squares);
    for (; i < width; ++i) sum += row[i] * row[i];
    const float factor = 1.0f / std::sqrt(sum / width + epsilon);
    float normed[PANEL];
    for (long from = 0; from < width; from += PANEL) {
        const long count = std::min(PANEL, width - from);
        for (long j = 0; j < count; ++j) normed[j] = row[from + j] * factor * weight[from + j] * scale;
        pack_row<E>(normed, count, x + from / E::NUMBERS);
    }
}

// One panel of act(x · wi), or of act(x · wi_0) · (x · wi_1) where it is gated: there the two panels follow one another.
// `sums` has room for rows · 2 · PANEL numbers.
template <class E>
void feed_panel(const Word *x, long x_row, long rows, const Word *panels, long units, bool gated, bool is_gelu, float *sums,
                Word *fed, long fed_row) {
    const long width = gated ? 2 * PANEL : PANEL;
    for (long part = 0; part <= gated; ++part)
        product<E>(x, x_row, rows, panels + part * units * PANEL, PANEL, units, sums + part * PANEL, width);
    for (long r = 0; r < rows; ++r) {
        float *row = sums + r * width;
        for (long j = 0; j < PANEL; j += LANES) {
            const Floats value = is_gelu ? gelu(load(row + j)) : relu(load(row + j));
            store(row + j, gated ? value * load(row + PANEL + j) : value);
        }
        pack_row<E>(row, PANEL, fed + r * fed_row);
    }
}

} // namespace
