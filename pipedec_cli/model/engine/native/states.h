#pragma once

// The states of the rows of a call, their norms, and their products with matrices.
//
// The sums of a row are always taken in the same order. So its results do not depend on other rows or on the number of
// threads.

#include <numeric>

#include "model.h"
#include "team.h"

namespace {

// Rows in the form that products take.
struct Prepared {
    Buffer<float> x;
    Buffer<Word> words;
};

// Buffers of one thread.
struct Scratch {
    Prepared own;
    Buffer<float> line, sums, more, scores;
    Buffer<Word> words;
};

// E: the kind of numbers in matrices.
template <class E> class States {
  public:
    // `piece`: the most rows that one piece of work multiplies with a panel.
    States(const Model &model, long rows, long piece, int threads)
        : m(model), team(threads), n(rows), pieces((rows + piece - 1) / piece), few(rows <= FEW), inner(m.heads * m.head_width),
          inner_kv(m.key_heads * m.head_width), x_row(round_up(m.width, PANEL) + LANES),
          qkv_row(round_up(inner + 2 * inner_kv, PANEL) + LANES), attended_row(inner + LANES),
          fed_row(round_up(m.feed_width, PANEL) + LANES),
          words_row(round_up(given_words<E>(std::max({m.width, inner, m.feed_width})), LANES) + LANES), h(n * x_row), scratch(threads) {
        for (auto &s : scratch) {
            if (few) reserve(s.own);
            s.line.resize(x_row);
        }
        if (!few) reserve(common);
    }

  protected:
    using Given = typename E::Given;
    struct Rows { // rows to be multiplied
        const Given *x;
        long count, row;
    };
    static constexpr bool AS_THEY_ARE = std::is_same_v<Given, float>;
    static constexpr long FEW = 16; // so few rows each thread prepares for itself, which takes less time than waiting

    void reserve(Prepared &to) const {
        to.x.resize(AS_THEY_ARE ? n * x_row : 0);
        to.words.resize(AS_THEY_ARE ? 0 : n * words_row);
    }

    // h[row] = the token's embedding. Without rows of embeddings it is a column of the table.
    void embed(long row, int64_t token) {
        const auto scale = static_cast<float>(m.embedding_scale);
        float *to = h.data() + row * x_row;
        if (m.embedding) {
            const long first = token * m.width;
            for (long i = 0; i < m.width; ++i) to[i] = scale * (m.weights == FLOAT32 ? Float32::get(m.embedding, first + i) : BFloat16::get(m.embedding, first + i));
            return;
        }
        const Place place = place_of(m.table, token / PANEL);
        column<E>(place.kind, place.panel, m.width, token % PANEL, to);
        for (long i = 0; i < m.width; ++i) to[i] *= scale;
    }

    // 1 / sqrt(mean of squares + epsilon)
    float normalising(const float *from, long width) const {
        Floats squares = {};
        long i = 0;
        for (; i + LANES <= width; i += LANES) squares = squares + load(from + i) * load(from + i);
        float sum = sum_of(squares);
        for (; i < width; ++i) sum += from[i] * from[i];
        return 1.0f / std::sqrt(sum / width + static_cast<float>(m.epsilon));
    }

    // x = h / sqrt(mean of squares + epsilon) · weight · scale; without a weight x = h
    void normalise(long row, const float *weight, float scale, float *x) const {
        const float *from = h.data() + row * x_row;
        if (!weight) return void(std::copy_n(from, m.width, x));
        const float factor = normalising(from, m.width);
        for (long j = 0; j < m.width; ++j) x[j] = from[j] * factor * weight[j] * scale;
    }

    // Call work(r) for the first `count` rows.
    template <class F> void each_row(long count, F work) {
        constexpr long TOGETHER = 16;
        if (few)
            for (long r = 0; r < count; ++r) work(r);
        else
            team.share((count + TOGETHER - 1) / TOGETHER, [&](long i) {
                for (long r = i * TOGETHER; r < std::min(count, (i + 1) * TOGETHER); ++r) work(r);
            });
    }

    // The norm of the first rows of h, in the form that products take.
    Rows normalised(Scratch &s, long count, const float *weight, float scale = 1.0f) {
        Prepared &to = few ? s.own : common;
        each_row(count, [&](long r) {
            if constexpr (AS_THEY_ARE) normalise(r, weight, scale, to.x.data() + r * x_row);
            else {
                normalise(r, weight, scale, s.line.data());
                prepare(to, r, s.line.data(), m.width);
            }
        });
        if constexpr (AS_THEY_ARE) return {to.x.data(), count, x_row};
        else return {to.words.data(), count, words_row};
    }

    // The first rows of y, in the form that products take.
    template <class N> Rows given(Scratch &s, const Buffer<N> &y, long count, long y_row, long width) {
        if constexpr (std::is_same_v<N, Given>) return {y.data(), count, y_row};
        else if constexpr (sizeof(N) < sizeof(float) && E::NUMBERS == 2) { // bfloat16 already
            return {reinterpret_cast<const Word *>(y.data()), count, y_row / 2};
        } else {
            Prepared &to = few ? s.own : common;
            each_row(count, [&](long r) { prepare(to, r, y.data() + r * y_row, width); });
            return {to.words.data(), count, words_row};
        }
    }

    template <class N> void prepare(Prepared &to, long r, const N *x, long width) const {
        E::give(x, width, units<E>(width), to.words.data() + r * words_row);
    }

    // Call work(first row, rows, panel) for each panel and each piece of rows. A panel serves all pieces while it is in the
    // cache. If panels are small, a few rows are finished at a time.
    template <class F> void panels(long outputs, const Rows &x, F work) {
        team.share(round_up(outputs, PANEL) / PANEL * pieces, [&](long i) {
            const long piece = i % pieces, end = (piece + 1) * x.count / pieces, together = AS_THEY_ARE ? n : BLOCK;
            for (long first = piece * x.count / pieces; first < end; first += together) work(first, std::min(together, end - first), i / pieces);
        });
    }

    // out[rows][PANEL] = rows · one panel of a matrix
    void multiply(const Rows &x, long first, long rows, const Matrix &matrix, long panel, long inputs, float *out, long out_row) const {
        multiply(x, first, rows, place_of(matrix, panel), inputs, out, out_row);
    }
    void multiply(const Rows &x, long first, long rows, const Place &place, long inputs, float *out, long out_row) const {
        matrix_product<E>(m.tiles, x.x + first * x.row, x.row, rows, place.kind, place.panel, inputs, out, out_row);
    }

    // qkv[rows][outputs] = x · matrix, plus the `bias` if there is one
    void project(const Rows &x, const Matrix &matrix, long outputs, const float *bias = nullptr) {
        panels(outputs, x, [&](long first, long count, long p) {
            float *out = qkv.data() + first * qkv_row + p * PANEL;
            multiply(x, first, count, matrix, p, m.width, out, qkv_row);
            for (long r = 0; bias && r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) store(out + r * qkv_row + j, load(out + r * qkv_row + j) + load(bias + p * PANEL + j));
        });
    }

    // h += y · matrix · residual for the first rows; with a `norm`, h += the norm of the product · residual.
    template <class N>
    void add_product(Scratch &s, const Buffer<N> &y, long count, long y_row, const Matrix &matrix, long inputs, const float *norm = nullptr) {
        const Rows x = given(s, y, count, y_row, inputs);
        const auto residual = static_cast<float>(m.residual);
        if (norm) return add_normalised(x, matrix, inputs, norm, residual);
        panels(m.width, x, [&](long first, long count, long p) {
            float *sums = s.sums.data();
            multiply(x, first, count, matrix, p, inputs, sums, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    float *to = h.data() + (first + r) * x_row + p * PANEL + j;
                    store(to, load(to) + all(residual) * load(sums + r * PANEL + j));
                }
        });
    }

    void add_normalised(const Rows &x, const Matrix &matrix, long inputs, const float *norm, float residual) {
        panels(m.width, x, [&](long first, long count, long p) {
            multiply(x, first, count, matrix, p, inputs, made.data() + first * x_row + p * PANEL, x_row);
        });
        team.share(x.count, [&](long r) {
            const float *from = made.data() + r * x_row, factor = normalising(from, m.width) * residual;
            float *to = h.data() + r * x_row;
            for (long j = 0; j < m.width; ++j) to[j] += from[j] * factor * norm[j];
        });
    }

    const Model &m;
    Team team;
    const long n, pieces;
    const bool few;
    const long inner, inner_kv; // numbers of all heads' queries, and of all heads' keys
    // Numbers from one row to the next. Multiples of 4 KB would put all rows into the same places of a cache.
    const long x_row, qkv_row, attended_row, fed_row, words_row;
    Buffer<float> h, qkv, made; // states; queries, keys and values; products before their norm
    Prepared common;            // many rows, prepared by all threads
    std::vector<Scratch> scratch;
};

constexpr long PIECE = 32 * TILE_ROWS; // the most rows of sources that one piece of work multiplies with a panel

} // namespace
