#pragma once

// What encoder and decoder have in common: a T5's sizes and weights, and the parts of a layer over a number of rows.
//
// A row's sums are always taken in the same order, whichever rows stand beside it and however many threads there are:
// what is computed for it does not depend on them.

#include <vector>

#include "team.h"
#include "vectors.h"

extern "C" { // what Python hands over, mirrored in library.py

struct Layer { // an encoder's has no cross_… parts
    const float *self_norm, *cross_norm, *feed_norm;
    const float *bias; // decoder: [heads][reach + 1], by distance up to reach − 1; column `reach` is −∞
                       // encoder: [heads][2 · reach + 1], by place of the key − place of the query
    const Word *qkv, *self_out, *cross_q, *cross_kv, *cross_out, *feed_in, *feed_out; // panels
};

struct Model {
    int64_t layers, heads, head_width, width, feed_width, vocabulary, reach;
    int64_t bfloat16, gated, gelu; // flags
    double epsilon, scale;
    const void *embedding; // [vocabulary][width] in the weights' own dtype
    const float *final_norm;
    const Word *head; // the decoder's
    const Layer *layer;
};

struct Cache {
    int64_t sequences, room, source_room; // columns; multiples of PANEL
    Word *keys, *values;                  // [layers][sequences][heads][room / PANEL panels], [room / NUMBERS][padded width]
    Word *source_keys, *source_values;
    int32_t *subsequence, *time;  // [sequences][room]
    const int64_t *source_length; // [sequences]
};

// One row of a call; rows are ordered by sequence, and within a sequence by column.
struct Row {
    int64_t token, sequence, column, subsequence, time;
};
}

namespace {

// Buffers of one thread.
struct Scratch {
    std::vector<float> x, sums, scores;
};

// One head's cache: keys are panels with a token to each column, values rows of whole panels.
struct Head {
    Word *keys, *values;
};

template <class E> class Block {
  public:
    // `piece`: the most rows that a panel is multiplied with in one piece of work.
    Block(const Model &model, long rows, long piece, int threads)
        : m(model), team(threads), n(rows), pieces((rows + piece - 1) / piece), inner(m.heads * m.head_width),
          head_units(m.head_width / E::NUMBERS), head_room(round_up(m.head_width, PANEL)),
          x_row(round_up(m.width, PANEL) + LANES), qkv_row(round_up(3 * inner, PANEL) + LANES), attended_row(inner + LANES),
          fed_row(round_up(m.feed_width, PANEL) + LANES), h(n * x_row), qkv(n * qkv_row), scratch(threads) {}

    // Keep the keys and values of a source for every layer; the rows are the encoder's last states, [length][width].
    void keep_source(const Cache &cache, long sequence, const float *states) {
        for (long r = 0; r < n; ++r) std::copy_n(states + r * m.width, m.width, h.data() + r * x_row);
        team.run([&](int) {
            for (long l = 0; l < m.layers; ++l) {
                project(h.data(), m.layer[l].cross_kv, 2 * inner);
                team.share(m.heads, [&](long head) {
                    const long place = (l * cache.sequences + sequence) * m.heads + head;
                    const Head mine = head_at(cache.source_keys, cache.source_values, place, cache.source_room);
                    for (long c = 0; c < n; ++c) remember(mine, c, qkv.data() + c * qkv_row + head * m.head_width);
                });
            }
        });
    }

  protected:
    // Room for attention of up to `queries` rows at once over up to `longest` columns, and for the layers' products.
    void make_room(long queries, long longest) {
        attended.resize(n * attended_row);
        fed.resize(n * fed_row);
        score_row = round_up(longest, PANEL) + LANES;
        for (auto &s : scratch) {
            s.sums.resize(std::max((n + pieces - 1) / pieces * PANEL, queries * head_room));
            s.scores.resize(queries * score_row);
        }
    }

    static long units(long numbers) { return (numbers + E::NUMBERS - 1) / E::NUMBERS; }

    void embed(long row, int64_t token) {
        for (long i = 0; i < m.width; ++i) h[row * x_row + i] = E::get(m.embedding, token * m.width + i);
    }

    // x = h / sqrt(mean of squares + epsilon) · weight · scale
    void normalise(long row, const float *weight, float scale, float *x) const {
        const float *from = h.data() + row * x_row;
        Floats squares = {};
        long i = 0;
        for (; i + LANES <= m.width; i += LANES) squares = squares + load(from + i) * load(from + i);
        float sum = sum_of(squares);
        for (; i < m.width; ++i) sum += from[i] * from[i];
        const float factor = 1.0f / std::sqrt(sum / m.width + static_cast<float>(m.epsilon));
        for (long j = 0; j < m.width; ++j) x[j] = from[j] * factor * weight[j] * scale;
    }

    // work(first row, rows, panel) for every panel and every piece of rows; a panel serves all pieces while it is near.
    template <class F> void panels(long outputs, F work) {
        team.share(round_up(outputs, PANEL) / PANEL * pieces, [&](long i) {
            const long piece = i % pieces, first = piece * n / pieces;
            work(first, (piece + 1) * n / pieces - first, i / pieces);
        });
    }

    // out[rows][PANEL] = x · one panel of a matrix
    static void multiply(const float *x, long x_row, long rows, const Word *matrix, long panel, long inputs, float *out, long out_row) {
        product<E>(x, x_row, rows, matrix + panel * units(inputs) * PANEL, PANEL, units(inputs), out, out_row);
    }

    // qkv[rows][outputs] = x · matrix
    void project(const float *x, const Word *matrix, long outputs) {
        panels(outputs, [&](long first, long count, long p) {
            multiply(x + first * x_row, x_row, count, matrix, p, m.width, qkv.data() + first * qkv_row + p * PANEL, qkv_row);
        });
    }

    // h += y · matrix
    void add_product(Scratch &s, const std::vector<float> &y, long y_row, const Word *matrix, long inputs) {
        panels(m.width, [&](long first, long count, long p) {
            float *sums = s.sums.data();
            multiply(y.data() + first * y_row, y_row, count, matrix, p, inputs, sums, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    float *to = h.data() + (first + r) * x_row + p * PANEL + j;
                    store(to, load(to) + load(sums + r * PANEL + j));
                }
        });
    }

    // h += act(x · wi) · wo, or act(x · wi_0) · (x · wi_1) · wo where it is gated: there panels of the two take turns.
    void feed_forward(Scratch &s, const float *x, const Layer &layer) {
        panels(m.feed_width, [&](long first, long count, long p) {
            const float *from = x + first * x_row;
            float *to = fed.data() + first * fed_row + p * PANEL, *sums = s.sums.data();
            multiply(from, x_row, count, layer.feed_in, p * (1 + m.gated), m.width, to, fed_row);
            if (m.gated) multiply(from, x_row, count, layer.feed_in, 2 * p + 1, m.width, sums, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    float *at = to + r * fed_row + j;
                    const Floats value = m.gelu ? gelu(load(at)) : relu(load(at));
                    store(at, m.gated ? value * load(sums + r * PANEL + j) : value);
                }
        });
        add_product(s, fed, fed_row, layer.feed_out, m.feed_width);
    }

    // Attention of neighbouring rows over the first columns of a head's cache; `bias(r, scores)` adds to a row's scores.
    template <class F> void attend(Scratch &s, long first, long count, long head, long length, Head cache, F bias) {
        const long padded = round_up(length, PANEL);
        const float *query = qkv.data() + first * qkv_row + head * m.head_width;
        float *scores = s.scores.data(), *sums = s.sums.data();
        for (long c = 0; c < padded; c += PANEL)
            product<E>(query, qkv_row, count, cache.keys + c * head_units, PANEL, head_units, scores + c, score_row);
        for (long r = 0; r < count; ++r) {
            float *row = scores + r * score_row;
            bias(r, row);
            std::fill(row + length, row + padded, -INF);
            row[score_row - 1] = exponentials(row, padded); // their sum stands behind them
        }
        for (long j = 0; j < head_room; j += PANEL)
            product<E>(scores, score_row, count, cache.values + j, head_room, units(length), sums + j, head_room);
        for (long r = 0; r < count; ++r) {
            const float factor = 1.0f / scores[r * score_row + score_row - 1];
            float *to = attended.data() + (first + r) * attended_row + head * m.head_width;
            for (long j = 0; j < m.head_width; ++j) to[j] = sums[r * head_room + j] * factor;
        }
    }

    // The cache of one head in buffers with `room` columns for each.
    Head head_at(Word *keys, Word *values, long place, long room) const {
        return {keys + place * room * head_units, values + place * (room / E::NUMBERS) * head_room};
    }

    // Put one token's key, and its value `inner` numbers behind it, into its column.
    void remember(Head cache, long column, const float *key) const {
        Word *panel = cache.keys + column / PANEL * PANEL * head_units + column % PANEL;
        for (long u = 0; u < head_units; ++u)
            panel[u * PANEL] = E::pack(key[u * E::NUMBERS], key[u * E::NUMBERS + E::NUMBERS - 1]);
        Word *row = cache.values + column / E::NUMBERS * head_room;
        for (long j = 0; j < m.head_width; ++j) {
            if constexpr (E::NUMBERS == 1) {
                row[j] = bits_as<Word>(key[inner + j]);
            } else { // neighbouring columns share a word
                const int shift = column % 2 * 16;
                row[j] = (row[j] & ~(0xffffu << shift)) | BFloat16::round(key[inner + j]) << shift;
            }
        }
    }

    const Model &m;
    Team team;
    const long n, pieces, inner, head_units, head_room;
    // Numbers from one row to the next; not multiples of 4 KB, which would put all rows into the same places of a cache.
    const long x_row, qkv_row, attended_row, fed_row;
    long score_row = 0;
    std::vector<float> h, qkv, attended, fed;
    std::vector<Scratch> scratch;
};

constexpr long PIECE = 32 * TILE_ROWS; // rows of sources that a piece of work computes a panel for, at most

} // namespace
