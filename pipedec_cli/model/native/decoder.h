#pragma once

// One decoder call of a T5, from token ids to the most probable next token of each row.
//
// A call with few rows reads every weight once: it is bound by memory. So the weights are packed into panels that are
// read front to back, every panel serves all rows while it is in the cache, and the threads meet eight times a layer.
// With many rows it is bound by arithmetic, for which a tile of rows × one panel is kept in registers.
//
// A row's sums are always taken in the same order, whichever rows stand beside it: its answer does not depend on them.

#include <memory>
#include <vector>

#include "parts.h"
#include "team.h"

// ---- what Python hands over (mirrored in library.py) -------------------------------------------------------------

extern "C" {

struct Layer {
    const float *self_norm, *cross_norm, *feed_norm;
    const float *bias; // [heads][hidden + 1]: by distance up to hidden − 1; column `hidden` is −∞
    const Word *qkv, *self_out, *cross_q, *cross_out, *feed_in, *feed_out; // panels
};

struct Decoder {
    int64_t layers, heads, head_width, width, feed_width, vocabulary, hidden;
    int64_t bfloat16, gated, gelu; // flags
    double epsilon, scale;
    const void *embedding; // [vocabulary][width] in the weights' own dtype
    const float *final_norm;
    const Word *head;
    const Layer *layer;
};

struct Cache {
    int64_t lanes, room, source_room; // columns; multiples of PANEL
    Word *keys, *values;              // [layers][lanes][heads][room / PANEL panels], [room / NUMBERS][padded width]
    Word *source_keys, *source_values;
    int32_t *subsequence, *time; // [lanes][room]
    const int64_t *source_length; // [lanes]
};

// One row of a call; rows are ordered by lane, and within a lane by column.
struct Row {
    int64_t token, lane, column, subsequence, time;
};
}

namespace {

struct Span { // the rows of one lane
    long first, count, lane, length;
};

// Buffers of one thread.
struct Scratch {
    std::vector<float> x, sums, scores;
    std::vector<float> best_value;
    std::vector<int64_t> best;
};

template <class E> class Step {
  public:
    Step(const Decoder &decoder, const Cache &cache, long count, const Row *rows, int threads)
        : m(decoder), cache(cache), n(count), rows(rows), team(threads), inner(m.heads * m.head_width),
          head_units(m.head_width / E::NUMBERS), head_room(round_up(m.head_width, PANEL)),
          h_row(round_up(m.width, PANEL) + LANES), qkv_row(round_up(3 * inner, PANEL) + LANES),
          x_row(round_up(m.width, PANEL) + LANES), attended_row(inner + LANES),
          fed_row(round_up(m.feed_width, PANEL) + LANES) {
        for (long r = 0; r < n; ++r) {
            if (r == 0 || rows[r].lane != rows[r - 1].lane) spans.push_back({r, 0, rows[r].lane, 0});
            ++spans.back().count;
            spans.back().length = rows[r].column + 1;
            longest = std::max<long>(longest, spans.back().length);
            longest_source = std::max<long>(longest_source, cache.source_length[rows[r].lane]);
            most = std::max(most, spans.back().count);
        }
        longest = round_up(longest, PANEL);
        longest_source = round_up(longest_source, PANEL);
        h.resize(n * h_row);
        qkv.resize(n * qkv_row);
        attended.resize(n * attended_row);
        fed.resize(n * fed_row);
        pairs.resize(n * longest);
        score_row = std::max(longest, longest_source) + LANES;
        scratch.resize(threads);
        for (auto &s : scratch) {
            s.x.resize(n * x_row);
            s.sums.resize(std::max(n * PANEL, most * head_room));
            s.scores.resize(most * score_row);
            s.best.resize(n);
            s.best_value.assign(n, -INF);
        }
    }

    void run(int64_t *answers, float *logits) {
        place_rows();
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                normalise_all(s, layer.self_norm, 1.0f);
                project(s, layer.qkv, 3 * inner);
                attend_all(s, l, layer.bias);
                add_product(s, attended, attended_row, layer.self_out, units(inner));
                normalise_all(s, layer.cross_norm, 1.0f);
                project(s, layer.cross_q, inner);
                attend_all(s, l, nullptr);
                add_product(s, attended, attended_row, layer.cross_out, units(inner));
                normalise_all(s, layer.feed_norm, 1.0f);
                feed_inward(s, layer.feed_in);
                add_product(s, fed, fed_row, layer.feed_out, units(m.feed_width));
            }
            normalise_all(s, m.final_norm, static_cast<float>(m.scale));
            find_best(s, logits);
        });
        for (long r = 0; r < n; ++r) {
            float value = -INF;
            answers[r] = 0;
            for (const auto &s : scratch) // threads in any order: the lowest id wins among equals
                if (s.best_value[r] > value || (s.best_value[r] == value && s.best[r] < answers[r])) {
                    value = s.best_value[r];
                    answers[r] = s.best[r];
                }
        }
    }

  private:
    static long units(long numbers) { return (numbers + E::NUMBERS - 1) / E::NUMBERS; }

    // Embed the tokens, write down where they stand, and look up who sees whom at what distance.
    void place_rows() {
        for (long r = 0; r < n; ++r) {
            const long place = rows[r].lane * cache.room + rows[r].column;
            cache.subsequence[place] = static_cast<int32_t>(rows[r].subsequence);
            cache.time[place] = static_cast<int32_t>(rows[r].time);
            for (long i = 0; i < m.width; ++i) h[r * h_row + i] = E::get(m.embedding, rows[r].token * m.width + i);
        }
        const int32_t hidden = static_cast<int32_t>(m.hidden);
        for (const Span &span : spans)
            for (long r = span.first; r < span.first + span.count; ++r) {
                const int32_t *subsequence = cache.subsequence + span.lane * cache.room;
                const int32_t *time = cache.time + span.lane * cache.room;
                const auto i = static_cast<int32_t>(rows[r].subsequence), t = static_cast<int32_t>(rows[r].time);
                int32_t *pair = pairs.data() + r * longest;
                for (long c = 0; c < span.length; ++c) {
                    const bool sees = subsequence[c] <= i && time[c] <= t;
                    pair[c] = sees ? std::min(i + t - subsequence[c] - time[c], hidden - 1) : hidden;
                }
                std::fill(pair + span.length, pair + longest, hidden);
            }
    }

    // Every row's norm: each thread does all of them for itself, which is less work than waiting.
    void normalise_all(Scratch &s, const float *weight, float scale) {
        for (long r = 0; r < n; ++r)
            normalise(h.data() + r * h_row, m.width, weight, static_cast<float>(m.epsilon), scale, s.x.data() + r * x_row);
    }

    // qkv[rows][outputs] = x · matrix
    void project(Scratch &s, const Word *matrix, long outputs) {
        const long size = units(m.width) * PANEL;
        team.share(round_up(outputs, PANEL) / PANEL, [&](long p) {
            product<E>(s.x.data(), x_row, n, matrix + p * size, PANEL, units(m.width), qkv.data() + p * PANEL, qkv_row);
        });
    }

    // h += x · matrix
    void add_product(Scratch &s, const std::vector<float> &x, long row, const Word *matrix, long inputs) {
        team.share(round_up(m.width, PANEL) / PANEL, [&](long p) {
            float *sums = s.sums.data();
            product<E>(x.data(), row, n, matrix + p * inputs * PANEL, PANEL, inputs, sums, PANEL);
            for (long r = 0; r < n; ++r)
                for (long j = 0; j < PANEL; ++j) h[r * h_row + p * PANEL + j] += sums[r * PANEL + j];
        });
    }

    void feed_inward(Scratch &s, const Word *matrix) {
        const long size = units(m.width) * PANEL * (1 + m.gated);
        team.share(round_up(m.feed_width, PANEL) / PANEL, [&](long p) {
            feed_panel<E>(s.x.data(), x_row, n, matrix + p * size, units(m.width), m.gated, m.gelu, s.sums.data(),
                          fed.data() + p * PANEL, fed_row);
        });
    }

    // Attention of every lane's rows over its grid (with a bias) or over its source (without), head by head.
    void attend_all(Scratch &s, long layer, const float *bias) {
        team.share(static_cast<long>(spans.size()) * m.heads, [&](long i) {
            const Span &span = spans[i / m.heads];
            const long head = i % m.heads, room = bias ? cache.room : cache.source_room;
            const long place = (layer * cache.lanes + span.lane) * m.heads + head;
            Word *keys = (bias ? cache.keys : cache.source_keys) + place * room * head_units;
            Word *values = (bias ? cache.values : cache.source_values) + place * (room / E::NUMBERS) * head_room;
            const float *query = qkv.data() + span.first * qkv_row + head * m.head_width;
            if (bias)
                for (long r = 0; r < span.count; ++r)
                    remember(m, keys, values, rows[span.first + r].column, query + r * qkv_row + inner,
                             query + r * qkv_row + 2 * inner);
            attend(s, span, head, bias ? span.length : cache.source_length[span.lane], keys, values, query,
                   bias ? bias + head * (m.hidden + 1) : nullptr);
        });
    }

    void attend(Scratch &s, const Span &span, long head, long length, const Word *keys, const Word *values,
                const float *query, const float *bias) {
        const long padded = round_up(length, PANEL);
        float *scores = s.scores.data(), *sums = s.sums.data();
        for (long c = 0; c < padded; c += PANEL)
            product<E>(query, qkv_row, span.count, keys + c * head_units, PANEL, head_units, scores + c, score_row);
        for (long r = 0; r < span.count; ++r) {
            float *row = scores + r * score_row;
            const int32_t *pair = pairs.data() + (span.first + r) * longest;
            if (bias)
                for (long c = 0; c < padded; ++c) row[c] = bias[pair[c]] == -INF ? -INF : row[c] + bias[pair[c]];
            else
                std::fill(row + length, row + padded, -INF);
            totals(s, r) = exponentials(row, padded);
        }
        for (long j = 0; j < head_room; j += PANEL)
            product<E>(scores, score_row, span.count, values + j, head_room, units(length), sums + j, head_room);
        for (long r = 0; r < span.count; ++r) {
            const float factor = 1.0f / totals(s, r);
            float *to = attended.data() + (span.first + r) * attended_row + head * m.head_width;
            for (long j = 0; j < m.head_width; ++j) to[j] = sums[r * head_room + j] * factor;
        }
    }

    // The sum of a row's softmax weights stands behind its scores.
    float &totals(Scratch &s, long r) { return s.scores[r * score_row + score_row - 1]; }

    void find_best(Scratch &s, float *logits) {
        const long size = units(m.width) * PANEL;
        team.share(round_up(m.vocabulary, PANEL) / PANEL, [&](long p) {
            float *sums = s.sums.data();
            product<E>(s.x.data(), x_row, n, m.head + p * size, PANEL, units(m.width), sums, PANEL);
            const long count = std::min(PANEL, m.vocabulary - p * PANEL);
            for (long r = 0; logits && r < n; ++r)
                std::copy_n(sums + r * PANEL, count, logits + r * m.vocabulary + p * PANEL);
            for (long r = 0; r < n; ++r)
                for (long j = 0; j < count; ++j)
                    if (sums[r * PANEL + j] > s.best_value[r]) {
                        s.best_value[r] = sums[r * PANEL + j];
                        s.best[r] = p * PANEL + j;
                    }
        });
    }

  public:
    // Put one token's key and value into its column of a head.
    static void remember(const Decoder &m, Word *keys, Word *values, long column, const float *key, const float *value) {
        const long count = m.head_width / E::NUMBERS, room = round_up(m.head_width, PANEL);
        Word *panel = keys + column / PANEL * PANEL * count + column % PANEL;
        for (long u = 0; u < count; ++u)
            panel[u * PANEL] = E::pack(key[u * E::NUMBERS], key[u * E::NUMBERS + E::NUMBERS - 1]);
        Word *row = values + column / E::NUMBERS * room;
        for (long j = 0; j < m.head_width; ++j) {
            if constexpr (E::NUMBERS == 1) {
                row[j] = to_bits(value[j]);
            } else { // neighbouring columns share a word
                const int shift = column % 2 * 16;
                row[j] = (row[j] & ~(0xffffu << shift)) | BFloat16::round(value[j]) << shift;
            }
        }
    }

  private:
    const Decoder &m;
    const Cache &cache;
    const long n;
    const Row *rows;
    Team team;
    const long inner, head_units, head_room;
    // Numbers from one row to the next; not multiples of 4 KB, which would put all rows into the same places of a cache.
    const long h_row, qkv_row, x_row, attended_row, fed_row;
    long longest = 0, longest_source = 0, most = 0, score_row = 0;
    std::vector<Span> spans;
    std::vector<float> h, qkv;
    std::vector<float> attended, fed;
    std::vector<int32_t> pairs;
    std::vector<Scratch> scratch;
};

template <class E>
void remember_source(const Decoder &m, const Cache &cache, long layer, long lane, long length, const float *keys_in,
                     const float *values_in, int threads) {
    const long units = m.head_width / E::NUMBERS, head_room = round_up(m.head_width, PANEL), inner = m.heads * m.head_width;
#pragma omp parallel for num_threads(threads)
    for (long head = 0; head < m.heads; ++head) {
        const long place = (layer * cache.lanes + lane) * m.heads + head;
        Word *keys = cache.source_keys + place * cache.source_room * units;
        Word *values = cache.source_values + place * (cache.source_room / E::NUMBERS) * head_room;
        for (long c = 0; c < length; ++c)
            Step<E>::remember(m, keys, values, c, keys_in + c * inner + head * m.head_width,
                              values_in + c * inner + head * m.head_width);
    }
}

} // namespace
