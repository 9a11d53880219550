#pragma once

// What encoder and decoder have in common: T5's norm, and the inner half of its feed-forward part.

#include "elementwise.h"
#include "products.h"

namespace {

// x = row / sqrt(mean of squares + epsilon) · weight · scale
inline void normalise(const float *row, long width, const float *weight, float epsilon, float scale, float *x) {
    Floats squares = {};
    long i = 0;
    for (; i + LANES <= width; i += LANES) squares = squares + load(row + i) * load(row + i);
    float sum = sum_of(squares);
    for (; i < width; ++i) sum += row[i] * row[i];
    const float factor = 1.0f / std::sqrt(sum / width + epsilon);
    for (long j = 0; j < width; ++j) x[j] = row[j] * factor * weight[j] * scale;
}

// One panel of act(x · wi), or of act(x · wi_0) · (x · wi_1) where it is gated: there the two panels follow one another.
// `sums` has room for rows · PANEL numbers.
template <class E>
void feed_panel(const float *x, long x_row, long rows, const Word *panels, long units, bool gated, bool is_gelu, float *sums,
                float *fed, long fed_row) {
    product<E>(x, x_row, rows, panels, PANEL, units, fed, fed_row);
    if (gated) product<E>(x, x_row, rows, panels + units * PANEL, PANEL, units, sums, PANEL);
    for (long r = 0; r < rows; ++r)
        for (long j = 0; j < PANEL; j += LANES) {
            float *to = fed + r * fed_row + j;
            const Floats value = is_gelu ? gelu(load(to)) : relu(load(to));
            store(to, gated ? value * load(sums + r * PANEL + j) : value);
        }
}

} // namespace
