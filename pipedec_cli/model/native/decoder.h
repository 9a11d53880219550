#pragma once

// One decoder call of a T5, from token ids to the most probable next token of each row.
//
// A call with few rows reads every weight once: it is bound by memory. So the weights are packed into panels that are
// read front to back, every panel serves all rows while it is in the cache, and the threads meet eight times a layer.
// With many rows it is bound by arithmetic, for which a tile of rows × one panel is kept in registers.

#include "block.h"

// ---- what Python hands over (mirrored in library.py) -------------------------------------------------------------

extern "C" {

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

template <class E> class Step : Block<E> {
    using B = Block<E>;
    using B::m, B::n, B::team, B::inner, B::head_units, B::head_room, B::x_row, B::qkv_row, B::attended_row, B::qkv,
        B::attended, B::scratch, B::units;

    struct Span { // the rows of one sequence
        long first, count, sequence, length;
    };

  public:
    Step(const Model &model, const Cache &cache, long count, const Row *rows, int threads)
        : B(model, count, count, threads), cache(cache), rows(rows) {
        long most = 0, longest_source = 0;
        for (long r = 0; r < n; ++r) {
            if (r == 0 || rows[r].sequence != rows[r - 1].sequence) spans.push_back({r, 0, rows[r].sequence, 0});
            ++spans.back().count;
            spans.back().length = rows[r].column + 1;
            longest = std::max<long>(longest, spans.back().length);
            longest_source = std::max<long>(longest_source, cache.source_length[rows[r].sequence]);
            most = std::max(most, spans.back().count);
        }
        B::make_room(most, std::max(longest, longest_source));
        distances.resize(n * longest);
        for (auto &s : scratch) {
            s.x.resize(n * x_row);
            s.best.resize(n);
            s.best_value.assign(n, -INF);
        }
    }

    // Whatever is not null is filled: `probabilities` needs `logits`.
    void run(int64_t *answers, float *logits, float *probabilities) {
        place_rows();
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            const float *x = s.x.data();
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                normalise_all(s, layer.self_norm, 1.0f);
                B::project(x, layer.qkv, 3 * inner);
                attend_grid(s, l, layer.bias);
                B::add_product(s, attended, attended_row, layer.self_out, inner);
                normalise_all(s, layer.cross_norm, 1.0f);
                B::project(x, layer.cross_q, inner);
                attend_source(s, l);
                B::add_product(s, attended, attended_row, layer.cross_out, inner);
                normalise_all(s, layer.feed_norm, 1.0f);
                B::feed_forward(s, x, layer);
            }
            normalise_all(s, m.final_norm, static_cast<float>(m.scale));
            find_best(s, logits);
            if (probabilities)
                team.share(n, [&](long r) { probabilities[r] = largest_share(logits + r * m.vocabulary, m.vocabulary); });
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
    // Embed the tokens, write down where they stand, and look up who sees whom at what distance.
    void place_rows() {
        for (long r = 0; r < n; ++r) {
            const long place = rows[r].sequence * cache.room + rows[r].column;
            cache.subsequence[place] = static_cast<int32_t>(rows[r].subsequence);
            cache.time[place] = static_cast<int32_t>(rows[r].time);
            B::embed(r, rows[r].token);
        }
        const int32_t hidden = static_cast<int32_t>(m.reach);
        for (const Span &span : spans)
            for (long r = span.first; r < span.first + span.count; ++r) {
                const int32_t *subsequence = cache.subsequence + span.sequence * cache.room;
                const int32_t *time = cache.time + span.sequence * cache.room;
                const auto i = static_cast<int32_t>(rows[r].subsequence), t = static_cast<int32_t>(rows[r].time);
                int32_t *distance = distances.data() + r * longest;
                for (long c = 0; c < span.length; ++c) {
                    const bool sees = subsequence[c] <= i && time[c] <= t;
                    distance[c] = sees ? std::min(i + t - subsequence[c] - time[c], hidden - 1) : hidden;
                }
            }
    }

    // Every row's norm: each thread does all of them for itself, which is less work than waiting.
    void normalise_all(Scratch &s, const float *weight, float scale) {
        for (long r = 0; r < n; ++r) B::normalise(r, weight, scale, s.x.data() + r * x_row);
    }

    // Attention of every sequence's rows over its grid, head by head; their own keys and values join it first.
    void attend_grid(Scratch &s, long layer, const float *bias) {
        each_head(layer, [&](const Span &span, long head, long place) {
            Word *keys = cache.keys + place * cache.room * head_units;
            Word *values = cache.values + place * (cache.room / E::NUMBERS) * head_room;
            const float *by_distance = bias + head * (m.reach + 1);
            for (long r = span.first; r < span.first + span.count; ++r) {
                const float *key = qkv.data() + r * qkv_row + inner + head * m.head_width;
                B::remember(keys, values, rows[r].column, key, key + inner);
            }
            B::attend(s, span.first, span.count, head, span.length, keys, values, [&](long r, float *scores) {
                const int32_t *distance = distances.data() + (span.first + r) * longest;
                for (long c = 0; c < span.length; ++c) {
                    const float added = by_distance[distance[c]];
                    scores[c] = added == -INF ? -INF : scores[c] + added;
                }
            });
        });
    }

    void attend_source(Scratch &s, long layer) {
        each_head(layer, [&](const Span &span, long head, long place) {
            B::attend(s, span.first, span.count, head, cache.source_length[span.sequence],
                      cache.source_keys + place * cache.source_room * head_units,
                      cache.source_values + place * (cache.source_room / E::NUMBERS) * head_room, [](long, float *) {});
        });
    }

    template <class F> void each_head(long layer, F work) {
        team.share(static_cast<long>(spans.size()) * m.heads, [&](long i) {
            const Span &span = spans[i / m.heads];
            work(span, i % m.heads, (layer * cache.sequences + span.sequence) * m.heads + i % m.heads);
        });
    }

    void find_best(Scratch &s, float *logits) {
        const long size = units(m.width) * PANEL;
        B::panels(m.vocabulary, [&](long, long, long p) {
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

    const Cache &cache;
    const Row *rows;
    long longest = 0;
    std::vector<Span> spans;
    std::vector<int32_t> distances;
};

// Keys and values of one source for every layer, from the encoder's last states, [length][width].
template <class E> class Source : Block<E> {
    using B = Block<E>;
    using B::m, B::n, B::inner, B::x_row, B::qkv_row;

  public:
    Source(const Model &model, long length, int threads) : B(model, length, PIECE, threads) {}

    void run(const Cache &cache, long sequence, const float *states) {
        for (long r = 0; r < n; ++r) std::copy_n(states + r * m.width, m.width, B::h.data() + r * x_row);
        B::team.run([&](int) {
            for (long l = 0; l < m.layers; ++l) {
                B::project(B::h.data(), m.layer[l].cross_kv, 2 * inner);
                B::team.share(m.heads, [&](long head) {
                    const long place = (l * cache.sequences + sequence) * m.heads + head;
                    Word *keys = cache.source_keys + place * cache.source_room * B::head_units;
                    Word *values = cache.source_values + place * (cache.source_room / E::NUMBERS) * B::head_room;
                    for (long c = 0; c < n; ++c) {
                        const float *key = B::qkv.data() + c * qkv_row + head * m.head_width;
                        B::remember(keys, values, c, key, key + inner);
                    }
                });
            }
        });
    }
};

} // namespace
