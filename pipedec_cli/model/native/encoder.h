#pragma once

// The encoder of a T5 in float32, from token ids to the last states, for several sources at once.
//
// It is bound by arithmetic: a tile of rows × one panel is kept in registers, and sources stand one behind the other, so
// that nothing is computed for padding. A state does not depend on the sources beside its own.

#include <vector>

#include "parts.h"
#include "team.h"

// ---- what Python hands over (mirrored in library.py) -------------------------------------------------------------

extern "C" {

struct EncoderLayer {
    const float *self_norm, *feed_norm;
    const float *bias; // [heads][2 · reach + 1]: by place of the key − place of the query, from −reach to reach
    const Word *qkv, *self_out, *feed_in, *feed_out; // panels
};

struct Encoder {
    int64_t layers, heads, head_width, width, feed_width, reach;
    int64_t gated, gelu; // flags
    double epsilon;
    const float *embedding; // [vocabulary][width]
    const float *final_norm;
    const EncoderLayer *layer;
};
}

namespace {

class Encoding {
  public:
    Encoding(const Encoder &encoder, long count, const int64_t *lengths, const int64_t *tokens, int threads)
        : m(encoder), tokens(tokens), team(threads), inner(m.heads * m.head_width), head_room(round_up(m.head_width, PANEL)),
          h_row(round_up(m.width, PANEL) + LANES), qkv_row(round_up(3 * inner, PANEL) + LANES), x_row(m.width + LANES),
          attended_row(inner + LANES), fed_row(round_up(m.feed_width, PANEL) + LANES) {
        for (long s = 0; s < count; ++s) {
            sources.push_back({n, lengths[s], columns});
            for (long from = 0; from < lengths[s]; from += QUERIES)
                blocks.push_back({s, from, std::min(QUERIES, lengths[s] - from)});
            n += lengths[s];
            columns += round_up(lengths[s], PANEL);
            longest = std::max<long>(longest, lengths[s]);
        }
        pieces = (n + PIECE - 1) / PIECE;
        h.resize(n * h_row);
        x.resize(n * x_row);
        qkv.resize(n * qkv_row);
        attended.resize(n * attended_row);
        fed.resize(n * fed_row);
        keys.resize(m.heads * columns * m.head_width);
        values.resize(m.heads * columns * head_room);
        bias_row = 2 * longest - 1 + PANEL;
        bias.resize(m.heads * bias_row);
        score_row = round_up(longest, PANEL) + LANES;
        scratch.resize(threads);
        for (auto &s : scratch) {
            s.sums.resize(std::max((n + pieces - 1) / pieces * PANEL, QUERIES * head_room));
            s.scores.resize(QUERIES * score_row);
        }
    }

    // states[source] = [padded length][width]; what is beyond a source's own length is left as it is.
    void run(float *states, long padded) {
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            rows([&](long r) {
                for (long i = 0; i < m.width; ++i) h[r * h_row + i] = m.embedding[tokens[r] * m.width + i];
            });
            for (long l = 0; l < m.layers; ++l) {
                const EncoderLayer &layer = m.layer[l];
                if (l == 0 || layer.bias != m.layer[l - 1].bias) widen_bias(layer.bias);
                normalise_all(layer.self_norm);
                project(layer.qkv);
                lay_keys_and_values_out();
                attend_all(s);
                add_product(s, attended, attended_row, layer.self_out, inner);
                normalise_all(layer.feed_norm);
                feed_inward(s, layer.feed_in);
                add_product(s, fed, fed_row, layer.feed_out, m.feed_width);
            }
            team.share(static_cast<long>(sources.size()), [&](long i) {
                for (long c = 0; c < sources[i].length; ++c)
                    normalise(h.data() + (sources[i].first + c) * h_row, m.width, m.final_norm, epsilon(), 1.0f,
                              states + (i * padded + c) * m.width);
            });
        });
    }

  private:
    static constexpr long QUERIES = 4 * TILE_ROWS; // whose scores stay in the second cache
    static constexpr long PIECE = 32 * TILE_ROWS;  // rows that a piece of work computes a panel for, at most

    struct Source {
        long first, length, column;
    };
    struct Block { // neighbouring queries of a source
        long source, from, count;
    };
    struct Scratch {
        std::vector<float> sums, scores;
    };

    float epsilon() const { return static_cast<float>(m.epsilon); }

    // work(first row, rows, panel) for every panel and every piece of rows; a panel serves all pieces while it is near.
    template <class F> void panels(long outputs, F work) {
        team.share(round_up(outputs, PANEL) / PANEL * pieces, [&](long i) {
            const long piece = i % pieces, first = piece * n / pieces;
            work(first, (piece + 1) * n / pieces - first, i / pieces);
        });
    }

    template <class F> void rows(F work) {
        constexpr long TOGETHER = 16;
        team.share((n + TOGETHER - 1) / TOGETHER, [&](long i) {
            for (long r = i * TOGETHER; r < std::min(n, (i + 1) * TOGETHER); ++r) work(r);
        });
    }

    // The bias of every distance that occurs, so that a query's keys find theirs side by side.
    void widen_bias(const float *table) {
        team.share(m.heads, [&](long head) {
            for (long i = 0; i < 2 * longest - 1; ++i) {
                const long distance = std::max<long>(-m.reach, std::min<long>(m.reach, i - (longest - 1)));
                bias[head * bias_row + i] = table[head * (2 * m.reach + 1) + m.reach + distance];
            }
        });
    }

    void normalise_all(const float *weight) {
        rows([&](long r) {
            normalise(h.data() + r * h_row, m.width, weight, epsilon(), 1.0f, x.data() + r * x_row);
        });
    }

    void project(const Word *matrix) {
        panels(3 * inner, [&](long first, long count, long p) {
            product<Float32>(x.data() + first * x_row, x_row, count, matrix + p * m.width * PANEL, PANEL, m.width,
                             qkv.data() + first * qkv_row + p * PANEL, qkv_row);
        });
    }

    // h += y · matrix
    void add_product(Scratch &s, const std::vector<float> &y, long y_row, const Word *matrix, long inputs) {
        panels(m.width, [&](long first, long count, long p) {
            float *sums = s.sums.data();
            product<Float32>(y.data() + first * y_row, y_row, count, matrix + p * inputs * PANEL, PANEL, inputs, sums, PANEL);
            for (long r = 0; r < count; ++r) {
                float *to = h.data() + (first + r) * h_row + p * PANEL;
                for (long j = 0; j < PANEL; j += LANES) store(to + j, load(to + j) + load(sums + r * PANEL + j));
            }
        });
    }

    void feed_inward(Scratch &s, const Word *matrix) {
        const long size = m.width * PANEL * (1 + m.gated);
        panels(m.feed_width, [&](long first, long count, long p) {
            feed_panel<Float32>(x.data() + first * x_row, x_row, count, matrix + p * size, m.width, m.gated, m.gelu,
                                s.sums.data(), fed.data() + first * fed_row + p * PANEL, fed_row);
        });
    }

    // The first column of a head, in keys and values that lie source by source and head by head.
    long column_of(const Source &source, long head) const {
        return source.column * m.heads + head * round_up(source.length, PANEL);
    }

    // A head's keys as panels with a token to each column, its values as rows of whole panels.
    void lay_keys_and_values_out() {
        team.share(static_cast<long>(sources.size()) * m.heads, [&](long i) {
            const Source &source = sources[i / m.heads];
            const long head = i % m.heads, d = m.head_width;
            Word *to_keys = keys.data() + column_of(source, head) * d;
            Word *to_values = values.data() + column_of(source, head) * head_room;
            for (long c = 0; c < source.length; ++c) {
                const float *key = qkv.data() + (source.first + c) * qkv_row + inner + head * d, *value = key + inner;
                for (long j = 0; j < d; ++j) to_keys[c / PANEL * PANEL * d + j * PANEL + c % PANEL] = to_bits(key[j]);
                std::memcpy(to_values + c * head_room, value, d * sizeof(float));
            }
        });
    }

    void attend_all(Scratch &s) {
        team.share(static_cast<long>(blocks.size()) * m.heads, [&](long i) {
            const Block &block = blocks[i / m.heads];
            attend(s, sources[block.source], block, i % m.heads);
        });
    }

    void attend(Scratch &s, const Source &source, const Block &block, long head) {
        const long d = m.head_width, length = source.length, padded = round_up(length, PANEL);
        const long first = source.first + block.from;
        float *scores = s.scores.data(), *sums = s.sums.data();
        const float *queries = qkv.data() + first * qkv_row + head * d;
        const Word *head_keys = keys.data() + column_of(source, head) * d;
        const Word *head_values = values.data() + column_of(source, head) * head_room;
        float totals[QUERIES];
        for (long c = 0; c < padded; c += PANEL)
            product<Float32>(queries, qkv_row, block.count, head_keys + c * d, PANEL, d, scores + c, score_row);
        for (long r = 0; r < block.count; ++r) {
            float *row = scores + r * score_row;
            const float *by_distance = bias.data() + head * bias_row + (longest - 1) - (block.from + r);
            for (long c = 0; c < padded; c += LANES) store(row + c, load(row + c) + load(by_distance + c));
            std::fill(row + length, row + padded, -INF);
            totals[r] = exponentials(row, padded);
        }
        for (long j = 0; j < head_room; j += PANEL)
            product<Float32>(scores, score_row, block.count, head_values + j, head_room, length, sums + j, head_room);
        for (long r = 0; r < block.count; ++r) {
            float *to = attended.data() + (first + r) * attended_row + head * d;
            for (long j = 0; j < d; ++j) to[j] = sums[r * head_room + j] / totals[r];
        }
    }

    const Encoder &m;
    const int64_t *tokens;
    Team team;
    const long inner, head_room;
    // Numbers from one row to the next; not multiples of 4 KB, which would put all rows into the same places of a cache.
    const long h_row, qkv_row, x_row, attended_row, fed_row;
    long n = 0, columns = 0, longest = 0, pieces = 0, bias_row = 0, score_row = 0;
    std::vector<Source> sources;
    std::vector<Block> blocks;
    std::vector<float> h, x, qkv, attended, fed, bias;
    std::vector<Word> keys, values;
    std::vector<Scratch> scratch;
};

} // namespace
