#pragma once

// One decoder call of a T5, from token ids to the most probable next token of each row.
//
// A call with few rows reads every weight once: it is bound by memory. So the weights are packed into panels that are
// read front to back, every panel serves all rows while it is in the cache, and the threads meet eight times a layer.
// With many rows it is bound by arithmetic, for which a tile of rows × one panel is kept in registers.

#include "block.h"

namespace {

template <class E> class Step : Block<E> {
    using B = Block<E>;
    using B::m, B::n, B::team, B::inner, B::x_row, B::qkv_row, B::attended_row, B::qkv,
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
        for (auto &s : scratch) s.x.resize(n * x_row);
    }

    // `logits` gets [rows][vocabulary in whole panels]; `probabilities`, if not null, the softmax of each answer, and
    // then there are no logits left.
    void run(int64_t *answers, float *logits, float *probabilities) {
        const long vocabulary = round_up(m.vocabulary, PANEL);
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
            B::panels(vocabulary, [&](long, long, long p) {
                B::multiply(x, x_row, n, m.head, p, m.width, logits + p * PANEL, vocabulary);
            });
            team.share(n, [&](long r) { // the lowest id wins among equals
                float *row = logits + r * vocabulary;
                std::fill(row + m.vocabulary, row + vocabulary, -INF);
                const float largest = largest_of(row, vocabulary);
                const long best = std::find(row, row + m.vocabulary, largest) - row;
                answers[r] = best < m.vocabulary ? best : 0; // of numbers that are none, none is the largest
                if (probabilities) probabilities[r] = 1.0f / exponentials(row, vocabulary);
            });
        });
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
            const Head mine = B::head_at(cache.keys, cache.values, place, cache.room);
            const float *by_distance = bias + head * (m.reach + 1);
            for (long r = span.first; r < span.first + span.count; ++r)
                B::remember(mine, rows[r].column, qkv.data() + r * qkv_row + inner + head * m.head_width);
            B::attend(s, span.first, span.count, head, span.length, mine, [&](long r, float *scores) {
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
            const Head source = B::head_at(cache.source_keys, cache.source_values, place, cache.source_room);
            B::attend(s, span.first, span.count, head, cache.source_length[span.sequence], source, [](long, float *) {});
        });
    }

    template <class F> void each_head(long layer, F work) {
        team.share(static_cast<long>(spans.size()) * m.heads, [&](long i) {
            const Span &span = spans[i / m.heads];
            work(span, i % m.heads, (layer * cache.sequences + span.sequence) * m.heads + i % m.heads);
        });
    }

    const Cache &cache;
    const Row *rows;
    long longest = 0;
    std::vector<Span> spans;
    std::vector<int32_t> distances;
};

} // namespace
