#pragma once

// What is done element by element.

#include "numbers.h"

namespace {

// e^x for x ≤ 0, to about two units in the last place; 0 below the smallest normal number, -∞ included.
inline Floats exponential(Floats x) {
    const Ints tiny = x < all(-87.0f);
    const Floats magic = all(12582912.0f); // 1.5 · 2^23: adding it rounds to an integer in the low bits
    const Floats shifted = x * all(1.44269504f) + magic;
    const Floats n = shifted - magic;
    Floats r = x - n * all(0.693359375f); // ln 2 in two parts
    r = r + n * all(2.12194440e-4f);
    Floats p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.0f);
    const Ints scale = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic)) << 23;
    return as_floats((reinterpret_cast<Ints>(p) + scale) & ~tiny);
}

inline Floats relu(Floats x) { return as_floats(reinterpret_cast<Ints>(x) & (x > Floats{})); }

// T5 v1.1's GELU: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), with tanh u = ±(1 − e^−2|u|) / (1 + e^−2|u|).
inline Floats gelu(Floats x) {
    const Floats u = all(0.79788456f) * (x + all(0.044715f) * x * x * x);
    const Ints sign = reinterpret_cast<Ints>(u) & all_words(0x80000000u);
    const Floats size = as_floats(reinterpret_cast<Ints>(u) ^ sign);
    const Floats e = exponential(all(-2.0f) * size);
    const Floats tanh = as_floats(reinterpret_cast<Ints>((all(1.0f) - e) / (all(1.0f) + e)) ^ sign);
    return all(0.5f) * x * (all(1.0f) + tanh);
}

inline float sum_of(Floats v) {
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += v[i];
    return sum;
}

// Scores to e^(score − largest), in place; returns their sum. `padded` is a multiple of PANEL.
float exponentials(float *scores, long padded) {
    Floats most = all(-INF);
    for (long i = 0; i < padded; i += LANES) {
        const Floats row = load(scores + i);
        const Ints larger = row > most;
        most = as_floats((reinterpret_cast<Ints>(row) & larger) | (reinterpret_cast<Ints>(most) & ~larger));
    }
    float largest = most[0];
    for (int i = 1; i < LANES; ++i) largest = std::max(largest, most[i]);
    Floats sums = {};
    for (long i = 0; i < padded; i += LANES) {
        const Floats e = exponential(load(scores + i) - all(largest));
        store(scores + i, e);
        sums = sums + e;
    }
    return sum_of(sums);
}

// The share of the largest score in the softmax over all of them: e^0 / Σ e^(score − largest).
inline float largest_share(const float *scores, long count) {
    const float largest = *std::max_element(scores, scores + count);
    Floats sums = {};
    long i = 0;
    for (; i + LANES <= count; i += LANES) sums = sums + exponential(load(scores + i) - all(largest));
    float sum = sum_of(sums);
    for (; i < count; ++i) sum += std::exp(scores[i] - largest);
    return 1.0f / sum;
}

} // namespace
